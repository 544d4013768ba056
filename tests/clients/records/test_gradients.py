"""Users' gradients against automatic truths: finite differences and a loop in plain Python."""

import math
from itertools import pairwise

import numpy as np
import pytest

from clients.records.gradients import user_gradients
from fedhist.base.errors import PopulationError
from fedhist.users.shards import Samples


def ragged(seed: int, d: int, model: str, n: int = 12) -> Samples:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, n)
    values = rng.normal(size=(sizes.sum(), d + 1))
    if model == "logistic":
        values[:, -1] = rng.choice([-1.0, 0.0, 1.0], len(values))
    return Samples(np.append(0, np.cumsum(sizes)), values)


def average_loss(rows: np.ndarray, model: str, theta: np.ndarray) -> float:
    total = 0.0
    for *x, y in rows.tolist():
        z = math.fsum(a * b for a, b in zip(x, theta, strict=True))
        if model == "logistic":
            total += math.log1p(math.exp(-z if y == 1 else z))
        else:
            total += (z - y) ** 2 / 2
    return total / len(rows)


@pytest.mark.parametrize("model", ["least-squares", "logistic"])
@pytest.mark.parametrize("d", [1, 3, 8])
def test_gradient_is_the_derivative_of_the_average_loss(model: str, d: int) -> None:
    samples = ragged(1, d, model)
    theta = np.random.default_rng(2).normal(size=d)
    got = user_gradients(samples, model, theta, np.zeros(d), math.inf)
    h = 1e-5
    for u, (a, b) in enumerate(pairwise(samples.indptr)):
        for k in range(d):
            step = h * np.eye(d)[k]
            rows = samples.values[a:b]
            up, down = (average_loss(rows, model, theta + s * step) for s in (1, -1))
            assert got[u, k] == pytest.approx((up - down) / (2 * h), abs=1e-8)


@pytest.mark.parametrize("model", ["least-squares", "logistic"])
def test_offsets_are_clipped_along_their_direction(model: str) -> None:
    samples, rng = ragged(3, 4, model), np.random.default_rng(4)
    theta, centre = rng.normal(size=4), rng.normal(size=4)
    free = user_gradients(samples, model, theta, np.zeros(4), math.inf) - centre
    size = np.linalg.norm(free, axis=1)
    clip = float(np.median(size))
    got = user_gradients(samples, model, theta, centre, clip)
    slow = free * np.minimum(1, clip * (1 - 2**-30) / size)[:, None]
    assert np.allclose(got, slow, rtol=1e-12, atol=1e-14)
    assert (np.linalg.norm(got, axis=1) <= clip).all()


def test_no_rounding_leads_out_of_the_ball() -> None:
    """Ten thousand rows just around the clip, in many dimensions: none is longer."""
    rng = np.random.default_rng(5)
    d, n = 50, 10_000
    x = rng.normal(size=(n, d))
    x /= np.linalg.norm(x, axis=1)[:, None]
    clip = 0.1 + 0.2  # no round number
    y = -clip * (1 + rng.uniform(-1e-15, 1e-15, n))
    samples = Samples(np.arange(n + 1), np.column_stack((x, y)))
    got = user_gradients(samples, "least-squares", np.zeros(d), np.zeros(d), clip)
    assert np.linalg.norm(got.astype(np.longdouble), axis=1).max() <= clip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e308])
def test_a_record_that_is_not_finite_is_the_null_record(bad: float) -> None:
    """Also where the values are finite but their products are not; nobody else notices."""
    for model in ("least-squares", "logistic"):
        for column in range(3):
            if bad == 1e308 and (model == "logistic") == (column < 2):
                continue  # a finite gradient: 1e308 times a sigmoid, or times a feature
            samples = ragged(6, 2, model)
            spoiled = samples.values.copy()
            spoiled[samples.indptr[4], column] = bad
            ones = np.full(2, 10.0)
            got = user_gradients(Samples(samples.indptr, spoiled), model, ones, ones, 2.0)
            fine = user_gradients(samples, model, ones, ones, 2.0)
            assert (got[4] == 0).all()
            assert np.array_equal(np.delete(got, 4, 0), np.delete(fine, 4, 0))


@pytest.mark.parametrize("label", [2.0, 0.5, -1.0000001])
def test_another_label_is_the_null_record_of_the_logistic_model(label: float) -> None:
    values = np.array([[1.0, 1.0], [1.0, label], [1.0, 0.0], [1.0, -1.0]])
    samples = Samples(np.array([0, 2, 3, 4, 4]), values)
    got = user_gradients(samples, "logistic", np.zeros(1), np.full(1, 0.25), math.inf)
    assert got.tolist() == [[0.0], [0.25], [0.25], [0.0]]  # 0 and -1 are the same label


def test_samples_of_another_dimension_are_refused() -> None:
    with pytest.raises(PopulationError, match="3 features and a response, got 3 columns"):
        user_gradients(ragged(9, 2, "logistic"), "logistic", np.zeros(3), np.zeros(3), 1.0)


@pytest.mark.parametrize("clip", [2.0**-400, 1e-15, 1e-8, 1.0, 2.0**400])
@pytest.mark.parametrize("response", [1e308, -1e308, 1e300, 5.0])
def test_no_record_passes_the_clip(clip: float, response: float) -> None:
    """clip / size may be too small a double for one factor."""
    samples = Samples(np.array([0, 1]), np.array([[1.0, 0.3, response]]))
    zero = np.zeros(2)
    out = user_gradients(samples, "least-squares", zero, zero, clip)
    assert np.linalg.norm(out[0] / clip) <= 1.0
