"""Configurations and their inline answers, for the tests of Flower's own runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import fedhist
from fedhist.users.batch import Users
from server.noise import noise_source
from server.session.session import Session
from simulations.config.reading import toml_value
from simulations.populations import population
from simulations.runs.config import load_config, prepare
from simulations.runtimes.inline import InlinePopulation
from tests.support.loopback import FlowerRun, Loopback

APP = Path(fedhist.__file__).resolve().parent.parent
DOMAIN = ["chai", "maté", "rooibos", "tea", "お茶"]
REMOTE = {"kind": "remote"}
PATIENCE = 900.0
"""Seconds that a run may take which shall end by itself: no test measures time."""
HISTOGRAM = {"name": "bounded-histogram", "domain": DOMAIN, "epsilon": 1.0, "clip": 7.0}


def write_config(path: Path, **tables: Mapping[str, Any]) -> Path:
    lines = []
    for table, body in tables.items():
        lines.append(f"[{table}]")
        for key, value in body.items():
            lines.append(f"{key} = {toml_value(value)}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def ask(link: Loopback, config: Path, out: Path, app: Path = APP, **overrides: object) -> FlowerRun:
    text = " ".join(f"{k.replace('__', '.')}={v}" for k, v in overrides.items())
    return link.run(app, {"config": str(config), "overrides": text, "out": str(out)})


def read_estimate(folder: Path) -> np.ndarray:
    return pl.read_parquet(folder / "estimate.parquet")["estimate"].to_numpy()


def inline_estimate(config: Path, nodes: Sequence[Users]) -> np.ndarray:
    prepared = prepare(load_config(config))
    run = prepared.config.run
    session = Session(prepared.protocol, noise_source(run.noise, run.seed, prepared.protocol))
    value = session.run(InlinePopulation(nodes, run.seed).ask).value
    assert value is not None
    return value


def load_events(files: Sequence[Path]) -> list[Users]:
    return [
        population("events", path=f, user="who", item="what", count="times").load().users
        for f in files
    ]
