"""Flower's own simulation runtime, ``flwr run .``: the same apps, bit for bit the same answer."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from flower_cases import APP, read_estimate, write_config

from simulations.runs.config import load_config, prepare
from simulations.runs.run import execute
from tests.support.loopback import Loopback


@pytest.mark.slow
@pytest.mark.flwr
def test_same_sum_under_masks_as_inline_without(tmp_path: Path) -> None:
    tables = {
        "protocol": {
            **{"name": "bounded-histogram", "epsilon": 1.0, "clip": 20.0, "grid": 0.5},
            "trust": "aggregate",
        },
        "population": {"kind": "zipf", "n_users": 200, "d": 12, "mean_items": 9, "seed": 7},
    }
    run = {"seed": 1, "nodes": 10}
    config = write_config(tmp_path / "config.toml", run=run, **tables)
    told = {
        "config": str(config),
        "overrides": "run.aggregation=masked",
        "out": str(tmp_path / "r"),
    }
    with Loopback(tmp_path / "flower", simulation=True) as link:
        done = link.run(APP, told, nodes=10)
    assert done.status == "finished:completed", done.log
    prepared = prepare(load_config(config))
    assert prepared.plan is not None
    options = prepared.config.run.options(runtime="inline")
    here = execute(prepared.protocol, prepared.plan.users, options)
    assert here.estimate.value is not None
    np.testing.assert_array_equal(read_estimate(tmp_path / "r"), here.estimate.value)


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")
@pytest.mark.flwr
def test_the_app_bundle_is_whole_and_small() -> None:
    from flwr.cli.build import build_fab_from_disk

    bundle = build_fab_from_disk(APP)
    with zipfile.ZipFile(io.BytesIO(bundle)) as fab:
        names = set(fab.namelist())
    for package in ("fedhist", "clients", "server", "simulations"):
        folder = APP / package
        files = [*folder.rglob("*.py"), *folder.rglob("*.toml")]
        expected = {str(f.relative_to(APP)) for f in files if "__pycache__" not in f.parts}
        assert expected <= names
        assert expected
    packages = ("fedhist/", "clients/", "server/", "simulations/", ".info/")
    strangers = {n for n in names if "/" in n and not n.startswith(packages)}
    assert strangers == set()
    assert len(bundle) < 5_000_000  # Flower's own limit is 10 MB
