"""Empirical risk over users, and its minimiser in a ball.

NOT PRIVATE: everything here reads the users' samples, for evaluation only. It shares no code with
the client half.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import expit

from fedhist.base.arrays import Floats, Integers
from fedhist.base.errors import PopulationError
from fedhist.base.roots import brentq
from fedhist.users.batch import Users
from server.regression.descent import project


@dataclass(frozen=True)
class EmpiricalRisk:
    """Average over users of each user's average loss, plus ridge / 2 |theta|^2. NOT PRIVATE.

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
    ridge : float
    """

    model: str
    x: Floats
    y: Floats
    weight: Floats
    owner: Integers
    ridge: float = 0.0

    @classmethod
    def of(cls, users: Users, model: str, ridge: float = 0.0) -> Self:
        """Collect the samples of all usable users.

        Raises
        ------
        PopulationError
            If there is none: everybody is without samples, or has values or labels out of place.
        """
        samples = users.reals
        x, y = samples.values[:, :-1], samples.values[:, -1]
        fits = np.isfinite(samples.values).all(axis=1)
        if model == "logistic":
            fits &= np.isin(y, (-1.0, 0.0, 1.0))
            y = np.where(y == 1, 1.0, -1.0)
        sizes = np.diff(samples.indptr)
        owner = np.repeat(np.arange(len(users)), sizes)
        usable = (sizes > 0) & (np.bincount(owner[~fits], minlength=len(users)) == 0)
        if not usable.any():
            raise PopulationError(f"no user has samples that a {model} model can use")
        keep = usable[owner]
        weight = 1 / (usable.sum() * sizes[owner[keep]])
        number = np.cumsum(usable) - 1
        return cls(model, x[keep], y[keep], weight, number[owner[keep]], ridge)

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

    def minimise(self, radius: float) -> Floats:
        """Return the minimiser in the ball of a radius around 0: (d,).

        On the boundary it is the minimiser of the risk plus nu / 2 |theta|^2 for the multiplier
        nu at which its length is the radius.
        """
        inside = self._newton()
        if inside is not None and np.linalg.norm(inside) <= radius:
            return inside
        most = float(np.linalg.norm(self.gradient(np.zeros(self.x.shape[1])))) / radius

        def excess(log_nu: float) -> float:
            theta = replace(self, ridge=self.ridge + float(np.exp(log_nu)))._newton()
            return np.inf if theta is None else float(np.linalg.norm(theta)) - radius

        low = high = float(np.log(most)) + 1e-9
        while excess(low) < 0 and low > high - 60:
            low -= 2.0
        nu = brentq(excess, low, high, xtol=1e-13) if excess(low) > 0 else low
        theta = replace(self, ridge=self.ridge + float(np.exp(nu)))._newton()
        if theta is None:
            raise PopulationError(f"the {self.model} risk has no minimiser that can be computed")
        return project(theta, radius)

    def _newton(self) -> Floats | None:
        """Minimise over the whole space; None if a hundred damped steps do not get there."""
        theta = np.zeros(self.x.shape[1])
        value = self.value(theta)
        for _ in range(100):
            gradient = self.gradient(theta)
            move = -np.linalg.lstsq(self.hessian(theta), gradient, rcond=None)[0]
            gain = float(-gradient @ move)
            if gain <= 1e-28 * max(1.0, abs(value)):
                flat = np.linalg.norm(gradient) <= 1e-9 * (1 + np.abs(self.weight @ self.x).sum())
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
