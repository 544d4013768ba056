"""End to end: whole runs of a protocol whose server adds up, on two neighbouring populations.

A run is one draw, and what it publishes is the answer: :mod:`simulations.audit.published`. The two
populations are those that the protocol names, or else those of :mod:`simulations.audit.neighbours`
that a run with the same noise shows to lie furthest apart. The bound is certified on fresh runs,
like that of a client half.

What statuses may say. A refusal depends on public numbers only (the session enforces that it comes
before any question), so refusing reveals nothing. A failure and a run that breaks off come after
exact answers were seen: their probability is a part of the mechanism's law and is audited as such,
with every word of the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedhist.base.errors import BudgetExceeded
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query
from fedhist.privacy.guarantee import Trust
from fedhist.session.session import Session
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams
from simulations.audit.bounds import epsilon_low
from simulations.audit.drawing import Drawer, Pair
from simulations.audit.finding import Case, Finding, Settings, Witness
from simulations.audit.learning import best_event, tally
from simulations.audit.neighbours import Changes, Population, named
from simulations.audit.published import VIEWS, Layout, Run, Runs
from simulations.audit.search import SEARCH_Z, kept_features
from simulations.audit.statistical import certify
from simulations.audit.transcript import asked_of, checked, population_of
from simulations.runs.run import NoiseFactory

RUNS = 1 << 13
"""Certifying runs of each population where the claim is nearly reached; an eighth elsewhere."""
_NOBODY = Users.from_samples([0], [0, 1], [0.0])


def audit_central(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Audit the released estimate, the choices, the statuses and the support of whole runs."""
    guarantee = protocol.guarantee
    if guarantee.trust is not Trust.CENTRAL or not guarantee.private:
        return
    claim, subject = (guarantee.epsilon, guarantee.delta), f"{protocol.name}: whole runs"
    asked = asked_of(protocol, protocol.example_users(), settings.seed, broken=True)
    if isinstance(asked.end, BudgetExceeded):
        return  # the structural check has seen the same run
    pair = _pair(protocol, asked.queries, settings)
    try:
        estimates = _probe(protocol, pair)
    except BudgetExceeded as stop:
        event = f"the run's own ledger stops it: {stop}"
        witness = Witness(("any population", "any other"), event)
        yield Finding.judge(subject, "structural", claim, math.inf, 1.0, witness)
        return
    layout = Layout.of(estimates, _names(pair))
    both = tuple(Runs(protocol, p.users, settings.seed) for p in pair)
    n = max(int(RUNS * settings.effort), 256)
    for view in VIEWS:
        case = Case(f"{protocol.name}: {view}", claim, settings, "end to end")
        yield _audit_view(case, layout, view, both, pair, n)


def _pair(
    protocol: Protocol, queries: Sequence[Query], settings: Settings
) -> tuple[Population, Population]:
    """Take the pair that the protocol names, or the one that runs of one noise tell apart best."""
    pair = None if settings.records else named(protocol)
    if pair is not None:
        return pair
    changes = Changes.of(protocol, protocol.example_users(), queries, settings)
    populations = changes.populations()
    runs = [Runs(protocol, p.users, settings.seed).run(settings.seed) for p in populations]
    apart = np.array([[_distance(a, b) for b in runs] for a in runs])
    a, b = divmod(int(np.argmax(np.where(changes.adjacent, apart, -1.0))), len(runs))
    return populations[a], populations[b]


def _distance(a: Run, b: Run) -> float:
    """Say how far two runs lie apart: infinitely, where they differ in more than numbers."""
    one, other = a.estimate, b.estimate
    if (a.status, a.words, a.digests, one.keys) != (b.status, b.words, b.digests, other.keys):
        return math.inf
    if one.public != other.public:
        return math.inf
    if one.value is None or other.value is None:
        return 0.0
    if one.value.shape != other.value.shape:
        return math.inf
    return float(np.nansum(np.abs(one.value - other.value)))


def _probe(protocol: Protocol, pair: Sequence[Population]) -> list[Estimate]:
    """Make a few complete runs, with everything that a session checks.

    Raises
    ------
    Exception
        What a session raised, if it was the ledger, or if no run of any population ended.
    """
    ended: list[Estimate] = []
    broken: list[Exception] = []
    for population in pair:
        ask = checked(population_of(protocol, population.users, 0))
        for seed in range(2):
            try:
                ended.append(Session(protocol, NoiseFactory("simulated", seed)).run(ask))
            except BudgetExceeded:
                raise
            except Exception as error:  # whether it happens is compared below
                broken.append(error)
    if broken and not ended:
        raise broken[0]
    return ended


def _names(pair: Sequence[Population]) -> Keys | None:
    """List the items of both populations, or None if they hold samples."""
    vocabularies = [p.users.vocabulary for p in pair if p.users.items]
    return Keys.of(dict.fromkeys(k for v in vocabularies for k in v)) if vocabularies else None


def _audit_view(
    case: Case, layout: Layout, view: str, both: Sequence[Runs], pair: Sequence[Population], n: int
) -> Finding:
    """Certify what two populations' runs show in one view."""
    rng = SeededStreams(np.arange(128, dtype=np.uint64), case.settings.seed, "screening")
    seeds = rng.words(1)[:, 0]
    few = [r.views(layout, seeds)[view] for r in both]
    if all(len(np.unique([t[name] for t in few])) == 1 for name in few[0]):  # a NaN is one value
        case.note, case.draws = "the same in all runs", 2 * len(seeds)
        return case.found(0.0, 1.0 - case.settings.alpha)
    one, other = (
        Drawer(r.client(layout, view), _NOBODY, p.words, case.settings.seed, case)
        for r, p in zip(both, pair, strict=True)
    )
    quiet = max(n // 8, 256)
    case.note = "values are looked at on a grid of 2^-20"
    if not _suspicious((one, other), case.claim, quiet):
        n = quiet
    found = certify((one, other), case, n)
    if found.witness is None:
        return found
    event = found.witness.event.replace(" of message 1", "")  # there is no message: it is a run
    return replace(found, witness=replace(found.witness, event=event))


def _suspicious(pair: Pair, claim: tuple[float, float], n: int) -> bool:
    """Say whether a few fresh runs bring a loose bound near the claim, for the effort only."""
    epsilon, delta = claim
    drawn = [d.sample(n, "training") for d in pair]
    fresh = [d.sample(n, "looking") for d in pair]
    for feature in kept_features(pair, n, delta):
        counts = tally(feature, drawn[0]), tally(feature, drawn[1])
        event = best_event(feature, counts, SEARCH_Z, delta=delta)
        hits = [int(tally(feature, a)[event.chosen].sum()) for a in fresh]
        first, second = hits if event.first else hits[::-1]
        if float(epsilon_low(first, n, second, n, delta=delta, alpha=0.3)) > 0.5 * epsilon:
            return True
    return False
