"""The statistical check: many independent answers of one user under two records.

On some draws the two records are searched for and features of an answer are learned, on others the
event is chosen, and on fresh ones it is certified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from fedhist.model.query import Query
from fedhist.users.batch import Users
from fedhist.users.streams import Streams
from simulations.audit.bounds import delta_low, epsilon_low
from simulations.audit.drawing import Client, Pair
from simulations.audit.exact import curve_grid
from simulations.audit.features import Answer
from simulations.audit.finding import Case, Finding, Settings, Witness
from simulations.audit.inputs import Space, space_of
from simulations.audit.learning import Event, best_of
from simulations.audit.search import TRAINING, Leak, find_pair, kept_features

DRAWS = 1 << 19
"""Answers of each record for choosing the event, and as many for certifying it."""
IDS = 3


def audit_query(
    query: Query, users: Users, subject: str, settings: Settings, *, single: bool = False
) -> Finding:
    """Audit one local query by what its answer is said to cost.

    ``users``: an example population: shows what records look like; ``single``: the claim is about
    one item of a user, whose number of items is public.
    """

    def client(batch: Users, rng: Streams) -> Answer:
        return (query.answer(batch, rng),)

    space = space_of([query], users, single=single)
    asked = users.select(query.cohort).ids
    if not len(asked):
        ids = np.arange(1 << 16, dtype=np.uint64)
        asked = ids if query.cohort is None else ids[query.cohort.contains(ids)]
    case = Case(subject, (query.release.epsilon, query.release.delta), settings)
    return audit_client(client, space, asked[:IDS].tolist(), case)


def audit_client(
    client: Client,
    space: Space,
    ids: Sequence[int],
    case: Case,
    draws: int = DRAWS,
) -> Finding:
    """Find two records and an event that tell them apart, and certify what they prove.

    ``space``: the records a user may hold; ``ids``: public ids to try; all of the client's cohort;
    ``case``: its claimed epsilon is finite; ``draws``: answers of each record in each half, times
    ``settings.effort``. Raises ValueError if the claim is infinite: then there is nothing to
    refute.
    """
    epsilon = case.claim[0]
    if not math.isfinite(epsilon):
        why = "promises nothing that could be audited"
        raise ValueError(f"{case.subject}: epsilon = {epsilon} {why}")
    n = max(int(draws * case.settings.effort), 256)
    try:
        return certify(find_pair(client, space, ids, case, training(n)), case, n)
    except Leak as leak:
        return case.found(math.inf, 1.0, Witness(leak.inputs, leak.event), kind="structural")


def training(n: int) -> int:
    """Return how many answers of each record are learned from when n are drawn to certify."""
    return min(TRAINING, max(n // 4, 128))


def certify(pair: Pair, case: Case, n: int) -> Finding:
    """Choose events on n answers of each record and certify them on n fresh ones."""
    epsilon, delta = case.claim
    z = -float(ndtri(case.settings.alpha / 4))
    features = kept_features(pair, training(n), delta)
    ranking, chosen = (
        [d.count(features, n // 2, purpose) for d in pair] for purpose in ("ranking", "choosing")
    )
    distinct: dict[tuple[object, ...], Event] = {}
    for target in (-1.0, 0.0, epsilon / 2, epsilon):
        best = best_of(features, chosen, ranking, z, delta=delta, epsilon=target)
        distinct.setdefault((id(best.feature), best.first, best.chosen.tobytes()), best)
    events = list(distinct.values())
    alpha = case.settings.alpha / len(events)
    looked = list(dict.fromkeys(e.feature for e in events))
    fresh = [dict(zip(looked, d.count(looked, n, "certifying"), strict=True)) for d in pair]
    grid = curve_grid(epsilon)
    certified, witness, curve = -1.0, None, np.zeros(len(grid))
    for e in events:
        hits = [int(counts[e.feature][e.chosen].sum()) for counts in fresh]
        a, b = (0, 1) if e.first else (1, 0)
        bound = float(epsilon_low(hits[a], n, hits[b], n, delta=delta, alpha=alpha))
        curve = np.maximum(curve, delta_low(hits[a], n, hits[b], n, grid, alpha))
        if bound > certified:
            certified = bound
            inputs = (pair[a].words, pair[b].words)
            said = e.feature.words(e.chosen)
            witness = Witness(inputs, said, (hits[a], hits[b]), (n, n), e.feature.terms)
    shown = tuple(zip(grid, curve.tolist(), strict=True))
    return case.found(certified, 1.0 - case.settings.alpha, witness, curve=shown)
