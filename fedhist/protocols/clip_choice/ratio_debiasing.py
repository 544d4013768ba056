"""Ratio debiasing: scale a clipped histogram up to a private estimate of the total count.

Clipping takes the same share from every item of a user. If users' mixtures of items do not depend
on how much they contribute, the clipped totals are the true ones times one common factor, and the
ratio of the totals undoes it: no bias is left, and C may be smaller, with less noise. Where heavy
users differ from light ones, bias remains. No theorem covers it, so it is off by default.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 6 (debiasing for one item).
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from fedhist.model.query import Query, Summary
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.protocols.shared.contributions import TotalContribution, em_quantile, safe_rank
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys

ROUNDS = 2
SMALLER_CLIP = 4.0
"""The chosen threshold is divided by this: there is no bias to balance, only noise."""


def private_total(
    server: Curator, domain: Keys, edges: tuple[float, ...], epsilon: float
) -> Generator[Query, Summary, tuple[float, int]]:
    """Estimate the number of all in-domain items, in two rounds (use ``yield from``).

    Half the budget chooses a cap C_T on users' numbers of items: for one number with Laplace noise
    the best is their quantile of rank 1 / epsilon [1, Lemma 4.2], raised to what the exponential
    mechanism can find. The other half pays for discrete Laplace noise on the sum of min(m, C_T).

    Parameters
    ----------
    server : Curator
    domain : Keys
    edges : tuple of float
        Caps to choose from, in items.
    epsilon : float

    Returns
    -------
    total : float
        Biased low by what the cap takes away; unbiased otherwise.
    cap : int

    Privacy
    -------
    epsilon-DP per user under every adjacency: a count of users changes by at most 1, the sum of
    numbers in [0, C_T] by at most C_T.
    """
    half = epsilon / 2
    rank = safe_rank(1 / half, len(edges), half)
    at = yield from em_quantile(server, domain, 1, edges, rank, half, "ratio-cap")
    cap = math.ceil(edges[at])
    summary = yield TotalContribution(domain, cap)
    total = server.discrete_laplace(
        summary.sums["total"],
        l1_sensitivity=cap,
        epsilon=half,
        label="ratio-total",
        moves=ONE_COUNT,
    )
    return float(total[0]), cap


def ratio(total: float, released: NDArray[np.float64]) -> float:
    """How much larger the total is than the sum of a released histogram, at least 1.

    >>> ratio(30.0, np.array([5.0, 10.0])), ratio(3.0, np.array([5.0])), ratio(9.0, np.zeros(2))
    (2.0, 1.0, 1.0)
    """
    found = float(released.sum())
    return max(1.0, total / found) if found > 0 else 1.0
