r"""Private choice of the contribution bound C for a histogram over an unbounded domain [1]_.

Users keep C of their m_i tokens at random, noise is added to the items that are left, and items
above a threshold t(C) are released. The exponential mechanism over a grid of thresholds takes a
bound on the expected error as its score. With h_j the expected count that is left of item j:

    V(C) = 2 sum_i (min(m_i, C_K) - C)+ + sum_j min(h_j, t)                      "union" [1, (1)]
    W(C) =   sum_i (min(m_i, C_K) - C)+ + sum_j min(h_j, max(b, 2 t - h_j))      "ramp"

C_K is the largest threshold of the grid. The paper has no min in its first term and bounds users
by a public C_m instead; for C <= C_K that moves V by a constant, and no choice. In V a released
item costs as much as a lost one, t; in W it costs its noise, b, which is some twenty times less.

Ranges
------
What one user can change is compared through the range over C of that change, A(C): the mechanism
with weights exp(-epsilon V / range) is epsilon-DP if max A - min A <= range for all neighbours.
Let a user of m tokens join (or leave), and m' = min(m, C_K). Each h_j grows by something
non-negative, all of them together by at most min(m, C), rounding down included. In h, min(h, t) is
non-decreasing and 1-Lipschitz and min(h, max(b, 2 t - h)) is 1-Lipschitz, whatever t and b are, so

    V:  2 (m' - C)+            <= A(C) <= 2 (m' - C)+ + min(m, C)
    W:  (m' - C)+ - min(m, C)  <= A(C) <= (m' - C)+ + min(m, C)

and for thresholds C < D of the grid, each at its worst m (below C, between, above D),

    V:  A(C) - A(D) <= 2 D - C,    A(D) - A(C) <= C
    W:  A(C) - A(D) <= 2 D,        A(D) - A(C) <= 2 C

A user who is added, removed or zeroed out: 2 C_K - C_1 for V, 2 C_K for W. A replacement is one A
minus another, so the two bounds add up: 2 C_K for V, 2 (C_K + C_(K-1)) for W. The last is
attained for some t and b, but not for those of our release, where we found 2 C_K + C_(K-1) at most:
the choice is up to 1.3 times noisier there than it might be. Corrected against the paper, which
states the sensitivity 5 C_m / 2 (in a proof, 3 C_m) and pays for twice that: it is valid, but the
choice is 2.5 times as noisy as it need be.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Theorem 5.2 and Algorithm 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.size_curves import SHARE, size_curves
from fedhist.base.arrays import Bounds, Floats
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import Keyed, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.adjacency import Moves
from fedhist.privacy.guarantee import Adjacency, Trust, check_budget
from fedhist.privacy.sensitivity import sensitivity_multipliers
from fedhist.protocols.clip_choice.by_exponential import tail_scores
from fedhist.protocols.clip_choice.rule import Choice, Search, at_the_top
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.protocols.shared.item_rows import intern_records, pack_records, parse_records
from fedhist.protocols.shared.ragged_rows import only_rows
from fedhist.session.curator import Curator
from fedhist.session.unknown_keys import key_threshold, printed_key_threshold
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.columns import Items
from fedhist.users.streams import Streams

Grid = tuple[int, ...]
Int64s = NDArray[np.int64]

SCORES = ("ramp", "union")
CELLS = 1 << 20
"""Numbers per temporary array when items are walked in blocks; fixes the order of additions."""

PAPER_GRID = tuple(range(10, 1501, 10))
"""The thresholds of the paper's experiments."""

PER_OCTAVE = 8
"""Thresholds per factor of two of our own grid."""

MOST_POINTS = 4096
MOST_SIZE = 1 << 31
ROUNDING = 1 + 1e-9
"""Room for the rounding of doubles when a sum of many integers is checked."""


# -- the question


@register_query
@dataclass(frozen=True)
class SizeCurves(Query):
    """Each user sends its whole histogram; only sums over the users by size are kept.

    Parameters
    ----------
    grid : tuple of int
        Thresholds C in tokens, positive and increasing.
    cohort : Cohort, optional

    Privacy
    -------
    Central trust: unfolded, a report is the user's histogram as it is. The sums are exact too, and
    min() over an item's sum is not a sum over users: secure aggregation cannot replace the trusted
    server here.

    Cost
    ----
    A summary takes 8 K bytes for every distinct item, K thresholds: 11 MB for 18,000 items and 75
    thresholds, 600 MB for a million items. Fewer thresholds make it smaller.
    """

    wire_name: ClassVar[str] = "size-curves"
    trust: ClassVar[Trust] = Trust.CENTRAL

    grid: tuple[int, ...]
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_grid(self.grid)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send every item with its count; uses no randomness."""
        v = users.counts
        data, indptr = pack_records(v.vocabulary, v.indptr, v.item, v.count)
        return Report(users.ids, ragged={"records": data}, indptr=indptr)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Add up in one walk; integers, so bit-identical to folding the answers."""
        return self._add_up(len(users), users.counts)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up: users and sizes by bin, (K,) int64; shares by item, (items, K) int64."""
        return self._add_up(report.n_users, _items(report))

    def _add_up(self, n_users: int, items: Items) -> Summary:
        keys, shares, users, sizes = size_curves(items, self.grid)
        values = shares if len(keys) else np.zeros(0, dtype=np.int64)  # as an empty merge
        return Summary(n_users, {"users": users, "sizes": sizes}, {"shares": Keyed(keys, values)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a histogram: distinct UTF-8 items, counts > 0."""
        only_rows(report, "records")
        count = _items(report).count
        if count.size and count.max() >= 1 << 62:
            raise WireError(f"'records' holds the count {count.max()}, not below 2^62")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound the bins by all users, and an item's shares by one whole share of everybody."""
        k = len(self.grid)
        return {
            "users": Bounds((k,), "i", 0, n_users),
            "sizes": Bounds((k,), "i", 0, n_users * self.grid[-1]),
            "shares": Bounds((None, k), "i", 0, n_users * SHARE, part="keyed"),
        }

    def check_summary(self, summary: Summary) -> None:
        """Compare the parts with each other as well: one bin and one whole share per user."""
        part = summary.keyed.get("shares")
        if part is not None and not len(part.keys) and part.values.shape == (0,):  # an empty merge
            part = Keyed(part.keys, part.values.reshape(0, len(self.grid)))
            summary = replace(summary, keyed={**summary.keyed, "shares": part})
        super().check_summary(summary)
        users, sizes = summary.sums["users"], summary.sums["sizes"]
        points = np.array((*self.grid, self.grid[-1]), dtype=np.int64)
        low, high = users * np.minimum(points[:-1] + 1, points[-1]), users * points[1:]
        bad = (sizes < low) | (sizes > high)
        if bad.any():
            k = int(np.argmax(bad))
            raise WireError(f"'sizes' holds {sizes[k]}, outside [{low[k]}, {high[k]}]")
        if users.sum() > summary.n_users:
            raise WireError(f"'users' adds up to {users.sum()}, more than {summary.n_users}")
        total = float(summary.keyed["shares"].values.sum(dtype=np.float64))
        if total > summary.n_users * SHARE * ROUNDING:
            most = summary.n_users
            raise WireError(f"'shares' adds up to {total / SHARE:g} users, more than {most}")


def check_grid(grid: tuple[int, ...]) -> None:
    """Raise ValueError unless the thresholds are positive, increasing and not too many."""
    whole = all(type(c) is int for c in grid)
    if not grid or not whole or grid[0] < 1 or any(a >= b for a, b in pairwise(grid)):
        raise ValueError(f"thresholds must be positive, increasing integers, got {grid[:8]}")
    if grid[-1] >= MOST_SIZE:
        raise ValueError(f"thresholds must lie below 2^31, got {grid[-1]}")
    if len(grid) > MOST_POINTS:
        raise ValueError(f"at most {MOST_POINTS} thresholds, got {len(grid)}")


def _items(report: Report) -> Items:
    """Read rows of records as users' items."""
    if report.indptr is None:
        raise WireError("rows of 'records' need their indptr")
    data = report.ragged["records"]
    indptr, starts, lengths, counts = parse_records(data, report.indptr)
    keys, item = intern_records(data, starts, lengths)
    return Items(keys, indptr, item.astype(np.uint32), counts)


# -- scores


def score_range(score: str, grid: Grid, adjacency: Adjacency) -> float:
    """Bound the range over the grid of what one user changes in a score.

    Examples
    --------
    >>> score_range("union", (1, 2, 4), Adjacency.ZERO_OUT_USER)
    7.0
    >>> [score_range(s, (1, 2, 4), Adjacency.REPLACE_USER) for s in SCORES]
    [12.0, 8.0]
    """
    replaced = adjacency is Adjacency.REPLACE_USER
    last, before = grid[-1], grid[-2] if len(grid) > 1 else 0
    if score == "union":
        return float(2 * last if replaced else 2 * last - grid[0])
    return float(2 * (last + before) if replaced else 2 * last)


def printed_range(clip_max: int) -> float:
    """Return twice the paper's sensitivity, 5 C_m: valid for V under every adjacency, but loose."""
    return 5.0 * clip_max


def release_levels(
    grid: Grid, epsilon: float, delta: float, adjacency: Adjacency, *, printed: bool = False
) -> tuple[Floats, Floats]:
    """Return the release's threshold t(C) and noise scale b(C) at every C of the grid.

    >>> release_levels((10,), 1.0, 1e-6, Adjacency.ZERO_OUT_USER)
    (array([156.]), array([10.]))
    >>> release_levels((10,), 1.0, 1e-6, Adjacency.ZERO_OUT_USER, printed=True)[0].round(2)
    array([164.25])
    """
    c = np.array(grid, dtype=np.float64)
    if math.isinf(epsilon):
        return np.zeros_like(c), np.zeros_like(c)
    if printed:
        return np.array([printed_key_threshold(x, epsilon, delta) for x in grid]), c / epsilon
    k1 = round(sensitivity_multipliers(adjacency, 2)[0])  # an unbounded domain has many items
    t = [key_threshold(bound, k1 * bound, epsilon, delta) for bound in grid]
    return np.array(t, dtype=np.float64), k1 * c / epsilon


def item_cost(score: str, kept: Floats, t: Any, b: Any) -> Floats:
    """Bound the error of an item of which ``kept`` is left in expectation."""
    if score == "union":
        return np.asarray(np.minimum(kept, t))
    return np.asarray(np.minimum(kept, np.maximum(b, 2 * t - kept)))


def lost_weight(score: str) -> float:
    """Weight of a lost token in a score."""
    return 2.0 if score == "union" else 1.0


def bound_scores(
    score: str,
    grid: Grid,
    users: Int64s,
    sizes: Int64s,
    shares: Int64s,
    unit: float,
    levels: tuple[Floats, Floats],
) -> Floats:
    """Evaluate a score at every threshold from sums over the users.

    Error
    -----
    Of rounding. All terms are non-negative and add up to 2 n C_K at most. A kept count is the sum
    of K numbers, the sum over a block of items is pairwise, and there are B = items K / 2^20 + 1
    blocks: a score is off by at most (K + B + 40) 2^-52 n C_K, which is less than 2^-22 of its
    sensitivity, C_K at least, for n (K + B + 40) up to 2^30.
    """
    c = np.array(grid, dtype=np.int64)
    beyond, size = (np.cumsum(a[::-1])[::-1] for a in (users, sizes))
    total = lost_weight(score) * (size - beyond * c).astype(np.float64)
    step = max(1, CELLS // len(grid))
    for start in range(0, len(shares), step):
        kept = kept_counts(grid, shares[start : start + step], unit)
        cost = item_cost(score, kept, *levels)
        total += np.ascontiguousarray(cost.T).sum(axis=1)  # pairwise: see Error
    return total


def kept_counts(grid: Grid, shares: Int64s, unit: float) -> Floats:
    """Return the expected count of every item at every threshold: (items, K). NOT PRIVATE."""
    share = shares.astype(np.float64) * unit
    c = np.array(grid, dtype=np.float64)
    kept = np.cumsum(share * c, axis=1)
    kept[:, :-1] += np.cumsum(share[:, :0:-1], axis=1)[:, ::-1] * c[:-1]
    return kept


# -- the choice


@dataclass(frozen=True)
class BoundTask:
    """The public side of a choice of C.

    Parameters
    ----------
    clip_max : int
        C_m, in tokens; larger bounds are not considered.
    score : {"ramp", "union"}
        W or V of :mod:`fedhist.protocols.clip_choice.bound_scores`.
    range : {"exact", "paper"}
        "paper": threshold and sensitivity as printed; with the score V, Algorithm 4 as it stands.
    adaptive : bool
        Spend half of epsilon on a private upper end C_m' of the grid: the range, and with it the
        noise, shrinks from C_m to C_m', which about 4 ln(K) / epsilon users exceed.
    epsilon : float
        Budget of the choice, epsilon'. Pure: delta' is not needed (the paper reserves one).
    release_epsilon, release_delta : float
        Budget of the release that C is chosen for.
    adjacency : Adjacency
    per_octave : int
        Thresholds per factor of two.
    grid : tuple of int
        Thresholds in [1, clip_max]; () for geometric ones, rounded to integers.

    Privacy
    -------
    :func:`choose_bound` is epsilon-DP under the adjacency, in all.

    Examples
    --------
    >>> task = BoundTask(20, "ramp", "exact", False, 0.1, 1.0, 1e-6, Adjacency.ZERO_OUT_USER, 2)
    >>> task.thresholds
    (1, 2, 3, 4, 5, 7, 10, 14, 20)
    """

    clip_max: int
    score: str
    range: str
    adaptive: bool
    epsilon: float
    release_epsilon: float
    release_delta: float
    adjacency: Adjacency
    per_octave: int = PER_OCTAVE
    grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_integer("clip_max", self.clip_max)
        if self.score not in SCORES:
            raise ValueError(f'score must be "ramp" or "union", got {self.score!r}')
        if self.range not in ("exact", "paper"):
            raise ValueError(f'range must be "exact" or "paper", got {self.range!r}')
        if self.range == "paper" and (self.score != "union" or self.adaptive):
            raise ValueError(
                'range "paper" is that of the score "union" with a fixed clip_max, got score '
                f"{self.score!r}, adaptive {self.adaptive}"
            )
        check_budget(self.epsilon)
        check_budget(self.release_epsilon, self.release_delta)
        if not math.isinf(self.release_epsilon) and not self.release_delta:
            raise ValueError("releasing unknown keys needs release_delta > 0, got 0")
        if not isinstance(self.adjacency, Adjacency):
            raise ValueError(f"adjacency must be an Adjacency, got {self.adjacency!r}")
        check_integer("per_octave", self.per_octave)
        check_grid(self.thresholds)
        if self.thresholds[-1] > self.clip_max:
            raise ValueError(
                f"thresholds must lie in [1, clip_max = {self.clip_max}], got {self.thresholds[-1]}"
            )

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The grid, (K,) distinct integers."""
        if self.grid:
            return self.grid
        steps = math.ceil(math.log2(self.clip_max) * self.per_octave)
        points = np.geomspace(1, self.clip_max, steps + 1).round().astype(np.int64)
        return tuple(np.unique(points).tolist())

    @property
    def rounds(self) -> int:
        """Questions asked."""
        return 2 if self.adaptive else 1

    @property
    def budgets(self) -> tuple[float, float]:
        """What the upper end and the choice itself may spend."""
        return (self.epsilon / 2, self.epsilon / 2) if self.adaptive else (0.0, self.epsilon)

    @property
    def rank(self) -> float:
        """Users that the private upper end may exceed: 2 ln(K) / (epsilon / 2).

        By then the empty tail, K thresholds at most, weighs no more than the best threshold. To
        end there costs noise, but no bound is lost.
        """
        return 2 * math.log(len(self.thresholds)) / (self.epsilon / 2)

    def end_cost(self, tails: NDArray[np.int64]) -> Floats:
        """Distance of the rank from what each threshold stands for; sensitivity 1."""
        return -tail_scores(tails, self.rank)

    def levels(self, grid: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Threshold and noise scale of the release at every C of a grid."""
        return release_levels(
            grid,
            self.release_epsilon,
            self.release_delta,
            self.adjacency,
            printed=self.range == "paper",
        )

    def score_range(self, grid: tuple[int, ...]) -> float:
        """Range that the mechanism pays for, on a grid."""
        if self.range == "paper":
            return printed_range(self.clip_max)
        return score_range(self.score, grid, self.adjacency)


def choose_bound(task: BoundTask, server: Curator) -> Search:
    """Choose C by the exponential mechanism; asks :attr:`BoundTask.rounds` questions.

    Privacy
    -------
    epsilon-DP: epsilon / 2 for the upper end (a quantile of the users' sizes) and epsilon / 2 for
    the choice below it, or epsilon for the choice alone. The weights are exp(-epsilon score /
    range) with a bound on the range over C of one user's change; the paper's weights, with 5 C_m
    for the range, are epsilon-DP as well, and needlessly flat.
    """
    grid = task.thresholds
    for_end, for_choice = task.budgets
    public: dict[str, float] = {}
    if task.adaptive:
        question = NormHistogram(None, tuple(map(float, grid)), 1)
        summary = yield question
        cost = task.end_cost(question.tails(summary))
        end = server.exponential(-cost, sensitivity=1.0, epsilon=for_end, label="bound-clip-max")
        grid = grid[: end + 1]
        public["clip_max"] = float(grid[-1])
        del cost
    summary = yield SizeCurves(grid)
    score = bound_scores(
        task.score,
        grid,
        summary.sums["users"],
        summary.sums["sizes"],
        summary.keyed["shares"].values,
        1 / SHARE,
        task.levels(grid),
    )
    sensitivity = task.score_range(grid) / 2
    at = server.exponential(
        -score,
        sensitivity=sensitivity,
        epsilon=for_choice,
        label="bound",
        moves=Moves.of(lambda a: replace(task, adjacency=a).score_range(grid)),
    )
    clip = grid[at]
    warnings: tuple[str, ...] = ()
    if clip == task.thresholds[-1]:
        warnings = (at_the_top(clip),)
    return Choice(float(clip), warnings, public)
