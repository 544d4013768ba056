"""The protocol `distribution`: exact privacy, error, choice, and the edges of its settings."""

import itertools

import numpy as np
import pytest

from fedhist.model.truths import Truth
from fedhist.users.keys import Keys
from server.distributions.distribution import MECHANISMS, Distribution
from server.distributions.mechanisms import Additive
from tests.running import result, secure, table_users

SIMPLE = sorted((m.name, "default") for m in MECHANISMS.values() if isinstance(m, Additive))
PRINTED = [(name, "paper") for name in ("gaussian", "presence-laplace", "phs", "sparse")]
SELECTED = [(name, "default") for name in ("ks", "phs", "sparse")]
NAMES = [*SIMPLE, *SELECTED, *PRINTED]


def multinomial(seed, p, m, s):
    return table_users(np.random.default_rng(seed).multinomial(m, p, s))


def base(users, m, **more):
    settings = {"epsilon": 1.0, "delta": 1e-6, "samples_per_user": m, "n_users": len(users), **more}
    return Distribution(users.vocabulary, **settings)


def test_users_with_fewer_items_are_told_of():
    """Mass goes missing: a warning, from the released counts alone."""
    users = multinomial(7, [0.25] * 4, 5, 2000)
    fine, short = base(users, 5, mechanism="laplace"), base(users, 10, mechanism="laplace")
    assert result(fine, users).warnings == ()
    estimate = result(short, users)
    assert len(estimate.warnings) == 1
    assert estimate.public["mass"] == pytest.approx(0.5, abs=0.05)


def test_the_choice_is_the_best_of_the_predictions():
    for k, m, s in ((2, 1, 50), (100, 1, 1000), (5000, 20, 30_000), (1000, 100, 10**6)):
        for p_max in (1.0, 1 / k):
            users = table_users(np.ones((1, k), int))
            protocol = base(users, m, n_users=s, p_max=p_max, assume="same-distribution")
            errors = {
                result.name: result.error(protocol.task)
                for result in MECHANISMS.values()
                if result.name not in ("one-item", "phs", "sparse")
                and s >= result.floor(protocol.task)
                if m * p_max <= 2 or not result.name.startswith("presence")
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


def test_without_delta_only_pure_mechanisms_are_chosen():
    users = multinomial(9, [0.01] * 100, 50, 1000)
    assert base(users, 50, delta=0.0).chosen.pure
    with pytest.raises(ValueError, match=r"delta"):
        base(users, 50, delta=0.0, mechanism="gaussian")


def test_another_number_of_users_is_a_failure():
    users = multinomial(6, [0.7, 0.2, 0.1], 9, 29)
    estimate = result(base(users, 9, n_users=30), users)
    assert estimate.status == "failed"
    assert "29" in estimate.reason
    assert estimate.ledger.entries == ()


def test_secure_noise():
    """Integer samplers serve every mechanism; real-valued noise is refused beforehand."""
    users = multinomial(6, [0.7, 0.2, 0.1], 9, 500)
    for name, mode in NAMES:
        protocol = base(users, 9, mechanism=name, mode=mode)
        assert result(protocol, users, noise=secure).status == "ok"
    real = base(users, 9, mechanism="laplace", discrete=False)
    estimate = result(real, users, noise=secure)
    assert estimate.status == "refused"
    assert "discrete" in estimate.reason
    assert result(real, users).status == "ok"


@pytest.mark.parametrize(("name", "mode"), NAMES)
@pytest.mark.parametrize(("k", "m", "s"), [(1, 5, 3), (5, 1, 1)])
def test_small_settings(name, mode, k, m, s):
    """One symbol, one sample, one user; all records empty."""
    domain = Keys.of([f"{i:04d}" for i in range(k)])
    protocol = Distribution(domain, 1.0, m, s, delta=1e-6, mechanism=name, mode=mode)
    for table in (np.zeros((s, k), int), np.eye(k, dtype=int)[np.arange(s) % k] * m):
        users = table_users(table, domain)
        value = result(protocol, users).value
        assert value.min() >= 0
        assert value.sum() == pytest.approx(1)
    if k == 1:
        assert value.tolist() == [1.0]


def test_resolve_fills_public_numbers_and_tells_what_it_read():
    users = table_users(np.array([[2, 2, 0], [5, 4, 50], [3, 3, 0]]))
    domain = Keys.of(list(users.vocabulary)[:2])
    given = {"epsilon": 1.0, "samples_per_user": 3}
    filled, told = Distribution.resolve(given, users, domain)
    assert (filled["n_users"], filled["samples_per_user"], told) == (3, 3, [])
