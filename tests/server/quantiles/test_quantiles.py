"""Quantiles by the exponential mechanism: privacy by enumeration, exactness, and predicted errors.

Statistical tests have fixed seeds and say how often a correct program would fail under a fresh one.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.quantiles.queries import OF, PER_USER, BinShares
from fedhist.privacy.guarantee import USER_LEVEL, Adjacency
from fedhist.protocols import Quantiles
from server.quantiles.quantiles import (
    ExponentialLevels,
    NoisyCurve,
    fitted_bins,
    quantile_bins,
)
from tests.running import Recorder, one_each

ADJACENCIES = tuple(a.value for a in USER_LEVEL)
LEVELS = (0.02, 0.3, 0.5, 0.9)
REPLACE, ZERO_OUT, ADD_REMOVE = "replace-user", "zero-out-user", "add-remove-user"


class Watching:
    """A Curator that keeps what is asked of it, and the exact law of what it would draw."""

    law: fh.Array

    def exponential_rows(self, scores: fh.Array, **how: Any) -> fh.Array:
        self.asked = how
        weight = np.exp(scores * how["epsilon_each"] / (2 * how["sensitivity"]))
        self.law = weight / weight.sum(axis=1, keepdims=True)
        return np.zeros(len(scores), dtype=np.int64)


def law_of(protocol: Quantiles, shares: fh.Array, n_users: int = 9) -> fh.Array:
    """Exact probabilities of every bin for each level, by the script itself: (J, K)."""
    server: Any = Watching()
    script = protocol.rounds(server)
    next(script)
    with pytest.raises(StopIteration):
        script.send(fh.Summary(n_users, {"shares": np.asarray(shares, dtype=np.int64)}))
    assert server.asked["changed"] == len(protocol.levels)
    assert server.asked["epsilon_each"] == protocol.mechanism.epsilon_each
    return server.law


def protocol(adjacency: str = REPLACE, **more: Any) -> Quantiles:
    given = {
        "epsilon": 4.0,
        "levels": LEVELS,
        "low": 0.0,
        "high": 1.0,
        "n_users": 10**6,
        "kind": "em",
    }
    return Quantiles(**(given | {"n_bins": 3, "adjacency": adjacency} | more))


def rows(query: BinShares, *records: list[float]) -> fh.Array:
    """What users send who hold these records."""
    nothing: Any = None
    return query.answer(one_each(*records), nothing).arrays["shares"].astype(np.int64)


MIDDLES = (1 / 6, 3 / 6, 5 / 6)
RECORDS = [[], [math.nan], *([x] for x in MIDDLES)]
RECORDS += [list(pair) for pair in combinations_with_replacement(MIDDLES, 2)]


def neighbours(of: str, adjacency: str) -> Iterator[tuple[fh.Array, fh.Array]]:
    """All pairs of neighbouring sums of up to four users, on three bins."""
    known = np.unique(rows(protocol(of=of).grid, *RECORDS), axis=0)
    for others in range(4):
        for held in combinations_with_replacement(known, others):
            rest = np.sum(held, axis=0, dtype=np.int64) if held else np.zeros(3, dtype=np.int64)
            for a, b in product(known, known):
                if adjacency == REPLACE or not b.any():  # removed, or emptied: a null record's row
                    yield rest + a, rest + b


@pytest.mark.parametrize("of", ["samples", "user-means"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_neighbours_of_tiny_populations_are_told_apart(of: str, adjacency: str) -> None:
    """Every event of every level, by exact enumeration; the levels are drawn independently."""
    ours = protocol(adjacency, of=of)
    laws: dict[bytes, fh.Array] = {}
    most = np.zeros(len(LEVELS))
    for a, b in neighbours(of, adjacency):
        for shares in (a, b):
            if shares.tobytes() not in laws:
                laws[shares.tobytes()] = law_of(ours, shares)
        ratios = np.abs(np.log(laws[a.tobytes()] / laws[b.tobytes()]))
        most = np.maximum(most, ratios.max(axis=1))
    assert len(laws) > 30
    assert (most <= ours.mechanism.epsilon_each * (1 + 1e-12)).all()
    assert (most > 0.3 * ours.mechanism.epsilon_each).all()


def test_n_itself_is_private_and_its_rank_moves() -> None:
    """Without the highest record q n falls by q: the scores of all lower bins move by q."""
    ours = protocol(ADD_REMOVE, levels=(0.9,))
    more, fewer = np.array([9, 0, 2]) * PER_USER, np.array([9, 0, 1]) * PER_USER
    moved = ours.mechanism.scores(more) - ours.mechanism.scores(fewer)
    assert np.abs(moved).max() == pytest.approx(0.9)
    assert ours.mechanism.sensitivities.tolist() == [0.9]
    assert replace(ours, adjacency=REPLACE).mechanism.sensitivities.tolist() == [1.0]


def test_what_the_levels_cost() -> None:
    """At (1, 1e-6) zCDP is better for 9 levels and more; the ledger says the same."""
    for J in (1, 3, 9, 31):
        many = tuple(np.arange(1, J + 1) / (J + 1))
        ours = protocol(levels=many, epsilon=1.0, delta=1e-6, n_bins=16)
        rho = fh.zcdp_rho(1.0, 1e-6)
        assert ours.mechanism.epsilon_each == pytest.approx(max(1 / J, math.sqrt(8 * rho / J)))
        ledger = fh.run(ours, one_each(*[[0.5]] * 30), seed=1).ledger
        assert ledger is not None
        assert ledger.spent(1e-6).epsilon == pytest.approx(1.0)


def test_samples_users_and_means_have_other_medians() -> None:
    """Five users with [0.1, 0.1, 0.9], one with a hundred times 0.9: pooled, the median is 0.9."""
    users = one_each(*[[0.1, 0.1, 0.9]] * 5, [0.9] * 100)
    assert np.median(users.reals.values) == 0.9
    for of, median in (("samples", 0.1), ("user-means", 1.1 / 3)):
        ours = protocol(of=of, levels=(0.5,), epsilon=math.inf, n_bins=1000)
        assert ours.truth(users) == pytest.approx([median])
        assert fh.run(ours, users, seed=1).value == pytest.approx([median], abs=1e-3)


def test_invalid_records_are_null_and_others_keep_their_weight() -> None:
    query = protocol().grid
    sent = rows(query, [], [0.1, math.nan], [0.1, 0.5, 0.5], [math.inf, -math.inf], [7.0])
    assert sent.sum(axis=1).tolist() == [0, 0, PER_USER, PER_USER, PER_USER]
    law = np.array([[1 / 3, 2 / 3, 0], [0.5, 0, 0.5], [0, 0, 1]])
    assert sent[2:] / PER_USER == pytest.approx(law, abs=1 / PER_USER)
    nobody = one_each([], [math.nan])
    assert fh.run(protocol(), nobody, seed=1).status == "ok"  # whether anybody counts is private
    assert protocol().diagnostics(nobody) == {"unusable records": 2.0}
    with pytest.raises(fh.PopulationError, match="no user has usable samples"):
        protocol().truth(nobody)


@pytest.mark.parametrize("of", ["samples", "user-means"])
def test_messages_are_checked(of: str) -> None:
    query, ids = protocol(of=of).grid, np.arange(1, dtype=np.uint64)
    for row in (
        [PER_USER, 1, 0],
        [1, 0, 0],
        [-1, 1, PER_USER],
        [PER_USER] * 2,
        [PER_USER, PER_USER, 0],
    ):
        with pytest.raises(fh.WireError):
            query.check(fh.Report(ids, {"shares": np.array([row], dtype=np.int32)}))
    split = fh.Report(ids, {"shares": np.array([[PER_USER - 1, 1, 0]], dtype=np.int32)})
    if of == "samples":
        query.check(split)
    else:
        with pytest.raises(fh.WireError, match="one bin"):
            query.check(split)
    for total in ([PER_USER, PER_USER, 0], [5, 0, 0]):
        with pytest.raises(fh.WireError):
            query.check_summary(fh.Summary(1, {"shares": np.array(total)}))


def test_too_few_users_are_not_asked() -> None:
    ours = protocol(epsilon=1.0, levels=(0.5,), n_bins=256)
    assert ours.mechanism.least_users == math.ceil(8 * math.log(25600)) == 82
    few, enough = replace(ours, n_users=81), replace(ours, n_users=82)
    for adjacency in ADJACENCIES:  # whether anybody is asked says n: null-safe only if n is hidden
        hides = [replace(p, adjacency=adjacency).null_safe for p in (few, enough)]
        assert hides == [adjacency == ADD_REMOVE] * 2
    tiny = replace(ours, epsilon=5e-324)
    ends = [fh.run(p, one_each([0.5]), seed=1).status for p in (few, tiny, enough)]
    assert ends == ["refused", "refused", "ok"]


def test_the_number_of_users_is_noted_where_it_is_private() -> None:
    users = one_each([0.1], [0.2])
    for adjacency, notes in ((ADD_REMOVE, 1), (ZERO_OUT, 0)):
        result, recorded = Quantiles.resolve({"adjacency": adjacency}, users, None)
        assert (result["n_users"], len(recorded)) == (2, notes)
    assert Quantiles.resolve({"n_users": 7, "adjacency": ADD_REMOVE}, users, None)[1] == []


def test_the_rounding_of_a_rank_score_is_far_below_its_sensitivity() -> None:
    """Against fractions, for 2^28 users: less than n 2^-50, and that is at most 2^-22."""
    n, rng = 1 << 28, np.random.default_rng(4)
    made = protocol(ADD_REMOVE, levels=(0.1, 0.3, 0.7))
    levels: Any = made.mechanism
    shares = np.diff(np.sort(rng.integers(0, n * PER_USER, 40)), prepend=0, append=n * PER_USER)
    result = levels.scores(shares) / levels.sensitivities[:, None]
    upto = [Fraction(int(x), PER_USER) for x in np.cumsum(shares)]
    for q, row in zip(made.levels, result.tolist(), strict=True):
        rank, unit = Fraction(q) * n, max(Fraction(q), 1 - Fraction(q))
        for below, above, score in zip([Fraction(0), *upto], upto, row, strict=False):
            exact = -max(below - rank, rank - above) / unit
            assert abs(Fraction(score) - exact) <= n * Fraction(1, 2**50) <= Fraction(1, 2**22)


def test_rows_are_slow_counts_of_steps() -> None:
    """Of users who hold none to many numbers."""
    rng = np.random.default_rng(5)
    records = [list(rng.choice([0.1, 0.5, 0.9, math.nan], m, p=[0.4, 0.3, 0.29, 0.01]))
               for m in rng.integers(0, 40, 300)]  # fmt: skip
    sent = rows(protocol().grid, *records)
    for record, row in zip(records, sent.tolist(), strict=True):
        if not record or np.isnan(record).any():
            assert row == [0, 0, 0]
            continue
        ends = [0, *(sum(x <= end for x in record) for end in (0.1, 0.5, 0.9))]
        slow = [b * PER_USER // len(record) - a * PER_USER // len(record)
                for a, b in pairwise(ends)]  # fmt: skip
        assert row == slow


NINE = tuple((np.arange(9) + 1) / 10)


def tree(**more: Any) -> Quantiles:
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "levels": NINE, "kind": "tree"}
    return Quantiles(**(given | {"low": 0.0, "high": 1.0, "n_users": 10**6} | more))


@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_no_neighbours_of_tiny_populations_differ_by_more(of: str, adjacency: str) -> None:
    """All pairs of neighbouring sums of up to four users on three bins; the bound is attained."""
    curve = NoisyCurve(1.0, np.array(NINE), 3, fh.Adjacency(adjacency))
    most, known = 0.0, dict[bytes, fh.Array]()
    for a, b in neighbours(of, adjacency):
        for shares in (a, b):
            if shares.tobytes() not in known:
                recorder: Any = Recorder()
                curve.draw(shares, recorder)
                ((_, known[shares.tobytes()], way),) = recorder.calls
                assert known[shares.tobytes()].dtype == np.int64
        step = (known[a.tobytes()] - known[b.tobytes()]).astype(float)
        most = max(most, float(np.linalg.norm(step, ord=1)))
    assert most <= way["l1_sensitivity"] * (1 + 1e-12)
    assert most == pytest.approx(way["l1_sensitivity"])


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_noise_on_the_curve_is_as_planned(adjacency: str) -> None:
    """Standard deviation of the last running sum over 4,000 draws; false alarm below 1e-6."""
    curve = NoisyCurve(0.7, np.array(NINE), 64, fh.Adjacency(adjacency))
    rng = np.random.default_rng(1)

    def noisy(value: fh.Array, **how: Any) -> fh.Array:
        return np.asarray(value + rng.laplace(0, how["l1_sensitivity"] / 0.7, len(value)))

    server: Any = SimpleNamespace(grade="simulated", discrete_laplace=noisy)
    none = np.zeros(64, dtype=np.int64)
    ends = [curve.released(none, server)[-1] / PER_USER for _ in range(4000)]
    assert float(np.std(ends)) == pytest.approx(curve.end_std, rel=0.07)


def test_too_few_users_and_tiny_budgets_are_refused() -> None:
    ours = tree(n_users=40)
    assert fh.run(ours, one_each([0.5]), seed=1).status == "refused"
    for delta in (0.0, 1e-6):
        tiny = replace(ours, epsilon=1e-9, delta=delta)
        assert fh.run(tiny, one_each([0.5]), seed=1).status == "refused"


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_few_levels_are_drawn_and_many_read_off_a_curve(delta: float) -> None:
    for J, made in ((4, ExponentialLevels), (5, NoisyCurve)):
        levels = tuple(np.arange(1, J + 1) / (J + 1))
        ours = tree(kind="auto", n_users=2000, levels=levels, delta=delta)
        assert isinstance(ours.mechanism, made)


@pytest.mark.parametrize("widths", [(1,), (4, 1), (8, 4, 1), (16, 2, 1)])
@pytest.mark.parametrize("n_bins", [5, 16, 31])
def test_a_tree_is_fitted_by_least_squares(widths: tuple[int, ...], n_bins: int) -> None:
    rng = np.random.default_rng(n_bins)
    nodes = [rng.normal(size=-(-n_bins // w)) for w in widths]
    design = np.vstack([
        np.equal.outer(np.arange(len(y)), np.arange(n_bins) // w)
        for y, w in zip(nodes, widths, strict=True)
    ])  # fmt: skip
    slow = np.linalg.lstsq(design, np.concatenate(nodes), rcond=None)[0]
    assert fitted_bins(nodes, widths) == pytest.approx(slow)


def test_inversion_is_that_of_a_slow_search() -> None:
    rng = np.random.default_rng(4)
    levels = np.array([0.1, 0.5, 0.8])
    for _ in range(50):
        curve = np.cumsum(rng.random(12)) + rng.normal(0, 0.5, 12)
        fit = [  # the min-max formula of isotonic regression
            max(min(float(np.mean(curve[i : j + 1])) for j in range(k, 12)) for i in range(k + 1))
            for k in range(12)
        ]
        slow = [next(j for j in range(12) if fit[j] >= q * fit[-1] - 1e-9) for q in levels]
        assert quantile_bins(curve, levels).tolist() == slow


def test_a_curve_that_says_nothing_has_quantiles() -> None:
    assert quantile_bins(np.array([-3.0, -2.0, -1.0]), np.array([0.5])).tolist() == [2]
    assert quantile_bins(np.zeros(3), np.array([0.5, 0.9])).tolist() == [0, 0]


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER])
def test_a_curve_moves_under_each_adjacency_as_its_noise_is_sized(adjacency: Adjacency) -> None:
    """The ledger converts by ratios of moves; they are those of the sensitivities."""
    server: Any = Recorder()
    NoisyCurve(1.0, np.array([0.5]), 16, adjacency).released(np.full(16, PER_USER), server)
    ((_, _, way),) = server.calls
    moves = way["moves"]
    assert moves.under(Adjacency.ADD_REMOVE_USER) == pytest.approx(1.0)
    assert moves.under(Adjacency.ZERO_OUT_USER) == pytest.approx(1.0)
    assert moves.under(Adjacency.REPLACE_USER) == pytest.approx(2.0)
