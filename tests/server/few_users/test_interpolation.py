"""The rotation, blocks and boosting: what is composed, what fails, what the error is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.privacy.ledger import Ledger
from server.few_users.draws import Rotation, release_draws
from server.few_users.plan import FewUsersPlan, Wishes, choose_branch
from server.noise import SimulatedNoise
from server.session.curator import Curator
from server.session.journal import Journal


def curator(epsilon: float = 1.0, delta: float = 1e-6, seed: int = 3) -> Curator:
    limit = Guarantee(epsilon, delta, Trust.CENTRAL, Adjacency.REPLACE_USER)
    return Curator(Ledger(limit), lambda i: SimulatedNoise(seed, i), Journal())


def gathered(n: int, d: int, r: float) -> NDArray[np.float64]:
    return 0.3 + np.random.default_rng(5).standard_normal((n, d)) * r / math.sqrt(d)


def test_the_rotation_is_its_matrix() -> None:
    rng = np.random.default_rng(1)
    for d in (1, 3, 8, 20):
        rotation = Rotation(d, salt=9)
        D = rotation.padded
        assert D >= d > D // 2
        assert set(rotation.signs.tolist()) <= {-1.0, 1.0}
        matrix = hadamard(D) @ np.diag(rotation.signs) / math.sqrt(D)
        x = rng.standard_normal((4, d))
        padded = np.hstack([x, np.zeros((4, D - d))])
        np.testing.assert_allclose(rotation.turn(x), padded @ matrix.T, atol=1e-12)
        np.testing.assert_allclose(rotation.back(rotation.turn(x)), x, atol=1e-12)
    assert (Rotation(64, 1).signs != Rotation(64, 2).signs).any()


@pytest.mark.parametrize(("method", "parts"), [("blocks", 4), ("boosted", 5)])
def test_draws_share_one_budget(method: str, parts: int) -> None:
    """Each draw is charged what it costs; together they stay within the guarantee."""
    wishes = Wishes(method=method, n_blocks=4, n_runs=5, n_rounds=3000, lam=1.0)  # type: ignore[arg-type]
    server, rows = curator(4.0), gathered(400, 64, 0.1)
    plan = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, wishes)
    assert (plan.method, plan.n_parts) == (method, parts)
    released = release_draws(server, rows, plan)
    entries = server.ledger.entries
    assert len(entries) == parts
    for e in entries:
        assert e.release.delta == e.release.slack == pytest.approx(1e-6 / (2 * parts))
        assert e.release.rho == pytest.approx(e.release.epsilon**2 / 8)
    total = server.ledger.spent()
    assert total.epsilon <= 4.0 * (1 + 1e-9)
    assert total.epsilon > 0.99 * 4.0
    assert released.public["points"] == parts
    off = float(np.linalg.norm(released.value - 0.3))
    if method == "blocks":  # d is a power of two: lam r sqrt(d / K), up to the d of one block
        assert off == pytest.approx(plan.error, rel=0.25)
    else:  # the median of five points around the centre is nearer than each of them
        assert 0.2 * plan.error < off < plan.error


def test_more_blocks_need_more_users_and_err_less() -> None:
    plans = [
        choose_branch(10**5, 1024, 0.1, None, 1.0, 1e-6, Wishes(method="blocks", n_blocks=k))
        for k in (1, 4, 16, 64)
    ]
    assert [p.least_users for p in plans] == [73, 331, 857, 1884]
    assert [p.error for p in plans] == pytest.approx([1.6, 0.8, 0.4, 0.2])


def drawn(kinds: list[int], plan: FewUsersPlan) -> tuple[object, str]:
    """Release with a server whose draws are given."""

    @dataclass
    class Given:
        left: list[int] = field(default_factory=lambda: list(kinds))

        def sample(self, sampler: object, *, label: str) -> NDArray[np.float64]:
            kind = self.left.pop(0)
            size = len(sampler.rows[0])  # type: ignore[attr-defined]
            point = np.full(size, float(len(self.left))) if not kind else np.zeros(size)
            return np.concatenate([[float(kind)], point])

    released = release_draws(Given(), gathered(400, 64, 0.1), plan)  # type: ignore[arg-type]
    return released.value, released.reason


def test_a_garbage_bucket_never_becomes_a_value() -> None:
    blocks = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, Wishes(method="blocks", n_blocks=4))
    value, reason = drawn([0, 0, 2, 0], blocks)
    assert value is None
    assert reason.startswith("1 of 4 ")
    assert drawn([0, 0, 0, 0], blocks)[0] is not None
    one = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, Wishes(method="ball"))
    assert drawn([1], one)[0] is drawn([2], one)[0] is None


def test_boosting_takes_the_median_of_points_only() -> None:
    """Three fifths must be points; a bucket's zeros do not enter the median."""
    plan = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, Wishes(method="boosted", n_runs=5))
    value, _ = drawn([0, 1, 0, 2, 0], plan)  # the points are 4, 2 and 0
    np.testing.assert_array_equal(value, np.full(64, 2.0))
    assert drawn([0, 1, 0, 2, 2], plan)[0] is None
