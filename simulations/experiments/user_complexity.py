"""Users that learning a distribution takes, against samples per user [1]_. NOT PRIVATE.

Lines are what theory asks for at the uniform distribution, crosses what the protocol
`distribution` needed on users drawn from it.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Lemma 1, Theorems 1, 3, 7 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.errors import nearest
from fedhist.base.hashing import digest64
from fedhist.base.search import first_true
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.distribution import MECHANISMS, Distribution
from simulations.experiments.experiment import Findings, power_law
from simulations.runs.options import Options
from simulations.runs.run import execute

LAPLACE, SELECTION = "laplace", "ks"
FACTORS = (0.6, 1.0, 1.6)
"""Measured at these multiples of the predicted number of users, then interpolated."""


@dataclass(frozen=True)
class Regime:
    """One panel.

    ``domain``: k symbols, uniformly distributed; ``alpha``: target: expected l1 distance from the
    distribution.
    """

    name: str
    domain: Keys
    alpha: float
    epsilon: float
    delta: float

    @property
    def title(self) -> str:
        """Of the panel."""
        return f"{self.name}: k = {len(self.domain):,}, l1 <= {self.alpha:g}"

    def protocol(self, mechanism: str, m: int, n_users: int) -> Distribution:
        """Build the protocol."""
        return Distribution(
            self.domain,
            epsilon=self.epsilon,
            delta=self.delta,
            samples_per_user=m,
            n_users=n_users,
            mechanism=mechanism,
        )

    def needed(self, mechanism: str, m: int) -> float:
        """Predict the fewest users for the target, at the mechanism's floor or above it.

        ``inf`` where no number suffices.
        """
        findings = MECHANISMS[mechanism]

        def error(n_users: int) -> float:
            return findings.error(self.protocol(mechanism, m, n_users).task)

        n = first_true(lambda s: error(s) <= self.alpha, 1 << 24)
        if n is None:
            return math.inf
        while n < findings.floor(
            self.protocol(mechanism, m, n).task
        ):  # a floor may grow with log n
            n = math.ceil(findings.floor(self.protocol(mechanism, m, n).task))
        return float(n)

    def losses(self, mechanism: str, m: int, n_users: int, runs: int, seed: int) -> Floats:
        """Run the protocol on users drawn anew; l1 distances from the distribution: (runs,)."""
        k, out = len(self.domain), []
        for r in range(runs):
            rng = np.random.default_rng(digest64("users", seed, self.name, m, n_users, r))
            item = rng.integers(k, size=n_users * m)
            user = np.repeat(np.arange(n_users), m)
            ids = np.arange(n_users, dtype=np.uint64)
            users = Users.from_counts(ids, user, item, np.ones(len(item), np.int64), self.domain)
            protocol = self.protocol(mechanism, m, n_users)
            # the users' draws and the noise: another seed for every run, or points go together
            own = digest64("run", seed, mechanism, m, n_users, r) >> 1
            estimate = execute(protocol, users, Options(seed=own)).estimate
            shares = estimate.needed(f"{mechanism}, m = {m}")
            out.append(float(np.abs(shares - 1 / k).sum()))
        return np.array(out)


def run(findings: Findings) -> None:
    """Draw both regimes, and judge slopes and what was measured."""
    s = findings.settings
    for name in s.mechanisms:
        if name not in MECHANISMS:
            raise ValueError(f"no mechanism {name!r}{nearest(name, sorted(MECHANISMS))}")
    for name, spec in s.regimes.items():
        domain = Keys.of(f"{j:05d}" for j in range(spec["k"]))
        _panel(findings, Regime(name, domain, spec["alpha"], s.epsilon, s.delta), spec["m"])


def _panel(findings: Findings, regime: Regime, ms: Sequence[int]) -> None:
    """Predict users for every m, and measure what does not need too many items."""
    s, name, k, at = findings.settings, regime.name, len(regime.domain), np.array(ms)
    predicted = {x: np.array([regime.needed(x, m) for m in ms]) for x in s.mechanisms}
    plain = [users_for_sampling(k, m, regime.alpha) for m in ms]
    if sum(m >= k for m in ms) > 2:
        for x in (LAPLACE, SELECTION):
            ends = power_law([ms[-3], ms[-1]], predicted[x][[-3, -1]])
            findings.check(name, f"{x}: log-log slope at the largest m", ends[0])
    for x, y in predicted.items():
        some = np.isfinite(y) & (y <= 30 * predicted[LAPLACE])
        findings.draw(regime.title, x, at[some], y[some], style="-")
    # eight mechanisms later, where the report's eight colours begin again
    for x, users in predicted.items():
        able = users * at * FACTORS[-1] <= s.most_items
        y = np.array([
            measure(regime, x, m, int(n), s.repeats, findings.seed)
            for m, n in zip(at[able].tolist(), users[able], strict=True)
        ])  # fmt: skip
        if len(y):
            mean = float(np.exp(np.log(y / users[able]).mean()))
            findings.check(name, f"{x}: users measured / predicted", mean)
        findings.draw(regime.title, f"{x}, measured", at[able], y, marker="x", style=" ")
    over = min(float(np.min(y / plain)) for y in predicted.values())
    findings.check(name, "fewest users / users without privacy", over)
    a, eps, delta = regime.alpha, regime.epsilon, regime.delta
    counts = 1e3 * users_for_counts(k, a, eps, delta)
    pure = [1e3 * users_for_pure(k, m, a, eps) for m in ms]
    order = [users_of_theorem_7(k, m, a, eps, delta) for m in ms]
    findings.draw(regime.title, "without privacy", at, plain, style="--")
    findings.draw(regime.title, "Theorem 1 x 1000", at, counts, style="--")
    findings.draw(regime.title, "Theorem 3 x 1000", at, pure, style="--")
    if not np.isnan(order).all():
        findings.draw(regime.title, "Theorem 7, constants of 1", at, order, style=":")


def users_for_sampling(k: int, m: int, alpha: float) -> float:
    """Users without any privacy: 2 (k - 1) / (pi m alpha^2), sharp at p uniform.

    >>> round(users_for_sampling(101, 10, 0.1))
    637
    """
    return 2 * (k - 1) / (math.pi * m * alpha**2)


def users_for_counts(k: int, alpha: float, epsilon: float, delta: float) -> float:
    """Lower bound for estimators that read summed counts: k / (4000 alpha (epsilon + delta)).

    A shape: some 10^3 below what is achieved. Holds for epsilon + delta <= 0.07. Corrected
    against [1, Theorem 1], whose 2000 drops a factor: the hypercube has the dimension k / 2.
    """
    return k / (4000 * alpha * (epsilon + delta))


def users_for_pure(k: int, m: int, alpha: float, epsilon: float) -> float:
    """Lower bound under pure differential privacy: k / (2700 sqrt(m) epsilon alpha).

    A shape, as above. [1, Theorem 3] gives 4500; chi^2 <= 72 alpha^2 in its proof gives 2700. (Its
    statement has lost the sqrt(m) in one place.)
    """
    return k / (2700 * math.sqrt(m) * epsilon * alpha)


def users_of_theorem_7(k: int, m: int, alpha: float, epsilon: float, delta: float) -> float:
    """Order of the users that selection needs where k <= m and epsilon <= 1; NaN elsewhere.

    ln(k m / alpha) max(k / (m alpha^2) + k sqrt(L) / (sqrt(m) alpha epsilon), sqrt(k L) / epsilon)
    with L = ln(1 / delta), constants of 1. Corrected: [1, Theorem 7] has lost one of the sqrt(L),
    which [1, Theorem 2] has.

    >>> round(users_of_theorem_7(10, 100, 0.1, 1.0, 1e-6)), users_of_theorem_7(10, 9, 0.1, 1.0, 0.1)
    (434, nan)
    """
    if k > m or epsilon > 1 or not 0 < delta < 1:
        return math.nan
    root = math.sqrt(math.log(1 / delta))
    rate = k / (m * alpha**2) + k * root / (math.sqrt(m) * alpha * epsilon)
    return math.log(k * m / alpha) * max(rate, math.sqrt(k) * root / epsilon)


def measure(regime: Regime, mechanism: str, m: int, n_users: int, runs: int, seed: int) -> float:
    """Interpolate the number of users at which the mean measured loss is the target."""
    ns = [max(1, round(f * n_users)) for f in FACTORS]
    mean = [regime.losses(mechanism, m, n, runs, seed).mean() for n in ns]
    exponent, factor = power_law(mean, ns)
    return float(factor * regime.alpha**exponent)
