"""A cell of a map of regrets, a map of them, and what was found at a cell. NOT PRIVATE."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.base import Request
from simulations.experiments.regret_axes import Axis

DEFAULT = "default"


class Cell(ABC):
    """One square of a map: public settings and a population. Subclasses are frozen dataclasses."""

    target: str

    @property
    @abstractmethod
    def public(self) -> Mapping[str, Any]:
        """What a protocol may know, by the names of protocols' fields."""

    @property
    def not_meant(self) -> Sequence[str]:
        """Fields of these names mean something else for the target's protocols."""
        return ()

    @property
    def keys(self) -> Keys | None:
        """Keys of the truth, where a protocol finds its keys itself."""
        return None

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> tuple[Users, Floats]:
        """Draw users, and return the truth that losses are measured against."""

    @abstractmethod
    def loss(self, value: Floats, truth: Floats) -> float:
        """Measure an estimate."""

    def squared(self, off: Floats) -> float:
        """Return the squared norm that standard errors are of: l2."""
        return float(np.square(off).sum())

    @abstractmethod
    def trivial(self, truth: Floats) -> float:
        """Return the loss of the answer that needs no users."""

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, str | float]:
        """Its columns in the table of all cells."""


@dataclass(frozen=True)
class Area:
    """A map: its cells by target, and how it is drawn.

    Attributes
    ----------
    name, title, paper, population : str
    targets : sequence of str
    cells : callable of (target, Request)
        Lists the cells.
    axes : callable of target
        Pairs of axes, x and y, of each heat map.
    notes : tuple of str
    options : mapping
        Of each run.
    """

    name: str
    title: str
    paper: str
    population: str
    targets: Sequence[str]
    cells: Callable[[str, Request], Sequence[Cell]]
    axes: Callable[[str], Sequence[tuple[Axis, Axis]]]
    notes: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Measured:
    """What was found at a cell.

    Attributes
    ----------
    cell : Cell
    losses : mapping of str to (R,) float64
        By method; users are the same in each run.
    own : (R,) float64
        The default's losses as a run states them; of more runs where the first ones disagree with
        its prediction.
    predicted : float
        Mean prediction of the default's loss; NaN where it refuses.
    stated : float
        The same in the loss of the cell, which may be the square of the run's, or a multiple of it.
    flagged : bool
        Whether the prediction is said to be a bound.
    trivial : float
        Loss of the answer that needs no users.
    refused : int
        Runs in which the default had no value; the trivial answer took its place.
    close : bool
        Whether the default's plan says that two methods are close.
    errors : (r, 3) float64
        Of the default's runs that state a standard error: squared error, what is stated of it, and
        what users whom a run cannot see may add.
    """

    cell: Cell
    losses: Mapping[str, Floats]
    own: Floats
    predicted: float
    stated: float
    flagged: bool
    trivial: float
    refused: int
    close: bool
    errors: Floats = field(default_factory=lambda: np.zeros((0, 3)))

    @property
    def best(self) -> str:
        """The method of least mean loss."""
        return min(self.losses, key=lambda m: float(self.losses[m].mean()))

    @property
    def regret(self) -> float:
        """Mean loss of the default over the least mean loss."""
        return float(self.losses[DEFAULT].mean() / self.losses[self.best].mean())

    @property
    def stderr(self) -> float:
        """Standard error of the regret, from paired runs; 0 where the default is the best."""
        one, two = self.losses[DEFAULT], self.losses[self.best]
        spread = np.std(one / one.mean() - two / two.mean(), ddof=1) / math.sqrt(len(one))
        return float(self.regret * spread)

    @property
    def least(self) -> float:
        """Lower end of the regret's 95 % interval, at least 1."""
        return max(1.0, self.regret - 2 * self.stderr)

    @property
    def ratio(self) -> float:
        """Measured loss of the default over its prediction."""
        return float(self.own.mean() / self.predicted)

    @property
    def ratio_error(self) -> float:
        """Standard error of the ratio."""
        return float(self.own.std(ddof=1) / math.sqrt(len(self.own)) / self.predicted)

    @property
    def mispredicted(self) -> bool:
        """Whether the prediction is off by more than 15 % and three standard errors, unflagged.

        Losses are skewed, so that few of them have too small an error: :data:`AGAIN`.
        """
        if self.flagged or math.isnan(self.predicted):
            return False
        off = 3 * self.ratio_error
        return self.ratio + off < 0.85 or self.ratio - off > 1.15

    @property
    def stated_ratio(self) -> float:
        """Measured squared error over what standard errors state; NaN without them."""
        squared, stated, _ = self.errors.mean(axis=0) if len(self.errors) else (math.nan,) * 3
        return float(squared / stated) if stated > 0 else math.nan

    @property
    def understated(self) -> bool:
        """Whether that is 15 % and three standard errors above all that is stated."""
        if not len(self.errors):
            return False
        squared, stated, unseen = self.errors.T
        off = squared - 1.15 * stated - unseen
        return float(off.mean()) > 3 * float(off.std()) / math.sqrt(len(off))

    @property
    def worse_than_trivial(self) -> bool:
        """Whether the default loses to the trivial answer by more than the error it states."""
        one = self.losses[DEFAULT]
        mean, error = float(one.mean()), float(one.std(ddof=1)) / math.sqrt(len(one))
        stated = 0.0 if math.isnan(self.stated) else self.stated
        return mean - 2 * error > self.trivial + stated

    @property
    def row(self) -> dict[str, str | float]:
        """One row of the table of all cells."""
        return {
            **self.cell.facts,
            "regret": self.regret,
            "stderr": self.stderr,
            "close call": float(self.close),
            "best": self.best,
            "default loss": float(self.losses[DEFAULT].mean()),
            "best loss": float(self.losses[self.best].mean()),
            "trivial loss": self.trivial,
            "predicted": self.predicted,
            "measured / predicted": self.ratio,
            "measured / stated": self.stated_ratio,
            "unseen": float(np.sqrt(self.errors[:, 2].mean())) if len(self.errors) else 0.0,
            "runs": float(len(self.losses[DEFAULT])),
            "refused": float(self.refused),
            "all": "; ".join(f"{m} {x.mean():.3g}" for m, x in self.losses.items()),
        }
