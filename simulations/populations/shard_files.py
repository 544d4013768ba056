"""The files of a folder of shards: how they are written, checked and read.

A shard is a Parquet file with a row per user, users by increasing id, in row groups of
:data:`~fedhist.users.shards.BLOCK`: ``id``, and ``item`` and ``count`` (lists; items are positions
in the folder's vocabulary, which is in byte order) or ``values`` (a list of all samples, one after
the other). Of N shards, number j has the ids from j 2^64 / N to (j + 1) 2^64 / N: users, shard
after shard, stand in the order of their ids. ``shards.json`` is written last, and names every file
with its size and digest. ``fedhist shard`` makes such a folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.columns import Items, Samples
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK

FORMAT = 2
"""Of the folder; raised whenever an older fedhist could not read it."""

MANIFEST = "shards.json"
VOCABULARY = "vocabulary.parquet"


@dataclass(frozen=True)
class FileEntry:
    """A file of the folder.

    Attributes
    ----------
    name : str
    rows : int
        Users of a shard, items of the vocabulary.
    size : int
        Bytes.
    blake2b : str
        Digest of its bytes, 32 bytes in hexadecimal.
    """

    name: str
    rows: int
    size: int
    blake2b: str

    @classmethod
    def of(cls, path: Path, rows: int) -> FileEntry:
        """Describe a file as it is."""
        return cls(path.name, rows, path.stat().st_size, digest_of(path))


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards holds.

    Attributes
    ----------
    what : {"items", "samples"}
    title : str
        Names of the sources.
    shards : tuple of FileEntry
    vocabulary : FileEntry or None
    vocabulary_digest : int
        Of the names in their order; 0 for samples.
    dimension : int
        Of a sample; 0 for items.
    dropped : mapping of str to int
        Bad rows that were left out, by fault. NOT PRIVATE.
    warnings : tuple of str
        What may mean something else than it was read as. NOT PRIVATE. Written if there is any.
    """

    what: str
    title: str
    shards: tuple[FileEntry, ...]
    vocabulary: FileEntry | None
    vocabulary_digest: int
    dimension: int
    dropped: dict[str, int]
    warnings: tuple[str, ...] = ()

    @property
    def n_users(self) -> int:
        """Users of all shards."""
        return sum(s.rows for s in self.shards)

    def to_json(self) -> str:
        """Write the manifest."""
        told = {k: v for k, v in asdict(self).items() if k != "warnings" or v}
        return json.dumps({"format": FORMAT, **told}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a folder's manifest.

        Raises
        ------
        PopulationError
            If it is missing, damaged, or of another version.
        """
        path = folder / MANIFEST
        if not path.is_file():
            what = (
                "has no shards.json: nothing, or unfinished" if folder.is_dir() else "is no folder"
            )
            raise PopulationError(f"{folder} {what}; fedhist shard makes a folder of shards")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            version = found.pop("format")
            if version != FORMAT:
                raise PopulationError(f"{path} has format {version}, this fedhist reads {FORMAT}")
            shards = tuple(FileEntry(**s) for s in found.pop("shards"))
            vocabulary = found.pop("vocabulary")
            entry = None if vocabulary is None else FileEntry(**vocabulary)
            warnings = tuple(found.pop("warnings", ()))
            manifest = cls(**found, shards=shards, vocabulary=entry, warnings=warnings)
            manifest.check()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, PopulationError):
                raise
            raise PopulationError(f"{path} cannot be read: {error}") from None
        return manifest

    def check(self) -> None:
        """Raise ValueError for a field that ``fedhist shard`` does not write."""
        of_items = self.what == "items"
        files = [*self.shards, *([] if self.vocabulary is None else [self.vocabulary])]
        numbers = [self.vocabulary_digest, self.dimension, *self.dropped.values()]
        numbers += [number for file in files for number in (file.rows, file.size)]
        names = [self.title, *self.warnings]
        names += [text for file in files for text in (file.name, file.blake2b)]
        if not self.shards or self.what not in ("items", "samples"):
            raise ValueError(f"it describes no shards, what = {self.what!r}")
        for name in names:
            if not isinstance(name, str):
                raise ValueError(f"{name!r} is no text")
        for number in numbers:
            if type(number) is not int or not 0 <= number < 1 << 64:
                raise ValueError(f"{number!r} is no natural number below 2^64")
        if self.n_users >= 1 << 63:
            raise ValueError(f"{self.n_users} users are too many")
        for file in files:
            if not re.fullmatch(r"[a-z]+(-[0-9]+)?\.parquet", file.name):
                raise ValueError(f"{file.name!r} is no file of the folder")
        if (self.vocabulary is not None) != of_items or (self.dimension == 0) != of_items:
            raise ValueError(f"{self.what} of dimension {self.dimension}, {self.vocabulary=}")


# -- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """A file that was found to be as its folder says; pickles small.

    Attributes
    ----------
    entry : FileEntry
    stamp : tuple of int
        Its time and inode then: while it has these, it need not be read whole again.
    """

    entry: FileEntry
    stamp: tuple[int, int] = (0, 0)

    def again(self, folder: Path) -> Checked:
        """Check the file unless it is the very same one.

        Raises
        ------
        PopulationError
            If it is missing, or other than it was.
        """
        path, entry = folder / self.entry.name, self.entry
        try:
            found = path.stat()
        except OSError:
            raise PopulationError(f"{path} is missing: the shards are not all there") from None
        if found.st_size != entry.size:
            raise PopulationError(
                f"{path} has {found.st_size:,} bytes, {MANIFEST} says {entry.size:,}"
            )
        stamp = found.st_mtime_ns, found.st_ino
        if stamp == self.stamp:
            return self
        _check_bytes(path, entry, stamp)
        return Checked(entry, stamp)


@lru_cache(maxsize=1 << 16)
def _check_bytes(path: Path, entry: FileEntry, _stamp: tuple[int, int]) -> None:
    """Read a file whole, piece by piece, once a process."""
    if digest_of(path) != entry.blake2b:
        raise PopulationError(f"{path} is damaged: its digest is not that of {MANIFEST}")


@dataclass(frozen=True)
class Folder:
    """What a reader of shards has to know of their folder; pickles small.

    Attributes
    ----------
    path : str
        Absolute.
    n_shards : int
    vocabulary : Checked or None
        None for samples.
    vocabulary_digest, dimension : int
        As in the manifest.
    """

    path: str
    n_shards: int
    vocabulary: Checked | None
    vocabulary_digest: int
    dimension: int

    @classmethod
    def of(cls, path: Path, manifest: Manifest) -> Folder:
        """Describe a folder by its manifest."""
        entry = manifest.vocabulary
        words = None if entry is None else Checked(entry).again(path)
        n_shards, digest = len(manifest.shards), manifest.vocabulary_digest
        return cls(str(path.resolve()), n_shards, words, digest, manifest.dimension)

    @property
    def none(self) -> Users:
        """No users, of the kind that the folder holds."""
        return _none(self)

    def checked(self, files: Sequence[Checked]) -> tuple[Checked, ...]:
        """Check the first files whole, side by side, and what they say of themselves.

        Raises
        ------
        PopulationError
            If one is missing, damaged, or of another folder.
        """
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            found = tuple(threads.map(lambda file: file.again(Path(self.path)), files))
        for number, file in enumerate(found):
            _opened(self, file, number)
        return found

    def users(self, file: Checked, number: int, start: int, stop: int) -> Iterator[Users]:
        """Read users start to stop of a shard, those of one row group after the other.

        Raises
        ------
        PopulationError
            If the file is missing, damaged, or of another folder.
        """
        file = file.again(Path(self.path))
        edges = _opened(self, file, number)[1]
        for group in range(len(edges) - 1):
            a, b = max(start, edges[group]), min(stop, edges[group + 1])
            if a < b:
                users = _row_group(self, file, number, group)
                yield users.slice(a - edges[group], b - edges[group])
                del users


@lru_cache(maxsize=4)
def _none(folder: Folder) -> Users:
    """Read the vocabulary, once a process."""
    ids, indptr = np.empty(0, dtype=np.uint64), np.zeros(1, dtype=np.int64)
    if folder.vocabulary is None:
        return Users(ids, samples=Samples(indptr, np.empty((0, folder.dimension))))
    import polars as pl

    home = Path(folder.path)
    path = home / folder.vocabulary.again(home).entry.name
    keys = Keys.of(pl.read_parquet(path, glob=False)["item"].to_list())
    if keys.digest != folder.vocabulary_digest:
        raise PopulationError(f"{path} is another vocabulary than that of {MANIFEST}")
    item = np.empty(0, dtype=np.uint32)
    return Users(ids, items=Items(keys, indptr, item, item))


@lru_cache(maxsize=8)
def _opened(folder: Folder, file: Checked, number: int) -> tuple[Any, list[int]]:
    """Open a file that was checked; returns it, and the numbers at which its row groups begin."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder.path) / file.entry.name
    try:
        opened = pq.ParquetFile(path, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise PopulationError(f"{path} cannot be read: {error}") from None
    told = opened.schema_arrow.metadata or {}
    if told.get(b"vocabulary") != str(folder.vocabulary_digest).encode():
        raise PopulationError(f"{path} is of another vocabulary than its folder")
    dimension = str(folder.dimension).encode()
    if told.get(b"dimension", dimension) != dimension:
        raise PopulationError(f"{path} has samples of another dimension than its folder")
    about = opened.metadata
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    edges = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
    if edges[-1] != file.entry.rows:
        raise PopulationError(
            f"{path} has {edges[-1]:,} users, {MANIFEST} says {file.entry.rows:,}"
        )
    return opened, edges


@lru_cache(maxsize=2)
def _row_group(folder: Folder, file: Checked, number: int, group: int) -> Users:
    """Read a row group; the last ones are kept, as many nodes may have users in one."""
    path = Path(folder.path) / file.entry.name
    table = _opened(folder, file, number)[0].read_row_group(group)
    ids = table["id"].to_numpy().astype(np.uint64)
    if (shard_of(ids, folder.n_shards) != number).any() or (ids[1:] <= ids[:-1]).any():
        raise PopulationError(f"{path} is not shard {number} of {folder.n_shards}")
    none = folder.none
    if none.items is None:
        indptr, values = _lists(table["values"])
        d = folder.dimension
        return Users(ids, samples=Samples(indptr // d, values.reshape(-1, d)))
    indptr, item = _lists(table["item"])
    _, count = _lists(table["count"])
    if len(item) != len(count) or (len(item) and int(item.max()) >= len(none.vocabulary)):
        raise PopulationError(f"{path} is damaged: items and counts do not fit its vocabulary")
    return Users(ids, items=Items(none.vocabulary, indptr, item, count))


def _lists(column: Any) -> tuple[NDArray[np.int64], Any]:
    """Return offsets and flat values of a list column, as arrays of their own."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.to_numpy()[offsets[0] : offsets[-1]].copy()
    return offsets - offsets[0], values


# -- writing -------------------------------------------------------------------------------------


def shard_of(ids: Words, n_shards: int) -> NDArray[np.uint32]:
    """Say in which of so many shards an id is: floor(id n / 2^64), so that ids stand in order.

    >>> shard_of(np.array([0, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64), 2).tolist()
    [0, 0, 1, 1]
    """
    n, half = np.uint64(n_shards), np.uint64(32)
    low = (ids & np.uint64(0xFFFFFFFF)) * n >> half
    return (((ids >> half) * n + low) >> half).astype(np.uint32)


def write_shard(path: Path, users: Users, vocabulary_digest: int) -> FileEntry:
    """Write users, by increasing id, as one shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"id": pa.array(users.ids)}
    if users.items is not None:
        v = users.items
        columns |= {"item": _as_lists(v.indptr, v.item), "count": _as_lists(v.indptr, v.count)}
    else:
        x = np.ascontiguousarray(users.reals.values)
        columns["values"] = _as_lists(users.reals.indptr * x.shape[1], x.reshape(-1))
    # no nulls, and lz4: quicker to read than zstd, for a tenth more bytes
    names = [pa.field(name, a.type, nullable=False) for name, a in columns.items()]
    dimension = 0 if users.samples is None else users.samples.values.shape[1]
    told = {"vocabulary": str(vocabulary_digest), "dimension": str(dimension)}
    table = pa.table(list(columns.values()), pa.schema(names, told))
    pq.write_table(table, path, row_group_size=BLOCK, compression="lz4")
    return FileEntry.of(path, len(users))


def _as_lists(indptr: NDArray[np.int64], values: Any) -> Any:
    """Return a column of lists of these lengths."""
    import pyarrow as pa

    flat = pa.array(values)
    of = pa.large_list(pa.field("element", flat.type, nullable=False))
    return pa.LargeListArray.from_arrays(pa.array(indptr), flat, type=of)


def digest_of(path: Path) -> str:
    """Return the BLAKE2b digest, 32 bytes in hexadecimal, of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
