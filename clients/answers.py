"""What a node's users answer, on every runtime; Flower's messages are around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clients.shares import with_share
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Query, Summary
from fedhist.model.trees import Tree
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard
from fedhist.users.streams import SeededStreams, Streams, SystemStreams


@dataclass
class Steps:
    """How far a walk over a node's blocks is.

    Attributes
    ----------
    tree : Tree
        Of the blocks that are in.
    walked : int
        Their number: a walk goes on after them.
    tell : callable, optional
        Called with this after every block.
    """

    tree: Tree = field(default_factory=Tree)
    walked: int = 0
    tell: Callable[[Steps], None] | None = None


def fold_node(
    query: Any,
    users: Shard,
    seed: int | None,
    digest: str,
    node: int = 0,
    steps: Steps | None = None,
) -> Summary:
    """Answer and fold for all users of a node that are in the query's cohort, block by block.

    ``node`` is the node's index, which keys its share of noise under aggregate trust.
    """
    asked = query.query if isinstance(query, Aggregated) else query

    def folded(block: Users, number: int) -> Summary:
        summary: Summary = asked.answer_folded(block, lambda some: streams(some, seed, digest))
        return summary

    exact = added_up(query, users, folded, steps)
    return with_share(query, exact, seed, digest, node) if query is not asked else exact


def added_up(
    query: Query, users: Shard, of: Callable[[Users, int], Summary], steps: Steps | None = None
) -> Summary:
    """Add up what the users of a query's cohort say, by block and number of the block.

    No more than one block is held. Nobody at all answers as well: what no users say is a sum.
    """
    steps = Steps() if steps is None else steps
    gone = min(steps.walked * BLOCK, len(users))
    rest = users.slice(gone, len(users)) if gone else users
    for block in rest.blocks():  # no enumerate: it keeps a block while the next one is made
        steps.tree.add(steps.walked, of(block.select(query.cohort), steps.walked))
        steps.walked += 1
        del block
        if steps.tell is not None:
            steps.tell(steps)
    return steps.tree.own_total() if steps.walked else of(users.none, 0)


def streams(users: Users, seed: int | None, digest: str) -> Streams:
    """Private randomness of a batch: seeded in simulation, system entropy in a deployment."""
    if seed is None:
        return SystemStreams(len(users))
    return SeededStreams(users.ids, seed, digest)
