"""How mechanisms that learn a discrete distribution plug in, and the simplest of them [1]_.

A mechanism is a script without an ending: it asks its queries and returns what it learned, before
the projection to the simplex. :class:`~fedhist.protocols.distributions.distribution.Distribution`
chooses one from public numbers, runs it and projects.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.base.text import warned
from fedhist.model.query import Query, Summary
from fedhist.model.truths import Truth
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.privacy.shares import ShareNoise
from fedhist.protocols.distributions import theory
from fedhist.protocols.distributions.given_users import additive_l1, presence_l1
from fedhist.protocols.shared.central import add_noise
from fedhist.protocols.shared.distribution_target import SeenShares
from fedhist.protocols.shared.item_encodings import ItemCounts, OneItem, Presence
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys
from server.distributions.simplex import CMAX, presence_to_probability


@dataclass(frozen=True)
class DistributionTask:
    """The public numbers that a mechanism works with. Adjacency: one user's record is replaced.

    Parameters
    ----------
    domain : Keys
        The k public symbols.
    m : int
        Samples per user: nobody sends more, and users with exactly m are what theory assumes.
    n_users : int
        s in the paper. All of them answer; the protocol has checked it when ``search`` goes on.
    epsilon, delta : float
        Budget of the whole run. ``delta = 0`` asks for pure differential privacy; ``epsilon =
        inf`` for no noise at all.
    rho : float
        The same budget in zCDP: the largest rho that implies (epsilon, delta); inf without noise.
        NaN where ``delta = 0``: then only ``pure`` mechanisms run.
    delta0 : float
        Slack of delta0-approximate zCDP, a part of delta that was set aside.
    secure : bool
        Whether noise is drawn by exact integer samplers: real-valued noise is then refused.
    discrete : bool
        Integer noise on integer statistics.
    p_max : float
        No symbol is more probable: 1, or what is publicly known.
    trust : Aggregation, optional
        The nodes add the noise, which is as large as that of all of them together.
    """

    domain: Keys
    m: int
    n_users: int
    epsilon: float
    delta: float
    rho: float
    delta0: float = 0.0
    secure: bool = False
    discrete: bool = True
    p_max: float = 1.0
    trust: Aggregation | None = None

    @property
    def k(self) -> int:
        """Number of symbols."""
        return len(self.domain)

    @property
    def touched(self) -> int:
        """Most symbols whose counts one replaced user changes: q = min(k, 2 m)."""
        return min(self.k, 2 * self.m)

    @property
    def private(self) -> bool:
        """False without noise."""
        return not math.isinf(self.epsilon)


@dataclass(frozen=True)
class Learned:
    """What a mechanism returns: private by the ledger, or public.

    Attributes
    ----------
    p : (k,) float64
        Estimate of every symbol's probability, before the projection to the simplex; may be
        negative and need not add up to 1. Not a view of a summary: summaries are wiped.
    warnings : tuple of str
    public : dict
        Released or public numbers.
    """

    p: Floats
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)


Search = Generator[Query, Summary, Learned]
Given = Callable[[DistributionTask, SeenShares, bool], float]
"""Predicts the l1 error on known users, projected or not."""


def _no_floor(task: DistributionTask) -> float:
    return 0.0


def _always(task: DistributionTask) -> bool:
    return True


@dataclass(frozen=True)
class Mechanism:
    """One way to learn a distribution.

    Parameters
    ----------
    name : str
        kebab-case, as in ``mechanism = "ks"``.
    search : callable of (task, curator) to generator
        Yields queries and returns what it learned. It spends at most what ``spends`` says, and all
        of it goes through the Curator.
    error : callable of (task, p, pooled) to float
        Expected l1 distance of ``Learned.p`` (before the projection, which only helps) from

        - ``pooled=False``: the distribution p that every sample was drawn from;
        - ``pooled=True``: the pooled empirical distribution of the users' samples, p being that.
          What is left is what privacy costs, and what the statistic loses besides.

        Reads p (k,) and public numbers. At p uniform it is what the automatic choice compares.
    rounds : int
        Most queries.
    pure : bool
        Whether it works with ``delta = 0``. If not, a task without delta is refused.
    floor : callable of task to float
        Fewest users at which the error formula holds: below it the automatic choice passes the
        mechanism over, and a run by name carries a warning. 0: always. inf: it does not run with
        these numbers at all, and the protocol refuses.
    source : str
        Paper and algorithm.
    given : callable of (task, seen, project) to float, optional
        Expected l1 error against the average of known users' empirical distributions, their sizes
        and the cut to m being taken into account, before the projection to the simplex or after
        it. NOT PRIVATE. None: ``error`` is used.
    automatic : bool
        Whether ``mechanism = "auto"`` may choose it.
    suits : callable of task to bool
        Whether it works for every distribution that the public numbers allow; "auto" asks.
    estimates : Truth
        What it tells of users who differ.
    linear : Additive, optional
        What the mechanism is, where it is noise on the sums of one query, which nodes can add.
        None: it needs exact sums.
    """

    name: str
    search: Callable[[DistributionTask, Curator], Search]
    error: Callable[[DistributionTask, Floats, bool], float]
    rounds: int
    pure: bool
    source: str
    floor: Callable[[DistributionTask], float] = _no_floor
    given: Given | None = None
    automatic: bool = True
    suits: Callable[[DistributionTask], bool] = _always
    estimates: Truth = Truth.AVERAGE_OF_USERS
    linear: Additive | None = None


# -- noise on one linear query ---------------------------------------------------------------------


@dataclass(frozen=True)
class Additive:
    """Noise on the sum of one encoding, for all symbols together.

    Parameters
    ----------
    encoding : {"counts", "one-item", "presence"}
    gaussian : bool
        Gaussian noise for the l2 sensitivity, or Laplace noise for the l1 sensitivity.

    Privacy
    -------
    :meth:`spends` is what is drawn for and charged.
    """

    encoding: Literal["counts", "one-item", "presence"]
    gaussian: bool

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        """Return the (epsilon, delta) that the noise is worth."""
        return task.epsilon, task.delta - task.delta0 if self.gaussian else 0.0

    def law(self, task: DistributionTask) -> NoiseLaw:
        """Law of the noise on each total."""
        if task.trust is not None:
            return self._law_of_shares(task, task.trust)
        m = 1 if self.encoding == "one-item" else task.m
        law = theory.presence_law if self.encoding == "presence" else theory.counts_law
        return law(task.k, m, *self.spends(task), task.discrete)

    def _law_of_shares(self, task: DistributionTask, who: Aggregation) -> NoiseLaw:
        """Law of the shares of all parties."""
        query, (epsilon, delta) = self.query(task), self.spends(task)
        noise = ShareNoise.calibrated(
            "gaussian" if self.gaussian else "laplace",
            sensitivity=query.l2_sensitivity if self.gaussian else query.l1_sensitivity,
            epsilon=epsilon,
            delta=delta,
            honest=who.honest,
        )
        return noise.law(who.parties)

    def addable(self, task: DistributionTask) -> bool:
        """Whether nodes can add the noise: Gaussian shares of few items are too small."""
        try:
            self.law(task)
        except ValueError:
            return False
        return True

    def query(self, task: DistributionTask) -> ItemCounts | OneItem | Presence:
        """Return the one question."""
        if self.encoding == "one-item":
            return OneItem(task.domain)
        return (Presence if self.encoding == "presence" else ItemCounts)(task.domain, task.m)

    def search(self, task: DistributionTask, server: Curator, label: str = "") -> Search:
        """Ask, add noise, divide; ``label`` is the name of the charge, if it has one."""
        summary = yield self.query(task)
        if task.trust is not None:  # nodes may have dropped out of the sum
            task = replace(task, n_users=summary.n_users)
        exact = summary.sums["presence" if self.encoding == "presence" else "counts"]
        learned = self.release(task, server, exact, label)
        return replace(learned, public={**learned.public, "n_users": float(task.n_users)})

    def release(
        self, task: DistributionTask, server: Curator, exact: Array, label: str = ""
    ) -> Learned:
        """Add noise to exact totals, which came with whatever query, and divide."""
        query, (epsilon, delta) = self.query(task), self.spends(task)
        size = query.l2_sensitivity if self.gaussian else query.l1_sensitivity
        noisy = add_noise(server, exact, size, epsilon, delta, discrete=task.discrete, label=label)
        if self.encoding == "presence":
            return _from_presence(noisy, task, self.law(task).std)
        return _from_counts(noisy, task, self._items(task), self.law(task).std)

    def error(self, task: DistributionTask, p: Floats, pooled: bool) -> float:
        """Predict the expected l1 error; see :class:`Mechanism`."""
        law, m, n = self.law(task), task.m, task.n_users
        if self.encoding == "presence":
            return theory.presence_error(p, m, n, law, pooled, CMAX)
        if self.encoding == "one-item":
            return theory.one_item_error(p, m, n, law, pooled)
        return theory.counts_error(p, m, n, law, pooled)

    def given(self, task: DistributionTask, seen: SeenShares, project: bool) -> float:
        """Predict the expected l1 error on known users. NOT PRIVATE."""
        law, n, m = self.law(task), task.n_users, self._items(task)
        if self.encoding == "presence":
            mean, variance = seen.moments(lambda u: theory.presence_moments(u, task.domain, m))
            return presence_l1(seen.shares, mean, np.sqrt(variance), m, n, law, CMAX, project)
        mean, variance = seen.moments(lambda u: theory.cut_moments(u, task.domain, m))
        return additive_l1(seen.shares, mean, variance, n * m, law, project)

    def _items(self, task: DistributionTask) -> int:
        """Return how many items a user sends."""
        return 1 if self.encoding == "one-item" else task.m


def _from_counts(noisy: Array, task: DistributionTask, m: int, std: float) -> Learned:
    """Divide noisy counts by s m, and compare their sum with 1; post-processing."""
    whole = task.n_users * m
    p = np.asarray(noisy, dtype=np.float64) / whole
    mass = float(p.sum())
    warnings: tuple[str, ...] = ()
    if mass < 1 - 5 * std / whole * math.sqrt(task.k) - 1e-9:
        warnings = (
            warned(
                f"the noisy counts add up to {mass:.3g} of n_users times samples_per_user",
                "users have fewer items, and what is missing is spread evenly: shares are drawn "
                "towards the uniform distribution",
                "lower samples_per_user, or take ragged-distribution",
            ),
        )
    return Learned(p, warnings, {"mass": mass, "noise_std": std / whole})


def _from_presence(noisy: Array, task: DistributionTask, std: float) -> Learned:
    """Read noisy presence totals as probabilities; post-processing."""
    p = presence_to_probability(noisy, task.n_users, task.m)
    capped = int((noisy >= -math.expm1(-CMAX) * task.n_users).sum())
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
    mass, noise = float(p.sum()), std / (task.n_users * task.m)
    if not capped and mass < 0.95 - 5 * noise * math.sqrt(task.k):
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


MOST_PRESENT = 2.0
"""Up to this m p presence tells how probable a symbol is: one user in seven still lacks it."""


def _tells(task: DistributionTask) -> bool:
    return task.m * task.p_max <= MOST_PRESENT


def additive(name: str, how: Additive, source: str, *, automatic: bool = False) -> Mechanism:
    """Make the mechanism of one linear query with noise."""
    presence = how.encoding == "presence"
    return Mechanism(
        name,
        how.search,
        how.error,
        rounds=1,
        pure=not how.gaussian,
        source=source,
        given=how.given,
        automatic=automatic,
        suits=_tells if presence else _always,
        estimates=Truth.COMMON if presence else Truth.AVERAGE_OF_USERS,
        linear=how,
    )


LEMMA, ALGORITHM = "Liu et al., NeurIPS 2020, Lemma 1", "Liu et al., NeurIPS 2020, Algorithm 4"

MECHANISMS = (
    additive("laplace", Additive("counts", gaussian=False), LEMMA, automatic=True),
    additive("gaussian", Additive("counts", gaussian=True), LEMMA, automatic=True),
    additive("one-item", Additive("one-item", gaussian=False), f"{LEMMA} at m = 1"),
    additive("presence", Additive("presence", gaussian=True), ALGORITHM, automatic=True),
    additive("presence-laplace", Additive("presence", gaussian=False), ALGORITHM, automatic=True),
)
"""Counts, one item, and presence."""
