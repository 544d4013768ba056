"""From users to a profile and a decision, held against searches written in plain NumPy."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedhist as fh
from fedhist.model.registry import protocols
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations import Loaded
from simulations.runs.config import load_config, parse_tables, prepare
from simulations.studies.decide.decision import Decision, decide
from simulations.studies.decide.problem import Candidate
from simulations.studies.decide.profile import profile_of
from simulations.studies.decide.question import Question, load_question, question_of
from simulations.studies.decide.search import Finding, Trial, _no_worse, least

N, D = 2000, 10


def question(*overrides: str) -> Question:
    people = f'kind = "zipf"\nn_users = {N}\nd = {D}\nmean_items = 1\ntail = inf\nseed = 7'
    text = f'[decide]\neffort = "quick"\n[population]\n{people}'
    return question_of(parse_tables(text, overrides), "test", "test")


CENTRAL = ('decide.trust="central"', 'decide.without=["adaptive-histogram"]')


def epsilon_of(d: Decision) -> float:
    (f,) = d.findings
    assert f.status == "yes"
    assert f.x is not None
    return f.x


def test_laplace_noise_takes_the_epsilon_of_its_closed_form() -> None:
    """A replaced user moves two counts by 1: E|noise| = 2 / epsilon on D counts that sum to N."""
    asked = ('decide.error="2%"', "decide.delta=0", *CENTRAL)
    result = decide(question(*asked))
    (f,) = result.findings
    assert epsilon_of(result) == pytest.approx(2 * D / (0.02 * N), rel=0.1)
    assert f.trial.met(0.02)
    assert f.trial.expected == pytest.approx(0.96 * 0.02, rel=0.03)
    (theory,) = decide(question(*asked, "decide.theory=true")).findings
    assert (theory.status, theory.trials) == ("theory", ())
    assert theory.x == pytest.approx(2 * D / (0.96 * 0.02 * N), rel=0.03)


def test_shares_take_the_epsilon_of_randomized_response() -> None:
    """Against a search in NumPy: bisect epsilon by the mean error over 2,000 runs."""
    others = [n for n, p in protocols().items() if p.target == "distribution"]
    others.remove("frequency-oracle")
    asked = ('decide.target="distribution"', 'decide.error="30%"', 'decide.trust="local"')
    left = (f"decide.without={json.dumps(others)}", 'protocol.kind="krr"', "protocol.project=false")
    result = decide(question(*asked, *left))
    counts = np.bincount(result.problem.users.counts.item, minlength=D)
    low, high = 0.1, 10.0
    for step in range(12):
        middle, rng = math.sqrt(low * high), np.random.default_rng(step)
        p = math.exp(middle) / (math.exp(middle) + D - 1)
        q = (1 - p) / (D - 1)
        law = q + (p - q) * np.eye(D)
        told = sum(rng.multinomial(counts[j], law[j], 2000) for j in range(D))
        error = np.abs((told / N - q) / (p - q) - counts / N).sum(axis=1).mean()
        low, high = (low, middle) if error <= 0.3 else (middle, high)
    assert epsilon_of(result) == pytest.approx(high, rel=0.1)


def test_it_ends_with_something_to_run(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(
        "who,what\n" + "".join(f"u{i},i{i % 4}\n" for i in range(400))
    )
    given: dict[str, Any] = {"user": "who", "item": "what", "trust": ["central", "local"]}
    result = fh.decide(tmp_path / "events.csv", error="30%", effort="quick", **given)
    result.save(tmp_path / "d")
    assert json.loads((tmp_path / "d/result.json").read_text())["levels"][0]["status"] == "yes"
    for f in result.findings:
        assert f.x is not None
        best = result.best(f.level)
        assert best.guarantee.epsilon == f.x
        prepared = prepare(load_config(tmp_path / f"d/run-{f.level.value}.toml"))
        assert prepared.protocol == best
    again = load_question(tmp_path / "d/study.toml")
    assert again.to_dict() == result.question.to_dict()
    with pytest.raises(ValueError, match="no level of trust 'shuffle'"):
        result.best("shuffle")


def test_more_trust_is_never_worse() -> None:
    """An answer of less trust is taken where it is better, in epsilon and in errors alike."""
    c = [Candidate(level.value, level, {"name": "mean"}) for level in Trust]
    t = [Trial(x, k, x, x, x, x, 9) for x, k in zip((3.0, 1.0, 2.0, 2.5), c, strict=True)]
    own = [Finding(k.level, "yes", u, u.x, (u,)) for k, u in zip(c, t, strict=True)]
    assert [f.x for f in _no_worse(own, solved=True)] == [1.0, 1.0, 2.0, 2.5]
    assert [f.borrowed for f in _no_worse(own, solved=True)] == [True, False, False, False]
    missed = [replace(own[0], status="no", x=None), *own[1:]]
    assert _no_worse(missed, solved=True)[0].x == 1.0
    measured = [replace(f, x=None, status="measured") for f in own]
    assert [f.trial.error for f in _no_worse(measured, solved=False) if f.trial] == [1, 1, 2, 2.5]


def test_yes_takes_the_mean_and_its_interval() -> None:
    t = Trial(1.0, Candidate("p", Trust.LOCAL, {"name": "mean"}), 0.1, 0.098, 0.104, 0.1, 100)
    assert t.met(0.1)
    assert not t.met(0.0999)
    assert not replace(t, high=0.1051).met(0.1)
    assert not replace(t, missing="refused").met(0.1)
    assert not replace(t, expected=0.11, exact=True).met(0.1)  # a closed form above the target


@pytest.mark.parametrize("start", [0.05, 1.0, 40.0])
def test_the_search_finds_a_power_law_from_anywhere(start: float) -> None:
    asked: list[float] = []

    def error(x: float) -> float:
        asked.append(x)
        return 0.3 / x**0.7

    x = least(error, 0.1, start, 0.01, 64.0)
    assert x == pytest.approx(3 ** (1 / 0.7), rel=0.03)
    assert x is not None
    assert error(x) <= 0.1
    assert len(asked) <= 12


def test_the_search_ends_where_nothing_reaches() -> None:
    assert least(lambda x: 0.5, 0.1, 1.0, 0.01, 64.0) is None
    assert least(lambda x: math.inf if x < 2 else 0.01, 0.1, 1.0, 0.01, 64.0) == pytest.approx(
        2, rel=0.03
    )
    assert least(lambda x: 0.0, 0.1, 1.0, 0.5, 64.0) == 0.5


def test_users_are_solved_for_at_a_budget() -> None:
    asked = ('decide.error="2%"', "decide.epsilon=0.25", "decide.delta=0", *CENTRAL)
    result = decide(question(*asked))
    assert epsilon_of(result) == pytest.approx(2 * D / (0.02 * 0.25), rel=0.12)  # users here


def test_a_budget_is_measured_on_every_level() -> None:
    result = decide(question("decide.epsilon=1", 'decide.trust=["central", "local"]'))
    errors = [f.trial.error for f in result.findings if f.trial]
    assert [f.status for f in result.findings] == ["measured"] * 2
    assert errors == sorted(errors)
    assert errors[0] < errors[1] < 2


def test_a_protocol_that_breaks_is_named_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedhist.protocols import AdaptiveHistogram

    def broken(self: object, server: object) -> None:
        raise ZeroDivisionError("by hand")

    monkeypatch.setattr(AdaptiveHistogram, "rounds", broken)
    result = decide(question('decide.error="5%"', 'decide.trust="central"'))
    assert result.findings[0].status == "yes"
    trial = result.findings[0].trial
    assert trial.candidate.name == "bounded-histogram"


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ((), "decide.error"),
        (('decide.error="ten"',), "ten"),
        (('decide.error="-1%"',), "-1%"),
        (('decide.error="0.1"',), r"0\.1"),
        (("decide.error=nan",), "nan"),
        (("decide.error=10", 'decide.target="distribution"'), "10"),
        (("decide.error='5%'", "decide.targt=1"), "targt"),
        (("decide.error='5%'", 'decide.target="histgram"'), "histgram"),
        (("decide.error='5%'", 'decide.trust=["nobody"]'), "nobody"),
        (("decide.error='5%'", 'decide.effort="lazy"'), "lazy"),
        (("decide.error='5%'", "decide.epsilon=0"), "epsilon"),
        (("decide.error='5%'", "protocol.epsilon=1"), r"protocol\.epsilon"),
        (("decide.error='5%'", "protocol.clipp=3"), "clipp"),
        (("decide.error='5%'", "protocol.clip=-1"), "-1"),
        (("decide.error='5%'", 'protocol.clip="abc"'), "abc"),
        (("decide.error='5%'", 'decide.target="mean"'), "mean"),
    ],
)
def test_what_cannot_be_asked(overrides: tuple[str, ...], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        decide(question(*overrides))


RECORDS = {
    "ann": {"tea": 6, "rye": 2},
    "bob": {"tea": 3},
    "cyd": {"tea": 1, "chai": 1},
    "dan": {},
    "eve": {"Tea": 2},
}


def test_the_profile_of_items() -> None:
    result = profile_of(Loaded(Users.from_records(RECORDS), "five", domain=Keys.of(["tea", "rye"])))
    assert (result.n_users, result.n_events, result.n_items, result.domain_size) == (5, 15, 4, 2)
    assert result.outside.events == pytest.approx(3 / 15)
    assert result.outside.users == pytest.approx(1 / 4)
    assert result.per_user["most"] == 8
    assert result.per_user["50%"] == 2
    assert result.items_per_user["mean"] == pytest.approx(6 / 5)
    for named in ("1 users hold nothing", "'Tea'", "53.3%"):
        assert any(named in w for w in result.warnings)
    assert result.table.filter(pl.col("fact") == "events")["value"].to_list() == [15]


def test_the_profile_of_samples() -> None:
    records = {"a": [1.0, 2.0, 3.0], "b": [9.0], "c": [math.nan], "d": []}
    result = profile_of(
        Loaded(Users.from_records(records, unusable=True), "four", value_range=(0.0, 5.0))
    )
    assert (result.n_users, result.n_events, result.n_items) == (4, 5, None)
    assert result.values["most"] == 9
    assert result.outside.events == pytest.approx(1 / 5)
    assert any("a null record" in w for w in result.warnings)
    assert result.suggested["low"] < result.suggested["high"]
