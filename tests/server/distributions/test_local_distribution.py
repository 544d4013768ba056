"""Discrete distributions under local privacy: plans, and the edges of the domain."""

import dataclasses
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.linalg import hadamard

import fedhist as fh
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.localize.queries import ClippedMean
from fedhist.users.shards import Items
from server.distributions.local_distribution import LocalDistribution
from server.frequency_oracles.frequency_oracle import FrequencyOracle
from simulations.populations import numbered_ids
from simulations.populations.synthetic import Zipf, numbered_items
from tests.running import count_table, drawn, run, table_users

by_folds = partial(LocalDistribution, method="folds")


def draw(n: int, T: int, p: fh.Floats, copies: int = 1, seed: int = 1) -> fh.Users:
    """Users of T items each; ``copies`` users share a record, mostly in different folds."""
    count = np.random.default_rng(seed).multinomial(T, p, n)
    user, item = np.nonzero(count)
    size = np.tile(np.bincount(user, minlength=n), copies)
    indptr = np.concatenate(([0], np.cumsum(size)))
    flat = np.tile(item, copies).astype(np.uint32), np.tile(count[user, item], copies)
    items = Items(numbered_items(len(p)), indptr, flat[0], flat[1].astype(np.uint32))
    return fh.Users(numbered_ids(0, n * copies), items=items)


def zipf(k: int, exponent: float = 0.5) -> fh.Floats:
    weights = np.arange(1, k + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def test_items_outside_the_domain_are_dropped() -> None:
    """Row by row the same scalars, whatever else a user holds and in whatever order."""
    k, n = 6, 200
    rng = np.random.default_rng(2)
    count = rng.integers(0, 5, (n, k + 3))
    keys = fh.Keys.of([*(f"item-{j}" for j in (4, 1, 6, 2, 5, 3)), "rye", "tea", "a"])
    noisy = table_users(count, keys)
    bare = table_users(count * (np.arange(k + 3) < k), keys)
    protocol = by_folds(numbered_items(k), 3.0, n, 10)
    first, _, rounds = drawn(protocol, noisy, aggregate=False)
    second, _, again = drawn(protocol, bare, aggregate=False)
    assert np.array_equal(first.value, second.value)
    for a, b in zip(rounds, again, strict=True):
        assert all(np.array_equal(a.sums[name], b.sums[name]) for name in a.sums)
    counts = count_table(noisy, protocol.domain)
    some = counts[counts.any(axis=1)]
    shares = (some / some.sum(axis=1, keepdims=True)).mean(axis=0)
    assert protocol.truth(noisy) == pytest.approx(shares)
    assert protocol.diagnostics(noisy) == {"users without items in the domain": n - len(some)}


def test_users_of_one_item_are_planned_as_such() -> None:
    """Their rows are +-1, where one bit has variance coth^2(epsilon / 2) in all, the least of all.

    60 runs of n = 32,000 and K = 8 against the plan's risk: 420 row errors, mean within 5 standard
    errors (false alarm 6e-7).
    """
    protocol = by_folds(numbered_items(8), 1.0, 32_000, 1, project=False)
    assert protocol.channel_kind == "onebit"
    assert protocol.plan.n_bins == 1
    assert protocol.plan.risk == pytest.approx(7 / 32_000 / math.tanh(0.5) ** 2, rel=1e-12)
    for other in ({"samples_per_user": 2}, {"mean_scale": 1.0}):
        assert dataclasses.replace(protocol, **other).channel_kind == "piecewise"
    users = draw(32_000, 1, np.full(8, 1 / 8))
    result = np.array([drawn(protocol, users, seed)[0].value for seed in range(60)])
    rows = hadamard(8)[1:]
    squares = np.square((result - protocol.truth(users)) @ rows.T)
    assert abs(squares.mean() / protocol.plan.risk - 1) < 5 * math.sqrt(2 / squares.size)


def test_resolve() -> None:
    """T counts the items in the domain, repetitions included; users without any do not count."""
    users = fh.Users.from_records(
        {"a": {"tea": 3, "rye": 1}, "b": {"tea": 2, "milk": 50}, "c": {"milk": 9}, "d": {}}
    )
    given = {"epsilon": 1.0, "samples_per_user": "harmonic-mean", "domain": ["tea", "rye"]}
    parameters, notes = LocalDistribution.resolve(given, users, None)
    protocol = LocalDistribution(**parameters)
    assert protocol.n_users == 4
    assert protocol.samples_per_user == pytest.approx(2 / (1 / 4 + 1 / 2))
    assert len(notes) == 1
    public, _ = LocalDistribution.resolve({"epsilon": 1.0}, users, fh.Keys.of(["milk"]))
    assert public["domain"] == fh.Keys.of(["milk"])
    with pytest.raises(ValueError, match="domain"):
        LocalDistribution.resolve({"epsilon": 1.0}, users, None)


def zipf_users(n: int, k: int, T: float, seed: int, exponent: float = 1.0, **more: str) -> fh.Users:
    spec = Zipf(n_users=n, d=k, exponent=exponent, mean_items=T, tail=math.inf, seed=seed, **more)
    return spec.load().users


def test_one_sample_is_one_report() -> None:
    """The oracle of least variance on the one item, projected."""
    users = zipf_users(2000, 10, 1, 0)
    domain = numbered_items(10)
    protocol = LocalDistribution(domain, 2.0, 2000, 1)
    estimate, queries, _ = run(protocol, users)
    assert [type(q) for q in queries] == [OracleReports]
    assert protocol.max_rounds == 1
    assert queries[0].cohort is None
    assert queries[0].kind == FrequencyOracle(2.0, domain).query.kind
    assert estimate.value.sum() == pytest.approx(1)
    assert estimate.stderr == pytest.approx(
        np.full(10, math.sqrt((queries[0].channel.v + 0.9) / 2000 / 10))
    )


def test_wide_domains_and_folds() -> None:
    wide = LocalDistribution(fh.Keys.range(5000), 1.0, 10**6, 1000)
    assert wide.opens_with_an_item
    assert wide.centred_plan.n_stages == 1
    narrow = replace(wide, domain=fh.Keys.range(3))
    assert not replace(narrow, method="centred").uses_folds
    folds = replace(narrow, method="folds")
    users = zipf_users(500, 3, 30, 1)
    asked = run(replace(folds, domain=numbered_items(3), n_users=500, epsilon=4.0), users).queries
    assert isinstance(asked[-1], ClippedMean)


def test_too_few_users_are_refused_with_the_number_that_is_enough() -> None:
    protocol = LocalDistribution(numbered_items(100), 0.5, 1000, 30)
    estimate = run(protocol, zipf_users(100, 100, 30, 0)).estimate
    assert estimate.status == "refused"
    least = int(estimate.reason.split("at least ")[1].split()[0])
    assert replace(protocol, n_users=least).centred_plan.feasible
    assert not replace(protocol, n_users=least - 1).centred_plan.feasible


@pytest.mark.parametrize("method", ["centred", "folds"])
def test_one_symbol_has_everything(method: str) -> None:
    domain = fh.Keys.of(["tea"])
    protocol = LocalDistribution(domain, 1.0, 3, 5, method=method)
    users = fh.Users.from_counts(np.arange(3), np.arange(2), [0, 0], [1, 4], domain)
    assert run(protocol, users).estimate.value.tolist() == [1.0]
