"""What a run says before it starts, and that it says nothing where nobody wants to know."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import Command

from fedhist.model.evaluation import first_pass
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.protocols.few_users.few_users_mean import FewUsersMean
from fedhist.protocols.means.mean import Mean
from fedhist.session.journal import Journal
from fedhist.users.batch import Users
from fedhist.users.shards import Shard
from simulations.populations import population
from simulations.runs import forecast as module
from simulations.runs.forecast import Forecast, forecast
from simulations.runs.options import Options

N = 400_000
USERS = Users.from_samples(np.arange(N, dtype=np.uint64), np.arange(N + 1), np.zeros(N))
MEAN = Mean.example()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Everybody takes 100 microseconds to answer and one to be measured; who is asked is noted."""
    sizes: list[int] = []

    def slow(query: Query, users: Shard, n: int, options: Options) -> tuple[float, float]:
        sizes.append(n)
        return 1e-4 * n, 1e-6 * n

    monkeypatch.setattr(module, "_asked", slow)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return sizes


def test_the_time_is_that_of_all_users_rounds_and_repeats(asked: list[int]) -> None:
    rounds = MEAN.max_rounds
    one = forecast(MEAN, USERS, Options())
    assert one is not None
    assert (one.n_users, one.rounds, one.processes) == (N, rounds, 1)
    assert one.seconds == pytest.approx(N * (1e-4 * rounds + 1e-6))
    assert max(asked) <= 0.02 * N * rounds  # what it costs to know
    three = forecast(MEAN, USERS, Options(), repeats=3)
    assert three is not None
    assert three.seconds == pytest.approx(N * (3e-4 * rounds + 1e-6))
    messages = module.MESSAGE * 2000 * rounds
    for workers, used in ((4, 4), (3, 3), (16, 4)):  # no more work at a time than there are cores
        shared = forecast(MEAN, USERS, Options(runtime="ray", workers=workers))
        assert shared is not None
        assert shared.seconds == pytest.approx(one.seconds / used + messages)
        assert f"in {used} workers" in str(shared)
    cluster = forecast(MEAN, USERS, Options(runtime="ray", ray_address="10.0.0.1:1"))
    assert cluster is not None
    assert cluster.seconds == pytest.approx(one.seconds + messages)
    assert "of CPU on the cluster" in str(cluster)
    assert 50 << 20 < one.n_bytes < 100 << 30


def test_what_evaluation_takes_is_in_the_time(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own passes, and not the one in which users answer: a second, and 11 microseconds each."""

    def evaluated(protocol: Protocol, users: Shard, n: int) -> float:
        return 1.0 + 12e-6 * (n - module.WARM)

    without = forecast(MEAN, USERS, Options())
    monkeypatch.setattr(module, "_evaluated", evaluated)
    monkeypatch.setattr(module, "_made", lambda users, n: (0.0, 0))
    found = forecast(MEAN, USERS, Options(beside=first_pass(MEAN)))
    assert found is not None
    assert without is not None
    assert found.seconds - without.seconds == pytest.approx(1.0 + 11e-6 * N, rel=0.04)
    monkeypatch.setattr(module, "_evaluated", lambda *_: 1 / 0)  # the run itself will say why
    broken = forecast(MEAN, USERS, Options(beside=first_pass(MEAN)))
    assert broken is not None
    assert broken.seconds == without.seconds


def test_who_is_kept_for_the_next_round_is_in_the_memory(asked: list[int]) -> None:
    plan = population("gaussian", n_users=N, samples_per_user=4, mean=0.3, spread=0.1).plan()
    found, held = (forecast(MEAN, u, Options()) for u in (plan.users, plan.users.in_memory()))
    assert found is not None
    assert held is not None
    assert 40 * N < found.n_bytes - held.n_bytes < 100 * N


def test_what_grows_with_the_users_is_in_the_memory(asked: list[int]) -> None:
    """Rows by user, and the reports of a node that does not fold."""
    one, reports = (forecast(MEAN, USERS, Options(fold=f)) for f in (True, False))
    assert one is not None
    assert reports is not None
    assert reports.n_bytes - one.n_bytes > 8 * N
    rows = replace(FewUsersMean.example(), method="large-n", epsilon=16.0)
    found = forecast(rows, FewUsersMean.example_users(), Options(), repeats=10**6)
    assert found is not None


def test_short_runs_and_those_that_go_on_say_nothing(asked: list[int], tmp_path: Path) -> None:
    assert forecast(MEAN, USERS.slice(0, 1000), Options()) is None
    assert asked == []
    journal = Journal(tmp_path / "journal")
    journal.append({"kind": "query", "index": 0})
    journal.close()
    assert forecast(MEAN, USERS, Options(journal=tmp_path / "journal")) is None
    assert asked == []


def test_many_messages_of_few_users_take_their_time(asked: list[int]) -> None:
    users = USERS.slice(0, 30_000)
    few, many = (forecast(MEAN, users, Options(runtime="ray", nodes=n)) for n in (30, 30_000))
    assert few is None
    assert many is not None
    assert many.seconds > module.MESSAGE * 30_000 * MEAN.max_rounds


def test_who_is_fast_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And who cannot be asked: the run itself says why."""
    monkeypatch.setattr(module, "SAID", 1e9)
    assert forecast(MEAN, USERS, Options()) is None
    others = Users.from_records({f"{i}": {"a": 1} for i in range(300)})
    monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(module, "SAID", 0.0)
    assert forecast(MEAN, others, Options()) is None


def test_words() -> None:
    told = str(Forecast(400.0, 300 << 20, 10**8, 2, 8))
    assert told == "100,000,000 users in up to 2 rounds: about 7 minutes in 8 workers, 300 MiB each"
    assert str(Forecast(9.6, 300 << 20, 10**7, 1, 1)).endswith("about 10 s in one process, 300 MiB")


def test_the_command_says_it_on_stderr_and_never_beside_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fedhist: Command
) -> None:
    monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(module, "SAID", 0.0)
    monkeypatch.chdir(tmp_path)
    command = ("run", "quickstart", "--runtime", "inline", "--nodes", "1", "--repeats", "2")
    for more in ((), ("--json",)):
        said = fedhist(*command, "--population.n_users", "900", *more, "--out", f"out{len(more)}")
        assert said.status == 0
        assert ("expected: 900 users in up to 2 rounds" in said.err) == (not more)
        assert "expected: 900" not in said.out
        if more:
            assert json.loads(said.out)["kind"] == "run"
