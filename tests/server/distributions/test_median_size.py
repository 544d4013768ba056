"""Private medians of the number of samples: laws by enumeration."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from server.distributions.median_size import (
    EM_SHARE,
    Median,
    MedianTask,
    class_counts,
    em_search,
    median_scores,
    size_classes,
    size_query,
)
from server.noise import SimulatedNoise
from server.printed.ragged_distribution import dyadic_median, dyadic_search, dyadic_slack
from tests.running import curator, drive, table_users

RULES = {"em": em_search, "dyadic": dyadic_search}
TEA = fh.Keys.of(["tea"])


def drinkers(sizes: Any) -> fh.Users:
    return table_users(np.array(sizes, dtype=np.int64)[:, None], TEA)


def task(m_max: int, s: int, epsilon: float = 1.0, beta: float = 0.05) -> MedianTask:
    return MedianTask(TEA, m_max, s, epsilon, beta)


def search(rule: str, t: MedianTask, sizes: Any, seed: int = 0) -> Median:
    server = curator(lambda i: SimulatedNoise(seed, i))
    result: Median = drive(RULES[rule](t, server), drinkers(sizes))[0]
    return result


def classes(sizes: Any, m_max: int) -> np.ndarray[Any, Any]:
    query = size_query(TEA, m_max)
    return class_counts(query.fold(query.answer(drinkers(sizes), None)))


@pytest.mark.parametrize("m_max", [1, 2, 7, 8, 1 << 20])
def test_classes_are_dyadic(m_max: int) -> None:
    v = size_classes(m_max)
    assert v == math.floor(math.log2(m_max)) + 2
    sizes = [0, *range(1, 40), m_max, m_max - 1, 5 * m_max]
    expected = np.zeros(v, dtype=np.int64)
    for m in sizes:
        expected[0 if m == 0 else min(math.floor(math.log2(m)) + 1, v - 1)] += 1
    assert classes(sizes, m_max).tolist() == expected.tolist()


def test_without_noise_both_find_the_power_of_two_below_the_median() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        sizes = rng.integers(1, rng.integers(2, 200), 2 * rng.integers(3, 40) + 1)
        expected = 1 << int(np.median(sizes)).bit_length() - 1
        for rule in RULES:
            result = search(rule, task(256, len(sizes), math.inf), sizes)
            assert result.size == expected
            assert result.users == (sizes >= expected).sum()


def test_sizes_beyond_m_max_count_as_m_max() -> None:
    for rule in RULES:
        assert search(rule, task(10, 5, math.inf), [10**9] * 5) == Median(8, 5.0)


SIZES = (0, 1, 2, 5)  # one of every class for m_max = 4


def neighbours(s: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    out = []
    for rest in itertools.combinations_with_replacement(SIZES, s - 1):
        out += [((*rest, a), (*rest, b)) for a in SIZES for b in SIZES if a != b]
    return out


def log_law(sizes: tuple[int, ...], t: MedianTask, z: np.ndarray[Any, Any]) -> Any:
    """Log probability of every (class, noisy count) of "em", from scratch."""
    counts = classes(sizes, 4)
    weight = EM_SHARE * t.epsilon / 2
    logit = weight * median_scores(counts)
    log_p = logit - np.log(np.exp(logit).sum())
    rate = (1 - EM_SHARE) * t.epsilon
    above = np.array([counts[j + 1 :].sum() for j in range(len(counts) - 1)])
    noise = math.log(math.tanh(rate / 2)) - rate * np.abs(z - above[:, None])
    return log_p[:, None] + noise, log_p


def test_em_is_epsilon_private_and_has_bounded_range() -> None:
    """Exact joint law of m-hat and s-hat over all neighbours; beyond z the ratio is constant."""
    t, z = task(4, 4, 0.9), np.arange(-3, 9)
    worst = spread = 0.0
    for a, b in neighbours(4):
        (joint_a, p_a), (joint_b, p_b) = log_law(a, t, z), log_law(b, t, z)
        worst = max(worst, np.abs(joint_a - joint_b).max())
        spread = max(spread, np.ptp(p_a - p_b))
    assert worst <= 0.9 * (1 + 1e-12)
    assert spread <= EM_SHARE * 0.9 * (1 + 1e-12)
    assert worst > 0.9 * 0.6  # a smaller epsilon does not hold
    assert spread > EM_SHARE * 0.9 * 0.6


def test_the_slack_is_the_formula() -> None:
    slack = dyadic_slack(task(4096, 200, 0.5))
    assert slack == pytest.approx(4 * math.sqrt(8 * 14 * math.log(560)))
    assert dyadic_slack(task(2, 200)) == pytest.approx(2 * 3 * math.log(120))  # v L is the least


@pytest.mark.parametrize("rule", RULES)
def test_lemma_10_holds(rule: str) -> None:
    """m-hat >= median / 2 and s-hat near s' >= s / 4, with 20 seeds; beta = 1e-6 each."""
    rng = np.random.default_rng(8)
    sizes = rng.geometric(0.02, 4000)
    t = task(1024, 4000, 2.0, beta=1e-6)
    for seed in range(20):
        result = search(rule, t, sizes, seed)
        large = (sizes >= result.size).sum()
        assert result.size >= np.median(sizes) / 2
        assert large >= 1000
        assert abs(result.users - large) <= (t.count_slack if rule == "em" else dyadic_slack(t))


def test_users_without_samples_fail() -> None:
    assert search("dyadic", task(8, 4000), [0] * 4000).size == 0
    result = search("em", task(8, 4000), [0] * 4000)
    assert result.size == 0
    assert result.reason
    assert dyadic_median(np.array([10, 0, 0]), task(2, 10, math.inf)).size == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"m_max": 0}, "m_max.*0"),
        ({"m_max": (1 << 31) + 1}, "m_max"),
        ({"beta": 0.0}, "beta.*0"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_impossible_tasks_are_refused(change: dict[str, Any], match: str) -> None:
    good = {"domain": TEA, "m_max": 8, "n_users": 10, "epsilon": 1.0}
    MedianTask(**good)
    with pytest.raises(ValueError, match=match):
        MedianTask(**{**good, **change})
