"""Users as functions of their number, names, and sizes: what is drawn; Zipf items among it.

User k of a population is drawn from words that depend on the specification and on k alone
(:mod:`simulations.populations.draws`), so that any slice, on any machine, has the same users.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache, cached_property, lru_cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from fedhist.base.arrays import Floats, Integers, Words, offsets
from fedhist.base.errors import PopulationError
from fedhist.base.hashing import digest64
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Items, Shard
from simulations.config.reading import Finite, Must, Natural, NonNegative, Positive, Whole
from simulations.populations import Loaded, Plan, PopulationSpec, numbered_ids
from simulations.populations.draws import Choice, each, items_kernel, unit, words

MOST = 1 << 32
"""Users of a population, and draws of a user: what the words' counter has room for."""

MOST_ITEMS = 1 << 24
"""Items of a population: their names are made in memory, some 280 bytes each."""

Ragged = Must("a number or [lo, hi]", lambda pair: pair[0] <= pair[1])
Few = Must("fewer than 2^32 samples", lambda pair: pair[1] < MOST)
Sizes = Whole | Annotated[tuple[Whole, Whole], Ragged, Few]
"""Samples per user: one number, or [lo, hi] for ragged users."""
Domain = Annotated[Whole, Must(f"at most 2^24 = {MOST_ITEMS:,} items", lambda d: d <= MOST_ITEMS)]
"""How many items there are."""
Leading = Finite | tuple[Finite, ...]
"""One value for all dimensions, or the leading ones, with zeros after them."""
SharesDiffer = Literal["alike", "dirichlet"]
"""How the users' own distributions lie around the common one."""


class Synthetic(PopulationSpec):
    """A population whose users are functions of the specification and of their number."""

    format: ClassVar[int] = 1
    n_users: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_users > MOST:
            raise ValueError(f"n_users must be at most 2^32 = {MOST:,}, got {self.n_users:,}")

    @abstractmethod
    def make(self, first: int, n: int) -> Users:
        """Make users first, ..., first + n - 1; their ids are those of :meth:`ids`."""

    def key(self, purpose: str) -> np.uint64:
        """Return the key of the words for a purpose: of the kind and all fields not at default."""
        if purpose not in self._keys:
            told = [
                (f.name, getattr(self, f.name))
                for f in fields(self)
                if f.default is MISSING or getattr(self, f.name) != f.default
            ]
            words_of = "fedhist.synthetic", self.format, self.kind, repr(told), purpose
            self._keys[purpose] = np.uint64(digest64(*words_of))
        return self._keys[purpose]

    @cached_property
    def _keys(self) -> dict[str, np.uint64]:
        return {}

    @cached_property
    def nobody(self) -> Users:
        """No users of the kind: thousands of nodes ask for them."""
        return self.make(0, 0)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # nothing that was cached

    def ids(self, first: int, n: int) -> Words:
        """Return the ids of users first, ..., first + n - 1: a bijection of their numbers."""
        return numbered_ids(first, n, self.key("ids"))

    def indptr(self, first: int, n: int, sizes: Sizes, width: int) -> Integers:
        """Return where the samples of users first, ... begin, of ``width`` words each: (n + 1,).

        Of a pair, size k has probability log((k + 1) / k) / log((hi + 1) / lo).
        """
        if not isinstance(sizes, tuple):
            check_sizes(np.array([sizes]), width)
            return each(n, sizes)
        lo, hi = sizes
        level = unit(words(self.key("sizes"), first, each(n)))[:, 0]
        drawn = np.clip(np.floor(lo * np.power((hi + 1) / lo, level)), lo, hi).astype(np.int64)
        check_sizes(drawn, width)
        return offsets(drawn)

    @property
    def made(self) -> Made:
        """All its users."""
        return Made(self, 0, self.n_users)

    def load(self) -> Loaded:
        return self.plan().loaded()

    @abstractmethod
    def plan(self) -> Plan:
        """Describe the users, who are made where they are walked."""


@dataclass(frozen=True)
class Made(Shard):
    """Users start to stop of a synthetic population."""

    spec: Synthetic
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def slice(self, start: int, stop: int) -> Made:
        """Return users start to stop of these; none is made."""
        return Made(self.spec, self.start + start, self.start + stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        keep_freed()
        for first in range(self.start, self.stop, size):
            yield self.spec.make(first, min(size, self.stop - first))

    @property
    def none(self) -> Users:
        return self.spec.nobody

    def public_ids(self) -> Words:
        """Return the users' ids; nothing else of them is made."""
        return self.spec.ids(self.start, len(self))


@cache
def keep_freed() -> None:
    """Have the C library keep some megabytes that are freed, for the next block.

    It gives them back to the system at once, which costs a page fault for every 4 kB: half the
    time of a user with one sample. What glibc keeps grows with the largest piece that was freed,
    up to 32 MB; this one is never written to. Elsewhere it does nothing.
    """
    np.empty(31 << 20, dtype=np.uint8)


@lru_cache(maxsize=8)
def numbered_items(d: int) -> Keys:
    """Name items "item-1" to "item-d", padded so that their byte order is the numeric order.

    >>> list(numbered_items(10))[::9]
    ['item-01', 'item-10']
    """
    width = len(str(d))
    return Keys.of(f"item-{j:0{width}d}" for j in range(1, d + 1))


SYLLABLES = tuple(c + v for c in "bcdfghjklmnprstvwxyz" for v in "aeiou")


@lru_cache(maxsize=8)
def made_words(d: int) -> Keys:
    """Make d words, in an order that has nothing to do with that of their bytes.

    Word j is the number j M / golden ratio mod M in syllables, M a power of their number, which
    leaves most words unused.

    >>> list(made_words(3))
    ['re', 'gi', 'wo']
    """
    size = 1
    while len(SYLLABLES) ** size < 4 * d:
        size += 1
    step = int(len(SYLLABLES) ** size * 0.6180339887498949) // 10 * 10 + 1  # no common divisor
    numbers = (np.arange(1, d + 1) * step) % len(SYLLABLES) ** size
    powers = [len(SYLLABLES) ** j for j in range(size)]
    digits = (numbers[:, None] // powers % len(SYLLABLES)).tolist()
    return Keys.of("".join(SYLLABLES[x] for x in row) for row in digits)


def in_words(users: Users) -> Users:
    """Call numbered items by words, each user's in the order of their bytes."""
    items, words = users.counts, made_words(len(users.vocabulary))
    rank = np.empty(len(words), dtype=np.int64)
    rank[words.byte_order] = np.arange(len(words))
    owner = np.repeat(np.arange(len(users)), users.n_items())
    order = np.lexsort((rank[items.item], owner))
    return Users(users.ids, items=Items(words, items.indptr, items.item[order], items.count[order]))


def item_users(
    ids: Words,
    keys: tuple[np.uint64, np.uint64],
    first: int,
    sizes: Integers,
    choice: Choice,
    *,
    concentration: float = 0.0,
) -> Users:
    """Draw ``sizes[u]`` items for user first + u and count them.

    ``ids``: (n,) uint64; ``keys``: (uint64, uint64), of the draws, and of the urn; ``sizes``: (n,)
    int64, items per user; zero gives an empty record; ``choice``: the law of an item;
    ``concentration``: users have laws of their own, Dirichlet(concentration p); 0: all have p.
    Raises PopulationError if a user would have 2^32 items or more.

    Returns
    -------
    Users
        Over ``numbered_items(d)``.
    """
    n, d = len(sizes), len(choice.last)
    check_sizes(sizes)
    room = int(np.minimum(sizes, d).sum())
    item, count = np.empty(room, dtype=np.uint32), np.empty(room, dtype=np.uint32)
    indptr = np.zeros(n + 1, dtype=np.int64)
    if n:
        items_kernel(
            np.array(keys), np.uint64(first), sizes, choice.last, choice.guide, concentration,
            indptr, item, count,
        )  # fmt: skip
    filled = indptr[-1]
    return Users(ids, items=Items(numbered_items(d), indptr, item[:filled], count[:filled]))


def check_sizes(sizes: Integers, width: int = 1) -> None:
    """Refuse users of more draws than their counter has room for."""
    most = int(sizes.max(initial=0)) * width
    if most >= MOST:
        raise PopulationError(f"a user has fewer than 2^32 = {MOST:,} draws, one had {most:,}")


def samples_told(n_users: int, sizes: Sizes) -> str:
    """Say how many users there are, and how many samples they have."""
    lo, hi = sizes if isinstance(sizes, tuple) else (sizes, sizes)
    return f"{n_users:,} users, {lo if lo == hi else f'{lo} to {hi}'} samples each"


def leading(value: Leading, dimension: int) -> Floats:
    """Repeat one value, or take the leading ones and zeros after them: (dimension,) float64."""
    if not isinstance(value, tuple):
        return np.full(dimension, value)
    out = np.zeros(dimension)
    out[: len(value)] = value
    return out


def check_leading(name: str, value: Leading, dimension: int, what: str) -> None:
    """Refuse what :func:`leading` cannot take."""
    values = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(values) <= dimension:
        raise ValueError(f"{name} has {len(values)} values for {dimension} {what}")


@dataclass(frozen=True, kw_only=True)
class Zipf(Synthetic):
    """Items of a Zipf distribution, which users share or differ around; sizes of a Pareto law.

    Parameters
    ----------
    n_users : int
    d : int
        Items "item-1" to "item-d" (padded); they are the public domain.
    exponent : float, default 1.0
        Item j has probability proportional to j^-exponent, rounded to a multiple of 2^-32; 0 is
        uniform.
    mean_items : float, default 100.0
        Expected items per user, repetitions counted.
    tail : float, default 2.0
        Shape a > 1 of the Pareto law of the user sizes: P(size > x) falls as x^-a, with the mean
        exact; infinity gives every user the mean. Sizes are rounded at random to a neighbouring
        integer, without bias. P(size > x) is exact to 2^-64.
    users : {"alike", "dirichlet"}, default "alike"
        Whose distribution a user's items come from. "alike": one p for all. "dirichlet": the
        user's own, Dirichlet(concentration p), exactly (an urn).
    concentration : float, default 5.0
        Of "dirichlet": the larger, the more alike.
    names : {"numbers", "words"}, default "numbers"
        What items are called; "words": made from syllables, for what reads the names.
    seed : int, default 0
    """

    kind: ClassVar[str] = "zipf"
    n_users: Whole
    d: Domain
    exponent: NonNegative = 1.0
    mean_items: Positive = 100.0
    tail: float = 2.0
    users: SharesDiffer = "alike"
    concentration: Positive = 5.0
    names: Literal["numbers", "words"] = "numbers"
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tail > 1:
            raise ValueError(f"tail must exceed 1, or the mean does not exist; got {self.tail!r}")

    def plan(self) -> Plan:
        law = "" if self.users == "alike" else f", users {self.users}"
        title = (
            f"Zipf({self.exponent:g}) items: {self.n_users:,} users, {self.d:,} items, "
            f"{self.mean_items:g} per user, tail {self.tail:g}{law}"
        )
        domain = numbered_items(self.d) if self.names == "numbers" else made_words(self.d)
        return Plan(self.made, title, domain=domain)

    @property
    def p(self) -> Floats:
        """Average distribution of the users' items: (d,) float64."""
        weights = np.arange(1, self.d + 1, dtype=np.float64) ** -self.exponent
        return np.asarray(weights / weights.sum())

    def make(self, first: int, n: int) -> Users:
        size: float | Floats = self.mean_items
        if not math.isinf(self.tail):
            # all 64 bits count: the smallest uniforms are the largest users
            level = (
                words(self.key("sizes"), first, each(n))[:, 0].astype(np.float64) + 0.5
            ) * 2.0**-64
            size = size * (1.0 - 1.0 / self.tail) * np.power(level, -1.0 / self.tail)
        up = unit(words(self.key("sizes"), first, each(n), after=1))[:, 0]
        users = self.hold(first, np.floor(np.minimum(size + up, MOST)).astype(int))
        return users if self.names == "numbers" else in_words(users)

    def hold(self, first: int, sizes: Integers) -> Users:
        """Make users first, first + 1, ... of these sizes, (n,)."""
        ids = self.ids(first, len(sizes))
        choice = zipf_choice(self.d, self.exponent)
        return item_users(
            ids,
            (self.key("items"), self.key("urn")),
            first,
            sizes,
            choice,
            concentration=self.concentration if self.users == "dirichlet" else 0.0,
        )


@lru_cache(maxsize=4)
def zipf_choice(d: int, exponent: float) -> Choice:
    """Return the tables of the law proportional to j^-exponent."""
    return Choice(np.power(np.arange(1, d + 1, dtype=np.float64), -exponent))
