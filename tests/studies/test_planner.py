"""The planner against closed forms, brute force, and simulation."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from simulations.cli import main as cli
from simulations.cli import terminal
from simulations.populations import population
from simulations.runs.config import Config, RunTable, load_config
from simulations.studies.plan import planner, template
from simulations.studies.plan.planner import Answer, plan, plans
from simulations.studies.plan.population import LazyUsers, Template, TooLarge, for_protocol
from simulations.studies.plan.search import Oracle, Point, local_slope, refine, walk
from simulations.studies.plan.tables import number, print_plans, print_verified, remarks
from simulations.studies.plan.template import template_of
from simulations.studies.plan.verify import Verified, verify

MEAN = {"name": "mean", "epsilon": 1.0, "samples_per_user": 64, "low": -1.0, "high": 1.0}
GAUSSIAN = {"kind": "gaussian", "n_users": 500, "samples_per_user": 64, "mean": 0.2, "seed": 3}
# one item, every user has three of it: the total is 3 n, and Laplace noise of scale 3 is added
ONE = {"kind": "zipf", "n_users": 50, "d": 1, "mean_items": 3, "tail": math.inf}
LAPLACE = {"name": "bounded-histogram", "epsilon": 0.5, "clip": 3.0, "adjacency": "zero-out-user"}


def config(protocol: dict[str, Any], people: dict[str, Any]) -> Config:
    return Config("test", RunTable(runtime="inline"), protocol, people)


def test_laplace_noise_on_one_count_is_inverted_by_hand() -> None:
    """E|Lap(C / epsilon)| / (3 n) = 1 / (epsilon n) <= 0.01 from n = 200 on."""
    found = plan(config(LAPLACE, ONE), 0.01, relative=True)
    assert found.x == pytest.approx(200, rel=0.011)
    assert found.x is not None
    assert found.predicted == pytest.approx(2 / found.x)
    assert found.predicted <= 0.01
    assert found.exact
    assert found.slope == pytest.approx(-1)
    assert found.limit == "noise 100%"
    assert found.read


def test_laplace_noise_in_epsilon() -> None:
    """In counts the error is C / epsilon, whatever n."""
    found = plan(config(LAPLACE, ONE), 6.0, "epsilon")
    assert found.x == pytest.approx(0.5, rel=0.011)
    assert found.x is not None
    assert found.x >= 0.5 - 1e-9


def test_more_is_never_asked_for_a_larger_error() -> None:
    base = config(MEAN, GAUSSIAN)
    found = [plan(base, target).x for target in (1e-4, 1e-3, 1e-2)]
    assert all(x is not None for x in found)
    assert found == sorted(found, key=lambda x: -(x or 0))


def test_clipping_is_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clip of 1 loses two of everybody's three items: a share of 2/3, with any n."""
    monkeypatch.setattr(planner, "MOST_ENTRIES", 20_000)
    found = plan(config(LAPLACE | {"clip": 1.0}, ONE), 0.5, relative=True)
    assert found.x is None
    assert found.best is not None
    assert found.best.error == pytest.approx(2 / 3, rel=0.02)  # less for one user: nothing below 0
    assert found.limit.startswith("clipping")
    assert found.beyond is None
    assert any("hardly falls" in note for note in found.notes)


def test_samples_reach_population_and_protocol() -> None:
    ragged = Template(config(MEAN, GAUSSIAN | {"samples_per_user": [10, 40]}), "samples_per_user")
    assert ragged.current == 20
    setting = ragged.at(60)
    assert setting.config.population["samples_per_user"] == [30, 120]
    assert setting.config.protocol["samples_per_user"] == 60
    assert setting.n_users == 500


def test_a_search_that_ends_at_users_who_are_not_made_says_so() -> None:
    """Twelve million values: asked from some epsilon on, and no prediction above it is made."""
    sparse = {"name": "sparse-mean", "n_users": 3_000, "dimension": 200, "sparsity": 2}
    people = GAUSSIAN | {"n_users": 3_000, "samples_per_user": 20, "dimension": 200}
    found = plan(config(sparse | {"samples_per_user": 20}, people), 0.05, "epsilon")
    assert found.x is None
    assert found.refused_below is None
    assert any(note.endswith("--most looks further") for note in found.notes)


class Bumpy(Oracle):
    """An oracle whose error falls, rises and falls again; 0.2 from 10 to 20 and from 300 on."""

    def __call__(self, x: float) -> Point:
        below = 10 <= x <= 20 or x >= 300
        return self.points.setdefault(x, Point(x, 0.2 if below else 1.0))

    def refusal(self, x: float) -> str | None:
        return None


def test_a_dip_is_no_answer() -> None:
    oracle = Bumpy(Template(config(MEAN, GAUSSIAN), "n_users"))
    walked = walk(oracle, 0.5, 1, 1e6, whole=True)
    last = max(i for i, p in enumerate(walked) if p.error > 0.5)
    found = refine(oracle, 0.5, walked[last], walked[last + 1], whole=True)
    assert found.x == 300
    assert "not monotone" in planner._dip(walked[:last], 0.5)


class Falling(Oracle):
    """Error 1 / x, of populations of at most ``largest`` users."""

    largest = 40_000.0

    def __call__(self, x: float) -> Point:
        if x > self.largest:
            raise TooLarge
        self.read = True
        return self.points.setdefault(x, Point(x, 1 / x))


@pytest.mark.parametrize("target", [1 / 20_000, 1 / 30_000, 1 / 37_000])
def test_the_last_step_before_what_is_too_large_is_looked_into(target: float) -> None:
    """Coarse steps end at 16,384, the next would be 65,536: the answer lies between."""
    oracle = Falling(Template(config(MEAN, GAUSSIAN), "n_users"))
    walked = walk(oracle, target, 1, 1e9, whole=True)
    assert walked[-1].error <= target
    assert walked[-1].x <= oracle.largest
    found = refine(oracle, target, walked[-2], walked[-1], whole=True)
    assert found.x == pytest.approx(1 / target, rel=0.011)
    beyond = walk(oracle, 1 / 80_000, 1, 1e9, whole=True)
    assert oracle.largest / 1.06 < beyond[-1].x <= oracle.largest


SHORT = {
    "mean": (MEAN, GAUSSIAN),
    "bounded-histogram": (LAPLACE, ONE),
    "adaptive-histogram": ({"name": "adaptive-histogram", "epsilon": 1.0, "delta": 1e-6}, ONE),
}


@pytest.mark.parametrize("name", SHORT)
def test_the_bytes_foreseen_are_the_bytes_sent(name: str) -> None:
    """Of all rounds, also of those whose queries depend on what users said before."""
    base = config(*SHORT[name])
    found = plan(base, 0.2, relative=name != "mean")
    done = verify(found, 2)
    assert done is not None
    assert found.bytes_per_user == pytest.approx(done.bytes_per_user, rel=1e-12)
    assert found.bytes_of == found.rounds


def test_bytes_of_rounds_that_nobody_foresees() -> None:
    """What later rounds ask depends on users counted, and on what earlier ones released."""
    for setting, rounds in (("assume=same-distribution", 2), ("mechanism=centred", 3)):
        found = plan(template_of("ragged", [f"protocol.{setting}"]), 0.2)
        assert (found.bytes_of, found.rounds) == (1, rounds)
        assert any(f"bytes: of 1 of {rounds} rounds" in line for line in remarks(found))


def test_losses_of_several_kinds_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    one = Answer(config(MEAN, GAUSSIAN), "mean", "n_users", 0.1, False, loss="squared l2")
    print_plans(Console(width=80), [one, replace(one, label="other", loss="l2")])
    assert "errors in squared l2, l2: " in capsys.readouterr().out
    print_plans(Console(width=80), [one, replace(one, label="other")])
    assert "errors in" not in capsys.readouterr().out


def test_counts_grow_with_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of everybody's items are lost: few users lose few, and that is no answer."""
    monkeypatch.setattr(planner, "MOST_ENTRIES", 20_000)
    found = plan(config(LAPLACE | {"clip": 1.0}, ONE), 100.0)
    assert found.x is None
    assert any("--relative" in note for note in found.notes)
    assert any("not monotone" in note for note in found.notes)


def test_a_slope_beyond_what_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error 2 / n: 1e-3 takes 2,000 users, which are not made here."""
    monkeypatch.setattr(planner, "MOST_ENTRIES", 300)
    found = plan(config(LAPLACE, ONE), 1e-3, relative=True)
    assert found.x is None
    assert found.searched <= 100
    assert found.beyond == pytest.approx(2000, rel=0.01)
    assert plan(config(LAPLACE, ONE), 1e-3, relative=True, most=1e5).x == pytest.approx(
        2000, rel=0.011
    )


@pytest.mark.parametrize("target", [1e-300, 5e-324])
def test_a_target_that_no_number_reaches(target: float) -> None:
    """No overflow, and no extrapolation to numbers that mean nothing."""
    answer = plan(config(MEAN, GAUSSIAN), target)
    assert answer.x is None
    assert answer.beyond is None


def test_users_are_made_when_looked_at() -> None:
    template = Template(config(MEAN, GAUSSIAN), "n_users", most_entries=64 * 30)
    loaded, lazy = template.lazy(template.at(30))
    assert len(loaded.users) == 30
    assert not lazy.made
    assert len(loaded.users.reals.values) == 30 * 64
    assert lazy.made
    with pytest.raises(TooLarge):
        template.lazy(template.at(31))[0].users.n_items()
    with pytest.raises(AttributeError):
        LazyUsers(3, lambda: loaded.users).__array__()


def test_files_are_redrawn(tmp_path: Path) -> None:
    file = tmp_path / "plays.csv"
    file.write_text("user,item\n" + "".join(f"u{u},i{u % 3}\n" for u in range(30)))
    people = {"kind": "events", "path": str(file), "user": "user", "item": "item", "top": 3}
    base = config({"name": "bounded-histogram", "epsilon": 1.0, "clip": 1.0}, people)
    template = Template(base, "n_users")
    one, other = (template.load(template.at(200), seed) for seed in (1, 2))
    assert len(one.users) == 200
    assert len(np.unique(one.users.ids)) == 200
    assert not np.array_equal(one.users.counts.item, other.users.counts.item)
    found = plan(base, 0.1, relative=True)
    # three items of Laplace noise: 3 / n <= 0.1
    assert found.x == pytest.approx(30, rel=0.05)
    assert any("NOT PRIVATE" in note for note in found.notes)
    with pytest.raises(ValueError, match="no number of samples"):
        plan(base, 0.1, "samples_per_user")


def test_what_cannot_be_configured_says_why() -> None:
    base = config(MEAN, GAUSSIAN)
    with pytest.raises(ValueError, match="public domain"):
        plan(for_protocol(config(LAPLACE, GAUSSIAN), "bounded-histogram"), 1.0, "epsilon")
    found = plans(base, ["mean", "few-users-mean"], 0.01)
    assert found[0].x is not None
    assert found[1].x is None
    assert "dimension" in found[1].reason
    for error in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="target error"):
            plan(base, error)


def test_simulation_agrees_with_an_exact_plan() -> None:
    """The 99% interval of an exact prediction: a correct program fails for 1 seed in 100."""
    found = verify(plan(config(LAPLACE, ONE), 0.01, relative=True), 60, first_seed=2)
    assert found is not None
    low, high = found.interval
    assert low <= 1 <= high
    assert found.statuses == {"ok": 60}
    assert found.answer.x is not None
    assert found.needed == pytest.approx(found.answer.x * found.measured / 0.01, rel=1e-3)


def test_a_protocol_is_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    assert template_of("bounded-histogram").protocol["name"] == "bounded-histogram"
    assert template_of("mean").name == load_config("mean").name
    with pytest.raises(ValueError, match="unknown configuration"):
        template_of("nothing")
    monkeypatch.setattr(template, "builtin_configs", list)
    with pytest.raises(ValueError, match="--protocols poisson-counts"):
        template_of("poisson-counts")


def test_slopes_and_numbers() -> None:
    points = {x: Point(x, 5 * x**-1.5) for x in (1.0, 10.0, 11.0, 40.0)}
    assert local_slope(points, 10.0) == pytest.approx(-1.5)
    assert math.isnan(local_slope({1.0: Point(1.0, 2.0)}, 1.0))
    assert number(1234.4) == "1,234"


def test_tables_fit(capsys: pytest.CaptureFixture[str]) -> None:
    base = config(MEAN, GAUSSIAN)
    answers = plans(base, ["mean", "few-users-distribution"], 1e-2)
    console = Console(width=80)
    print_plans(console, answers)
    done = Verified(answers[0], (0.01, 0.02), {"ok": 2, "failed": 1}, 100.0, 0.1)
    print_verified(console, [done])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "refused below users" in out
    assert "1 failed of 3 runs" in out


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "console", Console(width=80, highlight=False))
    small = ["--set", "protocol.samples_per_user=64", "--set", "population.samples_per_user=64"]
    result = CliRunner().invoke(
        cli.cli, ["plan", "mean", "--error", "0.01", *small, "--verify", "--seeds", "3"]
    )
    assert result.exit_code == 0, result.output
    assert "/ predicted" in result.output
    none = ["plan", "mean", "--error", "1e-30", *small]
    assert CliRunner().invoke(cli.cli, none).exit_code == 3
    for wrong in (["plan", "mean"], ["plan", "mean", "--error", "1", "--solve", "delta"]):
        assert isinstance(CliRunner().invoke(cli.cli, wrong).exception, ValueError)


def test_a_missing_target_is_asked_for() -> None:
    failed = CliRunner().invoke(cli.cli, ["plan", "mean"]).exception
    assert isinstance(failed, ValueError)
    assert re.search("--error X$", str(failed))


def test_one_user_of_every_made_up_kind() -> None:
    """A plan looks at a report of one user: every population can be that small."""
    for kind in ("zipf", "paper-iid", "paper-non-iid", "paper-poisson"):
        more = {"d": 3} if kind == "zipf" else {}
        assert len(population(kind, n_users=1, mean_items=16.0, **more).load().users) == 1


def test_nothing_to_simulate() -> None:
    missing = Answer(config(MEAN, GAUSSIAN), "mean", "n_users", 0.1, False)
    assert verify(missing, 2) is None
    with pytest.raises(ValueError, match="seeds"):
        verify(missing, 0)
