"""Centred counts: sensitivities of each round by enumeration, budgets, and what is estimated."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import fedhist as fh
from clients.distributions.queries import CentredCounts
from clients.records.whitened import FRAME_STEPS
from fedhist.privacy.guarantee import gaussian_multiplier
from server.distributions.centred import centred_task, combined
from server.distributions.distribution import Distribution
from tests.running import run, secure, streams, table_users

DOMAIN = fh.Keys.of(["b", "a", "お茶"])
CENTRE = np.array([0.5, 0.25, 0.25])
SPREAD = np.sqrt(CENTRE)


def offsets(radius, m=3, own=False):
    return CentredCounts(DOMAIN, m, own, CENTRE, SPREAD, radius)


def summary_of(query, users):
    """The fused summary, which the server accepts, as it does the report."""
    report = query.answer(users, streams(users))
    query.check(report)
    result = query.answer_folded(users, streams)
    query.check_summary(result)
    folded = query.fold(report)
    for name, total in result.sums.items():
        assert np.array_equal(total, folded.sums[name])
    return result


def every_record(m):
    result = [r for r in itertools.product(range(m + 1), repeat=3) if sum(r) <= m]
    return [table_users(np.array([r]), DOMAIN) for r in result]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("radius", [0.3, 0.7, 5.0])
def test_offsets_of_any_two_records_differ_by_at_most_the_sensitivity(own, radius):
    """Over all records of up to three items: one row is 2^20 long, two differ by twice that."""
    query = offsets(radius, own=own)
    rows = np.array([summary_of(query, u).sums["steps"] for u in every_record(3)])
    square = (rows**2).sum(axis=1)
    assert square.max() <= FRAME_STEPS**2 == (query.l2_sensitivity() / 2) ** 2
    apart = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    assert apart.max() <= query.l2_sensitivity() ** 2
    if radius < 0.5:  # nearly everybody is scaled down: both are nearly attained
        assert square.max() > 0.999 * FRAME_STEPS**2
        assert apart.max() > 0.95 * query.l2_sensitivity() ** 2
    assert not rows[0].any()  # the empty record


def test_a_row_beyond_the_ball_is_refused():
    row = np.full((1, 3), math.ceil(1.001 * FRAME_STEPS / math.sqrt(3)), dtype=np.int32)
    with pytest.raises(fh.WireError, match=r"2\^20"):
        offsets(1.0).check(fh.Report(np.zeros(1, np.uint64), {"row": row}))


def settings(k, m, s, **more):
    keys = fh.Keys.of([f"{i:04d}" for i in range(k)])
    given = {"epsilon": 1.0, "delta": 1e-6, "samples_per_user": m, "n_users": s, **more}
    return Distribution(keys, mechanism="centred", **given)


@pytest.mark.parametrize("s", [40, 20_000])
def test_shares_of_the_budget_add_up(s):
    """Also below the floor, where no radius is selected."""
    for k, m, epsilon in ((2, 1, 0.1), (20, 200, 1.0), (5000, 50, 8.0)):
        task = centred_task(settings(k, m, s, epsilon=epsilon).task)
        assert task.first + task.second + task.far + task.third == pytest.approx(epsilon)
        assert min(task.first, task.second) > 0
        assert task.third >= 0.77 * epsilon
        top = math.sqrt(2) / task.spread(np.zeros(1))[0]
        assert task.radii[-1] >= top * 0.999 or task.floor == 1  # nobody is beyond


def population(k, m, s, concentration, seed=3):
    rng = np.random.default_rng(seed)
    p = np.full(k, 1 / k)
    shares = rng.dirichlet(p * concentration, s) if concentration else p
    return table_users(rng.multinomial(m, shares, s), settings(k, m, s).domain)


@pytest.mark.parametrize(
    ("s", "concentration", "labels"),
    [
        (40, 0, ["centre", "shares"]),  # too few to select a radius
        (5000, 0, ["centre", "radius", "far users", "offsets"]),
        (5000, 0.5, ["centre", "radius", "shares"]),  # users who differ too much
    ],
)
def test_every_branch_spends_the_budget_and_no_more(s, concentration, labels):
    users = population(10, 400, s, concentration)
    for noise in (None, secure):
        estimate = run(settings(10, 400, s), users, noise=noise).estimate
        spent = estimate.ledger.spent()
        result = [e.label for e in estimate.ledger.entries]
        assert noise or result == labels  # other draws may decide otherwise
        assert spent.epsilon == pytest.approx(1.0, rel=1e-6)
        assert spent.how.startswith("zCDP" if "offsets" in result else "basic")


def test_basic_composition_where_it_gives_less_noise():
    """Large epsilon: the first round would take all of rho."""
    task = centred_task(settings(4, 100, 1500, epsilon=30.0, discrete=False).task)
    assert task.left == 0
    assert task.multiplier == pytest.approx(gaussian_multiplier(task.third, 1e-6))
    assert replace(task, rho=0.0).multiplier == task.multiplier


def test_a_cluster_far_away_is_not_clipped_away():
    """5 % of the users elsewhere: shares are asked for again."""
    k, m, s = 20, 200, 5000
    rng = np.random.default_rng(2)
    p = 1 / np.arange(1, k + 1)
    p /= p.sum()
    shares = np.where(np.arange(s)[:, None] < s // 20, p[::-1], p)
    users = table_users(rng.multinomial(m, shares), settings(k, m, s).domain)
    protocol = settings(k, m, s)
    ran = [run(protocol, users, i).estimate for i in range(10)]
    assert sum(e.ledger.entries[-1].label == "shares" for e in ran) >= 8
    assert all(e.warnings for e in ran)
    assert np.mean([protocol.loss_of(e, users) for e in ran]) < 1.6 * 2 * k / s


def test_two_values_are_weighed_by_their_variances():
    mean = combined(np.array([0.0]), 1.0, np.array([1.0]), np.array([0.5]))
    assert mean.tolist() == [0.8]
