"""What an experiment is asked and what it returns: the tables and figures of a paper, judged.

An experiment is a function from a :class:`Request` to a :class:`Result` and a TOML file in
``simulations/experiments/configs`` that names it, see :mod:`simulations.experiments.catalogue`.
The paper's values, the tolerances and known causes of differences stand in the TOML file: they are
fixed before anything is measured.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from simulations.populations import KINDS, Loaded, population

PASS, FAIL, TOO_FEW = "PASS", "FAIL", "too few runs"
FREE = -math.inf, math.inf
"""The bounds of a line for orientation, which cannot fail."""

FILES: Mapping[str, str] = {
    "sentiment140": (
        "training.1600000.processed.noemoticon.csv of Sentiment140 (Go, Bhayani & Huang 2009), "
        "published at http://help.sentiment140.com/for-students: Latin-1 CSV without a header, "
        "columns polarity, id, date, query, user, text"
    ),
    "snap": (
        "loc-gowalla_totalCheckins.txt.gz or loc-brightkite_totalCheckins.txt.gz of SNAP (Cho, "
        "Myers & Leskovec 2011), published at https://snap.stanford.edu/data/loc-gowalla.html and "
        "https://snap.stanford.edu/data/loc-brightkite.html: tab-separated user, check-in time, "
        "latitude, longitude, location id, no header, gzip or plain"
    ),
    "lastfm": (
        "user_artists.dat of the Last.fm data set (HetRec 2011), published at "
        "https://grouplens.org/datasets/hetrec-2011/: tab-separated with the header userID, "
        "artistID, weight"
    ),
}
"""What ``--data`` must name, by population."""


@dataclass(frozen=True)
class Check:
    """One line of the table: the paper's value, or its claim in words, and ours.

    Attributes
    ----------
    setting, quantity : str
        "i.i.d., d = 50" and "best C".
    paper : float or None
        The printed value, or theory's; None where there is none and ``claim`` says what is judged.
    ours : float
        NOT PRIVATE: the loss against the truth.
    low, high : float
        PASS iff low <= ours <= high; from the configuration, fixed beforehand.
    claim : str
    cause : str
        What is known of the cause of a difference; printed with a FAIL.
    stderr : float, optional
        Of ``ours``, over repeats.
    half : float
        Half the width of an interval around ``ours``, of which a part must lie within; 0 judges
        the number itself.
    populations : tuple of str
        Where a row of a TOML file is judged; empty for all.
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
    half: float = 0.0
    populations: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's; None where the paper prints no number."""
        return None if self.paper is None else self.ours - self.paper

    @property
    def judged(self) -> bool:
        """Whether the line can fail; the others are for orientation."""
        return not (math.isinf(self.low) and math.isinf(self.high))

    @property
    def failed(self) -> bool:
        """Whether it lies outside of the tolerance; a NaN fails where anything can."""
        inside = self.low <= self.ours + self.half and self.ours - self.half <= self.high
        return self.judged and not inside

    @property
    def verdict(self) -> str:
        """PASS within the tolerance, FAIL outside; neither by an interval twice as wide."""
        if not self.failed and self.half > self.high - self.low:
            return TOO_FEW
        return FAIL if self.failed else PASS


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes
    ----------
    panel : str
        Title of the axes it is drawn on; curves with the same title share them.
    label : str
    x, y : (K,) float64
    yerr : (K,) float64, optional
        Standard errors.
    marker, style : str
        As matplotlib spells them; empty takes the figure's next marker and a full line. A style
        without a marker gives a plain line, the style " " markers alone.
    y_label, x_label : str
        Of the panel, where they are not the figure's.
    log : str, optional
        Logarithmic axes of the panel, where they are not the figure's.
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

    def __post_init__(self) -> None:
        shapes = [np.shape(a) for a in (self.x, self.y, self.yerr) if a is not None]
        if len(set(shapes)) != 1 or len(shapes[0]) != 1:
            raise ValueError(f"the arrays of a curve must be equally long, got shapes {shapes}")

    def drawn(self, log: str) -> NDArray[np.bool_]:
        """Which points axes can show, (K,): on logarithmic ones zero has no place."""
        log = log if self.log is None else self.log
        seen = np.isfinite(self.x) & np.isfinite(self.y)
        for letter, values in (("x", self.x), ("y", self.y)):
            if letter in log:
                seen &= values > 0
        return seen


@dataclass(frozen=True)
class Result:
    """A reproduced table or figure. NOT PRIVATE as a whole.

    Attributes
    ----------
    title : str
    paper : str
        "Table 1".
    checks : tuple of Check
    curves : tuple of Curve
        Empty where there is nothing to draw.
    x_label, y_label : str
    log : {"", "x", "y", "xy"}
        Logarithmic axes.
    notes : tuple of str
        How it was measured, and everything that was chosen by looking at private data.
    not_judged : tuple of str
        The paper's statements that this run cannot judge, and why.
    population : str
        One line: what was measured on.
    """

    title: str
    paper: str
    checks: tuple[Check, ...]
    curves: tuple[Curve, ...] = ()
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    notes: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    population: str = ""

    def __post_init__(self) -> None:
        if self.log not in ("", "x", "y", "xy"):
            raise ValueError(f'log must be "", "x", "y" or "xy", got {self.log!r}')

    @property
    def failures(self) -> tuple[Check, ...]:
        """The checks whose verdict is FAIL."""
        return tuple(c for c in self.checks if c.verdict == FAIL)

    @property
    def undrawn(self) -> tuple[str, ...]:
        """Say which points the figure leaves out."""
        found = []
        for c in self.curves:
            gone = int(np.count_nonzero(~c.drawn(self.log)))
            if gone:
                some = "" if gone == len(c.x) else f" ({gone} of {len(c.x)} points)"
                found.append(
                    f"{c.panel}: {c.label}{some} cannot be drawn: no place for zero, nor for what "
                    "is not a number, on a logarithmic axis"
                )
        return tuple(found)

    def unjudged(self) -> Result:
        """Return the same result without tolerances: a quick run's sizes are too small for them."""
        checks = tuple(replace(c, low=FREE[0], high=FREE[1], claim="") for c in self.checks)
        quick = "a quick run: the sizes are too small to be judged"
        return replace(self, checks=checks, notes=(*self.notes, quick))


@dataclass(frozen=True)
class Request:
    """How the user asked for an experiment.

    Attributes
    ----------
    settings : mapping
        The TOML's [settings], then [quick] with ``--quick``, then ``--set key=value``.
    tolerances : mapping
        The TOML's [tolerance].
    data : Path or None
        The file given with ``--data``.
    population : str
        One of the names that the TOML lists.
    seed : int
    quick : bool
        Small sizes, to see that it works; nothing is then judged.
    values : tuple of Check
        The TOML's [[value]] rows for this population: what the paper prints and how near ours must
        be, not measured yet (``ours`` is NaN).
    parameters : mapping
        The TOML's [population.NAME]: ``kind`` (by default NAME) and the fields of that kind.
    """

    settings: Mapping[str, Any]
    tolerances: Mapping[str, Any]
    data: Path | None
    population: str
    seed: int
    quick: bool
    values: tuple[Check, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def judge(
        self, setting: str, quantity: str, ours: float, stderr: float | None = None
    ) -> Check | None:
        """Compare a measurement with its first [[value]] row; None if there is no such row.

        A row of the setting "*" is one of every setting.
        """
        for v in self.values:
            if v.quantity == quantity and v.setting in (setting, "*"):
                return replace(v, setting=setting, ours=ours, stderr=stderr)
        return None

    def only_shown(self) -> Request:
        """Return the same request with printed numbers that cannot fail: they are of others."""
        values = (
            v if v.paper is None else replace(v, low=FREE[0], high=FREE[1]) for v in self.values
        )
        return replace(self, values=tuple(values))

    def load(self, **more: Any) -> Loaded:
        """Load the population; ``more`` adds to or replaces its parameters.

        Raises
        ------
        ValueError
            Where it needs a file and none was given: says which, and where it is published.
        PopulationError
            From the file.
        """
        given = {**self.parameters, **more}
        kind = str(given.pop("kind", self.population))
        names = [f.name for f in dataclasses.fields(KINDS[kind])]
        if "path" in names:
            if self.data is None:
                raise ValueError(f"population {self.population} needs a file: {self._wanted(kind)}")
            given.setdefault("path", self.data)
        if "seed" in names:
            given.setdefault("seed", self.seed)
        try:
            return population(kind, **given).load()
        except TypeError as e:
            raise ValueError(f"population {self.population}: {e}") from None

    def _wanted(self, kind: str) -> str:
        what = FILES.get(self.population, f"a file of kind {kind}")
        return f"give --data FILE with {what}"


Run = Callable[[Request], Result]


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
