"""One randomised bit: its law, its null record, the dither, and what the server reads."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from clients.records.functionals import Coordinates
from fedhist.base.errors import WireError
from fedhist.model.query import Report
from fedhist.protocols.means.interval_bits import IntervalBits
from fedhist.users.batch import Users
from fedhist.users.folds import fold_of
from fedhist.users.streams import SeededStreams, SystemStreams

ONE = Coordinates(1, -1.0, 1.0)
CHECK = IntervalBits(ONE, np.array([-0.1]), np.array([0.3]), 0.1, 0.0, 1.0)
SIGNS = IntervalBits(ONE, np.array([-0.2, 0.2]), np.full(2, np.inf), 0.0, 0.25, 1.0, fold_salt=5)


def crowd(x: object) -> Users:
    values = np.asarray(x, dtype=np.float64)
    n = len(values)
    return Users.from_samples(np.arange(1, n + 1), np.arange(n + 1), values)


def answers(query: IntervalBits, users: Users, seed: int = 1) -> np.ndarray:
    return query.answer(users, SeededStreams(users.ids, seed, "test")).arrays["reports"]


def test_the_declared_epsilon_suffices_and_a_smaller_one_does_not() -> None:
    for epsilon in (0.1, 1.0, 8.0):
        query = replace(CHECK, epsilon=epsilon)
        worst = query.finite_channel().worst()
        assert query.exact
        assert 0.999 * epsilon < worst.log_ratio <= epsilon


def test_bits_without_noise_are_the_definition() -> None:
    x = np.array([-1.0, -0.1, 0.1, 0.3, 0.31, np.nan, np.inf, -np.inf, 1e308])
    bits = answers(replace(CHECK, epsilon=math.inf), crowd(x))
    # NaN stands for the centre, an infinity for the end of the range
    assert bits.tolist() == [-1, 1, 1, 1, -1, 1, -1, -1, -1]


def test_every_group_has_its_own_interval_and_the_dither_is_uniform() -> None:
    n = 40_000
    users = crowd(np.full(n, 0.1))
    query = replace(SIGNS, epsilon=math.inf)
    bits, group = answers(query, users), fold_of(users.ids, 5, 2)
    assert (bits[group == 0] == 1).all()  # 0.1 - 0.25 > -0.2
    # 0.1 + U(-.25, .25) >= 0.2 with probability 0.3; five standard errors: 6e-7
    above = (bits[group == 1] == 1).mean()
    assert abs(above - 0.3) < 5 * math.sqrt(0.21 / (n / 2))
    shares = query.shares(query.fold(Report(users.ids, {"reports": bits})))
    assert shares == pytest.approx([1.0, above])


def test_the_drawn_summary_has_the_law_of_the_reports() -> None:
    rng = np.random.default_rng(3)
    users = crowd(rng.uniform(-1, 1, 4000))
    told = [SIGNS.shares(SIGNS.fold(Report(users.ids, {"reports": answers(SIGNS, users, s)})))
            for s in range(150)]  # fmt: skip
    drawn = [SIGNS.shares(SIGNS.draw_summary(users, rng)) for _ in range(150)]
    sizes = np.bincount(fold_of(users.ids, 5, 2))
    spread = 1 / (2 * math.tanh(0.5) * np.sqrt(sizes))
    # five standard errors of a difference of averages: 6e-7 for each of the two
    assert (np.abs(np.mean(told, 0) - np.mean(drawn, 0)) < 5 * spread * math.sqrt(2 / 150)).all()
    # the variances: chi-squared of 149 degrees leaves +-50 % with probability below 1e-4
    for found in (told, drawn):
        assert (np.abs(np.var(found, 0) / spread**2 - 0.97) < 0.5).all()
    exact = [1 - ((-0.2 + 1) / 2), 1 - ((0.2 + 1) / 2)]
    assert np.abs(np.mean(drawn, 0) - exact).max() < 0.05


def test_a_null_record_draws_as_much_as_any_other() -> None:
    x = np.linspace(-1, 1, 50)
    some = x.copy()
    some[7] = np.nan
    for query in (CHECK, SIGNS):
        a, b = answers(query, crowd(x)), answers(query, crowd(some))
        assert (np.delete(a, 7) == np.delete(b, 7)).all()
        report = query.answer(crowd(some), SystemStreams(50))
        query.check(report)
        assert report.arrays["reports"].dtype == np.int8


def test_nobody_says_one_half() -> None:
    nobody = crowd([])
    summary = SIGNS.draw_summary(nobody, np.random.default_rng(0))
    assert SIGNS.shares(summary).tolist() == [0.5, 0.5]
    SIGNS.check_summary(summary)


def test_hostile_reports_and_queries() -> None:
    users = crowd([0.0, 0.1])
    for wrong in (np.zeros(2, np.int8), np.full(2, 3, np.int8), np.ones(2, np.int64)):
        with pytest.raises(WireError):
            CHECK.check(Report(users.ids, {"reports": wrong}))
    for changes, said in (
        ({"lows": np.array([np.nan])}, "lows must be numbers"),
        ({"highs": np.zeros(2)}, r"highs must be \(1,\) float64"),
        ({"lows": np.zeros(0)}, "1 to 16777216 intervals"),
        ({"centre": math.inf}, "centre must be finite, got inf"),
        ({"dither": -1.0}, r"dither must be finite and not negative, got -1\.0"),
        ({"functional": Coordinates(2)}, "one fold, got 2"),
        ({"fold_salt": -1}, "fold_salt"),
        ({"epsilon": 0.0}, "epsilon"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(CHECK, **changes)


def test_nobody_sees_from_warnings_which_records_are_null() -> None:
    most = float(np.finfo(np.float64).max)
    strange = replace(SIGNS, centre=most, dither=most)
    with np.errstate(over="raise"):
        answers(strange, crowd([0.1, np.nan] * 20))
