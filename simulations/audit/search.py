"""The search for two records that a client's answers tell apart, and for features that do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulations.audit.drawing import Client, Drawer, Pair
from simulations.audit.features import Answer, Feature, Length, LowBit, MessageHash
from simulations.audit.finding import Case
from simulations.audit.inputs import Record, Space
from simulations.audit.learning import best_event, best_of, propose, separation, signature, tally

TRAINING = 1 << 14
SCREENING = 1 << 11
KEPT_FEATURES = 10
PAIRS_REFINED = 4
SEARCH_Z = 3.0


class Leak(Exception):
    """What no private answer may do was seen: the message is a structural finding's event."""

    def __init__(self, event: str, inputs: tuple[str, str]) -> None:
        super().__init__(event)
        self.event, self.inputs = event, inputs


def kept_features(pair: Pair, n: int, delta: float) -> list[Feature]:
    """Learn features, and keep those that promise most, with all that show rare events."""
    samples = [d.sample(n, "training") for d in pair]
    features = propose(samples)
    events = [
        best_event(f, (tally(f, samples[0]), tally(f, samples[1])), SEARCH_Z, delta=delta)
        for f in features
    ]
    events.sort(key=lambda e: -e.bound)
    rare = (MessageHash, Length, LowBit)
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
    """Build the two records that were given, or search for two; see :func:`audit_client`.

    Pairs are screened on few answers, and the best are looked at more closely.
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
    for at in np.argsort(-score, axis=None)[:PAIRS_REFINED].tolist():
        a, b = divmod(at, len(drawers))
        best = max(best, (_bound((drawers[a], drawers[b]), delta, training), a, b))
    _, a, b = best
    return drawers[a], drawers[b]


def _screen(drawers: Sequence[Drawer]) -> NDArray[np.float64]:
    """Draw a few answers to every record and score all pairs.

    Raises Leak if a record makes the client fail, or changes the names, types or shapes of what it
    sends.
    """
    answers: list[Answer] = []
    failed: list[tuple[Drawer, Exception]] = []
    for d in drawers:
        try:
            answers.append(d.sample(SCREENING, "screening"))
        except Exception as caught:  # whatever it is: it depends on the record
            failed.append((d, caught))
    if failed and answers:
        broken, error = failed[0]
        fine = next(d for d in drawers if all(d is not f for f, _ in failed))
        raise Leak(f"the client fails: {type(error).__name__}: {error}", (broken.words, fine.words))
    if failed:
        raise failed[0][1]
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
    """Say what a pair promises on n draws of each; a Leak where the client fails."""
    try:
        features = kept_features(pair, n, delta)
        ranking, counts = (
            [d.count(features, max(n // 2, 64), purpose) for d in pair]
            for purpose in ("ranking", "searching")
        )
    except Exception as error:
        raise Leak(
            f"the client fails: {type(error).__name__}: {error}", (pair[0].words, pair[1].words)
        ) from error
    return best_of(features, counts, ranking, SEARCH_Z, delta=delta).bound
