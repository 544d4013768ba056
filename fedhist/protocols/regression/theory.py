"""Empirical risk over users, and its minimiser in a ball.

NOT PRIVATE: everything here reads the users' samples, for evaluation only. It shares no code with
the client half.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import expit

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from server.regression.descent import project

NOBODY = "no user has samples that a {} model can use"


@dataclass(frozen=True)
class Risk(ABC):
    """Average over users of each user's average loss, plus ridge / 2 |theta|^2. NOT PRIVATE."""

    ridge: float

    @property
    @abstractmethod
    def middle(self) -> Floats:
        """Average of the users' average features: (d,)."""

    @property
    def dimension(self) -> int:
        """Number of features."""
        return len(self.middle)

    @abstractmethod
    def value(self, theta: Floats) -> float:
        """Return the risk."""

    @abstractmethod
    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient, (d,)."""

    @abstractmethod
    def hessian(self, theta: Floats) -> Floats:
        """Return the Hessian, (d, d)."""

    def minimise(self, radius: float) -> Floats:
        """Return the minimiser in the ball of a radius around 0: (d,).

        On the boundary it is the minimiser of the risk plus nu / 2 |theta|^2 for the multiplier
        nu at which its length is the radius.
        """
        inside = self._newton()
        if inside is not None and np.linalg.norm(inside) <= radius:
            return inside
        most = float(np.linalg.norm(self.gradient(np.zeros(self.dimension)))) / radius

        def excess(log_nu: float) -> float:
            theta = replace(self, ridge=self.ridge + float(np.exp(log_nu)))._newton()
            return np.inf if theta is None else float(np.linalg.norm(theta)) - radius

        from scipy.optimize import brentq

        low = high = float(np.log(most)) + 1e-9
        while excess(low) < 0 and low > high - 60:
            low -= 2.0
        nu = brentq(excess, low, high, xtol=1e-13) if excess(low) > 0 else low
        theta = replace(self, ridge=self.ridge + float(np.exp(nu)))._newton()
        if theta is None:
            raise PopulationError("the risk has no minimiser that can be computed")
        return project(theta, radius)

    def _newton(self) -> Floats | None:
        """Minimise over the whole space; None if a hundred damped steps do not get there."""
        theta = np.zeros(self.dimension)
        value = self.value(theta)
        for _ in range(100):
            gradient = self.gradient(theta)
            move = -np.linalg.lstsq(self.hessian(theta), gradient, rcond=None)[0]
            gain = float(-gradient @ move)
            if gain <= 1e-28 * max(1.0, abs(value)):
                flat = np.linalg.norm(gradient) <= 1e-9 * (1 + np.abs(self.middle).sum())
                return theta if flat else None
            for _ in range(60):
                after = self.value(theta + move)
                if after <= value + 1e-13 * max(1.0, abs(value)):  # up to rounding
                    break
                move = move / 2
            else:
                return theta
            theta, value = theta + move, after
        return None


@dataclass(frozen=True)
class SquaredRisk(Risk):
    """Of least squares, from sums over the users: nobody's samples are kept.

    Attributes
    ----------
    features : (d,) float64
        Average of the users' average features.
    squares : (d + 1, d + 1) float64
        Averages of the products of features, and of the response as the last one.
    """

    features: Floats
    squares: Floats

    @classmethod
    def read(cls, sums: Mapping[str, Array], ridge: float = 0.0) -> Self:
        """Divide what :func:`squared_sums` adds up by the usable users.

        Raises
        ------
        PopulationError
            If there is none.
        """
        n = float(sums["usable"][0])
        if not n:
            raise PopulationError(NOBODY.format("least-squares"))
        return cls(ridge, sums["features"] / n, sums["squares"] / n)

    @property
    def middle(self) -> Floats:
        """Average of the users' average features: (d,)."""
        return self.features

    def value(self, theta: Floats) -> float:
        """Return the risk."""
        at = np.append(theta, -1.0)
        return float(at @ self.squares @ at + self.ridge * theta @ theta) / 2

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient, (d,)."""
        return np.asarray(self.squares[:-1] @ np.append(theta, -1.0) + self.ridge * theta)

    def hessian(self, theta: Floats) -> Floats:
        """Return the Hessian, (d, d)."""
        return np.asarray(self.squares[:-1, :-1] + self.ridge * np.eye(self.dimension))


def squared_sums(users: Users) -> dict[str, Array]:
    """Add up usable users' average features and products of samples. NOT PRIVATE."""
    z, _, owner = usable_samples(users, "least-squares")
    weight = (1 / np.bincount(owner))[owner]
    return {
        "usable": np.array([owner[-1] + 1 if len(owner) else 0]),
        "features": weight @ z[:, :-1],
        "squares": (z.T * weight) @ z,
    }


def usable_samples(users: Users, model: str) -> tuple[Floats, Floats, Integers]:
    """Collect the samples of usable users: rows (total, d + 1), labels, and whose they are.

    Not usable is who has no samples, or values or labels out of place. Labels of the logistic
    model are -1 or 1. Usable users are numbered from 0.
    """
    samples = users.reals
    z, y = samples.values, samples.values[:, -1]
    fits = np.isfinite(z).all(axis=1)
    if model == "logistic":
        fits &= np.isin(y, (-1.0, 0.0, 1.0))
        y = np.where(y == 1, 1.0, -1.0)
    sizes = np.diff(samples.indptr)
    owner = np.repeat(np.arange(len(users)), sizes)
    usable = (sizes > 0) & (np.bincount(owner[~fits], minlength=len(users)) == 0)
    keep = usable[owner]
    return z[keep], y[keep], (np.cumsum(usable) - 1)[owner[keep]]


@dataclass(frozen=True)
class EmpiricalRisk(Risk):
    """Of the users' own samples, which are all kept.

    Attributes
    ----------
    model : {"least-squares", "logistic"}
    x : (total, d) float64
    y : (total,) float64
        For the logistic model -1 or 1.
    weight : (total,) float64
        1 / (usable users times samples of this user).
    owner : (total,) int64
        Whose sample it is: usable users are numbered from 0.
    """

    model: str
    x: Floats
    y: Floats
    weight: Floats
    owner: Integers

    @classmethod
    def of(cls, users: Users, model: str, ridge: float = 0.0) -> Self:
        """Collect the samples of all usable users.

        Raises
        ------
        PopulationError
            If there is none.
        """
        z, y, owner = usable_samples(users, model)
        if not len(owner):
            raise PopulationError(NOBODY.format(model))
        sizes = np.bincount(owner)
        return cls(ridge, model, z[:, :-1], y, 1 / (len(sizes) * sizes[owner]), owner)

    @property
    def middle(self) -> Floats:
        """Average of the users' average features: (d,)."""
        return np.asarray(self.weight @ self.x)

    def value(self, theta: Floats) -> float:
        """Return the risk."""
        z = self.x @ theta
        if self.model == "logistic":
            losses = np.logaddexp(0.0, -self.y * z)
        else:
            losses = np.square(z - self.y) / 2
        return float(self.weight @ losses + self.ridge / 2 * theta @ theta)

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient, (d,)."""
        return np.asarray((self.weight * self._slope(theta)) @ self.x + self.ridge * theta)

    def user_gradients(self, theta: Floats) -> Floats:
        """Return each usable user's own gradient, the ridge apart: (users, d)."""
        slope = self._slope(theta) / np.bincount(self.owner)[self.owner]
        out = [np.bincount(self.owner, slope * column) for column in self.x.T]
        return np.asarray(np.stack(out, axis=1))

    def _slope(self, theta: Floats) -> Floats:
        """Return the derivative of every sample's loss by its score, (total,)."""
        z = self.x @ theta
        if self.model == "logistic":
            return np.asarray(-self.y * expit(-self.y * z))
        return np.asarray(z - self.y)

    def hessian(self, theta: Floats) -> Floats:
        """Return the Hessian, (d, d)."""
        w = self.weight
        if self.model == "logistic":
            z = self.x @ theta
            w = w * expit(z) * expit(-z)
        return np.asarray((self.x.T * w) @ self.x + self.ridge * np.eye(self.x.shape[1]))
