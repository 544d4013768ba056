"""Results rows of means from few users: closed forms against measured distances."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedhist.protocols import FewUsersMean
from fedhist.users.batch import Users
from server.few_users.plan import Method
from simulations.experiments.predicted.setting import Setting
from simulations.runs.run import Options, execute

RADIUS, BOX = 0.1, 0.4
RHO = 0.0243560
"""zCDP budget of (1, 1e-6)."""


def few_users() -> Iterator[Setting]:
    """Predict lam r sqrt(d / K), up to the reciprocal of a block's dimension, or the noise."""

    def mean(n: int, d: int, method: Method, blocks: int | None = None) -> FewUsersMean:
        return FewUsersMean(
            epsilon=1.0,
            n_users=n,
            dimension=d,
            radius=RADIUS,
            box=BOX,
            method=method,
            n_blocks=blocks,
        )

    one = 0.5 * RADIUS * math.sqrt(256)
    yield _few("EDGE n=73 d=256 eps=1 ball", mean(73, 256, "ball"), one, 0.04)
    yield _few("n=400 d=256 eps=1 K=4", mean(400, 256, "blocks", 4), one / 2, 0.08)
    noise = 3.2 * RADIUS * math.sqrt(64 / (1.4 * RHO)) / 1700
    yield _few("n=1700 d=64 eps=1 large-n", mean(1700, 64, "large-n"), noise, 0.08)


def _few(label: str, protocol: FewUsersMean, expected: float, width: float) -> Setting:
    """Measure a mean from few users, given that a point is drawn: one run in a hundred fails."""
    n, d = protocol.n_users, protocol.dimension
    rng = np.random.default_rng((2028, n))
    rows = rng.standard_normal((n, d)) * RADIUS / math.sqrt(d)
    users = Users.from_samples(np.arange(n), np.arange(n + 1), 0.2 / math.sqrt(d) + rows)
    truth = protocol.truth(users)

    def once(seed: int) -> float:
        reason = ""
        for attempt in range(20):
            options = Options(seed=seed + 10_000 * attempt)
            estimate = execute(protocol, users, options).estimate
            if estimate.value is not None:
                return protocol.loss(estimate.value, truth)
            reason = f"{estimate.status}: {estimate.reason}"
        raise RuntimeError(f"{label}: {reason}")

    band = (1 - width, 1 + width)
    return Setting(protocol.name, label, "l2", 30, band, lambda: expected, once)
