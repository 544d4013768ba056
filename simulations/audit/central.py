"""End to end: whole runs of a protocol whose server adds up, on two neighbouring populations.

A run is one draw, and what it publishes is the answer: :mod:`simulations.audit.published`. The two
populations are those of :mod:`simulations.audit.neighbours`. The bound is certified on fresh runs,
like that of a client half.

What statuses may say. A refusal depends on public numbers only (the session enforces that it comes
before any question), so refusing reveals nothing. A failure and a run that breaks off come after
exact answers were seen: their probability is a part of the mechanism's law and is audited as such,
with every word of the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from fedhist.base.errors import BudgetExceeded
from fedhist.model.protocol import Estimate, Protocol
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.audit.asked import asked_of
from simulations.audit.bounds import epsilon_low
from simulations.audit.drawing import Drawer, Pair
from simulations.audit.finding import Case, Finding, Settings, Witness
from simulations.audit.learning import best_event, tally
from simulations.audit.neighbours import pair_of
from simulations.audit.published import Layout, Runs
from simulations.audit.statistical import SEARCH_Z, certify, kept_features

RUNS = 1 << 13
"""Certifying runs of each population where the claim is nearly reached; an eighth elsewhere."""
_NOBODY = Users.from_samples([0], [0, 1], [0.0])


def audit_central(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Audit what whole runs release and publish, and how they end."""
    guarantee = protocol.guarantee
    if guarantee.trust is not Trust.CENTRAL or not guarantee.private:
        return
    claim, subject = (guarantee.epsilon, guarantee.delta), f"{protocol.name}: whole runs"
    asked = asked_of(protocol, protocol.example_users(), settings.seed, broken=True)
    if isinstance(asked.end, BudgetExceeded):
        return  # the structural check has seen the same run
    pair = pair_of(protocol, asked.queries, settings)
    ends = [asked_of(protocol, p.users, i, broken=True).end for p in pair for i in range(2)]
    stop = next((e for e in ends if isinstance(e, BudgetExceeded)), None)
    if stop is not None:
        event = f"the run's own ledger stops it: {stop}"
        witness = Witness(("any population", "any other"), event)
        yield Case(subject, claim, settings, "structural").found(math.inf, 1.0, witness)
        return
    estimates = [e for e in ends if isinstance(e, Estimate)]
    if not estimates:  # whether a run breaks off is compared only where some do not
        raise next(e for e in ends if isinstance(e, Exception))
    words = (p.users.vocabulary for p in pair if p.users.items)
    layout = Layout.of(estimates, Keys.of(dict.fromkeys(k for v in words for k in v)))
    case = Case(subject, claim, settings, "end to end")
    case.note = "values are looked at on a grid of 2^-20"
    one, other = (
        Drawer(
            partial(Runs(protocol, p.users, settings.seed).answer, layout),
            _NOBODY,
            p.words,
            settings.seed,
            case,
        )
        for p in pair
    )
    n = max(int(RUNS * settings.effort), 256)
    quiet = max(n // 8, 256)
    certified = certify((one, other), case, n if _suspicious((one, other), claim, quiet) else quiet)
    if certified.witness is not None:  # there is no message: it is a run
        event = certified.witness.event.replace(" of message 1", "")
        certified = replace(certified, witness=replace(certified.witness, event=event))
    yield certified


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
