"""The population of a plan at any size; it is made only if theory looks at its users."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, cast, get_args

import numpy as np

from fedhist.model.registry import parameters, protocol_class
from fedhist.users.batch import Users
from simulations.populations import KINDS, Loaded
from simulations.populations.synthetic import numbered_ids
from simulations.runs.config import Config, population_spec
from simulations.studies.records.cells import load_once

Unknown = Literal["n_users", "samples_per_user", "epsilon"]
"""What a plan solves for."""

UNKNOWNS: tuple[Unknown, ...] = get_args(Unknown)

SIZES = ("samples_per_user", "mean_items")
"""Keys of a population that say how many samples a user has."""

MOST_ENTRIES = 10_000_000
"""Samples of all users together that a plan makes, unless told otherwise."""

FEW = 16
"""Samples of the one user who is made to see what a report is like."""


class TooLarge(Exception):
    """A population of that size would take too long to make."""


@dataclass(frozen=True)
class Setting:
    """A configuration at one value of the unknown.

    Attributes
    ----------
    config : Config
    n_users : int
    """

    config: Config
    n_users: int


@dataclass(frozen=True)
class Template:
    """What a plan varies: a configuration, and which of its numbers is unknown.

    A population from a file is brought to another number of users by drawing its users with
    replacement; a synthetic one is generated anew.

    Parameters
    ----------
    config : Config
    unknown : {"n_users", "samples_per_user", "epsilon"}
    most_entries : float
        Samples of all users together up to which populations are made.

    Raises
    ------
    ValueError
        If the population has no number of samples that could be varied.
    """

    config: Config
    unknown: Unknown
    most_entries: float = MOST_ENTRIES

    def __post_init__(self) -> None:
        if self.unknown not in UNKNOWNS:
            names = ", ".join(UNKNOWNS)
            raise ValueError(f"the unknown must be one of {names}, got {self.unknown!r}")
        population_spec(self.config)
        if self.unknown == "samples_per_user" and self._size is None:
            kind = self.config.population["kind"]
            raise ValueError(f"population {kind!r} has no number of samples that could be varied")

    @cached_property
    def _fields(self) -> set[str]:
        return {f.name for f in fields(KINDS[str(self.config.population["kind"])])}

    @cached_property
    def _size(self) -> str | None:
        """The key that says how many samples a user has."""
        return next((k for k in SIZES if k in self._fields), None)

    @property
    def resampled(self) -> bool:
        """Whether users of a file are drawn with replacement."""
        return self.unknown == "n_users" and "n_users" not in self._fields

    @property
    def current(self) -> float:
        """The unknown's value as configured."""
        if self.unknown == "epsilon":
            return float(self.config.protocol.get("epsilon", 1.0))
        if self.unknown == "n_users":
            return self._n_users(self.config)
        return _middle(self._value(self.config, str(self._size)))

    def at(self, x: float) -> Setting:
        """Set the unknown, in the population and where the protocol is told it as well."""
        protocol, people = dict(self.config.protocol), dict(self.config.population)
        if self.unknown == "epsilon":
            protocol["epsilon"] = x
        elif self.unknown == "n_users":
            if not self.resampled:
                people["n_users"] = int(x)
        else:
            key = str(self._size)
            people[key] = _scaled(self._value(self.config, key), x)
        if self.unknown != "epsilon" and isinstance(protocol.get(self.unknown), int | float):
            protocol[self.unknown] = int(x)
        config = replace(self.config, protocol=protocol, population=people)
        return Setting(config, int(x) if self.unknown == "n_users" else self._n_users(config))

    def lazy(self, setting: Setting) -> tuple[Loaded, LazyUsers]:
        """Return the population of a setting, to be made when somebody looks at its users."""

        def make() -> Users:
            if self.entries(setting) > self.most_entries:
                raise TooLarge
            return self.load(setting).users

        users = LazyUsers(setting.n_users, make)
        return replace(self.sample(setting), users=cast(Users, users)), users

    def load(self, setting: Setting, seed: int | None = None) -> Loaded:
        """Make the population of a setting.

        Parameters
        ----------
        setting : Setting
        seed : int, optional
            Number of the population, from 1: it is drawn anew. Default: as configured.
        """
        tables = dict(setting.config.population)
        if seed is not None and "seed" in self._fields:
            tables["seed"] = self._value(setting.config, "seed") + seed
        config = replace(setting.config, population=tables)
        spec = population_spec(config)
        if not self.resampled:
            return load_once(tables, spec) if seed is None else spec.load()
        base, n = load_once(tables, spec), setting.n_users
        rng = np.random.default_rng((0x706C616E, seed or 0))
        drawn = base.users.take(np.sort(rng.integers(0, len(base.users), n)))
        return replace(
            base, users=replace(drawn, ids=numbered_ids(0, n)), title=f"{base.title}, {n:,} redrawn"
        )

    def sample(self, setting: Setting) -> Loaded:
        """Return one user like those of a setting, of few samples, with the public domain."""
        tables = dict(setting.config.population)
        if "n_users" not in self._fields:
            loaded = load_once(tables, population_spec(setting.config))
            return replace(loaded, users=loaded.users.slice(0, 1))
        tables["n_users"] = 1
        if self._size is not None and _middle(self._value(setting.config, self._size)) > FEW:
            tables[self._size] = _scaled(self._value(setting.config, self._size), FEW)
        return load_once(tables, population_spec(replace(setting.config, population=tables)))

    def entries(self, setting: Setting) -> float:
        """Estimate how many samples the users of a setting have together."""
        if "n_users" not in self._fields:
            loaded = load_once(setting.config.population, population_spec(setting.config))
            return setting.n_users * loaded.users.nbytes / (8 * len(loaded.users))
        size = 1.0 if self._size is None else _mean(self._value(setting.config, self._size))
        wide = self._value(setting.config, "dimension") if "dimension" in self._fields else 1
        return setting.n_users * size * wide

    def _n_users(self, config: Config) -> int:
        if "n_users" in self._fields:
            return int(self._value(config, "n_users"))
        return len(load_once(config.population, population_spec(config)).users)

    def _value(self, config: Config, key: str) -> Any:
        """Return a key of [population], or its default."""
        return getattr(population_spec(config), key)


class LazyUsers:
    """Users whose number is known and who are made when anything else is asked of them.

    Parameters
    ----------
    n_users : int
    make : callable
        Makes them.

    Attributes
    ----------
    made : bool
        Whether they were needed.
    """

    def __init__(self, n_users: int, make: Callable[[], Users]) -> None:
        self._n, self._make = n_users, lru_cache(maxsize=1)(make)
        self.made = False

    def __len__(self) -> int:
        return self._n

    def in_memory(self, what: str = "this") -> LazyUsers:
        """Return these users, not made yet."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.made = True
        return getattr(self._make(), name)


def for_protocol(config: Config, name: str) -> Config:
    """Return a configuration for another protocol: of the parameters, those that it has."""
    if name == config.protocol.get("name"):
        return config
    known = parameters(protocol_class(name))
    kept: Mapping[str, Any] = {k: v for k, v in config.protocol.items() if k in known}
    return replace(config, protocol={**kept, "name": name})


def _middle(size: Any) -> float:
    """Return a number of samples, or the median of a log-uniform range of them."""
    return math.sqrt(size[0] * size[1]) if isinstance(size, list | tuple) else float(size)


def _mean(size: Any) -> float:
    """Return a number of samples, or the mean of a log-uniform range of them."""
    if not isinstance(size, list | tuple):
        return float(size)
    lo, hi = size
    return float(lo) if lo == hi else (hi - lo) / math.log(hi / lo)


def _scaled(size: Any, x: float) -> Any:
    """Bring a number of samples, or the median of a range of them, to ``x``."""
    if isinstance(size, list | tuple):
        return [max(1, round(s * x / _middle(size))) for s in size]
    return int(x)
