"""How mechanisms that learn a discrete distribution plug in, and the simplest of them [1]_.

A mechanism is a script without an ending: it asks its queries and returns what it learned, before
the projection to the simplex.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from scipy.special import erfcx

from clients.distributions.queries import ExceedanceCounts, ItemCounts
from fedhist.base.arrays import Array, Floats
from fedhist.base.errors import warned
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, zcdp_rho
from fedhist.privacy.noise_law import NoiseLaw, noise_per_sensitivity
from fedhist.privacy.shares import Aggregation, ShareNoise
from fedhist.users.keys import Keys
from server.session.curator import Curator
from server.targets.domains import CMAX, presence_to_probability
from server.trust import add_noise

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""E|N(0, 1)|."""


@dataclass(frozen=True)
class DistributionTask:
    """The public numbers that a mechanism works with; adjacency: one record is replaced."""

    domain: Keys
    m: int
    n_users: int
    epsilon: float
    delta: float
    discrete: bool = True
    p_max: float = 1.0
    trust: Aggregation | None = None

    @property
    def k(self) -> int:
        """Number of symbols."""
        return len(self.domain)

    @property
    def rho(self) -> float:
        """The largest rho of zCDP that implies (epsilon, delta); for ``delta > 0``."""
        return zcdp_rho(self.epsilon, self.delta)

    @property
    def touched(self) -> int:
        """Most symbols whose counts one replaced user changes: q = min(k, 2 m)."""
        return min(self.k, 2 * self.m)


@dataclass(frozen=True)
class Learned:
    """What a mechanism returns: private by the ledger, or public.

    ``p`` is before the projection to the simplex, and no view of a summary: summaries are wiped.
    """

    p: Floats
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)


Search = Generator[Query, Summary, Learned]


@dataclass(frozen=True)
class Mechanism(ABC):
    """One way to learn a distribution; ``linear``: noise on one query's sums."""

    rounds: ClassVar[int] = 1
    linear: ClassVar[bool] = False

    name: str

    @property
    @abstractmethod
    def pure(self) -> bool:
        """Whether it needs no delta."""

    @property
    def estimates(self) -> Truth:
        """What the estimate is about."""
        return Truth.AVERAGE_OF_USERS

    @abstractmethod
    def search(self, task: DistributionTask, server: Curator) -> Search:
        """Ask, release, and return what was learned."""

    @abstractmethod
    def error(self, task: DistributionTask) -> float:
        """Predict the l1 error of ``Learned.p`` at p uniform, which is compared."""

    def floor(self, task: DistributionTask) -> float:
        """Fewest users at which the error formula holds; inf: it does not run at all."""
        return 0.0

    def suits(self, task: DistributionTask) -> bool:
        """Whether "auto" may choose it at these public numbers."""
        return True


def all_answer(
    search: Generator[Query, Summary, Learned | Estimate],
    n_users: int,
    *,
    may_drop: bool = False,
) -> Generator[Query, Summary, Learned | Estimate]:
    """Pass a mechanism's queries on, and check after each that all users answered."""
    query = next(search)
    while True:
        summary = yield query
        n = summary.n_users
        if n != n_users and not (may_drop and n):
            search.close()
            return Estimate.failed(
                f"{n} users answered, but n_users = {n_users}: the estimate divides by n_users, so "
                "set it to the number of users who will answer; nothing was released from this "
                "round",
                public={"n_users": float(n)},
            )
        try:
            query = search.send(summary)
        except StopIteration as stop:
            learned: Learned | Estimate = stop.value
            return learned


# -- noise on one linear query ---------------------------------------------------------------------


@dataclass(frozen=True)
class Additive(Mechanism):
    """Noise on the sum of one encoding, Gaussian or Laplace; :meth:`spends` is what is charged."""

    linear: ClassVar[bool] = True

    encoding: Literal["counts", "one-item", "presence"] = "counts"
    gaussian: bool = False

    @property
    def pure(self) -> bool:
        return not self.gaussian

    @property
    def estimates(self) -> Truth:
        return Truth.COMMON if self.encoding == "presence" else Truth.AVERAGE_OF_USERS

    def suits(self, task: DistributionTask) -> bool:
        """Up to m p = 2 presence tells how probable a symbol is: one in seven users lacks it."""
        return self.encoding != "presence" or task.m * task.p_max <= 2

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        """Return the (epsilon, delta) that the noise is worth."""
        return task.epsilon, task.delta if self.gaussian else 0.0

    def query(self, task: DistributionTask) -> ItemCounts | ExceedanceCounts:
        """Return the one question."""
        if self.encoding == "presence":
            return ExceedanceCounts(task.domain, task.m, (0,))
        return ItemCounts(task.domain, self._items(task))

    def sensitivity(self, task: DistributionTask) -> float:
        """Of the query's sums, in the norm that the noise is for, under replacement."""
        norm = 2 if self.gaussian else 1
        return self.query(task).integer_sensitivity(norm, Adjacency.REPLACE_USER)

    def law(self, task: DistributionTask) -> NoiseLaw:
        """Law of the noise on each total; under aggregate trust that of all parties' shares."""
        size, (epsilon, delta) = self.sensitivity(task), self.spends(task)
        if task.trust is not None:
            noise = ShareNoise.calibrated(
                "gaussian" if self.gaussian else "laplace",
                sensitivity=size,
                epsilon=epsilon,
                delta=delta,
                honest=task.trust.honest,
            )
            return noise.law(task.trust.parties)
        unit = noise_per_sensitivity(epsilon, delta, task.discrete, size)
        return NoiseLaw(unit.kind, unit.scale * size)

    def addable(self, task: DistributionTask) -> bool:
        """Whether nodes can add the noise: Gaussian shares of few items are too small."""
        try:
            self.law(task)
        except ValueError:
            return False
        return True

    def search(self, task: DistributionTask, server: Curator, label: str = "") -> Search:
        query = self.query(task)
        summary = yield query
        if task.trust is not None:  # nodes may have dropped out of the sum
            task = replace(task, n_users=summary.n_users)
        counts = isinstance(query, ItemCounts)
        exact = summary.sums["counts"] if counts else summary.sums["users"][:, 0]
        size, (epsilon, delta) = self.sensitivity(task), self.spends(task)
        noisy = add_noise(server, exact, size, epsilon, delta, discrete=task.discrete, label=label)
        read = self._from_counts if counts else _from_presence
        learned = read(noisy, task, self.law(task).std)
        return replace(learned, public={**learned.public, "n_users": float(task.n_users)})

    def error(self, task: DistributionTask) -> float:
        """Predict the l1 error at p uniform: k E|G + Z| / (s m), Var G = s m p (1 - p)."""
        s, k, law = task.n_users, task.k, self.law(task)
        if self.encoding == "presence":
            return presence_error(k, task.m, s, law)
        whole, p = s * self._items(task), 1 / k
        return k * mean_absolute(math.sqrt(whole * p * (1 - p)), law) / whole

    def _items(self, task: DistributionTask) -> int:
        """Return how many items a user sends."""
        return 1 if self.encoding == "one-item" else task.m

    def _from_counts(self, noisy: Array, task: DistributionTask, std: float) -> Learned:
        """Divide noisy counts by s m, or by their sum where that is surely less."""
        whole = task.n_users * self._items(task)
        p = np.asarray(noisy, dtype=np.float64) / whole
        mass, sure = float(p.sum()), 5 * std / whole * math.sqrt(task.k) + 1e-9
        warnings: tuple[str, ...] = ()
        if mass < 1 - sure:
            p /= max(mass, sure)
            warnings = (
                warned(
                    f"the noisy counts add up to {mass:.3g} of n_users times samples_per_user",
                    "users have fewer items, and whoever has more of them weighs more",
                    "lower samples_per_user, or take ragged-distribution",
                ),
            )
        return Learned(p, warnings, {"mass": mass, "noise_std": std / whole})


def mean_absolute(std: float, law: NoiseLaw) -> float:
    """E|G + Z| for a Gaussian G and noise Z, taken as real-valued; exact.

    >>> mean_absolute(0.0, NoiseLaw("laplace", 3.0)), mean_absolute(3.0, NoiseLaw("gaussian", 4.0))
    (3.0, 3.989422804014327)
    """
    if law.kind in ("gaussian", "discrete-gaussian"):
        return MEAN_ABSOLUTE * math.hypot(std, law.std)
    b = law.std / math.sqrt(2)
    return MEAN_ABSOLUTE * std + (b * float(erfcx(std / (b * math.sqrt(2)))) if b else 0.0)


def presence_error(k: int, m: int, n_users: float, law: NoiseLaw) -> float:
    """Predict the l1 error at p uniform of probabilities read from presence.

    The totals have Var G = s q (1 - q), q = (1 - p)^m, and the estimate has the slope (1 - p) / (m
    q) in them. No estimate is above 1 - e^(-cmax / m), nor below 0: noise of mean a that is wider
    than p loses E(Z - p)^+ = (a / 2) e^(-p / a) by that (exact for Laplace noise, and for p = 0).
    """
    p = 1 / k
    q = (1 - p) ** m
    slope = (1 - p) / (m * max(q, math.exp(-CMAX)))
    off = slope * mean_absolute(math.sqrt(n_users * q * (1 - q)), law) / n_users
    off *= 1 - math.exp(-p / off) / 2 if off else 1.0
    most = -math.expm1(-CMAX / m)
    return k * max(min(off, most), p - most)


def _from_presence(noisy: Array, task: DistributionTask, std: float) -> Learned:
    """Read noisy presence totals as probabilities; post-processing."""
    p = presence_to_probability(noisy, task.n_users, task.m)
    capped = int((noisy >= -math.expm1(-CMAX) * task.n_users).sum())
    mass, noise = float(p.sum()), std / (task.n_users * task.m)
    warnings: tuple[str, ...] = ()
    if capped:
        warnings = (
            warned(
                f"nearly all users have {capped} of {task.k} symbols",
                f"presence says no more of these than that p is about {p.max():.3g} or larger, and "
                "their shares are too low",
                'lower samples_per_user, or take mechanism = "laplace"',
            ),
        )
    elif mass < 0.95 - 5 * noise * math.sqrt(task.k):
        warnings = (
            warned(
                f"the probabilities read from presence add up to {mass:.3g}",
                "users hold fewer different symbols than users of one distribution would, or fewer "
                "items than samples_per_user, and rare symbols are taken for rarer than they are",
                'take mechanism = "laplace"',
            ),
        )
    public = {"noise_std": std / task.n_users, "capped": float(capped), "mass": mass}
    return Learned(p, warnings, public)


LAPLACE = Additive("laplace")
