"""Users with different numbers of samples: Appendix E of [1]_ measured. NOT PRIVATE.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E: Lemmas 10 and 14, Theorems 14 and 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.hashing import digest64
from fedhist.protocols.distributions.distribution import Distribution
from fedhist.protocols.distributions.ragged_distribution import RaggedDistribution
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.runs.run import Options, execute

LEMMA_10, DENSE, SPARSE, LEMMA_14 = (
    "Lemma 10: m-hat and s-hat",
    "Theorem 14: dense",
    "Theorem 15: sparse",
    "Lemma 14: rare symbols",
)

FEW_SYMBOLS = 64
"""Up to here users' counts are drawn as a matrix."""


@dataclass(frozen=True)
class Crowd:
    """Users whose numbers of samples are log-normal around a median.

    ``median``: of the numbers of samples; ``m_max``: larger numbers count as this one; ``p``: (k,)
    float64, the common distribution.
    """

    n_users: int
    median: int
    m_max: int
    p: Floats

    @property
    def domain(self) -> Keys:
        """The k symbols."""
        return Keys.range(len(self.p))

    def draw(self, seed: int, *, alike: bool = False) -> tuple[Users, Integers]:
        """Draw users, and return how many samples each has; all the median if ``alike``."""
        rng = np.random.default_rng(seed)
        sizes = np.full(self.n_users, self.median)
        if not alike:
            spread = np.exp(rng.standard_normal(self.n_users))
            sizes = np.clip(np.rint(self.median * spread), 1, self.m_max).astype(np.int64)
        if len(self.p) <= FEW_SYMBOLS:
            counts = rng.multinomial(sizes, self.p)
            user, item = np.nonzero(counts)
            count = counts[user, item]
        else:
            user = np.repeat(np.arange(self.n_users), sizes)
            item = rng.choice(len(self.p), len(user), p=self.p)
            count = np.ones(len(item), dtype=np.int64)
        ids = np.arange(self.n_users, dtype=np.uint64)
        return Users.from_counts(ids, user, item, count, self.domain), sizes

    def protocol(self, mechanism: str, epsilon: float, delta: float, **how: Any) -> Any:
        """Build the protocol for them."""
        return RaggedDistribution(
            self.domain,
            epsilon=epsilon,
            delta=delta,
            m_max=self.m_max,
            n_users=self.n_users,
            mechanism=mechanism,
            **how,
        )


def run(request: Request) -> Result:
    """Measure the four parts."""
    found = Findings(request)
    for part in (_sizes, _dense, _sparse, _rare):
        part(found)
    eps, delta = request.positive("epsilon"), request.positive("delta")
    return found.result(
        "Users with different numbers of samples",
        "Appendix E",
        x_label="median of the users' numbers of samples; run, by panel",
        y_label="l1 error; error / bound, by panel",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the common distribution",
            f"({eps:g}, {delta:g})-DP per user under replacement, {eps:g}-DP for Lemma 14; sizes "
            "are log-normal with a factor e of spread",
            "presence is sent in place of the paper's zero indicators, whose privacy fails where a "
            "user is no longer kept; budgets are the project's",
            "Lemma 14 with gamma / m-hat, as its proof has it, for the printed gamma / (m-hat "
            "epsilon)",
        ),
        not_judged=("the O(...) of the theorems' users: the paper prints no constants for them",),
        population="users whose samples come from one distribution over k symbols",
    )


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


def _sizes(found: Findings) -> None:
    """Judge how often Lemma 10 holds, with the paper's rule and with ours."""
    request = found.request
    m, m_max, beta = request.whole("median"), request.whole("m_max"), request.positive("beta")
    budget = request.positive("epsilon"), request.positive("delta")
    k, runs = request.whole("dense_symbols", 2), request.whole("size_runs")
    crowd = Crowd(request.whole("size_users"), m, m_max, np.full(k, 1 / k))
    seed = digest64("ragged-users", request.seed, "sizes") >> 1
    users, sizes = crowd.draw(seed)
    least = {}
    for rule, mode in (("dyadic", "paper"), ("em", "default")):
        protocol = crowd.protocol("presence", *budget, mode=mode)
        eps = protocol.budgets[0]
        public = []
        for r in range(runs):
            estimate = execute(protocol, users, Options(seed=seed + r)).estimate
            estimate.needed(rule)
            public.append(estimate.public)
        held = [lemma_10_holds(sizes, int(x["size"]), x["users"], m_max, eps, beta) for x in public]
        found.check(LEMMA_10, f"share of runs in which it holds, {rule}", float(np.mean(held)))
        if rule == "dyadic":
            over = crowd.n_users / lemma_10_users(m_max, eps, beta)
            found.check(LEMMA_10, "users / users that it asks for", over)
        least[rule] = protocol.least_users * eps  # the two have other budgets
    found.check(
        LEMMA_10, "fewest users of the paper's rule / of ours", least["dyadic"] / least["em"]
    )


def _errors(
    found: Findings, setting: str, mechanism: str, crowds: Sequence[Crowd]
) -> tuple[Floats, Floats]:
    """Measure the l1 error from p, of users who differ in size and of users who do not."""
    request = found.request
    budget = request.positive("epsilon"), request.positive("delta")
    runs, every = request.whole("repeats", 2), []
    for crowd in crowds:
        losses = np.empty((2, runs))
        for r in range(runs):
            seed = digest64("ragged-users", request.seed, setting, crowd.median, r) >> 1
            alike = Distribution(
                crowd.domain,
                epsilon=budget[0],
                delta=budget[1],
                samples_per_user=crowd.median,
                n_users=crowd.n_users,
                mechanism=mechanism,
            )
            for at, protocol in enumerate((crowd.protocol(mechanism, *budget), alike)):
                users = crowd.draw(seed, alike=bool(at))[0]
                estimate = execute(protocol, users, Options(seed=seed)).estimate
                losses[at, r] = float(np.abs(estimate.needed(setting) - crowd.p).sum())
        every.append(losses)
    ms = [c.median for c in crowds]
    for at, label in enumerate(("sizes differ", "all users have the median")):
        measured = [mean_and_error(losses[at]) for losses in every]
        found.draw_means(f"{setting}: l1 error against the median size", label, ms, measured)
    means = np.array([losses.mean(axis=1) for losses in every]).T
    k, s, eps = len(crowds[0].p), crowds[0].n_users, budget[0]
    rate = k * math.sqrt(math.log(1 / budget[1])) / (np.sqrt(ms) * eps * s)
    found.draw(
        f"{setting}: l1 error against the median size",
        "privacy's part of the theorem, constants of 1", ms, rate, style="--",
    )  # fmt: skip
    found.check(setting, "log-log slope in the median size", power_law(ms, means[0])[0])
    ratio = means[0] / means[1]
    found.check(setting, "least error / error where all have the median", float(ratio.min()))
    found.check(setting, "largest error / error where all have the median", float(ratio.max()))
    return means[0], means[1]


def _dense(found: Findings) -> None:
    """Measure selection where k <= m-hat."""
    request, k = found.request, found.request.whole("dense_symbols", 2)
    n, m_max = request.whole("dense_users"), request.whole("m_max")
    ms = request.wholes("dense_medians")
    _errors(found, DENSE, "ks", [Crowd(n, m, m_max, np.full(k, 1 / k)) for m in ms])


def _sparse(found: Findings) -> None:
    """Measure presence where k >= m-hat."""
    request, k = found.request, found.request.whole("sparse_symbols", 2)
    n, m_max = request.whole("sparse_users"), request.whole("m_max")
    ms = request.wholes("sparse_medians")
    _errors(found, SPARSE, "presence", [Crowd(n, m, m_max, np.full(k, 1 / k)) for m in ms])


def lemma_14(
    p: float,
    size: int,
    n_users: int,
    m_max: int,
    budgets: tuple[float, float],
    *,
    c: float = 0.5,
    beta: float = 0.05,
) -> float | None:
    """Bound |p-hat - p| of one rare symbol with probability 1 - beta [1, Lemma 14].

    sqrt(p alpha^2 / m-hat) + alpha^2 / m-hat + gamma / m-hat, at the least alpha and gamma whose
    users there are: alpha^2 = 2 128 e^(3 c) ln(3 / beta) / s, and gamma = 2 (32 e^(3 c) ln^2(3
    m_max / beta) / epsilon' + 16 e^(3 c) ln(3 / beta) / epsilon) / s.

    ``size``: m-hat; ``budgets``: epsilon' of m-hat and s-hat, and epsilon of the symbol.

    Returns
    -------
    float or None
        None where the lemma is not about p (p > min(c / m-hat, 1/2)) or has too few users.
    """
    e3, log = math.exp(3 * c), math.log(3 / beta)
    if p > min(c / size, 0.5) or n_users < 64 * e3 * max(c, 1.0) * log:
        return None
    alpha2 = 2 * 128 * e3 * log / n_users
    large = 32 * math.log(3 * m_max / beta) ** 2 / budgets[0] + 16 * log / budgets[1]
    gamma = 2 * e3 * large / n_users
    return math.sqrt(p * alpha2 / size) + (alpha2 + gamma) / size


def _rare(found: Findings) -> None:
    """Judge Lemma 14 on symbols that few users have, of pure differential privacy."""
    request = found.request
    m, m_max, eps = request.whole("median"), request.whole("m_max"), request.positive("epsilon")
    rare = np.array([1 / 8, 1 / 32, 1 / 128]) / m
    crowd = Crowd(request.whole("size_users"), m, m_max, np.append(rare, 1 - rare.sum()))
    protocol = crowd.protocol("presence", eps, 0.0, project=False)
    seed = digest64("ragged-users", request.seed, "rare") >> 1
    ratios = []
    for r in range(request.whole("rare_runs")):
        users, _ = crowd.draw(seed + r)
        estimate = execute(protocol, users, Options(seed=seed + r)).estimate
        shares = estimate.needed(LEMMA_14)
        size = int(estimate.public["size"])
        budgets = protocol.budgets[0], protocol.budgets[1] / min(len(crowd.p), 2 * size)
        for q, value in zip(rare, shares, strict=False):
            bound = lemma_14(float(q), size, crowd.n_users, m_max, budgets)
            if bound is not None:
                ratios.append(abs(float(value) - float(q)) / bound)
    found.check(
        LEMMA_14, "share of estimates within the bound", float(np.mean(np.array(ratios) <= 1))
    )
    found.show(LEMMA_14, "largest error / bound", max(ratios))
    panel = "errors of rare symbols / Lemma 14"
    found.draw(
        panel, "runs and symbols", np.arange(1, len(ratios) + 1), ratios, marker=".", style=" "
    )
