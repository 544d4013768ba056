"""Laws of aggregate trust: the nodes draw, each a share, and the honest ones' are enough."""

from __future__ import annotations

import copy
import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np

from clients.answers import fold_node
from fedhist.base.errors import MissingReplies
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.privacy.shares import Aggregation
from server.intake import Intake
from server.session.journal import Journal
from server.session.session import Session
from simulations.contract.budgets import FALSE_ALARM, ROUNDING, away, gaussian_delta
from simulations.contract.law import (
    NODES_ADD_NOISE,
    demand,
    demand_same_estimate,
    law,
    passes_over,
    refused,
)
from simulations.contract.subject import SEED, Subject
from simulations.runs.options import Options
from simulations.runs.over_grid import run_over_grid
from simulations.runs.run import execute, open_session
from simulations.runtimes.inline import InlinePopulation

DRAWS = 1 << 15


def nothing(index: int) -> Any:
    """Make the noise source of a Curator that must not draw."""
    return object()


nothing.grade = "simulated"  # type: ignore[attr-defined]


def questions(subject: Subject) -> list[tuple[Aggregated, int, Summary]]:
    """Return what was asked and answered; every question is one for the nodes' shares."""
    out = []
    for query, number, summary in subject.asked:
        if not isinstance(query, Aggregated):
            raise AssertionError(f"{query.label!r} is asked without shares.")
        out.append((query, number, summary))
    return out


@law(NODES_ADD_NOISE)
def the_guarantee_states_the_premise(subject: Subject) -> None:
    """Who may drop out and who may collude is said; the same protocol without is another's."""
    protocol = subject.protocol
    told, premise = str(protocol.guarantee), str(subject.made.trust)
    demand(premise in told, f"{told!r} does not say: {premise}.")
    without = subject.replaced(trust=None).guarantee
    demand(without.trust is not Trust.AGGREGATE, f"Without premise it promises {without}.")


@law(NODES_ADD_NOISE)
def nobody_but_the_nodes_draws(subject: Subject) -> None:
    """The sums are integers with noise; the Curator has none; another seed gives other sums."""
    run = Session(subject.protocol, nothing)
    estimate = run.run(InlinePopulation(subject.users.split(subject.nodes), SEED).ask)
    demand(estimate.status == "ok", f"The estimate is {estimate.status}: {estimate.reason}")
    demand_same_estimate(estimate, subject.estimate, "Without noise of the Curator")
    sums = [s.sums for _, _, s in questions(subject)]
    other = [s.sums for _, _, s in subject.walk(seed=SEED + 1)[1]]
    differ = any((a[k] != b[k]).any() for a, b in zip(sums, other, strict=True) for k in a)
    demand(differ, "Another seed gives the same sums.")
    for query, _, summary in questions(subject):
        whole = summary.linear and all(a.dtype == np.int64 for a in summary.sums.values())
        demand(whole, f"{query.label!r} has more than integer sums.")


@law(NODES_ADD_NOISE)
def honest_shares_are_the_whole_noise(subject: Subject) -> None:
    """The shares of nodes that neither drop out nor collude are enough for the guarantee.

    How many those are is counted here; their noise is held against dp-accounting, and the shares
    that nodes draw against it. False alarm: 1e-9, by the normal limit.
    """
    spent: dict[str, float] = {}
    for query, number, _ in questions(subject):
        share, shares, who = query.share, query.shares, query.share.aggregation
        if not shares.size:
            continue
        honest = who.parties - _part(who.tau_d, who) - _part(who.tau_c, who)
        if share.kind == "laplace":
            # of shape 1 / M each, so many add up to a geometric if they are M
            demand(shares.honest <= honest, f"Shares are for {shares.honest} of {honest} nodes.")
            epsilon = query.sensitivity / shares.size
            demand(epsilon <= share.epsilon * ROUNDING, f"They cost epsilon = {epsilon:g}.")
        else:
            variance = shares.size**2 * honest / shares.honest
            name = share.series or f"{number}"
            spent[name] = spent.get(name, 0.0) + query.sensitivity**2 / (variance - 4.0)
            delta = gaussian_delta(math.sqrt(spent[name]), share.epsilon)
            demand(
                delta <= share.delta * (1 + 1e-3),
                f"{honest} honest shares have delta = {delta:.3g} of {share.delta:g}.",
            )
        _check_shares(subject, query, number, honest)


def _part(tau: float, who: Aggregation) -> int:
    return math.floor(Fraction(repr(float(tau))) * who.parties)


class Silence:
    """Stands for a question about many integers, to which users say nothing."""

    def answer_folded(self, *_: Any) -> Summary:
        """Answer with zeros."""
        return Summary(0, {"sums": np.zeros(DRAWS, np.int64)})


def _check_shares(subject: Subject, query: Aggregated, number: int, honest: int) -> None:
    """Add up what honest nodes without users send, and compare with the noise they must make."""
    from scipy.stats import norm

    digest, wide = query_digest(query, number), copy.copy(query)
    vars(wide).update(query=Silence(), cohort=None, shares=query.shares, sends_n=False)
    parts = [fold_node(wide, subject.users.none, SEED, digest, node) for node in range(honest)]
    signed = f"int{query.share.bits}"
    each = [part.sums["sums"].view(signed).astype(np.int64) for part in parts]
    demand(
        len({a.tobytes() for a in each}) == honest or query.shares.size < 1,
        "Two nodes draw the same share.",
    )
    off = away(np.sum(each, axis=0), f"discrete_{query.share.kind}", query.shares.size)
    demand(
        off >= -norm.isf(FALSE_ALARM),
        f"The shares of {honest} nodes are {-off:.1f} standard errors smaller than their noise.",
    )


@law(NODES_ADD_NOISE)
def without_noise_it_is_the_central_one(subject: Subject) -> None:
    """At epsilon = inf the estimate is that of the same protocol with a trusted server."""
    try:
        open_ended = subject.replaced(epsilon=math.inf)
    except ValueError:
        passes_over("What clips by the budget has no grid then.")
    central = dataclasses.replace(open_ended, trust=None)
    if subject.replaced(trust=None).guarantee.trust is Trust.LOCAL:
        passes_over("Another question is asked then.")
    wanted = execute(central, subject.users, Options(seed=1)).estimate
    demand_same_estimate(subject.walk(open_ended)[0], wanted, "Without noise", exact=False)


@law(NODES_ADD_NOISE, once=True)
def messages_and_masks_change_no_bit(subject: Subject) -> None:
    """In this process, over messages, and under masks: the same estimate, of all parties."""
    options = Options(seed=5, nodes=subject.nodes)
    here = execute(subject.protocol, subject.users, options).estimate
    session, seed = open_session(subject.protocol, options)
    over = run_over_grid(session, subject.users, subject.nodes, seed, options).estimate
    demand_same_estimate(over, here, "Over messages")
    masked = execute(
        subject.protocol, subject.users, dataclasses.replace(options, aggregation="masked")
    )
    demand_same_estimate(masked.estimate, here, "Under masks")
    replies = [r["replies"] for r in masked.rounds]
    demand(set(replies) == {subject.nodes}, f"Under masks {replies} nodes reply.")
    ledger = masked.estimate.ledger
    demand(ledger is not None and ledger.aggregation == "masked", "The ledger names no masks.")


@law(NODES_ADD_NOISE)
def every_node_adds_a_share_and_a_quorum_is_needed(subject: Subject) -> None:
    """A node adds noise, users or none; below the quorum the sum is not looked at."""
    users = subject.users
    query, number, _ = questions(subject)[0]
    who, digest = query.share.aggregation, query_digest(query, number)
    parts = [
        fold_node(query, u.select(query.cohort), SEED, digest, i)
        for i, u in enumerate(users.split(who.parties))
    ]
    for part in parts:
        query.check_part(part)
        wraps = all(a.dtype == query.modular for a in part.sums.values())
        demand(wraps, f"A node sends something else than {query.modular}.")
        private_n = query.adjacency is Adjacency.ADD_REMOVE_USER
        demand(part.n_users == 0 or not private_n, "A node sends a number of users: private.")
    empty = fold_node(query, users.none, SEED, digest, 3)
    if query.shares.share * math.sqrt(sum(a.size for a in empty.sums.values())) > 100:
        noisy = any(a.any() for a in empty.sums.values())
        demand(noisy, "A node without users adds no noise.")
    for replies in (who.quorum, who.quorum - 1):
        intake = Intake(query, digest)
        for i, part in enumerate(parts[:replies]):
            intake.use(i, digest, part)
        if replies == who.quorum:
            query.check_summary(intake.total(who.parties).summary)
        else:
            with refused(MissingReplies, f"A sum of {replies} of {who.parties} nodes"):
                intake.total(who.parties)


@law(NODES_ADD_NOISE, once=True)
def what_nodes_have_answered_is_not_asked_again(subject: Subject) -> None:
    """Stopped after any round, a run goes on from its journal to the same estimate."""
    asked = questions(subject)
    for stop in range(len(asked) + 1):
        journal = Journal()
        first = Session(subject.protocol, nothing, journal)
        for query, number, _ in asked[:stop]:
            first.advance(
                InlinePopulation(subject.users.split(subject.nodes), SEED).ask(query, number)
            )
        again = Session(subject.protocol, nothing, journal)
        rest = InlinePopulation(subject.users.split(subject.nodes), SEED)
        estimate = again.run(rest.ask) if again.query is not None else again.estimate
        if estimate is None:
            raise AssertionError("The script returns no estimate.")
        demand_same_estimate(estimate, subject.estimate, f"Stopped after {stop} rounds")
        times = len(rest.rounds)
        demand(times == len(asked) - stop, f"It asks {times} times behind {stop}.")


@law(NODES_ADD_NOISE, once=True)
def noise_is_what_more_shares_than_needed_make(subject: Subject) -> None:
    """The predicted error exceeds that for nobody who drops out or colludes, by N / M at most.

    sqrt(N / M) is the ratio of stds; E|Z| of Laplace noise from few shares grows a little more.
    """
    who = subject.made.trust
    try:
        all_honest = subject.replaced(trust=dataclasses.replace(who, tau_d=0.0, tau_c=0.0))
    except ValueError:
        passes_over("Each of more honest shares would be too small.")
    more, least = (p.error(subject.users) for p in (subject.protocol, all_honest))
    power = 1 if more.loss == "l1" else 2
    noise = 5 * math.hypot(more.stderr / more.expected, least.stderr / least.expected)
    demand(more.loss == least.loss, f"Losses are {more.loss} and {least.loss}.")
    low = (1 - noise) * least.expected
    high = (1 + noise) * (who.parties / who.honest) ** power * least.expected
    demand(low <= more.expected <= high, f"{more.expected:g} is not in [{low:g}, {high:g}].")
