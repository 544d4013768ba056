"""A mean in an unknown interval, with a trusted server: Theorem 24 of [1]_ measured. NOT PRIVATE.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorem 24, which is of Levy et al., NeurIPS 2021.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.protocols.central_means.central_mean import CentralMean
from fedhist.users.batch import Users
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.runs.run import Options, execute

TAIL, RATE = "Theorem 24: the tail", "Theorem 24: the rate"


def theorem_24(n_users: int, epsilon: float, tau: float, width: float, times: float) -> float:
    """Chance of an error of 8 tau T / (n epsilon), at most e^-T + (B / tau) e^(-n epsilon / 8).

    Users' values lie in [0, B] and within 2 tau of some point; 1 for epsilon from 1 on, of which
    the theorem does not speak.

    >>> round(theorem_24(2000, 0.5, 1.0, 1000.0, 2.0), 4), theorem_24(2000, 1.0, 1.0, 1000.0, 2.0)
    (0.1353, 1.0)
    """
    if not epsilon < 1 or not tau < width:
        return 1.0
    far = math.log(width / tau) - n_users * epsilon / 8
    return min(1.0, math.exp(-times) + math.exp(min(far, 0.0)))


def run(request: Request) -> Result:
    """Measure errors against users, and their tail at the first number of them."""
    found, eps, tau = Findings(request), request.positive("epsilon"), request.positive("tau")
    width, ns, runs = request.positive("width"), request.wholes("n"), request.whole("runs", 2)
    errors = {n: _errors(request, n, tau) for n in ns}
    times = request.positives("times")
    unit = 8 * tau / (ns[0] * eps)
    beyond = np.array([float(np.mean(errors[ns[0]] >= t * unit)) for t in times])
    bound = np.array([theorem_24(ns[0], eps, tau, width, t) for t in times])
    # three standard errors of a share that is as large as the theorem allows
    room = bound + 3 * np.sqrt(bound * (1 - bound) / runs)
    found.check(TAIL, "largest share beyond / (bound + 3 standard errors)", (beyond / room).max())
    found.draw("share of runs beyond T", "measured", times, beyond, marker="x", style=" ", log="y")
    found.draw("share of runs beyond T", "Theorem 24", times, bound, style="--", log="y")
    means = [mean_and_error(e) for e in errors.values()]
    panel = "mean error against users"
    found.draw_means(panel, "measured", ns, means, "x", " ", log="xy")
    found.draw(panel, "Theorem 24, T = 1", ns, 8 * tau / (np.array(ns) * eps), style="--", log="xy")
    found.check(RATE, "log-log slope in users", power_law(ns, [m for m, _ in means])[0])
    found.check(RATE, "n epsilon times the mean error / tau, largest", max(
        m * n * eps / tau for (m, _), n in zip(means, ns, strict=True)))  # fmt: skip
    unknown = _errors(request, ns[-1], None)
    ratio = float(unknown.mean()) / means[-1][0]
    found.show(RATE, "error with an unknown scale / with a known one", ratio)
    return found.result(
        "A mean in an unknown interval",
        "Theorem 24",
        x_label="T; users n, by panel",
        y_label="share of runs; absolute error, by panel",
        log="",
        notes=(
            "NOT PRIVATE: errors are measured with the users' own average",
            f"{eps:g}-DP per user under replacement; values uniform within 2 tau = {2 * tau:g} of "
            f"a point anywhere in [0, {width:g}]; `central-mean` with radius = 2 tau",
        ),
        population="users of one value each, in an interval",
    )


def _errors(request: Request, n: int, tau: float | None) -> Floats:
    """Run on values drawn anew, and return the distances from their average."""
    eps, width, near = (request.positive(x) for x in ("epsilon", "width", "tau"))
    radius = None if tau is None else 2 * tau
    protocol = CentralMean(epsilon=eps, n_users=n, low=0.0, high=width, delta=0.0, radius=radius)
    out = []
    for r in range(request.whole("runs", 2)):
        seed = digest64("interval-error", request.seed, n, str(tau), r) >> 1
        rng = np.random.default_rng(seed)
        centre = rng.uniform(2 * near, width - 2 * near)
        values = centre + rng.uniform(-2 * near, 2 * near, n)
        users = Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1), values)
        mean = execute(protocol, users, Options(seed=seed)).estimate.needed(f"n = {n}")
        out.append(abs(float(mean[0]) - float(values.mean())))
    return np.array(out)
