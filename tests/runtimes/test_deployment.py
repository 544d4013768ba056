"""A real deployment: a SuperLink and two SuperNodes on loopback that trust the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flower_cases import (
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
from tests.support.processes import marked_processes

pytestmark = pytest.mark.deploy


@pytest.fixture(scope="module")
def trusting(
    event_files: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("trusting")
    with Loopback(folder) as link:
        for i, file in enumerate(event_files):
            link.supernode(
                {
                    **{"data": str(file), "user": "who", "item": "what", "count": "times"},
                    **{"partition-id": i, "trust": "central", "queries": "clipped-counts"},
                    **{"guard-folder": str(folder / f"guard-{i}"), "simulation-seed": 5},
                },
                pinned=i == 1,
            )
        yield link
    assert list(marked_processes(link.token)) == []


def test_same_estimate_as_inline(
    trusting: Loopback, event_files: list[Path], tmp_path: Path
) -> None:
    protocol = HISTOGRAM | {"grid": 0.25}
    run = {"nodes": 2, "seed": 5, "timeout": PATIENCE}
    config = write_config(tmp_path / "remote.toml", run=run, protocol=protocol, population=REMOTE)
    done = ask(trusting, config, tmp_path / "results")
    assert done.status == "finished:completed", done.log
    here = inline_estimate(config, load_events(event_files))
    np.testing.assert_array_equal(read_estimate(tmp_path / "results"), here)
