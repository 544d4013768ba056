"""Server and nodes killed together at any write: what is on disk goes on to one right sum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from masked_grids import FolderGrid, Killed, start, total_of

from fedhist import Users
from fedhist.base import files
from fedhist.privacy.shares import Aggregation
from fedhist.protocols import BoundedHistogram

N = 4
USERS = Users.from_records({f"user-{i}": {"tea": 1 + i % 3, "rye": i % 2} for i in range(12)})
NODES = USERS.split(N)
PROTOCOL = BoundedHistogram(
    domain=USERS.vocabulary, clip=2.0, epsilon=1.0, grid=0.01, trust=Aggregation(N, 0.25, 0.0)
)
OWNER = {
    **{"trust": "aggregate", "epsilon": 1.0, "min-parties": N},
    **{"adjacency": "zero-out-user", "min-collude": 0.0},
}


class Writes:
    """Counts writes to disk, and kills before or after one of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at: int = 0, *, after: bool = False) -> None:
        self.count = 0
        force: Callable[..., None] = files._force

        def counted(*args: object) -> None:
            self.count += 1
            if self.count == at and not after:
                raise Killed
            force(*args)
            if self.count == at:
                raise Killed

        patch.setattr(files, "_force", counted)


def grid_of(folder: Path) -> FolderGrid:
    return FolderGrid(NODES, folder / "nodes", [OWNER] * N)


def answer_of(folder: Path, i: int) -> tuple[bytes, list[int]]:
    state = grid_of(folder).attempt(i)
    return state["answer"], state["unmasked"]


def run_to_the_end(folder: Path) -> list[int]:
    session, _ = start(grid_of(folder), PROTOCOL, folder / "journal")
    (line,) = session.journal.lines("masked", 0)
    present: list[int] = line["nodes"]
    expected = grid_of(folder).total_of_kept(present)
    np.testing.assert_array_equal(total_of(session), expected)
    for i in range(N):
        store = grid_of(folder).store(i)
        assert [a.epsilon for a in store.answered()] == [1.0]
        assert len(store.unmasked()) <= 1
    return present


def test_killed_at_any_write(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        writes = Writes(patch)
        assert run_to_the_end(tmp_path / "whole") == list(range(N))
    assert writes.count > 40
    for number in range(1, writes.count + 1, 5):
        after = bool(number % 2)
        folder = tmp_path / f"{number}"
        with pytest.MonkeyPatch.context() as patch:
            Writes(patch, number, after=after)
            with pytest.raises(Killed):
                start(grid_of(folder), PROTOCOL, folder / "journal")
        recorded = {}
        for i in range(N):  # who has noted that it has unmasked
            if (folder / "nodes" / f"guard-{i}").exists() and grid_of(folder).store(i).unmasked():
                recorded[i] = answer_of(folder, i)
        present = run_to_the_end(folder)
        for i, (shares, nodes) in recorded.items():
            assert answer_of(folder, i) == (shares, nodes)
            assert nodes == present
