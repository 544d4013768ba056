"""Users with different numbers of samples: Appendix E of [1]_ measured. NOT PRIVATE.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E: Lemma 10, Theorems 14 and 15.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.hashing import digest64
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.distribution import Distribution
from server.distributions.ragged_distribution import RaggedDistribution
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.runs.options import Options
from simulations.runs.run import execute

LEMMA_10 = "Lemma 10: m-hat and s-hat"
DENSE, SPARSE = "Theorem 14: dense", "Theorem 15: sparse"

FEW_SYMBOLS = 64
"""Up to here users' counts are drawn as a matrix."""


@dataclass(frozen=True)
class Crowd:
    """Users whose numbers of samples are log-normal around a median; k symbols, all as likely.

    ``median``: of the numbers of samples; ``m_max``: larger numbers count as this one.
    """

    n_users: int
    median: int
    m_max: int
    k: int

    @property
    def domain(self) -> Keys:
        """The k symbols."""
        return Keys.range(self.k)

    @property
    def p(self) -> Floats:
        """The common distribution: (k,)."""
        return np.full(self.k, 1 / self.k)

    def draw(self, seed: int, *, alike: bool = False) -> tuple[Users, Integers]:
        """Draw users, and return how many samples each has; all the median if ``alike``."""
        rng = np.random.default_rng(seed)
        sizes = np.full(self.n_users, self.median)
        if not alike:
            spread = np.exp(rng.standard_normal(self.n_users))
            sizes = np.clip(np.rint(self.median * spread), 1, self.m_max).astype(np.int64)
        if self.k <= FEW_SYMBOLS:
            counts = rng.multinomial(sizes, self.p)
            user, item = np.nonzero(counts)
            count = counts[user, item]
        else:
            user = np.repeat(np.arange(self.n_users), sizes)
            item = rng.choice(self.k, len(user), p=self.p)
            count = np.ones(len(item), dtype=np.int64)
        ids = np.arange(self.n_users, dtype=np.uint64)
        return Users.from_counts(ids, user, item, count, self.domain), sizes

    def protocol(self, mechanism: str, settings: Any, **fields: Any) -> RaggedDistribution:
        """Build the protocol for them."""
        return RaggedDistribution(
            self.domain,
            epsilon=settings.epsilon,
            delta=settings.delta,
            m_max=self.m_max,
            n_users=self.n_users,
            mechanism=mechanism,
            **fields,
        )

    def alike(self, mechanism: str, settings: Any) -> Distribution:
        """Build the protocol for users who all have the median."""
        return Distribution(
            self.domain,
            epsilon=settings.epsilon,
            delta=settings.delta,
            samples_per_user=self.median,
            n_users=self.n_users,
            mechanism=mechanism,
        )


def run(findings: Findings) -> None:
    """Measure the three parts."""
    s = findings.settings
    _sizes(findings)
    _errors(findings, DENSE, "ks", s.dense_users, s.dense_symbols, s.dense_medians)
    _errors(findings, SPARSE, "presence", s.sparse_users, s.sparse_symbols, s.sparse_medians)


def lemma_10_users(m_max: int, epsilon: float, beta: float) -> float:
    """Users from which Lemma 10 is about m-hat and s-hat: 16 ln^2(m_max / beta) / epsilon.

    >>> round(lemma_10_users(1024, 1.0, 0.05))
    1577
    """
    return 16 * math.log(m_max / beta) ** 2 / epsilon


def lemma_10_holds(
    sizes: Integers, size: int, users: float, m_max: int, epsilon: float, beta: float
) -> bool:
    """Say whether the released m-hat and s-hat are as (17) has them."""
    s, kept = len(sizes), int(np.count_nonzero(sizes >= size))
    near = abs(users - kept) <= 2 * math.log(m_max / beta) ** 2 / epsilon
    half = float(np.median(sizes)) / 2
    return near and size >= half and kept >= s / 4 and users >= 3 * s / 8


def _sizes(findings: Findings) -> None:
    """Judge how often Lemma 10 holds, with the paper's rule and with ours."""
    s = findings.settings
    crowd = Crowd(s.size_users, s.median, s.m_max, s.dense_symbols)
    seed = digest64("ragged-users", findings.seed, "sizes") >> 1
    users, sizes = crowd.draw(seed)
    least = {}
    for rule, mode in (("dyadic", "paper"), ("em", "default")):
        protocol = crowd.protocol("presence", s, mode=mode)
        eps, holds = protocol.budgets[0], []
        for r in range(s.size_runs):
            estimate = execute(protocol, users, Options(seed=seed + r)).estimate
            estimate.needed(rule)
            size, kept = int(estimate.public["size"]), estimate.public["users"]
            holds.append(lemma_10_holds(sizes, size, kept, s.m_max, eps, s.beta))
        findings.check(LEMMA_10, f"share of runs in which it holds, {rule}", float(np.mean(holds)))
        if rule == "dyadic":
            over = crowd.n_users / lemma_10_users(s.m_max, eps, s.beta)
            findings.check(LEMMA_10, "users / users that it asks for", over)
        least[rule] = protocol.least_users * eps  # the two have other budgets
    saved = least["dyadic"] / least["em"]
    findings.check(LEMMA_10, "fewest users of the paper's rule / of ours", saved)


def _errors(
    findings: Findings, setting: str, mechanism: str, n_users: int, k: int, medians: list[int]
) -> None:
    """Measure the l1 error from p, of users who differ in size and of users who do not."""
    s, panel = findings.settings, f"{setting}: l1 error against the median size"
    losses = np.empty((2, len(medians), s.repeats))
    for i, median in enumerate(medians):
        crowd = Crowd(n_users, median, s.m_max, k)
        protocols = crowd.protocol(mechanism, s), crowd.alike(mechanism, s)
        for r in range(s.repeats):
            seed = digest64("ragged-users", findings.seed, setting, median, r) >> 1
            for at, protocol in enumerate(protocols):
                users = crowd.draw(seed, alike=bool(at))[0]
                estimate = execute(protocol, users, Options(seed=seed)).estimate
                losses[at, i, r] = float(np.abs(estimate.needed(setting) - crowd.p).sum())
    for at, label in enumerate(("sizes differ", "all users have the median")):
        findings.draw_means(panel, label, medians, [mean_and_error(x) for x in losses[at]])
    rate = k * math.sqrt(math.log(1 / s.delta)) / (np.sqrt(medians) * s.epsilon * n_users)
    label = "privacy's part of the theorem, constants of 1"
    findings.draw(panel, label, medians, rate, style="--")
    means = losses.mean(axis=2)
    findings.check(setting, "log-log slope in the median size", power_law(medians, means[0])[0])
    ratio = means[0] / means[1]
    findings.check(setting, "least error / error where all have the median", float(ratio.min()))
    findings.check(setting, "largest error / error where all have the median", float(ratio.max()))
