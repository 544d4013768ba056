"""From users to a decision: closed forms, the search by itself, words, and what is refused."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedhist.privacy.guarantee import Trust
from simulations.runs.config import load_config, parse_tables
from simulations.studies.decide.decision import Decision, decide
from simulations.studies.decide.output import summary_of
from simulations.studies.decide.question import (
    Question,
    builtin_decisions,
    error_of,
    load_question,
    question_of,
)
from simulations.studies.decide.search import Trial, next_epsilon
from simulations.studies.decide.settled import USUAL_EPSILON, Candidate
from simulations.studies.decide.tuning import variants
from simulations.studies.decide.words import _epsilon, _left, notes, off, without_data
from simulations.studies.profile.profile import profile_of

N, D = 2000, 10
CENTRAL = ('decide.trust="central"', 'decide.without=["adaptive-histogram"]')


def question(*overrides: str) -> Question:
    """Ask about N users of one of D items each."""
    people = f'kind = "zipf"\nn_users = {N}\nd = {D}\nmean_items = 1\ntail = inf\nseed = 7'
    text = f'[decide]\neffort = "quick"\n[population]\n{people}'
    return question_of(parse_tables(text, overrides), "test", "test")


@pytest.fixture(scope="module")
def laplace() -> Decision:
    asked = ('decide.error="2%"', "decide.delta=0", 'decide.trust=["central", "shuffle"]')
    return decide(question(*asked, 'decide.without=["adaptive-histogram", "local-histogram"]'))


def test_epsilon_is_that_of_the_closed_form(laplace: Decision) -> None:
    # replacing a user moves two counts by 1: noise of scale 2 / epsilon on D counts of sum N
    central, _ = laplace.findings
    assert central.status == "reached"
    assert central.planned == pytest.approx(2 * D / (0.02 * N), rel=0.03)
    assert central.x is not None
    assert central.x >= 0.97 * central.planned
    assert central.trial is not None
    assert central.trial.error == pytest.approx(central.trial.theory, rel=0.6)
    assert central.candidate is not None
    assert central.candidate.chosen == {"clip": 1, "delta": 0.0}


def test_a_level_without_a_protocol_says_why(laplace: Decision) -> None:
    shuffle = laplace.findings[1]
    assert (shuffle.level, shuffle.status) == (Trust.SHUFFLE, "unavailable")
    assert "A trusted shuffler: not available. none of these protocols" in laplace.sentences()[2]


def test_every_table_says_adjacency_loss_and_unit(laplace: Decision) -> None:
    title = laplace.tables()[0].title
    assert "replace-user" in title
    assert "l1 distance, in per cent of the answer's own" in title
    assert laplace.table["trust"].to_list() == ["central", "shuffle"]


def test_the_folder_says_all_of_it_and_asks_again(laplace: Decision, tmp_path: Path) -> None:
    laplace.save(tmp_path / "d")
    found = json.loads((tmp_path / "d/decision.json").read_text())
    assert found["levels"][0]["status"] == "reached"
    assert "replace-user" in found["levels"][0]["guarantee"]
    assert "NOT PRIVATE" in found
    page = (tmp_path / "d/index.html").read_text()
    assert "NOT PRIVATE" in page
    assert "data:image/png" in page
    again = load_question(tmp_path / "d/study.toml")
    assert again.to_dict() == laplace.settled.question.to_dict()
    laplace.save(tmp_path / "d.svg")
    assert (tmp_path / "d.svg").read_text().count("<svg") == 1


def test_a_budget_is_measured_on_every_level() -> None:
    found = decide(question("decide.epsilon=1", 'decide.without=["adaptive-histogram"]'))
    errors = [f.trial.error if f.trial else None for f in found.findings]
    assert [f.status for f in found.findings] == ["measured"] * 4
    assert all(e is not None and 0 < e < 2 for e in errors)
    assert errors[0] < errors[3]  # type: ignore[operator]
    assert found.verdict.startswith("the least error is ")


def test_users_are_solved_for_at_a_budget() -> None:
    asked = ('decide.error="2%"', "decide.epsilon=0.25", "decide.delta=0")
    found = decide(
        question(*asked, 'decide.trust="central"', 'decide.without=["adaptive-histogram"]')
    )
    (central,) = found.findings
    assert central.planned == pytest.approx(2 * D / (0.02 * 0.25), rel=0.05)
    assert "how many users does it take?" in found.title


def test_users_of_an_uneven_file_are_solved_for_without_its_clip(tmp_path: Path) -> None:
    # some hold 60 items: at few users a small clip is best, but its bias no user more takes away
    rows = [f"u{u},i{(u + k) % 4}" for u in range(200) for k in range(60 if u < 6 else 1 + u % 4)]
    (tmp_path / "events.csv").write_text("user,item\n" + "\n".join(rows) + "\n")
    people = {"kind": '"events"', "path": f'"{tmp_path / "events.csv"}"'}
    people |= {"user": '"user"', "item": '"item"'}
    text = '[decide]\neffort = "quick"\nerror = "10%"\nepsilon = 1\ntrust = "central"\n'
    text += 'without = ["adaptive-histogram"]\n[population]\n'
    text += "\n".join(f"{k} = {v}" for k, v in people.items())
    found = decide(question_of(parse_tables(text, ()), "test", "test"))
    (central,) = found.findings
    assert central.candidate is not None
    assert central.candidate.chosen["clip"] == 60
    assert central.x is not None
    found.save(tmp_path / "d")
    page = (tmp_path / "d/index.html").read_text()
    assert page.index("data:image/png") < page.index("<table")  # seen at once
    assert not re.search(r"<details[^>]*>(?:(?!</details>).)*data:image/png", page, re.DOTALL)
    names = "".join(label for label, _ in found.settled.left_out)
    assert "item-histogram" in names
    assert any("not considered" in note and "item-histogram" in note for note in notes(found))


def trial(x: float, error: float, half: float = 0.0, theory: float = math.inf) -> Trial:
    entry: Any = None
    candidate = Candidate("p", Trust.CENTRAL, entry, {"name": "p"}, {})
    return Trial(x, candidate, error, half, theory, 5)


def test_the_search_finds_a_power_law() -> None:
    """The errors 0.3 / x: the target 0.1 is met at 3; theory says nothing."""
    x: float | None = 40.0
    trials: list[Trial] = []
    while x is not None and len(trials) < 20:
        trials.append(trial(x, 0.3 / x))
        x = next_epsilon(trials, 0.1)
    met = [t.x for t in trials if t.met(0.1)]
    assert 3 <= min(met) < 3.6
    assert len(trials) <= 5


def test_the_search_gives_up_at_the_end_of_the_range() -> None:
    x: float | None = 8.0
    trials: list[Trial] = []
    while x is not None and len(trials) < 20:
        trials.append(trial(x, 0.5))
        x = next_epsilon(trials, 0.1)
    assert trials[-1].x == 64.0
    assert not any(t.met(0.1) for t in trials)


def test_a_lucky_mean_is_no_evidence_against_theory() -> None:
    assert trial(1, 0.08, 0.05, theory=0.1).met(0.1)
    assert next_epsilon([trial(1, 0.08, 0.05, theory=0.1)], 0.1) is None
    assert not trial(1, 0.08, 0.05, theory=0.2).met(0.1)  # 0.13 is within the interval
    assert trial(1, 0.08, 0.01, theory=0.2).met(0.1)  # simulation for sure
    assert not trial(1, 0.2, 0.05, theory=0.1).met(0.1)  # theory is wrong
    assert not trial(1, 0.09, 0.05, theory=0.037).met(0.1)  # and no evidence where it is far off
    assert trial(1, 0.09, 0.005, theory=0.037).met(0.1)
    assert not replace(trial(1, 0.05, theory=0.1), missing=1).met(0.1)


def test_a_factor_of_two_is_said() -> None:
    assert off(trial(1, 0.21, theory=0.1))
    assert off(trial(1, 0.04, theory=0.1))
    assert not off(trial(1, 0.19, theory=0.1))
    assert not off(trial(1, 0.19))


def test_clips_go_down_from_the_largest_user() -> None:
    from simulations.populations.zipf import Zipf

    loaded = Zipf(n_users=50, d=5, mean_items=40, tail=1.5, seed=1).load()
    largest = max(loaded.users.counts.count.reshape(-1).cumsum()[-1:].tolist())
    clips = [c["clip"] for c in variants("local-histogram", loaded, 1e-6, {})]
    assert clips == sorted(clips)
    assert all(isinstance(c, int) and 1 <= c <= largest for c in clips)
    both = variants("bounded-histogram", loaded, 1e-6, {})
    assert {c.get("delta") for c in both} == {None, 0.0}
    assert variants("bounded-histogram", loaded, 1e-6, {"clip": 3}) == [{}]


@pytest.mark.parametrize(
    ("given", "words"),
    [("ten", "positive share"), ("-1%", "positive share"), ("0.1", "10%"), ("nan", "positive")],
)
def test_an_error_that_cannot_be_meant(given: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        error_of(given)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("decide.targt=1", "did you mean 'target'"),
        ('decide.target="histgram"', "histogram"),
        ('decide.trust=["nobody"]', "must be a list of levels of trust"),
        ('decide.effort="lazy"', "quick, usual, thorough"),
        ("decide.epsilon=0", "positive"),
        ("protocol.epsilon=1", r"stands in \[decide\]"),
    ],
)
def test_what_cannot_be_asked(override: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        question("decide.error='5%'", override)


def test_something_must_be_asked() -> None:
    with pytest.raises(ValueError, match="nothing is asked"):
        question()


def test_a_runs_file_may_hold_a_question(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        '[decide]\nerror = "10%"\n'
        '[protocol]\nname = "bounded-histogram"\nepsilon = 1.0\nclip = 3.0\ntau_d = 0.05\n'
        '[population]\nkind = "zipf"\nn_users = 10\nd = 3\n'
    )
    assert load_config(path).protocol["clip"] == 3.0
    assert load_question(path).common == {"tau_d": 0.05}  # a clip is that protocol's alone


def test_built_in_questions_can_be_read() -> None:
    for name in builtin_decisions():
        assert load_question(name).error > 0


def test_a_level_without_an_estimate_is_neither_no_nor_measured() -> None:
    """One user is too few for the masks of 100 nodes: nothing was found out, and that is said."""
    people = 'kind = "zipf"\nn_users = 1\nd = 2\nmean_items = 3\ntail = inf\nseed = 7'
    text = f'[decide]\neffort = "quick"\nerror = "10%"\ntrust = "aggregate"\n[population]\n{people}'
    asked = question_of(parse_tables(text, ['decide.without=["adaptive-histogram"]']), "t", "t")
    found = decide(asked)
    assert found.findings[0].status == "unavailable"
    said = found.sentences()[1]
    assert "not available" in said
    assert "gave an estimate" in said
    assert "mostly noise" not in said
    assert found.table["met"].to_list() == ["n/a"]


def test_what_is_written_is_of_the_trial_that_counts(laplace: Decision) -> None:
    """The table [protocol] of the answer has the answer's epsilon, and so has its guarantee."""
    central = summary_of(laplace)["levels"][0]
    assert central["protocol"]["epsilon"] == central["x"] != USUAL_EPSILON
    own, later = laplace.findings[0], replace(laplace.findings[0].trials[-1], x=64.0, row=None)
    moved = replace(own, trials=(*own.trials, later))
    assert moved.row is not None
    assert f"{own.x:.3g}" in f"{moved.row.records[0].epsilon:.3g}"


def test_what_is_left_is_called_noise_only_if_it_is(laplace: Decision) -> None:
    own = laplace.findings[0]
    assert own.answer is not None
    unknown = replace(own, answer=replace(own.answer, limit="noise"), trials=())
    assert _left(unknown, ranked=False) == ""
    told = replace(unknown, answer=replace(own.answer, limit="noise 90%"))
    assert "mostly noise" in _left(told, ranked=False)
    assert own.trial is not None
    flat = tuple(replace(own.trial, x=x, error=0.3) for x in (41.0, 64.0))
    assert "not noise" in _left(replace(unknown, trial=flat[0], trials=flat), ranked=False)


def test_an_answer_without_data_is_said() -> None:
    """Uniform answers are near enough to nearly uniform users: the target asks for nothing."""
    people = (
        'kind = "zipf"\nn_users = 500\nd = 4\nmean_items = 5\ntail = inf\nexponent = 0.05\nseed = 7'
    )
    text = '[decide]\neffort = "quick"\nerror = "15%"\ntarget = "distribution"\n'
    asked = question_of(parse_tables(f'{text}trust = "central"\n[population]\n{people}'), "t", "t")
    found = decide(asked)
    free, least = without_data(found)
    assert free == "all alike (uniform)"
    assert 0 < least < 0.15
    assert "But answering all alike (uniform), without asking anybody, is" in found.verdict
    assert "meets the target" in found.verdict


def test_the_least_epsilon_is_an_upper_end() -> None:
    assert (_epsilon(0.01), _epsilon(0.5)) == ("epsilon = 0.01 or less", "epsilon = 0.5")


def test_less_trust_that_does_better_is_open_to_more(laplace: Decision) -> None:
    """A shuffler at epsilon 41, and nobody trusted at 4: the shuffler's users have 4, too."""
    own = laplace.findings[0]
    shuffle = replace(own, level=Trust.SHUFFLE, x=41.0)
    local = replace(own, level=Trust.LOCAL, x=4.0)
    told = replace(laplace, findings=(replace(own, x=0.1), shuffle, local)).sentences()[1:4]
    assert ["can be done here, too" in s for s in told] == [False, True, False]
    assert "Nobody trusted (local) takes epsilon = 4" in told[1]


def test_the_search_goes_on_where_theory_is_no_guide() -> None:
    assert next_epsilon([trial(41, 0.043, 0.023, theory=0.3)], 0.1) is not None
    assert next_epsilon([trial(41, 0.043, 0.023, theory=0.1)], 0.1) is None
    refuted = [trial(1.2, 0.14, 0.05, theory=0.1), trial(3, 0.05, 0.01, theory=0.05)]
    assert 1.2 < (next_epsilon(refuted, 0.1) or 0) < 3


def test_a_large_epsilon_is_not_just_fine(laplace: Decision) -> None:
    local = replace(laplace.findings[0], level=Trust.LOCAL, x=8.53)
    told = replace(laplace, findings=(local,))
    assert told.verdict == "for 2% nobody need be trusted, at epsilon = 8.53, a modest promise."
    assert any("e^8.53 = 5,064 times likelier" in note for note in notes(told))


def test_what_runs_warn_of_is_said(laplace: Decision) -> None:
    own = laplace.findings[0]
    assert own.trial is not None
    assert own.trial.row is not None
    first, *others = own.trial.row.records
    row = replace(own.trial.row, records=(replace(first, warnings=("a wrong window",)), *others))
    told = replace(laplace, findings=(replace(own, trial=replace(own.trial, row=row)),))
    assert any(n.startswith("central: a wrong window (1 of ") for n in notes(told))
    assert not any("a wrong window" in n for n in notes(laplace))


def test_users_who_are_everything_are_said(laplace: Decision) -> None:
    """Of the profile's warnings the one that says whom totals are about."""
    from fedhist.users.batch import Users
    from simulations.populations.base import Loaded

    users = Users.from_records({str(i): {"a": 400 if i < 2 else 2} for i in range(200)})
    loaded = Loaded(users, "uneven")
    settled = replace(laplace.settled, loaded=loaded, profile=profile_of(loaded))
    told = notes(replace(laplace, settled=settled))
    assert any(n.startswith("NOT PRIVATE: 2 of 200 users hold 66.9%") for n in told)
