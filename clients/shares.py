"""A node's share of noise, and what it sends under aggregate trust: words that wrap.

The size of the noise follows from the budget and from the sensitivity that the query's own class
states, never from a number in the message that says how large it should be.
"""

from __future__ import annotations

import numpy as np

from clients.randomizers.share_noise import draw_share
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Summary


def with_share(
    query: Aggregated, exact: Summary, seed: int | None, digest: str, node: int
) -> Summary:
    """Add a node's share of noise to the sums of its users, once, and wrap them as words.

    A node without users of the cohort adds its share as well.

    Parameters
    ----------
    query : Aggregated
    exact : Summary
        Integer sums over the users of the node that are in the query's cohort.
    seed : int or None
        Of a simulation: the share is a function of it, the node and the digest. None: drawn from
        system entropy by exact samplers.
    digest : str
        Of the query.
    node : int
        Index of the node.

    Returns
    -------
    Summary
        Sums of the same names and shapes, uint32 or uint64.
    """
    entries = sum(a.size for a in exact.sums.values())
    share = draw_share(query.shares, entries, seed=seed, node=node, digest=digest)
    noise, sums, at = share.view(np.uint64), {}, 0
    for name, a in sorted(exact.sums.items()):
        mine = noise[at : at + a.size].reshape(a.shape)
        sums[name] = (a.astype(np.int64).view(np.uint64) + mine).astype(query.modular)
        at += a.size
    return Summary(exact.n_users if query.sends_n else 0, sums)
