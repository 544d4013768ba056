"""Empirical risk over users, and its minimiser in a ball.

NOT PRIVATE: everything here reads the users' samples, for evaluation only. It shares no code with
the client half.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import expit

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users


@dataclass(frozen=True)
class SquaredRisk:
    """Of least squares, from sums over the users: nobody's samples are kept."""

    ridge: float
    middle: Floats  # average of the users' average features: (d,)
    squares: Floats  # of the products of features, and of the response as the last

    @classmethod
    def read(cls, sums: Mapping[str, Array], ridge: float = 0.0) -> Self:
        """Divide what :func:`squared_sums` adds up by the usable users; there must be some."""
        n = float(sums["usable"][0])
        if not n:
            raise PopulationError("no user has samples that a least-squares model can use")
        return cls(ridge, sums["features"] / n, sums["squares"] / n)

    def value(self, theta: Floats) -> float:
        """Return the risk."""
        at = np.append(theta, -1.0)
        return float(at @ self.squares @ at + self.ridge * theta @ theta) / 2

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient: (d,)."""
        return np.asarray(self.squares[:-1] @ np.append(theta, -1.0) + self.ridge * theta)

    def hessian(self, theta: Floats) -> Floats:
        """Return the Hessian: (d, d)."""
        return np.asarray(self.squares[:-1, :-1] + self.ridge * np.eye(len(theta)))


def squared_sums(users: Users) -> dict[str, Array]:
    """Add up usable users' average features and products of samples. NOT PRIVATE."""
    z, owner = usable_samples(users)
    weight = (1 / np.bincount(owner))[owner]
    return {
        "usable": np.array([owner[-1] + 1 if len(owner) else 0]),
        "features": weight @ z[:, :-1],
        "squares": (z.T * weight) @ z,
    }


def usable_samples(users: Users, *, logistic: bool = False) -> tuple[Floats, Integers]:
    """Collect the samples of usable users, (total, d + 1), and whose they are, from 0 on.

    Not usable is who has no samples, or values or labels out of place. Labels of the logistic
    model become -1 or 1.
    """
    samples = users.reals
    z, y = samples.values, samples.values[:, -1]
    fits = np.isfinite(z).all(axis=1)
    if logistic:
        fits &= np.isin(y, (-1.0, 0.0, 1.0))
        z = np.column_stack((z[:, :-1], np.where(y == 1, 1.0, -1.0)))
    sizes = np.diff(samples.indptr)
    owner = np.repeat(np.arange(len(users)), sizes)
    usable = (sizes > 0) & (np.bincount(owner[~fits], minlength=len(users)) == 0)
    held = usable[owner]
    return z[held], (np.cumsum(usable) - 1)[owner[held]]


@dataclass(frozen=True)
class LogisticRisk:
    """Of logistic regression, from all samples of the usable users."""

    ridge: float
    x: Floats
    y: Floats  # -1 or 1
    weight: Floats  # 1 / (usable users times samples of this user)

    @classmethod
    def of(cls, users: Users, ridge: float = 0.0) -> Self:
        """Collect the samples; there must be some."""
        z, owner = usable_samples(users, logistic=True)
        if not len(owner):
            raise PopulationError("no user has samples that a logistic model can use")
        sizes = np.bincount(owner)
        return cls(ridge, z[:, :-1], z[:, -1], 1 / (len(sizes) * sizes[owner]))

    @property
    def middle(self) -> Floats:
        """Average of the users' average features: (d,)."""
        return np.asarray(self.weight @ self.x)

    def value(self, theta: Floats) -> float:
        """Return the risk."""
        losses = np.logaddexp(0.0, -self.y * (self.x @ theta))
        return float(self.weight @ losses + self.ridge / 2 * theta @ theta)

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient: (d,)."""
        slope = -self.y * expit(-self.y * (self.x @ theta))
        return np.asarray((self.weight * slope) @ self.x + self.ridge * theta)

    def hessian(self, theta: Floats) -> Floats:
        """Return the Hessian: (d, d)."""
        z = self.x @ theta
        w = self.weight * expit(z) * expit(-z)
        return np.asarray((self.x.T * w) @ self.x + self.ridge * np.eye(len(theta)))


Risk = SquaredRisk | LogisticRisk
"""Average over users of each user's average loss, plus ridge / 2 |theta|^2. NOT PRIVATE."""


def minimise(risk: Risk, radius: float) -> Floats:
    """Return the minimiser of a risk in the ball of a radius around 0: (d,).

    On the boundary it is the minimiser of the risk plus nu / 2 |theta|^2 for the multiplier
    nu at which its length is the radius.
    """
    from scipy.optimize import brentq

    inside = _flat_place(risk)
    if inside is not None and np.linalg.norm(inside) <= radius:
        return inside
    start = float(np.linalg.norm(risk.gradient(np.zeros(len(risk.middle))))) / radius

    def at(log_nu: float) -> Floats | None:
        return _flat_place(replace(risk, ridge=risk.ridge + float(np.exp(log_nu))))

    def excess(log_nu: float) -> float:
        theta = at(log_nu)
        return np.inf if theta is None else float(np.linalg.norm(theta)) - radius

    low = high = float(np.log(start)) + 1e-9
    while excess(low) < 0 and low > high - 60:
        low -= 2.0
    theta = at(brentq(excess, low, high, xtol=1e-13) if excess(low) > 0 else low)
    if theta is None:
        raise PopulationError("the risk has no minimiser that can be computed")
    return project(theta, radius)


def _flat_place(risk: Risk) -> Floats | None:
    """Minimise over the whole space; None where no place is flat."""
    from scipy.optimize import root

    solution = root(risk.gradient, np.zeros(len(risk.middle)), jac=risk.hessian, tol=1e-14)
    flat = np.linalg.norm(solution.fun) <= 1e-9 * (1 + np.abs(risk.middle).sum())
    return np.asarray(solution.x) if flat else None


def project(theta: Floats, radius: float) -> Floats:
    """Move a point to the nearest one of the ball of a radius around 0.

    >>> project(np.array([3.0, 4.0]), 1.0)
    array([0.6, 0.8])
    """
    size = float(np.linalg.norm(theta))
    return theta if size <= radius else theta * (radius / size)
