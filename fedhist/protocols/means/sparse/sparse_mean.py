"""Mean with few non-zero coordinates under user-level local differential privacy [1]_.

Whole vectors by default, see :mod:`~fedhist.protocols.means.sparse.vectors`, and two procedures.
Selection: some of the users name the coordinates where their own mean is not 0, by one hashed
number each, and the others estimate the mean there only. Thresholding: all users estimate all
coordinates in folds, and what noise explains becomes 0.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, eq. (39)-(48), Theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Array, Floats
from fedhist.base.hashing import digest64
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.model.registry import register_protocol
from fedhist.protocols.localize.script import FoldEstimates
from fedhist.protocols.means.sparse.plan import SparsePlan
from fedhist.protocols.means.sparse.queries import HashedVotes
from fedhist.protocols.means.sparse.sparse_error import MOST_COLUMNS, Fold, Followed
from fedhist.protocols.means.sparse.vectors import none_found
from fedhist.protocols.shared.lower_bounds import ParameterSet
from fedhist.protocols.shared.seen import Seen, rows_at_most
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, keyed_hash, user_ids
from server.means.design import Design
from server.means.localize import Plan
from server.means.support import (
    Z_MIN,
    keep_largest,
    pick_support,
)

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

THEOREM = "Kent et al., arXiv 2405.11923, Theorem 8"


@register_protocol
@dataclass(frozen=True)
class SparseMean(SparsePlan):
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
    method : {"vectors", "auto", "select", "threshold"}
        "vectors": reports of whole vectors find the coordinates and refine them; up to 4096
        coordinates, beyond which it is "auto". "auto" takes the other one of least regret over all
        amplitudes of the signals; where it may err more than 1.8 times as much as another choice
        the estimate says "declare min_signal".
    min_signal : float, optional
        Declared least distance from 0 of a coordinate that is not 0: smaller ones are not planned
        for. It restricts nothing.
    max_votes : int, optional
        Most coordinates that a selecting user votes for, its farthest means; by default planned
        with the procedure: s for strong signals, more for those that no user sees by itself.
    mean_scale : float, optional
        Standard deviation of a coordinate of a user's mean around the common mean, or a bound; by
        default radius / sqrt(T). Enlarge it if the users' own means differ.
    vote : {"auto", "sign", "laplace"}
        Report of a selecting user; "auto" is "sign", in mode "paper" "laplace".
    hash : {"auto", "rademacher", "hadamard"}
        Public signs; "auto" is "hadamard" for large d.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the refined reports.
    mode : {"default", "paper"}
        "paper": the first T* samples, every vote counts, clipped sums with Laplace noise, scores
        from 1/2 on and the first s of those, and the paper's steps for the means.
    salt : int
        Public salt of the split of the users; those of folds and signs follow from it.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: those who select, vote and
    report are disjoint cohorts of one salt, each user answers one epsilon-LDP query, and queries,
    and how many users are asked where they lean, depend on other users' messages only.

    Error
    -----
    Vectors: that of "mean-l2" in the s coordinates that were found (while in doubt up to 2 s), by
    half to nine tenths of the users; and the squares of those that were not.
    Selection: of order s log(d) / T + s^2 log(.) / (n T epsilon^2) + e^{-c n epsilon^2 / s}, with
    d in logarithms only; it needs about s log(d) / epsilon^2 users. Thresholding: s d log(.) /
    (n T epsilon^2) + d e^{-c n epsilon^2 / d} [1, Theorem 8]. The votes are signed, which the
    paper's are not: those of noise cancel, and with more of them than s weaker signals are found.
    If more than s coordinates are not 0 some are lost: the smaller ones where a user has s votes.
    Where fewer than s are found ``unseen`` of an estimate says, in l2, how far signals that were
    lost may lie from it; ``stderr``, 0 where the estimate is 0, knows nothing of them.

    Examples
    --------
    >>> many = SparseMean(epsilon=1, n_users=8000, dimension=1000, samples_per_user=200, sparsity=4)
    >>> many.procedure, many.max_rounds
    ('vectors', 10)
    """

    name: ClassVar[str] = "sparse-mean"
    revision: ClassVar[int] = 5
    unshuffled: ClassVar[str] = "votes are read by signs that belong to a user's id"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 4.1"

    @property
    def value_range(self) -> tuple[float, float]:
        """Means lie where samples do: no coordinate is larger than the radius."""
        return -float(self.radius), float(self.radius)

    # -- the script

    @property
    def n_nonzero(self) -> int:
        """The sparsity."""
        return self.sparsity

    def rounds(self, server: Curator) -> Script:
        """Find, then refine; select, then estimate; or estimate, then threshold."""
        useless = self.useless()
        if useless:
            return Estimate.refused(useless)
        if self.procedure == "vectors":
            found = yield from self.vectors.rounds()
        elif self.procedure == "threshold":
            found = yield from super().rounds(server)
        elif not self.selects:
            found = yield from self._estimate(np.arange(self.dimension), 0.0, {})
        else:
            found = yield from self._select_and_estimate()
        told = (self.close,) if self.close else ()
        public = found.public
        if found.value is not None and self.selects:
            lost = self.sparsity - np.count_nonzero(found.value)
            unseen = math.hypot(self.missable * math.sqrt(lost), public.get("unseen", 0.0))
            public = {**public, "unseen": unseen}
        return replace(found, public=public, warnings=(*found.warnings, *told))

    def _select_and_estimate(self) -> Generator[Query, Summary, Estimate]:
        """Ask for votes, then about the coordinates that they name."""
        query = self.vote_query
        votes = yield query
        if votes.n_users == 0:
            return Estimate.failed("nobody selected")
        support = self.select(query, votes)
        public = {"n_select": float(votes.n_users), "selected": float(len(support))}
        if not len(support):
            return none_found(self.dimension, public)
        return (yield from self._estimate(support, self.vote_share, public))

    def select(self, query: HashedVotes, votes: Summary) -> NDArray[np.int64]:
        """Pick the coordinates whose score is no noise: (k,) int64, increasing, k <= s.

        Votes are signed, and so are scores.
        """
        law = self.law
        scores = np.abs(query.scores(votes)) * law.unit
        least = Z_MIN * law.deviation / math.sqrt(votes.n_users)
        return pick_support(scores, self.sparsity, least)

    def conclude(self, found: FoldEstimates) -> tuple[Array, Array]:
        """Threshold the folds' values: two (d,) arrays, 0 where a coordinate was dropped.

        By the planned standard errors: with few reports an empirical one can be 0.
        """
        value = keep_largest(found.value, found.stderr, self.sparsity)
        return value, np.where(value != 0, found.stderr, 0.0)

    def _estimate(
        self, support: NDArray[np.int64], lo: float, public: dict[str, float]
    ) -> Generator[Query, Summary, Estimate]:
        """Estimate the selected coordinates from the other users; the rest stays 0."""
        plan = self.plan_of(len(support))
        found = yield from self.ask(self.coordinates(support, plan.max_items), plan, lo)
        if isinstance(found, Estimate):
            return found
        value, stderr = np.zeros(self.dimension), np.zeros(self.dimension)
        value[support], stderr[support] = found.value, found.stderr
        return Estimate.ok(
            value, stderr=stderr, public=public | found.public, warnings=found.warnings
        )

    # -- evaluation

    @property
    def parameter_set(self) -> ParameterSet:
        """The vectors of the box with s entries that are not 0."""
        radius, s = float(self.radius), min(self.sparsity, self.dimension)
        samples = (radius / self.scale) ** 2
        return ParameterSet("sparse", self.dimension, radius, samples, s)

    def own_means(self, users: Users) -> Array:
        """Average each user's samples by coordinate: (n, d); see :class:`Mean`. NOT PRIVATE.

        A user with a NaN selects nothing, whichever coordinate has it.
        """
        radius = float(self.radius)
        return coordinate_points(samples_of(users, self.dimension), -radius, radius)

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up what the votes of the users say on average, too, where there are any."""
        found = super().sums(users)
        if self.procedure == "vectors":
            rows = np.nan_to_num(self.vectors.part.vectors(users))
            return {**found, "votes": rows.sum(axis=0)}
        if self.procedure == "threshold" or not self.selects:
            return found
        indptr, columns = self.vote_query.votes(users)
        sizes = np.diff(indptr)
        gains = np.array([self.law.gain(k) for k in range(int(sizes.max(initial=0)) + 1)])
        weights = np.repeat(gains[sizes], sizes) * np.where(columns < 0, -1.0, 1.0)
        columns = np.where(columns < 0, ~columns, columns)
        return {**found, "votes": np.bincount(columns, weights, self.dimension).astype(np.float64)}

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the expected squared l2 error from the users' means and votes. NOT PRIVATE."""
        expected, how = self.expected(seen)
        source = how if self.procedure == "vectors" else f"{how}; {THEOREM}"
        if self.close:
            source += f"; {self.close}"
        return ErrorBound(SQUARED_L2, expected, exact=False, source=source)

    @property
    def most_rows(self) -> int:
        """So many that the means of the columns that matter fit."""
        return rows_at_most(min(self.dimension, 2 * self.sparsity, MOST_COLUMNS) + 1)

    def _columns(self, seen: Seen) -> tuple[Array, NDArray[np.int64]]:
        """Return what decides who is followed, (d,), and the columns: increasing. NOT PRIVATE."""
        selects = self.procedure in ("vectors", "select") and self.selects
        said = seen["votes"] / seen.n_users if selects else seen.truth
        n_followed = min(self.dimension, 2 * self.sparsity, MOST_COLUMNS)
        return said, np.sort(np.argsort(-np.abs(said), kind="stable")[:n_followed])

    def rows_after(self, seen: Seen) -> Callable[[Users], Mapping[str, Array]]:
        """Return what finds users' own means in the columns that matter, and in another one.

        NaN where a user has none.
        """
        radius, columns = float(self.radius), self._columns(seen)[1]
        others = np.setdiff1d(np.arange(self.dimension), columns)

        def rows(users: Users) -> Mapping[str, Array]:
            own, i = self.own_means(users), np.arange(len(users))
            own = np.clip(own, -radius, radius)
            which = keyed_hash(users.ids, digest64("fedhist.others")) % max(len(others), 1)
            one = [own[i, others[which]]] if len(others) else []
            return {"means": np.column_stack([own[:, columns], *one])}

        return rows

    def expected(self, seen: Seen) -> tuple[float, str]:
        """Return the expected squared l2 error, and what it rests on. NOT PRIVATE."""
        if self.procedure == "vectors":
            error = self.vectors.error(
                seen.truth, *self._columns(seen), seen.rows["means"], int(seen.n_users)
            )
            return error, "the rounds in normal noise, with the users' own means"
        return (
            self._followed(seen),
            "the rounds followed with the users' own means in place of messages",
        )

    def _followed(self, seen: Seen) -> float:
        """Follow the rounds of two procedures. NOT PRIVATE."""
        n, radius, d = seen.n_users, float(self.radius), self.dimension
        said, columns = self._columns(seen)

        def fold(own: Floats, plan: Plan, n_users: float) -> Fold:
            held = own[: len(own) - np.count_nonzero(np.isnan(own))]
            return Fold(
                Design(plan, plan.risk), held if len(held) else np.zeros(1), -radius, radius,
                float(self.epsilon), self.channel_kind, float(self.samples_per_user), self.scale,
                n_users, n, len(held) / max(len(own), 1),
            )  # fmt: skip

        own = np.sort(seen.rows["means"].T, axis=1)  # NaN last
        followed = Followed(seen.truth, columns, own, fold)
        if self.procedure == "threshold":
            return followed.thresholded(self.plan, min(self.sparsity, d), n / d)
        if not self.selects:
            return followed.estimated(self.plan_of(d), n / d)
        n_vote = n * self.vote_share
        z = said * math.sqrt(n_vote) / self.law.deviation
        return followed.selected(z, Z_MIN, self.sparsity, self.plan_of, n - n_vote)

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with three rounds."""
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
        rng = np.random.default_rng(5)
        n, T, d = 900, 32, 12
        ups = np.full(d, T // 2)
        ups[[3, 11]] = 28, 6
        up = np.arange(T)[:, None] < ups
        values = rng.permuted(np.tile(np.where(up, 1.0, -1.0), (n, 1, 1)), axis=1)
        ids = user_ids(Keys.range(n))
        return Users.from_samples(ids, np.arange(n + 1) * T, values.reshape(-1, d))
