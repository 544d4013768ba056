"""End to end: whole runs of a protocol whose server adds up, on neighbouring populations.

A run is one draw, and what it publishes is the answer: :mod:`simulations.audit.published`. The
populations are those of :mod:`simulations.audit.neighbours`. All members of a family are screened
with a few runs; for each view the pair that lies furthest apart is looked at more closely, and the
bound is certified on runs of its own, like that of a client half.

What statuses may say. A refusal depends on public numbers only (the session enforces that it comes
before any question), so refusing reveals nothing. A failure and a run that breaks off come after
exact answers were seen: their probability is a part of the mechanism's law and is audited as such,
with every word of the reason.

Under aggregate trust the totals that the server sees on the way are looked at as well, over all
rounds of a run: those of M shares of noise, the colluders' taken off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhist.base.errors import BudgetExceeded
from fedhist.model.aggregated import Aggregated
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Report
from fedhist.privacy.guarantee import Trust
from fedhist.session.session import Session
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams
from simulations.audit.bounds import epsilon_low
from simulations.audit.drawing import Drawer, Pair
from simulations.audit.features import Answer
from simulations.audit.finding import Case, Finding, Settings, Witness
from simulations.audit.learning import best_event, propose, separation, tally
from simulations.audit.neighbours import Changes, Family, families, named
from simulations.audit.published import QUESTIONS, SUMS, VIEWS, Layout, Runs, Views, difference
from simulations.audit.search import SEARCH_Z, kept_features
from simulations.audit.server_view import population_of
from simulations.audit.statistical import certify
from simulations.audit.tipping import tips
from simulations.audit.transcript import asked_of, checked
from simulations.runs.run import NoiseFactory

RUNS = 1 << 13
"""Certifying runs of each population where the claim is nearly reached."""
QUIET = 8
"""How many times fewer where it is not."""
SCREENED = 128
PROBES = 2
SUSPICIOUS, LOOSE = 0.5, 0.3
"""Near the claim: this share of it, at this error probability; decides about effort only."""
BETTER, MORE = 1.2, 0.1
"""How much better a pair must look than one whose runs are there already: a factor and a bit."""
_NOBODY = Users.from_samples([0], [0, 1], [0.0])

Place = tuple[int, int, int]
"""Number of a family, and of two of its members."""


@dataclass(frozen=True)
class _Screened:
    """A family, its runs, and what a few of them published."""

    family: Family
    runs: tuple[Runs, ...]
    few: tuple[Views, ...]


def audit_central(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Audit the released estimate, the choices, the statuses and the support of whole runs."""
    guarantee = protocol.guarantee
    if guarantee.trust not in (Trust.CENTRAL, Trust.AGGREGATE) or not guarantee.private:
        return
    claim, subject = (guarantee.epsilon, guarantee.delta), f"{protocol.name}: whole runs"
    users = protocol.example_users()
    asked = asked_of(protocol, users, settings.seed, broken=True)
    if isinstance(asked.end, BudgetExceeded):
        return  # the structural check has seen the same run
    queries = [q.query if isinstance(q, Aggregated) else q for q in asked.queries]
    tried = list(_populations(protocol, users, queries, settings))
    try:
        estimates = _probe(protocol, tried)
    except BudgetExceeded as stop:
        event = f"the run's own ledger stops it: {stop}"
        witness = Witness(("any population", "any other"), event)
        yield Finding.judge(subject, "structural", claim, math.inf, 1.0, witness)
        return
    seen = 0
    if guarantee.trust is Trust.AGGREGATE:
        seen = len(Runs(protocol, tried[0].members[0].users, settings.seed).run(0).seen)
    layout = Layout.of(estimates, _names(tried), seen)
    n = max(int(RUNS * settings.effort), 256)
    started = time.perf_counter()
    screened = [_screen(protocol, family, layout, n, settings.seed) for family in tried]
    screening = time.perf_counter() - started
    drawn: set[Place] = set()
    for view in (*VIEWS, SUMS) if seen else VIEWS:
        at = _furthest(screened, view, drawn)
        case = Case(f"{protocol.name}: {view}", claim, settings, "end to end")
        case.started -= screening  # which is paid for by the first view
        screening = 0.0
        if at is None:
            yield _unchanging(case, screened)
        else:
            drawn.add(at)
            yield _audit_view(case, layout, view, screened[at[0]], at, n)


def _populations(
    protocol: Protocol, users: Users, queries: Sequence[Query], settings: Settings
) -> Iterator[Family]:
    """Take the pair that the protocol names, or else search for one."""
    pair = None if settings.records else named(protocol)
    if pair is not None:
        yield pair
        return
    changes = Changes.of(protocol, users, queries, settings)
    if protocol.guarantee.trust is Trust.AGGREGATE:
        yield next(families(changes))  # a script has noisy sums only: others tip nothing
        return
    yield from families(changes)
    yield from tips(protocol, changes, settings.seed)


def _probe(protocol: Protocol, tried: Sequence[Family]) -> list[Estimate]:
    """Make a few complete runs, with everything that a session checks.

    Raises
    ------
    Exception
        What a session raised, if it was the ledger, or if no run of any population ended.
    """
    ended: list[Estimate] = []
    broken: list[Exception] = []
    for family in tried:
        for member in family.members:
            ask = checked(population_of(protocol, member.users, 0))
            for seed in range(PROBES):
                try:
                    session = Session(protocol, NoiseFactory("simulated", seed))
                    ended.append(session.run(ask))
                except BudgetExceeded:
                    raise
                except Exception as error:  # whether it happens is compared below
                    broken.append(error)
    if broken and not ended:
        raise broken[0]
    return ended


def _names(tried: Sequence[Family]) -> Keys | None:
    """List the items of all populations, or None if they hold samples."""
    vocabularies = [m.users.vocabulary for f in tried for m in f.members if m.users.items]
    return Keys.of(dict.fromkeys(k for v in vocabularies for k in v)) if vocabularies else None


def _screen(protocol: Protocol, family: Family, layout: Layout, n: int, seed: int) -> _Screened:
    """Run a few times on every member."""
    runs = tuple(Runs(protocol, m.users, seed) for m in family.members)
    ids = np.arange(min(SCREENED, max(n // 16, 32)), dtype=np.uint64)
    tables = []
    for member, some in zip(family.members, runs, strict=True):
        rng = SeededStreams(ids, seed, f"fedhist.audit screening {member.words}")
        tables.append(some.views(layout, rng.words(1)[:, 0]))
    return _Screened(family, runs, tuple(tables))


def _unchanging(case: Case, screened: Sequence[_Screened]) -> Finding:
    """Say that a view was the same in all runs."""
    case.draws = sum(_rows(t) for s in screened for t in s.few)
    n = sum(len(s.runs) for s in screened)
    case.note = f"the same in all {case.draws} runs on {n} populations"
    return case.found(0.0, 1.0 - case.settings.alpha)


def _audit_view(
    case: Case, layout: Layout, view: str, best: _Screened, at: Place, n: int
) -> Finding:
    """Certify what two populations' runs show in one view."""

    def drawer(i: int) -> Drawer:
        client, words = best.runs[i].client(layout, view), best.family.members[i].words
        return Drawer(client, _NOBODY, words, case.settings.seed, case)

    pair = drawer(at[1]), drawer(at[2])
    quiet = max(n // QUIET, 256)
    if not _suspicious(pair, case.claim, quiet):
        n = quiet
    case.note = "values are looked at on a grid of 2^-20"
    found = certify(pair, case, n)
    if found.witness is None:
        return found
    event = found.witness.event.replace(" of message 1", "")  # there is no message: it is a run
    if event.startswith(QUESTIONS):
        event = _questions(best.runs[at[1]], best.runs[at[2]]) or event
    return replace(found, witness=replace(found.witness, event=event))


def _questions(one: Runs, other: Runs) -> str:
    """Say in what the questions of two populations' runs differ, where the noise is the same."""
    said = (difference(*(r.run(s).queries for r in (one, other))) for s in range(SCREENED))
    first = next(filter(None, said), "")
    return f"the questions asked differ: {first}" if first else ""


def _furthest(screened: Sequence[_Screened], view: str, drawn: set[Place]) -> Place | None:
    """Find the neighbours that a few runs tell apart best; None if all runs are the same.

    A pair of which runs have been drawn is preferred unless another is clearly better.
    """
    first = [a[:1] for a in screened[0].few[0][view].values()]
    if all(
        np.array_equal(table, np.broadcast_to(one, table.shape), equal_nan=table.dtype.kind == "f")
        for s in screened
        for few in s.few
        for one, table in zip(first, few[view].values(), strict=True)
    ):
        return None
    best: tuple[float, Place] = (-1.0, (0, 0, 1))
    for f, s in enumerate(screened):
        answers = [_report(few, view) for few in s.few]
        score = np.zeros((len(answers), len(answers)))
        for feature in propose(answers):
            table = np.stack([tally(feature, a) for a in answers])
            score = np.maximum(score, separation(table, SEARCH_Z))
        score[~s.family.adjacent] = -1.0
        for g, a, b in drawn:
            if g == f:
                score[a, b] = score[a, b] * BETTER + MORE
        a, b = divmod(int(np.argmax(score)), len(answers))
        best = max(best, (float(score[a, b]), (f, a, b)))
    return best[1]


def _report(views: Views, view: str) -> Answer:
    return (Report(np.zeros(_rows(views), dtype=np.uint64), dict(views[view])),)


def _suspicious(pair: Pair, claim: tuple[float, float], n: int) -> bool:
    """Say whether a few fresh runs bring a loose bound near the claim."""
    epsilon, delta = claim
    found = [d.sample(n, "training") for d in pair]
    fresh = [d.sample(n, "looking") for d in pair]
    for feature in kept_features(pair, n, delta):
        counts = tally(feature, found[0]), tally(feature, found[1])
        event = best_event(feature, counts, SEARCH_Z, delta=delta)
        hits = [int(tally(feature, a)[event.chosen].sum()) for a in fresh]
        one, other = hits if event.first else hits[::-1]
        if float(epsilon_low(one, n, other, n, delta=delta, alpha=LOOSE)) > SUSPICIOUS * epsilon:
            return True
    return False


def _rows(views: Views) -> int:
    return len(next(iter(views["status"].values())))
