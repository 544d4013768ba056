"""The protocol `distribution`: exact privacy, error, choice, and the edges of its settings."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.base.errors import BudgetExceeded
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, gaussian_multiplier, zcdp_rho
from fedhist.privacy.ledger import Ledger
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams
from server.distributions.distribution import MECHANISMS, Distribution
from server.distributions.mechanisms import Additive, DistributionTask
from server.noise import SimulatedNoise
from server.printed.distribution import AS_PRINTED
from server.session.curator import Curator
from server.session.journal import Journal
from tests.running import recorded, secure, table_users
from tests.running import result as run

NAMES = sorted(
    [
        *((m.name, "default") for m in MECHANISMS.values() if isinstance(m, Additive)),
        ("gaussian", "paper"),
        ("presence-laplace", "paper"),
    ]
)


def multinomial(seed, p, m, s):
    return table_users(np.random.default_rng(seed).multinomial(m, p, s))


def base(users, m, **more):
    settings = {"epsilon": 1.0, "delta": 1e-6, "samples_per_user": m, "n_users": len(users), **more}
    return Distribution(users.vocabulary, **settings)


# -- privacy ---------------------------------------------------------------------------------------


def log_laplace(x, scale):
    """Log pmf of discrete Laplace noise."""
    return -np.abs(x) / scale + math.log(math.tanh(0.5 / scale))


@pytest.mark.parametrize(
    ("name", "worst"),
    [
        ("laplace", ([[3, 0]], [[0, 3]])),
        ("one-item", ([[3, 0]], [[0, 3]])),
        ("presence-laplace", ([[1, 1, 0, 0]], [[0, 0, 1, 1]])),
    ],
)
def test_laplace_noise_is_exactly_enough(name, worst):
    """Two-sided: for the worst pair of users the log-ratio reaches epsilon, and no more."""
    noise, drawn = recorded("discrete_laplace")
    epsilon, sums = 0.7, []
    for table in worst:
        users = table_users(np.array(table))
        m = int(np.sum(table))
        protocol = base(users, m, epsilon=epsilon, delta=0.0, mechanism=name)
        query = next(protocol.rounds(Curator(Ledger(), lambda i: SimulatedNoise(1, i), Journal())))
        streams = lambda u: SeededStreams(u.ids, 1, "q")  # noqa: E731
        sums.append(next(iter(query.answer_folded(users, streams).sums.values())))
        run(protocol, users, noise=noise)
    (scale,) = {size for _, size in drawn}
    at = np.arange(-40, 41)
    ratio = [
        (log_laplace(at - a, scale) - log_laplace(at - b, scale)).max()
        for a, b in zip(*sums, strict=True)
    ]
    assert sum(ratio) == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize("name", ["gaussian", "presence"])
def test_gaussian_noise_is_exactly_enough(name):
    """The worst move of the sums against the recorded std: rho-zCDP, attained."""
    noise, drawn = recorded("discrete_gaussian")
    move = {"gaussian": 2 * 3**2, "presence": 6}[name]  # k = 6 symbols, m = 3
    users = table_users(np.array([[1, 1, 1, 0, 0, 0]]))
    protocol = base(users, 3, mechanism=name)
    estimate = run(protocol, users, noise=noise)
    rounded = move * gaussian_multiplier(1.0, 1e-6) ** 2 + 4
    ((_, std),) = drawn
    assert std**2 == pytest.approx(min(rounded, move / (2 * zcdp_rho(1.0, 1e-6))), rel=1e-11)
    assert estimate.ledger.spent().epsilon == pytest.approx(1.0)


def test_presence_noise_of_the_paper_would_not_do():
    """With sqrt(min(k, m)) in place of sqrt(min(k, 2 m)), the true cost is twice rho."""
    k, m = 10, 3
    printed_std = math.sqrt(min(k, m) / (2 * 0.01))
    assert min(k, 2 * m) / (2 * printed_std**2) == pytest.approx(0.02)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 20.0])
@pytest.mark.parametrize("discrete", [True, False])
def test_the_printed_gaussian_is_labelled_with_what_it_spends(epsilon, discrete):
    """Private by hockey-stick divergence at the label, and not at 0.97 of it."""
    from scipy.stats import norm

    users = multinomial(1, [0.5, 0.5], 4, 50)
    protocol = base(
        users, 4, epsilon=epsilon, mechanism="gaussian", mode="paper", discrete=discrete
    )
    assert protocol.claimed.epsilon == epsilon
    label = protocol.guarantee.epsilon
    assert (label > epsilon) == (epsilon > 1)
    z = math.sqrt(2 * math.log(1.25e6)) / epsilon

    def delta(e):
        return norm.cdf(0.5 / z - e * z) - math.exp(e + norm.logcdf(-0.5 / z - e * z))

    assert delta(label) <= 1e-6 * (1 + 1e-3)
    assert delta(0.97 * label if not discrete else 0.8 * label) > 1e-6
    law = protocol.chosen.search.__self__.law(protocol.task)
    assert law.scale == pytest.approx(z * math.sqrt(2) * 4, rel=1e-3)
    assert run(protocol, users).ledger.spent().epsilon == pytest.approx(label, rel=1e-6)


def test_the_printed_presence_is_labelled_with_what_it_spends():
    """Lap(1 / eps) on a frequency is s times too much."""
    users = multinomial(1, [0.2] * 5, 2, 50)
    protocol = base(users, 2, mechanism="presence-laplace", mode="paper")
    assert protocol.guarantee == Guarantee(1 / 50, 0.0, Trust.CENTRAL, Adjacency.REPLACE_USER)
    assert run(protocol, users).public["noise_std"] == pytest.approx(
        math.sqrt(2) * 4, rel=1e-3
    )  # q = 4 of 5 symbols


@pytest.mark.parametrize(("name", "mode"), NAMES)
def test_a_mechanism_keeps_within_what_it_says(name, mode):
    """A ledger with the stated budget accepts the run; one with 1 % less does not."""
    users = multinomial(5, [0.1] * 10, 6, 80)
    protocol = base(users, 6, mechanism=name, mode=mode)
    spends = protocol.guarantee
    for factor, enough in ((1.0, True), (0.99, False)):
        limit = replace(spends, epsilon=spends.epsilon * factor)
        script = protocol.rounds(Curator(Ledger(limit), lambda i: SimulatedNoise(1, i), Journal()))
        streams = lambda u: SeededStreams(u.ids, 1, "q")  # noqa: E731
        summary = next(script).answer_folded(users, streams)
        if enough:
            with pytest.raises(StopIteration) as stop:
                script.send(summary)
            assert stop.value.value.status == "ok"
        else:
            with pytest.raises(BudgetExceeded):
                script.send(summary)


# -- the value -------------------------------------------------------------------------------------


def test_projection_helps():
    """Noise of the size of the values: the projected l1 error is 10 % smaller at least.

    The difference has a relative standard error of 1 %, and is 30 %: false alarm below 1e-9.
    """
    users = multinomial(4, np.full(50, 0.02), 20, 100)
    protocol = base(users, 20, mechanism="laplace")
    truth = protocol.truth(users)
    with_it = [protocol.loss(run(protocol, users, i).value, truth) for i in range(60)]
    raw = replace(protocol, project=False)
    without = [raw.loss(run(raw, users, i).value, truth) for i in range(60)]
    assert np.mean(with_it) < 0.9 * np.mean(without)
    for i in range(5):
        value = run(protocol, users, i).value
        assert value.min() >= 0
        assert value.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_without_noise_the_empirical_distribution_comes_back(name):
    users = multinomial(6, [0.7, 0.2, 0.1], 9, 30)
    protocol = base(users, 9, epsilon=math.inf, mechanism=name)
    estimate = run(protocol, users)
    assert estimate.value == pytest.approx(protocol.truth(users), abs=1e-15)
    assert not protocol.guarantee.private


def test_users_with_fewer_items_are_told_of():
    """Mass goes missing: a warning, from the released counts alone."""
    users = multinomial(7, [0.25] * 4, 5, 2000)
    fine, short = base(users, 5, mechanism="laplace"), base(users, 10, mechanism="laplace")
    assert run(fine, users).warnings == ()
    estimate = run(short, users)
    assert "fewer items" in estimate.warnings[0]
    assert estimate.public["mass"] == pytest.approx(0.5, abs=0.05)


def test_presence_says_when_it_is_saturated():
    users = multinomial(8, [0.9, 0.1], 50, 3000)
    estimate = run(base(users, 50, mechanism="presence"), users)
    assert "nearly all users have 2 of 2 symbols" in estimate.warnings[0]


# -- the choice ------------------------------------------------------------------------------------


def test_the_choice_is_the_best_of_the_predictions():
    for k, m, s in ((2, 1, 50), (100, 1, 1000), (5000, 20, 30_000), (1000, 100, 10**6)):
        for p_max in (1.0, 1 / k):
            users = table_users(np.ones((1, k), int))
            protocol = base(users, m, n_users=s, p_max=p_max, assume="same-distribution")
            errors = {
                found.name: found.error(protocol.task)
                for found in MECHANISMS.values()
                if found.name not in ("one-item", "phs", "sparse")
                and s >= found.floor(protocol.task)
                if m * p_max <= 2 or not found.name.startswith("presence")
            }
            assert errors[protocol.chosen.name] == min(errors.values())


def test_of_users_who_may_differ_auto_takes_what_averages_them():
    """Over a grid of public numbers: noise on counts or offsets, with the least error of them."""
    taken = set()
    for k, m, s, delta in itertools.product((2, 50, 400), (1, 30, 900), (60, 9000), (0.0, 1e-6)):
        keys = Keys.of([f"{i:04d}" for i in range(k)])
        chosen = Distribution(keys, 1.0, m, s, delta=delta).chosen
        assert chosen.estimates is Truth.AVERAGE_OF_USERS
        taken.add(chosen.name)
    assert taken == {"laplace", "centred"}


@pytest.mark.parametrize("name", ["laplace", "gaussian", "one-item", "presence", "ks"])
def test_errors_at_the_uniform_distribution_are_as_measured(name):
    """20 runs on users drawn anew: within a fifth, 4.5 standard errors are less."""
    k, m, s = 30, 40, 2500
    losses = []
    for seed in range(20):
        users = multinomial(seed, np.full(k, 1 / k), m, s)
        protocol = base(users, m, mechanism=name, project=False)
        losses.append(np.abs(run(protocol, users, seed).value - 1 / k).sum())
    assert np.mean(losses) == pytest.approx(protocol.chosen.error(protocol.task), rel=0.2)


def test_presence_is_chosen_only_where_no_symbol_can_be_frequent():
    """For 5000 rare symbols it is best; for a frequent one it is blind."""
    users = multinomial(3, np.r_[0.5, np.full(4999, 1e-4)], 20, 3000)
    unknown = base(users, 20, n_users=3000, assume="same-distribution")
    assert unknown.chosen.name != "presence"
    assert replace(unknown, p_max=0.1).chosen.name == "presence"
    blind = replace(unknown, mechanism="presence", project=False)
    assert abs(run(blind, users).value[0] - 0.5) > 0.25


def test_presence_overtakes_laplace_where_theory_says():
    """Of the simple mechanisms, at k far above m: from m = 5 on at (1, 1e-6)."""
    k, s = 5000, 10**6
    keys = Keys.of([f"{i:04d}" for i in range(k)])
    laplace, presence = (MECHANISMS[name] for name in ("laplace", "presence"))
    better = [
        m
        for m in range(1, 20)
        for task in [DistributionTask(keys, m, s, 1.0, 1e-6)]
        if presence.error(task) < laplace.error(task)
    ]
    assert better == list(range(5, 20))


def test_without_delta_only_pure_mechanisms_are_chosen():
    users = multinomial(9, [0.01] * 100, 50, 1000)
    protocol = base(users, 50, delta=0.0)
    assert protocol.chosen.pure
    assert run(protocol, users).ledger.spent().basic_delta == 0
    for name in ("gaussian", "presence"):
        with pytest.raises(ValueError, match=r"needs delta > 0, got 0"):
            base(users, 50, delta=0.0, mechanism=name)


def test_the_choice_does_not_look_at_the_users():
    protocol = Distribution.example()
    found = {protocol.chosen.name for _ in range(2)}
    assert len(found) == 1
    assert set(vars(protocol.task)) == {
        "domain", "m", "n_users", "epsilon", "delta", "discrete", "p_max", "trust",
    }  # fmt: skip


# -- settings and edges ----------------------------------------------------------------------------


def test_a_mechanism_below_its_floor_carries_a_warning(monkeypatch):
    users = multinomial(1, [0.5, 0.5], 4, 50)
    protocol = base(users, 4, mechanism="laplace")
    assert run(protocol, users).warnings == ()
    monkeypatch.setattr(type(protocol.chosen), "floor", lambda self, task: 100.0)
    assert "needs about 100 users" in run(protocol, users).warnings[0]
    monkeypatch.setattr(type(protocol.chosen), "floor", lambda self, task: math.inf)
    assert run(protocol, users).status == "refused"


@pytest.mark.parametrize("n", [29, 31])
def test_another_number_of_users_is_a_failure(n):
    users = multinomial(6, [0.7, 0.2, 0.1], 9, n)
    estimate = run(base(users, 9, n_users=30), users)
    assert estimate.status == "failed"
    assert f"{n} users answered" in estimate.reason
    assert estimate.value is None
    assert estimate.ledger.entries == ()


def test_secure_noise():
    """Integer samplers serve every simple mechanism; real-valued noise is refused beforehand."""
    users = multinomial(6, [0.7, 0.2, 0.1], 9, 500)
    for name, mode in NAMES:
        protocol = base(users, 9, mechanism=name, mode=mode)
        assert run(protocol, users, noise=secure).status == "ok"
        real = replace(protocol, discrete=False)
        estimate = run(real, users, noise=secure)
        assert estimate.status == "refused"
        assert "discrete = true" in estimate.reason
        assert run(real, users).status == "ok"


@pytest.mark.parametrize(("name", "mode"), NAMES)
@pytest.mark.parametrize(("k", "m", "s"), [(1, 1, 1), (1, 5, 3), (3, 1, 1), (5, 1, 20)])
def test_small_settings(name, mode, k, m, s):
    """One symbol, one sample, one user; all records empty."""
    domain = Keys.of([f"{i:04d}" for i in range(k)])
    protocol = Distribution(domain, 1.0, m, s, delta=1e-6, mechanism=name, mode=mode)
    for table in (np.zeros((s, k), int), np.eye(k, dtype=int)[np.arange(s) % k] * m):
        users = table_users(table, domain)
        value = run(protocol, users).value
        assert value.min() >= 0
        assert value.sum() == pytest.approx(1)
    if k == 1:
        assert value.tolist() == [1.0]


def test_users_without_any_in_domain_item():
    """Their truth is zero everywhere; the estimate is some distribution."""
    users = table_users(np.ones((20, 3), int))
    protocol = Distribution(Keys.of(["x", "y"]), 1.0, 3, 20)
    assert protocol.truth(users).tolist() == [0, 0]
    assert run(protocol, users).value.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"samples_per_user": 0}, "samples_per_user must be an integer"),
        ({"samples_per_user": 2.5}, r"samples_per_user .* got 2.5"),
        ({"n_users": 0}, "n_users must be an integer"),
        ({"n_users": True}, "n_users .* got True"),
        ({"domain": Keys.of([])}, "domain must be non-empty"),
        ({"mechanism": "laplacian"}, "did you mean 'laplace'"),
        ({"mode": "printed"}, "mode must be .* got 'printed'"),
        ({"mode": "paper"}, "needs a mechanism by name"),
        ({"mode": "paper", "mechanism": "laplace"}, "no mechanism 'laplace' in mode 'paper'"),
        ({"p_max": 0.2}, r"p_max must lie in \[1 / 4, 1\], got 0.2"),
        ({"p_max": 1.1}, "p_max"),
        ({"assume": "iid"}, "assume must be one of nothing, same-distribution, got"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_settings_that_are_refused(change, problem):
    with pytest.raises(ValueError, match=problem):
        replace(Distribution.example(), **change)


def test_resolve_fills_public_numbers_and_tells_what_it_read():
    rng = np.random.default_rng(1)
    table = np.stack([rng.multinomial(n, [0.5, 0.5, 0.0]) for n in (4, 9, 6)])
    table[1, 2] = 50  # outside the domain
    users = table_users(table)
    domain = Keys.of(list(users.vocabulary)[:2])
    given = {"epsilon": 1.0, "samples_per_user": 3}
    filled, told = Distribution.resolve(given, users, domain)
    assert (filled["n_users"], filled["samples_per_user"], told) == (3, 3, [])
    for word in ("min", "max"):
        with pytest.raises(ValueError, match=rf"must be a whole number, got '{word}'; it is gone"):
            Distribution(**filled | {"samples_per_user": word})


def test_mechanisms_return_what_is_no_view_of_a_summary():
    """The session wipes summaries: the value must not go with them."""
    users = multinomial(6, [0.7, 0.2, 0.1], 9, 30)
    for protocol in (base(users, 9, epsilon=math.inf, project=False), base(users, 9)):
        assert run(protocol, users).value.sum() != 0


def test_the_registry():
    assert len(MECHANISMS) >= 5
    for mechanisms in (MECHANISMS, AS_PRINTED):
        assert all((found.name, found.rounds >= 1) == (n, True) for n, found in mechanisms.items())
    assert AS_PRINTED.keys() <= MECHANISMS.keys()
