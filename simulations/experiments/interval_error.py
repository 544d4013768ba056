"""A mean in an unknown interval, with a trusted server: Theorem 24 of [1]_ measured. NOT PRIVATE.

`central-mean` is another algorithm for the task of the theorem. Part of ``few-users-error``.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorem 24, which is of Levy et al., NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.users.batch import Users
from server.central_means.central_mean import CentralMean
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.runs.options import Options
from simulations.runs.run import execute

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


def judge(findings: Findings) -> None:
    """Measure errors against users, and their tail at the first number of them."""
    s = findings.settings.interval
    eps, tau, ns, times = s["epsilon"], s["tau"], s["n"], s["times"]
    errors = [_errors(findings.seed, s, n) for n in ns]
    unit = 8 * tau / (ns[0] * eps)
    beyond = np.array([float(np.mean(errors[0] >= t * unit)) for t in times])
    bound = np.array([theorem_24(ns[0], eps, tau, s["width"], t) for t in times])
    # three standard errors of a share that is as large as the theorem allows
    room = bound + 3 * np.sqrt(bound * (1 - bound) / s["runs"])
    findings.check(
        TAIL, "largest share beyond / (bound + 3 standard errors)", (beyond / room).max()
    )
    panel, axes = TAIL, {"log": "y", "x_label": "T", "y_label": "share of runs beyond T"}
    findings.draw(panel, "measured", times, beyond, marker="x", style=" ", **axes)
    findings.draw(panel, "Theorem 24", times, bound, style="--", **axes)
    means = [mean_and_error(e) for e in errors]
    panel, axes = RATE, {"x_label": "users n", "y_label": "mean error"}
    findings.draw_means(panel, "measured", ns, means, "x", " ", **axes)
    findings.draw(
        panel, "Theorem 24, T = 1", ns, 8 * tau / (np.array(ns) * eps), style="--", **axes
    )
    findings.check(RATE, "log-log slope in users", power_law(ns, [m for m, _ in means])[0])
    most = max(m * n * eps / tau for (m, _), n in zip(means, ns, strict=True))
    findings.check(RATE, "n epsilon times the mean error / tau, largest", most)


def _errors(seed: int, settings: Mapping[str, Any], n: int) -> Floats:
    """Run on values drawn anew, and return the distances from their average."""
    eps, width, near = (settings[name] for name in ("epsilon", "width", "tau"))
    protocol = CentralMean(
        epsilon=eps, n_users=n, low=0.0, high=width, delta=0.0, radius=2 * near
    )  # fmt: skip
    out = []
    for r in range(settings["runs"]):
        own = digest64("interval-error", seed, n, str(near), r) >> 1
        rng = np.random.default_rng(own)
        centre = rng.uniform(2 * near, width - 2 * near)
        values = centre + rng.uniform(-2 * near, 2 * near, n)
        users = Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1), values)
        mean = execute(protocol, users, Options(seed=own)).estimate.needed(f"n = {n}")
        out.append(abs(float(mean[0]) - float(values.mean())))
    return np.array(out)
