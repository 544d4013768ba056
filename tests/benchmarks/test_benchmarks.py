"""The benchmarks' machinery on tiny sizes. Nothing here judges a time."""

from __future__ import annotations

import inspect
import json
import mmap
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from clients.bounding.sampling import random_clip
from clients.randomizers.scalars import unary_votes
from fedhist.channels.catalogue import UnaryChannel
from fedhist.model.query import CHUNK, Summary
from fedhist.protocols.histograms.bounded_histogram import ClippedCounts
from fedhist.session.session import Session
from fedhist.users.streams import SeededStreams
from simulations.benchmarks import (
    kernels,
    memory,
    messages,
    randclip,
    rivals,
    running,
    votes,
)
from simulations.benchmarks.measuring import Result, Row, Spread, in_turns, ratio
from simulations.benchmarks.populations import shoppers
from simulations.benchmarks.repeated import RepeatedCounts
from simulations.benchmarks.report import print_report, save_results
from simulations.cli.main import cli
from simulations.runs.run import noise_source

ANONYMOUS = getattr(mmap, "MAP_ANONYMOUS", 0)
MACHINE = {"cpus": 2, "cpu": "x", "versions": {"a": "1"}, "load_before": 0.5, "load_after": 1.0}


def test_tasks_take_turns() -> None:
    order: list[str] = []
    tasks: dict[str, Callable[[], None]] = {
        name: lambda name=name: order.append(name)  # type: ignore[misc]
        for name in "ab"
    }
    found = in_turns(tasks, turns=3, warm=1)
    assert order == list("ab" * 4)
    assert {k: len(v) for k, v in found.items()} == {"a": 3, "b": 3}
    assert min(found["a"]) >= 0
    with pytest.raises(ValueError, match="turns must be positive, got 0"):
        in_turns(tasks, turns=0)


def test_ratios_are_taken_turn_by_turn() -> None:
    # the machine is ten times slower in the second turn: the ratio does not notice
    assert ratio([3.0, 30.0, 3.3], [1.0, 10.0, 1.1]) == Spread(
        pytest.approx(3.0), pytest.approx(3.0), pytest.approx(3.0)
    )
    with pytest.raises(ValueError, match="no values"):
        Spread.of([])


def test_targets_are_judged_by_the_median() -> None:
    spread = Spread(2.0, 1.0, 9.0)
    assert Row("a", "x", spread, at_least=2.0).met is True
    assert Row("a", "x", spread, at_least=2.1).met is False
    assert Row("a", "x", spread, at_most=2.0).met is True
    assert Row("a", "x", spread, at_most=1.9).met is False
    assert Row("a", "x", spread).met is None


def test_a_result_survives_json_and_prints_in_80_columns(tmp_path: Path) -> None:
    rows = (
        Row("Ray: round trip with aggregation", "ms", Spread(1234.5, 1.0, 99999.0)),
        Row("Flower's runtime / Ray", "x", Spread(31.0, 29.0, 40.0), at_least=30),
        Row("Ray / calls", "x", Spread(2.5, 2.0, 3.0), at_most=2),
    )
    result = Result("messages", "2,000 nodes", rows, ("a note [with brackets]",))
    assert Result.from_json(json.loads(json.dumps(result.to_json()))) == result
    assert [r["met"] for r in result.to_json()["rows"]] == [None, True, False]
    console = Console(width=80, record=True, highlight=False)
    print_report(console, result, MACHINE)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "[with brackets]" in text
    assert "load average 0.50 before and 1.00 after" in " ".join(text.split())
    assert ">= 30   yes" in text
    assert "NO" in text
    assert all(row.met is None for row in running.without_targets(result).rows)
    save_results(tmp_path / "out.json", [(result, MACHINE)])
    assert json.loads((tmp_path / "out.json").read_text())[0]["machine"]["cpus"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_made_users_are_as_described() -> None:
    users = shoppers(3000, 50, 40, seed=3)
    items = users.counts
    totals = np.add.reduceat(items.count, items.indptr[:-1])
    assert (totals == 40).all()
    assert len(users.vocabulary) == 50
    assert list(users.vocabulary) == sorted(users.vocabulary)
    for u in range(0, 3000, 500):
        own = items.item[items.indptr[u] : items.indptr[u + 1]]
        assert (np.diff(own.astype(np.int64)) > 0).all()
    # 120,000 draws: the most frequent item has probability 0.19; six deviations are 0.0068
    weight = np.arange(1, 51) ** -0.9
    share = np.bincount(items.item, items.count, 50).max() / 120_000
    assert abs(share - weight[0] / weight.sum()) < 0.0068  # false alarm 2e-9, fixed seed
    again = shoppers(3000, 50, 40, seed=3)
    np.testing.assert_array_equal(items.item, again.counts.item)


def test_the_repeated_protocol_asks_different_queries_and_releases_one() -> None:
    users = shoppers(50, 20, 10)
    protocol = RepeatedCounts(users.vocabulary, epsilon=1.0, clip=4.0, delta=1e-6, times=3)
    asked: list[object] = []

    def ask(query: object, round_index: int) -> Summary:
        assert isinstance(query, ClippedCounts)
        asked.append(query.clip)
        return query.answer_folded(users, lambda batch: SeededStreams(batch.ids, 1, "x"))

    session = Session(protocol, noise_source("simulated", 1, protocol))
    estimate = session.run(ask)  # type: ignore[arg-type]
    assert estimate.status == "ok"
    assert asked == [4.0 * (1 - 2 / 1024), 4.0 * (1 - 1 / 1024), 4.0]
    assert estimate.ledger is not None
    assert estimate.ledger.spent().epsilon <= 1.0 + 1e-9
    with pytest.raises(ValueError, match="times must be positive, got 0"):
        RepeatedCounts(users.vocabulary, epsilon=1.0, clip=4.0, times=0)


@pytest.mark.parametrize("name", ["clip and sum", "count bits"])
def test_both_forms_of_a_kernel_compute_the_same(name: str) -> None:
    n, compiled, plain = kernels.pairs(CHUNK // 4)[name]
    assert n > 0
    np.testing.assert_allclose(compiled(), plain(), rtol=1e-10, atol=1e-7)  # type: ignore[arg-type]


def test_every_form_of_random_clipping_keeps_every_token_as_often() -> None:
    users = randclip.one_of_each(3000)
    table = users.counts.item.reshape(3000, 100)
    keys = randclip.fisher_yates(table, 1024), randclip.partition(table)
    assert randclip.ours(users) == 60_000
    words = SeededStreams(users.ids, 5, "x").words(1)[:, 0]
    mine = random_clip(users.counts, 20, words)[1].reshape(3000, 20)
    for kept in (*keys, mine):
        place = np.array(
            [np.searchsorted(row, chosen) for row, chosen in zip(table, kept, strict=True)]
        )
        assert all(len(set(row)) == 20 for row in place.tolist())
        assert (np.take_along_axis(table, place, axis=1) == kept).all()
        # 100 counts of 3,000 draws at 1/5: each within 5.5 deviations (false alarm 4e-6 a form)
        often = np.bincount(place.ravel(), minlength=100)
        assert np.abs(often - 600).max() < 5.5 * np.sqrt(3000 * 0.2 * 0.8)
    rows = randclip.measure(quick=True).rows
    assert [r.at_least for r in rows] == [None, None, None, 1.1, None]


def test_the_numpy_form_of_counting_votes_counts_them() -> None:
    n, flip = 40_000, UnaryChannel(1.0).flip
    position = np.full(n, 5)
    packed = unary_votes(
        position, 64, UnaryChannel(1.0), SeededStreams(np.arange(n, dtype=np.uint64), 1, "")
    )
    ours = kernels.sum_unpacked(packed) / n
    expected = np.where(np.arange(64) == 5, 1 - flip, flip)
    # 64 means of 40,000 Bernoulli draws, each within 5.5 deviations: false alarm below 3e-6
    assert np.abs(ours - expected).max() < 5.5 * np.sqrt(flip * (1 - flip) / n)


def test_calls_in_this_process_answer_every_message() -> None:
    assert len(messages.calls(shoppers(5, 20, 10), rounds=3)) == 3


def test_memory_is_read_from_proc() -> None:
    found = memory.status()
    if not found:
        pytest.skip("no /proc on this system")
    assert 0 < memory.private(found) <= found["VmRSS"] <= found["VmHWM"]
    size = 64 << 20
    shared, private = mmap.mmap(-1, size), mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | ANONYMOUS)
    with memory.watch_private(every=0.001) as peak:
        before = peak[0]
        np.frombuffer(shared, dtype=np.uint8)[:] = 1
        time.sleep(0.05)
        assert peak[0] < before + 0.5 * size
        np.frombuffer(private, dtype=np.uint8)[:] = 1
        end = time.monotonic() + 30
        while peak[0] < before + 0.5 * size and time.monotonic() < end:
            time.sleep(0.01)
    assert peak[0] >= before + 0.5 * size


def test_missing_libraries_are_said_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rivals, "REQUIREMENTS", ("./no-such-package",))
    result = votes.measure(quick=True, folder=str(tmp_path / "env"))
    assert [r.what for r in result.rows] == ["fedhist: answer, fold, debias"]
    assert sum("could not be measured" in note for note in result.notes) == 2


def test_a_library_that_breaks_off_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This environment stands for one in which the libraries do not import."""
    monkeypatch.setattr(rivals, "environment", lambda folder: Path(sys.executable))
    with (
        rivals.rivals(tmp_path) as others,
        pytest.raises(rivals.Unavailable, match="pure-ldp: ModuleNotFoundError"),
    ):
        others.run("pure-ldp", 10, 64, 1.0)


def test_the_command_names_the_benchmarks() -> None:
    runner = CliRunner()
    assert "million-users" in runner.invoke(cli, ["bench", "--help"]).output
    with pytest.raises(ValueError, match="no benchmark is called 'speed'"):
        runner.invoke(cli, ["bench", "speed"], catch_exceptions=False)


def test_the_child_process_measures_and_writes(tmp_path: Path) -> None:
    out = tmp_path / "k.json"
    task = json.dumps({"name": "kernels", "quick": True, "rivals": "", "out": str(out)})
    subprocess.run([sys.executable, "-m", "simulations.benchmarks", task], check=True)
    result = Result.from_json(json.loads(out.read_text()))
    assert result.name == "kernels"
    assert all(row.spread.median > 0 and row.met is None for row in result.rows)


def run_small(name: str) -> Result:
    ((result, machine),) = running.run_benchmarks([name], quick=True)
    assert machine["cpus"] >= 1
    assert all(row.met is None for row in result.rows)
    return result


@pytest.mark.ray
def test_million_users_runs_small() -> None:
    rows = {r.what: r.spread.median for r in run_small("million-users").rows}
    assert rows["inline / np.sum"] > 0
    assert rows["Ray, round of 20 nodes"] > 0
    assert rows["memory, Ray worker"] > 0


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.flwr
def test_messages_runs_small() -> None:
    rows = {r.what: r.spread.median for r in run_small("messages").rows}
    assert rows["Flower's runtime / Ray"] > 0
    assert rows["Ray / calls in this process"] > 0


def test_the_entry_into_flowers_runtime_is_still_there() -> None:
    """``simulate`` passes these by name to a function that is not Flower's public API."""
    from flwr.simulation.run_simulation import _run_simulation

    named = inspect.signature(_run_simulation).parameters
    used = "num_supernodes exit_event client_app server_app backend_config app_dir is_app"
    assert set(used.split()) <= set(named)
