"""Localize, then refine: the script that every fold-wise local estimator shares.

Some users of each fold vote for the bin of their scalar; the others report it clipped to the
short interval around their fold's winning bins. Each user answers one query only.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.base.text import warned
from fedhist.model.part import Functional
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.protocols.localize.queries import BinVotes, ClippedMean
from fedhist.users.cohort import Cohort
from fedhist.users.folds import salt_of_folds
from server.means.localize import (
    LEAST_MASS,
    MOST_FAILURE,
    Plan,
    best_window,
    centroid,
    keep_inside,
    window_mass,
)


@dataclass(frozen=True)
class FoldEstimates:
    """What the two rounds found, fold by fold.

    Attributes
    ----------
    value : (k,) float64
        In the units of the functional; the middle of the interval where nobody reported.
    stderr : (k,) float64
        By the plan's variance and the fold's own number of reports; inf where nobody reported.
    n_report : (k,) int64
    window_mass : (k,) float64 or None
        Share of the voters in the winning windows; None without a vote.
    public : dict of str to float
    warnings : tuple of str
    """

    value: Floats
    stderr: Floats
    n_report: NDArray[np.int64]
    window_mass: Floats | None = None
    public: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


Centres = Callable[[Floats, float, float], tuple[Floats, Floats]]


def winning_windows(frequencies: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Find the centroid of every fold's best window of bins, and the share of votes in it."""
    window = best_window(frequencies)
    return centroid(frequencies, window, low, high), window_mass(frequencies, window)


@dataclass(frozen=True)
class Steps:
    """How the two rounds are read.

    Attributes
    ----------
    centres : callable of (frequencies, low, high) to (centres, masses)
        Where every fold's interval lies, and the share of votes that say so.
    neighbours : bool
        Whether a user votes for the bins beside its own as well.
    clip : bool
        Whether a fold's average is clipped to its interval.
    """

    centres: Centres = winning_windows
    neighbours: bool = False
    clip: bool = True


PROVEN = Steps()
BESIDE = "the value that it is about is then further off than its standard error says"
AGREE = "ask more users, or give a larger epsilon; where users differ, a larger mean_scale"


def localize_and_refine(
    functional: Functional,
    plan: Plan,
    *,
    epsilon: float,
    kind: str,
    salt: int,
    n_users: int,
    lo: float = 0.0,
    steps: Steps = PROVEN,
) -> Generator[Query, Summary, FoldEstimates | Estimate]:
    """Ask the users whose hash under ``salt`` is lo or more: vote, find the windows, refine.

    Parameters
    ----------
    functional : Functional
    plan : Plan
        Of one fold, for n_users (1 - lo) / k users.
    epsilon : float
        Of each of the two queries; no user answers both.
    kind : str
        Scalar channel of the second round; not "auto".
    salt : int
        Public salt of the split into voters and reporters; that of the folds follows from it.
    n_users : int
        Planned users of the whole population, for the standard errors.
    lo : float
        Share of the population that does not take part.
    steps : Steps

    Returns
    -------
    FoldEstimates, or a failed Estimate where nobody voted or nobody reported

    Privacy
    -------
    epsilon-LDP: voters and reporters are disjoint cohorts of one salt, so that each user answers
    one epsilon-LDP query; the second query depends on other users' messages only.
    """
    k, folds, low, high = functional.n_folds, salt_of_folds(salt), functional.low, functional.high
    centres, mass = np.full(k, (low + high) / 2), None
    public: dict[str, float] = {}
    warnings: tuple[str, ...] = ()
    cohort = Cohort(salt, lo, 1.0) if lo else None
    if plan.n_bins > 1:
        split = lo + plan.vote_share * (1.0 - lo)
        vote = BinVotes(
            functional,
            plan.n_bins,
            float(epsilon),
            cohort=Cohort(salt, lo, split),
            fold_salt=folds,
            neighbours=steps.neighbours,
        )
        votes = yield vote
        if votes.n_users == 0:
            return Estimate.failed("nobody voted")
        middles, mass = steps.centres(vote.frequencies(votes), low, high)
        middles = np.where(votes.sums["users"] > 0, middles, centres)
        centres = keep_inside(middles, plan.half_width, low, high)
        public = {"window_mass": float(mass.min()), "n_vote": float(votes.n_users)}
        warnings, cohort = _doubts(plan, mass, functional), Cohort(salt, split, 1.0)
    refine = ClippedMean(
        functional, centres, plan.half_width, float(epsilon), kind, cohort=cohort, fold_salt=folds
    )
    reports = yield refine
    n = reports.sums["users"]
    if reports.n_users == 0:
        return Estimate.failed("nobody reported", public=public, warnings=warnings)
    public |= {"n_bins": float(plan.n_bins), "n_report": float(reports.n_users)}
    if k == 1:
        public["interval_low"] = float(centres[0]) - plan.half_width
        public["interval_high"] = float(centres[0]) + plan.half_width
    else:
        public |= {"folds": float(k), "half_width": plan.half_width}
    empty = int(np.count_nonzero(n == 0))
    if empty:
        means = "the middle of the range stands in for their values, whatever the data"
        todo = "ask more users, or for fewer values"
        warnings = (*warnings, warned(f"{empty} of {k} folds had no reports", means, todo))
    # the plan's variance is that of (1 - vote_share) n_users (1 - lo) / k reports
    planned = n_users * (1.0 - lo)
    variance = plan.variance * (1 - plan.vote_share) * planned / k / np.maximum(n, 1)
    return FoldEstimates(
        refine.estimates(reports, clip=steps.clip),
        np.where(n > 0, np.sqrt(variance), np.inf),
        n.copy(),
        mass,
        public,
        warnings,
    )


def _doubts(plan: Plan, mass: Floats, functional: Functional) -> tuple[str, ...]:
    """Say what makes a wrong window likely."""
    k = functional.n_folds
    out = []
    if plan.failure > MOST_FAILURE:
        what = "the vote" if k == 1 else "the vote of a fold"
        out.append(
            warned(
                f"with so few users {what} may find the wrong window with probability "
                f"{plan.failure:.2g}",
                BESIDE,
                "more users or a larger epsilon make that rarer",
            )
        )
    weak = int(np.count_nonzero(mass < LEAST_MASS))
    if weak and k == 1:
        out.append(
            warned(
                f"the winning window holds a share of {mass[0]:.2f} of the votes, less than "
                f"{LEAST_MASS}, and may be the wrong one",
                BESIDE,
                AGREE,
            )
        )
    elif weak:
        out.append(
            warned(
                f"in {weak} of {k} folds (each is asked about one of the {k} values) less than "
                f"{LEAST_MASS} of the votes are for the winning window of values, which may be the "
                "wrong one",
                BESIDE,
                AGREE,
            )
        )
    return tuple(out)
