"""Populations: where simulated users' data come from.

A population is named by its ``kind`` and configured by the fields of its dataclass, which are the
keys of the ``[population]`` table of a run's configuration. A new kind is one new class and one
more entry in the table below.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Words
from fedhist.base.errors import PopulationError, nearest
from fedhist.base.hashing import user_keys_kernel
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard, check_in_memory
from fedhist.users.tables import existing
from simulations.config.reading import Settings, Whole

KEPT_BYTES = 32 << 20
"""Users of this size are made or read once for all walks."""


@dataclass(frozen=True)
class Plan:
    """A population before its users are made or read; it pickles to some kB.

    Attributes
    ----------
    users : Shard
        All its users, by number.
    title : str
        One line for tables and figures.
    domain : Keys or None
        PUBLIC bounded domain, if the source defines one. Users keep the items outside it: their
        own client half drops these before it computes any norm.
    value_range : (float, float) or None
        PUBLIC range of real samples, if the source guarantees one.
    not_private : tuple of str
        What was chosen by looking at private data, in words.
    dropped : mapping of str to int
        NOT PRIVATE diagnostics: rows left out, or values changed, and why.
    warnings : tuple of str
        NOT PRIVATE: what may mean something else than it was read as, and what to do.
    """

    users: Shard
    title: str
    domain: Keys | None = None
    value_range: tuple[float, float] | None = None
    not_private: tuple[str, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def loaded(self) -> Loaded:
        """Make or read the users; PopulationError if they are too many to be in memory at once."""
        users = self.users.in_memory("loading a population, as studies do (fedhist run does not),")
        return Loaded(**(vars(self) | {"users": users}))

    def kept(self, most: int = KEPT_BYTES) -> Plan:
        """Return the plan with its users in memory, if they take at most so many bytes there.

        Who are walked several times are then made or read once; the others are, every time.
        """
        parts, size = [self.users.none], 0
        for block in self.users.blocks():
            size += block.nbytes + block.ids.nbytes
            if size > most:
                return self
            parts.append(block)
        return Loaded(**(vars(self) | {"users": parts[0].followed_by(parts[1:])}))


@dataclass(frozen=True)
class Loaded(Plan):
    """A population in memory: a plan whose users are there."""

    users: Users

    def loaded(self) -> Loaded:
        return self

    def kept(self, most: int = KEPT_BYTES) -> Plan:
        return self


@dataclass(frozen=True)
class PopulationSpec(Settings, ABC):
    """What to load; its fields are the keys of the configuration's ``[population]`` table."""

    table: ClassVar[str] = "population"
    kind: ClassVar[str]
    format: ClassVar[int] = 0
    """Raised whenever a specification gives other users than it did."""

    @abstractmethod
    def load(self) -> Loaded:
        """Read or generate the users; the same specification gives the same users."""

    def plan(self) -> Plan:
        """Describe the users without making or reading them all, where the kind can; else load.

        Raises PopulationError if the kind cannot, and is asked for more users than are held in
        memory at once.
        """
        if self.stated is not None:
            check_in_memory(self.stated, f"a population of kind {self.kind!r}, which has no plan,")
        return self.load()

    @property
    def stated(self) -> int | None:
        """How many users there are, where that is known before any is made or read."""
        n_users = getattr(self, "n_users", None)
        return n_users if isinstance(n_users, int) else None


@dataclass(frozen=True, kw_only=True)
class ItemDomain(PopulationSpec):
    """Item data that may be restricted to a public domain and to a part of the users.

    Parameters
    ----------
    top : int, optional
        Take the ``top`` most frequent items as the domain (ties go to the smaller bytes). This
        looks at all users' data and is not private.
    domain : path, optional
        Take the domain from a public list: UTF-8 text, one item per line.
    max_users : int, optional
        Keep only the users with the smallest ids: a subset that does not depend on the data.
    """

    top: Whole | None = None
    domain: str | Path | None = None
    max_users: Whole | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top is not None and self.domain is not None:
            raise ValueError(f"give top or domain, not both: {self.top} and {self.domain}")

    def bounded(self, users: Users, what: str, dropped: Mapping[str, int]) -> Loaded:
        """Keep at most ``max_users`` users in memory and settle the domain."""
        return self.settled(users, what, dropped).loaded()

    def settled(self, users: Shard, what: str, dropped: Mapping[str, int]) -> Plan:
        """Keep at most ``max_users`` users and settle the domain."""
        if self.max_users is not None:
            users = users.slice(0, min(self.max_users, len(users)))
        domain: Keys | None = None
        told: tuple[str, ...] = ()
        if self.domain is not None:
            domain = read_domain(Path(self.domain))
        if self.top is not None:
            domain = most_frequent(users, self.top)
            told = (
                f"the domain is the {self.top:,} most frequent items, "
                "chosen by looking at all users' data",
            )
        size = "" if domain is None else f", {len(domain):,} items"
        title = f"{what}: {len(users):,} users{size}"
        return Plan(users, title, domain=domain, not_private=told, dropped=dropped)


def most_frequent(users: Shard, d: int) -> Keys:
    """Return the ``d`` items with the largest totals, in byte order. NOT PRIVATE.

    Raises PopulationError if the users have fewer than ``d`` different items.
    """
    vocabulary = users.none.vocabulary
    totals = item_totals(users)
    if np.count_nonzero(totals) < d:
        raise PopulationError(f"top = {d}, but there are {np.count_nonzero(totals)} items")
    ranked = vocabulary.byte_order
    chosen = ranked[np.sort(np.argsort(-totals[ranked], kind="stable")[:d])]
    return Keys.of(vocabulary[int(j)] for j in chosen)


def item_totals(users: Shard) -> Floats:
    """Add up every item's events: (size of the vocabulary,). NOT PRIVATE."""
    d = len(users.none.vocabulary)
    out = np.zeros(d)
    for block in users.blocks():
        out += np.bincount(block.counts.item, weights=block.counts.count, minlength=d)
    return out


def read_domain(path: Path) -> Keys:
    """Read a public list of items, one per line, in the order of the file.

    Raises PopulationError for a missing or empty file, text that is not UTF-8, and items that stand
    twice.
    """
    try:
        lines = existing(path).read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise PopulationError(f"{path}: the domain must be UTF-8 text: {error}") from error
    first: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        name = line.removesuffix("\r")
        if name and first.setdefault(name, number) != number:
            raise PopulationError(
                f"{path}: item {name!r} stands on line {first[name]} and on line {number}"
            )
    if not first:
        raise PopulationError(f"{path}: the domain is empty")
    return Keys.of(first)


class _Kinds(Mapping[str, type[PopulationSpec]]):
    """Specifications by their kind; each is imported when it is first asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, kind: str) -> type[PopulationSpec]:
        file, name = self._places[kind].split(".")
        spec: type[PopulationSpec] = getattr(import_module(f"{__name__}.{file}"), name)
        return spec

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


KINDS: Mapping[str, type[PopulationSpec]] = _Kinds(
    {
        "events": "files.Events",
        "samples": "files.SampleFile",
        "memory": "memory.Memory",
        "shards": "shards.Shards",
        "sentiment140": "sentiment140.Sentiment140",
        "snap": "files.Snap",
        "zipf": "synthetic.Zipf",
        "paper-iid": "papers.PaperIid",
        "paper-non-iid": "papers.PaperNonIid",
        "paper-poisson": "papers.PaperPoisson",
        "gaussian": "shared_mean.Gaussian",
        "regression": "regression.Regression",
        "density": "density_samples.DensitySamples",
    }
)


def population(kind: str, **parameters: Any) -> PopulationSpec:
    """Build the specification of a population from its kind and parameters.

    Raises
    ------
    ValueError
        For an unknown kind (naming the nearest) and for parameters out of range.
    TypeError
        For an unknown parameter (naming the nearest) or a missing one.

    Examples
    --------
    >>> len(population("zipf", n_users=50, d=20, mean_items=5, seed=1).load().users)
    50
    """
    if kind not in KINDS:
        raise ValueError(f"no population kind {kind!r}" + nearest(kind, KINDS))
    spec = KINDS[kind]
    known = [field.name for field in fields(spec)]
    for name in parameters:
        if name not in known:
            raise TypeError(f"population {kind!r} has no key {name!r}" + nearest(name, known))
    return spec(**parameters)


def numbered_ids(first: int, n: int, key: int | np.uint64 = 0) -> Words:
    """Return the ids of users first, ..., first + n - 1: a bijection of 64-bit numbers."""
    out = np.empty(n, dtype=np.uint64)
    user_keys_kernel(np.arange(first, first + n, dtype=np.uint64), np.uint64(key), out)
    return out
