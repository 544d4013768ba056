"""Mean with few non-zero coordinates under user-level local differential privacy [1]_.

Whole vectors by default, own idea: users report where their mean leans until s coordinates stand
out of the noise; the others report these, and a few more where it is doubtful which, stage by
stage. Fresh users' values have no selection bias. And the paper's two procedures, by hashed votes
for coordinates, and by thresholding estimates of all.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, eq. (39)-(48), Theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from clients.centred.queries import RankReports
from clients.means.queries import HashedVotes, vote_channel
from clients.records.functionals import BoxMean, Coordinates, Leaning, samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_integer, check_scale
from fedhist.base.errors import warned
from fedhist.base.hashing import digest64
from fedhist.channels.rank_unit import RankUnit
from fedhist.channels.scalar import ScalarChannel
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from server.centred.script import centred_mean
from server.centred.stages import MOST_STAGES, CentredPlan, plan_centred
from server.localize.choice import Plan
from server.means.mean_linf import FoldMean, users_of_signs

if TYPE_CHECKING:
    from server.session.curator import Curator

VOTERS = 0.5
"""Share of the users who select [1, eq. (38)]."""

LOOKS = (0.1, 0.25, VOTERS)
"""Shares of the users after which it is asked whether enough coordinates stand out: at least half
of them refine."""

NOT_LOST = 2.0
"""Deviations that chance reaches once in 40 runs: so far above the level of the largest noise a
coordinate is sure, so far from 0 it is worth a look."""


Z_MIN = 3.0
"""A score below so many standard deviations is no evidence."""


@register_protocol
@dataclass(frozen=True)
class SparseMean(FoldMean):
    """Mean in [-radius, radius]^d with at most s coordinates that are not 0, locally private.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value.
    dimension : int
        d.
    samples_per_user : float
        Public planning value T; ``"harmonic-mean"`` in a configuration.
    sparsity : int
        s, the most coordinates of the estimate that are not 0; from d on nothing is selected.
    radius : float
        Every coordinate of a sample is clipped to [-radius, radius] before averaging.
    method : {"vectors", "select", "threshold"}
        "vectors": reports of whole vectors find the coordinates and refine them; beyond 4096
        coordinates, and without noise, it is "select". The other two are the paper's.
    max_votes : int, optional
        Most coordinates that a selecting user votes for, its farthest means; by default s. More
        votes find weaker signals, which no user sees by itself, and need more users.
    mean_scale : float, optional
        Standard deviation of a coordinate of a user's mean around the common mean, or a bound; by
        default radius / sqrt(T). Enlarge it if the users' own means differ.
    vote : {"auto", "sign", "laplace"}
        Report of a selecting user; "auto" is "sign", in mode "paper" "laplace".
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the refined reports.
    mode : {"default", "paper"}
        "paper": the first T* samples, every vote counts, clipped sums with Laplace noise, scores
        from 1/2 on and the first s of those, and the paper's steps for the means.
    salt : int
        Public salt of the split of the users; those of folds and signs follow from it.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: each user selects, votes or
    reports, and so answers one epsilon-LDP query. Queries, and how many users are asked, depend on
    other users' messages only.

    Error
    -----
    "vectors": the error of `mean-l2` in the s coordinates that are found (up to 2 s in doubt), from
    half to nine tenths of the users, and the squares of coordinates that are missed. It was smaller
    than with the paper's procedures in twelve settings of twelve (d 20 to 1000, s 1 to 20, n 2,000
    to 50,000, T 1 to 200, epsilon 0.5 to 4).

    "select": of order s log(d) / T + s^2 log(.) / (n T epsilon^2) + e^{-c n epsilon^2 / s}; it
    needs about s log(d) / epsilon^2 users. "threshold": s d log(.) / (n T epsilon^2) + d e^{-c n
    epsilon^2 / d} [1, Theorem 8]. Votes are signed, unlike the paper's: those of noise cancel.

    If more than s coordinates are not 0 some are lost. Where fewer than s are found, ``unseen``
    bounds how far lost ones lie from the estimate, in l2; ``stderr`` does not include them.

    Examples
    --------
    >>> many = SparseMean(epsilon=1, n_users=8000, dimension=1000, samples_per_user=200, sparsity=4)
    >>> many.procedure, many.max_rounds
    ('vectors', 10)
    """

    name: ClassVar[str] = "sparse-mean"
    revision: ClassVar[int] = 7
    unshuffled: ClassVar[str] = "votes are read by signs that belong to a user's id"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 4.1"
    auto_vote: ClassVar[str] = "sign"
    sparsity: int = field(kw_only=True)
    radius: float = 1.0
    method: Literal["vectors", "select", "threshold"] = "vectors"
    max_votes: int | None = None
    mean_scale: float | None = None
    vote: Literal["auto", "sign", "laplace"] = "auto"

    def __post_init__(self) -> None:
        self._check(self.mean_scale)
        check_scale("radius", self.radius)
        check_integer("sparsity", self.sparsity)
        if self.max_votes is not None:
            check_integer("max_votes", self.max_votes, self.dimension)
        if self.procedure == "vectors":
            _ = self.leaning
        elif self.procedure == "threshold":
            _ = self.functional
        else:
            _ = self.vote_query, self.plan_of(1), self.plan_of(min(self.sparsity, self.dimension))

    # -- what is public

    @property
    def value_range(self) -> tuple[float, float]:
        return -float(self.radius), float(self.radius)

    @property
    def n_nonzero(self) -> int:
        return self.sparsity

    @property
    def scale(self) -> float:
        return self.mean_scale or self.radius / math.sqrt(self.samples_per_user)

    @property
    def selects(self) -> bool:
        """Whether there is anything to select."""
        return self.sparsity < self.dimension

    @property
    def procedure(self) -> str:
        """The procedure in use: "vectors", "select" or "threshold"."""
        # a report costs its client some hundreds of operations for every coordinate
        able = self.selects and self.dimension <= 4096 and not math.isinf(self.epsilon)
        return "select" if self.method == "vectors" and not able else self.method

    @property
    def leaning(self) -> Leaning:
        """Of "vectors": what the first users are asked; up to what noise reaches."""
        most = math.sqrt(2 * math.log(self.dimension))
        return Leaning(self.dimension, float(self.radius), self.scale, most)

    @property
    def level(self) -> float:
        """Deviations that a score must lead by: Z_MIN, or what the largest of the noise reaches."""
        ratio = 2 * self.dimension / min(self.sparsity, self.dimension)
        return max(Z_MIN, math.sqrt(2 * math.log(ratio)))

    @property
    def unit(self) -> float:
        """Variance of one user's report of a vector in a coordinate."""
        return RankUnit(float(self.epsilon), self.dimension).v / self.dimension

    def vector_plan(self, columns: int, share: float) -> CentredPlan:
        """Plan the means of so many columns, as a vector, by a share of the users."""
        root, epsilon = math.sqrt(columns), float(self.epsilon)
        sigma, radius = self.scale * root, float(self.radius) * root
        return plan_centred(self.n_users * share, sigma, radius, epsilon, columns)

    @property
    def votes(self) -> int:
        """Most votes of a user who selects."""
        return self.max_votes or min(self.sparsity, self.dimension)

    @property
    def law(self) -> VoteLaw:
        """Gain and noise of a selecting user's report."""
        vote = self.auto_vote if self.vote == "auto" else self.vote
        reach = 2 * math.sqrt(self.votes) if vote == "laplace" else 0.0
        return VoteLaw(vote_channel(vote, self.epsilon), self.votes, reach)

    @property
    def vote_query(self) -> HashedVotes:
        """What the selecting users are asked."""
        d, votes, reach = self.dimension, self.votes, self.law.reach
        return HashedVotes(
            dimension=d,
            radius=float(self.radius),
            threshold=vote_threshold(self.scale, d, votes),
            max_votes=votes,
            epsilon=float(self.epsilon),
            vote="laplace" if reach else "sign",
            reach=reach or 1.0,
            hash_salt=digest64("fedhist.hash", self.salt) >> 1,
            cohort=Cohort(self.salt, 0.0, VOTERS),
            signed=True,
        )

    @property
    def plan(self) -> Plan:
        return self.fold_plan(self.n_users / self.dimension, self.radius)

    def plan_of(self, n_selected: int) -> Plan:
        """Plan the means of so many selected coordinates."""
        share = 1 - VOTERS if self.selects else 1.0
        return self.fold_plan(self.n_users * share / n_selected, self.radius)

    @property
    def functional(self) -> Coordinates:
        return self.coordinates(None, self.plan.max_items)

    def coordinates(self, columns: Integers | None, max_items: int) -> Coordinates:
        """Give every fold one of the coordinates."""
        radius = float(self.radius)
        return Coordinates(self.dimension, -radius, radius, columns, max_items)

    @property
    def max_rounds(self) -> int:
        if self.procedure == "vectors":
            return len(LOOKS) + 2 * MOST_STAGES - 1
        if self.procedure == "threshold":
            return super().max_rounds
        return 3 if self.selects else 2

    @property
    def bounded_by(self) -> tuple[float, float]:
        radius = float(self.radius)
        return radius, (radius / self.scale) ** 2

    # -- whether it is worth the users

    def lead(self, b: Floats) -> Floats:
        """Deviations by which signals of amplitudes b, (k,), are planned to pass noise's level."""
        d, s = self.dimension, min(self.sparsity, self.dimension)
        if self.procedure == "vectors":
            most = self.leaning.most
            x, noise = np.minimum(b / self.scale, most), min(self.radius / self.scale, most, 1.0)
            signal, other = np.sinh(x) ** 2, math.sinh(noise) ** 2
            told = self.n_users * LOOKS[-1] / self.unit
            lead = np.sqrt(told * signal / (s * signal + (d - s) * other))
            return np.asarray(lead - self.level)
        if self.procedure == "threshold":
            return b / math.sqrt(self.plan.variance) - math.sqrt(2 * math.log(2 * d))
        cut = max(vote_threshold(1.0, d, self.votes), float(ndtri(1 - self.votes / (2 * d))))
        voted = ndtr(b / self.scale - cut) - ndtr(-b / self.scale - cut)
        return np.asarray(voted * self.law.lead(self.n_users * VOTERS) - self.level)

    @property
    def missable(self) -> float:
        """Amplitude up to which a signal may be lost in one run of forty; the radius at most."""
        b = np.geomspace(min(self.scale / 8, self.radius), self.radius, 200)
        return float(b[self.lead(b) < NOT_LOST].max(initial=0.0))

    def useless(self) -> str:
        """Say why 0 is expected to be the better estimate; empty where it is not."""
        d, s, square = self.dimension, self.sparsity, float(self.radius) ** 2
        if self.procedure == "select" and not self.selects:
            return "" if self.plan_of(d).feasible else self.too_few(d, self.radius)
        if self.procedure == "vectors":
            risk = self.vector_plan(s, 1 - LOOKS[-1]).risk / s
        else:
            risk = (self.plan if self.procedure == "threshold" else self.plan_of(s)).risk
        if self.lead(np.array([self.radius]))[0] >= 0 and 2 * risk < square:
            return ""
        what = "find" if self.procedure == "vectors" else self.procedure
        return (
            f"{self.n_users} users with {self.samples_per_user:g} samples each are too few to "
            f"{what} {self.sparsity} of {self.dimension} coordinates at epsilon = "
            f"{self.epsilon:g}: 0 is expected to be the better estimate"
        )

    # -- the script

    def rounds(self, server: Curator) -> Script:
        useless = self.useless()
        if useless:
            return Estimate.refused(useless)
        if self.procedure == "vectors":
            estimate = yield from self._by_vectors()
        elif self.procedure == "threshold":
            estimate = yield from super().rounds(server)
        elif not self.selects:
            estimate = yield from self._estimate(np.arange(self.dimension), 0.0, {})
        else:
            estimate = yield from self._select_and_estimate()
        if estimate.value is None or not self.selects:
            return estimate
        lost = self.sparsity - np.count_nonzero(estimate.value)
        unseen = math.hypot(self.missable * math.sqrt(lost), estimate.public.get("unseen", 0.0))
        return replace(estimate, public={**estimate.public, "unseen": unseen})

    def _by_vectors(self) -> Generator[Query, Summary, Estimate]:
        """Find where users lean, then refine."""
        z, share = yield from self._find()
        columns = self.candidates(z)
        public = {"share_select": share, "selected": float(len(columns))}
        if not len(columns):
            return _none_found(self.dimension, public)
        centre = yield from centred_mean(
            BoxMean(self.dimension, float(self.radius), columns),
            self.vector_plan(len(columns), 1 - share),
            epsilon=float(self.epsilon),
            salt=self.salt,
            lo=share,
            project=self._into_box,
        )
        if isinstance(centre, Estimate):
            return centre
        public |= centre.public
        value, stderr = np.zeros((2, self.dimension))
        sure = np.abs(z[columns]) >= self.level
        largest = keep_largest(centre.value, centre.stderr, self.sparsity, sure)
        value[columns] = self._into_box(largest)
        if not value.any():
            return _none_found(self.dimension, public, centre.warnings)
        stderr[value != 0] = math.sqrt(centre.error / len(columns))
        return Estimate.ok(value, stderr=stderr, public=public, warnings=centre.warnings)

    def _find(self) -> Generator[Query, Summary, tuple[Floats, float]]:
        """Ask where the users lean: (d,) scores in standard deviations, and the share asked."""
        before, n, zero = 0.0, 0, np.zeros(self.dimension)
        total, z, points = zero, zero, digest64("fedhist.leaning", self.salt) >> 1
        for share in LOOKS:
            cohort = Cohort(self.salt, before, share)
            query = RankReports(self.leaning, zero, 1.0, float(self.epsilon), cohort, points)
            reports = yield query
            total, before = total + reports.n_users * query.estimate(reports), share
            n += reports.n_users
            z = total / math.sqrt(self.unit * max(n, 1))
            if self._sure(z) >= self.sparsity:
                break
        return z, before

    def _sure(self, z: Floats) -> int:
        """Count the coordinates that stand out."""
        return int(np.count_nonzero(np.abs(z) >= self.level + NOT_LOST))

    def candidates(self, z: Floats) -> Integers:
        """Pick the coordinates to refine, increasing: s, and as many more as nothing sure takes."""
        s = self.sparsity
        return pick_support(np.abs(z), s + max(0, s - self._sure(z)), NOT_LOST)

    def _into_box(self, value: Floats) -> Floats:
        return np.clip(value, -self.radius, self.radius)

    def _select_and_estimate(self) -> Generator[Query, Summary, Estimate]:
        """Ask for votes, then about the coordinates that they name."""
        query = self.vote_query
        votes = yield query
        if votes.n_users == 0:
            return Estimate.failed("nobody selected")
        support = self.select(query, votes)
        public = {"n_select": float(votes.n_users), "selected": float(len(support))}
        if not len(support):
            return _none_found(self.dimension, public)
        return (yield from self._estimate(support, VOTERS, public))

    def select(self, query: HashedVotes, votes: Summary) -> Integers:
        """Pick the coordinates whose score is no noise: (k,) int64, increasing, k <= s."""
        law = self.law
        scores = np.abs(query.scores(votes)) * law.unit
        least = Z_MIN * law.deviation / math.sqrt(votes.n_users)
        return pick_support(scores, self.sparsity, least)

    def conclude(self, value: Floats, stderr: Floats) -> tuple[Array, Array]:
        """Threshold the folds' values by the planned standard errors: an empirical one can be 0."""
        value = keep_largest(value, stderr, self.sparsity)
        return value, np.where(value != 0, stderr, 0.0)

    def _estimate(
        self, support: Integers, lo: float, public: dict[str, float]
    ) -> Generator[Query, Summary, Estimate]:
        """Estimate the selected coordinates from the other users; the rest stays 0."""
        plan = self.plan_of(len(support))
        folds = yield from self.ask(self.coordinates(support, plan.max_items), plan, lo)
        if folds.value is None:
            return folds
        value, stderr = np.zeros(self.dimension), np.zeros(self.dimension)
        value[support], stderr[support] = folds.value, folds.stderr
        return replace(folds, value=value, stderr=stderr, public={**public, **folds.public})

    # -- evaluation

    def own_means(self, users: Users) -> Array:
        """Average each user's samples by coordinate: (n, d); see :class:`Mean`. NOT PRIVATE.

        A user with a NaN selects nothing, whichever coordinate has it.
        """
        radius = float(self.radius)
        return coordinate_points(samples_of(users, self.dimension), -radius, radius)

    @classmethod
    def example(cls) -> Self:
        return cls(
            epsilon=2.0,
            n_users=900,
            dimension=12,
            samples_per_user=32,
            sparsity=2,
            method="select",
        )

    @classmethod
    def example_users(cls) -> Users:
        """Make users with +-1 samples, each of whom has the same mean, 0 but in two places."""
        ups = np.full(12, 16)
        ups[[3, 11]] = 28, 6
        return users_of_signs(900, 32, ups)


def _none_found(
    dimension: int, public: dict[str, float], warnings: tuple[str, ...] = ()
) -> Estimate:
    """Estimate 0 everywhere, and say why."""
    told = warned(
        "no coordinate was selected",
        "the estimate is 0 everywhere, since no signal was seen above the noise",
        "more users or a larger epsilon show smaller signals",
    )
    value, stderr = np.zeros((2, dimension))
    return Estimate.ok(value, stderr=stderr, public=public, warnings=(*warnings, told))


# -- scores of hashed votes: 0 on average where nobody votes, a gain for every voter elsewhere -----


def vote_threshold(mean_scale: float, dimension: int, votes: int) -> float:
    """Distance from 0 at which a user votes: sqrt(2 log(4 d / w)) / 2 deviations of its mean."""
    return 0.5 * mean_scale * math.sqrt(2 * math.log(4 * dimension / min(votes, dimension)))


@lru_cache(maxsize=1 << 12)
def vote_gain(n_votes: int, reach: float = 0.0) -> float:
    """Return E v_j f(S) for a coordinate among n_votes voted ones, S the sum of their signs.

    f clips to [-reach, reach]; for 0 it is the sign, whose gain is the probability C(2h, h) / 4^h
    that 2h fair signs cancel, h = floor(n_votes / 2).

    >>> [round(vote_gain(s), 6) for s in range(6)], round(vote_gain(3, 2.0), 6)
    ([0.0, 1.0, 0.5, 0.5, 0.375, 0.375], 0.75)
    """
    from scipy.stats import binom  # takes a second to be imported

    if not n_votes:
        return 0.0
    if not reach:
        return float(binom.pmf(n_votes // 2, n_votes // 2 * 2, 0.5))
    ups = np.arange(n_votes)
    total = np.clip(1 + 2 * ups - (n_votes - 1), -reach, reach)
    return float(binom.pmf(ups, n_votes - 1, 0.5) @ total)


@dataclass(frozen=True)
class VoteLaw:
    """Gain and noise of one user's hashed vote; ``reach`` is M of the clipped sum, 0 for signs."""

    channel: ScalarChannel
    sparsity: int
    reach: float = 0.0

    @property
    def unit(self) -> float:
        """What one unit of a report is worth: reports times this have the gains below."""
        return self.reach / self.channel.gain if self.reach else 1.0

    @property
    def deviation(self) -> float:
        """Standard deviation of one user's score where it did not vote."""
        square = self.reach**2
        noise = square * float(self.channel.variance(0.0)) if self.reach else 1.0
        return math.sqrt(min(float(self.sparsity), square) + noise)

    def lead(self, n_users: float) -> float:
        """Score of a coordinate that everybody votes for, in standard deviations."""
        gain = vote_gain(self.sparsity, self.reach) * (1.0 if self.reach else self.channel.gain)
        return gain * math.sqrt(n_users) / self.deviation


def pick_support(scores: Floats, sparsity: int, least: float, *, first: bool = False) -> Integers:
    """Pick the s largest scores from a threshold on, or the ``first`` s [1, eq. (41)]: increasing.

    >>> pick_support(np.array([2.0, 5.0, 1.0, 9.0]), 2, 1.5)
    array([1, 3])
    """
    over = np.flatnonzero(scores >= least)
    if not first:
        over = np.sort(over[np.argsort(-scores[over], kind="stable")[:sparsity]])
    return over[:sparsity]


def keep_largest(
    value: Floats, stderr: ArrayLike, sparsity: int, sure: NDArray[np.bool_] | bool = False
) -> Floats:
    """Zero the entries that noise explains, and all but the s largest of the others: (d,).

    An entry below stderr sqrt(2 log(2 d)) becomes 0, unless other evidence makes it ``sure``.
    """
    size = np.abs(value)
    good = (size >= np.asarray(stderr) * math.sqrt(2 * math.log(2 * len(value)))) | sure
    out = np.zeros_like(value)
    support = pick_support(np.where(good, size, -1.0), sparsity, 0.0)
    out[support] = value[support]
    return out
