"""What no estimator with a trusted server can beat: explicit bounds.

Two populations +-D, coupled user by user so that a user's record differs with the probability t_u,
the total variation between its laws: H users differ. Outputs on two data sets that differ in g
users are at most T(g) apart in total variation (group privacy), so that on every pair of data sets
whose truths are A apart the two absolute errors add up to A (1 - T(H)) at least, and the squared
ones to A^2 (1 - T(H)) / 2. In a coupling of largest agreement the users who differ all differ in
the same direction, and the truth is the users' own average: nothing is lost to sampling, and the
averages of A add up to 2 D. As 1 - T is convex, its mean is at least its value at the mean.

Nothing depends on the estimator, on the number of its rounds, nor on the size of n.

References
----------
.. [1] Acharya, Sun & Zhang, "Differentially private Assouad, Fano, and Le Cam", ALT 2021: such
   couplings; here about the users' own average, with group privacy in one step.
.. [2] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Lemma 9.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from server.means.lower_bounds import Sizes, binomial_distance

DISTANCES: Floats = np.geomspace(1e-6, 1 - 1e-9, 80)
"""Distances D of the hypotheses that are looked at; any of them is a bound."""
CLASSES = 24
"""Sizes of users are rounded up to so many, which can only make a bound smaller."""
BELOW = 1e-10
"""Mass of the items that fall to a pair of symbols which is taken to tell everything."""


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
    """Round users' numbers of items up to a few sizes; more items make two laws differ more."""
    if len(sizes.items) <= CLASSES:
        return sizes
    edges = np.unique(np.ceil(np.geomspace(sizes.items.min(), sizes.items.max(), CLASSES)))
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

    Parameters
    ----------
    sizes : Sizes
        How many items users hold.
    epsilon, delta : float
        Under replacement of a user.
    power : {1, 2}
        Of the absolute error; 2 for ``pairs = 1`` only.
    pairs : int
        Pairs of symbols with the probabilities (1 +- D) / (2 pairs): bounds the l1 error of the
        shares (Assouad: a pair's part of it, with the others given).
    steps : int
        How many neighbours apart two records of one user are: 2 where the guarantee is about a
        record against the empty one.

    Returns
    -------
    float
        power 1: max over D of D (1 - T(1 + S)), S the sum of all t_u. power 2: that of D^2 times
        (sum 1 / t_u) / n^2 (1 - T(1 + S)) + (1 - 1/n) (1 - T(2 + S)).

    Examples
    --------
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
    low, high = (int(x) for x in binom.ppf((BELOW / 2, 1 - BELOW / 2), items, 1 / pairs))
    at = np.arange(low, high + 1)
    mass = binom.pmf(at, items, 1 / pairs)
    found = np.full(len(d), max(0.0, 1 - float(mass.sum())))
    for b, share in zip(at, mass, strict=True):
        found += share * binomial_distance(float(b), d) if b else 0.0
    return np.asarray(np.minimum(found, 1.0))


def least_users_of_any(epsilon: float, delta: float) -> float:
    """Users with which nobody finds a ball that most users' means lie in, wherever it may be.

    ln(1 + (2/3) (e^epsilon - 1) / delta) / epsilon: at most so many are too few for any finite
    error with probability 2/3; inf where delta = 0. Three times [2, Lemma 9], whose proof gives it:
    a point that all users would make likely, with probability 2/3, has a positive probability
    whatever the data are, and points without number lie far apart.

    >>> round(least_users_of_any(1.0, 1e-6), 2)
    13.95
    """
    if not delta:
        return math.inf
    return math.log1p(2 / 3 * math.expm1(epsilon) / delta) / epsilon


def lemma_9_users(epsilon: float, delta: float) -> float | None:
    """Users below which [2, Lemma 9] excludes every algorithm; None unless 0 < delta <= epsilon^2.

    >>> round(lemma_9_users(1.0, 1e-6), 2), lemma_9_users(1e-4, 1e-6)
    (4.61, None)
    """
    if not 0 < delta <= epsilon**2:
        return None
    return math.log(1 / delta) / (3 * epsilon)
