"""The rules by descent and output perturbation: privacy, fixed points, quality, edges."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, gaussian_multiplier
from fedhist.privacy.ledger import Ledger
from server.clip_choice.by_paper import log_step, regularized_minimum
from server.clip_choice.rule import ThresholdTask
from server.histograms.adaptive_histogram import threshold_rule
from server.histograms.reference_clips import c_star_gaussian, c_star_laplace
from server.noise import SimulatedNoise
from server.printed.histograms import proof_step
from server.session.curator import Curator
from server.session.journal import Journal
from server.targets.domains import user_norms
from tests.running import drive, secure, table_users

ZERO, REPLACE = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER
DESCENTS = ["dp-sgd", "dp-sgd-paper", "adaptive-quantile"]
PRINTED = ["dp-sgd-paper", "output-perturbation-paper"]
RULES = {n: threshold_rule(n) for n in (*DESCENTS, "output-perturbation", PRINTED[1])}
INF = math.inf

rules = pytest.mark.parametrize("name", sorted(RULES))


def search(name, task, users, noise=lambda i: SimulatedNoise(0, i)):
    """Run one search; returns the choice, the ledger, the number of rounds and the journal."""
    ledger = Ledger(Guarantee(task.epsilon, task.delta, Trust.CENTRAL, task.adjacency))
    journal = Journal()
    script = RULES[name].search(task, Curator(ledger, noise, journal))
    choice, asked = drive(script, users)
    return choice, ledger, len(asked), journal


class Silent(SimulatedNoise):
    """Adds nothing, so that exact values can be read; notes the size of the noise."""

    def __init__(self):
        self.sizes = []

    def __call__(self, index):
        return self

    def _zeros(self, shape, size):
        self.sizes.append(size)
        return np.zeros(shape, dtype=np.int64)

    laplace = gaussian = discrete_laplace = discrete_gaussian = _zeros


def exact_values(name, task, users):
    """What the rule would release without noise, and the size of the noise of each value."""
    silent = Silent()
    _, _, _, journal = search(name, task, users, silent)
    index = [line["index"] for line in journal._lines if line["kind"] == "release"]
    label = [line["label"] for line in journal._lines if line["kind"] == "release"]
    values = [journal.released(i, lab) for i, lab in zip(index, label, strict=True)]
    return values, silent.sizes


def make_task(users, **changes):
    d = len(users.vocabulary)
    given = {"norm": 2, "mass": 1.0, "radius": math.sqrt(d), "c_min": 1.0, "c_max": 1000.0}
    given |= {"epsilon": 0.1, "delta": 1e-6, "adjacency": ZERO, "n_users": len(users)}
    return ThresholdTask(users.vocabulary, **given | changes)


def for_rule(name, task):
    return task if RULES[name].needs_delta else replace(task, delta=0.0)


def from_rows(rows, d):
    return table_users(np.array(rows, dtype=np.int64).reshape(-1, d))


@pytest.fixture(scope="module")
def crowd():
    """Zipf items; user sizes from a Pareto law with infinite variance."""
    rng, p = np.random.default_rng(0), 1 / np.arange(1, 301)
    size = rng.poisson(30 * 0.7 / 1.7 * (1 + rng.pareto(1.7, 20_000)))
    return table_users(rng.multinomial(np.minimum(size, 100_000), p / p.sum()))


def setting(users, epsilon=1.0, **changes):
    """The paper's: release (1, 1 / 2n), choice (0.1, 1 / 2n), s = 0.1 d."""
    n, d = len(users), len(users.vocabulary)
    sigma = gaussian_multiplier(epsilon, 1 / (2 * n))
    numbers = {
        "mass": d * sigma * math.sqrt(2 / math.pi),
        "radius": math.sqrt(0.1 * d),
        "delta": 1 / (2 * n),
    }
    return make_task(users, **(numbers | changes))


D = 2
EVERY_USER = [c for c in itertools.product(range(5), repeat=D)]
OTHERS = [(3, 3)] * 5 + [(0, 3), (1, 0)]
"""Beside the user that changes: norms above, inside and below the range, and slopes."""


def tiny_task(name, users, adjacency, secure):
    """Radius 1.2, cut by users of two items; c_max 4; one step, at which the choice stays put."""
    numbers = {"radius": 1.2, "c_max": 4.0, "steps": 1, "mass": 1.0, "epsilon": 0.7}
    if name == "output-perturbation":
        numbers["mass"] = 5.0  # so that the minimiser stays inside the range
    return for_rule(
        name, make_task(users, adjacency=adjacency, secure=secure, n_users=8, **numbers)
    )


def calibration(name, task):
    """The size of the noise that a sensitivity of 1, in steps of the last release, asks for."""
    if name.startswith("output-perturbation"):
        return 1 / task.epsilon if name == "output-perturbation" else 2 / task.epsilon
    return gaussian_multiplier(task.epsilon, task.delta)


@pytest.mark.parametrize("adjacency", [ZERO, REPLACE])
@pytest.mark.parametrize("secure", [False, True])
@rules
def test_the_noise_fits_the_largest_change(name, adjacency, secure):
    """Every histogram of one user over two items, against the null record or any other."""
    sums, noise = [], set()
    for row in EVERY_USER:
        users = from_rows([*OTHERS, row], D)
        values, sizes = exact_values(name, tiny_task(name, users, adjacency, secure), users)
        sums.append(np.atleast_1d(values[-1]).astype(np.float64))
        noise.add(sizes[-1])
    assert len(noise) == 1
    pairs = (
        itertools.combinations(sums, 2) if adjacency is REPLACE else ((sums[0], f) for f in sums)
    )
    change = max(float(np.linalg.norm(a - b)) for a, b in pairs)
    assert change > 0
    loose = 4 if name == "output-perturbation-paper" else 1
    task = tiny_task(name, users, adjacency, secure)
    size = loose * change * calibration(name, task)
    counts = secure and name == "adaptive-quantile"  # what a step costs
    assert noise.pop() == pytest.approx(math.hypot(size, 2.0 if counts else 0.0), rel=1e-6)


@rules
def test_exact_samplers_can_draw_the_noise(name):
    """Integers only: SecureNoise refuses to draw anything else."""
    users = from_rows(OTHERS, D)
    task = for_rule(name, make_task(users, secure=True, steps=3))
    choice, *_ = search(name, task, users, secure)
    assert task.c_min <= choice.clip <= task.c_max


def noiseless(name, task, users):
    return search(name, replace(task, epsilon=INF, delta=1e-6), users)[0].clip


@pytest.fixture(scope="module")
def norms(crowd):
    return user_norms(crowd, crowd.vocabulary)


def test_dp_sgd_finds_c_star(crowd, norms):
    task = setting(crowd, radius=math.sqrt(300))
    best = c_star_gaussian(*norms, task.mass)
    assert noiseless("dp-sgd", task, crowd) == pytest.approx(best, rel=0.02)


def test_the_quantiles_find_their_ranks(crowd, norms):
    task = setting(crowd)
    sizes = np.sort(norms[1])[::-1]
    expected = sizes[math.ceil(task.mass) - 1]
    assert noiseless("adaptive-quantile", task, crowd) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("name", ["dp-sgd", "adaptive-quantile"])
def test_l1_norms_lead_to_the_laplace_threshold(crowd, norms, name):
    task = setting(crowd, norm=1, radius=1.0, mass=600.0)
    best = c_star_laplace(norms[0], 300, 0.5)
    assert noiseless(name, task, crowd) == pytest.approx(best, rel=0.02)


def regularized(norms, mass, strength, radius):
    """Minimise G_R(C) + strength C^2 / 2 as it is written."""
    l1, l2 = norms[0][norms[1] > 0], norms[1][norms[1] > 0]
    slope = np.minimum(l1 / l2, radius)

    def objective(c):
        return float((slope * np.maximum(l2 - c, 0)).sum() + c * mass + strength * c * c / 2)

    return minimize_scalar(objective, bounds=(0, 1000), method="bounded", options={"xatol": 1e-6}).x


def test_output_perturbation_minimises_the_regularized_bound(crowd, norms):
    for epsilon, c_max in ((0.3, 1000.0), (1.0, 60.0)):
        task = setting(crowd, epsilon, c_max=c_max)
        expected = regularized(norms, task.mass, task.mass / c_max, task.radius)
        assert noiseless("output-perturbation", task, crowd) == pytest.approx(expected, rel=3e-3)


def test_the_printed_output_perturbation_minimises_its_objective(crowd, norms):
    """With almost no noise Lambda is that of the formula, at the C_m that came out."""
    task = setting(crowd, epsilon=1.0, radius=math.sqrt(300))
    task = replace(task, epsilon=2e6)
    choice = search("output-perturbation-paper", task, crowd)[0]
    n, c_m = len(crowd), choice.public["c_m"]
    printed = 2 * math.sqrt(2 * 300) / (c_m * math.sqrt(n * 1e6))  # lambda
    expected = regularized(norms, task.mass, n * printed, task.radius)
    assert choice.clip == pytest.approx(expected, rel=3e-3)
    assert c_m == pytest.approx(np.sort(norms[1])[-math.ceil(task.mass)], rel=0.03)
    delta = 4 * math.sqrt(300) / (printed * n)  # Delta
    assert choice.public["clip_noise_std"] == pytest.approx(math.sqrt(2) * delta / 1e6)
    best = c_star_gaussian(*norms, task.mass)
    assert noiseless("output-perturbation-paper", task, crowd) == pytest.approx(best, rel=3e-3)


EDGES = {
    "nobody": [],
    "empty records": [(0, 0, 0)] * 50,
    "one user": [(5, 0, 2)],
    "identical users": [(4, 4, 2)] * 400,
    "an outlier": [(1, 1, 0)] * 300 + [(2**31, 7, 0)],
}


@rules
def test_answers_at_the_edges(name):
    """Nobody needs a threshold: the least one. Everybody has one norm: about that one."""
    result = {}
    for kind, rows in EDGES.items():
        users = from_rows(rows, 3)
        for c_max in (1.0, 1000.0):
            task = make_task(users, c_min=min(c_max, 1.0), c_max=c_max)
            choice = search(name, for_rule(name, replace(task, n_users=400)), users)[0]
            assert task.c_min <= choice.clip <= task.c_max
            assert all(math.isfinite(x) for x in choice.public.values())
        choice = search(name, make_task(users, n_users=400, mass=20.0, epsilon=INF), users)[0]
        result[kind] = choice.clip
        assert choice.clip > 1 or any("clip_min" in w for w in choice.warnings)
    if name not in PRINTED:
        assert result["nobody"] == result["empty records"] == result["one user"] == 1.0
        assert 6 / 1.1 < result["identical users"] < 6 * 1.1
        assert result["an outlier"] < 1.5 * 1.1  # one user is not worth M


@rules
def test_without_noise_in_the_release_nobody_is_asked(name):
    """M = 0: a larger threshold is never worse, whatever the data."""
    users = from_rows(OTHERS, D)
    task = make_task(users, mass=0.0)
    choice, ledger, asked, _ = search(name, task, users)
    assert (choice.clip, ledger.entries, asked) == (task.c_max, (), 0)


def test_steps_go_against_the_slope_and_stay_in_the_range():
    ends = (0.0, 5.0)
    assert log_step(2.0, 1, 0.0, 3.0, ends) == 2.0
    assert log_step(2.0, 9, -1.5, 3.0, ends) == pytest.approx(2.0 + 0.5 / 3)
    assert log_step(2.0, 4, 1e300, 3.0, ends) == 1.5
    assert log_step(0.2, 1, 5.0, 3.0, ends) == 0.0
    assert log_step(4.9, 1, -5.0, 3.0, ends) == 5.0
    assert proof_step(2.0, 1, -1e9, 1.0, ends) == 5.0
    assert proof_step(2.0, 1, 1e9, 1.0, ends) == 0.0
    assert proof_step(2.0, 25, 3.0, 10.0, ends) == pytest.approx(2.0 - 0.3)


def test_first_steps_by_hand():
    """Nobody exceeds the middle, so that the slope is M; the noise is zero, its size is planned."""
    users = from_rows(OTHERS, D)
    task = make_task(users, steps=1, mass=2.0, n_users=50, c_max=100.0)
    std = math.sqrt(2) * gaussian_multiplier(0.1, 1e-6)
    assert search("dp-sgd", task, users, Silent())[0].clip == pytest.approx(10 * math.exp(-2 / std))
    printed = 50.5 - 100 * 2 / math.hypot(50 * math.sqrt(2) + 2, std)
    assert search("dp-sgd-paper", task, users, Silent())[0].clip == pytest.approx(printed)


steps = st.lists(st.integers(0, 40), min_size=1, max_size=5)


def pieces(weights, gaps):
    tails = np.cumsum(np.array(weights)[::-1])[::-1].astype(np.int64)
    lower = np.cumsum([0, *gaps[: len(weights) - 1]]).astype(np.int64)
    return tails, lower


@settings(max_examples=80, deadline=None)
@given(steps, st.lists(st.integers(1, 15), min_size=4, max_size=4), st.integers(0, 60))
def test_the_minimum_minimises(weights, gaps, level):
    """Nowhere on a grid of halves is level C + C^2 / 2 - integral of S smaller."""
    tails, lower = pieces(weights, gaps)

    def objective(c):
        width = np.clip(c - lower, 0, np.append(np.diff(lower), np.inf))
        return level * c + c * c / 2 - float((width * tails).sum())

    best = regularized_minimum(tails, lower, level)
    grid = np.arange(0, 2 * (int(tails[0]) + int(lower[-1]) + 2)) / 2
    assert objective(best) == pytest.approx(min(objective(c) for c in grid), abs=1e-9)
