"""The statistical check: many independent answers of one user under two records.

On some draws the two records are searched for and features of an answer are learned, on others the
event is chosen, and on fresh ones it is certified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fedhist.model.query import Query
from fedhist.users.batch import Users
from fedhist.users.streams import Streams
from simulations.audit.bounds import delta_low, epsilon_low
from simulations.audit.drawing import Client, Drawer, Leak, Pair
from simulations.audit.exact import curve_grid
from simulations.audit.features import Answer, Feature, Length, LowBit
from simulations.audit.finding import Case, Finding, Settings, Witness
from simulations.audit.inputs import Record, Space, space_of
from simulations.audit.learning import (
    Event,
    best_event,
    best_of,
    propose,
    separation,
    signature,
    tally,
)

DRAWS = 1 << 19
"""Answers of each record for choosing the event, and as many for certifying it."""
IDS = 3
TRAINING = 1 << 14
SCREENING = 1 << 11
KEPT_FEATURES = 10
PAIRS_REFINED = 4
SEARCH_Z = 3.0


def audit_query(
    query: Query, users: Users, subject: str, settings: Settings, *, single: bool = False
) -> Finding:
    """Audit one local query: find two records and an event that tell them apart, and certify it.

    ``users``: an example population: shows what records look like; ``single``: the claim is about
    one item of a user, whose number of items is public. Raises ValueError if the claim is infinite:
    then there is nothing to refute.
    """
    case = Case(subject, (query.release.epsilon, query.release.delta), settings)
    if not math.isfinite(query.release.epsilon):
        why = "promises nothing that could be audited"
        raise ValueError(f"{subject}: epsilon = {query.release.epsilon} {why}")

    def client(batch: Users, rng: Streams) -> Answer:
        return (query.answer(batch, rng),)

    space = space_of([query], users, single=single)
    asked = users.select(query.cohort).ids
    if not len(asked):
        ids = np.arange(1 << 16, dtype=np.uint64)
        asked = ids if query.cohort is None else ids[query.cohort.contains(ids)]
    n = max(int(DRAWS * settings.effort), 256)
    try:
        return certify(find_pair(client, space, asked[:IDS].tolist(), case, training(n)), case, n)
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
            witness = Witness(inputs, said, (hits[a], hits[b]), (n, n))
    shown = tuple(zip(grid, curve.tolist(), strict=True))
    return case.found(certified, 1.0 - case.settings.alpha, witness, curve=shown)


# -- the search for two records that answers tell apart, and for features that do ----------------


def kept_features(pair: Pair, n: int, delta: float) -> list[Feature]:
    """Learn features, and keep those that promise most, with all that show rare events."""
    samples = [d.sample(n, "training") for d in pair]
    features = propose(samples)
    events = [
        best_event(f, (tally(f, samples[0]), tally(f, samples[1])), SEARCH_Z, delta=delta)
        for f in features
    ]
    events.sort(key=lambda e: -e.bound)
    rare = (Length, LowBit)
    return [
        e.feature for i, e in enumerate(events) if i < KEPT_FEATURES or isinstance(e.feature, rare)
    ]


def find_pair(
    client: Client,
    space: Space,
    ids: Sequence[int],
    case: Case,
    training: int,
) -> Pair:
    """Build the two records that were given, or search for two.

    ``ids``: public ids to try, all of the client's cohort. Pairs are screened on few answers, and
    the best are looked at more closely.
    """
    settings, delta = case.settings, case.claim[1]

    def drawer(record: Record, user_id: int) -> Drawer:
        words = f"user {user_id}: {space.words(record)}"
        return Drawer(client, space.user(record, user_id), words, settings.seed, case)

    if settings.records:
        first, second = (drawer(space.parse(r), ids[0]) for r in settings.records)
        return first, second
    rng = np.random.default_rng(settings.seed)
    records = space.extremes(rng)
    tried = [(record, i) for i in ids for record in records]
    drawers = [drawer(record, i) for record, i in tried]
    score = _screen(drawers)
    owner = np.array([i for _, i in tried])
    score[owner[:, None] != owner] = -1.0
    best: tuple[float, int, int] = (-math.inf, 0, 0)
    for at in np.argsort(-score, axis=None, kind="stable")[:PAIRS_REFINED].tolist():
        a, b = divmod(at, len(drawers))
        best = max(best, (_bound((drawers[a], drawers[b]), delta, training), a, b))
    _, a, b = best
    return drawers[a], drawers[b]


def _screen(drawers: Sequence[Drawer]) -> NDArray[np.float64]:
    """Draw a few answers to every record and score all pairs.

    Raises Leak if a record changes the names, types or shapes of what the client sends.
    """
    answers = [d.sample(SCREENING, "screening") for d in drawers]
    looks = [signature(a) for a in answers]
    for d, look in zip(drawers, looks, strict=True):
        if look != looks[0]:
            event = f"the message has the arrays {look}, not {looks[0]}"
            raise Leak(event, (d.words, drawers[0].words))
    score = np.zeros((len(drawers), len(drawers)))
    for feature in propose(answers):
        table = np.stack([tally(feature, a) for a in answers])
        score = np.maximum(score, separation(table, SEARCH_Z))
    return score


def _bound(pair: Pair, delta: float, n: int) -> float:
    """Say what a pair promises on n draws of each."""
    features = kept_features(pair, n, delta)
    ranking, counts = (
        [d.count(features, max(n // 2, 64), purpose) for d in pair]
        for purpose in ("ranking", "searching")
    )
    return best_of(features, counts, ranking, SEARCH_Z, delta=delta).bound
