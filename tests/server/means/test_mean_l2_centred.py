"""The default of mean-l2: reports of whole vectors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from clients.centred.queries import RadiusVotes, RankReports
from clients.localize.queries import ClippedMean
from fedhist.users.batch import Users
from server.means.mean_l2 import MeanL2
from tests.running import drawn, one_sample, run


def test_the_method_says_what_is_asked() -> None:
    users = MeanL2.example_users()
    for method, kinds in (
        ("centred", {RankReports, RadiusVotes}),
        ("folds", {ClippedMean}),
    ):
        protocol = replace(MeanL2.example(), method=method, samples_per_user=4)
        queries = run(protocol, users, 1).queries
        assert {type(q) for q in queries} >= {k for k in kinds if k is not RadiusVotes}
        assert len(queries) == protocol.max_rounds
    assert replace(MeanL2.example(), mode="paper").uses_folds


def test_intervals_hold_where_the_radius_shortens_alike_users() -> None:
    """Eighty runs, two coordinates: the mean ratio has a standard error of .11.

    Before the error that stays of earlier stages was counted the ratio was 1.4. Above 1.3 by
    chance: below 1 percent, at a true ratio of 1.
    """
    rng = np.random.default_rng(3)
    users = one_sample(np.array([-0.3, 0.0]) + rng.standard_normal((1_000, 2)) * 0.065)
    protocol = MeanL2(2.0, 1_000, 2, 30)
    losses, stated = [], []
    for salt in range(1, 81):
        estimate = drawn(replace(protocol, salt=salt), users, salt).estimate
        losses.append(replace(protocol, salt=salt).loss_of(estimate, users))
        stated.append(np.square(estimate.stderr).sum())
    assert 0.6 < np.mean(losses) / np.mean(stated) < 1.3


def test_a_cluster_far_away_costs_no_more_than_a_few_times_one_report() -> None:
    """A fifth of 5,000 users, 1.2 from the others: 20 runs.

    Measured 1.9 to 2.5 times one report in five sets of twenty runs. It was 5.8 to 8.1 times where
    every stage weighed the radius for its own reports alone.
    """
    n, rng = 5_000, np.random.default_rng(5)
    points = rng.standard_normal((n, 8)) * 0.02
    points[:, 0] += np.where(rng.random(n) < 0.2, 0.9, -0.3)
    users, losses = one_sample(points), []
    for salt in range(1, 21):
        protocol = MeanL2(2.0, n, 8, 300, salt=salt)
        losses.append(protocol.loss_of(drawn(protocol, users, salt).estimate, users))
    assert protocol.centred_plan.n_stages > 1
    assert np.mean(losses) < 3.5 * protocol.centred_plan.v / n


def test_users_without_samples_neither_pull_the_estimate_nor_shrink_its_stated_error() -> None:
    """Three in ten, who report the centre of their stage: twenty runs.

    Measured over stated squared errors were .5 to .9 in four sets of twenty runs. Where the votes'
    share of them was thrown away it was 8 to 14, and the error ten times as large.
    """
    n, rng = 6_000, np.random.default_rng(7)
    points = rng.standard_normal((n, 8)) * 0.01
    points[:, 0] += 0.4
    held = rng.random(n) > 0.3
    users = Users.from_samples(np.arange(n), np.append(0, np.cumsum(held)), points[held])
    losses, stated = [], []
    for salt in range(1, 21):
        protocol = MeanL2(2.0, n, 8, 200, salt=salt)
        estimate = drawn(protocol, users, salt).estimate
        losses.append(protocol.loss_of(estimate, users))
        stated.append(np.square(estimate.stderr).sum())
    assert np.mean(losses) < 2 * np.mean(stated)


def test_too_few_users_are_refused_with_the_number_that_is_enough() -> None:
    protocol = MeanL2(0.1, 50, 7, 64)
    estimate = run(protocol, one_sample(np.zeros((50, 7))), 0).estimate
    assert estimate.status == "refused"
    least = protocol._least_users()
    assert str(least) in estimate.reason
    assert replace(protocol, n_users=least).feasible
    assert not replace(protocol, n_users=least - 1).feasible


def test_estimates_lie_in_the_ball_and_nobody_usable_is_the_middle() -> None:
    protocol = MeanL2(1.0, 300, 2, 100, radius=0.5)
    edge = run(protocol, one_sample(np.tile([0.5, 0.0], (300, 1))), 0).estimate
    assert np.linalg.norm(edge.value) <= 0.5 * (1 + 1e-12)
    nothing = run(protocol, one_sample(np.full((300, 2), np.nan)), 0).estimate
    assert nothing.status == "ok"
    assert math.isfinite(nothing.value.sum())
