"""Theorems 5.2, B.1, C.2 and C.3 of [1]_ against exact expectations. NOT PRIVATE.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Theorem 5.2, Appendices B.1, C.2 and C.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc
from scipy.stats import gamma

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.protocols import PoissonCounts
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.histograms.poisson_debiasing import clipped_mean, rate_of_mean
from simulations.experiments.experiment import Findings, mean_and_error
from simulations.experiments.unbounded_domain import expected_errors, kept_totals, margins
from simulations.populations.synthetic import Zipf
from simulations.runs.options import Options
from simulations.runs.run import execute

B1, LOWER, C2, EXAMPLE, C3 = (
    "Theorem B.1",
    "Theorem 5.2, lower side",
    "Theorem C.2",
    "Theorem C.2, the paper's example",
    "Theorem C.3",
)
NO_BIAS = 1e-8
QUANTILES = (np.arange(200) + 0.5) / 200


def run(findings: Findings) -> None:
    """Evaluate the four theorems, and run the example."""
    for part in (_unknown_items, _gaps, _example, _biases):
        part(findings)


# -- unknown items


@dataclass(frozen=True)
class Clipped:
    """What random clipping kept of every item that occurs.

    ``kept``, ``truth``: (k,) float64; ``lost``: tokens that it took away.
    """

    kept: Floats
    truth: Floats
    lost: float


def theorem_b1(findings: Clipped, clip: int, epsilon: float, threshold: float) -> float:
    """Return the expression that the expected error is Theta of, given what clipping kept.

    >>> one = Clipped(np.array([9.0]), np.array([10.0]), 1.0)
    >>> round(theorem_b1(one, 2, 1.0, 5.0), 4)
    3.406
    """
    b, h, truth = clip / epsilon, findings.kept, findings.truth
    gap = np.exp(-np.abs(h - threshold) / b)
    above = b + gap * (threshold - b)
    below = h + truth + gap * (np.abs(truth - threshold) - truth + b)
    return float(np.where(h > threshold, above, below).sum()) + findings.lost


def _unknown_items(findings: Findings) -> None:
    """Judge Theorem B.1 and the lower side of Theorem 5.2 at every C and budget."""
    s = findings.settings
    ratios, lower = list[float](), list[float]()
    seed = digest64("clipping-theorems", findings.seed) >> 1
    for tail, kind in ((1.5, "sizes of tail 1.5"), (math.inf, "users alike")):
        people = Zipf(n_users=s.users, d=s.items, mean_items=20.0, tail=tail, seed=seed)
        users = people.load().users
        sizes, truth = margins(users)
        occurs = truth > 0
        totals = kept_totals(users, np.array(s.clips), np.random.default_rng(seed))
        lost = [float(np.maximum(sizes - c, 0).sum()) for c in s.clips]
        every = [
            Clipped(kept[occurs].astype(float), truth[occurs].astype(float), gone)
            for kept, gone in zip(totals, lost, strict=True)
        ]
        for e in s.epsilon:
            own = list[float]()
            for clip, one in zip(s.clips, every, strict=True):
                b = clip / e
                t = clip + b * math.log(clip / (2 * s.delta))
                exact = float(expected_errors(one.kept, one.truth, b, t).sum())
                own.append(exact / theorem_b1(one, clip, e, t))
                factor = 12 * (e + math.log(max(s.clips) / (2 * s.delta)))
                least = one.lost / 2 + float(np.minimum(one.kept, t).sum()) / factor
                lower.append(exact / least)
            where = "exact loss / expression of Theorem B.1"
            findings.draw(where, f"epsilon = {e:g}, {kind}", s.clips, own, log="x")
            ratios += own
    findings.check(B1, "least exact loss / expression", min(ratios))
    findings.check(B1, "largest exact loss / expression", max(ratios))
    findings.check(LOWER, "least exact loss / bound", min(lower))


# -- debiasing


@dataclass(frozen=True)
class Rates:
    """Users' rates: values and their shares.

    ``rate``, ``share``: (k,) float64.
    """

    rate: Floats
    share: Floats

    @property
    def mean(self) -> float:
        """The average rate."""
        return float(self.rate @ self.share)

    def clipped(self, clip: int) -> float:
        """h-bar: the average clipped count."""
        return float(clipped_mean(self.rate, clip) @ self.share)


def gap_without_noise(rates: Rates, clip: int) -> float:
    """Squared error of clipping less that of debiasing, for n without end."""
    clipped = rates.clipped(clip)
    plain = (rates.mean - clipped) ** 2
    return float(plain - (rates.mean - rate_of_mean(clipped, clip)) ** 2)


def theorem_c2(rates: Rates, clip: int) -> float | None:
    """Return the gap that Theorem C.2 promises; None where its assumptions do not hold.

    None, too, where clipping has no bias to speak of (1e-8), which no difference could show.

    >>> even = Rates(np.array([0.0, 2.0]), np.array([0.5, 0.5]))
    >>> round(theorem_c2(even, 2), 4)
    0.0217
    >>> theorem_c2(Rates(np.array([0.0, 20.0]), np.array([0.95, 0.05])), 2) is None
    True
    """
    mean, clipped = rates.mean, rates.clipped(clip)
    if mean > 1:
        return None
    gamma_c = 1 / (1 - float(gammainc(clip, 1.0)))
    whole_bias = mean - float(clipped_mean(mean, clip))
    if whole_bias < NO_BIAS:
        return None
    least = mean - whole_bias - whole_bias / (gamma_c - 1)
    alpha = (clipped - least) * (gamma_c - 1) / whole_bias
    if not alpha > 0:
        return None
    alpha = min(alpha, 1.0)
    return alpha * (2 * gamma_c - (gamma_c + 1) * alpha) / (gamma_c - 1) * whole_bias**2


def _laws(mean: float) -> Iterator[tuple[str, Rates]]:
    """Walk laws of rates of a mean, from alike to heavy-tailed."""
    even = np.full(len(QUANTILES), 1 / len(QUANTILES))
    for spread in np.linspace(0.0, 1.0, 11):
        yield "two points", Rates(mean * np.array([1 - spread, 1 + spread]), np.full(2, 0.5))
    for share in (0.3, 0.1, 0.03, 0.01):
        yield "few large", Rates(np.array([0.0, mean / share]), np.array([1 - share, share]))
    for shape in (0.1, 0.5, 2.0, 20.0):
        rate = gamma.ppf(QUANTILES, shape)
        yield "gamma", Rates(mean * rate / (rate @ even), even)
    for tail in (1.2, 2.0, 4.0):
        rate = (1 - QUANTILES) ** (-1 / tail)
        yield "Pareto", Rates(mean * rate / (rate @ even), even)


def _gaps(findings: Findings) -> None:
    """Judge the promised gap of Theorem C.2, where its assumptions hold."""
    least, held, every = math.inf, 0, 0
    for clip in findings.settings.debiased_clips:
        for mean in findings.settings.means:
            for _, rates in _laws(mean):
                every += 1
                promised = theorem_c2(rates, clip)
                if promised is not None:
                    held += 1
                    over = gap_without_noise(rates, clip) - promised
                    least = min(least, over / (mean - rates.clipped(clip)) ** 2)
    findings.check(C2, "least (gap - promised) / squared bias of clipping", least)
    findings.show(C2, "laws of rates that it is about", held)
    findings.show(C2, "laws of rates in all", every)
    spreads = np.linspace(0.0, 1.0, 41)
    laws = [Rates(np.array([1 - s, 1 + s]), np.full(2, 0.5)) for s in spreads]
    panel = "rates 1 - x and 1 + x, C = 2: squared errors, n without end"
    gaps = [gap_without_noise(r, 2) for r in laws]
    findings.draw(panel, "clipping less debiasing", spreads, gaps, style="-")
    theirs = [theorem_c2(r, 2) or math.nan for r in laws]
    findings.draw(panel, "Theorem C.2", spreads, theirs, style="--")


def _example(findings: Findings) -> None:
    """Judge the paper's example, C = 2 and rates 0 and 2, in its numbers and in real runs."""
    clip, n, runs = 2, findings.settings.runs_users, findings.settings.runs
    rates = Rates(np.array([0.0, 2.0]), np.array([0.5, 0.5]))
    gamma_c = 1 / (1 - float(gammainc(clip, 1.0)))
    one = float(clipped_mean(1.0, clip))
    findings.check(EXAMPLE, "h(2) / 2", rates.clipped(clip))
    findings.check(EXAMPLE, "h_min", one - (1 - one) / (gamma_c - 1))
    findings.check(EXAMPLE, "first term of (18)", theorem_c2(rates, clip) or math.nan)
    errors = np.empty((2, runs))
    domain = Keys.of(["item"])
    for r in range(runs):
        tag = digest64("clipping-theorems", findings.seed, "example", r) >> 1
        counts = np.random.default_rng(tag).poisson(np.repeat(rates.rate, n // 2))
        some = np.flatnonzero(counts)
        ids = np.arange(len(counts), dtype=np.uint64)
        users = Users.from_counts(ids, some, np.zeros(len(some), np.int64), counts[some], domain)
        for k, debias in enumerate((False, True)):
            protocol = PoissonCounts(
                domain, epsilon=1.0, n_users=len(counts), clip=clip, debias=debias, guarded=False
            )
            value = execute(protocol, users, Options(seed=tag)).estimate.needed(EXAMPLE)
            errors[k, r] = (float(value[0]) / len(counts) - rates.mean) ** 2
    limit = gap_without_noise(rates, clip)
    measured = mean_and_error((errors[0] - errors[1]) / limit)
    findings.check(EXAMPLE, "measured gap / gap for n without end", *measured)


def theorem_c3(rates: Rates, clip: int) -> tuple[float, float]:
    """Bound the bias of the clipped mean, as printed and as corrected.

    Printed: (.83^(C-1) Sigma + P(rate >= (C-1)/2)) / sqrt(8 pi (C-1)), of which its proof needs
    (C-1)^(3/2) times as much for the second part. Corrected: users up to (C-1)/2 with the bound on
    h'' there; any other by how much its rate exceeds the mean, or by the largest h''.
    """
    mean, scale = rates.mean, 1 / math.sqrt(8 * math.pi * (clip - 1))
    square = (rates.rate - mean) ** 2
    high = rates.rate > (clip - 1) / 2
    share = rates.share
    printed = scale * (0.83 ** (clip - 1) * float(square @ share) + float(share @ high))
    low = scale * 0.83 ** (clip - 1) * float((square * ~high) @ share)
    beyond = np.minimum(scale * square, rates.rate - mean)
    return printed, low + float((beyond * high) @ share)


def _biases(findings: Findings) -> None:
    """Judge Theorem C.3, as corrected, on laws whose mean is (C - 1) / 2 at most."""
    worst = {"as printed": 0.0, "as corrected": 0.0}
    clips = [c for c in findings.settings.debiased_clips if c >= 3]
    drawn: dict[str, list[tuple[float, float]]] = {}
    for clip in clips:
        for mean in findings.settings.means:
            if mean > (clip - 1) / 2:
                continue
            for law, rates in _laws(mean):
                bias = float(clipped_mean(rates.mean, clip)) - rates.clipped(clip)
                if bias < NO_BIAS:
                    continue
                printed, corrected = theorem_c3(rates, clip)
                worst["as printed"] = max(worst["as printed"], bias / printed)
                worst["as corrected"] = max(worst["as corrected"], bias / corrected)
                drawn.setdefault(law, []).append((clip, bias / corrected))
    for which, ratio in worst.items():
        findings.check(C3, f"largest bias / bound, {which}", ratio)
    for law, points in drawn.items():
        at, ratio = np.array(points).T
        findings.draw("bias of clipping / Theorem C.3 as corrected", law, at, ratio, style=" ",
                   marker="o", log="x")  # fmt: skip
