"""The default of a sparse mean: whole vectors find the coordinates, and refine what they found.

Users report where their mean leans, as one vector by ranks, until s coordinates stand out of the
noise, or half of the users have been asked. The others report the coordinates that came out, and a
few more where it is doubtful which: stage by stage, around what earlier ones said. Fresh users'
values have no selection bias. Own idea.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from clients.records.vectors import BoxMean, Leaning
from fedhist.base.arrays import Floats, Integers
from fedhist.base.hashing import digest64
from fedhist.base.text import warned
from fedhist.channels.rank_unit import RankUnit
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.protocols.centred.queries import RankReports
from fedhist.protocols.centred.script import centred_mean
from fedhist.users.cohort import Cohort
from server.means.centred import MOST_STAGES, CentredPlan, plan_centred
from server.means.support import pick_support, selection_level

LOOKS = (0.1, 0.25, 0.5)
"""Shares of the users after which it is asked whether enough coordinates stand out: at least half
of them refine."""
NOT_LOST = 2.0
"""Deviations that chance reaches once in 40 runs: so far above the level of the largest noise a
coordinate is sure, so far from 0 it is worth a look."""
MOST_ROUNDS = len(LOOKS) + 2 * MOST_STAGES - 1
MOST_DIMENSION = 1 << 12
"""A report costs its client some hundreds of operations for every coordinate."""


@dataclass(frozen=True)
class VectorSetting:
    """Public numbers of the rounds: ``scale`` is that of a coordinate of a user's mean; s < d."""

    n_users: float
    scale: float
    dimension: int
    sparsity: int
    radius: float
    epsilon: float
    salt: int

    @property
    def part(self) -> Leaning:
        """What the first users are asked."""
        most = math.sqrt(2 * math.log(self.dimension))  # what noise reaches
        return Leaning(self.dimension, self.radius, self.scale, most)

    @property
    def level(self) -> float:
        """Deviations of a score that noise does not reach."""
        return selection_level(self.dimension, self.sparsity)

    @property
    def unit(self) -> float:
        """Variance of one user's report in a coordinate."""
        return RankUnit(self.epsilon, self.dimension).v / self.dimension

    def plan(self, columns: int, share: float) -> CentredPlan:
        """Plan the means of so many columns by a share of the users."""
        root = math.sqrt(columns)
        sigma, radius = self.scale * root, self.radius * root
        return plan_centred(self.n_users * share, sigma, radius, self.epsilon, columns)

    def lead(self, b: Floats, share: float) -> Floats:
        """Planned scores of s signals of amplitudes b by a share of the users: (k,) deviations."""
        d, s, R = self.dimension, self.sparsity, self.radius / self.scale
        x, noise = np.minimum(b / self.scale, self.part.most), min(R, self.part.most, 1.0)
        signal, other = np.sinh(x) ** 2, math.sinh(noise) ** 2
        told = self.n_users * share / self.unit
        return np.asarray(np.sqrt(told * signal / (s * signal + (d - s) * other)))

    # -- the script

    def find(self) -> Generator[Query, Summary, tuple[Floats, float]]:
        """Ask where the users lean: (d,) scores in standard deviations, and the share asked."""
        d, before, total, n = self.dimension, 0.0, np.zeros(self.dimension), 0
        points, z = digest64("fedhist.leaning", self.salt) >> 1, np.zeros(self.dimension)
        for share in LOOKS:
            cohort = Cohort(self.salt, before, share)
            query = RankReports(self.part, np.zeros(d), 1.0, self.epsilon, cohort, points)
            reports = yield query
            total, before = total + reports.n_users * query.estimate(reports), share
            n += reports.n_users
            z = total / math.sqrt(self.unit * max(n, 1))
            if self.sure(z) >= self.sparsity:
                break
        return z, before

    def sure(self, z: Floats) -> int:
        """Count the coordinates that stand out."""
        return int(np.count_nonzero(np.abs(z) >= self.level + NOT_LOST))

    def candidates(self, z: Floats) -> Integers:
        """Pick the coordinates to refine: (k,) int64, increasing, s <= k <= 2 s if enough show.

        As many more than s as there are places that nothing sure takes.
        """
        s = self.sparsity
        most = s + max(0, s - self.sure(z))
        return pick_support(np.abs(z), most, NOT_LOST)

    def project(self, value: Floats) -> Floats:
        """Clip a vector to the box, which holds the mean."""
        return np.clip(value, -self.radius, self.radius)

    def kept(self, value: Floats, z: Floats, stderr: float) -> Floats:
        """Zero what both rounds leave to noise, and all but the s largest: (k,), in the box."""
        size = np.abs(value)
        least = stderr * math.sqrt(2 * math.log(2 * len(value)))
        good = (size >= least) | (np.abs(z) >= self.level)
        found = pick_support(np.where(good, size, -1.0), self.sparsity, 0.0)
        out = np.zeros_like(value)
        out[found] = self.project(value[found])
        return out

    def rounds(self) -> Generator[Query, Summary, Estimate]:
        """Find, then refine."""
        z, share = yield from self.find()
        columns = self.candidates(z)
        public = {"share_select": share, "selected": float(len(columns))}
        if not len(columns):
            return none_found(self.dimension, public)
        plan = self.plan(len(columns), 1 - share)
        part = BoxMean(self.dimension, self.radius, columns)
        found = yield from centred_mean(
            part, plan, epsilon=self.epsilon, salt=self.salt, lo=share, hi=1.0, project=self.project
        )
        if isinstance(found, Estimate):
            return found
        public |= found.public
        value, stderr = np.zeros((2, self.dimension))
        value[columns] = self.kept(found.value, z[columns], found.stderr)
        if not value.any():
            return none_found(self.dimension, public, found.warnings)
        stderr[value != 0] = math.sqrt(found.error / len(columns))
        return Estimate.ok(value, stderr=stderr, public=public, warnings=found.warnings)


def none_found(
    dimension: int, public: dict[str, float], warnings: tuple[str, ...] = ()
) -> Estimate:
    """Estimate 0 everywhere, and say why."""
    zero = np.zeros(dimension)
    told = warned(
        "no coordinate was selected",
        "the estimate is 0 everywhere, since no signal was seen above the noise",
        "more users or a larger epsilon show smaller signals",
    )
    return Estimate.ok(zero, stderr=zero.copy(), public=public, warnings=(*warnings, told))
