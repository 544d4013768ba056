"""What to know about the users and the budget of a run, beside its estimate."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fedhist.model.protocol import Protocol
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard
from simulations.populations import Plan
from simulations.populations.facts import facts_of, percent, words_of_dropped

MOST_EPSILON = 64.0
"""Beyond it nothing is protected; planners search up to it."""


MUCH = 0.05
"""Share of the events from which on it is said that a clip takes it; a good one takes some."""

MOST_WALKED = 1_000_000
"""Users who are all looked at for what is said beside an estimate; of more, a block's worth is."""

PLACES = 16
"""Where those users stand: in so many places, evenly spaced."""


def facts_of_run(plan: Plan, protocol: Protocol) -> tuple[str, ...]:
    """Say what matters about users for an estimate of this protocol. NOT PRIVATE.

    Returns what its domain or range leaves out, and what its clip takes; marked where only some of
    the users were looked at.
    """
    n = len(plan.users)
    if n <= MOST_WALKED or isinstance(plan.users, Users):
        return facts_for(plan, protocol) + words_of_clip(plan.users, protocol)
    some = sampled(plan.users)
    seen = replace(plan, users=some, warnings=(), dropped={})
    told = facts_for(seen, protocol) + words_of_clip(some, protocol)
    exact = [t for t in (*plan.warnings, words_of_dropped(plan.dropped)) if t]
    return (*exact, *(f"{fact} (sampled: {len(some):,} of {n:,} users)" for fact in told))


def sampled(users: Shard) -> Users:
    """Return a block's worth of users from evenly spaced places."""
    size = BLOCK // PLACES
    starts = [i * (len(users) - size) // (PLACES - 1) for i in range(PLACES)]
    return users.none.followed_by(users.slice(a, a + size).in_memory() for a in starts)


def facts_for(plan: Plan, protocol: Protocol) -> tuple[str, ...]:
    """Say what matters about users, by the domain or the range of a protocol. NOT PRIVATE."""
    domain = getattr(protocol, "domain", None)
    domain = domain if isinstance(domain, Keys) else None
    low, high = getattr(protocol, "low", None), getattr(protocol, "high", None)
    ends = (low, high) if isinstance(low, int | float) and isinstance(high, int | float) else None
    return facts_of(replace(plan, domain=domain), value_range=ends)


def words_of_clip(users: Shard, protocol: Protocol) -> tuple[str, ...]:
    """Say how much a clip takes of the events in the domain, where it is worth saying."""
    clip, norm = getattr(protocol, "clip", None), getattr(protocol, "norm", None)
    domain = getattr(protocol, "domain", None)
    if not (isinstance(clip, int | float) and norm in (1, 2) and isinstance(domain, Keys)):
        return ()
    total, kept, above = 0.0, 0.0, 0
    for block in users.blocks():
        l1, l2 = user_norms(block, domain)
        size = l1 if norm == 1 else l2
        factor = clip / np.maximum(np.maximum(size, clip), 1e-300)  # scales what a user holds
        total, kept = total + float(l1.sum()), kept + float((l1 * factor).sum())
        above += int(np.count_nonzero(size > clip))
    if not total or kept >= (1 - MUCH) * total:
        return ()
    return (
        f"the clip of {clip:g} takes {percent(1 - kept / total)} of the events in the domain, from "
        f"the {percent(above / len(users))} of users who hold more: totals come out so much too "
        "small; a larger clip adds noise in proportion",
    )


def budget_doubts(epsilon: float, delta: float, n_users: int) -> tuple[str, ...]:
    """Say where a budget protects nobody; nothing of ``epsilon = inf``, which says so itself.

    >>> budget_doubts(1.0, 1e-6, 1000)
    ()
    """
    out = []
    if MOST_EPSILON < epsilon < math.inf:
        out.append(
            f"epsilon = {epsilon:g} protects nobody: a guess about a user may become e^{epsilon:g} "
            "times as likely; take 10 or less for a promise, inf for a reference without noise"
        )
    if delta * n_users > 1:
        out.append(
            f"delta = {delta:g} is more than 1 / {n_users:,} users: to publish one of them in full "
            "would keep such a promise; take it well below one over the number of users"
        )
    return tuple(out)
