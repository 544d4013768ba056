"""Shards: the same users as from the file in memory, whatever their number; damage is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from walked_users import same_users

from fedhist.base.errors import PopulationError
from simulations.populations import population, shards
from simulations.populations.shards import MANIFEST, VOCABULARY, Manifest
from simulations.runs.convert import convert


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(8)
    n = 6000
    user = np.where(rng.random(n) < 1 / 3, 7, rng.integers(0, 500, n))
    frame = pl.DataFrame(
        {
            "when": rng.integers(0, 9, n),
            "item": [f"né {k}" for k in np.minimum(rng.zipf(1.4, n), 300)],
            "user": [f"u{k}" for k in user],
            "count": np.where(user == 11, 0, rng.integers(0, 4, n)),
        }
    )
    path = tmp_path_factory.mktemp("events") / "events.csv"
    frame.write_csv(path)
    return path


ITEMS: dict[str, Any] = {"user": "user", "item": "item", "count": "count"}


@pytest.fixture(autouse=True)
def forget() -> None:
    for cache in (shards._none, shards._opened, shards._row_group):
        cache.cache_clear()


def test_items_are_the_same_users_as_in_memory(events: Path, tmp_path: Path) -> None:
    manifest = convert([events], tmp_path / "out", shards=7, **ITEMS)
    more = {"top": 20, "max_users": 300}
    there = population("shards", path=tmp_path / "out", **more).load()
    memory = population("events", path=events, **ITEMS, **more).load()
    assert len(manifest.files) == 7
    assert there.domain == memory.domain
    same_users(there.users, memory.users)
    assert [p.name for p in tmp_path.iterdir()] == ["out"], "the work is gone"
    assert not (tmp_path / "out" / "work").exists()


def test_samples_stay_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    user = np.array([f"u{k}" for k in rng.integers(0, 40, 900)])
    x = rng.normal(size=(900, 2))
    frame = pl.DataFrame({"user": user, "x": x[:, 0], "y": x[:, 1]})
    frame = frame.with_columns(y=pl.when(pl.int_range(900) == 17).then(None).otherwise("y"))
    frame.write_csv(tmp_path / "all.csv")
    frame.head(400).write_csv(tmp_path / "a.csv")
    frame.tail(500).write_csv(tmp_path / "b.csv")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    convert(files, tmp_path / "out", user="user", value=("x", "y"), shards=5)
    memory = population("samples", path=tmp_path / "all.csv", user="user", value=["x", "y"]).load()
    same_users(population("shards", path=tmp_path / "out").load().users, memory.users)
    with pytest.raises(PopulationError, match="top and domain are for items"):
        population("shards", path=tmp_path / "out", top=3).load()
    for wrong in ({}, {"value": ("x",), "item": "y"}, {"value": ("x",), "shards": 1 << 32}):
        with pytest.raises(ValueError, match=r"give item|4294967296"):
            convert(files, tmp_path / "none", user="user", **wrong)
    with pytest.raises(ValueError, match="name each file once"):
        convert([*files, *files], tmp_path / "none", user="user", value=("x",))


def test_bad_rows_are_named_as_in_memory(events: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(events.read_text() + "1,tea,,2\n1,tea,ann,-2\n1,tea,bob,x\n")
    with pytest.raises(PopulationError) as here:
        convert([events, bad], tmp_path / "out", shards=4, **ITEMS)
    with pytest.raises(PopulationError) as memory:
        population("events", path=bad, **ITEMS).load()
    assert str(here.value) == str(memory.value)
    assert not (tmp_path / "out").exists()
    manifest = convert([bad], tmp_path / "out2", skip_bad_rows=True, **ITEMS)
    assert manifest.dropped == {"missing user": 1, "bad count": 2}
    same_users(
        population("shards", path=tmp_path / "out2").load().users,
        population("events", path=bad, skip_bad_rows=True, **ITEMS).load().users,
    )


def test_names_that_collide_are_found(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both lie in one shard: so few ids that some must be the same."""
    from fedhist.users import frames, keys

    real = keys.hash_bytes_kernel

    def short(offsets: Any, data: Any, key: Any, out: Any) -> None:
        real(offsets, data, key, out)
        out %= np.uint64(100)

    monkeypatch.setattr(keys, "hash_bytes_kernel", short)
    monkeypatch.setattr(frames, "hash_bytes_kernel", short)
    with pytest.raises(PopulationError, match=r"u[0-9]+.*u[0-9]+"):
        convert([events], tmp_path / "out", shards=5, **ITEMS)


def test_the_folder_of_the_files_is_never_replaced(events: Path, tmp_path: Path) -> None:
    home = tmp_path / "data"
    home.mkdir()
    inside = home / "events.csv"
    inside.write_bytes(events.read_bytes())
    for out in (home, tmp_path / "link"):
        if not out.exists():
            out.symlink_to(home)
        with pytest.raises(ValueError, match=r"holds events\.csv, which fedhist did not write"):
            convert([inside], out, force=True, **ITEMS)
    assert inside.read_bytes() == events.read_bytes()


@pytest.fixture
def folder(events: Path, tmp_path: Path) -> Path:
    convert([events], tmp_path / "out", shards=4, **ITEMS)
    return tmp_path / "out"


def said(folder: Path) -> str:
    for cache in (shards._none, shards._opened, shards._row_group):
        cache.cache_clear()
    with pytest.raises(PopulationError) as error:
        population("shards", path=folder).load()
    return str(error.value)


def test_damage_is_named(folder: Path) -> None:
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    second = folder / "shard-00001.parquet"
    for at in (100, len(whole[second.name]) // 2, -20):
        body = bytearray(whole[second.name])
        body[at] ^= 1
        second.write_bytes(body)
        assert "shard-00001.parquet is" in said(folder), at
    second.write_bytes(whole[second.name][:-1])
    assert "shard-00001.parquet is" in said(folder)
    second.write_bytes(whole["shard-00002.parquet"])
    assert "is not the shard that shards.json names" in said(folder)
    second.unlink()
    assert "shard-00001.parquet is missing" in said(folder)
    second.write_bytes(whole[second.name])
    (folder / VOCABULARY).unlink()
    assert "vocabulary.parquet cannot be read" in said(folder)
    (folder / VOCABULARY).write_bytes(whole[VOCABULARY])
    first = Manifest.read(folder).files[0]
    for change, message in [
        ({"format": 2}, "format 2"),
        ({"files": []}, "describes no shards"),
        ({"vocabulary": 5}, "shard-00000.parquet"),
        ({"files": [["../x", 1, 1]]}, "describes no shards"),
        ({"files": [first._replace(users=3)]}, "shard-00000.parquet"),
    ]:
        (folder / MANIFEST).write_text(json.dumps(json.loads(whole[MANIFEST]) | change))
        assert message in said(folder)
    for text in ("{", "[" * 200_000, "[1]"):
        (folder / MANIFEST).write_text(text)
        assert "shards.json cannot be read" in said(folder)
    (folder / MANIFEST).unlink()
    assert "has no shards.json" in said(folder)
