"""CoverSelect: users who know a parameter vote, once, for the cell of a cover that holds it [1]_.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 2, eq. (8), (10), (11), (53), (54), Theorem 1,
   Propositions 3-5, Lemma 16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import betainc

from clients.localize.queries import BinVotes
from clients.records.functionals import Cell, samples_of
from clients.records.user_rows import user_points
from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_count
from fedhist.base.errors import warned
from fedhist.base.search import MOST_USERS, first_true
from fedhist.channels.bits import UnaryChannel
from fedhist.channels.covers import BallLattice, BoxGrid, Cover, SobolevLattice, SparseLattice
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import SQUARED_L2, LowerBound
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import BLOCK, Shard
from server.localize.choice import LEAST_MASS, MOST_FAILURE
from server.targets.lower_bounds import packing_bound
from server.targets.mean_target import MeanTarget
from server.targets.sample_sizes import resolve_users
from server.trust import Batch, NonInteractive

if TYPE_CHECKING:
    from server.session.curator import Curator


@dataclass(frozen=True)
class CoverPlan:
    """Which cover a population votes on; computed from public numbers only.

    ``failure`` bounds the probability that the wrong cell wins; ``risk`` = delta^2 + diameter^2
    failure [1, Theorem 1]; ``feasible``: that is below the risk of the centre of the set.
    """

    cover: Cover
    failure: float
    risk: float
    feasible: bool


def failure_bound(n_users: int, n_cells: int, flip: float) -> float:
    """Bound P(the wrong cell wins) when all users vote for one cell, by a union over the others.

    The total X of the true cell and Y of another one are independent, Bin(n, 1 - flip) and
    Bin(n, flip), so that Y + n - X is Bin(2n, flip) and P <= (N - 1) P(Bin(2n, flip) >= n), at most
    the (N - 1) e^{-n tau^2} of Hoeffding [1, eq. (53), (54), with twice the exponent there].

    >>> failure_bound(1, 2, 0.25)
    0.4375
    """
    # P(Bin(2n, flip) >= n), without scipy.stats, which takes half a second to be imported
    return min(1.0, (n_cells - 1) * float(betainc(n_users, n_users + 1, flip)))


@lru_cache(maxsize=4096)
def _candidate(one: Cover, per_axis: int) -> tuple[int, float] | None:
    """Return (n_cells, radius) of a cover; None with too many cells."""
    try:
        cover = replace(one, per_axis=per_axis)
    except ValueError:
        return None
    return cover.n_cells, cover.radius


@lru_cache(maxsize=256)
def plan_cover(one: Cover, n_users: int, epsilon: float, per_axis: int | None = None) -> CoverPlan:
    """Choose the cover of least risk, or assess a given one; ``one`` is the set, of one cell.

    All covers that a vote has room for compete, per_axis in steps of a tenth: the risk is within
    1.1^2 of the least. Where none is feasible, the plan holds the cover of one cell.

    >>> plan_cover(BoxGrid(1, 1.0, 1), 400, 1.0).cover.n_cells > 8
    True
    """
    alone, flip = one.radius**2, UnaryChannel(epsilon).flip

    def plan(m: int, n_cells: int, delta: float) -> CoverPlan:
        failure = failure_bound(n_users, n_cells, flip)
        risk = delta**2 + one.diameter**2 * failure
        return CoverPlan(
            one if n_cells == 1 else replace(one, per_axis=m), failure, risk, risk < alone
        )

    if per_axis is not None:
        given = replace(one, per_axis=per_axis)
        return plan(per_axis, given.n_cells, given.radius)
    best, m = CoverPlan(one, 0.0, alone, False), 2
    while candidate := _candidate(one, m):
        next_one = plan(m, *candidate)
        best = min(best, next_one, key=lambda p: p.risk)
        if one.diameter**2 * next_one.failure >= best.risk:
            break  # failures are likelier with more cells
        m = max(m + 1, int(m * 1.1))
    return best


def least_users(one: Cover, epsilon: float, per_axis: int | None = None) -> int | None:
    """Return the least number of users for which the plan is feasible; None above 2^50.

    >>> n = least_users(BoxGrid(2, 1.0, 1), 1.0)
    >>> [plan_cover(BoxGrid(2, 1.0, 1), k, 1.0).feasible for k in (n - 1, n)]
    [False, True]
    """
    return first_true(lambda n: plan_cover(one, n, epsilon, per_axis).feasible, MOST_USERS)


@register_protocol
@dataclass(frozen=True)
class CoverSelect(MeanTarget, NonInteractive):
    """A vector that every user knows, by one private vote over the cells of a cover.

    Use it where the users' means nearly agree: users in different cells split the vote. With few
    samples, set ``per_axis`` so that cells are wider than the means' spread. A mean outside the set
    is moved onto it first.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    dimension : int
        Coordinates of a sample.
    geometry : {"linf-ball", "l2-ball", "sparse", "sobolev"}
        Where the parameter lies: in [-bound, bound]^d; in the l_2 ball of radius ``bound``; in
        [-bound, bound]^d with at most ``sparsity`` coordinates that are not 0; or in
        sum_j j^{2 smoothness} theta_j^2 <= bound^2, samples being the coefficients j = 2, ...,
        d + 1 of a density in the trigonometric basis.
    bound : float
        Half width of the box, or radius of the ball or the ellipsoid.
    sparsity : int
        For "sparse" only.
    smoothness : float
        For "sobolev" only.
    per_axis : int, optional
        Cells along the longest axis; by default the plan takes the cover of least predicted risk,
        and the run is refused where that is the centre of the set. A given cover of one cell
        needs no data: its centre is returned, nobody is asked and nothing is spent.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round: each user answers one query that depends on
    public numbers only.

    Error
    -----
    Squared l_2 error, the paper's loss in all four geometries. For users who hold one point and
    cells of radius delta it is at most delta^2 + diameter^2 (N(delta) - 1) (1 - tau^2)^n, with tau
    = tanh(epsilon / 4) [1, Theorem 1, with a sharper exponent]. At the best delta, with a = n
    min(epsilon, epsilon^2) and up to constants, that is e^{-c a / d} for the l_2 ball and d e^{-c a
    / d} for the l_inf ball [1, Proposition 3], e^{-c a / s} for sparse vectors if a exceeds a
    multiple of s log d [1, Proposition 4], and a^{-2 smoothness} for densities [1, Proposition 5].
    A cover has at most 2^16 cells, which stops the decay.

    Examples
    --------
    >>> CoverSelect(epsilon=1.0, n_users=1000, dimension=2).plan.cover.n_cells > 100
    True
    """

    name: ClassVar[str] = "cover-select"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 2"
    batch: ClassVar[int] = BLOCK
    epsilon: float
    n_users: int
    dimension: int
    geometry: Literal["linf-ball", "l2-ball", "sparse", "sobolev"] = "linf-ball"
    bound: float = 1.0
    sparsity: int = 0
    smoothness: float = 0.0
    per_axis: int | None = None
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_count("n_users", self.n_users)
        if self.sparsity and self.geometry != "sparse":
            raise ValueError(f'sparsity belongs to geometry "sparse", got {self.sparsity}')
        if self.smoothness and self.geometry != "sobolev":
            raise ValueError(f'smoothness belongs to geometry "sobolev", got {self.smoothness}')
        _ = self.plan
        self.check_trust()

    @property
    def batches(self) -> Sequence[Batch]:
        return (Batch.of(self._query()),)

    def _cover(self) -> Cover:
        """Return the set, as a cover of one cell."""
        d, bound = self.dimension, float(self.bound)
        if self.geometry == "sparse":
            return SparseLattice(d, bound, 1, self.sparsity)
        if self.geometry == "sobolev":
            return SobolevLattice(d, bound, 1, float(self.smoothness))
        if self.geometry == "l2-ball":
            return BallLattice(d, bound, 1)
        check_choice("geometry", self.geometry, ("linf-ball", "l2-ball", "sparse", "sobolev"))
        return BoxGrid(d, bound, 1)

    def _query(self) -> BinVotes:
        """Ask for the cell of a user's mean."""
        cover = self.plan.cover
        return BinVotes(Cell(cover), cover.n_cells, float(self.epsilon))

    @cached_property
    def plan(self) -> CoverPlan:
        """The cover and what the bound says about it; from public numbers only."""
        return plan_cover(self._cover(), self.n_users, self.epsilon, self.per_axis)

    @property
    def n_nonzero(self) -> int:
        return self.sparsity

    def rounds(self, server: Curator) -> Script:
        plan = self.plan
        cover = plan.cover
        public = {"n_cells": float(cover.n_cells), "radius": cover.radius}
        if self.per_axis is not None and cover.n_cells == 1:
            warning = warned(
                "the cover has one cell",
                "nobody was asked, and the value is its centre whatever the data",
                "give a larger per_axis",
            )
            return Estimate.ok(
                cover.centres(np.zeros(1, dtype=np.int64))[0], public=public, warnings=(warning,)
            )
        if not plan.feasible:
            least = least_users(self._cover(), self.epsilon, self.per_axis)
            enough = f"at least {least} are needed" if least else "no number below 2^50 is enough"
            return Estimate.refused(
                f"{self.n_users} users are too few at epsilon = {self.epsilon:g}: the centre of "
                f"the set is the better estimate; {enough}"
            )
        query = self._query()
        votes = yield query
        if votes.n_users == 0:
            return Estimate.failed("nobody voted")
        shares = query.frequencies(votes)[0]
        best = int(np.argmax(votes.sums["votes"][0]))  # the lowest of several
        second, top = np.partition(shares, -2)[-2:]
        public |= {
            "n_vote": float(votes.n_users),
            "failure": plan.failure,
            "top_share": float(top),
            "gap": float(top - second),
        }
        warnings = []
        if plan.failure > MOST_FAILURE:
            warnings.append(
                warned(
                    f"with {self.n_users} users the wrong cell may win with probability "
                    f"{plan.failure:.2g}",
                    "the value is then the centre of a cell that may lie anywhere",
                    "more users, a larger epsilon or a smaller per_axis make that rarer",
                )
            )
        if top < LEAST_MASS:
            warnings.append(
                warned(
                    f"the winning cell holds a share of {top:.2f} of the votes, less than "
                    f"{LEAST_MASS}",
                    "the users' means do not agree on one cell, and the value is about the largest "
                    "group of users",
                    "a smaller per_axis makes cells wider; mean-l2 averages users who differ",
                )
            )
        value = cover.centres(np.array([best]))[0]
        return Estimate.ok(value, public=public, warnings=tuple(warnings))

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the error for users who all know one point of the set. NOT PRIVATE."""
        d, bound = self.dimension, float(self.bound)
        box = self.geometry in ("linf-ball", "sparse")
        axes = [bound] * (self.sparsity if self.geometry == "sparse" else d)
        if self.geometry == "sobolev":
            axes = [bound * j ** -float(self.smoothness) for j in range(2, d + 2)]
        value = packing_bound(max(facts.n_users, self.n_users), float(self.epsilon), axes, box)
        source = "packing (Fano); Kent et al., arXiv 2405.11923, Theorem 1, with our constant"
        return (LowerBound(SQUARED_L2, value, source=source),)

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d); NaN without a finite mean. NOT PRIVATE."""
        return user_points(samples_of(users, self.dimension))

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=400, dimension=2, per_axis=5)

    @classmethod
    def example_users(cls) -> Users:
        """Make users whose four samples average to (0.4, -0.4), the centre of a cell."""
        rng = np.random.default_rng(5)
        half = rng.integers(-8, 9, size=(400, 2, 2)) / 64
        samples = np.array([0.4, -0.4]) + np.concatenate([half, -half], axis=1)
        names = Keys.range(400)
        return Users.from_samples(user_ids(names), np.arange(401) * 4, samples.reshape(-1, 2))

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        d = users.none.reals.values.shape[1]
        out, notes = resolve_users(parameters, users, dimension=d)
        return cls.planned(out, users), notes
