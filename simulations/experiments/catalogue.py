"""The experiments there are, read from their TOML files.

A file has the tables

- ``[experiment]``: name, title, paper, runs = "module:function";
- ``[settings]``, and ``[quick]``, which overrides settings where only "does it work?" is asked;
- ``[tolerance]``: numbers the verdicts of claims in words depend on;
- ``[population.NAME]``, one per population it can run on, the first being the default: the fields
  of the population's kind, ``kind`` where it is not NAME, and ``quick``, a table of overrides;
- ``[[value]]``: setting ("*": any that has no row before), quantity, the value the paper prints and
  how near ours must be (``relative``, ``absolute``, ``low`` and ``high``, or ``shown = true``: not
  judged by itself), ``claim``, ``cause``, ``populations``.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, cast

from fedhist.base.errors import closest, nearest
from simulations.config.named_files import key_value
from simulations.config.reading import (
    Natural,
    NonNegative,
    Settings,
    Table,
    check_keys,
    convert,
    read,
    reading,
    tables_of,
)
from simulations.experiments.base import Check, Request, Run
from simulations.populations import KINDS

CONFIGS = "simulations.experiments.configs"
OF_POPULATION = "population."
OF_KIND: Mapping[type, Any] = {int: Natural, float: NonNegative, str: str, dict: Table}
"""What a setting may be, by the type of its value in the file."""


@dataclass(frozen=True)
class Head(Settings):
    """The table [experiment]."""

    table: ClassVar[str] = "experiment"
    name: str
    title: str
    paper: str
    runs: str


@dataclass(frozen=True)
class Value(Settings):
    """A table [[value]]."""

    table: ClassVar[str] = "value"
    many: ClassVar[bool] = True
    setting: str = ""
    quantity: str = ""
    paper: float | None = None
    relative: float | None = None
    absolute: float | None = None
    low: float | None = None
    high: float | None = None
    shown: bool = False
    claim: str = ""
    cause: str = ""
    populations: tuple[str, ...] = ()

    def expected(self) -> Check:
        """Work out between which numbers ours must lie."""
        where = f"the value {self.setting!r}, {self.quantity!r}"
        if not (self.setting and self.quantity):
            raise ValueError(f"{where} needs a setting and a quantity")
        given = {
            "relative": self.relative is not None,
            "absolute": self.absolute is not None,
            "low and high": (self.low, self.high) != (None, None),
            "shown": self.shown,
        }
        ways = [way for way, is_given in given.items() if is_given]
        if len(ways) != 1:
            raise ValueError(
                f"{where} needs one of relative, absolute, low and high, shown; got {ways}"
            )
        paper = self.paper
        if paper is None and not self.claim:
            raise ValueError(f"{where} needs the paper's number, or its claim in words")
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if self.relative is not None or self.absolute is not None:
            if paper is None:
                raise ValueError(f"{where} has a {ways[0]} tolerance around no number")
            room = (self.relative or 0.0) * abs(paper) if self.absolute is None else self.absolute
            low, high = paper - room, paper + room
        return Check(
            self.setting,
            self.quantity,
            paper,
            math.nan,
            low,
            high,
            self.claim,
            self.cause,
            populations=self.populations,
        )


@dataclass(frozen=True)
class File(Settings):
    """The tables of an experiment's file."""

    experiment: Head
    population: Mapping[str, Table]
    settings: Table = field(default_factory=dict)
    quick: Table = field(default_factory=dict)
    tolerance: Table = field(default_factory=dict)
    value: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper that can be measured again.

    Attributes
    ----------
    name, title, paper, runs : str
    settings, quick, tolerances : mapping
    populations : mapping of str to mapping
        Parameters by population, the default first.
    values : tuple of Check
    """

    name: str
    title: str
    paper: str
    runs: str
    settings: Mapping[str, Any]
    quick: Mapping[str, Any]
    tolerances: Mapping[str, Any]
    populations: Mapping[str, Mapping[str, Any]]
    values: tuple[Check, ...]

    @property
    def run(self) -> Run:
        """The function that measures."""
        module, _, function = self.runs.partition(":")
        return cast(Run, getattr(importlib.import_module(module), function))

    @property
    def without_file(self) -> list[str]:
        """Names of the populations that need no file."""
        return [name for name, p in self.populations.items() if not _needs_file(name, p)]

    def request(
        self,
        *,
        population: str | None = None,
        data: Path | None = None,
        columns: Mapping[str, str | int] | None = None,
        overrides: Iterable[str] = (),
        seed: int = 0,
        quick: bool = False,
    ) -> Request:
        """Build the request of a run.

        Parameters
        ----------
        population : str, optional
            Default: the first the file lists.
        data : Path, optional
        columns : mapping, optional
            What that file's columns are, in place of the population's own: a column of items
            without one of counts is of single events.
        overrides : iterable of str
            "key=value" of [settings], or "population.key=value"; values are TOML, a bare word is
            a string.
        seed : int
        quick : bool

        Raises
        ------
        ValueError
            For an unknown population or key, and where the population's file is missing.
        """
        name = population or next(iter(self.populations))
        if name not in self.populations:
            raise ValueError(
                f"{self.name} cannot run on {name!r}; it runs on {', '.join(self.populations)}"
                + closest(name, self.populations)
            )
        if seed < 0:
            raise ValueError(f"seed must be non-negative, got {seed}")
        settings = {**self.settings, **(self.quick if quick else {})}
        given = dict(self.populations[name])
        small = given.pop("quick", {})
        given |= small if quick else {}
        if columns:
            if "item" in columns:
                given.pop("count", None)
            given |= columns
        for text in overrides:
            key, value = key_value(text, "key=value")
            if key.startswith(OF_POPULATION):
                given[key.removeprefix(OF_POPULATION)] = value
            elif key in settings:
                settings[key] = _as_was(key, value, settings[key])
            else:
                raise ValueError(f"{self.name} has no setting {key!r}{nearest(key, settings)}")
        values = tuple(v for v in self.values if not v.populations or name in v.populations)
        request = Request(
            settings, self.tolerances, data, name, seed, quick, values=values, parameters=given
        )
        self._check_file(request)
        return request

    def _check_file(self, request: Request) -> None:
        """Say at once, before anything is computed, that a file is missing or not wanted."""
        kind = str(request.parameters.get("kind", ""))
        if kind and kind not in KINDS:
            raise ValueError(f"no population kind {kind!r}" + nearest(kind, KINDS))
        needed = _needs_file(request.population, request.parameters)
        if request.data is not None and not needed:
            raise ValueError(f"population {request.population} is made up: it reads no --data")
        if request.data is None and needed:
            try:
                request.load()
            except ValueError as e:
                others = " or ".join(f"--population {p}" for p in self.without_file)
                hint = f". Without a file: {others}" if others else ""
                raise ValueError(f"{e}{hint}") from None
        if request.data is not None and not request.data.is_file():
            what = "is a folder, not a file" if request.data.is_dir() else "no such file"
            raise ValueError(f"{what}: {request.data}")


def names() -> list[str]:
    """Return the names of all experiments."""
    files = resources.files(CONFIGS).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def experiment(name: str) -> Experiment:
    """Read an experiment; ValueError (naming the nearest) if there is none of that name."""
    if name not in names():
        raise ValueError(f"unknown experiment {name!r}{nearest(name, names())}")
    text = resources.files(CONFIGS).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return parse(name, text)


def parse(name: str, text: str) -> Experiment:
    """Read the TOML text of an experiment.

    Raises
    ------
    ValueError
        For unknown tables and keys, and values without a tolerance.
    """
    with reading(name):
        file = read(File, tables_of(text))
        head = file.experiment
        if head.name != name:
            raise ValueError(f"the file calls itself {head.name!r}")
        if not file.population:
            raise ValueError("no [population.NAME] says what it can run on")
        check_keys(file.quick, file.settings, "key of [quick]")
        for value in file.value:
            check_keys(value.populations, file.population, "population of [[value]]")
        return Experiment(
            name,
            head.title,
            head.paper,
            head.runs,
            file.settings,
            file.quick,
            file.tolerance,
            file.population,
            tuple(value.expected() for value in file.value),
        )


def _as_was(key: str, value: Any, old: Any) -> Any:
    """Refuse what is not of the kind of a setting's own value: no number there is negative."""
    if not isinstance(old, list):
        return convert(key, value, OF_KIND[type(old)])
    each: Any = OF_KIND[type(old[0])] if old else Any
    return list(convert(key, value, tuple[each, ...]))


def _needs_file(name: str, parameters: Mapping[str, Any]) -> bool:
    kind = KINDS.get(str(parameters.get("kind", name)))
    return kind is not None and "path" in kind.__dataclass_fields__
