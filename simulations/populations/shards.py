"""Users in a folder of shards: each user whole in one of them, found by its id.

A shard is a Parquet file with a row per user, users by increasing id, in row groups of
:data:`BLOCK`: ``id``, and ``item`` and ``count`` (lists; items are positions in the folder's
vocabulary, which is in byte order) or ``values`` (a list of all samples, one after the other). A
user's id says in which shard it is: id mod the number of shards. ``shards.json`` is written last,
and names every file with its size and digest. ``fedhist shard`` makes such a folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users, join
from fedhist.users.columns import Items, Samples
from fedhist.users.keys import Keys
from simulations.populations.base import ItemDomain, Loaded

FORMAT = 1
"""Of the folder; raised whenever an older fedhist could not read it."""

BLOCK = 65_536
"""Users of a row group."""

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

    def check(self, folder: Path) -> Path:
        """Return the file's path; PopulationError if it is missing or other than it was."""
        path = folder / self.name
        if not path.is_file():
            raise PopulationError(f"{path} is missing: the shards are not all there")
        if path.stat().st_size != self.size:
            raise PopulationError(
                f"{path} has {path.stat().st_size:,} bytes, {MANIFEST} says {self.size:,}"
            )
        if digest_of(path) != self.blake2b:
            raise PopulationError(f"{path} is damaged: its digest is not that of {MANIFEST}")
        return path


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
    """

    what: str
    title: str
    shards: tuple[FileEntry, ...]
    vocabulary: FileEntry | None
    vocabulary_digest: int
    dimension: int
    dropped: dict[str, int]

    @property
    def n_users(self) -> int:
        """Users of all shards."""
        return sum(s.rows for s in self.shards)

    def to_json(self) -> str:
        """Write the manifest."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

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
            manifest = cls(**found, shards=shards, vocabulary=entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, PopulationError):
                raise
            raise PopulationError(f"{path} cannot be read: {error}") from None
        if not manifest.shards or manifest.what not in ("items", "samples"):
            raise PopulationError(f"{path} describes no shards")
        return manifest


@dataclass(frozen=True, kw_only=True)
class Shards(ItemDomain):
    """Users from a folder that ``fedhist shard`` has made: item counts, or samples.

    Parameters
    ----------
    path : path
        The folder.
    top, domain
        See :class:`~simulations.populations.base.ItemDomain`; for item counts only.
    max_users
        Keep only the users with the smallest ids: a subset that does not depend on the data.
    """

    kind: ClassVar[str] = "shards"
    path: str | Path

    def load(self) -> Loaded:
        """Read and check all shards.

        Raises
        ------
        PopulationError
            For a folder without a manifest, and a file that is missing, damaged, of another version
            or of another vocabulary.
        """
        folder = Path(self.path)
        manifest = Manifest.read(folder)
        vocabulary = vocabulary_of(folder, manifest)
        if vocabulary is None and (self.top is not None or self.domain is not None):
            raise PopulationError(f"{folder} holds samples: top and domain are for items")
        users = join(self._first(u) for u in _walk(folder, manifest, vocabulary))
        title = f"{manifest.what} of {manifest.title}"
        return self.bounded(users, title, manifest.dropped)

    def _first(self, users: Users) -> Users:
        """Keep of a shard what can be among the users with the smallest ids."""
        most = self.max_users
        return users if most is None else users.slice(0, min(most, len(users)))


def _walk(folder: Path, manifest: Manifest, vocabulary: Keys | None) -> Iterator[Users]:
    for number in range(len(manifest.shards)):
        yield read_shard(folder, manifest, number, vocabulary)


def vocabulary_of(folder: Path, manifest: Manifest) -> Keys | None:
    """Read the vocabulary of a folder of item counts; None for samples."""
    if manifest.vocabulary is None:
        return None
    import polars as pl

    path = manifest.vocabulary.check(folder)
    keys = Keys.of(pl.read_parquet(path)["item"].to_list())
    if keys.digest != manifest.vocabulary_digest:
        raise PopulationError(f"{path} is another vocabulary than that of {MANIFEST}")
    return keys


def read_shard(folder: Path, manifest: Manifest, number: int, vocabulary: Keys | None) -> Users:
    """Read one shard, checked.

    Returns
    -------
    Users
        By increasing id; their ids leave the remainder ``number``.

    Raises
    ------
    PopulationError
        If the file is missing, damaged, or of another folder.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = manifest.shards[number].check(folder)
    try:
        table = pq.read_table(path, memory_map=True).combine_chunks()
    except (pa.ArrowInvalid, OSError) as error:
        raise PopulationError(f"{path} cannot be read: {error}") from None
    told = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
    if told.get("vocabulary") != str(manifest.vocabulary_digest):
        raise PopulationError(f"{path} is of another vocabulary than its folder")
    ids = table["id"].to_numpy().astype(np.uint64)
    if (ids % np.uint64(len(manifest.shards)) != number).any() or (ids[1:] <= ids[:-1]).any():
        raise PopulationError(f"{path} is not shard {number} of {len(manifest.shards)}")
    if vocabulary is None:
        indptr, values = _lists(table["values"])
        d = manifest.dimension
        return Users(ids, samples=Samples(indptr // d, values.reshape(-1, d)))
    indptr, item = _lists(table["item"])
    _, count = _lists(table["count"])
    if len(item) != len(count) or (len(item) and int(item.max()) >= len(vocabulary)):
        raise PopulationError(f"{path} is damaged: items and counts do not fit its vocabulary")
    return Users(ids, items=Items(vocabulary, indptr, item, count))


def write_shard(path: Path, users: Users, vocabulary_digest: int) -> FileEntry:
    """Write users, by increasing id, as one shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {"id": pa.array(users.ids)}
    if users.items is not None:
        v = users.items
        columns["item"] = pa.LargeListArray.from_arrays(pa.array(v.indptr), pa.array(v.item))
        columns["count"] = pa.LargeListArray.from_arrays(pa.array(v.indptr), pa.array(v.count))
    else:
        x = users.reals.values
        indptr = users.reals.indptr * x.shape[1]
        flat = pa.array(np.ascontiguousarray(x).reshape(-1))
        columns["values"] = pa.LargeListArray.from_arrays(pa.array(indptr), flat)
    told = {"vocabulary": str(vocabulary_digest)}
    table = pa.table(columns).replace_schema_metadata(told)
    pq.write_table(table, path, row_group_size=BLOCK, compression="zstd")
    return FileEntry.of(path, len(users))


def _lists(column: Any) -> tuple[Any, Any]:
    """Return offsets and flat values of a list column."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.to_numpy()[offsets[0] : offsets[-1]]
    return offsets - offsets[0], values


def digest_of(path: Path) -> str:
    """Return the BLAKE2b digest, 32 bytes in hexadecimal, of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, lambda: hashlib.blake2b(digest_size=32)).hexdigest()
