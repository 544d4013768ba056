"""What a notebook shows of the core's objects: one line."""

from __future__ import annotations

import pytest

import fedhist as fh
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
    assert repr(fh.Estimate.ok(0.5)) == repr(fh.Estimate.ok([0.5])) == "<Estimate ok: 1 value>"
    assert repr(fh.Estimate.refused("too few\nusers")) == "<Estimate refused: too few users>"
    reals = fh.Users.from_records({"ann": [1.0, 2.0], "bob": [3.0]})
    assert repr(reals) == "<Users: private records of 2 users, samples of dimension 1>"


@pytest.mark.parametrize("name", sorted(own_protocols()))
def test_every_protocol_is_one_short_line(name: str) -> None:
    load_builtin()
    protocol = protocol_class(name).example()
    text = repr(protocol)
    assert text.startswith(f"{type(protocol).__name__}(")
    assert "\n" not in text
    assert len(text) < 500


def test_a_long_domain_does_not_fill_the_line() -> None:
    many = BoundedHistogram(domain=Keys.of(map(str, range(5000))), clip=2.0, epsilon=1.0)
    assert repr(many).startswith("BoundedHistogram(domain=Keys('0', '1', '2', '3', ...; 5000), ")
