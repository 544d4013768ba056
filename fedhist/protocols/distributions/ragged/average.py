"""The average of the users' own distributions, whatever their sizes and tastes.

"frequencies": noise on the sum of every user's own shares N / m_u. "centred": the same as a
centre, and then the users' offsets from it
(:mod:`fedhist.protocols.distributions.centred_release`). Neither assumes anything of the users: all
of them count, and each counts the same.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from clients.bounding.sampling import MOST_CLIP
from fedhist.base.arrays import Floats, Integers
from fedhist.base.text import warned
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.privacy.adjacency import ONE_COUNT, Moves
from fedhist.privacy.guarantee import Adjacency
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions.centred_release import AskShares, CentredTask, centred
from fedhist.protocols.distributions.mechanisms import Learned, Search
from fedhist.protocols.distributions.ragged.encodings import size_query
from fedhist.protocols.distributions.ragged.own_shares import STEPS, OwnShares, neighbours
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys

COUNT_SHARE = 0.02
"""Part of epsilon for the number of users, where that is private."""


@dataclass(frozen=True)
class AverageTask:
    """The public side of an average.

    Attributes
    ----------
    domain : Keys
    n_users : int or None
        s, where it is public.
    m_max : int
        Public bound on the number of samples, or a released number of many users: the least radius
        of offsets follows from it.
    adjacency : Adjacency
    epsilon, delta : float
        What may be spent.
    rho : float
        The same in zCDP, after what all releases before have cost in it; 0 without delta.
    """

    domain: Keys
    n_users: int | None
    m_max: int
    adjacency: Adjacency
    epsilon: float
    delta: float
    rho: float = 0.0

    @property
    def counts_users(self) -> bool:
        """Whether the number of users is asked for first."""
        return self.n_users is None

    @property
    def rest(self) -> float:
        """Epsilon that is left for shares."""
        return self.epsilon * (1 - COUNT_SHARE) if self.counts_users else self.epsilon

    def of_size(self, size: int) -> AverageTask:
        """Return the same for users of about ``size`` samples; 0: not known."""
        return replace(self, m_max=size) if size else self

    def law(self, n_users: float, epsilon: float) -> NoiseLaw:
        """Law of the noise on each share that ``epsilon`` is spent on."""
        scale = STEPS * neighbours(self.adjacency, len(self.domain)) / epsilon
        return NoiseLaw("discrete-laplace", scale, 1 / (n_users * STEPS))

    def centred(self, n_users: float) -> CentredTask:
        """Say what centred counts of the users' own shares work with."""
        return CentredTask(
            self.domain,
            self.m_max,
            MOST_CLIP,
            own=True,
            n_users=n_users,
            epsilon=self.rest,
            delta=self.delta,
            rho=max(0.0, self.rho - (self.epsilon - self.rest) ** 2 / 2),
            neighbours=2 if self.adjacency is Adjacency.REPLACE_USER else 1,
        )


def frequencies(task: AverageTask, server: Curator) -> Search:
    """Release everybody's shares; one round, and one before it where the users are not known.

    Privacy
    -------
    epsilon-DP: the sum of own shares moves by 2 rows in l1 under replacement, else by 1.
    """
    n_users = yield from users_of(task, server)
    return (yield from own_shares(task, n_users, server)(task.rest, "frequencies"))


def centred_shares(task: AverageTask, server: Curator) -> Search:
    """Release offsets of everybody's shares from a centre; at most three rounds, and the count's.

    Privacy
    -------
    (epsilon, delta)-DP: that of :func:`centred` with rows of own shares. A released number of users
    decides which composition the offsets hold by: then (epsilon, 2 delta), whose half is given.
    """
    n_users = yield from users_of(task, server)
    ask = own_shares(task, n_users, server)
    return (yield from centred(task.centred(n_users), server, ask))


def users_of(task: AverageTask, server: Curator) -> Generator[Query, Summary, float]:
    """Return the public number of users, or a noisy one of those who have items."""
    if task.n_users is not None:
        return float(task.n_users)
    summary = yield size_query(task.domain, 1)
    noisy = server.discrete_laplace(
        summary.sums["weight"].sum(keepdims=True),
        l1_sensitivity=1,
        epsilon=task.epsilon - task.rest,
        label="users",
        moves=ONE_COUNT,
    )
    return max(1.0, float(noisy[0]))


def own_shares(task: AverageTask, n_users: float, server: Curator) -> AskShares:
    """Make the round that asks for own shares and divides by the number of users."""

    def ask(epsilon: float, label: str) -> Generator[Query, Summary, Learned]:
        query = OwnShares(task.domain)
        summary = yield query
        noisy = server.discrete_laplace(
            summary.sums["steps"],
            l1_sensitivity=query.l1_sensitivity(task.adjacency),
            epsilon=epsilon,
            label=label,
            moves=Moves.of(query.l1_sensitivity),
        )
        return from_steps(noisy, n_users, task.law(n_users, epsilon).std)

    return ask


def from_steps(noisy: Integers, n: float, std: float) -> Learned:
    """Divide by the number of users, or of those who have items where they are clearly fewer."""
    p: Floats = np.asarray(noisy, dtype=np.float64) / (n * STEPS)
    mass = float(p.sum())
    public = {"mass": mass, "noise_std": std}
    if mass < 1 - 5 * std * math.sqrt(len(p)) - 2.0**-20 * len(p):
        if mass > 5 * std * math.sqrt(len(p)):
            p = p / mass
        words = warned(
            f"about {100 * (1 - mass):.3g} % of the users have no items in the domain",
            "they are left out, and the average is that of the others",
            "enlarge the domain if they should count",
        )
        return Learned(p, (words,), public)
    return Learned(p, (), public)


def all_answer(
    search: Search, n_users: int | None
) -> Generator[Query, Summary, Learned | Estimate]:
    """Pass queries on, and check after each that all users answered if their number is public."""
    query = next(search)
    while True:
        summary = yield query
        if n_users is not None and summary.n_users != n_users:
            search.close()
            return Estimate.failed(
                f"{summary.n_users} users answered, but n_users = {n_users}: set it to the number "
                "of users who will answer; nothing was released from this round"
            )
        try:
            query = search.send(summary)
        except StopIteration as stop:
            learned: Learned = stop.value
            return learned
