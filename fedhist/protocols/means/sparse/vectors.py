"""The default of a sparse mean: whole vectors find the coordinates, and refine what they found.

Users report where their mean leans, as one vector by ranks, until s coordinates stand out of the
noise, or half of the users have been asked. The others report the coordinates that came out, and a
few more where it is doubtful which: stage by stage, around what earlier ones said. Fresh users'
values have no selection bias. Own idea.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from clients.records.vectors import BoxMean, Leaning
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.hashing import digest64
from fedhist.base.text import warned
from fedhist.channels.rank_unit import RankUnit
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.protocols.centred.queries import RankReports
from fedhist.protocols.centred.script import centred_mean
from fedhist.protocols.centred.theory import Spread, simulated_loss
from fedhist.users.cohort import Cohort
from server.means.centred import MOST_STAGES, CentredPlan, plan_centred
from server.means.support import pick_support, selection_level

LOOKS = (0.1, 0.25, 0.5)
"""Shares of the users after which it is asked whether enough coordinates stand out."""
LEAN, BEYOND = 1.25, 0.5
"""Of :class:`~clients.records.vectors.Leaning`, the latter over sqrt(2 log d), which noise
reaches."""
SURE, DOUBTFUL = 1.5, 1.5
"""Deviations above the level of noise of a coordinate that is sure; those of one worth a look."""
CAUTION = 1.5
"""Times sqrt(2 log(2 k)) deviations, for a value that is kept on its own evidence."""
MOST_ROUNDS = len(LOOKS) + 2 * MOST_STAGES - 1
MOST_DIMENSION = 1 << 12
"""A report costs its client some hundreds of operations for every coordinate."""
_RUNS, _SETS, _REFINED = 256, 12, 24


@dataclass(frozen=True)
class VectorSetting:
    """Public numbers of the rounds.

    Parameters
    ----------
    n_users : float
    scale : float
        Standard deviation of a coordinate of a user's mean.
    dimension, sparsity : int
        d and s < d.
    radius, epsilon : float
    salt : int
    """

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
        most = math.sqrt(2 * math.log(self.dimension)) + BEYOND
        return Leaning(self.dimension, self.radius, self.scale, LEAN, most)

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

    @property
    def useful(self) -> bool:
        """Whether there is an amplitude at which half of the error of the estimate 0 is expected.

        Signals of the radius, by half of the users each: found, and refined to that.
        """
        s, last = self.sparsity, LOOKS[-1]
        found = self.lead(np.array([self.radius]), last)[0] >= self.level
        return bool(found) and 2 * self.plan(s, 1 - last).risk < s * self.radius**2

    def lead(self, b: Floats, share: float) -> Floats:
        """Planned scores of s signals of amplitudes b by a share of the users: (k,) deviations."""
        d, s, R = self.dimension, self.sparsity, self.radius / self.scale
        x, noise = np.minimum(b / self.scale, self.part.most), min(R, self.part.most, 1.0)
        signal, other = np.sinh(LEAN * x) ** 2, math.sinh(LEAN * noise) ** 2
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
        return int(np.count_nonzero(np.abs(z) >= self.level + SURE))

    def candidates(self, z: Floats) -> Integers:
        """Pick the coordinates to refine: (k,) int64, increasing, s <= k <= 2 s if enough show.

        As many more than s as there are places that nothing sure takes.
        """
        s = self.sparsity
        most = s + max(0, s - self.sure(z))
        return pick_support(np.abs(z), most, DOUBTFUL)

    def project(self, value: Floats) -> Floats:
        """Clip a vector to the box, which holds the mean."""
        return np.clip(value, -self.radius, self.radius)

    def kept(self, value: Floats, z: Floats, stderr: float) -> Floats:
        """Zero what both rounds leave to noise, and all but the s largest: (k,), in the box.

        Parameters
        ----------
        value, z : (k,) float64
            Of the candidates.
        stderr : float
        """
        size = np.abs(value)
        least = CAUTION * stderr * math.sqrt(2 * math.log(2 * len(value)))
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

    # -- evaluation

    def error(
        self, truth: Array, leaning: Floats, columns: Integers, own: Floats, n_users: int
    ) -> float:
        """Predict the squared l2 error: the rounds in normal noise. NOT PRIVATE.

        Parameters
        ----------
        truth : (d,) float64
        leaning : (d,) float64
            The users' mean direction.
        columns : (k,) int64
            Those whose means are at hand; another one stands for all of the rest.
        own : (n, k + 1) float64
            Users' own means in these, and in another one; NaN for none.
        n_users : int
        """
        rng, d = np.random.default_rng(11), self.dimension
        seen = Counter[tuple[float, tuple[int, ...]]]()
        scores: dict[tuple[float, tuple[int, ...]], Floats] = {}
        for _ in range(_RUNS):
            total, before = np.zeros(d), 0.0
            z = total
            for share in LOOKS:
                n = n_users * (share - before)
                total = total + n * leaning + math.sqrt(self.unit * n) * rng.standard_normal(d)
                before = share
                z = total / math.sqrt(self.unit * n_users * share)
                if self.sure(z) >= self.sparsity:
                    break
            key = before, tuple(self.candidates(z).tolist())
            seen[key] += 1
            scores[key] = z
        most = seen.most_common()
        often, others = most[:_SETS], most[_SETS:]  # near the level of noise most sets come up once
        squares, place = np.square(truth), {int(c): i for i, c in enumerate(columns)}

        def refined(key: tuple[float, tuple[int, ...]], seed: int = 1) -> float:
            """Error in these columns."""
            share, some = key
            if not some:
                return 0.0
            at = np.array(some)
            rows = [
                own[:, place[c]] if c in place else np.roll(own[:, -1], 7 * i)
                for i, c in enumerate(some)
            ]
            vectors = np.column_stack(rows)
            good = ~np.isnan(vectors).any(axis=1)
            usable = float(good.mean())
            plan, z = self.plan(len(some), 1 - share), scores[key][at]
            n = round(n_users * (1 - share))
            spread = Spread(usable * truth[at], vectors[good], usable, n)
            stderr = math.sqrt(plan.risk / len(some))

            def loss(value: Floats) -> float:
                return float(np.square(self.kept(value, z, stderr) - truth[at]).sum())

            return simulated_loss(
                spread,
                plan,
                loss,
                epsilon=self.epsilon,
                project=self.project,
                runs=_REFINED,
                seed=seed,
            )

        def missed(key: tuple[float, tuple[int, ...]]) -> float:
            return float(squares.sum() - squares[list(key[1])].sum())

        within = sum(count * refined(key) for key, count in often)
        if others:
            some = others[:: math.ceil(len(others) / _SETS)]
            counts = [count for _, count in some]
            rest = sum(count for _, count in others)
            # the same noise in all of them would not average out
            found = [refined(key, seed) for seed, (key, _) in enumerate(some, 2)]
            within += rest * float(np.average(found, weights=counts))
        return (within + sum(count * missed(key) for key, count in most)) / _RUNS


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
