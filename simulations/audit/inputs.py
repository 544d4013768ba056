"""The two records to compare: extremes of the domain, neighbours, real ones, random ones, and more.

Nothing here needs to be clever to be valid: whatever pair is found, the bound is certified on
fresh draws. A search that misses the worst pair only certifies less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.errors import PopulationError
from fedhist.model.query import Query
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

Record = Any
"""A dict of item position to count, or (T, d) float64 samples, as its space says."""

HUGE = 1e300
OUTSIDE = "(an item outside the domain)"
_MANY = 1_000_000
_SHOWN = 6


@dataclass(frozen=True)
class ItemSpace:
    """Records of one user that a query may be asked about: item counts.

    ``vocabulary``: the items of the domain, and one outside; ``real``: of the example population.
    """

    vocabulary: Keys
    real: tuple[dict[int, int], ...]

    def extremes(self, rng: np.random.Generator) -> list[Record]:
        """Nothing, one item, many of one, all, half of them, one outside, real and random ones."""
        k = len(self.vocabulary) - 1
        first, middle, last, outside = 0, k // 2, max(k - 1, 0), k
        records: list[Record] = [{}, {outside: 1}]
        records += [{j: c} for j in dict.fromkeys((first, middle, last)) for c in (1, _MANY)]
        records += [{first: 1, outside: 1}, {first: 1, last: 1}, {first: 2}]
        records += [{j: c for j in range(k)} for c in (1, _MANY)]
        records += [{j: 1 for j in range(k // 2)}, {j: 1 for j in range(k // 2, k)}]
        picked = rng.permutation(len(self.real))[:4]
        records += [self.real[i] for i in picked.tolist()]
        for _ in range(2):
            some = rng.permutation(k)[: 1 + int(rng.integers(max(k, 1)))]
            records.append({int(j): int(rng.integers(1, 20)) for j in some})
        return records

    def far_apart(self, *, single: bool) -> tuple[Record, Record]:
        """Return the item that most hold; and the rarest, with one that nobody else holds."""
        outside = len(self.vocabulary) - 1
        held = Counter(j for record in self.real for j in record)
        ranked = sorted(range(outside), key=lambda j: held[j])
        rare, common = ranked[0], ranked[-1] if outside > 1 else outside
        if single:
            return {common: 1}, {rare: 1}
        return {common: _MANY}, {rare: _MANY, outside: _MANY}

    @property
    def nothing(self) -> Record:
        return {}

    def user(self, record: Record, user_id: int) -> Users:
        """Make a batch of the one user who holds the record."""
        items, counts = list(record), list(record.values())
        return Users.from_counts([user_id], [0] * len(items), items, counts, self.vocabulary)

    def words(self, record: Record) -> str:
        """Describe a record, completely where it is short."""
        if not record:
            return "no items"
        shown = [f"{self.vocabulary[j]!r}: {c}" for j, c in list(record.items())[:_SHOWN]]
        more = len(record) - len(shown)
        return "{" + ", ".join(shown) + (f" and {more} more" if more else "") + "}"

    def parse(self, plain: Any) -> Record:
        """Read {"item": count}; items that are not of the vocabulary are the one outside."""
        if not isinstance(plain, Mapping):
            raise ValueError(
                f'a record of item counts is an object such as {{"tea": 2}}, got {plain!r}'
            )
        names = Keys.of([str(n) for n in plain])
        at = self.vocabulary.positions(names)
        out: dict[int, int] = {}
        for j, c in zip(at.tolist(), plain.values(), strict=True):
            place = j if j >= 0 else len(self.vocabulary) - 1
            out[place] = out.get(place, 0) + int(c)
        return out


@dataclass(frozen=True)
class SampleSpace:
    """Records of real samples.

    ``low``, ``high``: range of the example population's samples; ``size``: its median number of
    samples; ``real``: tuple of (T, d) arrays; ``single``: one sample a record: for claims about one
    item, whose number is public.
    """

    dimension: int
    low: float
    high: float
    size: int
    real: tuple[NDArray[np.float64], ...]
    single: bool = False

    def extremes(self, rng: np.random.Generator) -> list[Record]:
        """Nothing, NaN, ends of the range and beyond, one coordinate, real and random ones."""
        d, t = self.dimension, 1 if self.single else self.size
        middle = (self.low + self.high) / 2
        levels = [self.low, self.high, middle, 0.0, HUGE, -HUGE, math.inf, math.nan]
        if d == 1:
            levels += np.linspace(self.low, self.high, 9)[1:-1].tolist()
        records = [np.full((t, d), x) for x in levels]
        if d > 1:
            for j in range(d) if d <= 8 else (0, d // 2, d - 1):
                for x in (self.low, self.high):
                    row = np.full(d, 0.0)
                    row[j] = x
                    records.append(np.tile(row, (t, 1)))
        if not self.single:
            mixed = np.full((t, d), self.low)
            mixed[::2] = self.high
            lone = np.zeros((t, d))
            lone[0] = HUGE
            longer = np.full((4 * t, d), self.high)
            records += [np.zeros((0, d)), mixed, lone, longer, np.full((1, d), self.high)]
        picked = rng.permutation(len(self.real))[:4]
        records += [self.real[i][:1] if self.single else self.real[i] for i in picked.tolist()]
        records += [np.tile(rng.uniform(self.low, self.high, d), (t, 1)) for _ in range(3)]
        return records

    def far_apart(self, *, single: bool) -> tuple[Record, Record]:
        """Return all samples at the low end of the range, or at the high one."""
        shape = (1 if single else self.size, self.dimension)
        return np.full(shape, self.low), np.full(shape, self.high)

    @property
    def nothing(self) -> Record:
        return np.zeros((0, self.dimension))

    def user(self, record: Record, user_id: int) -> Users:
        return Users.from_samples([user_id], [0, len(record)], record, unusable=True)

    def words(self, record: Record) -> str:
        t = len(record)
        if not t:
            return "no samples"
        alike = np.array_equal(record, np.tile(record[:1], (t, 1)), equal_nan=True)
        shown = ", ".join(f"{x:.6g}" for x in record[0, :_SHOWN])
        row = f"({shown}{', ...' if self.dimension > _SHOWN else ''})"
        if t == 1:
            return f"1 sample {row}"
        return f"{t} samples {row}" if alike else f"{t} samples, the first {row}"

    def parse(self, plain: Any) -> Record:
        """Read a list of samples, each a number or a list of numbers."""
        x = np.asarray(plain, dtype=np.float64)
        x = x.reshape(-1, self.dimension) if x.ndim == 1 else x
        if x.ndim != 2 or x.shape[1] != self.dimension:
            raise ValueError(f"samples of dimension {self.dimension} are needed, got {x.shape}")
        return x


Space = ItemSpace | SampleSpace


def space_of(queries: Sequence[Query], users: Users, *, single: bool = False) -> Space:
    """Describe the records that queries can be asked about, after a population of examples.

    Raises PopulationError if there are no users to learn the kind of record from.
    """
    if not len(users):
        raise PopulationError("the example population is empty: no record to start from")
    if users.items is None:
        samples = users.reals
        finite = samples.values[np.isfinite(samples.values)]
        low, high = (float(finite.min()), float(finite.max())) if len(finite) else (-1.0, 1.0)
        if low == high:
            low, high = low - 1.0, high + 1.0
        sizes = users.n_items()
        p, rows = samples.indptr, samples.values
        first_rows = tuple(rows[p[u] : p[u + 1]] for u in range(min(len(users), 64)))
        size = max(int(np.median(sizes)), 1)
        return SampleSpace(rows.shape[1], low, high, size, first_rows, single)
    names = dict.fromkeys(users.vocabulary)  # the users' items keep their numbers
    for query in queries:
        domain = getattr(query, "domain", None)
        names |= dict.fromkeys(domain if isinstance(domain, Keys) else ())
    c = users.counts
    held = zip(c.item.tolist(), c.count.tolist(), strict=True)
    sizes = np.diff(c.indptr)[:64].tolist()
    real = tuple(dict(islice(held, size)) for size in sizes)
    return ItemSpace(Keys.of([*names, OUTSIDE]), real)
