"""What an experiment is asked, what it measures, how that is judged, and its file.

An experiment is a TOML file in ``configs`` and one function, ``run(findings)`` of the module of its
name, which measures and hands each number and curve to :class:`Findings`. The file's tables:
[experiment] (title, paper; ``users``, what it runs on in words; the axes ``x``, ``y`` and ``log``;
``notes`` and ``not_judged``, in which {name} is a setting); [settings] and in it ``quick``, which
overrides them; [population], by name, the default first (the fields of its kind, ``kind`` where
that is not the name, and ``quick``), if it does not make its own users; [values] with ``rows`` of
setting ("*": any that has no row before) and quantity (lists: one row for each), the ``paper``'s
number (or a table of them by setting), how near ours must be (``relative``, ``absolute``, ``low``
and ``high``, or ``shown``: not judged by itself), ``claim``, ``cause``, ``populations``. All of it
is fixed before anything is measured.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.base.arrays import plain as plain_number
from fedhist.base.checks import check_integer
from fedhist.base.errors import closest, nearest
from simulations.config.reading import (
    Must,
    Natural,
    NonNegative,
    Table,
    Whole,
    as_table,
    check_keys,
    convert,
    key_value,
    reading,
    tables_of,
)
from simulations.populations import KINDS, Loaded, population

PASS, FAIL = "PASS", "FAIL"
FREE = -math.inf, math.inf
"""The bounds of a line for orientation, which cannot fail."""

MADE_UP: Mapping[str, Table] = {"made-up": {}}
"""The population of an experiment that makes its own users."""

FILES: Mapping[str, str] = {
    "sentiment140": "training.1600000.processed.noemoticon.csv of Sentiment140, published at "
    "http://help.sentiment140.com/for-students",
    "snap": "loc-gowalla_totalCheckins.txt.gz of SNAP, published at "
    "https://snap.stanford.edu/data/loc-gowalla.html (or loc-brightkite)",
    "lastfm": "user_artists.dat of Last.fm, published at "
    "https://grouplens.org/datasets/hetrec-2011/",
}
"""What ``--data`` must name, by population."""


@dataclass(frozen=True)
class Check:
    """One line of the table: the paper's value, or its claim in words, and ours (NOT PRIVATE).

    It passes iff low <= ours <= high. ``cause`` is printed with a FAIL; ``populations`` says where
    a row of a file is judged: empty for all.
    """

    setting: str
    quantity: str
    paper: float | None
    ours: float
    low: float
    high: float
    claim: str = ""
    cause: str = ""
    stderr: float | None = None
    populations: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether the line can fail; the others are for orientation."""
        return not (math.isinf(self.low) and math.isinf(self.high))

    @property
    def verdict(self) -> str:
        """PASS within the tolerance, FAIL outside (a NaN, too); empty where nothing is judged."""
        return "" if not self.judged else PASS if self.low <= self.ours <= self.high else FAIL


@dataclass(frozen=True)
class Curve:
    """One line of a figure, on the axes of its panel.

    A ``style`` without a ``marker`` gives a plain line, the style " " markers alone. ``y_label``,
    ``x_label`` and ``log`` are the panel's, where they are not the figure's.
    """

    panel: str
    label: str
    x: Floats
    y: Floats
    yerr: Floats | None = None
    marker: str = ""
    style: str = ""
    y_label: str = ""
    x_label: str = ""
    log: str | None = None

    def drawn(self, log: str) -> NDArray[np.bool_]:
        """Which points axes can show, (K,): on logarithmic ones zero has no place."""
        log = log if self.log is None else self.log
        shown = np.isfinite(self.x) & np.isfinite(self.y)
        for letter, values in (("x", self.x), ("y", self.y)):
            shown &= (values > 0) | (letter not in log)
        return shown


@dataclass(frozen=True)
class Request:
    """What is asked: the tables of the file with what the user set, the rows not measured yet."""

    settings: Mapping[str, Any]
    data: Path | None
    population: str
    seed: int
    quick: bool
    values: tuple[Check, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def judge(
        self, setting: str, quantity: str, ours: float, stderr: float | None = None
    ) -> Check | None:
        """Compare a measurement with the first row of its name; None if there is no such row."""
        for v in self.values:
            if v.quantity == quantity and v.setting in (setting, "*"):
                return replace(v, setting=setting, ours=ours, stderr=stderr)
        return None

    def load(self, **more: Any) -> Loaded:
        """Load the population, with more parameters; ValueError if its file is missing."""
        given = {"kind": self.population, **self.parameters, **more}
        kind = str(given.pop("kind"))
        names = [f.name for f in fields(KINDS[kind])]
        if "path" in names:
            if self.data is None:
                what = FILES.get(self.population, f"a file of kind {kind}")
                raise ValueError(
                    f"population {self.population} needs a file: give --data FILE with {what}"
                )
            given.setdefault("path", self.data)
        if "seed" in names:
            given.setdefault("seed", self.seed)
        try:
            return population(kind, **given).load()
        except TypeError as e:
            raise ValueError(f"population {self.population}: {e}") from None


SOME = Must("a list of at least one", bool)
POSITIVE = Annotated[float, Must("positive and finite", lambda x: 0 < x < math.inf)]


class Findings:
    """What an experiment measures, in the order of its table and of its legends. NOT PRIVATE.

    ``settings``: those of the request, by attribute; ``users``: what was run on, in words;
    ``notes``: how it was measured, and what was chosen by looking at private data;
    ``not_judged``: which statements of the paper this run cannot judge.
    """

    def __init__(self, what: Experiment, request: Request) -> None:
        self.what, self.request, self.seed, self.users = what, request, request.seed, what.users
        self.settings = SimpleNamespace(**request.settings)
        self.checks: list[Check] = []
        self.curves: list[Curve] = []
        self.notes, self.not_judged = (
            [text.format_map(request.settings) for text in texts]
            for texts in (what.notes, what.not_judged)
        )

    @property
    def failures(self) -> list[Check]:
        """The checks whose verdict is FAIL."""
        return [c for c in self.checks if c.verdict == FAIL]

    @property
    def undrawn(self) -> list[str]:
        """Say which points the figure leaves out."""
        gone = ((c, np.count_nonzero(~c.drawn(self.what.log)), len(c.x)) for c in self.curves)
        return [
            f"{c.panel}: {c.label} ({k} of {n} points) cannot be drawn: no place for zero, nor for "
            "what is not a number, on a logarithmic axis"
            for c, k, n in gone
            if k
        ]

    def load(self, **more: Any) -> Loaded:
        """Load the population, and note what it is and what was chosen by looking at the data."""
        loaded = self.request.load(**more)
        self.users = loaded.title
        self.note(*(f"NOT PRIVATE: {x}" for x in loaded.not_private))
        return loaded

    def note(self, *texts: str) -> None:
        """Add notes, each once."""
        self.notes += [text for text in texts if text not in self.notes]

    def only_shown(self) -> None:
        """Judge no printed number from here on: they are of other users."""
        free = (v if v.paper is None else replace(v, low=FREE[0], high=FREE[1])
                for v in self.request.values)  # fmt: skip
        self.request = replace(self.request, values=tuple(free))

    def unjudge(self) -> None:
        """Take all tolerances back: a quick run's sizes are too small for them."""
        self.checks = [replace(c, low=FREE[0], high=FREE[1], claim="") for c in self.checks]
        self.note("a quick run: the sizes are too small to be judged")

    def check(self, setting: str, quantity: str, ours: float, stderr: float | None = None) -> None:
        """Judge a measurement, or show it for orientation where the paper claims nothing."""
        judged = self.request.judge(setting, quantity, ours, stderr)
        if judged is None:
            self.show(setting, quantity, ours, stderr)
        else:
            self.checks.append(judged)

    def show(self, setting: str, quantity: str, ours: float, stderr: float | None = None) -> None:
        """Add a line for orientation, which cannot fail."""
        self.checks.append(Check(setting, quantity, None, float(ours), *FREE, stderr=stderr))

    def draw(
        self, panel: str, label: str, x: ArrayLike, y: ArrayLike,
        yerr: ArrayLike | None = None, marker: str = "", style: str = "", **axes: Any,
    ) -> None:  # fmt: skip
        """Add a curve; a single y is a level. ``axes`` are further fields of :class:`Curve`."""
        at = np.asarray(x, dtype=np.float64)
        values = np.broadcast_to(np.asarray(y, dtype=np.float64), at.shape)
        error = None if yerr is None else np.asarray(yerr, dtype=np.float64)
        self.curves.append(Curve(panel, label, at, values, error, marker, style, **axes))

    def draw_means(
        self, panel: str, label: str, x: ArrayLike, means: Sequence[tuple[float, float | None]],
        marker: str = "", style: str = "", **axes: Any,
    ) -> None:  # fmt: skip
        """Add a curve of means with their standard errors."""
        y, yerr = [m for m, _ in means], [e or 0.0 for _, e in means]
        self.draw(panel, label, x, y, yerr, marker, style, **axes)


def power_law(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Fit y = c x^a by least squares of the logarithms: a and c.

    >>> np.round(power_law([1, 10, 100], [3.0, 30.0, 300.0]), 6).tolist()
    [1.0, 3.0]
    """
    slope, level = np.polyfit(np.log(x), np.log(y), 1)
    return float(slope), math.exp(level)


def mean_and_error(values: Floats) -> tuple[float, float | None]:
    """Return the mean and its standard error; None as the error of a single value.

    >>> mean_and_error(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    n = len(values)
    if n < 2 or np.ptp(values) == 0:  # equal values: without the rounding of their mean
        return float(values[0]), None if n < 2 else 0.0
    return float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(n)


def exponential_law(scores: Floats, sensitivity: float, epsilon: float) -> Floats:
    """Law of the exponential mechanism, (K,); at epsilon = inf the first best is certain."""
    if math.isinf(epsilon):
        return np.asarray(np.arange(len(scores)) == np.argmax(scores), dtype=np.float64)
    from scipy.special import softmax  # 0.2 s, which a list of experiments is spared

    return np.asarray(softmax(scores * (epsilon / (2 * sensitivity))))


# -- the files -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper that can be measured again, as its file describes it."""

    name: str
    title: str
    paper: str
    settings: Table
    quick: Table
    populations: Mapping[str, Table]
    values: tuple[Check, ...]
    users: str = ""
    x: str = ""
    y: str = ""
    log: str = "xy"
    notes: Sequence[str] = ()
    not_judged: Sequence[str] = ()

    def run(self, request: Request) -> Findings:
        """Measure, and judge what was measured."""
        findings = Findings(self, request)
        module = f"simulations.experiments.{self.name.replace('-', '_')}"
        importlib.import_module(module).run(findings)
        return findings

    @property
    def without_file(self) -> list[str]:
        """Names of the populations that need no file."""
        return [name for name, p in self.populations.items() if not _needs_file(name, p)]

    def request(
        self, *, population: str | None = None, data: Path | None = None,
        columns: Mapping[str, str | int] | None = None, overrides: Iterable[str] = (),
        seed: int = 0, quick: bool = False,
    ) -> Request:  # fmt: skip
        """Build the request of a run; ValueError for what is unknown, and for a missing file.

        ``columns`` say what the columns of ``data`` are, in place of the population's own: a column
        of items without one of counts is of single events. ``overrides`` are "key=value" of
        [settings], or "population.key=value".
        """
        name = population or next(iter(self.populations))
        if name not in self.populations:
            known = ", ".join(self.populations)
            raise ValueError(
                f"{self.name} cannot run on {name!r}; it runs on {known}"
                + closest(name, self.populations)
            )
        check_integer("seed", plain_number(seed), least=0)
        settings = {**self.settings, **(self.quick if quick else {})}
        given = dict(self.populations[name])
        small = given.pop("quick", {})
        given |= small if quick else {}
        if "item" in (columns or {}):
            given.pop("count", None)
        given |= columns or {}
        for text in overrides:
            key, value = key_value(text, "key=value")
            if key.startswith("population."):
                given[key.removeprefix("population.")] = value
            elif key in settings:
                settings[key] = _as_was(key, value, settings[key])
            else:
                raise ValueError(f"{self.name} has no setting {key!r}{nearest(key, settings)}")
        values = tuple(v for v in self.values if not v.populations or name in v.populations)
        request = Request(settings, data, name, seed, quick, values, given)
        self._check_file(request)
        return request

    def _check_file(self, request: Request) -> None:
        """Say at once, before anything is computed, that a file is missing or not wanted."""
        kind = str(request.parameters.get("kind", request.population))
        needed = _needs_file(request.population, request.parameters)
        if "kind" in request.parameters and kind not in KINDS:
            raise ValueError(f"no population kind {kind!r}" + nearest(kind, KINDS))
        if request.data is not None and not needed:
            raise ValueError(f"population {request.population} is made up: it reads no --data")
        if request.data is None and needed:
            try:
                request.load()
            except ValueError as e:
                others = " or ".join(f"--population {p}" for p in self.without_file)
                raise ValueError(f"{e}. Without a file: {others}" if others else str(e)) from None
        if request.data is not None and not request.data.is_file():
            what = "is a folder, not a file" if request.data.is_dir() else "no such file"
            raise ValueError(f"{what}: {request.data}")


HEAD = ("title", "paper", "users", "x", "y", "log", "notes", "not_judged")


PART_OF: Mapping[str, str] = {
    "figure3": "table1",
    **dict.fromkeys(("figure5", "figure6"), "figure2"),
    **dict.fromkeys(("interval-error", "refusal-map"), "few-users-error"),
    "sparse-thresholding": "sparse-selection",
    "density-error": "rate-tables",
}
"""Experiments that stand in another one's file."""


def names() -> list[str]:
    """Return the names of all experiments."""
    files = resources.files("simulations.experiments.configs").iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def experiment(name: str) -> Experiment:
    """Read an experiment; ValueError (naming the nearest) if there is none of that name."""
    if name not in names():
        remedy = f"; {PART_OF[name]} measures it" if name in PART_OF else nearest(name, names())
        raise ValueError(f"unknown experiment {name!r}{remedy}")
    file = resources.files("simulations.experiments.configs").joinpath(f"{name}.toml")
    return parse(name, file.read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Experiment:
    """Read a file; ValueError for unknown tables and keys, and rows without a tolerance."""
    known = ("experiment", "population", "settings", "values")
    with reading(name):
        file = {k: as_table(v, f"[{k}]") for k, v in tables_of(text).items()}
        check_keys(file, known, "table")
        head, populations = file.get("experiment", {}), file.get("population", MADE_UP)
        check_keys(head, HEAD, "key of [experiment]")
        if not {"title", "paper"} <= head.keys():
            raise ValueError("[experiment] needs title and paper")
        settings = dict(file.get("settings", {}))
        quick = as_table(settings.pop("quick", {}), "settings.quick")
        check_keys(quick, settings, "key of settings.quick")
        values = [v for row in file.get("values", {}).get("rows", ()) for v in _values(row)]
        for value in values:
            check_keys(value.populations, populations, "population of [values]")
        return Experiment(
            name, **head, settings=settings, quick=quick, populations=populations,
            values=tuple(values),
        )  # fmt: skip


def _values(row: Table) -> Iterator[Check]:
    """Work out between which numbers ours must lie, for each setting and quantity of a row."""
    ways = ("relative", "absolute", "low", "high", "shown")
    words = ("setting", "quantity", "paper", "claim", "cause", "populations")
    check_keys(row, (*ways, *words), "key of [values]")
    where, given = f"the value {dict(row)}", {"low" if w == "high" else w for w in ways if w in row}
    settings = _each(row.get("setting", ()))
    papers: Any = row.get("paper")
    if isinstance(papers, Mapping):
        settings = list(papers)
    else:
        papers = dict.fromkeys(settings, papers)
    if not settings or "quantity" not in row:
        raise ValueError(f"{where} needs a setting and a quantity")
    if len(given) != 1:
        raise ValueError(f"{where} needs one of relative, absolute, low and high, shown")
    if None in papers.values() and ("claim" not in row or given != {"low"}):
        raise ValueError(f"{where} needs the paper's number, or its claim in words and low or high")
    low, high = (float(row.get(k, bound)) for k, bound in zip(("low", "high"), FREE, strict=True))
    for setting, quantity in product(settings, _each(row["quantity"])):
        if given & {"relative", "absolute"}:
            middle = papers[setting]
            room = row["absolute"] if "absolute" in row else row["relative"] * abs(middle)
            low, high = middle - room, middle + room
        yield Check(
            setting, quantity, papers[setting], math.nan, low, high, row.get("claim", ""),
            row.get("cause", ""), populations=tuple(row.get("populations", ())),
        )  # fmt: skip


def _each(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


def _as_was(key: str, value: Any, old: Any) -> Any:
    """Refuse what is not of the kind of a setting's own value, or not positive where that is."""
    several = isinstance(old, list)
    values = old if several else [old]
    zero = 0 in values
    kinds: Mapping[type, Any] = {
        int: Natural if zero else Whole, float: NonNegative if zero else POSITIVE,
        str: str, dict: Table,
    }  # fmt: skip
    each: Any = kinds[type(values[0])] if values else Whole
    if not several:
        return convert(key, value, each)
    return list(convert(key, value, Annotated[tuple[each, ...], SOME] if old else tuple[each, ...]))


def _needs_file(name: str, parameters: Table) -> bool:
    kind = KINDS.get(str(parameters.get("kind", name)))
    return kind is not None and "path" in kind.__dataclass_fields__
