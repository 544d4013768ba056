"""The sum is exact for whoever is present, or there is none."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedhist.secagg import NodeAttempt, OutOfOrder, Refused, RoundFailed, ServerAttempt
from tests.secagg.attempts import Play, terms_of

ROUNDS = ("keys", "shares", "masked", "unmask")


@pytest.mark.parametrize(("lost_in", "bits"), [*((r, 32) for r in ROUNDS), ("masked", 64)])
def test_every_set_of_nodes(lost_in: str, bits: int) -> None:
    terms = terms_of(6, 2, 1, bits=bits)
    everybody = range(6)
    for size in range(7):
        for lost in combinations(everybody, size):
            play = Play(terms)
            if size > 2:
                with pytest.raises(RoundFailed) as failed:
                    play.until("unmask", {lost_in: lost})
                assert set(failed.value.missing) == set(lost)
                assert failed.value.round_name == lost_in
                continue
            total = play.until("unmask", {lost_in: lost})
            present = set(everybody) - (set(lost) if lost_in != "unmask" else set())
            assert play.server.present == sorted(present)
            np.testing.assert_array_equal(total, play.sum_of(present))


def test_drops_in_every_round_at_once() -> None:
    play = Play(terms_of(12, 5, 1))
    total = play.until("unmask", {"keys": [0], "shares": [3], "masked": [5, 7], "unmask": [11]})
    np.testing.assert_array_equal(total, play.sum_of({1, 2, 4, 6, 8, 9, 10, 11}))


def test_a_sparse_graph() -> None:
    play = Play(terms_of(150, 15, 7, length=3, bits=64))
    assert play.terms.plan.degree < 149
    gone = {i for i in range(0, 150, 11)}
    total = play.until("unmask", {"masked": gone})
    np.testing.assert_array_equal(total, play.sum_of(set(range(150)) - gone))


def test_restarts_between_all_rounds() -> None:
    terms = terms_of(5, 1, 0)
    whole = Play(terms)
    expected = whole.until("unmask", {"masked": [2]})
    play = Play(terms)
    asks = play.server.start()
    for name in ROUNDS:
        answers = list(play.answer(name, asks, [2] if name == "masked" else []))
        play.server = ServerAttempt.resume(play.server.state(), terms)
        asks = getattr(play.server, f"take_{name}")(answers)
        for i, node in play.nodes.items():
            play.nodes[i] = NodeAttempt.resume(node.state(), terms, min_parties=2)
    np.testing.assert_array_equal(asks, expected)


def test_rounds_out_of_order_and_twice() -> None:
    play = Play(terms_of(4, 1, 0))
    asks = play.server.start()
    for at, name in enumerate(ROUNDS):
        node = play.nodes[0]
        extra = {"masked": (play.values[0],)}
        for other in ROUNDS:
            if other != name:
                with pytest.raises(OutOfOrder):
                    getattr(node, other)(asks[0], *extra.get(other, ()))
                with pytest.raises(OutOfOrder):
                    getattr(play.server, f"take_{other}")([])
        asks_before, asks = asks, getattr(play.server, f"take_{name}")(play.answer(name, asks, ()))
        if at < 3:
            with pytest.raises(OutOfOrder):
                getattr(node, name)(asks_before[0], *extra.get(name, ()))
    with pytest.raises(OutOfOrder):
        play.server.take_unmask([])


def test_a_node_unmasks_one_set() -> None:
    play = Play(terms_of(4, 1, 0))
    asks = play.until("masked")
    first = play.nodes[0].unmask(asks[0])
    again = play.nodes[0].unmask(asks[0])
    np.testing.assert_array_equal(first["shares"], again["shares"])
    other = Play(terms_of(4, 1, 0))
    smaller = other.until("masked", {"masked": [3]})[0]
    with pytest.raises(OutOfOrder, match="another set"):
        play.nodes[0].unmask(smaller)
    resumed = NodeAttempt.resume(play.nodes[0].state(), play.terms)
    with pytest.raises(OutOfOrder, match="another set"):
        resumed.unmask(smaller)
    with pytest.raises(Refused):
        other.nodes[0].unmask(asks[1])
