"""Shards: the same users as from the file in memory, whatever their number; damage is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from walked_users import same_users

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from simulations.populations import population, sharding
from simulations.populations.shard_files import MANIFEST, VOCABULARY, Manifest
from simulations.populations.sharding import Sources
from simulations.populations.tables import TableFormat
from simulations.runs.sharding import shard


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of 500 users; one has a third of all rows, one only zeros, and names are not ASCII."""
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


def sources(*paths: Path, **more: Any) -> Sources:
    given = {"user": "user", "item": "item", "count": "count", "form": TableFormat()} | more
    return Sources(paths=tuple(map(str, paths)), **given)


@pytest.mark.parametrize("n", [1, 7, 64])
def test_items_are_the_same_users_as_in_memory(n: int, events: Path, tmp_path: Path) -> None:
    manifest = shard(sources(events, n_shards=n), tmp_path / "out")
    more = {"top": 20, "max_users": 300}
    table = {"user": "user", "item": "item", "count": "count"}
    there = population("shards", path=tmp_path / "out", **more).load()
    memory = population("events", path=events, **table, **more).load()
    assert len(manifest.shards) == n
    assert there.domain == memory.domain
    same_users(there.users, memory.users)
    whole = population("shards", path=tmp_path / "out").load().users
    same_users(whole, population("events", path=events, **table).load().users)
    assert manifest.n_users == len(whole)
    left = [p.name for p in tmp_path.iterdir()]
    assert left == ["out"], "the unfinished work is gone"


def test_a_user_in_several_files(events: Path, tmp_path: Path) -> None:
    """Halves of a file, one of them compressed, are the whole."""
    whole = pl.read_csv(events)
    whole.head(2500).write_csv(tmp_path / "a.csv")
    whole.tail(3500).write_parquet(tmp_path / "b.parquet")
    halves = sources(tmp_path / "a.csv", tmp_path / "b.parquet", n_shards=3)
    shard(halves, tmp_path / "halves")
    shard(sources(events, n_shards=3), tmp_path / "one")
    load = [population("shards", path=tmp_path / name).load().users for name in ("halves", "one")]
    same_users(*load)


@pytest.mark.parametrize("n", [1, 5])
def test_samples_stay_in_the_order_of_the_rows(n: int, tmp_path: Path) -> None:
    """Of two dimensions, with NaN, and of users whose rows lie in two files."""
    rng = np.random.default_rng(4)
    user = np.array([f"u{k}" for k in rng.integers(0, 40, 900)])
    x = rng.normal(size=(900, 2))
    frame = pl.DataFrame({"user": user, "x": x[:, 0], "y": x[:, 1]})
    frame = frame.with_columns(y=pl.when(pl.int_range(900) == 17).then(None).otherwise("y"))
    frame.write_csv(tmp_path / "all.csv")
    frame.head(400).write_csv(tmp_path / "a.csv")
    frame.tail(500).write_csv(tmp_path / "b.csv")
    files = sources(
        tmp_path / "a.csv", tmp_path / "b.csv", item=None, count=None, value=("x", "y"), n_shards=n
    )
    shard(files, tmp_path / "out")
    memory = population("samples", path=tmp_path / "all.csv", user="user", value=["x", "y"]).load()
    same_users(population("shards", path=tmp_path / "out").load().users, memory.users)
    with pytest.raises(PopulationError, match="top and domain are for items"):
        population("shards", path=tmp_path / "out", top=3).load()


def test_bad_rows_are_named_as_in_memory(events: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text(events.read_text() + "1,tea,,2\n1,tea,ann,-2\n1,tea,bob,x\n")
    table = {"user": "user", "item": "item", "count": "count"}
    with pytest.raises(PopulationError) as here:
        shard(sources(events, bad, n_shards=4), tmp_path / "out")
    with pytest.raises(PopulationError) as memory:
        population("events", path=bad, **table).load()
    key, option = "skip_bad_rows = true", "--skip-bad-rows"
    assert str(here.value) == str(memory.value).replace(key, option)
    assert "row 6001: missing user (item 'tea') (3 bad rows in all)" in str(here.value)
    assert not (tmp_path / "out").exists()
    manifest = shard(sources(bad, n_shards=4, skip_bad_rows=True), tmp_path / "out2")
    assert manifest.dropped == {"missing user": 1, "bad count": 2}
    same_users(
        population("shards", path=tmp_path / "out2").load().users,
        population("events", path=bad, skip_bad_rows=True, **table).load().users,
    )


DOUBTS = [
    ("user,item,n\nann,tea,1.000\nbob,rye,12\n", ("user", "item", "n")),
    ("1,5,7\n2,5,9\n1,6,3\n", (0, 1, 2)),
    ("ann,tea\nann,rye\nbob,tea\n", (0, 1, None)),
    ("user,item\nann,tea\nuser,item\n", ("user", "item", None)),
    ("ann,3.5\nbob,1\n", (0, 1)),
    ("user,item,n\nann,tea,1.000\nbob,rye,2.000\n", ("user", "item", "n")),
    ("who,what\nann,tea\nbob,rye\n", (0, 1, None)),
    ("ann,chai\nann,tea\nbob,rye\n", (0, 1, None)),
    ("ann,tea\nbob,tea\n", (0, 1, None)),
    ("who,what\nann,1\n", (0, 1)),
]
"""Files that surely, or perhaps, are not what they are read as; columns of samples are two."""


@pytest.mark.parametrize(("text", "columns"), DOUBTS)
def test_what_is_refused_or_doubted_in_memory(
    text: str, columns: tuple[str | int | None, ...], tmp_path: Path
) -> None:
    """Is so by the command, which names its options; a folder keeps its doubts."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    user, other, *count = columns
    kind = "events" if count else "samples"
    named = {"item" if count else "value": other} | ({"count": count[0]} if count else {})
    more = named if count else {"item": None, "count": None, "value": (other,)}
    try:
        (doubt,) = population(kind, path=path, user=user, **named).load().warnings
    except PopulationError as error:
        with pytest.raises(PopulationError) as here:
            shard(sources(path, user=user, **more), tmp_path / "out")
        assert not (tmp_path / "out").exists()
        said, doubt = str(here.value), str(error)
    else:
        shard(sources(path, user=user, n_shards=2, **more), tmp_path / "out")
        (said,) = population("shards", path=tmp_path / "out").load().warnings
        said = said.removeprefix("fedhist shard: ")
    assert said == doubt.replace("set population.header = false", "give --no-header")


def test_doubts_about_several_files_name_them(events: Path, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("user,item,count\nann,tea,1.000\n")
    shard(sources(events, tmp_path / "b.csv"), tmp_path / "out")
    (doubt,) = population("shards", path=tmp_path / "out").plan().warnings
    assert doubt.startswith("fedhist shard: b.csv: all counts have three decimals")
    shard(sources(events), tmp_path / "one")
    assert "warnings" not in (tmp_path / "one" / MANIFEST).read_text()
    manifest = json.loads((tmp_path / "one" / MANIFEST).read_text())
    (tmp_path / "one" / MANIFEST).write_text(json.dumps(manifest | {"warnings": [5]}))
    assert "5 is no text" in said(tmp_path / "one")


def test_no_rows(tmp_path: Path) -> None:
    (tmp_path / "none.csv").write_text("user,item,count\n")
    with pytest.raises(PopulationError, match="no rows: there is not a single user"):
        shard(sources(tmp_path / "none.csv"), tmp_path / "out")


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
        shard(sources(events, n_shards=5), tmp_path / "out")


def test_what_is_done_is_not_done_again(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends the third shard; the next call makes what is left, and only that."""
    made: list[str] = []
    real = sharding.write_shard

    def write(path: Path, users: Users, digest: int) -> Any:
        if len(made) == 2:
            raise OSError(28, "No space left on device")
        made.append(path.name)
        return real(path, users, digest)

    monkeypatch.setattr(sharding, "write_shard", write)
    with pytest.raises(PopulationError, match="No space left on device"):
        shard(sources(events, n_shards=6), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(sharding, "scan_table", lambda *_: pytest.fail("was split already"))
    made.insert(0, "")  # the count is past the failure
    table = sources(events, n_shards=6)
    monkeypatch.setattr(Sources, "settled", lambda self: self)
    shard(table, tmp_path / "out")
    assert len(made) == 7
    monkeypatch.undo()
    shard(sources(events, n_shards=6), tmp_path / "again")
    load = [population("shards", path=tmp_path / name).load().users for name in ("out", "again")]
    same_users(*load)


def test_unfinished_work_of_other_settings_begins_anew(events: Path, tmp_path: Path) -> None:
    """And what is not fedhist's is left alone."""
    bad = tmp_path / "bad.csv"
    bad.write_text(events.read_text() + "1,tea,,2\n")
    with pytest.raises(PopulationError, match="missing user"):
        shard(sources(events, bad, n_shards=2), tmp_path / "out")
    assert (tmp_path / ".out.unfinished").exists()
    shard(sources(events, n_shards=3), tmp_path / "out")
    assert not (tmp_path / ".out.unfinished").exists()
    (tmp_path / ".b.unfinished").mkdir()
    (tmp_path / ".b.unfinished" / "mine").touch()
    with pytest.raises(ValueError, match="is in the way"):
        shard(sources(events), tmp_path / "b")


class Killed(BaseException):
    """In place of a signal that nobody can catch."""


def killed_while_clearing(patch: pytest.MonkeyPatch, files: Sources, out: Path) -> None:
    """End when a file of the first part is gone."""
    real = shutil.rmtree

    def rmtree(path: Path, *args: Any, **kwargs: Any) -> None:
        rows = sorted(Path(path).rglob("shard=*/*.parquet"))
        if ".unfinished" in str(path) and rows:
            rows[0].unlink()
            raise Killed
        real(path, *args, **kwargs)

    with patch.context() as p:
        p.setattr(shutil, "rmtree", rmtree)
        with pytest.raises(Killed):
            shard(files, out)


def killed_in_the_second_step(patch: pytest.MonkeyPatch, files: Sources, out: Path) -> None:
    def write(*_: Any) -> None:
        raise Killed

    with patch.context() as p:
        p.setattr(sharding, "write_shard", write)
        with pytest.raises(Killed):
            shard(files, out)


def test_a_call_that_was_killed_when_it_had_done_is_given_again(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of its work is not taken for whole."""
    killed_while_clearing(monkeypatch, sources(events, n_shards=4), tmp_path / "out")
    good = population("shards", path=tmp_path / "out").load().users
    assert (tmp_path / ".out.unfinished").exists()
    shard(sources(events, n_shards=4), tmp_path / "out")
    same_users(population("shards", path=tmp_path / "out").load().users, good)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_work_that_another_call_was_killed_clearing_begins_anew(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, others = sources(events, n_shards=4), sources(events, n_shards=4, count=None)
    killed_in_the_second_step(monkeypatch, mine, tmp_path / "out")
    killed_while_clearing(monkeypatch, others, tmp_path / "out")
    shard(mine, tmp_path / "out")
    shard(mine, tmp_path / "again")
    load = [population("shards", path=tmp_path / name).load().users for name in ("out", "again")]
    same_users(*load)


def test_rows_that_were_lost_on_the_way_are_counted(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work they are missing from is not gone on with again."""
    files = sources(events, n_shards=4)
    killed_in_the_second_step(monkeypatch, files, tmp_path / "out")
    part = next((tmp_path / ".out.unfinished").glob("part-*/shard=2/*.parquet"))
    lost = pl.read_parquet(part).height
    part.unlink()
    said = f"the files have 6,000 rows, what was split of them {6000 - lost:,}, .* by {lost:,}:"
    with pytest.raises(PopulationError, match=said):
        shard(files, tmp_path / "out")
    assert not list(tmp_path.iterdir())
    assert shard(files, tmp_path / "out").n_users == 500


def test_names_that_look_like_patterns(events: Path, tmp_path: Path) -> None:
    """Rows of other work beside it do not get in, and the folder can be read."""
    other = tmp_path / "other.csv"
    other.write_text("user,item,count\nstranger,secret,1\n,x,1\n")
    home = tmp_path / "a [1]"
    with pytest.raises(PopulationError, match="missing user"):
        shard(sources(other, events, n_shards=3), home / "b1")
    for name in ("b*", "b?", "b[1]"):
        shard(sources(events, n_shards=3), home / name)
        memory = population("events", path=events, user="user", item="item", count="count").load()
        same_users(population("shards", path=home / name).load().users, memory.users)


def test_two_processes_do_not_make_one_folder(events: Path, tmp_path: Path) -> None:
    """The second is told; what was there is as it was, and nothing is left of the lock."""

    def second(_done: int, _of: int) -> None:
        with pytest.raises(ValueError, match=r"another process makes .*out; wait"):
            shard(sources(events, n_shards=2), tmp_path / "out")

    shard(sources(events, n_shards=3), tmp_path / "out", progress=second)
    assert len(list((tmp_path / "out").glob("shard-*.parquet"))) == 3
    shard(sources(events, n_shards=2), tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir() if "unfinished" in p.name) == []


def test_the_folder_of_the_files_is_never_replaced(events: Path, tmp_path: Path) -> None:
    home = tmp_path / "data"
    home.mkdir()
    inside = home / "events.csv"
    inside.write_bytes(events.read_bytes())
    for out in (home, tmp_path / "link"):
        if not out.exists():
            out.symlink_to(home)
        with pytest.raises(ValueError, match=r"holds events\.csv, which fedhist did not write"):
            shard(sources(inside), out, force=True)
    assert inside.read_bytes() == events.read_bytes()


@pytest.fixture
def folder(events: Path, tmp_path: Path) -> Path:
    shard(sources(events, n_shards=4), tmp_path / "out")
    return tmp_path / "out"


def said(folder: Path) -> str:
    with pytest.raises(PopulationError) as error:
        population("shards", path=folder).load()
    return str(error.value)


def test_damage_is_named(folder: Path) -> None:
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    second = folder / "shard-00001.parquet"
    body = bytearray(whole[second.name])
    body[len(body) // 2] ^= 1
    second.write_bytes(body)
    assert "shard-00001.parquet is damaged" in said(folder)
    second.write_bytes(whole[second.name][:-1])
    assert "shards.json says" in said(folder)
    second.unlink()
    assert "shard-00001.parquet is missing" in said(folder)
    second.write_bytes(whole[second.name])
    (folder / VOCABULARY).unlink()
    assert "vocabulary.parquet is missing" in said(folder)
    (folder / VOCABULARY).write_bytes(whole[VOCABULARY])
    manifest = json.loads(whole[MANIFEST])
    for change, message in [
        ({"format": 99}, "format 99, this fedhist reads 2"),
        ({"shards": []}, "describes no shards"),
        ({"what": "sounds"}, "describes no shards"),
        ({"shards": 3}, "cannot be read"),
        ({"shards": manifest["shards"][::-1]}, "is not shard 0 of 4"),
        ({"shards": manifest["shards"][:3]}, "is not shard 1 of 3"),
        ({"format": 1}, "format 1, this fedhist reads 2"),
        ({"vocabulary_digest": 5}, "another vocabulary"),
        ({"vocabulary_digest": "5"}, "'5' is no natural number"),
        ({"vocabulary": None}, "items of dimension 0"),
        ({"what": "samples"}, "samples of dimension 0"),
        ({"dimension": 2}, "items of dimension 2"),
        ({"title": 5}, "5 is no text"),
        ({"shards": [manifest["shards"][0] | {"rows": "1"}]}, "'1' is no natural number"),
        ({"shards": [manifest["shards"][0] | {"rows": -1}]}, "-1 is no natural number"),
        ({"shards": [manifest["shards"][0] | {"rows": 10**30}]}, "no natural number below 2^64"),
        ({"shards": [manifest["shards"][0] | {"rows": 1 << 62}] * 4}, "users are too many"),
        ({"shards": [manifest["shards"][0] | {"name": None}]}, "None is no text"),
        ({"shards": [manifest["shards"][0] | {"name": ""}]}, "'' is no file of the folder"),
        ({"shards": [manifest["shards"][0] | {"name": "a\0b"}]}, r"'a\x00b' is no file"),
        ({"shards": [manifest["shards"][0] | {"name": "../x"}]}, "'../x' is no file of the folder"),
    ]:
        (folder / MANIFEST).write_text(json.dumps(manifest | change))
        assert message in said(folder)
    for text in ("{", "[" * 200_000, "[1]"):
        (folder / MANIFEST).write_text(text)
        assert "shards.json cannot be read" in said(folder)
    (folder / MANIFEST).unlink()
    assert "nothing, or unfinished" in said(folder)
    assert "is no folder" in said(folder / "x")


def test_samples_of_another_dimension(tmp_path: Path) -> None:
    """Two coordinates are not read as two samples."""
    table = tmp_path / "t.csv"
    table.write_text("user,x,y\na,0.5,1\na,2,3\nb,4,5\n")
    form = TableFormat(separator=",")
    shard(Sources(paths=(str(table),), user="user", value=("x", "y"), form=form), tmp_path / "o")
    manifest = json.loads((tmp_path / "o" / MANIFEST).read_text())
    (tmp_path / "o" / MANIFEST).write_text(json.dumps(manifest | {"dimension": 1}))
    assert "samples of another dimension than its folder" in said(tmp_path / "o")


def test_a_shard_of_another_folder(folder: Path, events: Path, tmp_path: Path) -> None:
    """Even where the manifest was made to fit it."""
    other = tmp_path / "other.csv"
    other.write_text(events.read_text().replace("né 2", "tea"))
    shard(sources(other, n_shards=4), tmp_path / "b")
    mine, strange = Manifest.read(folder), Manifest.read(tmp_path / "b")
    (folder / "shard-00002.parquet").write_bytes(
        (tmp_path / "b" / "shard-00002.parquet").read_bytes()
    )
    told = json.loads((folder / MANIFEST).read_text())
    told["shards"][2] = vars(strange.shards[2])
    (folder / MANIFEST).write_text(json.dumps(told))
    assert mine.vocabulary_digest != strange.vocabulary_digest
    assert "is of another vocabulary than its folder" in said(folder)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"item": None, "count": None}, "give item or value"),
        ({"value": ("count",)}, "give item or value"),
        ({"item": None, "value": ("count",)}, "goes with item"),
        ({"n_shards": -1}, "must be positive and at most 65,536, got -1"),
        ({"n_shards": 1 << 32}, "at most 65,536, got 4294967296"),
        ({"user": "usr"}, "no column 'usr'"),
    ],
)
def test_bad_settings(more: dict[str, Any], message: str, events: Path, tmp_path: Path) -> None:
    with pytest.raises((ValueError, PopulationError), match=message):
        shard(sources(events, **more), tmp_path / "out")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="stands twice"):
        sources(events, events)
    (tmp_path / "out").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        shard(sources(events), tmp_path / "out")
