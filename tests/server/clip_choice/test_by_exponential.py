"""Thresholds by the exponential mechanism: exact law, exact privacy on tiny cases, edges."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

import fedhist as fh
from server.clip_choice.rule import (
    LIGHT_DECAY,
    TWO_SIDED_DECAY,
    ThresholdTask,
    em_slope,
    safe_rank,
    slope_aim,
    tail_scores,
)
from server.targets.domains import user_norms
from tests.running import Recorder, curator, drive, table_users


def users_of(records, d=2):
    return table_users(np.array(records, dtype=np.int64).reshape(-1, d))


def task(d=2, norm=2, mass=40.0, radius=1.0, ends=(1.0, 64.0), epsilon=1.0, per_octave=2):
    given = {"mass": mass, "radius": radius, "c_min": ends[0], "c_max": ends[1]}
    given |= {"epsilon": epsilon, "delta": 0.0, "adjacency": fh.Adjacency.ZERO_OUT_USER}
    return ThresholdTask(fh.Keys.range(d), norm, **given, per_octave=per_octave)


def choose(public, users):
    return drive(em_slope(public, curator()), users)[0]


def law(public, users):
    recorder = Recorder()
    drive(em_slope(public, recorder), users)
    return recorder.law()


def tails_of(users, public, radius):
    """S(C) by its definition, slopes rounded down to 2^-20 of the radius."""
    tails = np.zeros(len(public.grid))
    for l1, l2 in zip(*user_norms(users, public.domain), strict=True):
        size = l1 if public.norm == 1 else l2
        slope = min(l1 / size, radius) if size and radius else 1.0
        if radius:
            slope = math.floor(slope / radius * 2**20) * radius / 2**20
        tails += slope * (size > public.grid)
    return np.append(tails[:-1], 0.0)  # norms count as the last threshold at most


def gaps_of(tails, level):
    """Distance of a level from the interval of tails that each threshold closes."""
    before = np.append(math.inf, tails[:-1])
    return np.where(tails > level, tails - level, np.maximum(level - before, 0.0))


def predicted(public, users):
    aim, radius = slope_aim(public), public.slope_radius
    tails, most = tails_of(users, public, radius), radius or 1.0
    if aim.excess:
        logits = -public.epsilon * np.maximum(tails - aim.level, 0.0) / most
        return softmax(logits - LIGHT_DECAY * np.log(public.grid))
    logits = -public.epsilon * gaps_of(tails, aim.level) / (2 * most)
    return softmax(logits - TWO_SIDED_DECAY * np.log(public.grid))


def random_users(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return users_of(rng.poisson(rng.gamma(0.5, 10.0, (n, 1)), (n, d)), d)


@pytest.mark.parametrize(
    ("norm", "radius", "epsilon"), [(1, 1.0, 1.0), (2, 1.5, 0.05), (2, 1.5, 7.0)]
)
def test_law_is_the_stated_one(norm, radius, epsilon):
    """The logits that the mechanism draws from, against a path that shares no code with it."""
    users = random_users(300, 3)
    public = task(3, norm, 70.0, radius, epsilon=epsilon)
    assert law(public, users) == pytest.approx(predicted(public, users), rel=1e-6)


def worst_ratio(public, base, records):
    """Largest |log P / P'| over all pairs of records of one user beside the base."""
    laws = np.log([law(public, users_of([*base, r])) for r in records])
    zero = records.index((0, 0))
    differences = np.abs(laws[:, None] - laws[None, :]).max(axis=2)
    return differences[zero].max(), differences.max()


@pytest.mark.parametrize("radius", [1.0, math.sqrt(2.0)])
def test_no_smaller_epsilon_would_do(radius):
    """The user raises the score of some thresholds by R and lowers that of the first by R."""
    epsilon = 2.0
    ends = (1000.0, 2000.0)  # of nearly equal weights
    public = task(mass=0.0, radius=radius, ends=ends, epsilon=epsilon, per_octave=160)
    above = math.ceil(safe_rank(0.0, len(public.grid), epsilon))  # where weights begin equal
    public = replace(public, mass=above * radius)
    large = (2**21, 2**21)
    base = [large] * (above - 1) + [(710, 710)] * 20  # beyond the first threshold alone
    zeroed, replaced = worst_ratio(public, base, [(0, 0), large])
    assert zeroed == replaced
    assert zeroed <= epsilon * (1 + 1e-9)
    assert zeroed > 0.99 * epsilon


def test_level_is_the_mass_where_the_mechanism_can_find_it():
    public = task(mass=100.0, radius=2.0, epsilon=1.0)
    error = 2.0 * safe_rank(0.0, len(public.grid), 1.0)
    assert error < 100
    assert slope_aim(public).level == 100.0
    assert slope_aim(public).warnings == ()
    for mass in (0.0, 0.9 * error):
        aim = slope_aim(replace(public, mass=mass))
        assert aim.excess == (mass == 0)
        assert aim.level == (mass if aim.excess else error)
        assert "epsilon_choice" in aim.warnings[0]
    assert slope_aim(replace(public, mass=error)).level == error
    below = [slope_aim(replace(public, mass=x * error)).excess for x in (0.45, 0.55)]
    assert below == [True, False]
    near = slope_aim(replace(public, mass=0.95 * error))
    assert (near.level, near.warnings) == (error, ())


def test_level_keeps_out_of_the_empty_tail():
    """However small M is: two thirds of the probability are above every norm at most, and near."""
    users = users_of([[1 + k // 20, 0] for k in range(2000)])
    for epsilon in (0.05, 0.2, 1.0):
        public = task(mass=0.5, ends=(1.0, 1000.0), epsilon=epsilon, per_octave=4)
        aim = slope_aim(public)
        empty = law(public, users)[public.grid >= 100][1:]
        assert len(empty) > 10
        assert aim.excess
        assert 0 < empty.sum() <= 0.65
        assert law(public, users) @ public.grid < 1.6 * 100


def test_ends_of_the_grid_are_reported():
    nobody = choose(replace(task(), epsilon=math.inf, mass=0.0), users_of([[0, 0]]))
    assert nobody.clip == 1.0
    assert "clip_min" in nobody.warnings[-1]
    public = task(ends=(1.0, 8.0), epsilon=math.inf, mass=0.0)
    spread = [[2, 0], [4, 0], [8, 0], [1000, 0]]
    choice = choose(public, users_of(spread))
    assert choice.clip == 8.0
    assert "clip_max" in choice.warnings[-1]


@pytest.mark.parametrize("level", [0.0, 2.5])
def test_tail_scores(level):
    """One score is 0 for every population, and a user moves no score by more than 1."""
    edges = np.array([1, 2, 4])
    scores = {}
    for counts in itertools.product(range(6), repeat=4):
        above = (np.array(counts)[:, None] > edges).sum(axis=0)
        scores[counts] = tail_scores(above, level)
        assert scores[counts].max() == 0
    worst = max(
        np.abs(scores[counts] - scores[(*counts[:3], other)]).max()
        for counts in scores
        for other in range(6)
    )
    assert worst <= 1
    assert tail_scores(np.array([7]), level).tolist() == [0.0]


def test_safe_rank():
    assert safe_rank(5.0, 41, math.inf) == 5.0
    assert safe_rank(0.0, 50, 2.0, beta=0.5) == pytest.approx(math.log(100))
    with pytest.raises(ValueError, match="epsilon"):
        safe_rank(1.0, 10, 0.0)
