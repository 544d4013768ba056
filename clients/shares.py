"""A node's share of noise, and what it sends under aggregate trust: words that wrap.

The size of the noise follows from the budget and from the sensitivity that the query's own class
states, never from a number in the message that says how large it should be.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedhist.base.errors import FedhistError
from fedhist.base.hashing import digest64
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Summary
from fedhist.model.share import Share
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams, SystemStreams


def noisy_words(
    query: Aggregated, users: Users, seed: int | None, digest: str, node: int
) -> Summary:
    """Answer for a node: its users' integer sums, its share of noise added, as words.

    A node without users of the cohort adds its share as well.

    Parameters
    ----------
    query : Aggregated
    users : Users
        Those of the node that are in the query's cohort.
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

    def streams(batch: Users) -> Streams:
        return SystemStreams(len(batch)) if seed is None else SeededStreams(batch.ids, seed, digest)

    exact = query.query.answer_folded(users, streams)
    sums = {}
    for name, a in sorted(exact.sums.items()):
        key = None if seed is None else digest64("fedhist.share", seed, node, digest, name)
        noise = draw_share(query.share, query.sensitivity, a.shape, key)
        sums[name] = (a.astype(np.int64).view(np.uint64) + noise.view(np.uint64)).astype(
            query.modular
        )
    return Summary(exact.n_users if query.sends_n else 0, sums)


def draw_share(
    share: Share, sensitivity: float, shape: tuple[int, ...], key: int | None
) -> NDArray[np.int64]:
    """Draw one node's share of the noise for every entry, independently.

    Parameters
    ----------
    share : Share
    sensitivity : float
        In the norm of the kind.
    shape : tuple of int
    key : int or None
        Of the generator; None draws from system entropy, exactly.
    """
    size, honest = share.size(sensitivity), share.aggregation.honest
    if not size:
        return np.zeros(shape, dtype=np.int64)
    if key is None:
        raise FedhistError("shares of noise have a simulated grade only: give a seed")
    rng = np.random.Generator(np.random.Philox(key=key))
    if share.kind == "laplace":
        success = -math.expm1(-1 / size)
        draws = rng.negative_binomial(1 / honest, success, (2, *shape))
        return np.asarray(draws[0] - draws[1], dtype=np.int64)
    return _discrete_gaussian(rng, math.prod(shape), size / math.sqrt(honest)).reshape(shape)


def _discrete_gaussian(rng: np.random.Generator, n: int, std: float) -> NDArray[np.int64]:
    """Draw by rejection from discrete Laplace [1]_, as the Curator's simulated noise does.

    References
    ----------
    .. [1] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS
       2020, Algorithm 3.
    """
    out = np.zeros(n, dtype=np.int64)
    t, filled = math.floor(std) + 1, 0
    stop = -math.expm1(-1 / t)
    while filled < n:
        size = 2 * (n - filled) + 16
        y = rng.geometric(stop, size) - rng.geometric(stop, size)
        exponent = ((np.abs(y) - std * (std / t)) / std) ** 2 / 2
        kept = y[rng.standard_exponential(size) > exponent][: n - filled]
        out[filled : filled + len(kept)] = kept
        filled += len(kept)
    return out
