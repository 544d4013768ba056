"""Least squares from sums over blocks, against all samples at once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq
from walked_users import Walked

from clients.regression.risk import LogisticRisk, usable_samples
from fedhist.base.arrays import Floats
from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import first_pass, measured
from fedhist.model.protocol import Estimate
from fedhist.model.trees import Tree
from fedhist.protocols import UserLevelErm
from fedhist.users.batch import Users

N, D = 150, 3
BASE = replace(UserLevelErm.example(), n_users=N)


def people(seed: int = 3) -> Users:
    """Users of 0 to 8 samples; some are not finite."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 9, N)
    x = rng.normal(size=(sizes.sum(), D + 1))
    x[:, -1] += x[:, :-1] @ [0.8, -0.5, 0.2]
    x[rng.choice(len(x), 9), rng.integers(0, D + 1, 9)] = [math.nan, math.inf, -math.inf] * 3
    return Users.from_samples(np.arange(N), np.append(0, np.cumsum(sizes)), x)


class SlowRisk:
    """Least squares sample by sample."""

    def __init__(self, users: Users, ridge: float) -> None:
        z, owner = usable_samples(users)
        sizes = np.bincount(owner)
        self.x, self.y, self.ridge = z[:, :-1], z[:, -1], ridge
        self.weight = 1 / (len(sizes) * sizes[owner])

    def value(self, theta: Floats) -> float:
        losses = np.square(self.x @ theta - self.y) / 2
        return float(self.weight @ losses + self.ridge / 2 * theta @ theta)

    def gradient(self, theta: Floats) -> Floats:
        slope = self.x @ theta - self.y
        return np.asarray((self.weight * slope) @ self.x + self.ridge * theta)

    def hessian(self) -> Floats:
        return np.asarray((self.x.T * self.weight) @ self.x + self.ridge * np.eye(D))

    def minimise(self, radius: float) -> Floats:
        """By the multiplier of the constraint, if it needs one."""
        pull = (self.weight * self.y) @ self.x

        def at(nu: float) -> Floats:
            return np.linalg.solve(self.hessian() + nu * np.eye(D), pull)

        if np.linalg.norm(at(0.0)) <= radius:
            return at(0.0)
        return at(brentq(lambda nu: np.linalg.norm(at(nu)) - radius, 0.0, 1e3, xtol=1e-13))


@pytest.mark.parametrize("ridge", [0.0, 0.4])
@pytest.mark.parametrize("radius", [2.0, 0.3])
def test_sums_say_what_all_samples_say(ridge: float, radius: float) -> None:
    """Inside the ball, and on its boundary."""
    users, protocol = people(), replace(BASE, ridge=ridge, radius=radius)
    slow, known = SlowRisk(users, ridge), measured(protocol, users)
    risk, best = protocol.risk_of(known), slow.minimise(radius)
    assert known.truth == pytest.approx(best, rel=1e-9)
    for theta in (np.zeros(D), known.truth, np.array([3.0, -1.0, 0.5])):
        assert risk.value(theta) == pytest.approx(slow.value(theta), rel=1e-12)
        assert risk.gradient(theta) == pytest.approx(slow.gradient(theta), rel=1e-12, abs=1e-14)
        assert risk.hessian(theta) == pytest.approx(slow.hessian(), rel=1e-12)
    assert known.diagnostics == {"unusable records": users.n_unusable()}
    at = np.array([0.1, 0.2, -0.3])
    off = protocol.loss_of(Estimate.ok(at), users, known=known)
    assert off == pytest.approx(slow.value(at) - slow.value(best), rel=1e-9)


def test_any_slices_and_blocks_tell_the_same() -> None:
    users, measure = people(), first_pass(BASE)
    assert measure is not None
    whole = measured(BASE, users)
    walked = measured(BASE, Walked(users, 4))
    assert walked.truth == pytest.approx(whole.truth, rel=1e-12)
    assert walked.error.expected == pytest.approx(whole.error.expected, rel=1e-9)
    assert [b.value for b in walked.lower_bounds] == [b.value for b in BASE.lower_bounds(users)]
    for cuts in ([0, N], [0, 1, 77, N], [0, 2, 3, 20, 21, 90, 149, N]):
        tree = Tree()
        for i in range(len(cuts) - 1):
            tree.add(i, measure(users.slice(cuts[i], cuts[i + 1])))
        assert measured(BASE, users, tree.total()).truth == pytest.approx(whole.truth, rel=1e-12)


def test_what_needs_all_samples_has_no_measure() -> None:
    """A logistic risk: as from their records before."""
    protocol, users = (
        replace(UserLevelErm.example(), model="logistic"),
        UserLevelErm.example_users(),
    )
    assert first_pass(protocol) is None
    risk = LogisticRisk.of(users)
    known, best = measured(protocol, users), risk.minimise(protocol.radius)
    assert known.truth.tolist() == best.tolist()
    assert known.diagnostics == {"unusable records": 2.0}
    assert known.lower_bounds == protocol.lower_bounds(users)
    at = Estimate.ok(np.zeros(D))
    assert protocol.loss_of(at, users, known=known) == risk.value(at.value) - risk.value(best)


def test_nobody_is_usable() -> None:
    users = Users.from_samples([1, 2], [0, 0, 1], [[1.0, 0.0, 1.0, math.nan]])
    known = measured(BASE, users)
    assert known.diagnostics == {"unusable records": 2.0}
    with pytest.raises(PopulationError, match="no user has samples that a least-squares model"):
        _ = known.truth
