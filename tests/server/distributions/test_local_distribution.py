"""Discrete distributions under local privacy: the figures of theory, and the edges of the domain.

Runs over many seeds draw the summaries from their exact law; the contract tests and one test
here go through every user's report.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.linalg import hadamard

from clients.frequency_oracles.oracle_votes import OracleReports
from clients.localize.queries import ClippedMean
from fedhist.base.arrays import Floats
from fedhist.users.batch import Users
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from server.distributions.local_distribution import LocalDistribution
from server.frequency_oracles.frequency_oracle import FrequencyOracle
from server.targets.simplex import project_simplex
from simulations.populations.synthetic import numbered_ids, numbered_items
from simulations.populations.zipf import Zipf
from tests.running import count_table, drawn, run, table_users

by_folds = partial(LocalDistribution, method="folds")


def draw(n: int, T: int, p: Floats, copies: int = 1, seed: int = 1) -> Users:
    """Users of T items each; ``copies`` users share a record, mostly in different folds."""
    count = np.random.default_rng(seed).multinomial(T, p, n)
    user, item = np.nonzero(count)
    size = np.tile(np.bincount(user, minlength=n), copies)
    indptr = np.concatenate(([0], np.cumsum(size)))
    flat = np.tile(item, copies).astype(np.uint32), np.tile(count[user, item], copies)
    items = Items(numbered_items(len(p)), indptr, flat[0], flat[1].astype(np.uint32))
    return Users(numbered_ids(0, n * copies), items=items)


def zipf(k: int, exponent: float = 0.5) -> Floats:
    weights = np.arange(1, k + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


# -- the script ------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [3, 16])
def test_the_value_is_the_transform_of_the_folds_estimates(k: int) -> None:
    """Against SciPy's matrix; every symbol has the same standard error."""
    p = zipf(k)
    protocol = by_folds(numbered_items(k), 2.0, 4000, 50, project=False)
    estimate, queries, summaries = drawn(protocol, draw(4000, 50, p))
    refine = queries[-1]
    assert isinstance(refine, ClippedMean)
    K = refine.functional.n_folds + 1
    q = np.append(1.0, refine.estimates(summaries[-1]))
    assert estimate.value == pytest.approx((hadamard(K) @ q / K)[:k], abs=1e-12)
    assert estimate.keys == numbered_items(k)
    n = summaries[-1].sums["users"]
    planned = protocol.plan.variance * (1 - protocol.plan.vote_share) * 4000 / (K - 1)
    assert estimate.stderr == pytest.approx(np.full(k, math.sqrt(np.sum(planned / n)) / K))
    projected = drawn(dataclasses.replace(protocol, project=True), draw(4000, 50, p))[0]
    assert projected.value == pytest.approx(project_simplex(estimate.value), abs=1e-12)
    assert projected.value.sum() == pytest.approx(1)


def test_items_outside_the_domain_are_dropped() -> None:
    """Row by row the same scalars, whatever else a user holds and in whatever order."""
    k, n = 6, 200
    rng = np.random.default_rng(2)
    count = rng.integers(0, 5, (n, k + 3))
    keys = Keys.of([*(f"item-{j}" for j in (4, 1, 6, 2, 5, 3)), "rye", "tea", "a"])
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


# -- its error -------------------------------------------------------------------------------------


def test_figures_of_theory() -> None:
    """k = 64, n = 256,000, T = 1000, epsilon = 1: l1 below 0.03, l2^2 about 25 K / (n T epsilon^2).

    Over 10 seeds l1 is 0.0144, with a deviation of 12 percent, and l2^2 is 20 K / (n T), with one
    of 19 percent, both before the projection. Every bound on the averages of two is four
    deviations away.
    """
    p = zipf(64)
    users = draw(16_000, 1000, p, copies=16)
    protocol = by_folds(users.vocabulary, 1.0, 256_000, 1000, project=False)
    values = np.array([drawn(protocol, users, seed)[0].value for seed in range(2)])
    l1 = np.abs(values - p).sum(axis=1).mean()
    assert l1 < 0.03
    assert l1 == pytest.approx(0.0149, rel=0.4)
    l2 = np.square(values - p).sum(axis=1).mean()
    assert 8 < l2 * 256_000 * 1000 / 64 < 32
    assert np.abs(project_simplex(values[0]) - p).sum() < 0.03


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


# -- parameters ------------------------------------------------------------------------------------


def test_resolve() -> None:
    """T counts the items in the domain, repetitions included; users without any do not count."""
    users = Users.from_records(
        {"a": {"tea": 3, "rye": 1}, "b": {"tea": 2, "milk": 50}, "c": {"milk": 9}, "d": {}}
    )
    given = {"epsilon": 1.0, "samples_per_user": "harmonic-mean", "domain": ["tea", "rye"]}
    parameters, notes = LocalDistribution.resolve(given, users, None)
    protocol = LocalDistribution(**parameters)
    assert protocol.n_users == 4
    assert protocol.samples_per_user == pytest.approx(2 / (1 / 4 + 1 / 2))
    assert len(notes) == 1
    public, _ = LocalDistribution.resolve({"epsilon": 1.0}, users, Keys.of(["milk"]))
    assert public["domain"] == Keys.of(["milk"])
    with pytest.raises(ValueError, match="domain"):
        LocalDistribution.resolve({"epsilon": 1.0}, users, None)


def zipf_users(n: int, k: int, T: float, seed: int, exponent: float = 1.0, **more: str) -> Users:
    spec = Zipf(n_users=n, d=k, exponent=exponent, mean_items=T, tail=math.inf, seed=seed, **more)  # type: ignore[arg-type]
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


def test_users_without_items_are_left_out_of_one_report() -> None:
    """A quarter of the users; their null share is learned. Five standard errors of 20 runs."""
    k, n = 5, 8000
    some = zipf_users(n, k, 1, 1)
    keep = np.arange(n) >= n // 4
    flat = np.repeat(keep, some.n_items())
    item, count = some.counts.item[flat], some.counts.count[flat]
    users = Users.from_counts(some.ids, np.flatnonzero(keep), item, count, some.vocabulary)
    protocol = LocalDistribution(some.vocabulary, 2.0, n, 1, project=False)
    assert protocol.opens_with_an_item
    result = [run(protocol, users, seed).estimate for seed in range(20)]
    values = np.array([e.value for e in result])
    error = result[0].stderr / 0.75 / math.sqrt(20)
    assert (np.abs(values.mean(axis=0) - protocol.truth(users)) < 5 * error).all()


def test_wide_domains_and_folds() -> None:
    wide = LocalDistribution(Keys.range(5000), 1.0, 10**6, 1000)
    assert wide.opens_with_an_item
    assert wide.centred_plan.n_stages == 1
    narrow = replace(wide, domain=Keys.range(3))
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
    domain = Keys.of(["tea"])
    protocol = LocalDistribution(domain, 1.0, 3, 5, method=method)
    users = Users.from_counts(np.arange(3), np.arange(2), [0, 0], [1, 4], domain)
    assert run(protocol, users).estimate.value.tolist() == [1.0]
