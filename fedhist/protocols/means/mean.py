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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.records.functionals import Coordinates, samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Array
from fedhist.model.losses import SQUARED_L2
from fedhist.model.modes import Mode, TwoModes
from fedhist.model.protocol import ErrorBound, Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.results import Goal, ResultsRow, within
from fedhist.protocols.localize.protocol import FoldProtocol
from fedhist.protocols.localize.queries import check_range
from fedhist.protocols.means.results import quadrature
from fedhist.protocols.shared.lower_bounds import ParameterSet
from fedhist.protocols.shared.mean_target import PlannedMean, clipped
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.means.localize import Plan

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


T_100 = {"samples_per_user": 100}


@register_protocol
@dataclass(frozen=True)
class Mean(TwoModes, PlannedMean, FoldProtocol):
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
    goals: ClassVar[tuple[Goal, ...]] = (
        Goal(1e-4, words="T = 100", protocol=T_100, population=T_100),
        Goal(
            2e-3,
            "epsilon",
            words="n = 2,000, T = 100",
            protocol=T_100,
            population={**T_100, "n_users": 2000},
        ),
        Goal(
            1e-3,
            "samples_per_user",
            words="n = 2,000",
            protocol=T_100,
            population={**T_100, "n_users": 2000},
        ),
    )
    epsilon: float
    n_users: int
    samples_per_user: float
    low: float
    high: float
    mean_scale: float | None = None
    kind: str = "auto"
    mode: Mode = "default"
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_mode()
        self.check_fields(self.mean_scale)
        check_range(self.low, self.high)
        _ = self.plan

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths; from public numbers only."""
        return self.fold_plan(self.n_users, (self.high - self.low) / 2)

    @property
    def scale(self) -> float:
        """Standard deviation of a user's mean that is planned with."""
        return self.mean_scale or (self.high - self.low) / 2 / math.sqrt(self.samples_per_user)

    def rounds(self, server: Curator) -> Script:
        """Vote, find the window, refine."""
        plan = self.plan
        if not plan.feasible:
            return Estimate.refused(self.too_few(1, (self.high - self.low) / 2))
        whole = Coordinates(1, float(self.low), float(self.high), max_items=plan.max_items)
        found = yield from self.ask(whole, plan)
        if isinstance(found, Estimate):
            return found
        return Estimate.ok(
            found.value, stderr=found.stderr, public=found.public, warnings=found.warnings
        )

    def planned_error(self) -> ErrorBound:
        """Predict the mean squared error by the plan."""
        source = "the plan's risk, for the rate of Kent et al., arXiv 2405.11923, Theorem 6"
        return ErrorBound(SQUARED_L2, self.plan.risk, exact=False, source=source)

    @property
    def parameter_set(self) -> ParameterSet:
        """The range."""
        half = float(self.high - self.low) / 2
        return ParameterSet("box", 1, half, (half / self.scale) ** 2)

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, 1); NaN for none, or a NaN among them. NOT PRIVATE.

        An infinite sample stands for the end of the range. A user without usable samples counts
        in a run as the midpoint of the refined interval.
        """
        return coordinate_points(samples_of(users, 1), float(self.low), float(self.high))

    def clipped_means(self, users: Users) -> Array:
        """Average each user's clipped samples: (n, 1). NOT PRIVATE."""
        low, high = float(self.low), float(self.high)
        return coordinate_points(clipped(samples_of(users, 1), low, high), low, high)

    @classmethod
    def results(cls) -> Sequence[ResultsRow]:
        """Hold the prediction against runs."""

        def row(
            label: str, n: int, T: int, how: tuple[float, str], repeats: int, width: float
        ) -> ResultsRow:
            epsilon, kind = how
            given = {"epsilon": epsilon, "samples_per_user": T, "low": -1.0, "high": 1.0}
            spread = 1 / math.sqrt(T) if T > 1 else 0.3
            people = {"kind": "gaussian", "n_users": n, "samples_per_user": 1, "mean": 0.237}
            return ResultsRow(
                label,
                {**given, "kind": kind},
                {**people, "spread": spread},
                repeats,
                within(width),
                anew=True,
                expected=quadrature,
                clients="per-user",
            )

        one, edge = (1.0, "piecewise"), "EDGE n=700 T=1024 eps=1 piecewise"
        return (
            row("n=2000 T=1024 eps=1 laplace", 2000, 1024, (1.0, "laplace"), 3000, 0.1),
            row("n=20000 T=100 eps=0.5 onebit", 20_000, 100, (0.5, "onebit"), 1000, 0.1),
            row("n=2000 T=1 eps=1 piecewise, one round", 2000, 1, one, 2000, 0.1),
            row(edge, 700, 1024, one, 6000, 0.15),
        )

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
