"""Which statistic of the users a protocol estimates, how far off it is, and is expected to be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.checks import Words


class Truth(Words):
    """What an estimate is about. On users of equal sizes and one taste several of them agree."""

    AVERAGE_OF_USERS = "average of users"
    POOLED = "pooled"
    ONE_ITEM = "one item a user"
    COMMON = "common distribution"
    TOTAL = "total"
    HOLDERS = "users who hold it"
    OWN_MEANS = "users' own means"
    AVERAGE_RISK = "average risk of users"
    OWN = "its own truth"

    @property
    def in_words(self) -> str:
        """Return one sentence for a report.

        >>> Truth.POOLED.in_words
        'all samples weigh the same, so that users with many of them weigh more'
        """
        return {
            Truth.AVERAGE_OF_USERS: "every user weighs the same, however many samples it holds: "
            "(1/n) sum over users of its own mean or shares",
            Truth.POOLED: "all samples weigh the same, so that users with many of them weigh more",
            Truth.ONE_ITEM: "one item of every user, drawn from its own; who has none counts, too",
            Truth.COMMON: "the one distribution that all users draw from: on users who differ the "
            "estimate is about none of them",
            Truth.TOTAL: "the sum over users of what each of them holds",
            Truth.HOLDERS: "how many users hold an item, each of them once, whatever its count",
            Truth.OWN_MEANS: "a statistic of the users' own means, one number for each user",
            Truth.AVERAGE_RISK: "the minimiser of the risk that is averaged over users, each of "
            "whom weighs the same",
            Truth.OWN: "what the protocol itself says that it estimates",
        }[self]

    def __str__(self) -> str:
        return self.value


L1, L2, SQUARED_L2 = "l1", "l2", "squared l2"


def l1(value: Array, truth: Array) -> float:
    """Sum of absolute differences."""
    return float(np.abs(value - truth).sum())


def l2(value: Array, truth: Array) -> float:
    """Euclidean distance."""
    return math.sqrt(squared_l2(value, truth))  # in one order, whatever the threads of BLAS


def squared_l2(value: Array, truth: Array) -> float:
    """Squared Euclidean distance; of one number the squared error."""
    return float(np.square(value - truth).sum())


Kind = Literal["exact", "simulated", "bound"]


@dataclass(frozen=True)
class Prediction:
    """The expected loss of a protocol on given users. NOT PRIVATE: it is computed from the data.

    Attributes
    ----------
    loss : str
        Which loss: "l1", "squared l2", ...; see :mod:`fedhist.model.truths`.
    expected : float
        Expected loss, in the estimate's units; infinite where no run has an estimate.
    kind : {"exact", "simulated", "bound"}
        "exact": a closed form. "simulated": the mean of :attr:`runs` runs on these users. "bound":
        a paper's upper bound, which the loss may stay below by any factor.
    source : str
        Paper and equation, or what was run.
    stderr : float
        Standard error of ``expected`` where it is simulated, else 0.

    Examples
    --------
    >>> Prediction("l1", 0.25, "exact", "sum of E|Z|").exact
    True
    """

    loss: str
    expected: float
    kind: Kind
    source: str
    stderr: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether ``expected`` is a closed form."""
        return self.kind == "exact"


@dataclass(frozen=True)
class LowerBound:
    """What no protocol under the same guarantee can beat, as it stands: with all constants.

    ``value`` is in the loss's units, of the worst population for any one protocol; ``source`` names
    paper and theorem, or the derivation, and where it is not stated.
    """

    loss: str
    value: float
    source: str

    def __str__(self) -> str:
        return f"{self.value:.3g}"

    @property
    def words(self) -> str:
        """Say where it comes from."""
        return f"explicit: {self.source}"
