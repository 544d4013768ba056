"""Unbounded histogram: the release's law with its random clipping, choices of C, refusals."""

from dataclasses import replace

import numpy as np
import pytest

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.histograms.unbounded_histogram import UnboundedHistogram
from tests.running import result as run

ZERO, ADD, REPLACE = "zero-out-user", "add-remove-user", "replace-user"
BASE = UnboundedHistogram(epsilon=1.0, delta=1e-6, clip=10)
SAMPLE = {"clip": None, "method": "sample"}


def zipf_users(n, d=200, seed=0, mean=30):
    """Users of geometric size; item k has weight 1 / k; every tenth user has an item of its own."""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, d + 1)
    counts = rng.multinomial(rng.geometric(1 / mean, n), p / p.sum())
    u, j = np.nonzero(counts)
    c = counts[u, j]
    own = np.arange(0, n, 10)
    names = Keys.of([*(f"item-{k:04}" for k in range(d)), *(f"own-{k:06}" for k in own)])
    return Users.from_counts(
        np.arange(n, dtype=np.uint64),
        np.concatenate([u, own]),
        np.concatenate([j, d + np.arange(len(own))]),
        np.concatenate([c, np.ones(len(own), dtype=np.int64)]),
        names,
    )


@pytest.mark.parametrize(
    ("change", "threshold", "scale"),
    [
        ({}, 156, 10),
        ({"adjacency": ADD}, 156, 10),
        ({"adjacency": REPLACE}, 310, 20),
        ({"discrete": False}, 155.2495, 10),
        ({"discrete": False, "adjacency": REPLACE}, 309.499, 20),
        ({"mode": "paper"}, 164.2495, 10),
        ({"mode": "paper", "adjacency": REPLACE}, 164.2495, 10),  # as printed, whatever is declared
    ],
)
def test_thresholds_and_scales(change, threshold, scale):
    law = replace(BASE, **change).release_at(10)
    assert law.threshold == pytest.approx(threshold, abs=6e-4)
    assert law.scale == scale
    assert law.discrete == (change == {} or set(change) == {"adjacency"})
    assert law.raw_support == (change.get("mode") == "paper")
    estimate = run(replace(BASE, **change), zipf_users(50))
    assert estimate.public["threshold"] == law.threshold
    assert estimate.public["noise_std"] == law.std
    assert ("n_users" in estimate.public) == (change.get("adjacency") != ADD)


def test_a_given_share_of_the_choice_is_taken():
    chosen = replace(BASE, **SAMPLE, epsilon_choice=0.25)
    assert (chosen.task.epsilon, chosen.release_epsilon) == (0.25, 0.75)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("clip", [3, 20, 1000])
def test_released_items_are_those_that_reach_the_threshold(discrete, clip):
    users = zipf_users(3000)
    protocol = replace(BASE, clip=clip, discrete=discrete)
    estimate = run(protocol, users)
    truth = dict(zip(protocol.support(users), protocol.truth(users), strict=True))
    assert set(estimate.keys) <= truth.keys()
    assert list(estimate.keys) == sorted(estimate.keys, key=str.encode)
    assert not any(k.startswith("own") for k in estimate.keys)  # but with probability 3e-4
    assert (estimate.value >= protocol.release_at(clip).threshold).all()
    assert (estimate.stderr == protocol.release_at(clip).std).all()
    assert estimate.value.dtype == (np.int64 if discrete else np.float64)
    hidden = [n for k, n in truth.items() if k not in set(estimate.keys)]
    loss = protocol.loss_of(estimate, users)
    released = sum(abs(v - truth[k]) for k, v in zip(estimate.keys, estimate.value, strict=True))
    assert loss == pytest.approx(sum(hidden) + released)


def test_odd_populations():
    empty = Users.from_records({"a": {}, "b": {}})
    for protocol in (BASE, replace(BASE, **SAMPLE), replace(BASE, mode="paper")):
        estimate = run(protocol, empty)
        assert len(estimate.keys) == len(estimate.value) == 0
        assert protocol.loss_of(estimate, empty) == 0.0
    huge = Users.from_records({f"u{k}": {"\0": 1 << 40, "🍵": 1} for k in range(300)})
    estimate = run(BASE, huge)
    assert list(estimate.keys) == ["\0"]
    assert abs(int(estimate.value[0]) - 3000) < 10 * 20  # noise of scale 10: e^-20
