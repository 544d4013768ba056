"""Studies from Python: the same runs as the command line, with data in memory."""

from __future__ import annotations

import gc
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from commands import Command

import fedhist as fh
from fedhist.protocols import BoundedHistogram, ItemHistogram
from simulations.populations import population
from simulations.populations.memory import hold

ROWS = [(f"u{i % 40}", ("tea", "rye", "oat")[i % 3]) for i in range(200)]
FRAME = pl.DataFrame(ROWS, schema=["user", "item"], orient="row")
USERS = fh.Users.from_frame(FRAME, user="user", item="item")
ITEMS = ["tea", "rye", "fig"]
HISTOGRAM: Any = {"epsilon": 1.0, "seeds": 2, "protocols": ["bounded-histogram"]}
CLIP = {"clip": 3.0}


class WithPandas:
    """A frame of somebody else's."""

    def to_pandas(self) -> pd.DataFrame:
        return FRAME.to_pandas()


@pytest.mark.parametrize("data", [FRAME, FRAME.lazy(), FRAME.to_pandas(), WithPandas(), USERS])
def test_all_kinds_of_data_give_the_same_comparison(data: Any) -> None:
    columns = {} if isinstance(data, fh.Users) else {"user": "user", "item": "item"}
    found = fh.compare(data=data, **columns, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    expected = fh.compare(data=USERS, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    assert [r.loss for r in found.records] == [r.loss for r in expected.records]
    assert "data in memory: 40 users, 3 items" in found.title


def test_memory_and_a_file_give_the_same_losses(fedhist: Command, tmp_path: Path) -> None:
    """A loss depends on the users and the settings, not on where the users come from."""
    path = tmp_path / "events.csv"
    FRAME.write_csv(path)
    (tmp_path / "items.txt").write_text("\n".join(ITEMS))
    text = '[run]\nruntime = "inline"\n[compare]\nepsilon = 1.0\nseeds = 2\n'
    text += 'protocols = [{name = "bounded-histogram"}]\n[protocol]\nclip = 3.0\n[population]\n'
    text += f'kind = "events"\npath = "{path}"\nuser = "user"\nitem = "item"\n'
    (tmp_path / "study.toml").write_text(text + f'domain = "{tmp_path / "items.txt"}"\n')
    columns: Any = {"user": "user", "item": "item"}
    here = fh.compare(data=FRAME, **columns, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    file = fh.compare(tmp_path / "study.toml")
    items = tmp_path / "items.txt"
    by_path = fh.compare(data=path, **columns, domain=items, protocol=CLIP, **HISTOGRAM)
    fedhist("compare", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out"))
    losses = [r.loss for r in fh.show(tmp_path / "out").records]
    for found in (here, file, by_path):
        assert [r.loss for r in found.records] == losses


def test_a_study_file_s_tables_are_completed_by_keywords() -> None:
    study = fh.Study.open("quickstart", data=USERS, top=2, protocol={"clip": 2.0})
    assert study.tables["protocol"]["name"] == "bounded-histogram"
    assert study.tables["protocol"]["clip"] == 2.0
    other = study.given(protocol={"name": "item-histogram"})
    assert other.tables["protocol"] == {"name": "item-histogram"}  # a clip means nothing to it
    assert repr(other) == "<Study quickstart: population, protocol, run>"
    found = fh.compare(study, epsilon=1.0, seeds=1, protocols=[{"name": "item-histogram"}])
    assert [row.label for row in found.lines] == ["item-histogram"]


def test_protocols_may_be_objects_and_classes() -> None:
    mine = BoundedHistogram(domain=fh.Keys.of(ITEMS), clip=3.0, epsilon=1.0)
    own: Any = {**HISTOGRAM, "protocols": [mine, ItemHistogram]}
    found = fh.compare(data=USERS, domain=ITEMS, **own)
    named = fh.compare(data=USERS, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    assert {row.protocol for row in found.lines} == {"bounded-histogram", "item-histogram"}
    row = next(r for r in found.lines if r.protocol == "bounded-histogram")
    assert row.losses == named.lines[0].losses


def test_a_comparison_says_who_was_left_out() -> None:
    found = fh.compare(data=USERS, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    assert len(found.tables()) == 1
    other = replace(found, about={**found.about, "left_out": [["mine", "it costs <more>"]]})
    assert "- mine: it costs <more>" in other.to_markdown()
    assert "it costs &lt;more&gt;" in other.to_html()


def test_a_grid_and_its_folder(tmp_path: Path) -> None:
    axes = {"protocol.epsilon": np.array([1.0, 8.0])}
    protocol = {"name": "bounded-histogram", **CLIP}
    given: Any = {"data": USERS, "domain": ITEMS, "protocol": protocol, "seeds": 2}
    found = fh.compare(axes=axes, out=tmp_path / "mine", **given)
    assert [x.setting["protocol.epsilon"] for x in found.lines] == [1.0, 8.0]
    assert {x.rank for x in found.lines} == {None}
    again = fh.compare(axes=axes, **given)
    assert again.table["loss"].equals(found.table["loss"])
    assert fh.show(tmp_path / "mine").table.equals(found.table)
    with pytest.raises(ValueError, match="no such folder of results"):
        fh.show(tmp_path / "no")
    ranked = fh.compare(axes=axes, epsilon=1.0, **{**given, "protocols": ["bounded-histogram"]})
    assert [(x.setting["protocol.epsilon"], x.rank) for x in ranked.lines] == [(1, 1), (8, 1)]


def test_an_audit_of_an_object_and_of_a_name() -> None:
    protocol = BoundedHistogram.example()
    found = fh.audit(protocol, effort=0.01)
    assert not found.violated
    assert {f.epsilon for f in found.findings} == {protocol.epsilon}
    assert {f.epsilon for f in fh.audit("bounded-histogram", effort=0.01, epsilon=2).findings} == {
        2
    }
    with pytest.raises(
        TypeError, match="protocol must be a protocol, its class or its name, got int"
    ):
        fh.audit(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown parameter of bounded-histogram 'clipp'; did you"):
        fh.audit(protocol, clipp=3.0)


def test_a_profile_and_a_decision_of_data_in_memory() -> None:
    found = fh.decide(data=FRAME, user="user", item="item", domain=["tea", "fig"], profile=True)
    assert (found.n_users, found.n_events) == (40, 200)
    assert found.outside.events == pytest.approx(1 - 67 / 200)
    asked: Any = {"error": "50%", "effort": "quick", "trust": ["central"]}
    decided = fh.decide(data=USERS, domain=ITEMS, target="histogram", **asked)
    (finding,) = decided.findings
    assert finding.x is not None
    assert finding.trial is not None
    assert finding.trial.met(0.5)
    with pytest.raises(AttributeError, match="profile=True"):
        _ = fh.profile


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": 5}, "data must be a polars or pandas frame, .* got int: 5"),
        ({"data": FRAME, "item": "item"}, r"user must name a column .* \['user', 'item'\]"),
        ({"data": FRAME, "user": 0}, "user must be the name of a column, got 0"),
        ({"data": USERS, "user": "user"}, "user names a column; Users have none"),
        ({"data": {"kind": "zipf"}, "item": "i"}, "item names a column of a frame or a file, not"),
        ({"user": "u"}, "user describes data, which is not given: user='u'"),
        ({}, r"fedhist\.compare needs data: data=\.\.\."),
        ({"data": USERS, "epsilom": 1}, r"compare\(\) has no argument 'epsilom' \(=1\); did you"),
        ({"data": USERS, "loss": object()}, "loss must be made of numbers, .* got object: <object"),
        ({"data": USERS, "run": 3}, 'run must be a table, such as {"seed": 1}, got 3'),
        ({"data": USERS, "population": {"kind": "zipf"}}, "give data or population, not both"),
        ({"data": FRAME["user"], "user": "user"}, "data must be a polars .* got Series: "),
        ({"data": USERS, "domain": 3}, "domain must be a list of items or a file, got 3"),
        ({"data": USERS, "plugins": [3]}, r"plugins must be a path or several, got \[3\]"),
        (
            {"study": FRAME},
            r"the study must be .* got shape: .*\(users are given as data=\.\.\.\)$",
        ),
        (
            {"data": "a.csv", "domain": ["tea"]},
            r"domain must be a file beside such data, got \['tea'",
        ),
    ],
)
def test_wrong_arguments_are_type_errors_that_name_them(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fh.compare(**({"target": "histogram", "epsilon": 1.0} | given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": "one"}, r"compare\.epsilon must be a positive number, got 'one'"),
        ({"workers": 2}, "data in memory are studied in this process: workers must be 0, got 2"),
        (
            {"data": FRAME, "user": "usr"},
            "user='usr' is no column of the data; did you",
        ),
        ({"data": {"n_users": 3}}, r"needs a kind, got \{'n_users': 3\}"),
        ({"study": "nothing"}, "unknown study 'nothing'"),
        ({"top": 0}, "top must be a positive integer, got 0"),
        ({"domain": []}, r"domain must hold an item at least, got \[\]"),
    ],
)
def test_values_that_cannot_be_meant_are_value_errors(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fh.compare(**({"data": USERS, "target": "histogram", "epsilon": 1.0} | given))


def test_other_functions_name_their_arguments() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: fh.Study.open(None), "file must be a path or a name, got None"),  # type: ignore[arg-type]
        (lambda: fh.show(3), "folder must be a path, got 3"),  # type: ignore[arg-type]
        (lambda: fh.compare(data=USERS, axes="epsilon"), "axes must be a mapping .* got 'epsilon'"),
        (lambda: fh.audit("mean", effort="x"), "effort must be a number, got 'x'"),  # type: ignore[arg-type]
        (lambda: fh.audit("mean", inputs=3), "inputs must be two records, got 3"),  # type: ignore[arg-type]
        (lambda: fh.audit("mean", plugins=[3]), r"plugins must be a path .* got \[3\]"),  # type: ignore[list-item]
    ]
    for call, message in wrong:
        with pytest.raises(TypeError, match=message):
            call()
    with pytest.raises(ValueError, match="seed must be a non-negative integer, got -1"):
        fh.audit("mean", seed=-1)


def test_help_and_completion_know_the_keys_of_the_files() -> None:
    known = inspect.signature(fh.compare).parameters
    assert {"data", "user", "top", "epsilon", "seeds", "protocols", "workers"} <= set(known)
    assert known["epsilon"].annotation == "a positive number"
    assert "axes" in known
    assert "error" in inspect.signature(fh.decide).parameters


def test_some_users_in_memory_are_chosen_by_their_ids() -> None:
    """Whoever stands first may be whoever has most."""
    backwards = USERS.take(np.arange(40)[::-1])
    held = hold(backwards)
    some = population(**held.table, max_users=7).load().users
    assert sorted(some.ids.tolist()) == USERS.ids[:7].tolist()
    assert np.array_equal(population(**held.table, max_users=99).load().users.ids, backwards.ids)


def test_users_in_memory_are_there_while_they_are_held() -> None:
    users = fh.Users.from_records({"ann": {"tea": 2}, "bob": {"rye": 1}})
    held = hold(users)
    table = dict(held.table)
    assert hold(fh.Users.from_records({"bob": {"rye": 1}, "ann": {"tea": 2}})) is held
    assert hold(users, users.vocabulary) is not held
    assert hold(fh.Users.from_records({"ann": {"tea": 2}, "bob": {"rye": 2}})) is not held
    assert population(**table).load().users is users
    assert population(**table, top=1).load().not_private
    reals = hold(fh.Users.from_records({"ann": [1.0]}))
    with pytest.raises(fh.PopulationError, match="top and domain are about items"):
        population(**reals.table, top=1).load()
    del held
    gc.collect()
    with pytest.raises(fh.PopulationError, match="hand them over again, as data="):
        population(**table).load()
