"""The whole of Appendix E: budgets, exact privacy on tiny populations, errors, refusals."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from clients.distributions.queries import SHARE_STEPS, OwnShares
from fedhist.base.arrays import Integers
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.distributions.median_size import RaggedTask, release
from server.distributions.ragged_distribution import RaggedDistribution
from server.noise import SimulatedNoise
from server.printed.ragged_distribution import RaggedTaskAsPrinted, zero_indicators_touched
from server.session.session import Session
from simulations.runtimes.inline import InlinePopulation
from tests.running import Recorder, drive, secure, streams, table_users
from tests.running import result as run

PAPER: dict[str, Any] = {"mode": "paper"}


def population(n: int, d: int, mean: float, exponent: float = 0.0, seed: int = 5) -> Users:
    """Geometric numbers of samples, all from one distribution."""
    rng = np.random.default_rng(seed)
    p = np.arange(1, d + 1.0) ** -exponent
    return table_users(rng.multinomial(rng.geometric(1 / mean, n), p / p.sum()))


ALIKE = {"assume": "same-distribution"}


def protocol_for(users: Users, **fields: Any) -> RaggedDistribution:
    default = {"epsilon": 2.0, "delta": 1e-6, "m_max": 128, "n_users": len(users)}
    return RaggedDistribution(users.vocabulary, **{**default, **fields})


@cache
def recorded(task: RaggedTask, s_hat: int, records: tuple[tuple[int, ...], ...]) -> list[Any]:
    """What the second half would release of these users' counts, at a given s-hat."""
    rows = {f"u{i}": dict(zip(task.domain, r, strict=True)) for i, r in enumerate(records)}
    users, recorder = Users.from_records(rows), Recorder()
    value, _ = drive(release(task, float(s_hat), recorder), users, 1)
    assert not isinstance(value, str)
    return recorder.calls


def a_task(mechanism: str, k: int, size: int, kind: type[RaggedTask] = RaggedTask) -> RaggedTask:
    domain = Keys.of([f"s{j}" for j in range(k)])
    return kind(domain, size, 300.0, 1e-6, 200.0, mechanism)


def records_of(k: int, size: int) -> list[tuple[int, ...]]:
    """All records of exactly ``size`` samples (so that no coins are needed), one too short."""
    every = itertools.product(range(size + 1), repeat=k)
    return [*(r for r in every if sum(r) == size), (size - 1, *[0] * (k - 1))]


def pairs(k: int, size: int) -> Iterator[tuple[Any, Any]]:
    some = records_of(k, size)
    for rest in ((some[0], some[-2]), (some[0], some[0], some[-1], some[1])):
        yield from (((*rest, a), (*rest, b)) for a in some for b in some)


@pytest.mark.parametrize("mechanism", ["presence", "phs", "ks"])
def test_printed_sums_of_zeros_touch_more_than_the_paper_says(mechanism: str) -> None:
    k, size = 5, 2
    task = a_task(mechanism, k, size, RaggedTaskAsPrinted)
    touched, worst = 0, 0.0
    for a, b in pairs(k, size):
        ((_, x, way),), ((_, y, _),) = recorded(task, 3, a), recorded(task, 3, b)
        changed = x != y if mechanism == "presence" else (x != y).any(axis=1)
        touched, worst = max(touched, int(changed.sum())), max(worst, float(np.abs(x - y).max()))
    assert touched > min(k, size)
    assert worst <= 1
    if mechanism == "presence":
        assert touched == way["l1_sensitivity"] == zero_indicators_touched(k, size)
        assert way["epsilon"] == pytest.approx(touched * task.epsilon_each)
    else:
        assert touched <= way["changed"] == k


def test_a_user_touches_so_many_symbols_at_most() -> None:
    """All, or those of a full row and of another one."""
    touched = [a_task("ks", k, size).touched for k, size in ((3, 1), (5, 2), (3, 2))]
    assert touched == [2, 4, 3]


def test_printed_budgets() -> None:
    """Theorems 14 and 15 at (1, 1e-6): k = 100 with m-hat = 128, and with m-hat = 16."""
    log = math.log(2e6)
    paper = RaggedDistribution(Keys.range(100), 1.0, 1e-6, 128, n_users=9000, **PAPER)
    assert paper.release_task(128).epsilon_each == 1 / (8 * math.sqrt(101 * log))
    assert paper.release_task(16).epsilon_each == 0.5 / (8 * math.sqrt(16 * log))
    few = RaggedDistribution(Keys.range(8), 1.0, 1e-6, 128, n_users=9000, **PAPER)
    assert few.release_task(8).steps(0.0) == ("phs",)
    assert few.release_task(4).steps(0.0) == ("phs", "presence")


def test_the_paper_claims_less_than_it_spends() -> None:
    """For many symbols; the guarantee is that of the worst m-hat, 1, and holds in the ledger."""
    few = RaggedDistribution(Keys.range(4), 1.0, 1e-6, 16, n_users=9000, **PAPER)
    many = replace(few, domain=Keys.range(5000), mechanism="presence")
    assert few.claimed.epsilon == many.claimed.epsilon == 1.0
    assert few.guarantee.epsilon < 1.0
    each = many.release_task(1).epsilon_each
    assert many.guarantee.epsilon == pytest.approx(0.5 + 4999 * each)


def test_auto_takes_what_is_predicted_to_be_better() -> None:
    """Few samples per symbol: presence. Many: selection. Too few users for that: presence."""
    sparse = RaggedDistribution(Keys.range(1000), 2.0, 1e-6, 1024, n_users=100_000)
    assert sparse.release_task(4).steps(60_000.0) == ("presence",)
    dense = replace(sparse, domain=Keys.range(10))
    assert dense.release_task(256).steps(60_000.0) == ("ks",)
    assert dense.release_task(256).steps(20.0) == ("presence",)


@pytest.mark.parametrize("fields", [ALIKE, PAPER])
def test_too_few_users_are_refused_before_anything_is_asked(fields: dict[str, Any]) -> None:
    users = population(300, 10, 20)
    protocol = protocol_for(users, epsilon=0.5, **fields)
    estimate = run(protocol, users)
    assert estimate.status == "refused"
    assert f"{math.ceil(protocol.least_users)}" in estimate.reason
    assert not estimate.ledger.entries
    enough = replace(protocol, n_users=math.ceil(protocol.least_users))
    Session(enough, lambda i: SimulatedNoise(0, i))  # asks


def test_users_who_leave_between_the_rounds_fail() -> None:
    users = population(1000, 10, 20)
    session = Session(protocol_for(users, **ALIKE), lambda i: SimulatedNoise(0, i))
    session.advance(InlinePopulation([users], 0).ask(session.query, 0))
    session.advance(InlinePopulation([users.slice(0, 990)], 0).ask(session.query, 1))
    assert session.estimate.status == "failed"
    assert "990" in session.estimate.reason


def test_the_floor_of_a_selection_is_that_of_distribution() -> None:
    """Users solve x = 2 log(sqrt(m) x) + 6, x = h epsilon s with tents h s high: h = 1 and .4."""
    for size, ks, phs in ((4, 249, 622), (1 << 20, 529, 1321)):
        task = a_task("auto", 5, size)
        one = replace(task, delta=0.0, rest=0.05 * task.touched)
        assert one.floor("ks") == pytest.approx(ks, abs=1)
        assert one.floor("phs") == pytest.approx(phs, abs=1)
        assert one.steps(ks - 1) == ("presence",)


def test_selection_below_its_floor_warns() -> None:
    users = population(400, 400, 60)
    estimate = run(protocol_for(users, epsilon=1.0, mechanism="ks"), users)
    assert estimate.status == "ok"
    assert '"ks"' in estimate.warnings[0]


def test_secure_noise_serves_all_mechanisms() -> None:
    users = population(3000, 5, 12)
    ways = ({"mechanism": "presence"}, {"mechanism": "ks"}, {"delta": 0.0, **ALIKE})
    for fields in (*ways, {}, {"mechanism": "frequencies"}, {"mechanism": "centred"}):
        estimate = run(protocol_for(users, **fields), users, noise=secure)
        assert estimate.status == "ok"
        assert estimate.value.sum() == pytest.approx(1.0)
        assert (estimate.value >= 0).all()


def alike(k: int, sizes: Integers) -> Users:
    """Users of one Zipf(1) distribution."""
    p = 1 / np.arange(1, k + 1)
    return table_users(np.random.default_rng(1).multinomial(sizes, p / p.sum()))


def test_own_shares_are_exact_up_to_a_step() -> None:
    users = table_users([[3, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1 << 30]])
    sizes = [OwnShares(Keys.range(k)).l1_sensitivity(Adjacency.REPLACE_USER) for k in (1, 2, 3)]
    assert sizes == [SHARE_STEPS, 2 * SHARE_STEPS, 2 * SHARE_STEPS]
    query = OwnShares(users.vocabulary)
    report = query.answer(users, streams(users))
    query.check(report)
    summary = query.fold(report)
    query.check_summary(summary)
    folded = query.answer_folded(users, streams)
    assert np.array_equal(folded.sums["steps"], summary.sums["steps"])
    exact = np.array([3 / 4 + 1 / 3, 1 / 4 + 1 / 3, 1 / 3 + 1]) * SHARE_STEPS
    off = exact - summary.sums["steps"]
    assert (off >= 0).all()
    assert (off < 3).all()


def settings(users: Users, **more: Any) -> RaggedDistribution:
    given = {"epsilon": 1.0, "delta": 1e-6, "m_max": 2048, "n_users": len(users)} | more
    return RaggedDistribution(users.vocabulary, **given)


def branch(users: Users, seed: int = 2, **more: Any) -> tuple[list[str], Any]:
    protocol = settings(users, **more)
    estimate = run(protocol, users, seed)
    assert estimate.status == "ok", estimate.reason
    spent = estimate.ledger.spent(protocol.delta).epsilon
    assert 0.9 * protocol.epsilon < spent <= protocol.epsilon * (1 + 1e-9)
    return [entry.label for entry in estimate.ledger.entries], estimate


def test_every_branch_spends_what_it_may() -> None:
    rng = np.random.default_rng(2)
    few = alike(30, rng.integers(1, 12, 2000))
    assert branch(few, m_max=16)[0] == ["frequencies"]
    assert branch(few, m_max=16, delta=0.0)[0] == ["frequencies"]
    many = alike(12, rng.integers(100, 400, 20_000))
    labels, estimate = branch(many)
    assert labels == ["centre", "radius", "far users", "offsets"]
    assert not estimate.warnings
    own = table_users([rng.multinomial(200, rng.dirichlet(np.ones(12) / 8)) for _ in range(9000)])
    assert branch(own)[0] == ["centre", "radius", "shares"]


def test_the_average_is_chosen_by_public_numbers() -> None:
    """Offsets where users may have many samples; shares where few, or where delta is 0."""
    one = RaggedDistribution(Keys.range(50), 1.0, 1e-6, m_max=4096, n_users=20_000)
    assert one.averaging == "centred"
    assert replace(one, m_max=256).averaging == "frequencies"
    assert replace(one, delta=0.0).averaging == "frequencies"
    assert replace(one, n_users=300).averaging == "frequencies"
    assert replace(one, mechanism="frequencies").averaging == "frequencies"


def test_users_without_items_are_left_out_and_said() -> None:
    """Half of 4000 users are empty: what is missing is 40 times the noise of the sum."""
    users = table_users(np.repeat([[3, 1], [0, 0]], 2000, axis=0))
    estimate = run(settings(users, mechanism="frequencies", project=False), users)
    assert estimate.value == pytest.approx([0.75, 0.25], abs=0.02)
    assert estimate.warnings
