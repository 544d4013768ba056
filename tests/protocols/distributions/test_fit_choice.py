"""What "auto" runs: every branch keeps the budget, users who differ are told of, and its errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.base.errors import BudgetExceeded
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import zcdp_delta, zcdp_rho
from fedhist.privacy.ledger import Ledger
from fedhist.protocols.distributions import fit_choice
from fedhist.protocols.distributions.agreement_choice import terms_of
from fedhist.protocols.distributions.distribution import MECHANISMS, Distribution
from fedhist.protocols.distributions.fit_choice import (
    LEAST_FIT,
    MOST_FIT,
    Options,
    decide,
    fit_epsilon,
    limits,
    rest,
    sees,
)
from fedhist.session.curator import Curator
from fedhist.session.journal import Journal
from fedhist.users.keys import Keys
from server.distributions.fit_statistic import STEPS
from server.noise import SimulatedNoise
from tests.protocols.running import recorded, run, secure, streams, table_users


def population(k, m, s, concentration, seed=3):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(k, concentration / k), s) if concentration else np.full(k, 1 / k)
    return table_users(rng.multinomial(m, shares, s), Keys.of([f"{i:03d}" for i in range(k)]))


def auto(users, m, **more):
    given = {"epsilon": 1.0, "delta": 1e-6, "samples_per_user": m, "n_users": len(users), **more}
    return Distribution(users.vocabulary, **given)


BRANCHES = [
    # k, m, s, concentration, delta, charges
    (10, 1000, 1000, 0, 1e-6, ["agreement", "selection"]),
    (10, 1000, 1000, 0, 1e-14, ["agreement", "selection"]),
    (4, 300, 2000, 0, 0.0, ["agreement", "selection"]),
    (10, 1000, 1000, 2.0, 1e-6, ["agreement", "discrete-laplace"]),
    (20, 1000, 3000, 2.0, 1e-6, ["agreement", "fit", "discrete-laplace"]),
    (10, 400, 5000, 0, 1e-6, ["fit", "centre", "radius", "far users", "offsets"]),
    (10, 1000, 5000, 300.0, 1e-6, ["fit", "centre", "radius", "far users", "offsets"]),
    (10, 400, 5000, 2.0, 1e-6, ["fit", "discrete-laplace"]),
    (10, 5, 1000, 0, 1e-6, ["discrete-laplace"]),  # nothing to gain: no test
]


@pytest.mark.parametrize(("k", "m", "s", "concentration", "delta", "labels"), BRANCHES)
def test_every_branch_spends_the_budget_and_no_more(k, m, s, concentration, delta, labels):
    """By the ledger, in either currency; and nearly all of it. Secure noise, too.

    What was released decides the branch, and with it the currency: each has half of delta.
    """
    users = population(k, m, s, concentration)
    protocol = auto(users, m, delta=delta)
    for noise in (None, secure):
        ran = run(protocol, users, noise=noise)
        tested = labels[0] in ("agreement", "fit")
        spent = ran.estimate.ledger.spent(delta / 2 if tested else delta)
        found = [e.label for e in ran.estimate.ledger.entries]
        assert noise or found == labels  # other draws may decide otherwise
        assert 0.93 < spent.epsilon <= 1.0 + 1e-9
        assert len(ran.queries) <= protocol.max_rounds
    limit = replace(protocol.guarantee, epsilon=0.9)
    script = protocol.rounds(Curator(Ledger(limit), lambda i: SimulatedNoise(1, i), Journal()))
    with pytest.raises(BudgetExceeded):
        drive(script, users)
    assert ran.estimate.truth is Truth.AVERAGE_OF_USERS


def drive(script, users):
    query = next(script)
    while True:
        query = script.send(query.answer_folded(users, streams))


def test_the_statistic_is_noised_for_one_user():
    """The recorded scale is 1024 steps, one user's move, over the statistic's epsilon."""
    noise, drawn = recorded("discrete_laplace")
    users = population(10, 1000, 1000, 0)
    protocol = auto(users, 1000)
    run(protocol, users, noise=noise)
    assert drawn[0] == ((1,), pytest.approx(STEPS / terms_of(protocol.task).epsilon))
    users = population(10, 400, 5000, 0)
    protocol = auto(users, 400)
    drawn.clear()
    run(protocol, users, noise=noise)
    assert drawn[0] == ((1,), pytest.approx(STEPS / fit_epsilon(protocol.task)))


def test_users_who_differ_are_told_of_and_averaged():
    """Dirichlet(2) users: a warning in words, and no more than 1.3 times what Laplace loses.

    Five runs each: the ratio is near 1.05, with a standard error of 0.1.
    """
    k, m, s = 20, 200, 4000
    users = population(k, m, s, 2.0)
    protocol = auto(users, m)
    losses = {}
    for name in ("auto", "laplace", "ks"):
        one = replace(protocol, mechanism=name)
        ran = [run(one, users, i).estimate for i in range(5)]
        losses[name] = np.mean([one.loss_of(e, users) for e in ran])
        if name == "auto":
            assert all("do not look as if they all drew" in e.warnings[0] for e in ran)
            assert all(e.public["fit"] > e.public["fit_limit"] for e in ran)
    assert losses["auto"] < 1.3 * losses["laplace"]
    assert losses["ks"] > 1.5 * losses["laplace"]


def test_alike_users_are_not_warned_of():
    """Once in a hundred runs they are; the seeds are fixed."""
    users = population(10, 1000, 1000, 0)
    for seed in range(10, 13):
        assert run(auto(users, 1000), users, seed).estimate.warnings == ()


def test_an_assumption_is_tested_by_nobody():
    users = population(10, 1000, 1000, 0)
    assumed = auto(users, 1000, assume="same-distribution")
    estimate = run(assumed, users).estimate
    assert [e.label for e in estimate.ledger.entries] == ["selection"]
    assert estimate.truth is Truth.COMMON
    assert assumed.chosen is MECHANISMS["ks"]


@pytest.mark.parametrize(
    ("k", "m", "s", "concentration"),
    [(10, 400, 5000, 0), (10, 400, 5000, 300.0), (10, 400, 3000, 2.0), (30, 1000, 1500, 0)],
)
def test_the_error_on_known_users_is_what_is_measured(k, m, s, concentration):
    """Thirty runs, within 4.5 standard errors and 12 %: false alarm below 1e-4."""
    users = population(k, m, s, concentration)
    protocol = auto(users, m)
    truth = protocol.truth(users)
    losses = [protocol.loss(run(protocol, users, i).estimate.value, truth) for i in range(30)]
    predicted = protocol.error(users).expected
    off = abs(float(np.mean(losses)) - predicted)
    assert off < 4.5 * np.std(losses) / math.sqrt(30) + 0.12 * predicted


def test_a_better_fit_never_means_a_weaker_mechanism():
    """Along the statistic: selection, then centred counts, then noise on counts; once each."""
    users = population(10, 1000, 2000, 0)
    task = auto(users, 1000).task
    options = Options.of(rest(task))
    names = [decide(options, x, 150.0).name for x in np.linspace(-50, 2000, 200)]
    order = list(dict.fromkeys(names))
    assert order == [x for x in ("ks", "centred", "laplace") if x in order]
    assert names == sorted(names, key=order.index)
    assert order[-1] == "laplace"


def test_users_who_fit_must_be_as_many_as_a_selection_needs():
    """A statistic of fit that would pass, of so many users that too few are left."""
    task = replace(Distribution(Keys.range(60), 0.5, 1000, 800, delta=1e-6).task)
    options = Options.of(rest(task))
    room = task.n_users - fit_choice.SELECTION.floor(options.task)
    assert room > 0
    assert decide(options, room, room + 9).name == "ks"
    assert decide(options, room + 1, room + 9).name == "laplace"


def test_what_is_left_after_the_test():
    """Of epsilon 95 %, of rho all but what a pure release costs there, each at half of delta."""
    task = auto(population(3, 5, 9, 0), 5).task
    left = rest(task)
    assert left.epsilon + fit_epsilon(task) == pytest.approx(1.0)
    rho = left.rho + fit_epsilon(task) ** 2 / 2
    assert rho == pytest.approx(zcdp_rho(1.0, task.delta / 2), rel=1e-8)
    # either composition covers the outcomes that hold by it: together they may take all of delta
    assert 0.99 * task.delta < zcdp_delta(rho, 1.0) + left.delta <= task.delta
    assert math.isnan(rest(replace(task, delta=0.0, rho=math.nan)).rho)
    assert fit_choice.TESTED.rounds == 4


def test_a_cluster_that_would_not_be_seen_is_no_reason_to_test_more():
    """The share of the statistic: the least with many users, more with fewer, the least again."""
    keys = Keys.range(10)
    sizes = 300, 2500, 30_000
    tasks = [Distribution(keys, 1.0, 1000, s, delta=1e-6).task for s in sizes]
    shares = [fit_epsilon(task) for task in tasks]
    assert shares[0] == shares[2] == LEAST_FIT
    assert LEAST_FIT < shares[1] <= MOST_FIT
    assert [sees(task) for task in tasks] == [False, True, True]
    for task in tasks:
        warns, selected = limits(task)
        assert selected < warns
        assert math.isinf(fit_choice.options_left(task).ks_error) == (not sees(task))


def test_a_cluster_is_seen_before_anything_is_selected():
    """5 % of the users elsewhere, alike otherwise: twelve runs warn, and none selects."""
    k, m, s = 10, 1000, 4000
    users = population(k, m, s, 0)
    rng = np.random.default_rng(5)
    far = rng.multinomial(m, rng.dirichlet(np.ones(k)), s // 20)
    table = np.concatenate([rng.multinomial(m, np.full(k, 1 / k), s - s // 20), far])
    users = table_users(table, users.vocabulary)
    protocol = auto(users, m)
    for seed in range(12):
        estimate = run(protocol, users, seed).estimate
        assert "selection" not in [e.label for e in estimate.ledger.entries]


def test_halves_are_seen_or_nothing_is_selected():
    """Two far halves of few users: a selection would be about 0.3 off, counts are not.

    With 50 users the statistic says nothing, and public numbers forbid to select; with 300 it
    says it, but for a run in forty: none of twelve, with probability 0.7 (the seeds are fixed).
    """
    k, m = 5, 100
    p = 1 / np.arange(1, k + 1)
    p /= p.sum()
    rng = np.random.default_rng(8)
    for s, epsilon in ((50, 3.0), (300, 1.0)):
        table = np.concatenate([rng.multinomial(m, p, s // 2), rng.multinomial(m, p[::-1], s // 2)])
        users = table_users(table, Keys.of([f"{i:03d}" for i in range(k)]))
        protocol = auto(users, m, epsilon=epsilon)
        for seed in range(12):
            estimate = run(protocol, users, seed).estimate
            assert "selection" not in [e.label for e in estimate.ledger.entries]


def test_too_large_a_table_is_not_tested():
    """2^22 samples: centred counts from public numbers, and no statistic."""
    keys = Keys.of(["a", "b", "c", "d"])
    huge = Distribution(keys, 1.0, 1 << 22, 100_000, delta=1e-6)
    assert huge.chosen.name == "centred"
    assert replace(huge, delta=0.0).chosen.name == "laplace"
