"""Empirical risk over users, its minimiser in a ball, and how far private descent stays from it.

NOT PRIVATE: everything here reads the users' samples, for evaluation only. It shares no code with
the client half.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from fedhist.base.arrays import Floats
from fedhist.base.errors import PopulationError
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
    ridge : float
    """

    model: str
    x: Floats
    y: Floats
    weight: Floats
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
        return cls(model, x[keep], y[keep], weight, ridge)

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
        z = self.x @ theta
        slope = -self.y * expit(-self.y * z) if self.model == "logistic" else z - self.y
        return np.asarray((self.weight * slope) @ self.x + self.ridge * theta)

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


def predicted_excess(
    risk: EmpiricalRisk,
    best: Floats,
    *,
    steps: int,
    step: float,
    radius: float,
    noise: Callable[[float | None], float],
    average: bool = False,
) -> float:
    """Predict the expected excess risk of private descent from 0. NOT PRIVATE.

    The excess of descent without noise, plus the risk of the noise: with the Hessian A at the
    minimiser, noise z_s of std sigma_s moves the last iterate by -eta (I - eta A)^(T-1-s) z_s,
    and the risk by half its quadratic form. Where clips follow the moves, their mean square is
    carried along. Clipping is taken not to bite; projection as :func:`_near` says.

    Parameters
    ----------
    risk : EmpiricalRisk
    best : (d,) float64
        Its minimiser.
    steps : int
        T.
    step : float
        eta.
    radius : float
    noise : callable of float or None to float
        Noise std of a mean gradient after a move of that length; None: the first one.
    average : bool
        Whether the average of the T iterates counts, instead of the last one.

    Error
    -----
    For least squares with a constant clip, exact if nothing is clipped or projected.
    """
    values, rate, shrink = _near(risk, best, step, radius)
    theta, mean = np.zeros_like(best), np.zeros_like(best)
    sigma, spread = noise(None), np.zeros_like(values)
    stds = np.empty(steps)
    for t in range(steps):
        stds[t] = sigma
        after = project(theta - step * risk.gradient(theta), radius)
        moved = (1 - shrink) ** 2 * spread + rate**2 * sigma**2
        spread = shrink**2 * spread + rate**2 * sigma**2
        sigma = noise(float(np.sqrt(np.square(after - theta).sum() + moved.sum())))
        theta = after
        mean += theta / steps
    weight = np.full(steps, 1.0 / steps) if average else np.append(np.zeros(steps - 1), 1.0)
    reach, variance = np.zeros_like(values), np.zeros_like(values)
    for t in range(steps)[::-1]:  # how far the noise of step t reaches into what counts
        reach = weight[t] + shrink * reach
        variance += (rate * stds[t] * reach) ** 2
    bias = risk.value(mean if average else theta) - risk.value(best)
    return float(max(0.0, bias) + values @ variance / 2)


def _near(
    risk: EmpiricalRisk, best: Floats, step: float, radius: float
) -> tuple[Floats, float, Floats]:
    """Return what noise meets near the minimiser, by direction: curvature, rate and shrinking.

    Inside the ball: the eigenvalues a of the Hessian, eta and 1 - eta a. On the sphere, where the
    gradient is -nu theta: within the tangent space a + nu, and as the projection divides by
    1 + eta nu, eta / (1 + eta nu) and (1 - eta a) / (1 + eta nu). Noise along the normal is
    projected away.
    """
    hessian = risk.hessian(best)
    size = float(np.linalg.norm(best))
    nu = float(-risk.gradient(best) @ best) / max(size, 1e-300) ** 2
    if size < radius * (1 - 1e-9) or nu * step < 1e-9:
        values = np.clip(np.linalg.eigvalsh(hessian), 0.0, None)
        return values, step, 1 - step * values
    tangent = np.linalg.qr(np.column_stack((best, np.eye(len(best)))))[0][:, 1:]
    values = np.clip(np.linalg.eigvalsh(tangent.T @ hessian @ tangent), 0.0, None)
    slower = 1 + step * nu
    return values + nu, step / slower, (1 - step * values) / slower
