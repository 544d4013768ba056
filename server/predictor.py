"""The one predictor: runs a protocol some times on known users and averages the loss.

Sums are drawn from their exact law where a query has one (``draw_summary``), so that a run costs
as much as counting. Nothing here feeds a protocol: the result is NOT PRIVATE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clients.answers import added_up
from fedhist.base.arrays import Array
from fedhist.base.errors import PopulationError
from fedhist.base.hashing import digest64
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import protocol_digest, query_digest, summary_arrays
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.model.truths import Prediction
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.noise_law import seeded_gaussian
from fedhist.users.batch import InMemory, Users, keep
from fedhist.users.cohort import Cohort
from fedhist.users.shards import BLOCK, Shard, Wrapped
from server.noise import SimulatedNoise
from server.session.session import Session

RUNS = 30
"""The mean of so many runs has a relative standard error of 1/sqrt(30) = 18% or less for losses
that vary as an exponential law does."""

MOST_ANSWERS = 30_000_000
"""Users times runs: of more than 10^6 users there are fewer runs. Three are the least: fewer say
nothing of a standard error."""

_predicted: dict[tuple[type[Protocol], str, int, float, int], Prediction] = {}


def simulated(
    protocol: Protocol, users: Shard, known: Facts, answering: float = 1.0, runs: int = RUNS
) -> Prediction:
    """Predict the loss by running the protocol. NOT PRIVATE."""
    # by class, too: a notebook may define a protocol of one name and fields again
    key = (type(protocol), protocol_digest(protocol), users.digest, answering, runs)
    if key not in _predicted:
        if len(_predicted) == 256:  # the runs of a study differ in their seeds alone
            _predicted.clear()
        _predicted[key] = _simulated(protocol, users, known, answering, runs)
    return _predicted[key]


def _simulated(
    protocol: Protocol, users: Shard, known: Facts, answering: float, runs: int
) -> Prediction:
    runs = min(runs, MOST_ANSWERS // max(len(users), 1))
    if runs < 3:
        raise PopulationError(
            f"the error of {protocol.name} is predicted by running it: at most "
            f"{MOST_ANSWERS // 3:,} users, got {len(users):,}"
        )
    losses, reason = list[float](), ""
    population = Repeated(users, answering)
    for run in range(runs):
        estimate = population.run(protocol, run)
        if estimate.value is not None:
            losses.append(protocol.loss_of(estimate, users, known=known))
            continue
        reason = estimate.reason
        if estimate.status == "refused":  # from public numbers: all runs refuse
            break
    source = f"mean of {len(losses)} simulated runs"
    if reason:
        source += f"; the others end without an estimate: {reason}"
    if not losses:
        return Prediction(protocol.loss_name, math.inf, "simulated", source)
    stderr = float(np.std(losses, ddof=1) / math.sqrt(len(losses))) if len(losses) > 1 else math.nan
    return Prediction(protocol.loss_name, float(np.mean(losses)), "simulated", source, stderr)


class Repeated:
    """Users in one node who are asked again and again, of whom a share is ``answering``.

    What is the same in all runs is done once: users are made or read, as far as memory goes, and
    cohorts are selected; exact sums that do not vary are kept.
    """

    def __init__(self, users: Shard, answering: float = 1.0) -> None:
        self.users, self.answering = keep(users, 128 << 20)[0], answering
        self._cohorts: dict[Cohort | None, Shard] = {}
        self._exact: dict[str, tuple[Summary, bool]] = {}
        self._kept: dict[str, Any] = {}
        self._laws: dict[str, Callable[[np.random.Generator], Summary] | None] = {}

    def run(self, protocol: Protocol, run: int) -> Estimate:
        """Run a protocol; runs of other numbers have other coins and noise."""
        key = digest64("fedhist.predictor", protocol_digest(protocol), run)
        session = Session(protocol, lambda index: SimulatedNoise(key, index))
        if session.query is None and session.estimate is not None:
            return session.estimate
        present = Cohort(key >> 1, 0.0, self.answering) if self.answering < 1 else None
        return session.run(lambda query, index: self._ask(query, index, key, present))

    def _ask(self, query: Query, index: int, key: int, present: Cohort | None) -> Summary:
        digest = query_digest(query, index)
        if isinstance(query, Aggregated):
            return _with_noise(query, self.sums(query.query, digest, key, present), key, index)
        return self.sums(query, digest, key, present)

    def sums(self, query: Query, digest: str, key: int, present: Cohort | None) -> Summary:
        """Draw or count what the users answer; a copy, because a session wipes exact sums."""
        if query.trust is not Trust.CENTRAL or present is not None:
            return self._draw(query, digest, key, present)
        before, fixed = self._exact.get(digest, (None, False))
        if before is not None and fixed:
            return _copy(before)
        summary = self._draw(query, digest, key, None)
        same = before is not None and _alike(before, summary)
        self._exact[digest] = _copy(summary), same
        return summary

    def _draw(self, query: Query, digest: str, key: int, present: Cohort | None) -> Summary:
        asked = self._of_cohort(query.cohort)
        if present is None and digest not in self._laws:
            whole = query.cohort is None or isinstance(asked, _Selected)
            # a law is of the users it is given: of a cohort, they must have been selected
            self._laws[digest] = query.summary_law(asked, self._kept) if whole else None
        if law := self._laws.get(digest):
            return law(np.random.default_rng(digest64("fedhist.predictor", key, digest)))

        def of(block: Users, number: int) -> Summary:
            rng = np.random.default_rng(digest64("fedhist.predictor", key, digest, number))
            return query.draw_summary(block.select(present), rng)

        return added_up(query, asked, of)

    def _of_cohort(self, cohort: Cohort | None) -> Shard:
        """Return users whose blocks are those of a cohort, selected once if all are in memory."""
        if not isinstance(self.users, Users | InMemory):
            return self.users
        if cohort not in self._cohorts:
            self._cohorts[cohort] = _Selected(self.users, cohort)
        return self._cohorts[cohort]


class _Selected(Wrapped):
    """Users of a cohort, in the blocks of all."""

    def __init__(self, users: Shard, cohort: Cohort | None) -> None:
        super().__init__(users)
        self._blocks = [block.select(cohort) for block in users.blocks()]

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        return iter(self._blocks)


def _with_noise(query: Aggregated, exact: Summary, key: int, index: int) -> Summary:
    """Add the noise of all parties' shares, as the server sees the lifted total."""
    rng = np.random.default_rng(digest64("fedhist.predictor.shares", key, index))
    law = query.noise

    def drawn(shape: tuple[int, ...]) -> Array:
        if law.kind == "discrete-gaussian" or not law.scale:
            return seeded_gaussian(rng, shape, law.scale)
        stop = -math.expm1(-1 / law.scale)
        one, other = (rng.negative_binomial(law.shape, stop, shape) for _ in range(2))
        return np.asarray(one - other)

    sums = {name: a + drawn(a.shape) for name, a in exact.sums.items()}
    return replace(exact, sums=sums, n_users=exact.n_users if query.sends_n else 0)


def _copy(summary: Summary) -> Summary:
    return replace(
        summary,
        sums={k: v.copy() for k, v in summary.sums.items()},
        rows={k: v.copy() for k, v in summary.rows.items()},
        keyed={k: replace(v, values=v.values.copy()) for k, v in summary.keyed.items()},
    )


def _alike(one: Summary, other: Summary) -> bool:
    """Whether two summaries hold the same numbers."""
    a, b = summary_arrays(one), summary_arrays(other)
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
