"""Studies from Python: the same runs as the command line, with data in memory."""

from __future__ import annotations

import gc
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
    result = fh.compare(data=data, **columns, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    expected = fh.compare(data=USERS, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    assert [r.loss for r in result.records] == [r.loss for r in expected.records]
    assert "data in memory: 40 users, 3 items" in result.title


def test_memory_and_a_file_give_the_same_losses(fedhist: Command, tmp_path: Path) -> None:
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
    for result in (here, file, by_path):
        assert [r.loss for r in result.records] == losses


def test_a_study_file_s_tables_are_completed_by_keywords(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        '[sweep]\n"protocol.epsilon" = [1]\n[protocol]\nname = "bounded-histogram"\nclip = 9.0\n'
    )
    made = fh.compare(file, data=USERS, top=2, protocol={"clip": 2.0}).records[0].cell["protocol"]
    assert made | {"clip": 2, "epsilon": 1, "name": "bounded-histogram"} == made
    given = {"name": "item-histogram"}  # a clip means nothing to it
    other = fh.compare(file, data=USERS, top=2, protocol=given).records[0].cell["protocol"]
    assert other["name"] == "item-histogram"
    assert "clip" not in other


def test_protocols_may_be_objects_and_classes() -> None:
    mine = BoundedHistogram(domain=fh.Keys.of(ITEMS), clip=3.0, epsilon=1.0)
    own: Any = {**HISTOGRAM, "protocols": [mine, ItemHistogram]}
    result = fh.compare(data=USERS, domain=ITEMS, **own)
    named = fh.compare(data=USERS, domain=ITEMS, protocol=CLIP, **HISTOGRAM)
    assert {row.protocol for row in result.lines} == {"bounded-histogram", "item-histogram"}
    row = next(r for r in result.lines if r.protocol == "bounded-histogram")
    assert row.losses == named.lines[0].losses


def test_a_grid_and_its_folder(tmp_path: Path) -> None:
    axes = {"protocol.epsilon": np.array([1.0, 8.0])}
    protocol = {"name": "bounded-histogram", **CLIP}
    given: Any = {"data": USERS, "domain": ITEMS, "protocol": protocol, "seeds": 2}
    result = fh.compare(axes=axes, out=tmp_path / "mine", **given)
    assert [x.setting["protocol.epsilon"] for x in result.lines] == [1.0, 8.0]
    assert {x.rank for x in result.lines} == {1}
    again = fh.compare(axes=axes, **given)
    assert again.table["loss"].equals(result.table["loss"])
    assert fh.show(tmp_path / "mine").table.equals(result.table)
    with pytest.raises(ValueError, match="no such folder of results"):
        fh.show(tmp_path / "no")
    ranked = fh.compare(axes=axes, epsilon=1.0, **{**given, "protocols": ["bounded-histogram"]})
    assert [(x.setting["protocol.epsilon"], x.rank) for x in ranked.lines] == [(1, 1), (8, 1)]


def test_an_audit_of_an_object_and_of_a_name() -> None:
    protocol = BoundedHistogram.example()
    for told, epsilon in ((protocol, protocol.epsilon), ("bounded-histogram", 2)):
        result = fh.audit(told, effort=0.01, epsilon=epsilon)
        assert not result.violated
        assert {f.epsilon for f in result.findings} == {epsilon}
    with pytest.raises(ValueError, match="'clipp'"):
        fh.audit(protocol, clipp=3.0)


def test_a_profile_and_a_decision_of_data_in_memory() -> None:
    result = fh.decide(data=FRAME, user="user", item="item", domain=["tea", "fig"], profile=True)
    assert (result.n_users, result.n_events) == (40, 200)
    asked: Any = {"error": "50%", "effort": "quick", "trust": ["central"]}
    decided = fh.decide(data=USERS, domain=ITEMS, target="histogram", **asked)
    assert decided.findings[0].status == "yes"
    with pytest.raises(AttributeError, match="profile=True"):
        _ = fh.profile


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": 5}, "data.* 5"),
        ({"data": FRAME, "item": "item"}, "user"),
        ({"data": FRAME, "user": 0}, "user.* 0"),
        ({"data": USERS, "user": "user"}, "user"),
        ({"data": {"kind": "zipf"}, "item": "i"}, "item"),
        ({"user": "u"}, "user='u'"),
        ({}, "data="),
        ({"data": USERS, "epsilom": 1}, "'epsilom'"),
        ({"data": USERS, "loss": object()}, "loss"),
        ({"data": USERS, "run": 3}, "run.* 3"),
        ({"data": USERS, "population": {"kind": "zipf"}}, "population"),
        ({"data": USERS, "domain": 3}, "domain.* 3"),
        ({"data": USERS, "plugins": [3]}, "plugins"),
        ({"study": FRAME}, "data="),
        ({"data": "a.csv", "domain": ["tea"]}, "domain"),
    ],
)
def test_wrong_arguments_are_type_errors_that_name_them(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        fh.compare(**({"target": "histogram", "epsilon": 1.0} | given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epsilon": "one"}, "'one'"),
        ({"workers": 2}, "workers"),
        ({"data": {"n_users": 3}}, "kind"),
        ({"study": "nothing"}, "'nothing'"),
        ({"top": 0}, "top"),
        ({"domain": []}, "domain"),
    ],
)
def test_values_that_cannot_be_meant_are_value_errors(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fh.compare(**({"data": USERS, "target": "histogram", "epsilon": 1.0} | given))


def test_frames_that_hold_no_users_are_refused() -> None:
    for data, user in ((FRAME, "usr"), (FRAME["user"], "user"), (5, "user")):
        with pytest.raises(fh.PopulationError):
            fh.compare(data=data, user=user, item="item", target="histogram", epsilon=1.0)


def test_other_functions_name_their_arguments() -> None:
    wrong: list[tuple[Any, str]] = [
        (lambda: fh.show(3), "folder.* 3"),
        (lambda: fh.compare(data=USERS, axes="epsilon"), "axes"),
        (lambda: fh.audit(5), "protocol.* int"),
        (lambda: fh.audit("mean", effort="x"), "'x'"),
        (lambda: fh.audit("mean", inputs=3), "inputs"),
        (lambda: fh.audit("mean", plugins=[3]), "plugins"),
    ]
    for call, named in wrong:
        with pytest.raises(TypeError, match=named):
            call()
    with pytest.raises(ValueError, match="-1"):
        fh.audit("mean", seed=-1)


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
