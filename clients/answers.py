"""What a batch of users answers, on every runtime; Flower's messages are around it."""

from __future__ import annotations

from typing import Any

from clients.shares import noisy_words
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Summary
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams, SystemStreams


def fold_node(query: Any, users: Users, seed: int | None, digest: str, node: int = 0) -> Summary:
    """Answer and fold for all users of a node that are in the query's cohort.

    ``node`` is the node's index, which keys its share of noise under aggregate trust.
    """
    if isinstance(query, Aggregated):
        return noisy_words(query, users, seed, digest, node)
    summary: Summary = query.answer_folded(users, lambda batch: streams(batch, seed, digest))
    return summary


def streams(users: Users, seed: int | None, digest: str) -> Streams:
    """Private randomness of a batch: seeded in simulation, system entropy in a deployment."""
    if seed is None:
        return SystemStreams(len(users))
    return SeededStreams(users.ids, seed, digest)
