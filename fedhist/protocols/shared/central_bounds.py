"""Lower bounds beside what a protocol with a trusted server promises: public numbers and users.

As for local protocols a bound is of the worst population of its kind: users of so many items, or
users whose own means lie so far apart. No protocol under the same guarantee beats it on all such.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.model.losses import L1
from fedhist.model.prediction import LowerBound
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from server.means.central_bounds import coin_bound
from server.means.lower_bounds import Sizes

COUPLED = "two populations user by user (coupling), group privacy; {}"
ITEMS = "items of one law"
APART = "users' means as far apart as here"
WITHIN = "users' means within the radius"
GRADIENTS = "least squares with gradients within spread"


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
    return [LowerBound(L1, value, source=COUPLED.format(ITEMS))]


def central_mean_bounds(
    guarantee: Guarantee,
    n_users: float,
    radius: float,
    loss: str,
    power: int,
    kind: str = APART,
) -> list[LowerBound]:
    """Bound the l2 error of a mean, or its square, where users' means lie ``radius`` from it."""
    if not covered(guarantee) or not n_users or not radius > 0:
        return []
    eps, delta, steps = guarantee.epsilon, guarantee.delta, steps_of(guarantee)
    sizes = Sizes(np.ones(1), np.array([float(n_users)]))
    value = radius**power * coin_bound(sizes, eps, delta, power=power, steps=steps)
    return [LowerBound(loss, value, source=COUPLED.format(kind))]


def quadratic_risk_bounds(
    guarantee: Guarantee,
    n_users: int,
    lengths: tuple[float, float, float],
    bends: tuple[float, float, float],
    loss: str,
) -> list[LowerBound]:
    """Bound the excess risk of least squares from below, by that of a mean.

    Of a risk with the Hessian a I whose users' gradients lie r from their mean, the minimiser is a
    mean of points r / a apart, and the excess a / 2 times its squared error. The least a is taken
    whose minimisers lie in the ball; none if a Hessian or gradients within the declared bounds do
    not allow it.

    Parameters
    ----------
    guarantee : Guarantee
    n_users : int
    lengths : tuple of float
        Radius of the ball, spread r, and bound on a user's gradient.
    bends : tuple of float
        Least and largest eigenvalue of the Hessian, and the ridge on top of it.
    loss : str
    """
    radius, spread, longest = lengths
    low, high, ridge = bends
    a = max(low + ridge, spread / radius)
    hessian = max(low, a - ridge)
    if hessian > high or hessian * radius + spread > longest:
        return []
    away = spread / math.sqrt(2 * a)
    return central_mean_bounds(guarantee, n_users, away, loss, 2, GRADIENTS)
