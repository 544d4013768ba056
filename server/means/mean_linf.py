"""Mean of vectors in a box under user-level local differential privacy, a fold per coordinate [1]_.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.2, eq. (31), (32), Theorem 6.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.records.functionals import Coordinates
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_count, check_ends
from fedhist.base.search import fewest_users
from fedhist.model.part import Functional
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.localize.choice import Plan
from server.localize.script import FoldProtocol, few_users
from server.modes import Mode, TwoModes
from server.targets.mean_target import InRange, MeanTarget

if TYPE_CHECKING:
    from server.session.curator import Curator


@dataclass(frozen=True)
class FoldMean(TwoModes, MeanTarget, FoldProtocol):
    """What the means of vectors by folds share; see the two of them for the parameters."""

    epsilon: float
    n_users: int
    dimension: int
    samples_per_user: float
    kind: str = "auto"
    mode: Mode = "default"
    salt: int = 1

    @property
    def overstates(self) -> str:
        return "the plan's variance is that of the worst users"

    @property
    @abstractmethod
    def functional(self) -> Functional:
        """The scalar that each fold reports about."""

    @abstractmethod
    def conclude(self, value: Floats, stderr: Floats) -> tuple[Array, Array]:
        """Turn those of the folds into the mean and its standard errors: both (d,)."""

    @property
    def feasible(self) -> bool:
        """Whether the estimate is expected to beat the midpoint of the range."""
        return self.plan.feasible

    def rounds(self, server: Curator) -> Script:
        functional = self.functional
        if not self.feasible:
            folds = f" in {functional.n_folds} folds"
            what = few_users(self, self._least_users(), "the midpoint of the range", folds)
            return Estimate.refused(what)
        centre = yield from self.ask(functional, self.plan)
        if centre.value is None or centre.stderr is None:
            return centre
        value, stderr = self.conclude(centre.value, centre.stderr)
        return replace(centre, value=value, stderr=stderr)

    @property
    def empty_record(self) -> str:
        return "the middle of its interval" if self.uses_folds else ""

    def _least_users(self) -> int:
        """Search for the least feasible number of users above the planned one; 2^50 if more."""
        return fewest_users(lambda n: replace(self, n_users=n).feasible, self.n_users + 1)

    def _check(self, mean_scale: float | None = None) -> None:
        self.check_mode()
        self.check_fields(mean_scale)
        check_count("dimension", self.dimension)


@register_protocol
@dataclass(frozen=True)
class MeanLinf(InRange, FoldMean):
    """Mean in [low, high]^d that all users share, under local differential privacy.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value; a fold is planned for n_users / dimension users.
    dimension : int
        d, the number of coordinates and of folds.
    samples_per_user : float
        Public planning value T, as for :class:`~server.means.mean.Mean`;
        ``"harmonic-mean"`` in a configuration.
    low, high : float
        Range of every coordinate; a sample outside is clipped before averaging.
    mean_scale : float, optional
        Standard deviation of a coordinate of a user's mean around the common mean, or a bound; by
        default (high - low) / (2 sqrt(T)). Enlarge it if the users' own means differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the second round; "auto" takes the one of least variance.
    mode : {"default", "paper"}
        "paper" follows the published procedure in every fold, with K = 1/4 and c = 1/100.
    salt : int
        Public salt of the split into voters and reporters; that of the folds follows from it.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: fold and cohort are hashes of
    the public id, and each user answers one epsilon-LDP query about one coordinate.

    Error
    -----
    Of order d^2 log(n epsilon^2 T) / (n T epsilon^2) + d e^{-c n epsilon^2 / d} in squared l2, for
    epsilon <= 1 and range [-1, 1] [1, Theorem 6]; d ``plan.risk`` predicts it with constants. A
    vote needs some 400 / min(1, epsilon^2) users per coordinate. A fold that nobody reported in has
    the middle of the range as its value, and infinite standard error. A user without samples counts
    as the middle of the interval that its fold voted for.

    Examples
    --------
    >>> MeanLinf(epsilon=1.0, n_users=16000, dimension=8, samples_per_user=100).plan.n_bins > 8
    True
    """

    name: ClassVar[str] = "mean-linf"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 3.2"
    low: float = -1.0
    high: float = 1.0
    mean_scale: float | None = None
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check(self.mean_scale)
        check_ends(self.low, self.high)
        _ = self.functional
        self.check_trust()

    @property
    def n_folds(self) -> int:
        return self.dimension

    @property
    def scale(self) -> float:
        return self.mean_scale or (self.high - self.low) / 2 / math.sqrt(self.samples_per_user)

    @property
    def plan(self) -> Plan:
        return self.fold_plan(self.n_users / self.dimension, self.half_range)

    @property
    def functional(self) -> Coordinates:
        return Coordinates(self.dimension, *self.value_range, max_items=self.plan.max_items)

    def conclude(self, value: Floats, stderr: Floats) -> tuple[Array, Array]:
        return value, stderr

    @property
    def bounded_by(self) -> tuple[float, float]:
        return self.half_range, (self.half_range / self.scale) ** 2

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=900, dimension=3, samples_per_user=64)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with +-1 samples, each of whom has the mean (.25, -.5, 0) exactly."""
        return users_of_signs(900, 64, np.array([40, 16, 32]))


def users_of_signs(n: int, T: int, ups: Integers) -> Users:
    """Make n users of T samples +-1 in a random order, ``ups`` (d,) of which are 1."""
    up = np.arange(T)[:, None] < ups
    values = np.tile(np.where(up, 1.0, -1.0), (n, 1, 1))
    values = np.random.default_rng(5).permuted(values, axis=1).reshape(-1, len(ups))
    return Users.from_samples(user_ids(Keys.range(n)), np.arange(n + 1) * T, values)
