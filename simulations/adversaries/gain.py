"""Output poisoning: of all messages that pass the server's checks, the one that gains most [1]_.

References
----------
.. [1] Cao, Jia & Gong, "Data poisoning attacks to local differential privacy protocols", USENIX
   Security 2021, the maximal gain attack.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from clients.baselines.queries import SphereReports
from clients.frequency_oracles.oracle_votes import OracleVotes
from clients.heavy_hitters.queries import HoldsCode
from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from clients.randomizers.oracle_reports import optimal_unary, subset_reports
from fedhist.base.arrays import Array, Integers
from fedhist.channels.oracles import OracleChannel, SubsetOracle, SymbolOracle, UnaryOracle
from fedhist.model.query import Query, Report
from fedhist.users.batch import Users
from fedhist.users.streams import Streams


def best_messages(query: Query, users: Users, rng: Streams) -> Report:
    """Answer for corrupted users so that the estimate moves most towards their (poisoned) records.

    Parameters
    ----------
    query : Query
    users : Users
        With the records that the attacker wishes them to have.
    rng : Streams

    Returns
    -------
    Report
        Of messages within the alphabet, so that no check can tell them from honest ones. Bits:
        exactly the target's are set. Scalars: the largest report of the target's sign. Oracles of
        a symbol or a subset: a message of the target's own. Spheres: the point nearest to the
        target. Any other query, the central ones among them: the honest client's answer on the
        record, which for a central query is a full clip or a full box of the target.

    Notes
    -----
    The gain of one vote among n is (1 - q - tau f) / (n tau) for an item of frequency f whose bit
    an honest user sets with probability q + tau f; of one scalar (bound / gain - u) / n in units of
    the half width, for an honest u.
    """
    if isinstance(query, BinVotes | HoldsCode):
        return replace(query, epsilon=math.inf).answer(users, rng)
    if isinstance(query, OracleVotes):
        sent = _member(query.symbols(users, rng), query.channel, rng)
        return Report(users.ids, {query.sent: sent})
    if isinstance(query, ClippedMean):
        wished = replace(query, kind="laplace", epsilon=math.inf).answer(users, rng)
        return _extreme(wished, query)
    if isinstance(query, HashedVotes):
        wished = replace(query, vote="laplace", epsilon=math.inf).answer(users, rng)
        return _extreme(wished, query)
    if isinstance(query, SphereReports) and math.isfinite(query.epsilon):
        rows = replace(query, epsilon=math.inf).answer(users, rng).arrays["reports"]
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        if (norms > 0).all():
            return Report(users.ids, {"reports": rows / norms * query.channel.length})
    return query.answer(users, rng)


def _member(symbols: Integers, channel: OracleChannel, rng: Streams) -> Array:
    """Send a message of each symbol's own set."""
    if isinstance(channel, UnaryOracle):
        return optimal_unary(symbols, replace(channel, epsilon=math.inf), rng)
    own = np.where(symbols < 0, channel.n_symbols, symbols)
    if isinstance(channel, SubsetOracle):
        return subset_reports(own, np.ones(len(own), dtype=np.bool_), channel, rng)
    if not isinstance(channel, SymbolOracle):
        raise TypeError(f"no messages are known for a channel of kind {channel.kind!r}")
    ranks = rng.substream("member").words(1)[:, 0] % np.uint64(channel.layers.chosen)
    return channel.members(own, ranks.astype(np.int64)).astype(np.uint32)


def _extreme(wished: Report, query: ClippedMean | HashedVotes) -> Report:
    """Report the channel's bound with the sign of what is wished for."""
    channel = query.channel
    if math.isinf(channel.epsilon):
        return wished
    sign = np.where(wished.arrays["reports"] >= 0, 1, -1)
    return Report(wished.ids, {"reports": (sign * channel.bound).astype(channel.dtype)})
