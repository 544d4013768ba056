"""Users in a folder that ``fedhist convert`` makes: read by blocks, in order of ids.

A shard is a Parquet file with a row per user, users by increasing id, in row groups of
:data:`~fedhist.users.shards.BLOCK`: ``id``, and ``item`` and ``count`` (lists; items are positions
in the folder's vocabulary, which is in byte order) or ``values`` (a list of all samples, one after
the other). Of N shards, number j has the ids from j 2^64 / N to (j + 1) 2^64 / N: users, shard
after shard, stand in the order of their ids. ``shards.json`` is written last, and names every file
with its users and bytes; what is damaged within them is found by Parquet's own checksums.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fedhist.base.arrays import Integers, offsets
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Items, Samples, Shard
from simulations.populations import ItemDomain, Loaded, Plan

FORMAT = 3
"""Of the folder; raised whenever an older fedhist could not read it."""

MANIFEST, VOCABULARY = "shards.json", "vocabulary.parquet"


class File(NamedTuple):
    """A shard: its name, users and bytes."""

    name: str
    users: int
    size: int


@dataclass(frozen=True)
class Manifest:
    """What a folder holds.

    ``title``: names of the sources; ``vocabulary``: digest of the items' names in their order; 0
    for samples; ``dimension``: of a sample; 0 for items; ``dropped``: bad rows that were left out,
    by fault. NOT PRIVATE.
    """

    what: str
    title: str
    files: tuple[File, ...]
    vocabulary: int
    dimension: int
    dropped: dict[str, int]

    @property
    def n_users(self) -> int:
        """Users of all shards."""
        return sum(f.users for f in self.files)

    def to_json(self) -> str:
        """Write the manifest."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read a manifest; PopulationError if it is missing, damaged, or of another version."""
        path = folder / MANIFEST
        if not path.is_file():
            what = f"has no {MANIFEST}" if folder.is_dir() else "is no folder"
            raise PopulationError(f"{folder} {what}; fedhist convert makes a folder of users")
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            version = told.pop("format")
            if version != FORMAT:
                raise PopulationError(
                    f"{path} has format {version}, this fedhist reads {FORMAT}: convert anew"
                )
            files = tuple(File(str(n), int(k), int(size)) for n, k, size in told.pop("files"))
            made = cls(**told, files=files)
            if not files or any(Path(f.name).name != f.name or f.users < 0 for f in files):
                raise ValueError("it describes no shards of this folder")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PopulationError(f"{path} cannot be read: {error}") from None
        return made


@dataclass(frozen=True)
class Folder:
    """What a reader has to know of a folder; pickles small."""

    path: str
    vocabulary: int
    dimension: int

    @property
    def none(self) -> Users:
        """No users, of the kind that the folder holds."""
        return _none(self)

    def users(self, file: File, start: int, stop: int) -> Iterator[Users]:
        """Read users start to stop of a shard, those of one row group after the other."""
        edges = _opened(self, file)[1]
        for group in range(len(edges) - 1):
            a, b = max(start, edges[group]), min(stop, edges[group + 1])
            if a < b:
                users = _row_group(self, file, group)
                yield users.slice(a - edges[group], b - edges[group])
                del users


@lru_cache(maxsize=4)
def _none(folder: Folder) -> Users:
    """Read the vocabulary, once a process."""
    ids, indptr = np.empty(0, dtype=np.uint64), np.zeros(1, dtype=np.int64)
    if folder.dimension:
        return Users(ids, samples=Samples(indptr, np.empty((0, folder.dimension))))
    import polars as pl

    path = Path(folder.path) / VOCABULARY
    try:
        keys = Keys.of(pl.read_parquet(path, glob=False)["item"].to_list())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise PopulationError(f"{path} cannot be read: {error}") from None
    if keys.digest != folder.vocabulary:
        raise PopulationError(f"{path} is another vocabulary than that of {MANIFEST}")
    item = np.empty(0, dtype=np.uint32)
    return Users(ids, items=Items(keys, indptr, item, item))


@lru_cache(maxsize=8)
def _opened(folder: Folder, file: File) -> tuple[Any, list[int]]:
    """Open a shard; returns it, and the numbers at which its row groups begin."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(folder.path) / file.name
    try:
        size = path.stat().st_size
        opened = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
    except FileNotFoundError:
        raise PopulationError(f"{path} is missing: the shards are not all there") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise PopulationError(f"{path} is damaged: {error}") from None
    about, told = opened.metadata, opened.schema_arrow.metadata or {}
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    edges = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
    kind = {b"vocabulary": folder.vocabulary, b"dimension": folder.dimension}
    if (size, edges[-1]) != (file.size, file.users) or any(
        told.get(key) != str(value).encode() for key, value in kind.items()
    ):
        raise PopulationError(f"{path} is not the shard that {MANIFEST} names")
    return opened, edges


@lru_cache(maxsize=2)
def _row_group(folder: Folder, file: File, group: int) -> Users:
    """Read a row group; the last ones are kept, as many nodes may have users in one."""
    try:
        table = _opened(folder, file)[0].read_row_group(group)
    except OSError as error:
        path = Path(folder.path) / file.name
        raise PopulationError(f"{path} is damaged: {error}") from None
    ids = table["id"].to_numpy().astype(np.uint64)
    if folder.dimension:
        indptr, values = _lists(table["values"])
        d = folder.dimension
        return Users(ids, samples=Samples(indptr // d, values.reshape(-1, d)))
    (indptr, item), (_, count) = _lists(table["item"]), _lists(table["count"])
    return Users(ids, items=Items(folder.none.vocabulary, indptr, item, count))


def _lists(column: Any) -> tuple[Integers, Any]:
    """Return offsets and flat values of a list column, as arrays of their own."""
    import pyarrow as pa

    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    starts = array.offsets.to_numpy().astype(np.int64)
    values = array.values.to_numpy()[starts[0] : starts[-1]].copy()
    return starts - starts[0], values


@dataclass(frozen=True)
class InFolder(Shard):
    """Consecutive users of a folder; no more than a block and a row group are read.

    ``files``: those that these users lie in; ``start``, ``stop``: which users, counted from the
    first one of the first file.
    """

    folder: Folder
    files: tuple[File, ...]
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def slice(self, start: int, stop: int) -> InFolder:
        """Return users start to stop, and no more files than they lie in."""
        start, stop, edges = self.start + start, self.start + stop, self._edges
        a = int(np.searchsorted(edges, start, side="right")) - 1
        b, before = max(a, int(np.searchsorted(edges, stop))), int(edges[a])
        return replace(self, files=self.files[a:b], start=start - before, stop=stop - before)

    @cached_property
    def _edges(self) -> Integers:
        """Users before each file, and in all of them: (files + 1,)."""
        return offsets(np.array([file.users for file in self.files], dtype=np.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        return InFolder, (self.folder, self.files, self.start, self.stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        parts, held = list[Users](), 0
        for users in self._parts():
            part = users
            while held + len(part) >= size:
                parts.append(part.slice(0, size - held))
                part = part.slice(size - held, len(part))
                yield _joined(parts)
                parts, held = [], 0
            if len(part):
                parts.append(part)
                held += len(part)
            del part, users
        if parts:
            yield _joined(parts)

    def _parts(self) -> Iterator[Users]:
        """Read the users, at most a row group at a time."""
        start, stop = self.start, self.stop
        for file in self.files:
            yield from self.folder.users(file, start, stop)
            start, stop = max(0, start - file.users), stop - file.users

    @property
    def none(self) -> Users:
        return self.folder.none


def _joined(parts: Sequence[Users]) -> Users:
    return parts[0] if len(parts) == 1 else parts[0].followed_by(list(parts[1:]))


@dataclass(frozen=True, kw_only=True)
class Shards(ItemDomain):
    """Users from a folder that ``fedhist convert`` has made: item counts, or samples.

    Parameters
    ----------
    path : path
        The folder.
    top, domain
        See :class:`~simulations.populations.ItemDomain`; for item counts only.
    max_users
        Keep only the users with the smallest ids: a subset that does not depend on the data.
    """

    kind: ClassVar[str] = "shards"
    path: str | Path

    def load(self) -> Loaded:
        return self.plan().loaded()

    @property
    def stated(self) -> int:
        n_users = Manifest.read(Path(self.path)).n_users
        return min(n_users, self.max_users or n_users)

    def plan(self) -> Plan:
        """Open all files that are needed; users are read by blocks, by increasing id.

        Raises PopulationError for a folder without a manifest, and a file that is missing, damaged,
        or another.
        """
        path = Path(self.path)
        told = Manifest.read(path)
        if told.dimension and (self.top is not None or self.domain is not None):
            raise PopulationError(f"{path} holds samples: top and domain are for items")
        folder = Folder(str(path.resolve()), told.vocabulary, told.dimension)
        users = InFolder(folder, told.files, 0, told.n_users)
        users = users.slice(0, min(len(users), self.max_users or len(users)))
        for file in users.files:
            _opened(folder, file)
        _ = folder.none
        return self.settled(users, f"{told.what} of {told.title}", told.dropped)
