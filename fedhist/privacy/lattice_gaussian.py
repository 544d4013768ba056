"""The Gaussian mechanism on integers: how much noise, and how far it is from the continuous one.

The discrete Gaussian N_Z(0, v) gives an integer k a weight of exp(-k^2 / (2 v)). Write
S(v) = sum over j >= 1 of exp(-2 pi^2 v j^2); by Poisson summation the weights around any real
centre add up to sqrt(2 pi v) times a number in [1 - 2 S(v), 1 + 2 S(v)].

*Sums.* Let X have variance parameter u and Y, independent, v. Completing the square in the
convolution, P(X + Y = n) is proportional to exp(-n^2 / (2 (u + v))) times the weights of parameter
w = u v / (u + v) around n u / (u + v). So X + Y is N_Z(0, u + v) up to a factor within
(1 + 2 S(w)) / (1 - 2 S(w)) in every probability. For m draws of parameter v, added one by one, the
logarithms of these factors are those of w = v k / (k + 1), k = 1 ... m - 1.

*Rounding.* Add continuous noise of variance a to an integer f, and round the result x to the
integer n with a probability proportional to exp(-(n - x)^2 / (2 r^2)). The normalizer of the second
step is nearly constant, and the two Gaussians convolve to one: n is f + N_Z(0, a + r^2) up to a
factor within (1 + 2 S(r^2)) / (1 - 2 S(r^2)). The rounding does not look at f. So N_Z(0, a + r^2),
added to d integers, is the continuous Gaussian mechanism of variance a, post-processed, up to a
factor exp(eta) in every probability, eta = d times the loss: where that mechanism is
(epsilon, delta)-DP, this one is (epsilon + 2 eta, exp(eta) delta)-DP, whatever the dimension and
the direction in which a user moves the integers. Rounds that follow each other, each chosen by what
came before, multiply their factors: d then counts the entries of all of them.

With r^2 = 4 the loss of a rounding is 2e-34: nothing that any other constant here is known to.

References
----------
.. [1] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
.. [2] Kairouz, Liu & Steinke, "The distributed discrete Gaussian mechanism for federated learning
   with secure aggregation", ICML 2021.
"""

from __future__ import annotations

import math

from fedhist.base.checks import check_count, check_size
from fedhist.privacy.guarantee import (
    Release,
    gaussian,
    gaussian_cost,
    gaussian_multiplier,
    zcdp_rho,
)


def lattice_std(l2_sensitivity: float, epsilon: float, delta: float, *, rounds: int = 1) -> float:
    """Std of the discrete Gaussian that stands for ``rounds`` adaptive analytic Gaussians.

    sigma^2 = rounds (m D)^2 + 4, with m the multiplier of the analytic Gaussian mechanism and D,
    in steps, how far one user moves the integers in each round: one charge of (epsilon, delta) for
    all rounds. 0 (no noise) only for sensitivity 0 or infinite epsilon.

    Privacy
    -------
    (epsilon, delta)-DP for all rounds together, under whatever adjacency D is stated for, up to
    the loss of rounding.
    """
    check_count("rounds", rounds)
    check_size("a sensitivity", l2_sensitivity, zero=True)
    continuous = gaussian_multiplier(epsilon, delta) * l2_sensitivity
    return math.sqrt(rounds * continuous**2 + 4.0) if continuous else 0.0


def discrete_gaussian_stds(
    l2_sensitivity: float, epsilon: float, delta: float, times: float = 1.0
) -> tuple[float, float]:
    """Stds of two kinds of discrete Gaussian noise that are (epsilon, delta)-DP.

    That of :func:`lattice_std`, and the one whose zCDP [1, Theorem 4] implies (epsilon, delta),
    which is the smaller where integers move by a step or so: 4.225 against 4.531 per unit of
    sensitivity at (1, 1e-6), but 4.674 for a sensitivity of 1.

    ``times`` says by how much more noise a part of a series has: the root of the number of its
    rounds. All rounds of a series must be of one kind: of rounded Gaussians 1 / multiplier^2 add
    up, of the others rho, and the two do not mix.
    """
    rounded = lattice_std(times * l2_sensitivity, epsilon, delta)
    return rounded, times * l2_sensitivity * math.sqrt(0.5 / zcdp_rho(epsilon, delta))


def discrete_gaussian_std(l2_sensitivity: float, epsilon: float, delta: float) -> float:
    """Std of discrete Gaussian noise that is (epsilon, delta)-DP: the smaller of the two."""
    return min(discrete_gaussian_stds(l2_sensitivity, epsilon, delta))


def discrete_gaussian_cost(
    l2_sensitivity: float, epsilon: float, delta: float
) -> tuple[float, Release]:
    """Return the std of the noise, and its cost.

    A discrete Gaussian is D^2 / (2 sigma^2)-zCDP [1, Theorem 4], whichever way sigma was found.
    """
    std = discrete_gaussian_std(l2_sensitivity, epsilon, delta)
    if not std:
        return 0.0, gaussian_cost(epsilon, delta)[1]
    return std, gaussian(std / l2_sensitivity, epsilon, delta)
