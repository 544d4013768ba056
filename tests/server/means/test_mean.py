import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from clients.localize.queries import ClippedMean
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from server.means.mean import Mean
from server.session.session import Session
from tests.running import drawn, one_sample, run, sampled, secure


def coin_users(n: int, T: int, theta: float, seed: int = 0) -> Users:
    values = np.where(np.random.default_rng(seed).random(n * T) < (1 + theta) / 2, 1.0, -1.0)
    return sampled(np.full(n, T), values)


def test_a_wrong_window_is_announced() -> None:
    # users without a common mean: no window holds many of them
    rng = np.random.default_rng(0)
    n = 20_000
    users = one_sample(rng.uniform(-1, 1, (n, 1)))
    estimate, _, _ = run(Mean(1.0, n, 1024, -1.0, 1.0, method="vote"), users, 0)
    assert estimate.public["window_mass"] < 0.6
    assert estimate.warnings
    learned, _, _ = run(Mean(1.0, n, 1024, -1.0, 1.0), users, 0)
    assert learned.warnings
    good, _, _ = run(Mean(1.0, 2000, 64, -1.0, 1.0, method="vote"), coin_users(2000, 64, 0.3), 0)
    assert not good.warnings
    assert good.public["window_mass"] > 0.6


def test_paper_mode_localizes_with_its_interval() -> None:
    n, epsilon, T, theta = 8000, 0.5, 256, 0.237
    users = coin_users(n, T, theta)
    protocol = Mean(epsilon, n, T, -1.0, 1.0, mode="paper")
    delta = math.sqrt(0.25 * math.log(n * epsilon**2 * T) / T)
    for seed in range(3):
        estimate, (vote, refine), _ = run(protocol, users, seed)
        assert vote.channel.ones == 3
        assert 2 * refine.half_width == pytest.approx(min(7 * delta, 2.0))
        assert refine.kind == "laplace"
        assert estimate.public["interval_low"] < theta < estimate.public["interval_high"]
        # planned failures below 5e-3, five standard errors otherwise
        assert abs(estimate.value[0] - theta) < 5 * estimate.stderr[0]


def test_paper_mode_warns_where_its_vote_fails() -> None:
    protocol = Mean(1.0, 200, 256, -1.0, 1.0, mode="paper")
    estimate, _, _ = run(protocol, coin_users(200, 256, 0.2), 0)
    assert estimate.warnings


def test_truth_skips_unusable_records() -> None:
    users = Users.from_records(
        {"ann": [0.5, 9.0], "bob": [0.0], "eve": [np.nan], "dan": []}, unusable=True
    )
    assert Mean.example().truth(users).tolist() == [2.375]  # 9.0 lies outside the range, and shows
    assert Mean.example().loss(np.array([0.5]), np.array([0.375])) == 0.125**2
    with pytest.raises(PopulationError, match="mean"):
        Mean.example().truth(Users.from_records({"eve": [np.nan]}, unusable=True))


class Case(NamedTuple):
    """A setting, the mean squared error that must be reached, and the method that is chosen."""

    users: str
    n: int
    T: int
    epsilon: float
    reach: float
    method: str


CASES = (
    Case("normal", 5000, 200, 1.0, 3.2e-4, "centred"),
    Case("beta(2, 2)", 20_000, 100, 1.0, 1.1e-4, "centred"),
    Case("0.2", 250, 500, 0.7, 7.2e-3, "stages"),
)


def means_of(users: str, n: int, T: int, rng: np.random.Generator) -> np.ndarray:
    """Draw users' own means: of T coins each, on [0, 1] for Beta and on [-1, 1] else."""
    if users.startswith("beta"):
        a, b = (float(word) for word in users[5:-1].split(","))
        return rng.binomial(T, rng.beta(a, b, n)) / T
    own = rng.normal(0.2, 0.15, n) if users == "normal" else np.full(n, float(users))
    return 2 * rng.binomial(T, (1 + np.clip(own, -1, 1)) / 2) / T - 1


def protocol_of(case: Case) -> Mean:
    low = 0.0 if case.users.startswith("beta") else -1.0
    return Mean(case.epsilon, case.n, case.T, low, 1.0)


@pytest.mark.parametrize(
    ("n", "T", "epsilon", "differ", "same"),
    [
        (250, 100, 1.0, "stages", "stages"),
        (1000, 100, 1.0, "stages", "vote"),
        (4000, 100, 0.5, "stages", "vote"),
        (4000, 100, 1.0, "centred", "vote"),
        (250, 1, 0.5, "centred", "vote"),
    ],
)
def test_the_choice_is_made_by_public_numbers(
    n: int, T: int, epsilon: float, differ: str, same: str
) -> None:
    protocol = Mean(epsilon, n, T, -1.0, 1.0)
    assert protocol.chosen == differ
    assert replace(protocol, users="same").chosen == same
    assert T > 1 or protocol.max_rounds == 1


def test_everybody_answers_once() -> None:
    for case in (CASES[0], CASES[2]):
        users = one_sample(means_of(case.users, case.n, case.T, np.random.default_rng(1))[:, None])
        estimate, queries, _ = run(protocol_of(case), users, 3)
        assert estimate.status == "ok"
        assert len(queries) == protocol_of(case).max_rounds
        asked = sum(q.cohort.contains(users.ids).astype(int) for q in queries)
        assert (asked == 1).all()
        assert all(q.exact and q.epsilon == case.epsilon for q in queries)


def test_an_interval_near_an_end_is_shifted_into_the_range() -> None:
    x = means_of("0.97", 5000, 200, np.random.default_rng(3))
    for method in ("centred", "stages"):
        protocol = Mean(1.0, 5000, 200, -1.0, 1.0, method=method)
        for query in drawn(protocol, one_sample(x[:, None]), 4).queries:
            if isinstance(query, ClippedMean):
                assert query.centres[0] + query.half_width <= 1 + 1e-12


@pytest.mark.parametrize("method", ["centred", "stages"])
def test_nobody_in_a_round(method: str) -> None:
    """The others go on; a run in which nobody reports fails."""
    protocol = Mean(1.0, 5000, 200, -1.0, 1.0, method=method)
    users = one_sample(means_of("0.2", 5000, 200, np.random.default_rng(5))[:, None])
    nobody, rng = one_sample(np.zeros((0, 1))), np.random.default_rng(1)
    for missing in range(protocol.max_rounds + 1):
        session, index = Session(protocol, secure), 0
        while session.query is not None:
            away = missing in (index, protocol.max_rounds)
            some = nobody if away else users.select(session.query.cohort)
            session.advance(session.query.draw_summary(some, rng))
            index += 1
        estimate = session.estimate
        assert estimate.status == ("failed" if missing == protocol.max_rounds else "ok")
        if estimate.status == "ok":
            assert abs(estimate.value[0] - 0.2) < 6 * estimate.stderr[0]


def test_the_printed_version_has_no_choice() -> None:
    printed = Mean(2.0, 400, 64, -1.0, 1.0, mode="paper")
    assert printed.chosen == "vote"
    for changes in ({"users": "same"}, {"method": "stages"}):
        with pytest.raises(ValueError, match="votes and reports, whoever the users are"):
            replace(printed, **changes)


def test_only_a_vote_is_shuffled() -> None:
    with pytest.raises(ValueError, match='set method = "vote"'):
        _ = Mean(1.0, 5000, 200, -1.0, 1.0).batches
