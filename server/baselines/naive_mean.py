"""Means under local privacy as they are taken today: one noisy report over the whole range.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018.
.. [2] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

import numpy as np

from clients.baselines.queries import SampledScalar, SphereReports
from clients.localize.queries import ClippedMean
from clients.records.functionals import Coordinates, samples_of
from clients.records.user_rows import coordinate_points, user_points
from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_ends, check_integer, check_within
from fedhist.base.errors import warned
from fedhist.channels.scalar import CHANNELS, ScalarChannel, scalar_channel
from fedhist.channels.sphere import SphereChannel
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort, salt_of_folds
from fedhist.users.keys import Keys, user_ids
from server.targets.mean_target import MeanTarget
from server.targets.sample_sizes import PlannedSizes
from server.trust import Batch, NonInteractive

if TYPE_CHECKING:
    from server.session.curator import Curator

Geometry = Literal["linf", "l2"]
Method = Literal["user-mean", "one-item"]


@register_protocol
@dataclass(frozen=True)
class NaiveMean(MeanTarget, NonInteractive, PlannedSizes):
    """Mean of samples of a box or a ball by one noisy report a user, over the whole range.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value, for :attr:`planned_mse`.
    dimension : int
        d: coordinates of a sample.
    method : {"user-mean", "one-item"}
        Report the mean of the user's samples, or one of them, drawn uniformly.
    geometry : {"linf", "l2"}
        "linf": samples of [low, high]^d, one coordinate a user, by a public hash of its id. "l2":
        samples of a ball, whole vectors, by the mechanism of Duchi et al. [1].
    low, high : float
        Range of every coordinate in "linf"; a sample outside is clipped first.
    radius : float
        Of the ball in "l2"; a longer sample is scaled onto it first.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of a coordinate in "linf"; "auto" takes the one of least variance.
    samples_per_user : float, optional
        Public planning value T, for lower bounds.
    salt : int
        Public salt of the coordinates.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round, exact as drawn.

    Error
    -----
    The squared l2 error is at most d^2 h^2 coth^2(epsilon / 2) / N with one-bit reports in "linf"
    (h the half width) and about radius^2 (pi d / 2) coth^2(epsilon / 2) / N in "l2", where N counts
    the users. The number of samples per user does not occur. A user without samples counts as the
    middle: to learn how many they are would take some of the budget.

    Examples
    --------
    >>> round(NaiveMean(epsilon=1.0, n_users=8000, kind="laplace").planned_mse, 6)
    0.001
    """

    name: ClassVar[str] = "naive-mean"
    paper: ClassVar[str] = "Duchi, Jordan & Wainwright, JASA 2018; baselines of arXiv 2405.11923"
    epsilon: float
    n_users: int
    dimension: int = 1
    method: Method = "user-mean"
    geometry: Geometry = "linf"
    low: float = -1.0
    high: float = 1.0
    radius: float = 1.0
    kind: str = "auto"
    samples_per_user: float | None = None
    salt: int = 1
    trust: Shuffling | None = field(default=None, kw_only=True)
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("kind", ("onebit", "piecewise"))

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_integer("n_users", self.n_users, 1 << 32)
        check_choice("kind", self.kind, (*CHANNELS, "auto"))
        check_choice("method", self.method, get_args(Method))
        if self.samples_per_user is not None:
            check_within("samples_per_user", self.samples_per_user, 1, math.inf, "[)")
        check_ends(self.low, self.high)
        Cohort(self.salt)
        _ = self.query
        self.check_trust()

    @property
    def batches(self) -> Sequence[Batch]:
        return (Batch.of(self.query),)

    @property
    def report_risk(self) -> float:
        return self.planned_mse

    @property
    def channel(self) -> ScalarChannel:
        """What happens to a scalar; without noise the channel that is then exact."""
        return scalar_channel("laplace" if not self._noisy else self.kind, float(self.epsilon))

    @property
    def sphere(self) -> SphereChannel:
        """What happens to a vector."""
        return SphereChannel(self.dimension, float(self.radius), float(self.epsilon))

    @property
    def value_range(self) -> tuple[float, float]:
        far = float(self.radius)
        return (-far, far) if self.geometry == "l2" else (float(self.low), float(self.high))

    @property
    def half_width(self) -> float:
        """Half of high - low."""
        return float(self.high - self.low) / 2

    @property
    def query(self) -> ClippedMean | SphereReports:
        """The one question."""
        one_sample = self.method == "one-item"
        if self.geometry == "l2":
            ball = self.dimension, float(self.radius), float(self.epsilon)
            return SphereReports(*ball, one_sample=one_sample)
        return (SampledScalar if one_sample else ClippedMean)(
            functional=Coordinates(self.dimension, float(self.low), float(self.high)),
            centres=np.full(self.dimension, self.low + self.half_width),
            half_width=self.half_width,
            epsilon=float(self.epsilon),
            kind=self.channel.kind,
            fold_salt=salt_of_folds(self.salt),
        )

    @property
    def overstates(self) -> str:
        return "" if self.geometry == "l2" else "the variance is that of the worst user"

    @property
    def planned_mse(self) -> float:
        """Mean squared error for n_users users at the midpoint."""
        if self.geometry == "l2":
            return self.sphere.length**2 / self.n_users
        one = float(self.channel.variance(0.0))
        return (self.dimension * self.half_width) ** 2 * one / self.n_users

    def rounds(self, server: Curator) -> Script:
        query = self.query
        summary = yield query
        if summary.n_users == 0:
            return Estimate.failed("nobody answered")
        public, warnings = {"n_report": float(summary.n_users)}, list[str]()
        if isinstance(query, ClippedMean):
            n = summary.sums["users"]
            u = summary.sums["reports"] / np.maximum(n, 1) / self.channel.gain
            one = float(self.channel.variance(np.array([0.0, 1.0])).max())  # of the worst input
            if self.method == "one-item" and self.channel.kind != "onebit" and self._noisy:
                one += 1.0  # the draw of the item; a bit is as spread as it can be
            spread = self.half_width * np.sqrt(one / np.maximum(n, 1))
            value, stderr = query.centres + self.half_width * u, np.where(n > 0, spread, math.inf)
            empty = int(np.isinf(stderr).sum())
            if empty:
                means = "the middle of the range stands in, which says nothing of the users"
                what = f"{empty} coordinates have no reports"
                warnings.append(warned(what, means, "ask more users"))
        else:
            value = summary.sums["reports"] / summary.n_users
            most = self.sphere.length**2 / self.dimension if self._noisy else 0.0
            stderr = np.full(self.dimension, math.sqrt(most / summary.n_users))
        return Estimate.ok(value, stderr=stderr, public=public, warnings=tuple(warnings))

    @property
    def _noisy(self) -> bool:
        return not math.isinf(self.epsilon)

    @property
    def empty_record(self) -> str:
        return "the centre of the ball" if self.geometry == "l2" else "the middle of the range"

    @property
    def bounded_by(self) -> tuple[float, float]:
        """The radius, or half of the range, and the samples."""
        width = float(self.radius) if self.geometry == "l2" else self.half_width
        return width, self.samples_per_user or 0.0

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d), NaN where they cannot be used. NOT PRIVATE.

        In "l2" a sample that is not finite spoils them all. In "linf" a NaN spoils its coordinate,
        and an infinity stands for the end of the range. What cannot be used counts in a run as
        the midpoint.
        """
        samples = samples_of(users, self.dimension)
        if self.geometry == "l2":
            return user_points(samples)
        return coordinate_points(samples, float(self.low), float(self.high))

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=300, dimension=2, samples_per_user=4)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of four equal samples: every method finds the same mean without noise."""
        sizes = np.full(300, 4)
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        values = np.tile([0.25, -0.5], (int(indptr[-1]), 1))
        return Users.from_samples(user_ids(Keys.range(300)), indptr, values)
