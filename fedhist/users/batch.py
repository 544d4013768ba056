"""Users: a batch of users' private records, columnar.

A phone is a batch of one user, a Flower node one batch, and the in-process engine walks batches
of some thousands. Records are either item counts (a histogram per user) or real samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.checks import shown
from fedhist.base.errors import PopulationError
from fedhist.base.hashing import GOLDEN, mix64
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import BLOCK, MOST_IN_MEMORY, Indptr, Items, Samples, Shard, Wrapped
from fedhist.users.strict import real, whole

if TYPE_CHECKING:
    from fedhist.users.cohort import Cohort


@dataclass(frozen=True)
class Users(Shard):
    """A batch of users in memory.

    Attributes
    ----------
    ids : (n,) uint64
        Public user ids, distinct.
    items : Items or None
    samples : Samples or None
        Exactly one of the two.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"user": ["ann", "ann", "bob"], "item": ["tea", "rye", "tea"]})
    >>> users = Users.from_frame(frame, user="user", item="item")
    >>> len(users), users.vocabulary[0]
    (2, 'rye')
    """

    ids: Words
    items: Items | None = None
    samples: Samples | None = None

    def __post_init__(self) -> None:
        if (self.items is None) == (self.samples is None):
            raise PopulationError("users hold item counts or samples, exactly one of the two")
        if self.ids.dtype != np.uint64 or self.ids.ndim != 1:
            raise PopulationError(f"user ids must be (n,) uint64, got {self.ids.dtype}")
        if len(self._indptr) != len(self.ids) + 1:
            raise PopulationError(
                f"{len(self.ids)} user ids, but records of {len(self._indptr) - 1} users"
            )

    # -- ways in -------------------------------------------------------------------------------

    @classmethod
    def from_counts(
        cls,
        ids: ArrayLike,
        user: ArrayLike,
        item: ArrayLike,
        count: ArrayLike,
        vocabulary: Keys,
    ) -> Users:
        """Build from coordinate form: any order; repeated (user, item) pairs are added up.

        Parameters
        ----------
        ids : (n,) uint64
            Distinct user ids, in any order; users without items are kept as empty records.
        user : (nnz,) int
            Index into ``ids``.
        item : (nnz,) int
            Index into ``vocabulary``.
        count : (nnz,) int
            Non-negative; zeros are dropped.
        vocabulary : Keys

        Raises
        ------
        PopulationError
            For repeated ids, indices out of range, counts that are not non-negative integers, and
            masked values; names the value.
        """
        ids = whole("user ids", ids, 1 << 64, np.uint64)
        u = whole("user indices", user, len(ids))
        j = whole("item indices", item, len(vocabulary))
        c = whole("counts", count, 1 << 62)
        if not len(u) == len(j) == len(c):
            raise PopulationError(f"got {len(u)} users, {len(j)} items and {len(c)} counts")
        order_of_ids, ids = _sorted_ids(ids)
        place = np.empty(len(ids), dtype=np.int64)
        place[order_of_ids] = np.arange(len(ids))
        rank = np.empty(len(vocabulary), dtype=np.int64)
        rank[vocabulary.byte_order] = np.arange(len(vocabulary))
        keep = c > 0
        u, j, c = place[u[keep]], j[keep], c[keep]
        order = np.lexsort((rank[j], u))
        u, j, c = u[order], j[order], c[order]
        if len(u):
            first = np.concatenate(([True], (u[1:] != u[:-1]) | (j[1:] != j[:-1])))
            if not first.all():
                starts = np.flatnonzero(first)
                size = np.add.reduceat(c.astype(np.float64), starts)
                if (size >= 2.0**62).any():  # a sum that wraps would depend on other users' counts
                    raise PopulationError(
                        f"a user's total of one item must be below 2^62, got {size.max():g}"
                    )
                u, j, c = u[starts], j[starts], np.add.reduceat(c, starts)
        indptr = offsets(np.bincount(u, minlength=len(ids)))
        return cls(ids, items=Items(vocabulary, indptr, j.astype(np.uint32), _narrow(c)))

    @classmethod
    def from_samples(
        cls, ids: ArrayLike, indptr: ArrayLike, values: ArrayLike, *, unusable: bool = False
    ) -> Users:
        """Build from ragged samples.

        Parameters
        ----------
        ids : (n,) uint64
        indptr : (n + 1,) int
        values : (total,) or (total, dimension) float
            An infinity makes its user's record unusable: a protocol takes the null record instead.
        unusable : bool, default False
            Let NaN and infinities stay, as a hostile client's records may have them.

        Raises
        ------
        PopulationError
            For repeated ids, an indptr that does not describe the values, and values that are
            missing (NaN, masked) or no real numbers.
        """
        ids = whole("user ids", ids, 1 << 64, np.uint64)
        ptr = whole("indptr", indptr, 1 << 62)
        x = np.asarray(values, dtype=np.float64) if unusable else real("samples", values)
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim != 2:
            raise PopulationError(f"values must be (total, dimension), got shape {x.shape}")
        if ptr.ndim != 1 or len(ptr) != len(ids) + 1 or ptr[0] != 0 or ptr[-1] != len(x):
            raise PopulationError(f"indptr does not describe {len(x)} samples of {len(ids)} users")
        if (ptr[1:] < ptr[:-1]).any():
            raise PopulationError("indptr decreases")
        order, sorted_ids = _sorted_ids(ids)
        users = cls(ids, samples=Samples(ptr, np.ascontiguousarray(x)))
        return users if np.array_equal(ids, sorted_ids) else users.take(order)

    @classmethod
    def from_records(
        cls,
        records: Mapping[str, Mapping[str, int] | Iterable[float]],
        *,
        unusable: bool = False,
    ) -> Users:
        """Build from a dict of user name to item counts, or to samples (for small examples).

        PopulationError for a name that is empty, and for what is no count or sample. ``unusable``
        as in :meth:`from_samples`.

        >>> sorted(Users.from_records({"ann": {"tea": 2}, "bob": {}}).n_items().tolist())
        [0, 1]
        """
        if "" in records:
            raise PopulationError("'' is no name of a user: leave it out, or name it")
        ids = user_ids(Keys.of(records))
        values = list(records.values())
        if all(isinstance(v, Mapping) for v in values):
            maps = [dict(v) for v in values if isinstance(v, Mapping)]
            items = {k for m in maps for k in m}
            if "" in items:
                raise PopulationError("'' is no name of an item: leave it out, or name it")
            vocabulary = Keys.of(sorted(items, key=str))
            triples = [
                (u, vocabulary.position(k), c) for u, m in enumerate(maps) for k, c in m.items()
            ]
            u, j, c = zip(*triples, strict=True) if triples else ((), (), ())
            return cls.from_counts(ids, u, j, c, vocabulary)
        lists = {name: list(_iterable(name, v)) for name, v in records.items()}
        rows = [
            np.asarray(v, np.float64) if unusable else real(f"samples of {name!r}", v)
            for name, v in lists.items()
        ]
        for name, row in zip(records, rows, strict=True):
            if row.ndim != 1:
                raise PopulationError(f"samples of {name!r} must be numbers, got {shown(row[0])}")
        indptr = np.cumsum([0, *(len(r) for r in rows)])
        flat = np.concatenate([*rows, np.empty(0)])
        return cls.from_samples(ids, indptr, flat, unusable=True)  # every record is checked by now

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str,
        item: str | None = None,
        count: str | None = None,
        value: str | Iterable[str] | None = None,
    ) -> Users:
        """Build from a table of events or samples.

        Parameters
        ----------
        frame : polars.DataFrame, polars.LazyFrame, pandas.DataFrame or mapping
            Or a data set that has a method ``to_polars`` or ``to_pandas``, as Hugging Face's; a
            mapping takes names to columns.
        user : str
            Column of user names: text, numbers, booleans, dates or times, compared by value (7,
            7.0 and "7" are one user).
        item : str, optional
            Column of items; each row is one event, or ``count`` of them.
        count : str, optional
            Column of non-negative integers.
        value : str or iterable of str, optional
            Column or columns of real samples, instead of ``item``.

        Raises
        ------
        PopulationError
            For missing columns, bad counts or values, and users or items that cannot be told apart
            (doubles from 2^53 on); names the row and the value.

        Warns
        -----
        UserWarning
            If rows without a user, an item, a count or a value were left out: how many.
        """
        columns = {"item": item, "count": count, "value": value}
        users, dropped = cls.read_frame(frame, user=user, **columns)
        if dropped:
            rows = ", ".join(f"{n:,} with {why}" for why, n in dropped.items())
            warnings.warn(f"rows left out of the frame (NOT PRIVATE): {rows}", stacklevel=2)
        return users

    @classmethod
    def read_frame(cls, frame: Any, *, user: str, **columns: Any) -> tuple[Users, dict[str, int]]:
        """As :meth:`from_frame`; count the rows left out by what they lack. NOT PRIVATE."""
        from fedhist.users.frames import columns_of_frame

        item, count, value = (columns.get(name) for name in ("item", "count", "value"))
        values = [value] if isinstance(value, str) else list(value or ())
        ids, record, dropped = columns_of_frame(
            frame, user=user, item=item, count=count, value=values
        )
        if isinstance(record, Items):
            return cls(ids, items=record), dropped
        return cls(ids, samples=record), dropped

    # -- views ---------------------------------------------------------------------------------

    @property
    def _indptr(self) -> Indptr:
        record = self.items or self.samples
        return record.indptr if record is not None else np.zeros(1, dtype=np.int64)

    @property
    def vocabulary(self) -> Keys:
        """What the item numbers stand for."""
        return self.counts.vocabulary

    @property
    def counts(self) -> Items:
        """The item counts; PopulationError if these users hold samples."""
        if self.items is None:
            raise PopulationError("this needs users with item counts; these hold real samples")
        return self.items

    @property
    def reals(self) -> Samples:
        """The samples; PopulationError if these users hold item counts."""
        if self.samples is None:
            raise PopulationError("this needs users with real samples; these hold item counts")
        return self.samples

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        n = f"private records of {len(self):,} users"
        if self.items is not None:
            return f"<Users: {n}, counts of {len(self.vocabulary):,} items>"
        return f"<Users: {n}, samples of dimension {self.reals.values.shape[1]}>"

    def n_unusable(self) -> int:
        """Count users without samples, or with one that is not finite. NOT PRIVATE."""
        p, x = self.reals.indptr, self.reals.values
        bad = offsets(~np.isfinite(x).all(axis=1))
        return int(((bad[p[1:]] > bad[p[:-1]]) | (p[1:] == p[:-1])).sum())

    def n_items(self) -> NDArray[np.int64]:
        """Return distinct items, or samples, per user: (n,) int64."""
        return np.asarray(np.diff(self._indptr))

    def record_words(self) -> Words:
        """Hash every user's record as it stands, under one vocabulary: (n,) uint64."""
        p, sizes = self._indptr, self.n_items().astype(np.uint64)
        if self.items is not None:
            columns = [self.items.item, self.items.count]
        else:
            columns = list((self.reals.values + 0.0).view(np.uint64).T)  # -0.0 is 0.0
        place = np.arange(1, p[-1] + 1, dtype=np.uint64) - np.repeat(
            p[:-1].astype(np.uint64), self.n_items()
        )
        words = mix64(place * np.uint64(GOLDEN))
        for column in columns:
            words = mix64(words ^ column.astype(np.uint64))
        total = np.zeros(len(words) + 1, dtype=np.uint64)
        np.cumsum(words, out=total[1:])  # modulo 2^64
        return mix64(total[p[1:]] - total[p[:-1]] + sizes)

    @property
    def nbytes(self) -> int:
        """Bytes of the records, vocabulary apart."""
        if self.items is not None:
            return int(self._indptr.nbytes + self.items.item.nbytes + self.items.count.nbytes)
        return int(self._indptr.nbytes + self.reals.values.nbytes)

    def slice(self, start: int, stop: int) -> Users:
        ptr = self._indptr[start : stop + 1]
        a, b = int(ptr[0]), int(ptr[-1])
        return self._rebuild(self.ids[start:stop], ptr - a, slice(a, b))

    def take(self, rows: NDArray[np.integer[Any]]) -> Users:
        """Return the users at the given row numbers, in that order (copies)."""
        starts, sizes = self._indptr[:-1][rows], np.diff(self._indptr)[rows]
        indptr = offsets(sizes)
        flat = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], sizes)
        return self._rebuild(self.ids[rows], indptr, flat)

    def followed_by(self, others: Iterable[Users]) -> Users:
        """Put users whose ids are known to differ behind these, in the order given (copies)."""
        parts = [self, *others]
        ids = np.concatenate([p.ids for p in parts])
        ptr = offsets(np.concatenate([p.n_items() for p in parts]))
        if self.samples is not None:
            values = np.concatenate([p.reals.values for p in parts])
            return Users(ids, samples=Samples(ptr, values))
        if any(p.vocabulary != self.vocabulary for p in parts):
            raise PopulationError("nodes can be joined only where they share one vocabulary")
        item = np.concatenate([p.counts.item for p in parts])
        count = np.concatenate([p.counts.count for p in parts])
        return Users(ids, items=Items(self.vocabulary, ptr, item, count))

    def copy(self) -> Users:
        """Return the same users in memory of their own; the vocabulary is shared."""
        ids, indptr = self.ids.copy(), self._indptr.copy()
        if self.items is None:
            return Users(ids, samples=Samples(indptr, self.reals.values.copy()))
        v = self.items
        return Users(ids, items=Items(v.vocabulary, indptr, v.item.copy(), v.count.copy()))

    def select(self, cohort: Cohort | None) -> Users:
        if cohort is None:
            return self
        inside = cohort.contains(self.ids)
        return self if inside.all() else self.take(np.flatnonzero(inside))

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        if 0 < len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self.slice(start, min(start + size, len(self)))

    @property
    def none(self) -> Users:
        return self.slice(0, 0)

    def public_ids(self) -> Words:
        return self.ids

    def in_memory(self, what: str = "this") -> Users:
        return self

    def _rebuild(self, ids: Words, indptr: Indptr, flat: Any) -> Users:
        if self.items is not None:
            v = self.items
            return Users(ids, items=Items(v.vocabulary, indptr, v.item[flat], v.count[flat]))
        return Users(ids, samples=Samples(indptr, self.reals.values[flat]))


def join(nodes: Iterable[Users]) -> Users:
    """Put nodes back together."""
    parts = list(nodes)
    if not parts:
        raise PopulationError("no nodes to join")
    users = parts[0].followed_by(parts[1:])
    order, _ = _sorted_ids(users.ids, where=" on two nodes")
    return users.take(order)


def _sorted_ids(ids: Words, where: str = "") -> tuple[NDArray[np.int64], Words]:
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        raise PopulationError(f"user id {int(ordered[twice[0]])} occurs twice{where}")
    return order, ordered


def _iterable(name: str, record: Any) -> Iterable[Any]:
    """Refuse a record that is neither item counts, as all others, nor samples."""
    if isinstance(record, str | bytes | Mapping) or not isinstance(record, Iterable):
        kind = type(record).__name__
        raise PopulationError(
            f"the record of {name!r} is {kind} {record!r}: give item counts for all users "
            "(a dict each), or samples for all (a list each)"
        )
    return record


def _narrow(c: NDArray[np.int64]) -> NDArray[np.unsignedinteger[Any]]:
    return c.astype(np.uint32 if not len(c) or int(c.max()) < 1 << 32 else np.uint64)


# -- users kept in memory --------------------------------------------------------------------------


ROOM = 256 << 20
"""Bytes of users, about, that a process keeps from the second round that asks them on."""


PROBED = 64
"""Users who tell how large all of them are."""


class InMemory(Wrapped):
    """Users in memory, under the digest of how they are made."""

    def __init__(self, users: Shard) -> None:
        super().__init__(users)
        self.whole = users.in_memory()

    def slice(self, start: int, stop: int) -> Users:
        return self.whole.slice(start, stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        return self.whole.blocks(size)

    def public_ids(self) -> Words:
        return self.whole.ids


def keep(users: Shard, room: int = ROOM) -> tuple[Shard, int]:
    """Put users in memory who are not, if they take about so many bytes: them, and the bytes."""
    n = len(users)
    if isinstance(users, Users | InMemory) or not 0 < n <= MOST_IN_MEMORY:
        return users, 0
    some = users.slice(0, min(PROBED, n)).in_memory()
    if size_of(some) * n > room * len(some):
        return users, 0
    held = InMemory(users)
    return held, size_of(held.whole)


def size_of(users: Users) -> int:
    """Count the bytes of users, vocabulary apart."""
    return users.nbytes + users.ids.nbytes
