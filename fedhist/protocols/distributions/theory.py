"""What theory predicts for learning a discrete distribution: errors, lower bounds, crossovers.

Shares no code with the estimators. Errors are expected l1 distances before the projection to the
simplex. Each is meant in two senses. ``pooled=False``: the distance from the distribution p that
every sample was drawn from, as in the paper. ``pooled=True``: the distance from the users' own
empirical distribution, p being that; the sampling error of the truth itself is then left out.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import gammaln, ndtri

from fedhist.base.arrays import Floats, Integers
from fedhist.base.search import MOST_USERS, first_true
from fedhist.privacy.guarantee import zcdp_epsilon
from fedhist.privacy.lattice_gaussian import ROUNDING
from fedhist.privacy.noise_law import NoiseLaw, excess, noise_per_sensitivity, upper_quantile
from fedhist.protocols.shared.clipped_totals import in_domain
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
QUANTILES, LEAST_ATOMS, MOST_ATOMS = 256, 32, 1 << 22
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


# -- laws of the noise -----------------------------------------------------------------------------


def counts_law(k: int, m: int, epsilon: float, delta: float, discrete: bool) -> NoiseLaw:
    """Noise on every summed count: sensitivity 2 m (l1) or sqrt(2) m (l2); m where k = 1.

    >>> counts_law(10, 3, 0.5, 0.0, True).scale
    12.0
    """
    size = m * (1.0 if k == 1 else math.sqrt(2.0) if delta else 2.0)
    unit = noise_per_sensitivity(epsilon, delta, discrete, size)
    return NoiseLaw(unit.kind, unit.scale * size)


def presence_law(k: int, m: int, epsilon: float, delta: float, discrete: bool) -> NoiseLaw:
    """Noise on every presence total: sensitivity q = min(k, 2 m) (l1) or sqrt(q) (l2)."""
    q = min(k, 2 * m)
    size = math.sqrt(q) if delta else float(q)
    unit = noise_per_sensitivity(epsilon, delta, discrete, size)
    return NoiseLaw(unit.kind, unit.scale * size)


def printed_multiplier(epsilon: float, delta: float) -> float:
    """Noise std per unit of l2 sensitivity in [1, Lemma 1]: sqrt(2 ln(1.25 / delta)) / epsilon.

    That suffices for epsilon < 1 only; :func:`printed_gaussian_spends` says what it is worth.
    """
    return 0.0 if math.isinf(epsilon) else math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def printed_gaussian_spends(
    epsilon: float, delta: float, discrete: bool, sensitivity: float = math.inf
) -> float:
    """Epsilon at ``delta`` of the noise printed in [1, Lemma 1], exactly.

    Discrete noise on integers that move by ``sensitivity``: the epsilon that
    :func:`~fedhist.privacy.lattice_gaussian.discrete_gaussian_std` makes that noise of.
    """
    multiplier = printed_multiplier(epsilon, delta)
    if multiplier == 0:
        return math.inf
    import dp_accounting  # takes most of a second

    if not discrete:
        return float(dp_accounting.get_epsilon_gaussian(multiplier, delta))
    spent = zcdp_epsilon(0.5 / multiplier**2, delta)
    left = multiplier**2 - ROUNDING / sensitivity**2
    if left > 0:
        spent = min(spent, float(dp_accounting.get_epsilon_gaussian(math.sqrt(left), delta)))
    return spent


# -- errors ----------------------------------------------------------------------------------------


def expected_absolute(bias: Floats, std: Floats, law: NoiseLaw) -> Floats:
    """E|b + G + Z| for a Gaussian G of each std and noise Z: (k,).

    E|x + Z| = |x| + 2 E(Z - |x|)^+ exactly; G is integrated by Gauss-Hermite quadrature.
    """
    b, s = np.asarray(bias, dtype=np.float64), np.asarray(std, dtype=np.float64)
    if law.scale == 0:
        folded = np.array([math.erf(x) for x in _ratio(b, math.sqrt(2) * s)])
        spread = MEAN_ABSOLUTE * s * np.exp(-0.5 * _ratio(b, s) ** 2)
        return np.asarray(np.where(s > 0, spread + b * folded, np.abs(b)))
    if not s.any():
        return np.asarray(np.abs(b) + 2 * excess(law, np.abs(b)))
    x = np.abs(b[:, None] + s[:, None] * NODES)
    return np.asarray((x + 2 * excess(law, x)) @ WEIGHTS)


def counts_error(p: Floats, m: int, n_users: int, law: NoiseLaw, pooled: bool) -> float:
    """Compute the expected l1 error of noisy counts over s m [1, Lemma 1].

    Parameters
    ----------
    p : (k,) float64
    m : int
        Samples per user; 1 where each user sends one item.
    n_users : int
        s.
    law : NoiseLaw
        Of the noise on each count.
    pooled : bool

    Returns
    -------
    float
        Sum of E|G + Z| / (s m) with Var G = s m p (1 - p), which is 0 if pooled. At most
        sqrt(k / (s m)) plus the noise.
    """
    return _counts_error(p, 1.0 if not pooled else 0.0, m, n_users, law)


def one_item_error(p: Floats, m: int, n_users: int, law: NoiseLaw, pooled: bool) -> float:
    """Compute the expected l1 error where each user sends one of its m items.

    Given the users' items a draw has the variance p_u (1 - p_u), which is p (1 - p) (1 - 1 / m) on
    average over users: that is left when the truth is what the users hold.
    """
    return _counts_error(p, 1.0 if not pooled else 1 - 1 / m, 1, n_users, law)


def _counts_error(p: Floats, part: float, m: int, n_users: int, law: NoiseLaw) -> float:
    values, times = np.unique(p, return_counts=True)
    std = np.sqrt(part * n_users * m * values * (1 - values))
    return float(times @ expected_absolute(np.zeros_like(std), std, law)) / (n_users * m)


def presence_error(
    p: Floats, m: int, n_users: int, law: NoiseLaw, pooled: bool, cmax: float
) -> float:
    """Compute the expected l1 error of probabilities read from presence [1, Algorithm 4].

    The estimate is 1 - clip(1 - (presence + Z) / s, e^-cmax, 1)^(1 / m).

    By quadrature over the sampling of users and the noise, both taken as continuous. For m p up
    to 2 it is close to e^(m p) / (m s) hypot(.8 sqrt(s q (1 - q)), .8 sigma), q = (1 - p)^m.
    Against the pooled truth, the variance of that truth is taken off: it is an efficient estimate,
    so that the difference is uncorrelated with it.
    """
    values, times = np.unique(p, return_counts=True)
    lacking = np.exp(m * np.log1p(-np.minimum(values, 1 - 1e-15)))
    std = np.sqrt(n_users * lacking * (1 - lacking))
    if pooled:
        # Var of the estimate is q (1 - q) / (s m^2 q^2 / (1 - p)^2), of the mean p (1 - p) / (s m)
        share = _ratio(m * values * lacking, (1 - lacking) * np.maximum(1 - values, 1e-15))
        std *= np.sqrt(np.clip(1 - share, 0.0, 1.0))
    errors = presence_absolute(n_users * (1 - lacking), std, values, m, n_users, law, cmax)
    return float(times @ errors)


def presence_absolute(
    mean: Floats, std: Floats, p: Floats, m: int, n_users: int, law: NoiseLaw, cmax: float
) -> Floats:
    """E|estimate from presence - p| where the totals have a mean and a Gaussian std: (k,)."""
    atoms = presence_atoms(mean, std, m, n_users, law, cmax)
    return np.asarray(np.abs(atoms - p[:, None]).mean(axis=1))


def presence_atoms(
    mean: Floats, std: Floats, m: int, n_users: int, law: NoiseLaw, cmax: float
) -> Floats:
    """Equally probable values of the estimate from presence totals, for each symbol: (k, atoms).

    1 - clip(1 - total / s, e^-cmax, 1)^(1 / m) at the quantiles of the totals, which are Gaussian
    around ``mean``; Laplace noise is taken at its quantiles as well, in every combination.
    """
    n = int(np.clip(MOST_ATOMS // max(1, len(mean)), LEAST_ATOMS, QUANTILES))
    if law.kind in ("gaussian", "discrete-gaussian"):
        present = mean[:, None] + np.hypot(std, law.scale)[:, None] * ndtri(_middles(n))
    else:
        few = max(8, n // 8) if std.any() else 1
        at = _middles(n) - 0.5
        noise = np.sign(at) * upper_quantile(law, 0.5 - np.abs(at))
        normal = ndtri(_middles(few))
        present = mean[:, None, None] + std[:, None, None] * normal[:, None] + noise
        present = present.reshape(len(mean), -1)
    lacking = np.clip(1 - present / n_users, math.exp(-cmax), 1.0)
    return np.asarray(1 - lacking ** (1 / m))


def _middles(n: int) -> Floats:
    return np.asarray((np.arange(n) + 0.5) / n)


def _ratio(a: Floats, b: Floats) -> Floats:
    """Divide a by b; 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=b != 0)


# -- known users: NOT PRIVATE ------------------------------------------------------------------


def cut_moments(users: Users, domain: Keys, m: int) -> tuple[Floats, Floats]:
    """Mean and variance of the summed counts over the users' draws of m items. NOT PRIVATE.

    A user of n > m items sends hypergeometric counts: mean m share, variance m share (1 - share)
    (n - m) / (n - 1).
    """
    k = len(domain)
    mean, variance = np.zeros(k), np.zeros(k)
    for share, size, user, item in _shares(users, domain):
        kept = np.minimum(size, m)[user]
        n = size[user]
        spread = kept * share * (1 - share) * _ratio(n - kept, n - 1)
        mean += np.bincount(item, kept * share, k)
        variance += np.bincount(item, spread, k)
    return mean, variance


def presence_moments(users: Users, domain: Keys, m: int) -> tuple[Floats, Floats]:
    """Mean and variance of the presence totals over the users' draws of m items. NOT PRIVATE."""
    k = len(domain)
    mean, variance = np.zeros(k), np.zeros(k)
    for share, size, user, item in _shares(users, domain):
        n = size[user]
        rest = np.rint(n * (1 - share))  # items of other symbols
        drawn = (n > m) & (rest >= m)
        a, b = np.where(drawn, rest, m), np.where(drawn, n, m)  # C(rest, m) / C(n, m)
        none = gammaln(a + 1) - gammaln(a - m + 1) - gammaln(b + 1) + gammaln(b - m + 1)
        some = np.where(drawn, -np.expm1(none), 1.0)
        mean += np.bincount(item, some, k)
        variance += np.bincount(item, some * (1 - some), k)
    return mean, variance


def _shares(users: Users, domain: Keys) -> Iterator[tuple[Floats, Floats, Integers, Integers]]:
    """Walk batches: each entry's share of its user, users' sizes, entries' users and symbols."""
    k = len(domain)
    for n, flat, count in in_domain(users, domain):
        user, item = flat // k, flat % k
        size = np.asarray(np.bincount(user, count, n), dtype=np.float64)
        yield count / size[user], size, user, item


# -- users that are needed -------------------------------------------------------------------------


def least_users(error: Callable[[int], float], alpha: float, most: int = MOST_USERS) -> float:
    """Fewest users s with ``error(s) <= alpha``, for an error that falls with s; inf if over most.

    >>> least_users(lambda s: 10 / s, 0.5)
    20.0
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    return float(first_true(lambda s: error(s) <= alpha, most) or math.inf)


def users_for_sampling(k: int, m: int, alpha: float) -> float:
    """Users without any privacy: 2 (k - 1) / (pi m alpha^2), sharp at p uniform.

    >>> round(users_for_sampling(101, 10, 0.1))
    637
    """
    return 2 * (k - 1) / (math.pi * m * alpha**2)


def users_for_counts(k: int, alpha: float, epsilon: float, delta: float) -> float:
    """Lower bound for estimators that read summed counts: k / (4000 alpha (epsilon + delta)).

    A shape: some 10^3 below what is achieved. Holds for epsilon + delta <= 0.07. Corrected
    against [1, Theorem 1], whose 2000 drops a factor: the hypercube has the dimension k / 2.
    """
    return k / (4000 * alpha * (epsilon + delta))


def users_for_pure(k: int, m: int, alpha: float, epsilon: float) -> float:
    """Lower bound under pure differential privacy: k / (2700 sqrt(m) epsilon alpha).

    A shape, as above. [1, Theorem 3] gives 4500; chi^2 <= 72 alpha^2 in its proof gives 2700. (Its
    statement has lost the sqrt(m) in one place.)
    """
    return k / (2700 * math.sqrt(m) * epsilon * alpha)


def users_of_theorem_7(k: int, m: int, alpha: float, epsilon: float, delta: float) -> float | None:
    """Order of the users that selection needs where k <= m and epsilon <= 1; None elsewhere.

    ln(k m / alpha) max(k / (m alpha^2) + k sqrt(L) / (sqrt(m) alpha epsilon), sqrt(k L) / epsilon)
    with L = ln(1 / delta), constants of 1. Corrected: [1, Theorem 7] has lost one of the sqrt(L),
    which [1, Theorem 2] has.

    >>> round(users_of_theorem_7(10, 100, 0.1, 1.0, 1e-6)), users_of_theorem_7(10, 9, 0.1, 1.0, 0.1)
    (434, None)
    """
    if k > m or epsilon > 1 or not 0 < delta < 1:
        return None
    root = math.sqrt(math.log(1 / delta))
    rate = k / (m * alpha**2) + k * root / (math.sqrt(m) * alpha * epsilon)
    return math.log(k * m / alpha) * max(rate, math.sqrt(k) * root / epsilon)
