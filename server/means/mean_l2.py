"""Mean of vectors in a Euclidean ball under user-level local differential privacy.

Users report whole vectors in stages (:mod:`server.centred`). By folds [1]_ a public random rotation
spreads every vector over all coordinates, and a user reports one of its own mean.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.3, eq. (33)-(37), Lemma 7, Theorem 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.records.functionals import BallMean, Rotated, samples_of
from clients.records.user_rows import user_points
from fedhist.base.arrays import Array, Floats, next_power_of_two
from fedhist.base.checks import check_size
from fedhist.base.hashing import digest64
from fedhist.channels.hadamard import fwht
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.centred.script import centred_mean
from server.centred.stages import CentredPlan, plan_centred
from server.localize.choice import Plan
from server.localize.script import few_users
from server.means.mean_linf import FoldMean

if TYPE_CHECKING:
    from server.session.curator import Curator


@register_protocol
@dataclass(frozen=True)
class MeanL2(FoldMean):
    """Mean in the ball of a radius that all users share, under local differential privacy.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value; a fold is planned for n_users / d2 users, where d2 is the next power
        of two of the dimension.
    dimension : int
        d; vectors are padded by zeros to d2 coordinates.
    samples_per_user : float
        Public planning value T, as for :class:`~server.means.mean.Mean`;
        ``"harmonic-mean"`` in a configuration.
    radius : float
        A sample of a larger l2 norm is scaled down to it before averaging. Where some are,
        that draws the estimate inwards, and neither ``stderr`` nor ``clipping`` counts it.
    method : {"centred", "folds"}
        "centred": reports of whole vectors, in one to four stages: the users' own spread is
        learned, so that T moves shares only. "folds": a rotated coordinate a user [1]_, which needs
        some 400 / min(1, epsilon^2) users for each of them, trusts T, and clips users who differ.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Of "folds": channel of the second round; "auto" takes the one of least variance.
    mode : {"default", "paper"}
        "paper" has folds, whatever the method, and follows the published procedure: range
        [-radius, radius] and delta = radius sqrt(K log(n epsilon^2 T*) / (T* d2)), with K = 1/4,
        and c = 1/100 in T*.
    salt : int
        Public salt of the split into stages, or voters and reporters; folds, signs and points
        follow from it.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive. Groups, points and signs are
    public. Each user answers one epsilon-LDP query, whose centre, radius or interval comes from
    other users' messages. The rest is post-processing.

    Error
    -----
    "centred": with one stage some 1.6 d radius^2 coth^2(epsilon / 2) / n for small epsilon, whoever
    the users are. Several stages have less where users are alike; elsewhere votes cost up to 8% of
    the users a stage. Users without samples report the middle. One stage shrinks the estimate by
    their share, and no released number says so.

    "folds": squared l2 error of order d log(n epsilon^2 T) / (n T epsilon^2) + e^{-c n epsilon^2 /
    d} for epsilon <= 1 and radius 1 [1, Theorem 6]; d2 ``plan.risk`` predicts it with constants.

    The squared l2 error of an estimate is d stderr^2; ``clipping`` is the part that clipping to the
    last radius adds. A small cluster far away goes unseen where few users vote: it may move the
    estimate by up to ``unseen``, two standard errors of the votes.

    Examples
    --------
    >>> MeanL2(epsilon=1.0, n_users=16000, dimension=8, samples_per_user=100).centred_plan.n_stages
    3
    """

    name: ClassVar[str] = "mean-l2"
    paper: ClassVar[str] = (
        "own stages of PrivUnit (Bhowmick et al., arXiv 1812.00984) by ranks; "
        "folds: Kent, Berrett & Yu, arXiv 2405.11923, Section 3.3"
    )
    revision: ClassVar[int] = 5
    radius: float = 1.0
    method: Literal["centred", "folds"] = "centred"
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._check()
        check_size("radius", self.radius)
        _ = self.functional if self.uses_folds else (self.part, self.centred_plan)
        self.check_trust()

    @property
    def value_range(self) -> tuple[float, float]:
        return -float(self.radius), float(self.radius)

    @property
    def uses_folds(self) -> bool:
        return self.method == "folds"

    @property
    def centred_plan(self) -> CentredPlan:
        """Stages of reports of whole vectors; from public numbers only."""
        sigma = self.radius / math.sqrt(self.samples_per_user)
        return plan_centred(
            self.n_users, sigma, float(self.radius), float(self.epsilon), self.dimension
        )

    @property
    def part(self) -> BallMean:
        """What a user's vector is."""
        return BallMean(self.dimension, float(self.radius))

    @property
    def n_folds(self) -> int:
        """The rotated coordinates, d2."""
        return next_power_of_two(self.dimension)

    @property
    def scale(self) -> float:
        """Standard deviation of a rotated coordinate of a user's mean that is planned with.

        A rotated coordinate of one sample has the variance tr(Sigma) / d2 <= radius^2 / d2 on
        average over the rows. 1.25 times that leaves room for covariances of rank one: wrong
        windows then cost up to 2.5 times the plan's risk. .75 to 1.25 err alike, and 2 errs twice
        as much.
        """
        share = min(1.0, 1.25 / math.sqrt(self.n_folds))
        return self.radius * share / math.sqrt(self.samples_per_user)

    @property
    def half_range(self) -> float:
        """Half range of the rotated coordinates.

        One of the d2 sums of independent signs lies beyond it with probability .05 at most.
        """
        d2 = self.n_folds
        return self.radius * min(1.0, math.sqrt(2 * math.log(2 * d2 / 0.05) / d2))

    @property
    def plan(self) -> Plan:
        """Of "folds": bins, shares and widths of one rotated coordinate; from public numbers."""
        return self.fold_plan(self.n_users / self.n_folds, self.half_range)

    @property
    def feasible(self) -> bool:
        """Whether the estimate is expected to beat the centre of the ball, radius^2 at most."""
        if not self.uses_folds:
            return self.centred_plan.feasible
        return self.plan.feasible and self.n_folds * self.plan.risk <= self.radius**2

    @property
    def max_rounds(self) -> int:
        return super().max_rounds if self.uses_folds else self.centred_plan.n_rounds

    def rounds(self, server: Curator) -> Script:
        if self.uses_folds:
            return (yield from super().rounds(server))
        if not self.feasible:
            what = few_users(self, self._least_users(), "the centre of the ball")
            return Estimate.refused(what)
        centre = yield from centred_mean(
            self.part,
            self.centred_plan,
            epsilon=self.epsilon,
            salt=self.salt,
            project=self.project,
        )
        if isinstance(centre, Estimate):
            return centre
        return centre.estimate(self.project(centre.value))

    @property
    def empty_record(self) -> str:
        if not self.uses_folds and self.centred_plan.n_stages == 1:
            return "the centre of the ball"
        return super().empty_record

    def project(self, value: Floats) -> Floats:
        """Shorten a vector to the radius: the mean is no longer."""
        norm = float(np.linalg.norm(value))
        return value * (self.radius / norm) if norm > self.radius else value

    @property
    def functional(self) -> Rotated:
        signs = digest64("fedhist.rotation", self.salt) >> 1
        return Rotated(
            self.dimension,
            float(self.radius),
            signs,
            clip=float(self.half_range),
            max_items=self.plan.max_items,
        )

    def conclude(self, value: Floats, stderr: Floats) -> tuple[Array, Array]:
        """Rotate back, drop the padding, project; all coordinates have the average variance."""
        rotated = self.functional.signs * fwht(value) / math.sqrt(self.n_folds)
        each = float(np.sqrt(np.mean(np.square(stderr))))
        return self.project(rotated[: self.dimension]), np.full(self.dimension, each)

    @property
    def bounded_by(self) -> tuple[float, float]:
        return float(self.radius), self.samples_per_user

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d); NaN for none, or one not finite. NOT PRIVATE."""
        return user_points(samples_of(users, self.dimension))

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=1200, dimension=3, samples_per_user=64)

    @classmethod
    def example_users(cls) -> Users:
        """Make users with samples +-e_k, each of whom has the mean (.25, -.125, 0) exactly."""
        rng = np.random.default_rng(5)
        n, T = 1200, 64
        steps = np.repeat([0, 0, 1, 1, 2, 2], [24, 8, 8, 16, 4, 4])
        sign = np.repeat([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], [24, 8, 8, 16, 4, 4])
        samples = sign[:, None] * np.eye(3)[steps]
        values = samples[rng.permuted(np.tile(np.arange(T), (n, 1)), axis=1)]
        ids = user_ids(Keys.range(n))
        return Users.from_samples(ids, np.arange(n + 1) * T, values.reshape(-1, 3))
