"""From files of events or samples to shards, in two steps that need little memory.

1. Every file is split by user: its rows go to the part of the shard that the user's id names.
   Events and faults are found as for a file in memory.
2. Every shard is made from its parts: rows are grouped by user, as in memory.

Both steps are lists of independent tasks over files that all see, so that they can run on one
machine or on a cluster. What is finished is not done again: a task's result appears whole, and its
presence says that it is done.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedhist.base.errors import PopulationError
from fedhist.base.files import whole_file
from fedhist.users.batch import Users
from fedhist.users.columns import Items
from fedhist.users.frames import items_of_rows, samples_of_rows, user_ids, utf8
from fedhist.users.keys import Keys
from fedhist.users.rows import checked_events, checked_samples, collected, judged
from simulations.populations.doubts import count_doubts, header_doubts
from simulations.populations.shard_files import (
    FORMAT,
    VOCABULARY,
    FileEntry,
    Manifest,
    shard_of,
    write_shard,
)
from simulations.populations.tables import Column, TableFormat, scan_table, told_of

SHARD_BYTES = 1 << 27
"""Text that one shard is made of, about: what a task of the second step holds in memory."""

MOST_SHARDS = 1 << 16
"""Of a folder: each is a file, and one more for every file that is split."""

UNPACKED = {".gz": 5, ".zst": 6, ".parquet": 4, ".pq": 4}
"""How much larger the text of such a file is, about."""

SOURCES = "sources.json"
"""Of unfinished work: what it is made from, without which nobody goes on with it."""

ITEMS = "items.parquet"
"""Of a part: the items of its file."""

STEPS = 2
"""Of the work; raised whenever that of an earlier version cannot be gone on with."""

Each = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], Iterable[Any]]
"""Calls a function with each of some arguments; here, or on the machines of a cluster."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What is to become shards.

    Parameters
    ----------
    paths : tuple of str
        Files; the samples of a user stand in the order of the files and of their rows.
    user : str or int
    item, count : str or int, optional
    value : tuple of str or int
        One column per dimension; empty for items.
    form : TableFormat
    n_shards : int
        At most 65,536; 0 chooses by the size of the files.
    skip_bad_rows : bool
    """

    paths: tuple[str, ...]
    user: Column
    item: Column | None = None
    count: Column | None = None
    value: tuple[Column, ...] = ()
    form: TableFormat
    n_shards: int = 0
    skip_bad_rows: bool = False

    def __post_init__(self) -> None:
        if not self.paths:
            raise ValueError("there is no file to make shards of")
        if len({Path(p).resolve() for p in self.paths}) < len(self.paths):
            raise ValueError(f"a file stands twice among {', '.join(self.paths)}")
        if (self.item is None) == (not self.value):
            raise ValueError(f"give item or value: got item={self.item!r}, value={self.value!r}")
        if self.count is not None and self.item is None:
            raise ValueError(f"count={self.count!r} goes with item, not with value")
        if not 0 <= self.n_shards <= MOST_SHARDS:
            raise ValueError(
                f"the number of shards must be positive and at most {MOST_SHARDS:,}, "
                f"got {self.n_shards}"
            )

    @property
    def columns(self) -> list[Column]:
        """All columns that are read."""
        of_items = [c for c in (self.item, self.count) if c is not None]
        return [self.user, *of_items, *self.value]

    @property
    def named(self) -> dict[str, Column]:
        """The columns by what they hold."""
        of_items = [] if self.value else ["item", "count"]
        names = ["user", *of_items, *(f"value (column {v})" for v in self.value)]
        return dict(zip(names, self.columns, strict=False))

    def settled(self) -> Sources:
        """Open every file, and settle the number of shards.

        Raises
        ------
        PopulationError
            For a missing file or column, before anything is written.
        """
        for path in self.paths:
            scan_table(Path(path), self.columns, self.form)
        if self.n_shards:
            return self
        size = sum(Path(p).stat().st_size * UNPACKED.get(Path(p).suffix, 1) for p in self.paths)
        n_shards = min(-(-size // SHARD_BYTES) or 1, MOST_SHARDS)
        return Sources(**{**vars(self), "n_shards": n_shards})

    def identity(self) -> str:
        """Write what the shards depend on: the work of other sources is not gone on with."""
        stats = [(Path(p).resolve(), Path(p).stat()) for p in self.paths]
        seen = [[str(path), found.st_size, found.st_mtime_ns] for path, found in stats]
        told = {**vars(self), "format": FORMAT, "steps": STEPS, "paths": seen}
        told["form"] = asdict(self.form)
        return json.dumps(told, indent=1, default=str) + "\n"


def make_shards(
    sources: Sources, work: Path, each: Each, progress: Callable[[int, int], None]
) -> Manifest:
    """Make all shards in a folder for unfinished work, or go on with those that are left.

    Parameters
    ----------
    sources : Sources
        Settled.
    work : Path
        Afterwards ``work / "shards"`` holds the files that the manifest names.
    each : callable
        Runs tasks, here or elsewhere, and yields whenever one has ended.
    progress : callable
        Called with the tasks that are done, and with all.

    Raises
    ------
    PopulationError
        For bad rows (unless skipped), no rows, and colliding names of users.
    ValueError
        If the folder is there, and is none of this kind.
    """
    _open(sources, work)
    n_files, n = len(sources.paths), sources.n_shards
    done = 0
    for _ in each(split_file, [(sources, work, at) for at in range(n_files)]):
        done += 1
        progress(done, n_files + n)
    told = [json.loads((_part(work, at) / "told.json").read_text()) for at in range(n_files)]
    if not sum(t["rows"] for t in told):
        raise PopulationError(f"{', '.join(sources.paths)}: no rows: there is not a single user")
    vocabulary, entry = (None, None) if sources.value else _vocabulary(sources, work)
    digest = 0 if vocabulary is None else vocabulary.digest
    for _ in each(make_shard, [(sources, work, number) for number in range(n)]):
        done += 1
        progress(done, n_files + n)
    shards = [json.loads((work / f"{_name(j)}.json").read_text()) for j in range(n)]
    split, kept = sum(t["rows"] for t in told), sum(s.pop("of") for s in shards)
    if split != kept:
        discard(work)
        raise PopulationError(
            f"the files have {split:,} rows, what was split of them {kept:,}, which differ by "
            f"{abs(split - kept):,}: {work} was damaged and is thrown away; give the call again"
        )
    dropped: dict[str, int] = {}
    for t in told:
        for fault, rows in t["dropped"].items():
            dropped[fault] = dropped.get(fault, 0) + rows
    return Manifest(
        "samples" if sources.value else "items",
        ", ".join(Path(p).name for p in sources.paths),
        tuple(FileEntry(**s) for s in shards),
        entry,
        digest,
        len(sources.value),
        dropped,
        tuple(warning for t in told for warning in t["warnings"]),
    )


def here(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
    """Run tasks one after the other, in this process."""
    return (function(*task) for task in tasks)


def split_file(sources: Sources, work: Path, at: int) -> None:
    """Split one file by user: the task of the first step.

    Raises
    ------
    PopulationError
        For a bad row, unless those are skipped; names the file, the row and the value. And for what
        would be refused in memory.
    """
    part = _part(work, at)
    if part.exists():
        return
    path = Path(sources.paths[at])
    table = scan_table(path, sources.columns, sources.form)
    doubts = count_doubts(path, sources.named, sources.form)
    with told_of(path):
        user, *others = table.names
        more: dict[str, Any] = {"user": user, "overflow": table.overflow}
        if sources.value:
            rows, kept = checked_samples(table.rows, value=others, **more)
        else:
            more |= dict(zip(("item", "count"), others, strict=False))
            rows, kept = checked_events(table.rows, **more), ["item", "amount"]
        fresh = part.with_suffix(".new")
        shutil.rmtree(fresh, ignore_errors=True)
        n = sources.n_shards
        bad = pl.when(pl.col("fault") == 0).then(_shard_of(n)).otherwise(pl.lit(n, dtype=pl.UInt32))
        by_shard = pl.PartitionBy(fresh, key={"shard": bad}, include_key=False)
        fresh.mkdir(parents=True)
        _written(
            rows.select("user", *kept, "fault").sink_parquet,
            by_shard,
            compression="lz4",
            statistics=False,
            mkdir=True,
            maintain_order=bool(sources.value),
            engine="streaming",
        )
        good = [f for j in range(n) for f in _files(fresh, j)]
        count = _rows(good)
        faults = _files(fresh, n)
        dropped = {}
        if faults:
            tally = collected(_scan(faults).group_by("fault").agg(rows=pl.len()))
            dropped = judged(rows, tally, sources.skip_bad_rows)
        if good and not sources.value:
            events = _scan(good).filter(pl.col("amount") > 0)
            collected(events.select(pl.col("item").unique())).write_parquet(fresh / ITEMS)

    def recurs(what: str, field: str) -> bool:
        rows = [fresh / ITEMS] if what == "item" and good else good
        return bool(rows) and _rows(rows, pl.col(what) == field) > 0

    doubts += header_doubts(path, sources.named, sources.form, recurs)
    name = f"{path.name}: " if len(sources.paths) > 1 else ""
    said = {"rows": count, "dropped": dropped, "warnings": [name + doubt for doubt in doubts]}
    (fresh / "told.json").write_text(json.dumps(said))
    fresh.rename(part)


def make_shard(sources: Sources, work: Path, number: int) -> None:
    """Make one shard of its parts of all files: the task of the second step."""
    told = work / f"{_name(number)}.json"
    path = work / "shards" / _name(number)
    if told.exists() and path.exists():
        return
    parts = [f for at in range(len(sources.paths)) for f in _files(_part(work, at), number)]
    vocabulary = None if sources.value else _read_vocabulary(work)
    users = _users(sources, parts, vocabulary)
    fresh = path.with_suffix(".new")
    entry = _written(write_shard, fresh, users, 0 if vocabulary is None else vocabulary.digest)
    fresh.rename(path)
    whole_file(told, json.dumps(asdict(entry) | {"name": path.name, "of": _rows(parts)}))


def _users(sources: Sources, parts: list[Path], vocabulary: Keys | None) -> Users:
    """Group the rows of a shard by user."""
    none = np.empty(0, dtype=np.uint64)
    indptr = np.zeros(1, dtype=np.int64)
    if vocabulary is None:
        names = [f"value{k}" for k in range(len(sources.value))]
        if not parts:
            return Users.from_samples(none, indptr, np.empty((0, len(names))))
        rows = pl.concat([_scan([p]) for p in parts])
        ids, samples, _ = samples_of_rows(rows, user="user", value=names)
        return Users(ids, samples=samples)
    if not parts:
        return Users.from_counts(none, [], [], [], vocabulary)
    rows = _scan(parts)
    ids, v, _ = items_of_rows(rows, user="user", item="item", count="amount")
    at = vocabulary.positions(v.vocabulary).astype(np.uint32)
    return Users(ids, items=Items(vocabulary, v.indptr, at[v.item], v.count))


def _open(sources: Sources, work: Path) -> None:
    """Begin the work, or go on with it; what was begun of other sources goes."""
    told, identity = work / SOURCES, sources.identity()
    found = told.read_text(encoding="utf-8") if told.exists() else None
    strange = (p for p in work.iterdir() if not p.name.startswith(f".{SOURCES}."))
    if found is None and any(strange):
        raise ValueError(f"{work} is in the way: it is no unfinished work of fedhist shard")
    if found != identity:
        if found is not None:  # of other files, columns or numbers of shards
            discard(work)
        whole_file(told, identity)
    (work / "shards").mkdir(exist_ok=True)


def discard(work: Path) -> None:
    """Delete what a folder for unfinished work holds.

    At first it becomes nobody's: whoever is killed meanwhile leaves nothing to go on with.
    """
    told = work / SOURCES
    whole_file(told, "")
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path != told:
            path.unlink()
    told.unlink()


def _vocabulary(sources: Sources, work: Path) -> tuple[Keys, FileEntry]:
    """Put the items of all files in byte order, and keep them."""
    found = [_part(work, at) / ITEMS for at in range(len(sources.paths))]
    none = pl.Series("item", [], dtype=pl.String)
    names = pl.concat([none, *(_scan([f]).collect()["item"] for f in found if f.exists())])
    items = names.unique().sort()
    path = work / "shards" / VOCABULARY
    _written(items.to_frame().write_parquet, path)
    return Keys(*utf8(items)), FileEntry.of(path, len(items))


def _read_vocabulary(work: Path) -> Keys:
    return Keys(*utf8(_scan([work / "shards" / VOCABULARY]).collect()["item"]))


def _shard_of(n: int) -> pl.Expr:
    """Say in which of n shards a row's user is."""

    def number(ids: pl.Series) -> pl.Series:
        return pl.Series(shard_of(ids.to_numpy(), n))

    ids = user_ids(pl.col("user"))
    return ids.map_batches(number, return_dtype=pl.UInt32, is_elementwise=True)


def _written(write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return write(*args, **kwargs)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise PopulationError(f"the shards cannot be written or read: {reason}") from error


def _rows(files: list[Path], *which: pl.Expr) -> int:
    """Count the rows of files; all of them by what the files say of themselves, unread."""
    rows = (_scan([f]).filter(*which) if which else _scan([f]) for f in files)
    return sum(int(collected(found.select(pl.len())).item()) for found in rows)


def _scan(files: list[Path]) -> pl.LazyFrame:
    """Read Parquet files of just these names: stars and brackets may be in those of folders."""
    return pl.scan_parquet(files, glob=False)


def _name(number: int) -> str:
    return f"shard-{number:05d}.parquet"


def _part(work: Path, at: int) -> Path:
    return work / f"part-{at:05d}"


def _files(part: Path, number: int) -> list[Path]:
    return sorted((part / f"shard={number}").glob("*.parquet"))
