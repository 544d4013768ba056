"""What ``mechanism = "auto"`` runs where users have different numbers of samples.

The average of the users' own shares is estimated, whoever they are. Noise on shares does that at
once, and with the whole budget where public numbers say that nothing else can be better. Otherwise
a part of the budget finds how many samples seven users in ten have, m-hat. Then

- centred shares, if their predicted error is less for alike users with m-hat samples. On users who
  differ they find a large radius, and ask for shares with what is left;
- a selection among binomials, if that promises more still and the users pass two tests: the large
  ones, with m-hat samples, fit one distribution (:mod:`server.distributions.fit_statistic`); and
  the gap between the average of the large ones and that of all, in l1, is no larger than the noise
  on shares would be.

The gap sees what the fit cannot: users with few samples who differ from those with many. Where a
test fails a warning says so.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.text import warned
from fedhist.model.query import Query, Summary
from fedhist.protocols.distributions.centred_mechanism import offsets_error
from fedhist.protocols.distributions.centred_release import CLUSTER, HARM
from fedhist.protocols.distributions.mechanisms import Learned, Search
from fedhist.protocols.distributions.ragged.average import (
    AverageTask,
    centred_shares,
    frequencies,
)
from fedhist.protocols.distributions.ragged.encodings import RaggedCounts
from fedhist.protocols.distributions.ragged.median_size import RULES, MedianTask
from fedhist.protocols.distributions.ragged.own_shares import (
    STEPS,
    OwnShares,
    gap_sensitivity,
    gap_steps,
)
from fedhist.protocols.distributions.ragged.release import MOST_SELECTED, RaggedTask
from fedhist.session.curator import Curator
from server.distributions.binomial_grid import MOST_CELLS
from server.distributions.fit_statistic import (
    ETA,
    MOST_STEPS,
    NOTHING,
    OWN_AVERAGE,
    FitPlan,
    fit_eta,
    fit_limit,
    misfit,
)
from server.distributions.fit_statistic import STEPS as FIT_STEPS
from server.distributions.ks_scores import KSPlan, arcsine_thresholds

KEPT = 0.6875
"""Part of the users that shall have m-hat samples: in sixteenths, so that scores are exact."""

SIZE_SHARE, MOST_SIZE_SHARE = 0.03, 0.2
"""Part of epsilon that finds m-hat: as much as so many users need, within these."""

CLEAR = 1.5
"""How many times the fewest users there shall be: a tenth of them then tells two sizes apart."""

FIT_SHARE, MOST_FIT_SHARE, GAP_SHARE, MOST_GAP_SHARE = 0.05, 0.15, 0.04, 0.2
"""Parts of epsilon for the two tests. The gap's noise shall be half of that on shares."""

PUBLIC_GAIN, SELECTION_GAIN, CENTRED_GAIN = 0.81, 0.8, 0.95
"""A way is taken for one that costs or assumes less only if its predicted error is below this part
of the other's: to ask for sizes at all; a selection; centred shares."""

SENSITIVITY = 1 + 1e-6
"""Of a score against the exact number of users: 1, and room for the rounding of its targets."""


@dataclass(frozen=True)
class Choice:
    """The public side of the automatic choice.

    Attributes
    ----------
    task : AverageTask
        With all of epsilon, and half of delta for either composition.
    beta, cmax : float
        As in the protocol.
    """

    task: AverageTask
    beta: float
    cmax: float

    # -- budgets ---------------------------------------------------------------------------------

    @property
    def size_epsilon(self) -> float:
        """Epsilon of m-hat; inf where the users are too few for it."""
        n = self.task.n_users
        if n is None:
            return math.inf
        need = CLEAR * RULES["em"].least_users(self.median_task(self.task.epsilon)) / n
        return self.task.epsilon * max(need, SIZE_SHARE) if need <= MOST_SIZE_SHARE else math.inf

    @property
    def fit_epsilon(self) -> float:
        """Epsilon of the test of fit: so much that one user in twenty elsewhere is seen."""
        share = self._sees / self.task.epsilon
        return self.task.epsilon * min(max(share, FIT_SHARE), MOST_FIT_SHARE)

    @property
    def _sees(self) -> float:
        """Epsilon that sees a part CLUSTER of the users elsewhere, nine times in ten; or inf."""
        n, k = int(self.n_users), len(self.task.domain)
        sampling = fit_limit(k, n, ETA, math.inf)
        room, noise = 0.9 * CLUSTER * n - sampling, fit_limit(k, n, ETA, 1.0) - sampling
        return (noise + math.log(5)) / room if room > 0 else math.inf

    @property
    def gap_epsilon(self) -> float:
        """Epsilon of the gap; inf where there are too few symbols for it."""
        need = 2 / len(self.task.domain)
        return self.task.epsilon * max(need, GAP_SHARE) if need <= MOST_GAP_SHARE else math.inf

    def median_task(self, epsilon: float) -> MedianTask:
        """Say what the search for m-hat works with."""
        t = self.task
        return MedianTask(t.domain, t.m_max, t.n_users, t.adjacency, epsilon, self.beta, keep=KEPT)

    def left(self, *spent: float) -> AverageTask:
        """Return what pure releases leave, by basic composition and in zCDP."""
        rho = max(0.0, self.task.rho - sum(e**2 / 2 for e in spent))
        return replace(self.task, epsilon=self.task.epsilon - sum(spent), rho=rho)

    def selection_task(self, size: int) -> RaggedTask:
        """Return what is left for a selection: in zCDP, where all before it was pure."""
        t = self.task
        tests = self.fit_epsilon, self.gap_epsilon
        rest = t.epsilon - self.size_epsilon - sum(tests)
        if t.delta:
            rho = t.rho - RULES["em"].rho * self.size_epsilon**2 - sum(e**2 / 2 for e in tests)
            rest = max(rho, 1e-12)
        return RaggedTask(t.domain, size, t.adjacency, t.epsilon, t.delta, rest, "ks", self.cmax)

    # -- predictions at p uniform ----------------------------------------------------------------

    def shares(self, task: AverageTask) -> float:
        """Predict noise on shares."""
        return len(task.domain) * task.law(self.n_users, task.rest).mean_absolute

    def centred(self, task: AverageTask, size: int) -> float:
        """Predict centred shares of users with ``size`` samples; inf where they do not run."""
        if not task.delta:
            return math.inf
        return offsets_error(task.of_size(size).centred(self.n_users))

    def selection(self, size: int, kept: float) -> float:
        """Predict a selection; inf where it does not run, or could not be tested."""
        k = len(self.task.domain)
        if math.isinf(self.gap_epsilon) or size > MOST_SELECTED >> 4 or not kept >= 1:
            return math.inf
        cells = k * (len(arcsine_thresholds(size)) + 1)
        if math.isinf(fit_eta(size)) or kept * FIT_STEPS > MOST_STEPS or cells > MOST_CELLS:
            return math.inf
        task = self.selection_task(size)
        if kept < task.floor("ks") or k * math.isqrt(size) > MOST_SELECTED:
            return math.inf
        return task.error(np.full(k, 1 / k), ("ks",), kept, 0.0, 0.0, projected=True)

    @property
    def n_users(self) -> float:
        """s, where it is public."""
        return float(self.task.n_users or 1)

    @property
    def promising(self) -> bool:
        """Whether anything but noise on shares can be better, for some sizes of the users."""
        if self.task.n_users is None or math.isinf(self.size_epsilon):
            return False
        most = PUBLIC_GAIN * self.shares(self.task)
        left = self.left(self.size_epsilon)
        sizes = [1 << j for j in range(self.task.m_max.bit_length())]
        return any(
            min(self.centred(left, m), self.selection(m, self.n_users)) < most for m in sizes
        )

    def selects(self, size: int, kept: float) -> bool:
        """Whether a selection is tested, given m-hat and how many users have as many samples."""
        left = self.left(self.size_epsilon)
        other = min(self.shares(left), self.centred(left, size))
        found = self.selection(size, min(kept, self.n_users))
        if found >= SELECTION_GAIN * other:
            return False
        # users elsewhere would be seen; or what they cost is less than what is gained without them
        return self._sees <= self.fit_epsilon or found * (found + HARM) < other**2

    def centres(self, task: AverageTask, size: int) -> bool:
        """Whether centred shares are better than noise on shares, with what is left."""
        return self.centred(task, size) < CENTRED_GAIN * self.shares(task)

    def gap_limit(self, size: int) -> float:
        """Largest noisy gap with which a selection goes on, in l1."""
        left = self.left(self.size_epsilon, self.fit_epsilon, self.gap_epsilon)
        other = min(self.shares(left), self.centred(left, size))
        return max(other, 4 / (KEPT * self.n_users * self.gap_epsilon))


def automatic(choice: Choice, server: Curator) -> Search:
    """Choose, and run what was chosen; at most six rounds.

    Privacy
    -------
    (epsilon, delta)-DP. m-hat and its number of users are pure; the gap has sensitivity 2 rows of
    own shares (:func:`gap_steps`). The fit has sensitivity 1 against the exact number of large
    users: one who joins or leaves them moves C(t) - s F(t) by 1[N <= t] - F(t), whatever the
    symbol. So do scores, where one user may change all symbols anyway; else they are against s-hat,
    and only the symbols that the user holds move. What runs in the end has the epsilon that all
    released before it leaves and ``task.delta``, by basic composition; a selection, and offsets
    where that gives less noise, the rho. What was released decides which, so ``task.delta`` is half
    of the protocol's: :class:`fedhist.privacy.ledger.Ledger` says why that is enough.
    """
    if not choice.promising:
        return (yield from frequencies(choice.task, server))
    found = yield from RULES["em"].search(choice.median_task(choice.size_epsilon), server)
    left, size = choice.left(choice.size_epsilon), found.size
    public: dict[str, float] = {"size": float(size), "users": found.users}
    warnings: tuple[str, ...] = ()
    if size and choice.selects(size, found.users):
        seen = yield from _tested(choice, size, min(max(found.users, 1.0), choice.n_users), server)
        public |= seen.public
        if seen.p is not None:
            return Learned(seen.p, (), public)
        left, warnings = seen.left, (seen.reason,)
    way = centred_shares if size and choice.centres(left, size) else frequencies
    learned = yield from way(left.of_size(size), server)
    return Learned(learned.p, warnings + learned.warnings, public | dict(learned.public))


@dataclass(frozen=True)
class Tested:
    """An estimate if both tests passed; otherwise why there is none, and what is left."""

    p: Floats | None
    public: dict[str, float]
    left: AverageTask
    reason: str = ""


def _tested(
    choice: Choice, size: int, kept: float, server: Curator
) -> Generator[Query, Summary, Tested]:
    """Release the fit, then the gap, then select; three rounds."""
    plan, k = selection_plan(choice, size, kept), len(choice.task.domain)
    query = RaggedCounts(choice.task.domain, size, plan.thresholds, count_kept=True)
    summary = yield query
    statistic, eta = fit_of(query, summary)
    noisy = server.discrete_laplace(
        np.array([statistic]),
        l1_sensitivity=FIT_STEPS + 2,  # 1, and the rounding of two targets
        epsilon=choice.fit_epsilon,
        label="fit",
    )
    off, limit = (
        float(noisy[0]) / FIT_STEPS,
        fit_limit(k, round(kept), eta, choice.fit_epsilon),
    )
    public = {"fit": off, "fit_limit": limit}
    if off > limit:
        words = warned(misfit(off, limit), OWN_AVERAGE, NOTHING)
        left = choice.left(choice.size_epsilon, choice.fit_epsilon)
        return Tested(None, public, left, words)
    gap, limit = (yield from _gap(choice, size, kept, server)), choice.gap_limit(size)
    public |= {"gap": gap, "gap_limit": limit}
    if gap > limit:
        words = warned(
            f"users with {size} samples or more differ from the others (their average is off by "
            f"{gap:.3g}, where {limit:.3g} would pass)",
            OWN_AVERAGE,
            NOTHING,
        )
        left = choice.left(choice.size_epsilon, choice.fit_epsilon, choice.gap_epsilon)
        return Tested(None, public, left, words)
    summary = yield query  # once more: an exact summary does not outlive its step
    rest = choice.selection_task(size)
    chosen = server.exponential_rows(
        selection_scores(query, summary, plan, kept, exact=rest.touched == k),
        sensitivity=SENSITIVITY,
        epsilon_each=rest.epsilon_each,
        changed=rest.touched,
        label="selection",
    )
    public["epsilon_each"] = rest.epsilon_each
    return Tested(np.asarray(plan.p[chosen], dtype=np.float64), public, choice.task)


def _gap(
    choice: Choice, size: int, kept: float, server: Curator
) -> Generator[Query, Summary, float]:
    """Release how far the average of the large users is from that of all, in l1."""
    summary = yield OwnShares(choice.task.domain, size)
    noisy = server.discrete_laplace(
        np.array([gap_steps(summary)]),
        l1_sensitivity=gap_sensitivity(summary.n_users, len(choice.task.domain)),
        epsilon=choice.gap_epsilon,
        label="gap",
    )
    return float(noisy[0]) / STEPS / kept


def selection_scores(
    query: RaggedCounts, summary: Summary, plan: KSPlan, kept: float, *, exact: bool
) -> Floats:
    """Score the hypotheses, against the exact number of large users or s-hat. NOT PRIVATE."""
    s = max(1, int(summary.sums["kept"][0])) if exact else round(kept)
    return plan.scores(np.clip(s - query.above(summary), 0, s), s)


def selection_plan(choice: Choice, size: int, kept: float) -> KSPlan:
    """Hypotheses and thresholds; from public and released numbers."""
    return KSPlan.of(size, choice.selection_task(size).eta(kept))


def fit_of(query: RaggedCounts, summary: Summary) -> tuple[int, float]:
    """Compute the statistic of fit of the large users, and the width of its cover. NOT PRIVATE."""
    large = max(1, int(summary.sums["kept"][0]))
    plan = FitPlan.of(query.size, large)
    return plan.statistic(large - query.above(summary)), plan.eta
