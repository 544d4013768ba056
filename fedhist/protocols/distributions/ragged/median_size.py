"""A private median of how many samples users have, and how many users have as many [1, Lemma 10].

Both mechanisms are parts of a script: one round trip (the dyadic classes of sizes), then a power of
two m-hat, near the median from below, and s-hat, the number of users with m-hat samples or more.

"dyadic" is the paper's: Laplace noise on every class, and the largest class from which on the noisy
counts still add up to s / 2 - B. Corrected against the paper: the slack B follows from the sum of
the noise (which grows with the root of the number of classes, not with the number); the classes
double from the second one on (b_i = 2 b_{i - 1} for i >= 2). It needs s >= 8 B: below that B is not
small beside s / 2, and the rule runs off the end of the classes, where all sums are noise.

"em", the default, chooses the class that holds the median by the exponential mechanism, and puts
noise on one count alone. With c_j users of 2^j samples or more, class j is scored by the distance
of s / 2 from the interval [c_{j + 1}, c_j]. The distance of s / 2 from c_j itself would not do:
where all users have alike sizes every c_j is 0 or s, and all classes score the same.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E, Lemma 10.
.. [2] Chan, Shi & Song, "Private and continual release of statistics", ACM TISSEC 2011, Lemma 2.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.protocols.distributions.ragged.encodings import class_counts, size_classes, size_query
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys

EM_SHARE = 0.75
"""Part of epsilon with which "em" chooses the class; the rest is for the count."""

MOST_SIZE = 1 << 31


@dataclass(frozen=True)
class MedianTask:
    """The public side of a search for the median size.

    Attributes
    ----------
    domain : Keys
        Public symbols; samples outside it do not count.
    m_max : int
        Public bound on the number of samples: larger ones count as ``m_max``.
    n_users : int or None
        s, where it is public; None where it is not (users may be added or removed).
    adjacency : Adjacency
        REPLACE_USER or ADD_REMOVE_USER.
    epsilon : float
        Budget of the search: epsilon_a.
    beta : float
        Probability with which the bounds below may fail.
    keep : float
        Part of the users that shall have m-hat samples, for "em": 1/2 is the median.
    """

    domain: Keys
    m_max: int
    n_users: int | None
    adjacency: Adjacency
    epsilon: float
    beta: float = 0.05
    keep: float = 0.5

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if not 1 <= self.m_max <= MOST_SIZE:
            raise ValueError(f"m_max must lie in [1, 2^31], got {self.m_max}")
        if self.adjacency is Adjacency.ZERO_OUT_USER:
            raise ValueError(
                'adjacency must be "replace-user" or "add-remove-user", '
                f"got {self.adjacency.value!r}"
            )
        if (self.n_users is None) != (self.adjacency is Adjacency.ADD_REMOVE_USER):
            raise ValueError(
                f"n_users is public exactly under {Adjacency.REPLACE_USER.value!r}, "
                f"got {self.n_users} under {self.adjacency.value!r}"
            )
        if not 0 < self.beta < 1:
            raise ValueError(f"beta must lie in (0, 1), got {self.beta}")
        if not 0 < self.keep < 1:
            raise ValueError(f"keep must lie in (0, 1), got {self.keep}")

    @property
    def classes(self) -> int:
        """Number of classes of sizes with the empty one: v = floor(log2 m_max) + 2."""
        return size_classes(self.m_max)

    @property
    def l1_sensitivity(self) -> int:
        """How much one user changes the counts of the classes: 2 if replaced, else 1."""
        return 2 if self.adjacency is Adjacency.REPLACE_USER else 1

    @property
    def slack(self) -> float:
        """B: bound on the noise of every sum of the classes' counts at once, with 1 - beta [2].

        (2 / epsilon) min(v L, sqrt(8 v L) if L <= v else 4 L) with L = ln(2 v / beta), for the
        l1 sensitivity 2.
        """
        v = self.classes
        log = math.log(2 * v / self.beta)
        spread = math.sqrt(8 * v * log) if log <= v else 4 * log
        return self.l1_sensitivity / self.epsilon * min(v * log, spread)

    @property
    def score_sensitivity(self) -> float:
        """How much one user changes keep s - c_j: by 1 if s stays; 1/2 at s / 2 if s goes too."""
        if self.adjacency is Adjacency.REPLACE_USER:
            return 1.0
        return max(self.keep, 1 - self.keep)

    @property
    def em_slack(self) -> float:
        """Bound on the score that "em" may miss, in users, with probability 1 - beta."""
        epsilon = EM_SHARE * self.epsilon
        return 2 * self.score_sensitivity * math.log((self.classes - 1) / self.beta) / epsilon

    @property
    def count_slack(self) -> float:
        """Bound on the noise of the count of "em", with probability 1 - beta."""
        return math.log(1 / self.beta) / ((1 - EM_SHARE) * self.epsilon)


@dataclass(frozen=True)
class Median:
    """What a search returns; both numbers are released.

    Attributes
    ----------
    size : int
        m-hat, a power of two; 0 if the search has failed.
    users : float
        s-hat.
    reason : str
        Why it has failed.
    """

    size: int
    users: float
    reason: str = ""


Search = Generator[Query, Summary, Median]


@dataclass(frozen=True)
class MedianRule:
    """A private way to find m-hat and s-hat.

    Attributes
    ----------
    name : str
        The word in a configuration.
    search : callable of (MedianTask, Curator) to a part of a script
        epsilon-DP in all.
    rho : float
        Its cost in zCDP, per epsilon^2.
    least_users : callable of MedianTask to float
        The s below which it does not work; fail or refuse.
    users_std : callable of (MedianTask, m-hat) to float
        Standard deviation of s-hat.
    """

    name: str
    search: Callable[[MedianTask, Curator], Search]
    rho: float
    least_users: Callable[[MedianTask], float]
    users_std: Callable[[MedianTask, int], float]

    def epsilon_of(self, rho: float) -> float:
        """Return the epsilon that costs ``rho`` in zCDP."""
        return math.sqrt(rho / self.rho)


def _miscounted(task: MedianTask, summary: Summary) -> Median | None:
    """Fail, before anything is released, unless as many users answer as is public."""
    if task.n_users in (None, summary.n_users):
        return None
    return Median(
        0,
        0.0,
        f"{summary.n_users} users answered, but n_users = {task.n_users}: set it to the number of "
        "users who will answer; nothing was released",
    )


# -- as printed: noise on every class --------------------------------------------------------------


def dyadic_search(task: MedianTask, server: Curator) -> Search:
    """Put noise on the classes, then take the last one from which on they hold s / 2 - B users.

    Privacy
    -------
    epsilon-DP: the counts of the classes have l1 sensitivity 2 under replacement, 1 otherwise;
    everything else is post-processing (where s is private, its noisy value is the sum of all).
    """
    summary = yield size_query(task.domain, task.m_max)
    if (failed := _miscounted(task, summary)) is not None:
        return failed
    noisy = server.discrete_laplace(
        class_counts(summary),
        l1_sensitivity=task.l1_sensitivity,
        epsilon=task.epsilon,
        label="classes of sizes",
    )
    return dyadic_median(noisy, task)


def dyadic_median(noisy: NDArray[np.int64], task: MedianTask) -> Median:
    """Find m-hat and s-hat from noisy counts of the classes; post-processing."""
    from_on = np.cumsum(noisy[::-1])[::-1].astype(np.float64)
    s = from_on[0] if task.n_users is None else float(task.n_users)
    if task.n_users is None and s < 8 * task.slack:
        return Median(0, 0.0, f"about {s:g} users are too few: {8 * task.slack:.0f} are needed")
    enough = np.flatnonzero(from_on >= s / 2 - task.slack)
    last = int(enough[-1]) if len(enough) else 0
    if last == 0:
        return Median(0, 0.0, "more than half of the users seem to have no samples in the domain")
    if from_on[last] < 1:
        return Median(0, 0.0, "the noise exceeds the number of users with many samples")
    return Median(1 << (last - 1), float(from_on[last]))


# -- the exponential mechanism ---------------------------------------------------------------------


def em_search(task: MedianTask, server: Curator) -> Search:
    """Choose the class that holds the median; put noise on the number of users from there on.

    Privacy
    -------
    epsilon-DP, 3/4 for the choice and 1/4 for the count, whose sensitivity is 1: (3/4 epsilon)^2 /
    8 + (epsilon / 4)^2 / 2 in zCDP. The sensitivity of a score is :attr:`score_sensitivity`.
    """
    summary = yield size_query(task.domain, task.m_max)
    if (failed := _miscounted(task, summary)) is not None:
        return failed
    counts = class_counts(summary)
    at = server.exponential(
        median_scores(counts, task.keep),
        sensitivity=task.score_sensitivity,
        epsilon=EM_SHARE * task.epsilon,
        label="median size",
    )
    users = server.discrete_laplace(
        counts[at + 1 :].sum(keepdims=True),
        l1_sensitivity=1,
        epsilon=(1 - EM_SHARE) * task.epsilon,
        label="users of that size",
    )
    found = float(users[0])
    if found < max(1.0, 2 * task.count_slack):
        return Median(0, 0.0, f"about {found:g} users have {1 << at} samples or more, too few")
    return Median(1 << at, found)


def median_scores(counts: NDArray[np.int64], keep: float = 0.5) -> NDArray[np.float64]:
    """Minus the distance of keep s from [c_{j + 1}, c_j] for j = 0, ..., v - 2. NOT PRIVATE.

    The first one stands for the empty users as well: no size is smaller than 1. The last one has
    c_{j + 1} = 0.

    Parameters
    ----------
    counts : (v,) int64
        Users in every class, the empty ones first.
    keep : float
        1/2: the median.

    Examples
    --------
    >>> median_scores(np.array([10, 0, 0, 200, 0])).tolist()  # all 200 have 4 to 7 samples
    [-95.0, -95.0, 0.0, -105.0]
    """
    above = np.cumsum(counts[::-1])[::-1].astype(np.float64)
    half = above[0] * keep
    low = np.append(above[2:], 0.0)
    high = np.append(np.inf, above[2:])
    return np.asarray(np.minimum(np.minimum(half - low, high - half), 0.0))


def median_probabilities(counts: NDArray[np.int64], task: MedianTask) -> NDArray[np.float64]:
    """Law of the class that "em" chooses, (v - 1,). NOT PRIVATE."""
    scores = median_scores(counts, task.keep)
    if math.isinf(task.epsilon):
        return np.asarray(np.arange(len(scores)) == np.argmax(scores), dtype=np.float64)
    weight = EM_SHARE * task.epsilon / (2 * task.score_sensitivity)
    return np.asarray(softmax(weight * scores), dtype=np.float64)


NEGLIGIBLE = 1e-9
"""Sizes of less than this probability are left out."""


def possible_sizes(
    counts: NDArray[np.int64], task: MedianTask, rule: str
) -> Iterator[tuple[int, float, float]]:
    """Walk the m-hat that a rule can find, how many users have as many, and the probability.

    "dyadic" is taken at its value without noise. NOT PRIVATE.

    Parameters
    ----------
    counts : (classes,) int64
        Users without samples in the domain, with one, with two to three, and so on.
    task : MedianTask
    rule : str
    """
    if rule == "dyadic":
        found = dyadic_median(counts, task)
        if found.size:
            yield found.size, found.users, 1.0
        return
    floor = max(1.0, 2 * task.count_slack)
    for j, chance in enumerate(median_probabilities(counts, task)):
        kept = float(counts[j + 1 :].sum())
        if chance > NEGLIGIBLE and kept >= floor:
            yield 1 << j, kept, float(chance)


def _laplace_std(epsilon: float) -> float:
    return math.sqrt(2) / epsilon


def _dyadic_std(task: MedianTask, size: int) -> float:
    """Add up the noise of the classes from ``size`` on."""
    each = _laplace_std(task.epsilon / task.l1_sensitivity)
    return each * math.sqrt(task.classes - size.bit_length())


RULES = {
    rule.name: rule
    for rule in (
        MedianRule(
            "em",
            em_search,
            EM_SHARE**2 / 8 + (1 - EM_SHARE) ** 2 / 2,
            lambda task: 4 * max(task.em_slack, task.count_slack),
            lambda task, size: _laplace_std((1 - EM_SHARE) * task.epsilon),
        ),
        MedianRule(
            "dyadic",
            dyadic_search,
            0.5,
            lambda task: 8 * task.slack,
            _dyadic_std,
        ),
    )
}
"""The mechanisms by name; the first one is the default."""
