"""Noise on sums of users' clipped vectors: Laplace or Gaussian, whichever is less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from fedhist.base.arrays import Array, Integers
from fedhist.privacy.guarantee import Adjacency
from fedhist.privacy.noise_law import noise_per_sensitivity

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

STEPS = 1 << 24
"""Whole steps per clipping radius in which users send: integers, whose sums are exact."""

COUNTED_STEPS = STEPS // 5
COUNTED = COUNTED_STEPS / STEPS
"""What a user's weight is worth beside its vector, where the sum of weights is private too: .2 in
whole steps. A sum of weights is worth as much rounded down, and a user moves that by no more."""

ROUNDING = 1 + 1e-9
"""Relative excess of a norm in whole steps over its bound that is put down to rounding."""

Kind = Literal["laplace", "gaussian"]
ADJACENCIES = tuple(a.value for a in Adjacency if a is not Adjacency.REPLACE_ITEM)


@dataclass(frozen=True)
class SumNoise:
    """Noise on sums of vectors in the unit ball that several steps share.

    Parameters
    ----------
    kind : {"laplace", "gaussian"}
    epsilon, delta : float
        Of all steps together; Laplace noise spends no delta.
    l1, l2 : float
        How much one user can change the sum, in radii.
    multiplier : float
        Standard deviation per unit of sensitivity of a step that has the whole budget.
    rho : float
        Positive where the Gaussian is paid for in zCDP.
    discrete : bool
        Integer noise on the steps of the grid.
    """

    kind: Kind
    epsilon: float
    delta: float
    l1: float
    l2: float
    multiplier: float
    discrete: bool = False
    rho: float = 0.0

    def std(self, share: float = 1.0) -> float:
        """Return the standard deviation in each coordinate, in radii, at a share of the budget.

        Shares of Gaussian steps are of 1 / std^2, those of Laplace steps of epsilon.
        """
        if self.kind == "gaussian":
            return self.l2 * self.multiplier / math.sqrt(share)
        return self.l1 * self.multiplier / share


def sum_noise(
    epsilon: float,
    delta: float,
    dimension: int,
    adjacency: Adjacency,
    *,
    discrete: bool = False,
    rho: float = 0.0,
) -> SumNoise:
    """Choose the noise that is less; from public numbers.

    A vector of the unit ball in d dimensions has l2 norm 1 and l1 norm sqrt(d) at most. An emptied,
    added or removed user changes the sum by such a vector, a replaced one by two. Under add-remove
    .2 times the number of users is released with it. With ``rho`` the noise is the Gaussian of that
    zCDP, whatever epsilon and delta are.

    >>> round(sum_noise(1.0, 1e-6, 40, Adjacency.REPLACE_USER).std(), 3)
    8.449
    """
    counted = adjacency is Adjacency.ADD_REMOVE_USER
    l1, l2 = ball_sensitivities(dimension, adjacency, counted=counted)
    if rho:
        return SumNoise("gaussian", epsilon, delta, l1, l2, math.sqrt(0.5 / rho), discrete, rho)
    laplace = SumNoise("laplace", epsilon, 0.0, l1, l2, math.sqrt(2) / epsilon, discrete)
    if not delta:
        return laplace
    unit = noise_per_sensitivity(epsilon, delta, discrete).std
    gaussian = SumNoise("gaussian", epsilon, delta, l1, l2, unit, discrete)
    return min(laplace, gaussian, key=lambda n: n.std())


def ball_sensitivities(
    dimension: int, adjacency: Adjacency, *, counted: bool = False
) -> tuple[float, float]:
    """How far one user moves a sum of vectors of the unit ball: in l1, and in l2.

    ``counted``: with .2 times the number of vectors beside it, under add-remove.
    """
    l1, l2 = math.sqrt(dimension), 1.0
    if counted:
        l1, l2 = l1 + COUNTED, math.hypot(l2, COUNTED)
    times = 2.0 if adjacency is Adjacency.REPLACE_USER else 1.0
    return times * l1 * ROUNDING, times * l2 * ROUNDING


def paid_steps(
    server: Curator, noise: SumNoise, shares: Sequence[float], label: str
) -> Callable[[Integers], Array]:
    """Return what releases one integer vector after the other, with the shares in their order.

    Gaussian steps are paid for together and at once: they compose exactly [1]_.

    References
    ----------
    .. [1] Dong, Roth & Su, "Gaussian differential privacy", JRSS B 2022, Corollary 3.3.
    """
    left = list(shares)
    if noise.rho:

        def concentrated(total: Integers) -> Array:
            rho = noise.rho * left.pop(0)
            size, discrete = noise.l2 * STEPS, noise.discrete
            return server.gaussian_zcdp(
                total, l2_sensitivity=size, rho=rho, discrete=discrete, label=label
            )

        return concentrated
    if noise.kind == "gaussian":
        series = server.gaussian_series(
            len(shares),
            epsilon=noise.epsilon,
            delta=noise.delta,
            discrete=noise.discrete,
            shares=tuple(shares),
            label=label,
        )
        return lambda total: series(total, noise.l2 * STEPS)
    laplace = server.discrete_laplace if noise.discrete else server.laplace

    def release(total: Integers) -> Array:
        epsilon = noise.epsilon * left.pop(0)
        return laplace(total, l1_sensitivity=noise.l1 * STEPS, epsilon=epsilon, label=label)

    return release
