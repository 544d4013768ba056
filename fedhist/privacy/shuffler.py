"""Shuffling: the premise of shuffle trust, and how many users each user hides among."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from fedhist.base.arrays import PlainArguments
from fedhist.base.checks import check_integer, check_within
from fedhist.privacy.guarantee import check_budget


@dataclass(frozen=True)
class Shuffler(metaclass=PlainArguments):
    """What a configuration says of a shuffler; with a budget and users it is :class:`Shuffling`."""

    delta: float
    tau: float = 0.1
    colluders: int = 0

    def over(self, epsilon: float, n_users: int) -> Shuffling:
        """Return the target for so many users."""
        return Shuffling(float(epsilon), self.delta, n_users, self.tau, self.colluders)


@dataclass(frozen=True)
class Shuffling(metaclass=PlainArguments):
    """What users are promised if the shuffler is honest, and who must report for it.

    A shuffler passes a batch's reports on as a multiset: without ids, nodes, order and times. The
    local protocol below it has a larger epsilon, its own field, which holds against the shuffler.
    ``tau`` is the largest share of the users who are asked that may not report, in [0, 0.5), read
    as the decimal that is written; ``colluders`` are users of any one batch who may tell the server
    what they have reported, or who report something made up: that hides nobody, and no count can
    tell.

    Privacy
    -------
    Replacement of one user's record: the users, and so cohorts and folds, are public. A batch that
    is too small is withheld, so the promise never rests on how many happen to report, but it does
    on their reports: all but ``colluders`` of them must be honest and in confidence.

    >>> trust = Shuffling(1.0, 1e-6, 20_000)
    >>> trust.least(), trust.least(1.0, 20)
    (18000, 757)
    """

    epsilon: float
    delta: float
    n_users: int
    tau: float = 0.1
    colluders: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if not self.delta > 0:
            raise ValueError(f"shuffling needs a delta in (0, 1), got {self.delta}")
        check_integer("n_users", self.n_users, 1 << 40)
        check_integer("colluders", self.colluders, 1 << 40, least=0)
        check_within("tau", self.tau, 0, 0.5, "[)")

    def least(self, share: float = 1.0, batches: int = 1) -> int:
        """Honest users who are certain to report in a batch, the one in question included.

        A hash splits a share of the users into batches: floor((1 - tau)(n / k - 5 sqrt(n / k)))
        less the colluders, n / k users being expected, of which a hash makes a batch 5 standard
        deviations smaller with a chance of 3e-7; of everybody in one batch (1 - tau) n, as
        their number is known. 1 at least.
        """
        expected = self.n_users * share / batches
        if share < 1 or batches > 1:
            expected -= 5 * math.sqrt(expected)
        report = (1 - Fraction(repr(float(self.tau)))) * Fraction(expected)
        return max(math.floor(report) - self.colluders, 1)
