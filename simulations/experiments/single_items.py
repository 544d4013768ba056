"""One item's count, clipped and debiased: what Figure 4 and Table 2 share. NOT PRIVATE.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, appendix C.4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.codec import protocol_digest
from fedhist.model.evaluation import measured
from fedhist.protocols import PoissonCounts
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.noise import NoiseFactory
from server.session.session import Session
from simulations.runtimes.inline import InlinePopulation

COLUMNS = ("clipping", "clipping + debiasing")


@dataclass(frozen=True)
class Pair:
    """Errors of one item with and without debiasing, relative to its true total.

    ``clipping``, ``debiasing``: mean errors of the runs; ``runs``: (2, R) float64, errors of R real
    runs: clipping, debiasing; ``clips``: (R,) float64, the thresholds they used, the same for both.
    """

    clipping: float
    debiasing: float
    runs: Floats
    clips: Floats

    @property
    def ratio(self) -> float:
        """Expected error with debiasing over that without."""
        return self.debiasing / self.clipping


def only(users: Users, item: str) -> Users:
    """Keep one item of every user; what the clients would do first, done once for many runs."""
    v = users.counts
    owner = np.repeat(np.arange(len(users)), users.n_items())
    mine = v.item == v.vocabulary.position(item)
    return Users.from_counts(
        users.ids, owner[mine], np.zeros(int(mine.sum()), np.int64), v.count[mine], Keys.of([item])
    )


def protocol_for(users: Users, settings: Any, clip: int = 0) -> PoissonCounts:
    """Build the debiasing protocol for the one item of these users; ``clip`` 0: chosen privately.

    As in the paper, it debiases whatever comes, and C is a quantile. The release gets ``epsilon``,
    a private choice of C ``epsilon_choice`` on top of it.
    """
    epsilon, budget = settings.epsilon, settings.epsilon_choice
    fields: dict[str, Any] = {"clip": clip, "epsilon": epsilon}
    if not clip:
        fields = {"epsilon": epsilon + budget, "epsilon_choice": budget, "choice": "quantile"}
        fields["clip_max"] = settings.clip_max
    return PoissonCounts(users.vocabulary, n_users=len(users), guarded=False, **fields)


def compare(protocol: PoissonCounts, users: Users, runs: int, seed: int) -> Pair:
    """Measure clipping against clipping and debiasing. NOT PRIVATE.

    Run r of the one and of the other make the same choice and draw the same noise.

    Raises
    ------
    ValueError
        If nobody has the item: there is no relative error.
    """
    truth = protocol.truth(users)
    if not truth[0]:
        raise ValueError(f"no user has the item {protocol.domain[0]!r}: no relative error")
    both = replace(protocol, debias=False), protocol
    known = [measured(p, users) for p in both]
    losses, clips = np.empty((2, runs)), np.empty(runs)
    name = protocol_digest(protocol)
    ask = InlinePopulation(users.split(1), seed).ask
    for r in range(runs):
        noise = NoiseFactory("simulated", digest64("fedhist.single-items", seed, r, name))
        for k, p in enumerate(both):
            estimate = Session(p, noise).run(ask)
            losses[k, r] = p.loss_of(estimate, users, known=known[k]) / truth[0]
            clips[r] = estimate.public["clip"]
    clipping, debiasing = losses.mean(axis=1).tolist()
    return Pair(clipping, debiasing, losses, clips)


def errors_by_clip(users: Users, settings: Any) -> tuple[Floats, Floats]:
    """Predict the relative errors for given thresholds. NOT PRIVATE.

    Returns
    -------
    clips : (K,) float64
        From 1 to clip_max, and no further than the largest count.
    errors : (2, K) float64
        Clipping; clipping and debiasing.
    """
    largest = float(users.counts.count.max(initial=1))
    every = protocol_for(users, settings).edges
    clips = [int(c) for c in every if c < 2 * largest]
    plain = [replace(protocol_for(users, settings, c), debias=False) for c in clips]
    both = plain, [replace(p, debias=True) for p in plain]
    total = float(plain[0].truth(users)[0])
    errors = np.array([[p.error(users).expected / total for p in ps] for ps in both])
    return np.array(clips, dtype=np.float64), errors
