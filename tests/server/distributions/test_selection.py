"""Selecting a binomial for every symbol, through the protocol: what it spends, how well it does."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.binomial_scores import KSPlan
from server.distributions.distribution import MECHANISMS, Distribution
from server.distributions.mechanisms import DistributionTask
from server.distributions.selection import too_large
from server.printed.distribution import dense, sparse
from tests.running import result as run
from tests.running import secure, table_users

SELECTIONS = [MECHANISMS[name] for name in ("ks", "phs", "sparse")]
NAMES = [*((m.name, "default") for m in SELECTIONS), ("phs", "paper"), ("sparse", "paper")]
each_mechanism = pytest.mark.parametrize(("name", "mode"), NAMES)


def population(p: list[float] | np.ndarray, m: int, s: int, seed: int = 1) -> Users:  # type: ignore[type-arg]
    table = np.random.default_rng(seed).multinomial(m, p, s)
    return table_users(table)


def protocol_for(users: Users, m: int, **details: object) -> Distribution:
    fields = {"epsilon": 1.0, "delta": 1e-6, "mechanism": "ks"} | details
    return Distribution(  # type: ignore[arg-type]
        users.vocabulary, samples_per_user=m, n_users=len(users), **fields
    )


@each_mechanism
def test_spends_what_it_guarantees_and_no_less(name: str, mode: str) -> None:
    users = population([0.2, 0.3, 0.5] + [0.0] * 9, 20, 300)
    protocol = protocol_for(users, 20, mechanism=name, mode=mode)
    estimate = run(protocol, users)
    assert estimate.status == "ok"
    assert estimate.ledger is not None
    spent = estimate.ledger.spent(protocol.delta)
    assert spent.epsilon == pytest.approx(protocol.guarantee.epsilon, rel=1e-6)
    assert protocol.claimed.epsilon == 1.0
    if mode == "paper":
        assert protocol.guarantee.epsilon < 0.1  # a small part of what is promised
        assert protocol.guarantee.delta == 1e-6


def test_pure_budgets_are_split_by_basic_composition() -> None:
    users = population([0.3, 0.7], 5, 100)
    estimate = run(protocol_for(users, 5, delta=0.0, epsilon=2.0), users)
    assert estimate.public["epsilon_per_symbol"] == 1.0  # q = min(2, 10)
    assert estimate.ledger is not None
    assert estimate.ledger.spent().epsilon == 2.0


@pytest.mark.parametrize(
    ("k", "m", "s", "name", "band"),
    [
        (20, 200, 5000, "ks", 1.35),
        (300, 20, 20_000, "ks", 1.25),
        (20, 200, 5000, "phs", 1.35),
    ],
)
def test_the_error_is_as_predicted(k: int, m: int, s: int, name: str, band: float) -> None:
    """Within a factor; a sum over k symbols, averaged over 10 runs: false alarm below 1 %."""
    losses = []
    for seed in range(10):
        users = population(np.full(k, 1 / k), m, s, seed)
        protocol = protocol_for(users, m, mechanism=name, project=False)
        value = run(protocol, users, seed).value
        assert value is not None
        losses.append(np.abs(value - 1 / k).sum())
    assert 1 / band < np.mean(losses) / protocol.chosen.error(protocol.task) < band


def test_a_sum_that_is_far_from_one_is_said() -> None:
    """Users of Dirichlet(2): the selected binomials are none of theirs. Alike users: no word."""
    rng = np.random.default_rng(3)
    p = 1 / np.arange(1, 21)
    alike = population(p / p.sum(), 200, 5000)
    assert run(protocol_for(alike, 200), alike).warnings == ()
    own = rng.dirichlet(2 * p / p.sum(), 5000)
    differ = table_users(rng.multinomial(200, own))
    (said,) = run(protocol_for(differ, 200), differ).warnings
    assert "do not look as if they all drew from one distribution" in said


def test_selection_beats_noise_on_counts_where_users_have_many_samples() -> None:
    """k = 50, m = 1000: break-even is at m = 32; far more than 20 deviations apart."""
    users = population(np.full(50, 0.02), 1000, 3000)
    losses = {
        name: protocol_for(users, 1000, mechanism=name).loss_of(
            run(protocol_for(users, 1000, mechanism=name), users), users
        )
        for name in ("ks", "laplace")
    }
    assert losses["ks"] < 0.4 * losses["laplace"]
    assumed = protocol_for(users, 1000, mechanism="auto", assume="same-distribution")
    assert assumed.chosen.name == "ks"


def test_rare_symbols_are_read_from_presence() -> None:
    p = [0.6, 0.36, 0.01, 0.01, 0.01, 0.01]
    users = population(p, 30, 20_000)
    estimate = run(protocol_for(users, 30, mechanism="sparse", project=False), users)
    assert estimate.public["rare"] == 4
    assert estimate.value is not None
    assert np.abs(estimate.value - p).max() < 0.01


@pytest.mark.parametrize(("m", "s"), [(1, 1), (1, 30), (7, 1)])
@pytest.mark.parametrize("k", [1, 2, 5])
@each_mechanism
def test_smallest_sizes(name: str, mode: str, k: int, m: int, s: int) -> None:
    users = population([1.0, *[0.0] * (k - 1)], m, s)
    estimate = run(protocol_for(users, m, mechanism=name, mode=mode), users)
    assert estimate.status == "ok"
    assert estimate.value is not None
    assert estimate.value.shape == (k,)
    assert estimate.value.sum() == pytest.approx(1.0)


def test_everybody_has_the_same() -> None:
    """p = 1 and p = 0 are hypotheses, and with this budget nothing else is ever selected."""
    users = population([1.0, 0.0, 0.0], 50, 2000)
    estimate = run(protocol_for(users, 50, epsilon=40.0, project=False), users)
    assert estimate.value is not None
    assert estimate.value == pytest.approx([1.0, 0.0, 0.0], abs=1e-4)


@pytest.mark.parametrize("name", ["ks", "sparse"])
def test_secure_noise_draws_all_of_it(name: str) -> None:
    users = population([0.1, 0.3, 0.6], 40, 3000)
    estimate = run(protocol_for(users, 40, mechanism=name), users, noise=secure)
    assert estimate.value is not None
    assert np.abs(estimate.value - [0.1, 0.3, 0.6]).sum() < 0.2


def test_exact_privacy_of_all_symbols_together() -> None:
    """k = 3, m = 1, two users: every pair of neighbours, every output, exactly.

    The log-ratio of a whole output is the sum over symbols; at most q = 2 of them change.
    """
    k, epsilon = 3, 0.5
    plan = KSPlan.of(1, 0.2)
    laws = {}
    for x in itertools.product(range(k), repeat=2):
        below = np.array([[2 - x.count(i)] for i in range(k)])
        laws[x] = log_softmax(plan.scores(below, 2) * epsilon / 2, axis=1)
    worst, ranges = 0.0, set()
    for x in laws:
        for u, other in itertools.product(range(2), range(k)):
            y = list(x)
            y[u] = other
            ratio = laws[x] - laws[tuple(y)]
            assert (np.abs(ratio).max(axis=1) > 0).sum() in (0, 2)
            worst = max(worst, ratio.max(axis=1).sum())
            ranges |= set(np.ptp(ratio, axis=1).round(12).tolist())
    assert 0.5 < worst <= 2 * epsilon
    assert max(ranges) <= epsilon


def test_budgets() -> None:
    task = DistributionTask(Keys.range(100), 500, 1000, 1.0, 1e-6)
    ks, _, two_stages = SELECTIONS
    assert ks.budgets(task).each == pytest.approx(0.04414, abs=1e-5)
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
    assert "too many scores" in too_large(many, 1e-3)
    deep = replace(many, domain=Keys.range(2), m=1 << 26)
    assert "too many to select from" in too_large(deep, 0.3)
    assert too_large(replace(many, domain=Keys.range(1000)), 0.014) == ""
    ks = SELECTIONS[0]
    assert ks.floor(many) == ks.floor(deep) == math.inf
    users = population([0.5, 0.5], 3, 5)
    protocol = replace(protocol_for(users, 3), samples_per_user=1 << 26)
    estimate = run(protocol, users)
    assert estimate.status == "refused"
    assert estimate.ledger is not None
    assert estimate.ledger.entries == ()
    assert replace(protocol, mechanism="auto").chosen.name != "ks"
