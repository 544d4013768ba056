"""Local means with broken noise, and the correct ones beside them; all claim epsilon-LDP."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from bank_frame import LocalBank, LocalReport, means, noisy, protocol, query

import fedhist as fh


def float_laplace(n_users: int, rng: fh.Streams) -> fh.Array:
    x = 2 * fh.unit_interval(rng.substream("laplace").words(1)[:, 0]) - 1
    return np.asarray(-np.sign(x) * np.log1p(-np.abs(x)))


@query("bank-laplace-mean")
class LaplaceMean(LocalReport):
    """Correct: the mean of clipped samples with discrete Laplace noise for the whole range."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        return noisy(means(users), self.epsilon, rng)

    def finite_channel(self) -> fh.FiniteChannel | None:
        return fh.scalar_law(fh.scalar_channel("laplace", self.epsilon))


@query("bank-opaque-mean")
class Opaque(LaplaceMean):
    """Correct, without its law written down: audited by statistics alone."""

    def finite_channel(self) -> fh.FiniteChannel | None:
        return None


@query("bank-half-noise")
class HalfNoise(LaplaceMean):
    """Half the noise, and its law says so."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        return noisy(means(users), 2 * self.epsilon, rng)

    def finite_channel(self) -> fh.FiniteChannel | None:
        return fh.scalar_law(fh.scalar_channel("laplace", 2 * self.epsilon))


@query("bank-half-range")
class HalfRange(Opaque):
    """Sensitivity without the factor of replacement: the distance from the midpoint, R, not 2 R."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        return noisy(means(users), 2 * self.epsilon, rng)


@query("bank-float-laplace")
class FloatLaplace(Opaque):
    """Laplace noise of the right scale in floating point: the sum's low bits show the mean."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        return np.nan_to_num(means(users)) + 2 / self.epsilon * float_laplace(len(users), rng)


@query("bank-seed-in-the-question")
class SeedInTheQuestion(Opaque):
    """Noise drawn from a seed that travels in the question: whoever asked can subtract it."""

    seed: int = 7

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        public = fh.SeededStreams(users.ids, self.seed, "noise")
        return noisy(means(users), self.epsilon, public)


@query("bank-seed-in-the-answer")
class SeedInTheAnswer(Opaque):
    """The word the noise was made of is sent along."""

    def answer(self, users: fh.Users, rng: fh.Streams) -> fh.Report:
        word = rng.substream("laplace").words(2)
        return fh.Report(users.ids, {"reports": self.reports(users, rng), "check": word[:, 1]})


@query("bank-nan-passes")
class NaNPasses(Opaque):
    """A user without usable samples sends NaN."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        u = means(users)
        return np.where(np.isnan(u), np.nan, noisy(u, self.epsilon, rng).astype(np.float64))


@query("bank-item-noise")
class ItemNoise(Opaque):
    """Item-level noise under a user-level claim: the scale falls with the number of samples."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        u, sizes = means(users), np.maximum(users.n_items(), 1)
        out = np.zeros(len(users), dtype=np.int64)
        for t in np.unique(sizes):
            out = np.where(sizes == t, noisy(u, self.epsilon * float(min(t, 30)), rng), out)
        return out


@query("bank-fresh-noise")
class FreshNoise(Opaque):
    """A question that is asked again gets fresh noise: the law is right, the stream is not."""

    def reports(self, users: fh.Users, rng: fh.Streams) -> fh.Array:
        words = np.random.default_rng().integers(1 << 64, size=(len(users), 2), dtype=np.uint64)
        return fh.scalar_channel("laplace", self.epsilon).reports(means(users), words)


PROTOCOLS = tuple(
    LocalBank.of(made, name)
    for made, name in (
        (LaplaceMean, "bank-ok-laplace-mean"),
        (Opaque, "bank-ok-opaque-mean"),
        (HalfNoise, "bank-half-noise"),
        (HalfRange, "bank-half-range"),
        (FloatLaplace, "bank-float-laplace"),
        (SeedInTheQuestion, "bank-seed-in-the-question"),
        (SeedInTheAnswer, "bank-seed-in-the-answer"),
        (NaNPasses, "bank-nan-passes"),
        (ItemNoise, "bank-item-noise"),
        (FreshNoise, "bank-fresh-noise"),
    )
)
"""One for each query that claims epsilon from everybody."""


@protocol("bank-ok-two-halves")
class TwoHalves(LocalBank):
    """Correct: two disjoint halves of the users, each asked once."""

    ends: ClassVar[tuple[float, float]] = (0.5, 0.5)

    def rounds(self, server: fh.Curator) -> fh.Script:
        first = yield Opaque(self.epsilon, fh.Cohort(3, 0.0, self.ends[0]))
        second = yield Opaque(self.epsilon, fh.Cohort(3, self.ends[1], 1.0))
        return fh.Estimate.ok(first.sums["total"] + second.sums["total"])


@protocol("bank-overlapping-cohorts")
class Overlap(TwoHalves):
    """Two cohorts that overlap by a tenth: those users are asked twice."""

    ends: ClassVar[tuple[float, float]] = (0.55, 0.45)


@protocol("bank-asked-again")
class AskedAgain(LocalBank):
    """Asks everybody the same question in two rounds, each at the whole budget."""

    def rounds(self, server: fh.Curator) -> fh.Script:
        first = yield Opaque(self.epsilon)
        second = yield Opaque(self.epsilon)
        return fh.Estimate.ok(first.sums["total"] + second.sums["total"])
