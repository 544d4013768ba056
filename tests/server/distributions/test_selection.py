"""Selecting a binomial for every symbol, through the protocol: what it spends, how well it does."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.distribution import MECHANISMS, Distribution
from server.distributions.mechanisms import DistributionTask
from server.distributions.selection import too_large
from server.printed.distribution import dense, sparse
from tests.running import result as run
from tests.running import table_users

SELECTIONS = [MECHANISMS[name] for name in ("ks", "phs", "sparse")]


def population(p: list[float] | np.ndarray, m: int, s: int, seed: int = 1) -> Users:
    table = np.random.default_rng(seed).multinomial(m, p, s)
    return table_users(table)


def protocol_for(users: Users, m: int, **details: object) -> Distribution:
    fields = {"epsilon": 1.0, "delta": 1e-6, "mechanism": "ks"} | details
    return Distribution(users.vocabulary, samples_per_user=m, n_users=len(users), **fields)


def test_a_sum_that_is_far_from_one_is_said() -> None:
    """Users of Dirichlet(2): the selected binomials are none of theirs. Alike users: no word."""
    rng = np.random.default_rng(3)
    p = 1 / np.arange(1, 21)
    alike = population(p / p.sum(), 200, 5000)
    assert run(protocol_for(alike, 200), alike).warnings == ()
    own = rng.dirichlet(2 * p / p.sum(), 5000)
    differ = table_users(rng.multinomial(200, own))
    (said,) = run(protocol_for(differ, 200), differ).warnings
    assert "distribution" in said


def test_rare_symbols_are_read_from_presence() -> None:
    p = [0.6, 0.36, 0.01, 0.01, 0.01, 0.01]
    users = population(p, 30, 20_000)
    estimate = run(protocol_for(users, 30, mechanism="sparse", project=False), users)
    assert estimate.public["rare"] == 4
    assert np.abs(estimate.value - p).max() < 0.01


def test_budgets() -> None:
    task = DistributionTask(Keys.range(100), 500, 1000, 1.0, 1e-6)
    ks, _, two_stages = SELECTIONS
    assert ks.budgets(task).each == pytest.approx(0.04414, abs=1e-5)
    few = replace(task, m=20)  # one user changes 40 of the 100 symbols
    assert ks.budgets(few).each == pytest.approx(0.04414 * math.sqrt(100 / 40), abs=2e-5)
    assert dense(task).each == pytest.approx(0.00181, abs=1e-5)
    two = two_stages.budgets(task)
    assert 100 * two.each**2 / 8 + two.rho == pytest.approx(task.rho)
    # Lap(1 / epsilon') on a frequency is Lap(s / epsilon') on a number of users
    small = 1 / (8 * math.sqrt(100 * math.log(1e6)))
    assert sparse(task).laplace == pytest.approx(small / 1000)
    assert ks.budgets(replace(task, epsilon=math.inf)).each == math.inf


def test_what_does_not_fit_is_passed_over_and_said() -> None:
    """From public numbers, before anything is asked."""
    many = DistributionTask(Keys.range(200_000), 1000, 10_000, 1.0, 1e-6)
    assert too_large(many, 1e-3)
    deep = replace(many, domain=Keys.range(2), m=1 << 26)
    assert too_large(deep, 0.3)
    assert too_large(replace(many, domain=Keys.range(1000)), 0.014) == ""
    ks = SELECTIONS[0]
    assert ks.floor(many) == ks.floor(deep) == math.inf
    users = population([0.5, 0.5], 3, 5)
    protocol = replace(protocol_for(users, 3), samples_per_user=1 << 26)
    estimate = run(protocol, users)
    assert estimate.status == "refused"
    assert estimate.ledger.entries == ()
    assert replace(protocol, mechanism="auto").chosen.name != "ks"
