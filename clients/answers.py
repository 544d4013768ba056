"""What a node's users answer, on every runtime; Flower's messages are around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clients.randomizers.share_noise import draw_share
from fedhist.base.hashing import mix64
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Query, Report, Summary, Tree
from fedhist.users.batch import Users
from fedhist.users.shards import Shard
from fedhist.users.streams import SeededStreams, Streams, SystemStreams

Tell = Callable[[int], None]
"""Called with the number of blocks that are in, after each of them."""

MOST_REPORTS = 1 << 20
"""Users whose reports wait, where a query draws these."""


def fold_node(
    query: Any,
    users: Shard,
    seed: int | None,
    digest: str,
    node: int = 0,
    tell: Tell | None = None,
    *,
    memoize: bool = False,
) -> Summary:
    """Answer and fold for all users of a node that are in the query's cohort, block by block.

    ``node`` is the node's index, which keys its share of noise under aggregate trust.
    """
    asked = query.query if isinstance(query, Aggregated) else query

    def folded(block: Users, number: int) -> Summary:
        summary: Summary = asked.answer_folded(
            block, lambda some: streams(some, seed, digest, memoize=memoize)
        )
        return summary

    exact = added_up(query, users, folded, tell)
    return with_share(query, exact, seed, digest, node) if query is not asked else exact


def added_up(
    query: Query,
    users: Shard,
    of: Callable[[Users, int], Summary | Report],
    tell: Tell | None = None,
) -> Summary:
    """Add up what the users of a query's cohort say, by block and number of the block.

    No more than one block is held, and reports of :data:`MOST_REPORTS` users: these are folded
    together. Nobody at all answers as well: what no users say is a sum.
    """
    tree, walked, waiting = Tree(), 0, list[Report]()
    for block in users.blocks():  # no enumerate: it keeps a block while the next one is made
        part = of(block.select(query.cohort), walked)
        if isinstance(part, Summary):
            tree.add(walked, part)
        else:
            waiting.append(part)
        if sum(report.n_users for report in waiting) >= MOST_REPORTS:
            tree.add(walked, query.fold(_joined(waiting)))
            waiting = []
        walked += 1
        del block
        if tell is not None:
            tell(walked)
    if waiting or not walked:
        last = _joined(waiting) if waiting else of(users.none, 0)
        tree.add(walked, last if isinstance(last, Summary) else query.fold(last))
    return tree.own_total()


def _joined(reports: list[Report]) -> Report:
    """Put reports of one number from each user behind each other."""
    names = reports[0].arrays
    arrays = {name: np.concatenate([r.arrays[name] for r in reports]) for name in names}
    return Report(np.concatenate([r.ids for r in reports]), arrays)


def streams(users: Users, seed: int | None, digest: str, *, memoize: bool = False) -> Streams:
    """Private randomness of a batch: seeded in simulation, system entropy in a deployment.

    With ``memoize`` the coins of a user are a function of its record, too: an answer is permanent
    while the record stays, and those to two records are independent. Two records that shared their
    coins would not be: two answers would tell more than two draws do.
    """
    if seed is None:
        return SystemStreams(len(users))
    keys = mix64(mix64(users.ids) ^ users.record_words()) if memoize else users.ids
    return SeededStreams(keys, seed, digest)


def with_share(
    query: Aggregated, exact: Summary, seed: int | None, digest: str, node: int
) -> Summary:
    """Add a node's share of noise to the sums of its users, once, and wrap them as words.

    A node without users of the cohort adds its share as well.

    ``exact`` has integer sums over the node's users in the query's cohort. With a ``seed``, a
    simulation's, the share is a function of that, the node and the digest; without one it comes
    from system entropy by exact samplers.
    """
    entries = sum(a.size for a in exact.sums.values())
    share = draw_share(query.shares, entries, seed=seed, node=node, digest=digest)
    noise, sums, at = share.view(np.uint64), {}, 0
    for name, a in sorted(exact.sums.items()):
        mine = noise[at : at + a.size].reshape(a.shape)
        sums[name] = (a.astype(np.int64).view(np.uint64) + mine).astype(query.modular)
        at += a.size
    return Summary(exact.n_users if query.sends_n else 0, sums)
