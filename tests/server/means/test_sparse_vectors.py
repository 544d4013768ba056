"""The sparse mean by whole vectors."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedhist
from fedhist.users.batch import Users
from server.means.sparse_mean import NOT_LOST, SparseMean
from tests.running import one_sample

PLACES = [1, 13, 20, 39]
SIGNS = np.array([1, -1, 1, -1])


def population(n: int, d: int, T: int, at: float, seed: int = 1) -> tuple[np.ndarray, Users]:
    """Users with T samples +-1, kept as one row: their mean."""
    rng, truth = np.random.default_rng(seed), np.zeros(d)
    truth[PLACES] = at * SIGNS
    means = rng.binomial(T, (1 + truth) / 2, (n, d)) * (2 / T) - 1
    return truth, one_sample(means)


def settings(n: int, d: int, T: int, epsilon: float, **more: Any) -> SparseMean:
    given = {"epsilon": epsilon, "n_users": n, "dimension": d, "samples_per_user": T}
    return SparseMean(**{**given, "sparsity": 4, **more})


def test_when_vectors_are_reported() -> None:
    protocol = settings(5000, 40, 30, 2.0)
    assert (protocol.procedure, protocol.max_rounds) == ("vectors", 10)
    for other in ({"dimension": 4097}, {"epsilon": math.inf}, {"sparsity": 40}):
        assert replace(protocol, **other).procedure != "vectors"
    assert settings(5000, 40, 30, 2.0, mode="paper").procedure in ("select", "threshold")


def test_estimates_stay_in_the_box() -> None:
    """Of hardly enough users: without it they went out to 2.3 radii, for a fifth of the error."""
    _, users = population(570, 40, 30, 0.9)
    for k in range(6):
        result = fedhist.run(settings(570, 40, 30, 1.0, salt=k), users, seed=k)
        assert result.status == "ok"
        assert np.abs(result.value).max() <= 1.0


def test_which_columns_are_refined() -> None:
    """s sure ones are all; with one of them in doubt there is room for one more."""
    protocol = settings(5000, 40, 30, 2.0)
    z = np.zeros(40)
    z[[3, 5, 7]], z[[9, 11, 13]] = protocol.level + NOT_LOST, (-4.0, 2.0, -1.6)
    assert protocol.candidates(z).tolist() == [3, 5, 7, 9, 11]
    z[9] = -9.0
    assert protocol.candidates(z).tolist() == [3, 5, 7, 9]
    assert not len(protocol.candidates(np.full(40, 1.4)))


def test_no_signal_gives_zero_and_few_users_are_refused() -> None:
    _, users = population(3000, 40, 30, 0.0)
    ran = [fedhist.run(settings(3000, 40, 30, 2.0), users, seed=k) for k in range(12)]
    empty = [e for e in ran if not e.value.any()]
    assert len(empty) >= 6  # a column of no signal passes in a run of four
    assert all(e.warnings for e in empty)
    refused = fedhist.run(settings(60, 40, 30, 0.5), population(60, 40, 30, 0.5)[1], seed=1)
    assert refused.status == "refused"


@pytest.mark.parametrize("method", ["vectors", "select", "threshold"])
def test_what_signals_that_are_lost_may_cost_is_stated(method: str) -> None:
    """Signals half as strong as those that may be lost are, within the bound; stronger ones hardly.

    Planned: 1 of 40 is lost. More than 6 of 48 have a probability of 1e-3.
    """
    protocol, n = settings(20_000, 40, 30, 2.0, method=method), 20_000
    assert 0.05 < protocol.missable < 0.5
    truth, users = population(n, 40, 30, 0.45 * protocol.missable)
    result = [fedhist.run(replace(protocol, salt=k), users, seed=k) for k in range(12)]
    values = np.array([e.value for e in result])
    gone = 4 - np.count_nonzero(values, axis=1)
    assert (values[:, PLACES] == 0).sum() >= 10
    stated = np.array([np.square(np.asarray(e.stderr)).sum() for e in result])
    unseen = np.array([e.public["unseen"] for e in result])
    assert (unseen >= protocol.missable * np.sqrt(gone) * (1 - 1e-12)).all()
    off = np.square(values - truth).sum(axis=1)
    assert 1.3 * stated.mean() < off.mean() < 1.3 * stated.mean() + np.square(unseen).mean()
    _, users = population(n, 40, 30, 1.1 * protocol.missable)
    result = [fedhist.run(replace(protocol, salt=k), users, seed=k) for k in range(12)]
    assert (np.array([e.value for e in result])[:, PLACES] == 0).sum() <= 6
