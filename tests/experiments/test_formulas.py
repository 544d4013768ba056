"""Formulas that experiments draw or judge by, against slow versions, by hand and by small runs."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import brentq
from small_requests import result_of, small

from fedhist.users.keys import Keys
from server.distributions.distribution import MECHANISMS
from simulations.experiments import binomial_distance as binomial
from simulations.experiments import clipping_theorems as theorems
from simulations.experiments import rate_tables as tables
from simulations.experiments import user_complexity as complexity
from simulations.experiments.clipping_theorems import Clipped, Rates
from simulations.experiments.erm_rates import Problem, erm_rate, erm_users, sco_rate, sco_users
from simulations.experiments.experiment import experiment
from simulations.experiments.single_items import compare, protocol_for
from simulations.experiments.unbounded_domain import expected_errors
from simulations.populations import population


@pytest.mark.parametrize("epsilon", [0.2, 5.0])
def test_the_constants_of_b1_are_those_of_its_proof(epsilon: float) -> None:
    """Single items, for which nothing averages out: in [1/6, 1], and near both ends of it."""
    clip, delta = 3, 1e-3
    b = clip / epsilon
    t = clip + b * math.log(clip / (2 * delta))
    ratios = []
    for truth in np.unique(np.rint(np.geomspace(1, 40 * t, 60))):
        for kept in {0.0, float(round(truth / 3)), float(truth)}:
            one = Clipped(np.array([kept]), np.array([truth]), truth - kept)
            exact = float(expected_errors(one.kept, one.truth, b, t)[0])
            ratios.append(exact / theorems.theorem_b1(one, clip, epsilon, t))
    assert 1 / 6 <= min(ratios) < 0.55
    assert 0.7 < max(ratios) <= 1


def test_c2_is_the_difference_of_its_proof() -> None:
    """alpha = 1, users alike: all of the bias, (gamma - 1) / (gamma - 1) of its square."""
    alike = Rates(np.array([0.7]), np.ones(1))
    bias = 0.7 - alike.clipped(2)
    assert theorems.theorem_c2(alike, 2) == pytest.approx(bias**2)
    assert theorems.gap_without_noise(alike, 2) == pytest.approx(bias**2)
    assert theorems.theorem_c2(Rates(np.array([1.2]), np.ones(1)), 2) is None
    # the last line of the proof, before h-bar is written by alpha
    some = Rates(np.array([0.2, 1.0]), np.array([0.5, 0.5]))
    kept, mean = some.clipped(2), 0.6
    h = float(theorems.clipped_mean(mean, 2))
    gamma = 1 / (2 * math.exp(-1))
    direct = (mean - kept) ** 2 - gamma**2 * (h - kept) ** 2
    assert theorems.theorem_c2(some, 2) == pytest.approx(direct)


def test_c3_as_printed_is_too_small() -> None:
    """One user in a hundred with a large rate: the share alone does not bound what is lost."""
    few = Rates(np.array([0.0, 60.0]), np.array([0.99, 0.01]))
    bias = float(theorems.clipped_mean(0.6, 40)) - few.clipped(40)
    printed, corrected = theorems.theorem_c3(few, 40)
    assert 100 * printed < bias <= corrected


ONE = Problem(0.5, 4000, 50, 20, 3.0, 5.0, 1.5, 0.4)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize(("epsilon", "spread"), [(0.05, 0.4), (1.0, 0.01)])
def test_users_of_sco_are_the_condition_solved(few: bool, epsilon: float, spread: float) -> None:
    p = replace(ONE, epsilon=epsilon, spread=spread)
    d = 1 if few else p.dimension

    def missing(log_n: float) -> float:
        n = math.exp(log_n)
        private = replace(p, n_users=1).private_error / n
        strength = math.hypot(private, math.sqrt(p.both_bounds / (n * p.samples))) / p.radius
        return n - math.sqrt(d * p.smoothness / strength) / epsilon

    solved = math.exp(brentq(missing, -30, 40))
    stated = sco_users(p, few)
    stated -= 1 / epsilon if few else 0.0
    assert solved <= stated * (1 + 1e-9)
    assert stated <= 2 * solved


def test_rates_are_as_printed() -> None:
    sigma = 0.4 * math.sqrt(20 / 50)
    private = sigma * 50 / (4000 * math.sqrt(20) * 0.5)
    assert erm_rate(ONE, 8) == pytest.approx(9 * 1.5 / 8 + 3 * private)
    strong = replace(ONE, strong_convexity=0.7)
    expected = 5 * 3 * math.exp(-0.7 / 1.5 * 8) + private**2 / 0.7
    assert erm_rate(strong, 8) == pytest.approx(expected)
    assert erm_users(ONE, 8, False) == pytest.approx(math.sqrt(50 * 8) / 0.5)
    assert erm_users(ONE, 8, True) == pytest.approx(math.sqrt(8) / 0.5)
    both = 5 * min(5.0, sigma * math.sqrt(50))
    assert sco_rate(ONE) == pytest.approx(3 * (math.sqrt(both / (20 * 4000)) + private))


def test_rates_by_hand() -> None:
    """n = 1000, T = 10, epsilon = 1/2: n epsilon^2 = 250."""
    assert tables.rate_box(1000, 10, 0.5, 4) == pytest.approx(16 / 2500)
    assert tables.rate_box(10, 10, 0.5, 4) == 4 * math.exp(-2.5 / 4)  # the plateau
    assert tables.rate_ball(1000, 10, 0.5, 4) == pytest.approx(4 / 2500)
    assert tables.rate_ball(1, 1, 0.01, 4) == 4.0  # the squared diameter
    assert tables.rate_sparse(1000, 10, 0.5, 100, 3) == pytest.approx(0.3 * math.log(1.4))
    assert tables.rate_density(1000, 10, 0.5, 1.0) == pytest.approx(2500**-0.5)
    assert tables.rate_density(1000, 10**9, 0.5, 1.0) == pytest.approx(250.0**-2)


def test_item_level_formulas_are_those_of_the_specification() -> None:
    """9 and 4.7 over n T in one dimension; d^2 coth^2 and B^2 ~ (pi d / 2) coth^2 in more."""
    coth2 = 1 / math.tanh(0.5) ** 2
    curves = {c.label: c for c in result_of("phase-transition").curves}
    for label, constant in (("Laplace", 9.0), ("one bit", coth2)):
        c = curves[f"item level, {label}, formula"]
        np.testing.assert_allclose(c.y * c.x * 2000, constant, rtol=1e-3)  # its lattice rounds
    assert coth2 == pytest.approx(4.7, abs=0.03)
    request = small("local-dimension")
    n, T = request.settings["users"], request.settings["samples"]
    panel = [c for c in result_of("local-dimension").curves if c.panel.startswith("against d")]
    many = {c.label: c for c in panel}
    linf, l2 = many["linf: item level"], many["l2: item level"]
    np.testing.assert_allclose(linf.y * n * T, linf.x**2 * coth2, rtol=1e-3)
    np.testing.assert_allclose(l2.y * n * T, math.pi * l2.x / 2 * coth2, rtol=0.15)
    np.testing.assert_allclose(many["linf: naive"].y, T * linf.y, rtol=1e-3)


@pytest.mark.parametrize(("m", "p", "q"), [(1, 0.3, 0.45), (7, 0.01, 0.011), (20, 0.9, 0.2)])
def test_distances_are_sums_of_probabilities(m: int, p: float, q: float) -> None:
    laws = [[math.comb(m, x) * a**x * (1 - a) ** (m - x) for x in range(m + 1)] for a in (p, q)]
    slow = math.fsum(abs(a - b) for a, b in zip(*laws, strict=True))
    assert binomial.l1_distance(m, p, q) == pytest.approx(slow, rel=1e-12)


def test_figure_1_bends_as_the_paper_says() -> None:
    """Slope near 1 for small m, 1/2 for large m, though the quick grid is coarse."""
    ours = {(c.setting, c.quantity): c.ours for c in result_of("binomial-distance").checks}
    assert ours[binomial.SMALL, "log-log slope"] == pytest.approx(0.93, abs=0.01)
    assert ours[binomial.LARGE, "log-log slope"] == pytest.approx(0.5, abs=0.01)


def regime(k: int = 6, alpha: float = 0.05) -> complexity.Regime:
    """A small regime at (1, 1e-6)."""
    return complexity.Regime("test", Keys.of(f"{j}" for j in range(k)), alpha, 1.0, 1e-6)


@pytest.mark.parametrize("mechanism", ["laplace", "presence"])
def test_needed_is_the_least_number(mechanism: str) -> None:
    r, m = regime(), 5
    n = int(r.needed(mechanism, m))
    chosen = MECHANISMS[mechanism]

    def enough(n: int) -> bool:
        task = r.protocol(mechanism, m, n).task
        return chosen.error(task) <= r.alpha and n >= chosen.floor(task)

    assert enough(n)
    assert not enough(n - 1)


SETTINGS = SimpleNamespace(epsilon=1.0, epsilon_choice=0.1, clip_max=64)


def poisson_users(n=3000, alpha=math.inf):
    return population("paper-poisson", n_users=n, alpha=alpha, mean_items=2.0).load().users


def tweets(path, rows):
    lines = (f'"0","{k}","d","q","{user}","{text}"' for k, (user, text) in enumerate(rows))
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return path


def test_runs_scatter_around_the_predicted_error():
    """400 runs and 30; within 5 standard errors, a false alarm has probability 1e-6."""
    users = poisson_users()
    protocol = protocol_for(users, SETTINGS, clip=2)
    pair = compare(protocol, users, runs=400, seed=0)
    total, told = float(protocol.truth(users)[0]), protocol.error(users)
    error = math.hypot(pair.runs[1].std(ddof=1) / 20, told.stderr / total)
    assert abs(pair.debiasing - told.expected / total) <= 5 * error
    assert pair.ratio < 0.1
    assert (pair.clips == 2).all()


def test_table2_on_tweets_compares_with_the_papers_numbers(tmp_path):
    rng = np.random.default_rng(0)
    words = np.array(["the", "today", "you", "cat"])
    rows = [(f"u{k % 60}", " ".join(rng.choice(words, 4))) for k in range(200)]
    what = experiment("table2")
    data = tweets(tmp_path / "tweets.csv", rows)
    few = {"population": "sentiment140", "data": data, "quick": True}
    result = what.run(what.request(**few, overrides=["clips=[60, 60, 60]"]))
    paper = {(c.setting, c.quantity): c.paper for c in result.checks if c.paper is not None}
    assert not any(c.judged for c in result.checks if c.paper is not None)
    assert any("60 users" in n for n in result.not_judged)
    ratios = [c.ours for c in result.checks if c.quantity == "debiasing / clipping"]
    assert ratios == pytest.approx([1, 1, 1], abs=1e-3)  # nobody has a word 60 times
    assert sum("cannot differ" in n for n in result.notes) == 3
    claims = [c for c in result.checks if "performs better" in c.claim]
    assert [c.high for c in claims] == [0.99] * 3
    assert paper == {
        ("the", "clipping"): 0.0289, ("the", "debiasing"): 0.0257,
        ("today", "clipping"): 0.0381, ("today", "debiasing"): 0.0155,
        ("you", "clipping"): 0.0745, ("you", "debiasing"): 0.0671,
    }  # fmt: skip
    for wrong, named in (('words=["the", "dog"]', "'dog'"), ("clips=[1]", "one C per word")):
        with pytest.raises(ValueError, match=named):
            what.run(what.request(**few, overrides=[wrong]))
