"""A folder of shards is walked by row groups: the same users in any slices, and few are read."""

from __future__ import annotations

import pickle
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from walked_users import same_users

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from simulations.populations import Plan, population, shards
from simulations.populations.shards import InFolder
from simulations.runs import convert as converting
from simulations.runs.convert import convert, shard_of

GROUP = 16
COLUMNS: dict[str, dict[str, Any]] = {
    "items": {"item": "item", "count": "count"},
    "samples": {"value": ("x", "y")},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(6)
    n = 2000
    user = [f"u{k}" for k in rng.integers(0, 300, n)]
    item = [f"né {k}" for k in np.minimum(rng.zipf(1.4, n), 60)]
    more = {"count": rng.integers(0, 4, n), "x": rng.normal(size=n), "y": rng.normal(size=n)}
    home = tmp_path_factory.mktemp("blocks")
    path = home / "rows.csv"
    pl.DataFrame({"user": user, "item": item} | more).write_csv(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(converting, "BLOCK", GROUP)
        for what, columns in COLUMNS.items():
            for k in (1, 5, 40):
                convert([path], home / f"{what}{k}", user="user", shards=k, **columns)
    return home


@pytest.fixture(autouse=True)
def forget() -> None:
    _forget()


MOST: tuple[dict[str, Any], ...] = ({}, {"max_users": 10}, {"max_users": 10**9})


def _forget() -> None:
    for cache in (shards._none, shards._opened, shards._row_group):
        cache.cache_clear()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    result: list[int] = []
    real = pq.ParquetFile.read_row_group

    def one(self: Any, i: int, *args: Any, **kwargs: Any) -> Any:
        result.append(i)
        return real(self, i, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", one)
    for whole in ("read", "read_row_groups", "iter_batches"):
        monkeypatch.delattr(pq.ParquetFile, whole)
    monkeypatch.setattr(pq, "read_table", None)
    return result


def plan(data: Path, name: str, **more: Any) -> Plan:
    return population("shards", path=data / name, **more).plan()


def in_memory(data: Path, what: str, **more: Any) -> Users:
    kind = "events" if what == "items" else "samples"
    table = {"path": data / "rows.csv", "user": "user"} | COLUMNS[what] | more
    return population(kind, **table).load().users


@pytest.mark.parametrize("what", COLUMNS)
@pytest.mark.parametrize("k", [1, 5, 40])
def test_any_blocks_and_slices_are_the_file_in_memory(
    what: str, k: int, data: Path, read: list[int]
) -> None:
    users, want = plan(data, f"{what}{k}").users, in_memory(data, what)
    n = len(want)
    assert len(users) == n
    for size in (1, 7, GROUP, 50, n - 1, n, n + 1, 1 << 16):
        blocks = list(users.blocks(size))
        assert [len(b) for b in blocks] == [len(b) for b in want.blocks(size)]
        same_users(users.none.followed_by(blocks), want)
    cuts = [0, 0, 1, 2, GROUP, GROUP + 1, 100, n - 1, n, n]
    for a, b in pairwise(cuts):
        part = users.slice(a, b)
        same_users(part.in_memory(), want.slice(a, b))
        again = pickle.loads(pickle.dumps(part))
        same_users(again.slice(0, len(part)).in_memory(), want.slice(a, b))
    inner = users.slice(20, 250).slice(30, 200)
    same_users(inner.in_memory(), want.slice(50, 220))
    same_users(inner.slice(5, 6).in_memory(), want.slice(55, 56))
    assert list(users.slice(n, n).blocks()) == []


def test_ids_stand_in_order_of_shards() -> None:
    for n in (1, 2, 7, 64, 1000, (1 << 32) - 1):
        cuts = [(j << 64) // n for j in {*range(min(n, 50)), n // 2, n - 1}]
        ids = sorted({(c + more) % (1 << 64) for c in cuts for more in (-1, 0, 1)})
        result = shard_of(np.array(ids, dtype=np.uint64), n)
        assert result.tolist() == [i * n >> 64 for i in ids]


def test_a_slice_is_small_and_reads_what_it_needs(data: Path, read: list[int]) -> None:
    """On its way to a node it has neither users nor words with it, and few files."""
    users = plan(data, "items40").users
    assert isinstance(users, InFolder)
    parts = users.split(60)
    assert max(len(pickle.dumps(part)) for part in parts) < 1500
    assert {len(part.files) for part in parts} <= {1, 2, 3}
    assert read == []
    whole = plan(data, "items1").users
    next(iter(whole.slice(3 * GROUP + 2, 3 * GROUP + 7).blocks()))
    assert read == [3]
    for part in whole.slice(4 * GROUP, 6 * GROUP).split(2 * GROUP):  # a user on each node
        assert len(part.in_memory()) == 1
    assert read == [3, 4, 5]
    stated = [population("shards", path=data / "items40", **m).stated for m in MOST]
    assert stated == [len(plan(data, "items40", **m).users) for m in MOST]
    some = plan(data, "items40", max_users=10).users
    assert len(some) == 10
    assert len(some.files) < 5


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data / "items5", tmp_path / "folder"))


def test_a_missing_file_is_named_before_anybody_is_read(folder: Path, read: list[int]) -> None:
    """When the users are planned; and of a file that goes later, when it is walked."""
    users = population("shards", path=folder).plan().users
    (folder / "shard-00003.parquet").unlink()
    _forget()
    for try_it in (lambda: population("shards", path=folder).plan(), users.in_memory):
        with pytest.raises(PopulationError, match=r"shard-00003\.parquet is missing"):
            try_it()
