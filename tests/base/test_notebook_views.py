"""What a notebook shows of the core's objects: one line, and HTML in which all is escaped."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from markupsafe import escape

import fedhist as fh
from fedhist.base.html import MOST_ROWS, in_html
from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.protocols import BoundedHistogram
from fedhist.users.keys import Keys

USERS = fh.Users.from_records(
    {"ann": {"<b>tea</b>": 2}, "bob": {"rye": 1, "<b>tea</b>": 1}, "eve": {}}
)
PROTOCOL = BoundedHistogram(domain=USERS.vocabulary, clip=2.0, epsilon=1.0)


@pytest.fixture(scope="module")
def estimate() -> fh.Estimate:
    return fh.run(PROTOCOL, USERS, seed=1)


def test_a_run_in_one_line_each(estimate: fh.Estimate) -> None:
    assert repr(USERS) == "<Users: private records of 3 users, counts of 2 items>"
    assert repr(PROTOCOL.guarantee) == f"<Guarantee: {PROTOCOL.guarantee}>"
    assert repr(estimate) == "<Estimate ok: 2 values, total>"
    assert repr(estimate.ledger) == "<Ledger: 1 charge, epsilon = 1 at delta = 0>"
    assert repr(fh.Estimate.refused("too few\nusers")) == "<Estimate refused: too few users>"
    reals = fh.Users.from_records({"ann": [1.0, 2.0], "bob": [3.0]})
    assert repr(reals) == "<Users: private records of 2 users, samples of dimension 1>"
    assert "1 to 2, median 1.5" in reals._repr_html_()


def test_html_has_the_numbers_and_escapes_names(estimate: fh.Estimate) -> None:
    html = estimate._repr_html_()
    assert estimate.value is not None
    assert "&lt;b&gt;tea" in html
    assert "<b>tea" not in html
    for value in estimate.value.tolist():
        assert f"<td>{value!r}</td>" in html
    people = USERS._repr_html_()
    assert "NOT PRIVATE" in people
    assert "<td>events</td><td>4</td>" in people
    assert "0 to 2, median 1" in people
    assert "zero-out-user" in PROTOCOL.guarantee._repr_html_()
    assert estimate.ledger is not None
    assert "allowed: 1-DP per user" in estimate.ledger._repr_html_()
    assert "the paper claims" not in PROTOCOL._repr_html_()


def test_long_estimates_show_their_first_entries() -> None:
    long = fh.Estimate.ok(np.arange(100.0), stderr=np.ones(100), warnings=("think <twice>",))
    html = long._repr_html_()
    assert html.count("<tr>") == MOST_ROWS + 1
    assert "and 80 more" in html
    assert "warning: think &lt;twice&gt;" in html
    assert repr(fh.Estimate.ok(0.5)) == repr(fh.Estimate.ok([0.5])) == "<Estimate ok: 1 value>"
    assert "0.5" in fh.Estimate.ok(0.5)._repr_html_()


@pytest.mark.parametrize("name", sorted(own_protocols()))
def test_every_protocol_is_one_short_line(name: str) -> None:
    load_builtin()
    protocol = protocol_class(name).example()
    text = repr(protocol)
    assert text.startswith(f"{type(protocol).__name__}(")
    assert "\n" not in text
    assert len(text) < 500
    assert f"<p>{escape(protocol.paper)}</p>" in protocol._repr_html_()


def test_a_long_domain_does_not_fill_the_line() -> None:
    many = BoundedHistogram(domain=Keys.of(map(str, range(5000))), clip=2.0, epsilon=1.0)
    assert repr(many).startswith("BoundedHistogram(domain=Keys('0', '1', '2', '3', ...; 5000), ")


def test_a_protocol_may_write_its_own_line() -> None:
    @dataclass(frozen=True)
    class Mine(BoundedHistogram):
        more: tuple[int, ...] = field(default=())

        def __repr__(self) -> str:
            return "mine"

    assert repr(Mine(domain=USERS.vocabulary, clip=1.0, epsilon=1.0)) == "mine"


def test_html_of_nothing() -> None:
    assert in_html("a", []) == "<div><p><strong>a</strong></p></div>"


def test_nothing_of_a_value_is_read_as_markup_or_template() -> None:
    html = in_html("{{ 7 * 7 }}", [["\x1b", "'\""]], ["<i>"], ["{% raw %}"])
    assert html == (
        "<div><p><strong>{{ 7 * 7 }}</strong></p><table><thead><tr><th>&lt;i&gt;</th></tr></thead>"
        "<tbody><tr><td>\\x1b</td><td>&#39;&#34;</td></tr></tbody></table><p>{% raw %}</p></div>"
    )
