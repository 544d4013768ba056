"""From files of events or samples, larger than memory, to a folder that runs read by blocks.

Every file is split by user with polars' streaming: its rows go to the part that the user's id
names. Then every part is grouped by user, as in memory, and written as a shard of
:mod:`simulations.populations.shards`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.frames import items_of_rows, samples_of_rows, user_ids, utf8
from fedhist.users.keys import Keys
from fedhist.users.names import agree, kind
from fedhist.users.rows import checked_events, checked_samples, collected, judged
from fedhist.users.shards import BLOCK, Items
from fedhist.users.tables import Column, Table, TableFormat, scan_table, told_of
from simulations.populations.shards import MANIFEST, VOCABULARY, File, Manifest
from simulations.reporting.files import check_folder, whole_folder

KIND = "shards"
DOUBLES, DIGITS = "text like 1.0", "whole numbers"
"""How columns of integers are written: pandas writes 1.0 once one of the column is missing."""

TEXT = 1 << 27
"""Bytes of text that one shard is made of, about: what is grouped in memory at a time."""

UNPACKED = {".gz": 5, ".zst": 6, ".parquet": 4, ".pq": 4}
"""How much larger the text of such a file is, about."""


def convert(
    paths: Sequence[str | Path], folder: str | Path, *, user: Column, item: Column | None = None,
    count: Column | None = None, value: Sequence[Column] = (), form: TableFormat | None = None,
    shards: int = 0, skip_bad_rows: bool = False, force: bool = False,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Manifest:  # fmt: skip
    """Make a folder, which appears when it is whole.

    ``paths``: files; the samples of a user stand in the order of the files and of their rows;
    ``value``: one column per dimension; empty for items; ``shards``: 0 chooses by the size of the
    files; ``force``: replace the folder, whatever wrote it; ``progress``: called with the steps
    that are done, and with all. Raises PopulationError for missing files and columns, bad rows, no
    rows, colliding names of users, a full disk; ValueError if the folder is something else, and for
    columns that do not go together.
    """
    files, form = [Path(p) for p in paths], form or TableFormat()
    if not files or len({p.resolve() for p in files}) < len(files):
        raise ValueError(f"name each file once, got {', '.join(map(str, files)) or 'none'}")
    if (item is None) == (not value) or (count is not None and item is None):
        raise ValueError(f"give item (and count), or value: got {item=}, {count=}, {value=}")
    if not 0 <= shards <= 1 << 16:
        raise ValueError(f"the number of shards must be at most 65,536, got {shards}")
    check_folder(folder, KIND, force=force)
    columns = [user, *(c for c in (item, count) if c is not None), *value]
    tables = [scan_table(p, columns, form) for p in files]
    for place, column in enumerate(columns if len(files) > 1 else ()):
        _check_titles(column, files, [t.titles[place] for t in tables])
        if place < (1 if value else 2):
            _check_agree(column, files, [_kind(t, t.names[place]) for t in tables])
    size = sum(p.stat().st_size * UNPACKED.get(p.suffix, 1) for p in files)
    n, done = shards or max(1, -(-size // TEXT)), 0
    dropped: dict[str, int] = {}
    with whole_folder(folder, KIND, force=force) as out:
        work = out / "work"
        for at, (path, table) in enumerate(zip(files, tables, strict=True)):
            with told_of(path):
                for fault, k in _split(
                    table, work / f"{at:05d}", n, value, form.decimal, skip_bad_rows
                ).items():
                    dropped[fault] = dropped.get(fault, 0) + k
            progress(done := done + 1, len(files) + n)
        parts = [[f for w in sorted(work.iterdir()) for f in _files(w, j)] for j in range(n)]
        if not any(parts):
            raise PopulationError(f"{', '.join(map(str, files))}: no rows: there is not a user")
        vocabulary = None if value else _vocabulary([f for some in parts for f in some], out)
        made = []
        for number, part in enumerate(parts):
            users = _grouped(part, vocabulary, len(value))
            path = out / f"shard-{number:05d}.parquet"
            _written(_write, path, users, 0 if vocabulary is None else vocabulary.digest)
            made.append(File(path.name, len(users), path.stat().st_size))
            progress(done := done + 1, len(files) + n)
        shutil.rmtree(work)
        manifest = Manifest(
            "samples" if value else "items", ", ".join(p.name for p in files), tuple(made),
            0 if vocabulary is None else vocabulary.digest, len(value), dropped,
        )  # fmt: skip
        (out / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _check_titles(column: Column, files: Sequence[Path], titles: Sequence[str]) -> None:
    """Refuse a column by number that has another name in another file."""
    for path, title in zip(files, titles, strict=True):
        if title != titles[0]:
            raise PopulationError(
                f"column {column!r} is {titles[0]!r} in {files[0]} and {title!r} in {path}: name "
                "the columns"
            )


def _check_agree(column: Column, files: Sequence[Path], tables: Sequence[tuple[str, str]]) -> None:
    """Refuse files in which one value of a column would have two names."""
    for (path, one), (other, two) in combinations(zip(files, tables, strict=True), 2):
        if not agree(one[0], two[0]) or {one[1], two[1]} == {DOUBLES, DIGITS}:
            raise PopulationError(
                f"column {column!r} is of type {one[1]} in {path} and {two[1]} in {other}: "
                "the same value would have two names; write one type"
            )


def _kind(table: Table, name: str) -> tuple[str, str]:
    """Return what sort of names a column gives, and its type; text, by how it writes integers."""
    dtype = table.rows.collect_schema()[name]
    if dtype != pl.String:
        return kind(dtype), DIGITS if dtype.is_integer() else str(dtype)
    x = pl.col(name).str
    doubles, digits = collected(
        table.rows.select(a=x.contains(r"^-?[0-9]+\.0+$").all(), b=x.contains("^-?[0-9]+$").any())
    ).row(0)
    return "text", DOUBLES if doubles else DIGITS if digits else "text"


def _split(
    table: Table, into: Path, n: int, value: Sequence[Column], decimal: str, skip_bad_rows: bool
) -> Mapping[str, int]:
    """Split one file by user; bad rows are refused, or counted by fault."""
    user, *others = table.names
    more: dict[str, Any] = {"user": user, "overflow": table.overflow, "decimal": decimal}
    if value:
        rows, held = checked_samples(table.rows, value=others, **more)
    else:
        more |= dict(zip(("item", "count"), others, strict=False))
        rows, held = checked_events(table.rows, **more), ["item", "amount"]
    number = user_ids(pl.col("user")).map_batches(
        lambda ids: pl.Series(shard_of(ids.to_numpy(), n)),
        return_dtype=pl.UInt32,
        is_elementwise=True,
    )
    nobody, good = pl.col("user").is_null(), pl.col("fault") == 0
    key = pl.when(nobody).then(pl.lit(n, dtype=pl.UInt32)).otherwise(number)
    into.mkdir(parents=True)
    _written(
        rows.select("user", *(pl.when(good).then(h) for h in held), "fault").sink_parquet,
        pl.PartitionBy(into, key={"shard": key}, include_key=False),
        compression="lz4",
        statistics=False,
        mkdir=True,
        maintain_order=bool(value),
        engine="streaming",
    )
    if not (written := sorted(into.rglob("*.parquet"))):
        return {}
    tally = collected(_scan(written).group_by("fault").agg(rows=pl.len()))
    return judged(rows, tally, skip_bad_rows)


def _vocabulary(files: Sequence[Path], out: Path) -> Keys:
    """Put the items of all files in byte order, and write them."""
    events = _scan(files).filter(pl.col("amount") > 0)
    items = collected(events.select(pl.col("item").unique()))["item"].sort()
    _written(items.to_frame().write_parquet, out / VOCABULARY)
    return Keys(*utf8(items))


def _grouped(files: Sequence[Path], vocabulary: Keys | None, dimension: int) -> Users:
    """Group the rows of a shard by user."""
    none, indptr = np.empty(0, dtype=np.uint64), np.zeros(1, dtype=np.int64)
    if vocabulary is None:
        if not files:
            return Users.from_samples(none, indptr, np.empty((0, dimension)))
        rows = pl.concat([_scan([f]) for f in files])  # in their order
        names = [f"value{k}" for k in range(dimension)]
        ids, samples, _ = samples_of_rows(rows, user="user", value=names)
        return Users(ids, samples=samples)
    if not files:
        return Users.from_counts(none, [], [], [], vocabulary)
    ids, v, _ = items_of_rows(_scan(files), user="user", item="item", count="amount")
    at = vocabulary.positions(v.vocabulary).astype(np.uint32)
    return Users(ids, items=Items(vocabulary, v.indptr, at[v.item], v.count))


def shard_of(ids: Words, n_shards: int) -> NDArray[np.uint32]:
    """Say in which of so many shards an id is: floor(id n / 2^64), so that ids stand in order.

    >>> shard_of(np.array([0, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64), 2).tolist()
    [0, 0, 1, 1]
    """
    n, half = np.uint64(n_shards), np.uint64(32)
    low = (ids & np.uint64(0xFFFFFFFF)) * n >> half
    return (((ids >> half) * n + low) >> half).astype(np.uint32)


def _write(path: Path, users: Users, vocabulary: int) -> None:
    """Write users, by increasing id, as one shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lists(starts: NDArray[np.int64], values: Any) -> Any:
        flat = pa.array(values)
        of = pa.large_list(pa.field("element", flat.type, nullable=False))
        return pa.LargeListArray.from_arrays(pa.array(starts), flat, type=of)

    columns: dict[str, Any] = {"id": pa.array(users.ids)}
    dimension = 0
    if users.items is not None:
        v = users.items
        columns |= {"item": lists(v.indptr, v.item), "count": lists(v.indptr, v.count)}
    else:
        x = np.ascontiguousarray(users.reals.values)
        dimension = x.shape[1]
        columns["values"] = lists(users.reals.indptr * dimension, x.reshape(-1))
    # no nulls, and lz4: quicker to read than zstd, for a tenth more bytes
    names = [pa.field(name, a.type, nullable=False) for name, a in columns.items()]
    told = {"vocabulary": str(vocabulary), "dimension": str(dimension)}
    table = pa.table(list(columns.values()), pa.schema(names, told))
    pq.write_table(table, path, row_group_size=BLOCK, compression="lz4", write_page_checksum=True)


def _written(write: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    try:
        write(*args, **kwargs)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise PopulationError(f"the shards cannot be written or read: {reason}") from error


def _scan(files: Sequence[Path]) -> pl.LazyFrame:
    """Read Parquet files of just these names: stars and brackets may be in those of folders."""
    return pl.scan_parquet(list(files), glob=False)


def _files(split: Path, shard: int) -> list[Path]:
    """List the files of a shard's rows, in their order."""
    return sorted((split / f"shard={shard}").glob("*.parquet"))
