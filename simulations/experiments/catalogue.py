"""The experiments there are, read from their TOML files.

A file has the tables

- ``[experiment]``: name, title, paper, runs = "module:function";
- ``[settings]``, and ``[quick]``, which overrides settings where only "does it work?" is asked;
- ``[tolerance]``: numbers the verdicts of claims in words depend on;
- ``[population.NAME]``, one per population it can run on, the first being the default: the fields
  of the population's kind, ``kind`` where it is not NAME, and ``quick``, a table of overrides;
- ``[[value]]``: setting, quantity, the value the paper prints and how near ours must be
  (``relative``, ``absolute``, ``low`` and ``high``, or ``shown = true``: not judged by itself),
  ``claim``, ``cause``, ``populations``.
"""

from __future__ import annotations

import importlib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from fedhist.base.errors import nearest
from simulations.config.named_files import key_value
from simulations.experiments.base import Check, Request, Run
from simulations.populations import KINDS

CONFIGS = "simulations.experiments.configs"
TABLES = ("experiment", "settings", "quick", "tolerance", "population", "value")
VALUE_KEYS = (
    "setting",
    "quantity",
    "paper",
    "relative",
    "absolute",
    "low",
    "high",
    "shown",
    "claim",
    "cause",
    "populations",
)
OF_POPULATION = "population."


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
            )
        if seed < 0:
            raise ValueError(f"seed must be non-negative, got {seed}")
        settings = {**self.settings, **(self.quick if quick else {})}
        given = dict(self.populations[name])
        small = given.pop("quick", {})
        given |= small if quick else {}
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
    tables = tomllib.loads(text)
    _known(tables, TABLES, f"{name}: table")
    head = tables.get("experiment", {})
    for key in ("name", "title", "paper", "runs"):
        if not isinstance(head.get(key), str):
            raise ValueError(f"{name}: [experiment] needs {key!r}")
    if head["name"] != name:
        raise ValueError(f"{name}.toml calls itself {head['name']!r}")
    populations = tables.get("population", {})
    if not populations:
        raise ValueError(f"{name}: no [population.NAME] says what it can run on")
    values = tuple(_expected(name, row, populations) for row in tables.get("value", []))
    settings, quick = tables.get("settings", {}), tables.get("quick", {})
    _known(quick, settings, f"{name}: [quick]")
    return Experiment(
        name,
        head["title"],
        head["paper"],
        head["runs"],
        settings,
        quick,
        tables.get("tolerance", {}),
        populations,
        values,
    )


def _as_was(key: str, value: Any, old: Any) -> Any:
    """Refuse a value of another type than the setting's own; whole numbers may stand for reals."""
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if type(value) is not type(old):
        raise ValueError(f"{key} must be like {old!r}, got {value!r}")
    return value


def _expected(name: str, row: Mapping[str, Any], populations: Mapping[str, Any]) -> Check:
    """Read one [[value]]."""
    _known(row, VALUE_KEYS, f"{name}: key of [[value]]")
    where = f"{name}: the value {row.get('setting')!r}, {row.get('quantity')!r}"
    if not (row.get("setting") and row.get("quantity")):
        raise ValueError(f"{where} needs a setting and a quantity")
    ways = [k for k in ("relative", "absolute") if k in row]
    ways += ["low and high"] if "low" in row or "high" in row else []
    ways += ["shown"] if row.get("shown") is True else []
    if len(ways) != 1:
        raise ValueError(
            f"{where} needs one of relative, absolute, low and high, shown; got {ways}"
        )
    paper = row.get("paper")
    if paper is None and not row.get("claim"):
        raise ValueError(f"{where} needs the paper's number, or its claim in words")
    _known(row.get("populations", []), populations, f"{where}: population")
    if ways == ["shown"]:
        low, high = -math.inf, math.inf
    elif ways == ["low and high"]:
        low, high = float(row.get("low", -math.inf)), float(row.get("high", math.inf))
    elif paper is None:
        raise ValueError(f"{where} has a {ways[0]} tolerance around no number")
    else:
        room = row["absolute"] if "absolute" in row else row["relative"] * abs(paper)
        low, high = paper - room, paper + room
    return Check(
        row["setting"],
        row["quantity"],
        None if paper is None else float(paper),
        math.nan,
        low,
        high,
        row.get("claim", ""),
        row.get("cause", ""),
        populations=tuple(row.get("populations", ())),
    )


def _needs_file(name: str, parameters: Mapping[str, Any]) -> bool:
    kind = KINDS.get(str(parameters.get("kind", name)))
    return kind is not None and "path" in kind.__dataclass_fields__


def _known(given: Iterable[str], known: Iterable[str], what: str) -> None:
    allowed = list(known)
    for key in given:
        if key not in allowed:
            raise ValueError(f"{what}: unknown {key!r}{nearest(key, allowed)}")
