"""Exact laws of frequency oracles, message by message; for small alphabets."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from fedhist.channels.layers import WORD_VALUES
from fedhist.channels.oracles import OracleChannel, SubsetOracle, SymbolOracle, UnaryOracle


def sets_of(channel: SymbolOracle) -> np.ndarray:
    """Every symbol's set, member by member, null last: (k + 1, c)."""
    c, total = channel.layers.chosen, channel.n_symbols + 1
    symbols, ranks = np.repeat(np.arange(total), c), np.tile(np.arange(c), total)
    return channel.members(symbols, ranks).reshape(total, c)


def unary_weights(channel: UnaryOracle) -> np.ndarray:
    """The exact law on k bits: (k + 1, 2^k) integers, 2^(64 k) times the chance."""
    k = channel.n_symbols
    keep = WORD_VALUES if math.isinf(channel.epsilon) else WORD_VALUES // 2
    out = np.empty((k + 1, 1 << k), dtype=object)
    for vote in range(-1, k):
        hits = [keep if j == vote else channel.flip_threshold for j in range(k)]
        for z in range(1 << k):
            out[vote + 1, z] = math.prod(
                p if z >> j & 1 else WORD_VALUES - p for j, p in enumerate(hits)
            )
    return out


def enumerated(channel: OracleChannel) -> tuple[list[list[int]], np.ndarray]:
    """Integer weights of all messages, for none and for each symbol; and what each adds."""
    k = channel.n_symbols
    if isinstance(channel, UnaryOracle):
        return unary_weights(channel).tolist(), (np.arange(1 << k)[:, None] >> np.arange(k)) & 1
    if isinstance(channel, SubsetOracle):
        w, t = channel.chosen, channel.threshold
        held = list(combinations(range(k + 1), w))
        counts = np.array([[int(j in s) for j in range(k + 1)] for s in held])
        # over a common denominator, 2^64 C(k, w - 1) C(k, w)
        inside, outside = t * math.comb(k, w), (WORD_VALUES - t) * math.comb(k, w - 1)
        rows = [[inside if x in s else outside for s in held] for x in range(k + 1)]
    else:
        rows = channel.layers.weights(sets_of(channel)).tolist()
        counts = np.eye(channel.size, dtype=np.int64)
    return [rows[-1], *rows[:-1]], counts
