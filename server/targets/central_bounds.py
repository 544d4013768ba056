"""What no estimator with a trusted server can beat: explicit bounds, for public numbers and users.

Two populations +-D, coupled user by user so that a user's record differs with the probability t_u,
the total variation between its laws: H users differ. Outputs on two data sets that differ in g
users are at most T(g) apart in total variation (group privacy), so that on every pair of data sets
whose truths are A apart the two absolute errors add up to A (1 - T(H)) at least, and the squared
ones to A^2 (1 - T(H)) / 2. In a coupling of largest agreement the users who differ all differ in
the same direction, and the truth is the users' own average: nothing is lost to sampling, and the
averages of A add up to 2 D. As 1 - T is convex, its mean is at least its value at the mean.

Nothing depends on the estimator, on the number of its rounds, nor on the size of n. A bound is of
the worst population of its kind: users of so many items, or users whose own means lie so far apart.

References
----------
.. [1] Acharya, Sun & Zhang, "Differentially private Assouad, Fano, and Le Cam", ALT 2021: such
   couplings; here about the users' own average, with group privacy in one step.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.truths import L1, LowerBound
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from server.targets.two_points import Sizes, binomial_distance

DISTANCES: Floats = np.geomspace(1e-6, 1 - 1e-9, 80)
"""Distances D of the hypotheses that are looked at; any of them is a bound."""


def kept_apart(epsilon: float, delta: float, users: Floats) -> Floats:
    """Return 1 - T(g): how much outputs on data sets must overlap that differ in g users.

    With E = g epsilon and Delta = delta (e^E - 1) / (e^epsilon - 1) each output law is at most e^E
    times the other plus Delta, hence T <= (e^E - 1 + 2 Delta) / (e^E + 1), and that is attained.

    >>> kept_apart(1.0, 0.0, np.array([0.0, 1.0])).round(4).tolist()
    [1.0, 0.5379]
    """
    part = delta / math.expm1(epsilon) if epsilon < 700 else 0.0
    x = np.minimum(np.asarray(users, dtype=np.float64) * epsilon, 700.0)
    return np.asarray(np.clip(2 * (1 + 2 * part) / (np.exp(x) + 1) - 2 * part, 0.0, 1.0))


def grouped(sizes: Sizes) -> Sizes:
    """Round users' numbers of items up to 24 sizes; more items make two laws differ more."""
    if len(sizes.items) <= 24:
        return sizes
    edges = np.unique(np.ceil(np.geomspace(sizes.items.min(), sizes.items.max(), 24)))
    at = np.searchsorted(edges, sizes.items)
    users = np.asarray(np.bincount(at, sizes.users, minlength=len(edges)), dtype=np.float64)
    return Sizes(edges[users > 0], users[users > 0])


def coin_bound(
    sizes: Sizes,
    epsilon: float,
    delta: float,
    *,
    power: int = 2,
    pairs: int = 1,
    steps: int = 1,
) -> float:
    """Bound the error about the users' own average of items +-1, or of shares of symbols.

    Power 1, of the absolute error: max over D of D (1 - T(1 + S)), S the sum of all t_u. Power 2,
    for one pair only: that of D^2 times (sum 1 / t_u) / n^2 (1 - T(1 + S)) + (1 - 1/n) (1 - T(2 +
    S)). With ``pairs`` of symbols of the probabilities (1 +- D) / (2 pairs) the l1 error of the
    shares is bounded (Assouad: a pair's part of it, with the others given). ``steps`` are how many
    neighbours apart two records of one user are.

    >>> users = Sizes(np.array([1.0]), np.array([1000.0]))
    >>> 0.23 < 1000 * coin_bound(users, 1.0, 0.0, power=1) < 0.5569
    True
    """
    if math.isinf(epsilon):
        return 0.0
    if power == 2 and pairs != 1:
        raise ValueError(f"squared errors have one pair, got pairs = {pairs}")
    sizes, d = grouped(sizes), DISTANCES
    total, inverse = np.zeros(len(d)), np.zeros(len(d))
    for items, users in zip(sizes.items, sizes.users, strict=True):
        t = _apart(items, d, pairs)
        total += users * t
        inverse += users / np.maximum(t, 1e-300)
    one = kept_apart(epsilon, delta, steps * (1 + total))
    if power == 1:
        return float((d * one).max())
    two = kept_apart(epsilon, delta, steps * (2 + total))
    n = sizes.n
    return float((d**2 * (inverse / n**2 * one + max(0.0, 1 - 1 / n) * two)).max())


def _apart(items: float, d: Floats, pairs: int) -> Floats:
    """Return t: total variation of a user's items in one pair, given how many they are."""
    from scipy.stats import binom

    if pairs == 1:
        return binomial_distance(items, d)
    low, high = (int(x) for x in binom.ppf((5e-11, 1 - 5e-11), items, 1 / pairs))
    at = np.arange(low, high + 1)
    mass = binom.pmf(at, items, 1 / pairs)
    total = np.full(len(d), max(0.0, 1 - float(mass.sum())))  # the rest tells everything
    for b, share in zip(at, mass, strict=True):
        total += share * binomial_distance(float(b), d) if b else 0.0
    return np.asarray(np.minimum(total, 1.0))


def _coupled(kind: str) -> str:
    return f"two populations user by user (coupling), group privacy; {kind}"


def covered(guarantee: Guarantee) -> bool:
    """Say whether the bounds are about such a guarantee: a whole record, and a trusted server."""
    central = guarantee.trust is Trust.CENTRAL and guarantee.unit == "user"
    return central and guarantee.private


def steps_of(guarantee: Guarantee) -> int:
    """How many neighbours apart two records of one user are: by way of the empty one, two."""
    return 1 if guarantee.adjacency is Adjacency.REPLACE_USER else 2


def central_share_bounds(guarantee: Guarantee, sizes: Sizes, symbols: int) -> list[LowerBound]:
    """Bound the l1 error of the shares of symbols from below, for users of such sizes."""
    if not covered(guarantee) or symbols < 2:
        return []
    eps, delta, steps = guarantee.epsilon, guarantee.delta, steps_of(guarantee)
    pairs = sorted({1, symbols // 2})
    value = max(coin_bound(sizes, eps, delta, power=1, pairs=j, steps=steps) for j in pairs)
    return [LowerBound(L1, value, source=_coupled("items of one law"))]


def central_mean_bounds(
    guarantee: Guarantee,
    n_users: float,
    radius: float,
    loss: str,
    power: int,
    kind: str = "users' means as far apart as here",
) -> list[LowerBound]:
    """Bound the l2 error of a mean, or its square, where users' means lie ``radius`` from it."""
    if not covered(guarantee) or not n_users or not radius > 0:
        return []
    eps, delta, steps = guarantee.epsilon, guarantee.delta, steps_of(guarantee)
    sizes = Sizes(np.ones(1), np.array([float(n_users)]))
    value = radius**power * coin_bound(sizes, eps, delta, power=power, steps=steps)
    return [LowerBound(loss, value, source=_coupled(kind))]
