"""Mean of bounded samples under user-level local differential privacy, in two rounds [1]_.

Some of the users vote for the bin that holds their own sample mean; the others report their
sample mean clipped to the short interval around the winning bins, where the noise is small. Each
user answers one query only.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (25)-(30), Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from clients.randomizers import user_means
from fedhist.channels import KINDS, scalar_channel
from fedhist.cohort import Cohort
from fedhist.errors import PopulationError
from fedhist.keys import Keys, user_ids
from fedhist.privacy import Adjacency, Guarantee, Trust, check_budget
from fedhist.protocol import ErrorBound, Estimate, Protocol, Script
from fedhist.protocols.univariate import BinVotes, ClippedMean, check_range, one_dimension
from fedhist.query import Array, Summary
from fedhist.registry import register_protocol
from fedhist.users import Users
from server.localize import (
    LEAST_MASS,
    MOST_FAILURE,
    Plan,
    best_window,
    centroid,
    keep_inside,
    least_users,
    plan_paper,
    plan_univariate,
    window_mass,
)

if TYPE_CHECKING:
    from fedhist.curator import Curator


@register_protocol
@dataclass(frozen=True)
class Mean(Protocol):
    """Mean of samples in [low, high] that all users share, under local differential privacy.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off, and every user's mean is averaged exactly.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    samples_per_user : float
        Public planning value T. Where the users hold different numbers of samples, their harmonic
        mean is the safe choice, because it gives the average variance of a user's mean; a
        configuration asks for it by ``samples_per_user = "harmonic-mean"`` and declares the
        numbers of samples public by ``samples_public = true``. Privacy never depends on it.
    low, high : float
        Range of the samples; a sample outside is clipped before averaging.
    mean_scale : float, optional
        Standard deviation of a user's mean around the common mean, or a bound; by default
        (high - low) / (2 sqrt(T)). Enlarge it if the users' own means differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the second round; "auto" takes the one of least variance.
    mode : {"default", "paper"}
        "paper" follows the published procedure to the letter, with K = 1/4 and c = 1/100 for its
        unnamed constants: three votes a user, 7 delta, Laplace noise, the first T* samples.
    salt : int
        Public salt of the split into voters and reporters.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: the two cohorts of one salt
    are disjoint, so that each user answers one epsilon-LDP query, and the second query depends on
    other users' messages only.

    Error
    -----
    Of order (high - low)^2 (log(n epsilon^2 T) / (n T epsilon^2) + e^{-c n epsilon^2}) for
    epsilon <= 1 [1, Theorem 6]; ``plan.risk`` predicts it with constants.

    Examples
    --------
    >>> Mean(epsilon=1.0, n_users=2000, samples_per_user=1, low=-1.0, high=1.0).max_rounds
    1
    """

    name: ClassVar[str] = "mean"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 3.1"
    target: ClassVar[str] = "mean"
    epsilon: float
    n_users: int
    samples_per_user: float
    low: float
    high: float
    mean_scale: float | None = None
    kind: str = "auto"
    mode: Literal["default", "paper"] = "default"
    salt: int = 1

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_range(self.low, self.high)
        if self.n_users < 1:
            raise ValueError(f"n_users must be positive, got {self.n_users}")
        if not isinstance(self.samples_per_user, int | float):
            raise ValueError(f"samples_per_user must be a number, got {self.samples_per_user!r}")
        if not 1 <= self.samples_per_user < math.inf:
            raise ValueError(f"samples_per_user must be at least 1, got {self.samples_per_user}")
        if self.mean_scale is not None and not 0 < self.mean_scale < math.inf:
            raise ValueError(f"mean_scale must be positive and finite, got {self.mean_scale}")
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.mode not in ("default", "paper"):
            raise ValueError(f'mode must be "default" or "paper", got {self.mode!r}')
        if self.mode == "paper" and self.kind not in ("auto", "laplace"):
            raise ValueError(f'mode "paper" adds Laplace noise, got kind {self.kind!r}')
        Cohort(self.salt)
        _ = self.plan

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths; from public numbers only."""
        half_range = (self.high - self.low) / 2
        scale = self.mean_scale or half_range / math.sqrt(self.samples_per_user)
        if self.mode == "paper":
            return plan_paper(self.n_users, self.samples_per_user, scale, half_range, self.epsilon)
        return plan_univariate(self.n_users, scale, half_range, self.epsilon, self.channel_kind)

    @property
    def channel_kind(self) -> str:
        """The scalar channel in use; without noise the one that is then exact."""
        if self.mode == "paper" or math.isinf(self.epsilon):
            return "laplace"
        return scalar_channel(self.kind, self.epsilon).kind

    @property
    def max_rounds(self) -> int:
        """Two, or one where a vote would not help."""
        return 1 if self.plan.n_bins == 1 else 2

    @property
    def guarantee(self) -> Guarantee:
        """The same budget for voters and reporters: each user answers once."""
        return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)

    def rounds(self, server: Curator) -> Script:
        """Vote, find the window, refine."""
        plan = self.plan
        if not plan.feasible:
            return Estimate.refused(self._infeasible())
        refine = ClippedMean(
            centre=float(self.low + self.high) / 2,
            half_width=plan.half_width,
            low=float(self.low),
            high=float(self.high),
            epsilon=float(self.epsilon),
            kind=self.channel_kind,
            max_items=plan.max_items,
        )
        if plan.n_bins == 1:
            return self._conclude(refine, (yield refine), {}, ())
        vote = BinVotes(
            low=refine.low,
            high=refine.high,
            n_bins=plan.n_bins,
            epsilon=refine.epsilon,
            cohort=Cohort(self.salt, 0.0, plan.vote_share),
            neighbours=self.mode == "paper",
            max_items=plan.max_items,
        )
        votes = yield vote
        if votes.n_users == 0:
            return Estimate.failed("nobody voted")
        centre, public, warnings = self._locate(vote.frequencies(votes))
        refine = replace(refine, centre=centre, cohort=Cohort(self.salt, plan.vote_share, 1.0))
        public["n_vote"] = float(votes.n_users)
        return self._conclude(refine, (yield refine), public, warnings)

    def _locate(
        self, frequencies: NDArray[np.float64]
    ) -> tuple[float, dict[str, float], tuple[str, ...]]:
        """Find the centre of the interval to refine, with its diagnostics."""
        if self.mode == "paper":
            best = int(np.argmax(frequencies))  # [1, eq. (28)]
            middle = np.asarray(self.low + (best + 0.5) * (self.high - self.low) / len(frequencies))
            mass = float(frequencies[best])
        else:
            window = best_window(frequencies)
            middle = centroid(frequencies, window, self.low, self.high)
            mass = float(window_mass(frequencies, window))
        centre = float(keep_inside(middle, self.plan.half_width, self.low, self.high))
        warnings = []
        if self.plan.failure > MOST_FAILURE:
            warnings.append(
                f"with {self.n_users} users the vote may find the wrong window with probability "
                f"{self.plan.failure:.2g}"
            )
        if mass < LEAST_MASS:
            warnings.append(
                f"the winning window holds a share of {mass:.2f} of the votes, less than "
                f"{LEAST_MASS}: it may be the wrong one"
            )
        return centre, {"window_mass": mass}, tuple(warnings)

    def _conclude(
        self,
        refine: ClippedMean,
        reports: Summary,
        public: dict[str, float],
        warnings: tuple[str, ...],
    ) -> Estimate:
        plan, n = self.plan, reports.n_users
        if n == 0:
            return Estimate.failed("nobody reported", public=public, warnings=warnings)
        public |= {
            "n_bins": float(plan.n_bins),
            "n_report": float(n),
            "interval_low": refine.centre - refine.half_width,
            "interval_high": refine.centre + refine.half_width,
        }
        variance = plan.variance * self.n_users * (1 - plan.vote_share) / n
        return Estimate.ok(
            [refine.estimate(reports, clip=self.mode != "paper")],
            stderr=np.array([math.sqrt(variance)]),
            public=public,
            warnings=warnings,
        )

    def _infeasible(self) -> str:
        half_range = (self.high - self.low) / 2
        scale = self.mean_scale or half_range / math.sqrt(self.samples_per_user)
        least = least_users(scale, half_range, self.epsilon, self.channel_kind)
        return (
            f"{self.n_users} users are too few at epsilon = {self.epsilon:g}: the midpoint of the "
            f"range is the better estimate; at least {least} are needed"
        )

    def error(self, users: Users) -> ErrorBound:
        """Predict the mean squared error by the plan."""
        source = "the plan's risk, for the rate of Kent et al., arXiv 2405.11923, Theorem 6"
        return ErrorBound("mse", self.plan.risk, exact=False, source=source)

    def truth(self, users: Users) -> Array:
        """Average the users' own means: (1,). Nothing is clipped, so a wrong range shows.

        The protocol assumes one mean that all users share; on real data this average takes its
        place. Users without usable samples do not count here; in a run each counts as the
        midpoint of the refined interval.
        """
        means = user_means(one_dimension(users), -math.inf, math.inf)
        usable = means[~np.isnan(means)]
        if not len(usable):
            raise PopulationError("no user has usable samples; there is no mean")
        return np.array([usable.mean()])

    def loss(self, value: Array, truth: Array) -> float:
        """Squared error."""
        return float(np.sum(np.square(value - truth)))

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with two rounds."""
        return cls(epsilon=2.0, n_users=400, samples_per_user=64, low=-1.0, high=1.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with +-1 samples of mean 0.3."""
        rng = np.random.default_rng(5)
        values = np.where(rng.random(400 * 64) < 0.65, 1.0, -1.0)
        names = Keys.range(400)
        return Users.from_samples(user_ids(names), np.arange(401) * 64, values)

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Users, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users from the population, and samples_per_user too where that is asked for."""
        out = dict(parameters)
        out.setdefault("n_users", len(users))
        public = bool(out.pop("samples_public", False))
        asked = out.get("samples_per_user") == "harmonic-mean"
        if not asked and not (public and "samples_per_user" not in out):
            return out, []
        sizes = users.n_items()
        sizes = sizes[sizes > 0]
        if not len(sizes):
            raise PopulationError("no user has samples; there is no harmonic mean of their numbers")
        out["samples_per_user"] = float(len(sizes) / np.sum(1.0 / sizes))
        if public:
            return out, []
        return out, ["samples_per_user is the harmonic mean of the users' numbers of samples"]
