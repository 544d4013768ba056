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
MANY = 1 << 32
FAR = 1e6
_SHOWN = 6


@dataclass(frozen=True)
class ItemSpace:
    """Records of one user that a query may be asked about: item counts.

    ``vocabulary``: the items of the domain, and one outside; ``real``: of the example population.
    """

    vocabulary: Keys
    real: tuple[dict[int, int], ...]

    def extremes(self, rng: np.random.Generator) -> list[Record]:
        """Nothing; one item, all or half of them, once, as often as is usual, often; and others."""
        k = len(self.vocabulary) - 1
        every, outside = np.arange(k), k
        places = [every[:1], every[k // 2 :][:1], every[-1:], every, every[: (k + 1) // 2]]
        places += [every[(k + 1) // 2 :], every[::2], every[1::2]]
        usual = max(1, int(np.median([sum(record.values()) for record in self.real] or [1])))
        records: list[Record] = [{}, {outside: 1}, {0: 1, outside: 1}, {0: 1, max(k - 1, 0): 1}]
        for place in filter(len, places):
            spread = usual // len(place) + (np.arange(len(place)) < usual % len(place))
            counts = (np.ones_like(place), spread, np.full_like(place, MANY))
            records += [dict(zip(place.tolist(), c.tolist(), strict=True)) for c in counts]
        picked = rng.permutation(len(self.real))[:4]
        records += [self.real[i] for i in picked.tolist()]
        for _ in range(2):
            some = rng.permutation(k)[: 1 + int(rng.integers(max(k, 1)))]
            records.append({int(j): int(rng.integers(1, 20)) for j in some})
        return [one for i, one in enumerate(records) if one not in records[:i]]

    def far_apart(self, *, single: bool) -> tuple[Record, Record]:
        """Return the item that most hold; and the rarest, with one that nobody else holds."""
        outside = len(self.vocabulary) - 1
        held = Counter(j for record in self.real for j in record)
        ranked = sorted(range(outside), key=lambda j: held[j])
        rare, common = ranked[0], ranked[-1] if outside > 1 else outside
        if single:
            return {common: 1}, {rare: 1}
        return {common: MANY}, {rare: MANY, outside: MANY}

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
        """Nothing, NaN, ends of the range and beyond, axes, directions, real and random ones."""
        d, t = self.dimension, 1 if self.single else self.size
        ends = (self.low, self.high, -FAR, FAR)
        levels = [math.nan, math.inf, HUGE, -HUGE, (self.low + self.high) / 2, *ends]
        levels += [-1.0, 0.0, 0.3, 0.5, 0.75, 1.0]
        points = [np.full(d, x) for x in levels]
        if d == 1:
            points += [*np.linspace(self.low, self.high, 9)[1:-1, None]]
        else:
            signs = np.where(np.arange(d) % 2, -1.0, 1.0)
            axes = np.eye(d) if d <= 8 else np.eye(d)[[0, d // 2, d - 1]]
            points += [x * way for x in ends for way in (signs, *axes)]
            away = rng.normal(size=(4, d))
            points += [*(away / np.linalg.norm(away, axis=1, keepdims=True)), *(FAR * away)]
        points += [rng.uniform(self.low, self.high, d) for _ in range(3)]
        records = [np.tile(x, (t, 1)) for x in points]
        picked = rng.permutation(len(self.real))[:4]
        records += [self.real[i][:1] if self.single else self.real[i] for i in picked.tolist()]
        if self.single:
            return records
        mixed, lone = np.full((t, d), self.low), np.zeros((t, d))
        mixed[::2], lone[0] = self.high, HUGE
        apart = np.where(np.arange(t)[:, None] % 2, -FAR, FAR) * np.ones(d)
        longer, one = np.full((16 * t, d), self.high), np.full((1, d), self.high)
        return [self.nothing, *records, mixed, lone, apart, longer, one]

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
    return ItemSpace(Keys.of(dict.fromkeys([*names, OUTSIDE])), real)
