"""Stages around what earlier users have found: the error that they must reach."""

import math
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from clients.centred.queries import RadiusVotes, RankReports
from clients.records.functionals import BallMean
from fedhist.users.batch import Users
from server.centred.script import centred_mean
from server.centred.stages import plan_centred
from tests.running import one_sample


def drive(script: Generator[Any, Any, Any], users: Users, seed: int) -> tuple[Any, list[Any]]:
    """Answer in law; return the estimate and the queries."""
    rng, asked = np.random.default_rng(seed), []
    query = next(script)
    while True:
        asked.append(query)
        try:
            query = script.send(query.draw_summary(users.select(query.cohort), rng))
        except StopIteration as end:
            return end.value, asked


def in_ball(value: np.ndarray) -> np.ndarray:
    return value / max(1.0, float(np.linalg.norm(value)))


def rank_one(n: int, d: int, T: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Means of T samples +-v, P(+) = .75, and the mean of the law."""
    v = rng.normal(size=d)
    v /= np.linalg.norm(v)
    return (2 * rng.binomial(T, 0.75, n) / T - 1)[:, None] * v, 0.5 * v


def test_every_user_is_in_one_stage_or_vote() -> None:
    n, d = 3000, 8
    plan = plan_centred(n, 0.1, 1.0, 2.0, d)
    users = one_sample(rank_one(n, d, 100, np.random.default_rng(0))[0])
    script = centred_mean(BallMean(d, 1.0), plan, epsilon=2.0, salt=3, lo=0.2)
    estimate, asked = drive(script, users, 0)
    kinds = [RankReports, *[RadiusVotes, RankReports] * (plan.n_stages - 1)]
    assert [type(q) for q in asked] == kinds
    assert plan.n_stages > 1
    held = np.stack([q.cohort.contains(users.ids) for q in asked])
    assert (held.sum(axis=0) <= 1).all()
    assert held.any(axis=0).mean() == pytest.approx(0.8, abs=0.05)
    assert all(q.epsilon == 2.0 for q in asked)
    assert estimate.n_report == held[::2].sum()
    radii = [q.radius for q in asked[::2]]
    assert all(b <= a for a, b in pairwise(radii))


def test_rounds_without_users() -> None:
    """Cohorts are a hash: with a few users any round may find nobody."""
    plan = plan_centred(20_000, 0.1, 1.0, 2.0, 4)
    assert plan.n_stages > 2
    part = BallMean(4, 1.0)
    for n in (1, 2, 3):
        for salt in range(6):
            users = one_sample(np.full((n, 4), 0.1))
            result, asked = drive(centred_mean(part, plan, epsilon=2.0, salt=salt), users, salt)
            assert len(asked) == plan.n_rounds
            reported = sum(len(users.select(q.cohort)) for q in asked[::2])
            if reported:
                assert result.n_report == reported
                assert np.isfinite(result.value).all()
                assert 0 < result.variance < math.inf
            else:
                assert result.status == "failed"


def test_users_who_fill_the_ball_are_asked_around_its_middle() -> None:
    """Around the estimate a ball of the whole radius would cut those on the other side of it.

    A fifth are at the far end: cut, the mean would be off by up to .2 of the length beyond. Squared
    errors of six runs of eight coordinates stay below 1.9 times the variance of reports of the ball
    (4 standard errors).
    """
    n, d, rng = 20_000, 8, np.random.default_rng(2)
    plan = plan_centred(n, 0.5, 1.0, 8.0, d)
    assert plan.n_stages > 1
    x = np.where(rng.random(n) < 0.8, 1.0, -1.0)[:, None] * np.eye(d)[0]
    squares = []
    for seed in range(6):
        script = centred_mean(BallMean(d, 1.0), plan, epsilon=8.0, salt=seed, project=in_ball)
        estimate, asked = drive(script, one_sample(x), seed)
        squares.append(float(np.square(estimate.value - x.mean(axis=0)).sum()))
        assert (asked[-1].radius, asked[-1].centre.any()) == (1.0, False)
        assert (estimate.public["outside"], estimate.clipping) == (0.0, 0.0)
        assert estimate.variance < 1.2 * plan.v / n
    assert np.mean(squares) < 1.9 * 1.2 * plan.v / n


def test_the_first_stage_is_divided_by_the_share_of_users_with_a_vector() -> None:
    """Half of them have none: without the division the error is 2.5 times as large.

    The mean of 40 errors of two coordinates varies by 16%: a false alarm at 4 standard deviations.
    """
    n, d = 20_000, 2
    ends = np.minimum(np.arange(n + 1), n // 2)
    users = Users.from_samples(np.arange(n, dtype=np.uint64), ends, np.full((n // 2, d), 0.4))
    plan = plan_centred(n, 0.01, 1.0, 2.0, d)
    scripts = (centred_mean(BallMean(d, 1.0), plan, epsilon=2.0, salt=3) for _ in range(40))
    values = [drive(script, users, seed)[0].value for seed, script in enumerate(scripts)]
    assert float(np.square(np.array(values) - 0.4).sum(axis=1).mean()) < 9.5e-6
