"""What a batch of users answers, on every runtime; Flower's messages are around it."""

from __future__ import annotations

from typing import Any

from fedhist.model.query import Summary
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams, SystemStreams


def fold_node(query: Any, users: Users, seed: int | None, digest: str) -> Summary:
    """Answer and fold for all users of a node that are in the query's cohort."""
    summary: Summary = query.answer_folded(users, lambda batch: streams(batch, seed, digest))
    return summary


def streams(users: Users, seed: int | None, digest: str) -> Streams:
    """Private randomness of a batch: seeded in simulation, system entropy in a deployment."""
    if seed is None:
        return SystemStreams(len(users))
    return SeededStreams(users.ids, seed, digest)
