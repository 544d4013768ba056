"""The default of local-distribution: whole vectors in stages, or one item of everybody."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from clients.centred.queries import RadiusVotes, RankReports
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.localize.queries import ClippedMean
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.local_distribution import LocalDistribution
from server.frequency_oracles.frequency_oracle import FrequencyOracle
from server.targets.simplex import project_simplex
from simulations.populations.synthetic import numbered_items
from simulations.populations.zipf import Zipf
from tests.running import drawn, run


def zipf_users(n: int, k: int, T: float, seed: int, exponent: float = 1.0, **more: str) -> Users:
    spec = Zipf(n_users=n, d=k, exponent=exponent, mean_items=T, tail=math.inf, seed=seed, **more)  # type: ignore[arg-type]
    return spec.load().users


def mean_loss(n: int, k: int, epsilon: float, T: float, runs: int, **people: object) -> float:
    losses = []
    for seed in range(runs):
        users = zipf_users(n, k, T, seed, **people)  # type: ignore[arg-type]
        protocol = LocalDistribution(numbered_items(k), epsilon, n, T, salt=seed + 1)
        losses.append(protocol.loss_of(drawn(protocol, users, seed).estimate, users))
    return float(np.mean(losses))


@pytest.mark.parametrize(
    ("n", "k", "epsilon", "T", "exponent", "reach"),
    [(6_000, 37, 1.5, 50, 1.3, 0.153), (20_000, 37, 3.0, 16, 1.0, 0.069)],
)
def test_errors_that_must_be_reached(
    n: int, k: int, epsilon: float, T: float, exponent: float, reach: float
) -> None:
    """Six runs, whose l1 errors deviate by a sixth at most: 1.2 is beyond 2.5 standard errors.

    Ours are at .94 and .86 of what must be reached.
    """
    assert mean_loss(n, k, epsilon, T, 6, exponent=exponent) < 1.2 * reach


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


@pytest.mark.parametrize(("k", "epsilon"), [(3, 8.0), (16, 2.0)])
def test_stages_of_an_example(k: int, epsilon: float) -> None:
    """Queries, cohorts and radii; without a projection the shares still add up to one."""
    n, T = 8000, 200
    users = zipf_users(n, k, T, 3)
    protocol = LocalDistribution(numbered_items(k), epsilon, n, T, project=False)
    plan = protocol.centred_plan
    assert plan.n_stages > 1
    estimate, queries, _ = run(protocol, users)
    opening = OracleReports if protocol.opens_with_an_item else RankReports
    kinds = [opening, *[RadiusVotes, RankReports] * (plan.n_stages - 1)]
    assert [type(q) for q in queries] == kinds
    assert all(q.epsilon == epsilon for q in queries)
    for a, b in pairwise(queries):
        assert a.cohort.hi == b.cohort.lo
    assert estimate.value.sum() == pytest.approx(1)
    projected = run(replace(protocol, project=True), users).estimate
    assert projected.value == pytest.approx(project_simplex(estimate.value), abs=1e-12)
    error = estimate.value - protocol.truth(users)
    # 4 standard errors of a chi square of k - 1 coordinates
    allowed = np.square(estimate.stderr).sum() * (1 + 4 * 1.5)
    assert np.square(error).sum() < allowed


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
    found = [run(protocol, users, seed).estimate for seed in range(20)]
    values = np.array([e.value for e in found])
    error = found[0].stderr / 0.75 / math.sqrt(20)
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
