"""A real deployment: a SuperLink and two SuperNodes on loopback that trust the server."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flower_cases import (
    DOMAIN,
    HISTOGRAM,
    PATIENCE,
    REMOTE,
    ask,
    inline_estimate,
    load_events,
    read_estimate,
    write_config,
)

from tests.support.loopback import Loopback

pytestmark = pytest.mark.deploy


def test_same_estimate_as_inline(tmp_path: Path) -> None:
    files = [tmp_path / f"owner-{node}.csv" for node in range(2)]
    for node, file in enumerate(files):
        rows = [f"{node}-{u % 8},{item},{1 + u}\n" for u in range(8) for item in (*DOMAIN, "cola")]
        file.write_text("who,what,times\n" + "".join(rows), encoding="utf-8")
    protocol = HISTOGRAM | {"grid": 0.25}
    run = {"nodes": 2, "seed": 5, "timeout": PATIENCE}
    config = write_config(tmp_path / "remote.toml", run=run, protocol=protocol, population=REMOTE)
    with Loopback(tmp_path / "flower") as link:
        for i, file in enumerate(files):
            link.supernode(
                {
                    **{"data": str(file), "user": "who", "item": "what", "count": "times"},
                    **{"partition-id": i, "trust": "central", "queries": "clipped-counts"},
                    **{"guard-folder": str(tmp_path / f"guard-{i}"), "simulation-seed": 5},
                },
                pinned=i == 1,
            )
        done = ask(link, config, tmp_path / "results")
    assert done.status == "finished:completed", done.log
    here = inline_estimate(config, load_events(files))
    np.testing.assert_array_equal(read_estimate(tmp_path / "results"), here)
