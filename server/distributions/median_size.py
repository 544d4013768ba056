"""Appendix E: one distribution behind users with different numbers of samples, in two rounds [1]_.

The first finds m-hat, a power of two near the median number of samples, and s-hat, the number of
users with as many. In the second these users draw m-hat of their samples each, and the others send
the all-zero row. The distribution is learned from the numbers of users that hold each symbol
(presence) or hold it more than t times (selection): C(t) = s-hat - #{u : N_i(u) > t}, which one
user moves by at most 1, and for at most min(k, 2 m-hat) symbols.

The paper finds m-hat from noise on every class of sizes (:mod:`server.printed`). Here the
exponential mechanism chooses the class, and one count alone gets noise. With c_j users of
2^j samples or more, class j is scored by the distance of s / 2 from the interval [c_{j + 1}, c_j].

Corrected against the paper: sums of presence indicators in place of zero indicators, of which a
user who drops below m-hat changes up to k - 1 and not min(k, m-hat); and all counts are divided by
the released s-hat (with the exact number the scores' sensitivity is not 1).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.distributions.queries import MOST_EXCEEDANCES, ExceedanceCounts
from clients.histograms.contributions import NormHistogram
from fedhist.base.arrays import Array
from fedhist.base.checks import check_within
from fedhist.base.errors import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import check_budget, sqrt_up
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.users.keys import Keys
from server.distributions.binomial_scores import SCORE_SENSITIVITY, SelectionPlan, pick_eta
from server.distributions.mechanisms import Learned, presence_error
from server.distributions.selection import (
    KS,
    PHS,
    SMALL,
    Family,
    release_presence,
    selection_error,
    users_needed,
)
from server.session.curator import Curator
from server.targets.domains import presence_to_probability

EM_SHARE = 0.75
"""Part of epsilon with which the class is chosen; the rest is for the count."""

MOST_SELECTED = 1 << 20
"""Largest m-hat for a selection among binomials; the automatic choice stops at a sixteenth."""

FAMILIES: Mapping[str, Family] = {"ks": KS, "phs": PHS}


# -- m-hat and s-hat -------------------------------------------------------------------------------


def size_classes(m_max: int) -> int:
    """Count the dyadic classes of sizes: {0}, [1, 2), [2, 4), ..., [2^J, inf) with 2^J <= m_max.

    >>> size_classes(1), size_classes(7), size_classes(8)
    (2, 4, 5)
    """
    return m_max.bit_length() + 1


def size_query(domain: Keys, m_max: int) -> NormHistogram:
    """Ask every user for the dyadic class of its number of in-domain samples."""
    return NormHistogram(domain, tuple(2.0**j - 1 for j in range(size_classes(m_max) - 1)), 1)


def class_counts(summary: Summary) -> NDArray[np.int64]:
    """Count the users in every class, (v,), the empty users first. NOT PRIVATE.

    One replaced user moves between classes: l1 sensitivity 2; all from j on change by 1 at most.
    """
    filled = summary.sums["weight"]
    return np.concatenate([[summary.n_users - filled.sum()], filled]).astype(np.int64)


@dataclass(frozen=True)
class MedianTask:
    """The public side of a search for the median size; bounds fail with probability ``beta``."""

    domain: Keys
    m_max: int
    n_users: int
    epsilon: float
    beta: float = 0.05

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_within("m_max", self.m_max, 1, 1 << 24)
        check_within("beta", self.beta, 0, 1, "()")

    @property
    def classes(self) -> int:
        """Number of classes of sizes with the empty one: v = floor(log2 m_max) + 2."""
        return size_classes(self.m_max)

    @property
    def count_slack(self) -> float:
        """Bound on the noise of the count, with probability 1 - beta."""
        return math.log(1 / self.beta) / ((1 - EM_SHARE) * self.epsilon)

    @property
    def least_users(self) -> float:
        """Fewest users for which m-hat can be found: four times what noise may hide."""
        epsilon = EM_SHARE * self.epsilon
        score = 2 * math.log((self.classes - 1) / self.beta) / epsilon
        return 4 * max(score, self.count_slack)


@dataclass(frozen=True)
class Median:
    """m-hat, a power of two, and s-hat, both released; a size of 0 if the search has failed."""

    size: int
    users: float
    reason: str = ""


MedianSearch = Generator[Query, Summary, Median]


def em_search(task: MedianTask, server: Curator) -> MedianSearch:
    """Choose the class that holds the median; put noise on the number of users from there on.

    Privacy
    -------
    epsilon-DP, 3/4 for the choice and 1/4 for the count, whose sensitivity is 1: (3/4 epsilon)^2 /
    8 + (epsilon / 4)^2 / 2 in zCDP. One user moves a score by at most 1: c_j by 1, while s stays.
    """
    summary = yield size_query(task.domain, task.m_max)
    counts = class_counts(summary)
    at = server.exponential(
        median_scores(counts),
        sensitivity=1.0,
        epsilon=EM_SHARE * task.epsilon,
        label="median size",
    )
    noisy = server.discrete_laplace(
        counts[at + 1 :].sum(keepdims=True),
        l1_sensitivity=1,
        epsilon=(1 - EM_SHARE) * task.epsilon,
        label="users of that size",
    )
    users = float(noisy[0])
    if users < max(1.0, 2 * task.count_slack):
        return Median(0, 0.0, f"about {users:g} users have {1 << at} samples or more, too few")
    return Median(1 << at, users)


def median_scores(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Minus the distance of s / 2 from [c_{j + 1}, c_j] for j = 0, ..., v - 2. NOT PRIVATE.

    >>> median_scores(np.array([10, 0, 0, 200, 0])).tolist()  # all 200 have 4 to 7 samples
    [-95.0, -95.0, 0.0, -105.0]
    """
    above = np.cumsum(counts[::-1])[::-1].astype(np.float64)
    half = above[0] / 2
    low = np.append(above[2:], 0.0)
    high = np.append(np.inf, above[2:])
    return np.asarray(np.minimum(np.minimum(half - low, high - half), 0.0))


# -- the distribution ------------------------------------------------------------------------------


@dataclass(frozen=True)
class RaggedTask:
    """Public and released numbers of the second round, of users with ``size`` = m-hat samples.

    ``rest`` is what is left: rho in zCDP if delta > 0, otherwise epsilon.
    """

    domain: Keys
    size: int
    epsilon: float
    delta: float
    rest: float
    mechanism: str

    @property
    def touched(self) -> int:
        """Most symbols of which one user changes the counts above thresholds."""
        return min(len(self.domain), 2 * self.size)

    def touched_by(self, step: str) -> int:
        """Most symbols whose statistics one user changes in a step."""
        return self.touched

    @property
    def epsilon_each(self) -> float:
        """Budget of one symbol's selection."""
        if self.delta:
            return math.sqrt(8 * self.rest / self.touched)
        return self.rest / self.touched

    @property
    def law(self) -> NoiseLaw:
        """Noise on every number of users that have a symbol."""
        if self.delta:
            std = sqrt_up(self.touched) * math.sqrt(0.5 / self.rest)
            return NoiseLaw("discrete-gaussian", std)
        return NoiseLaw("discrete-laplace", self.touched / self.rest)

    def steps(self, users: float) -> tuple[str, ...]:
        """Choose what is released, from public and released numbers: "presence", "ks", "phs"."""
        return self.best_steps(users) if self.mechanism == "auto" else (self.mechanism,)

    def best_steps(self, users: float) -> tuple[str, ...]:
        """Take the smaller predicted error at p uniform, selection only above its floor."""
        k = len(self.domain)
        few = k * math.isqrt(self.size) <= MOST_SELECTED and self.size <= MOST_SELECTED >> 4
        if not few or users < self.floor("ks"):
            return ("presence",)
        ks = k * selection_error(KS, 1 / k, self.size, users, self.epsilon_each)
        presence = presence_error(k, self.size, users, self.law)
        return ("ks",) if ks < presence else ("presence",)

    def floor(self, step: str) -> float:
        """Fewest users at which a selection's error is as predicted."""
        return users_needed(self.size, self.epsilon_each, FAMILIES[step].height)

    def plan(self, step: str, users: float) -> SelectionPlan:
        """Hypotheses and thresholds of a selection; wider where its table is too large."""
        eta = max(pick_eta(max(1, round(users)), self.epsilon_each), 2e-7 * self.size)
        return FAMILIES[step].build(self.size, eta)

    def total(self, kept: int, users: float) -> int:
        """Return what counts are taken from: the released number, never the exact one."""
        return round(users)

    def present(
        self, server: Curator, present: NDArray[np.int64], kept: int, users: float
    ) -> Array:
        """Release the numbers of users that have each symbol, (k,)."""
        rho = self.rest if self.delta else 0.0
        return release_presence(server, present, self.touched, rho, self.rest)


def release(
    task: RaggedTask, users: float, server: Curator
) -> Generator[Query, Summary, Learned | str]:
    """Ask for the counts among m-hat samples, and release what the steps need; or say why not."""
    steps = task.steps(users)
    public: dict[str, float] = {}
    warnings: tuple[str, ...] = ()
    plan = None
    for selection in FAMILIES.keys() & set(steps):
        floor = task.floor(selection)
        plan, public["epsilon_each"] = task.plan(selection, users), task.epsilon_each
        if users < floor:
            warnings = (
                warned(
                    f'"{selection}" needs about {floor:.0f} users with {task.size} samples; there '
                    f"are about {users:g}",
                    "errors are larger than predicted",
                    'take mechanism = "presence" or "auto"',
                ),
            )
    if "presence" in steps:
        public["noise_std"] = task.law.std
    thresholds = tuple(sorted({0, *(plan.thresholds if plan else ())}))
    if len(task.domain) * len(thresholds) > MOST_EXCEEDANCES:
        return (
            f"{len(task.domain)} symbols at {len(thresholds)} thresholds are too many to select "
            'from: take mechanism = "presence"'
        )
    query = ExceedanceCounts(task.domain, task.size, thresholds, complete=True)
    summary = yield query
    above, kept = query.above(summary), int(summary.sums["kept"][0])
    p = np.zeros(len(task.domain))
    if plan is not None:
        total = task.total(kept, users)
        below = np.clip(total - above[:, len(thresholds) - len(plan.thresholds) :], 0, None)
        # at most s-hat: scores are then exact doubles, and clipping moves nothing by more than 1
        scores = plan.scores(np.minimum(below, round(users)), round(users))
        chosen = server.exponential_rows(
            scores,
            sensitivity=SCORE_SENSITIVITY,
            epsilon_each=task.epsilon_each,
            changed=task.touched_by("selection"),
        )
        p = np.asarray(plan.p[chosen], dtype=np.float64)
    if "presence" in steps:
        noisy = task.present(server, above[:, 0], kept, users)
        small = presence_to_probability(noisy, users, task.size)
        p = small if plan is None else np.where(p < SMALL / task.size, small, p)
    return Learned(p, warnings, public)
