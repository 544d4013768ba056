"""A server that shows different things to different nodes, and what each check is worth."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from fedhist.secagg import (
    Message,
    NodeAttempt,
    OutOfOrder,
    Refused,
    RoundFailed,
    SecaggError,
    Terms,
)
from fedhist.secagg import keys as k
from fedhist.secagg.messages import LAYOUT, seal
from fedhist.secagg.shamir import SHARE, combine, weights
from tests.secagg.attempts import Play, entropy, terms_of


def asked(play: Play, name: str, node: int, **fields: Any) -> Message:
    return seal(f"{name}.ask", play.server.session, node, **fields)


def nodes_of(*nodes: int) -> Any:
    return np.array(sorted(nodes), "<u4")


def test_different_sets_to_different_nodes_give_one_secret() -> None:
    """N = 5, t = 4, node 4 colludes: every honest node is shown any admissible set on its own."""
    play = Play(terms_of(5, 1, 1))
    assert play.terms.plan.threshold == play.terms.least == 4
    play.until("masked")
    sets = [nodes_of(*s) for size in (4, 5) for s in combinations(range(5), size)]
    colluder = play.nodes[4]._state.held
    given: dict[tuple[int, int], Any] = {}
    for i, (at, present) in product(range(4), enumerate(sets)):
        node = NodeAttempt.resume(play.nodes[i].state(), play.terms, min_parties=2)
        if i in present:
            given[i, at] = node.unmask(asked(play, "unmask", i, present=present))["shares"]
    restored = defaultdict(set)
    ways = 0
    for shown in product(range(len(sets)), repeat=4):
        if not all((i, at) in given for i, at in enumerate(shown)):
            continue
        ways += 1
        for j in range(4):
            shares: dict[str, dict[int, bytes]] = {
                "b": {4: colluder[j][SHARE:]},
                "r": {4: colluder[j][:SHARE]},
            }
            for i, at in enumerate(shown):
                kind = "b" if j in sets[at] else "r"
                shares[kind][i] = given[i, at][j].tobytes()
            enough = [kind for kind, those in shares.items() if len(those) >= 4]
            assert len(enough) <= 1
            for kind in enough:
                at = sorted(shares[kind])[:4]
                words = [int.from_bytes(shares[kind][i], "little") for i in at]
                secret = combine(words, weights([i + 1 for i in at])).to_bytes(16, "little")
                restored[j, kind].add(secret)
    assert ways == 5**4
    for j in range(4):
        (b,) = restored[j, "b"]
        assert k.commitment(b, play.server.session, j) == play.server._state.keys[j][64:]
        (r,) = restored[j, "r"]
        private = k.mask_private_key(r, play.server.session, j)
        assert k.public_key(private) == play.server._state.keys[j][32:64]


@pytest.mark.parametrize(
    ("present", "told"),
    [
        ((0, 1, 2), "3"),
        ((1, 2, 3, 4), "itself"),
        ((0, 1, 2, 5), "without shares"),
        ((0, 1, 2, 3, 5), "without shares"),
        ((0, 1, 2, 3, 9), "6"),
        ((), "itself"),
    ],
)
def test_sets_that_no_node_unmasks(present: tuple[int, ...], told: str) -> None:
    """N = 6, quorum 4; node 5 never sent shares. The node still unmasks the true set after."""
    play = Play(terms_of(6, 2, 0))
    asks = play.until("masked", {"shares": [5]})
    with pytest.raises(Refused, match=told):
        play.nodes[0].unmask(asked(play, "unmask", 0, present=nodes_of(*present)))
    total = play.server.take_unmask(play.answer("unmask", asks, ()))
    np.testing.assert_array_equal(total, play.sum_of(range(5)))


def test_too_few_in_the_roster() -> None:
    play = Play(terms_of(9, 2, 0), min_parties=9)
    asks = play.until("keys", {"keys": [8]})
    with pytest.raises(Refused, match="has 8 nodes, the owner asks for 9"):
        play.nodes[0].shares(asks[0])
    play = Play(terms_of(9, 2, 0))
    ask = play.until("keys")[0]
    rows = {name: ask[name][:6] for name in LAYOUT["shares.ask"]}
    with pytest.raises(Refused, match="the roster: 6 nodes are fewer than 7"):
        play.nodes[0].shares(asked(play, "shares", 0, **rows))


def roster_with(play: Play, row: bytes, at: int = 3) -> Message:
    ask = play.until("keys")[0]
    rows = {name: ask[name].copy() for name in LAYOUT["shares.ask"]}
    rows["keys"][at] = np.frombuffer(row, "u1")
    return asked(play, "shares", 0, **rows)


@pytest.mark.parametrize("u", [*sorted(k.SMALL_ORDER)])
def test_points_of_small_order(u: int) -> None:
    """The library refuses exactly these, too: everybody would know what is agreed on."""
    point = u.to_bytes(32, "little")
    with pytest.raises(ValueError, match="Error computing shared key"):
        k.pair_key(k.X25519PrivateKey.generate(), point, bytes(16), 0, 1, b"pair")
    for row in (point + bytes([9] * 64), bytes([9] * 32) + point + bytes([7] * 32)):
        play = Play(terms_of(5, 1, 0))
        with pytest.raises(Refused, match="node 3 is of small order"):
            play.nodes[0].shares(roster_with(play, row))


def test_keys_that_come_twice() -> None:
    play = Play(terms_of(5, 1, 0))
    play.until("keys")
    other, fresh = play.server._state.keys[2], k.public_key(bytes([3] * 32))
    for row in (
        other,  # another node's
        other[:32] + fresh + bytes([1] * 32),  # its encryption key
        fresh + other[:32] + bytes([1] * 32),  # its mask key as the other
        fresh + fresh + bytes([1] * 32),  # one key for both
        fresh + k.public_key(bytes([4] * 32)) + other[64:],  # its commitment
    ):
        again = Play(terms_of(5, 1, 0))
        with pytest.raises(Refused, match=r"of node (2|3) comes twice"):
            again.nodes[0].shares(roster_with(again, row))


def test_a_node_with_bad_keys_is_left_out_by_name() -> None:
    play = Play(terms_of(5, 1, 0))
    answers = dict(play.answer("keys", play.server.start(), ()))
    zero = np.zeros(96, "u1")
    answers[3] = seal("keys.answer", play.server.session, 3, keys=zero, signed=zero[:0])
    asks = play.server.take_keys(answers.items())
    assert sorted(asks) == [0, 1, 2, 4]
    assert play.server.refused == {3: "a public key of node 3 is of small order"}


OWNERS = {i: entropy("owners")(32)[:31] + bytes([i]) for i in range(5)}
PEERS = {k.owner_public_key(key) for key in OWNERS.values()}


def signed_play(**changed: Any) -> Play:
    play = Play(terms_of(5, 1, 0))
    for i in range(5):
        settings = {"owner_key": OWNERS[i], "peers": PEERS, "min_parties": 2}
        if i == 4:
            settings |= changed
        play.nodes[i] = NodeAttempt(play.terms, i, entropy=entropy(f"signed {i}"), **settings)
    return play


def test_signed_by_peers() -> None:
    play = signed_play()
    np.testing.assert_array_equal(play.until("unmask", {"masked": [2]}), play.sum_of({0, 1, 3, 4}))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"owner_key": None, "peers": None}, "the keys of node 4 bear no valid signature"),
        ({"owner_key": bytes(32)}, "node 4 is signed for by nobody among the peers"),
        ({"owner_key": OWNERS[3]}, "nodes 3 and 4 are signed for by one owner"),
        ({"owner_key": OWNERS[0]}, "nodes 0 and 4 are signed for by one owner"),
    ],
)
def test_strangers_in_the_roster(changed: dict[str, Any], reason: str) -> None:
    play = signed_play(**changed)
    ask = play.until("keys")[0]
    with pytest.raises(Refused, match=reason):
        play.nodes[0].shares(ask)


def test_zeros_are_no_signature() -> None:
    """As an Ed25519 key they have order 4: zeros signed one text in four (all pass: 4^-64)."""
    for node in range(64):
        with pytest.raises(Refused, match=f"the keys of node {node} bear no valid signature"):
            k.signer_of(bytes(96), bytes(16), b"q", node, bytes(96))


def test_the_server_s_own_keys_under_a_peer_s_old_signature() -> None:
    """A signature binds session, query, node and keys: none can be taken over."""
    play = signed_play()
    ask = play.until("keys")[0]
    rows = {name: ask[name].copy() for name in LAYOUT["shares.ask"]}
    rows["keys"][2, :32] = np.frombuffer(k.public_key(bytes([5] * 32)), "u1")
    with pytest.raises(Refused, match="the keys of node 2 bear no valid signature"):
        play.nodes[0].shares(asked(play, "shares", 0, **rows))
    keys, digest = bytes(range(96)), b"q"
    signed = k.sign(OWNERS[0], bytes(16), digest, 7, keys)
    assert k.signer_of(signed, bytes(16), digest, 7, keys) == k.owner_public_key(OWNERS[0])
    for other in (
        (b"\1" * 16, digest, 7, keys),
        (bytes(16), b"p", 7, keys),
        (bytes(16), digest, 8, keys),
        (bytes(16), digest, 7, keys[::-1]),
    ):
        with pytest.raises(Refused, match="no valid signature"):
            k.signer_of(signed, *other)


def test_messages_of_another_attempt() -> None:
    """A retry sends the same values under other masks; what belongs to one is refused by both."""
    first, retry = Play(terms_of(4, 1, 0)), Play(terms_of(4, 1, 0), "retry")
    retry.values = first.values
    asks, others = first.until("shares"), retry.until("shares")
    with pytest.raises(Refused, match="session"):
        first.nodes[0].masked(others[0], first.values[0])
    swapped = asked(first, "masked", 0, present=asks[0]["present"], boxes=others[0]["boxes"])
    with pytest.raises(Refused, match="node 1 for node 0"):
        first.nodes[0].masked(swapped, first.values[0])
    other = NodeAttempt(Terms(b"other", 4, 1, 0, 32, 5), 0)
    with pytest.raises(Refused, match="session"):
        other.keys(Play(first.terms).server.start()[0])
    one, two = (
        {i: a["values"].tobytes() for i, a in play.answer("masked", some, ())}
        for play, some in ((first, asks), (retry, others))
    )
    assert all(one[i] != two[i] for i in one)


def test_secrets_are_gone_once_they_are_used() -> None:
    play = Play(terms_of(4, 1, 0))
    play.until("unmask")
    for i in range(4):
        draw = entropy(f"play {i}")
        r, b, enc = draw(16), draw(16), draw(32)
        state = play.nodes[i].state()
        assert not any(secret in state for secret in (r, b, enc))
        assert play.nodes[i]._state.held == {}
        assert play.nodes[i].next_round is None


def test_states_of_other_terms_or_damaged() -> None:
    play = Play(terms_of(4, 1, 0))
    play.until("shares")
    for side in (play.nodes[0], play.server):
        for state, terms in [
            (side.state(), terms_of(4, 1, 1)),
            (side.state()[:-1], play.terms),
            (b"", play.terms),
            (b"\x80", play.terms),
        ]:
            with pytest.raises(SecaggError, match="the state of an attempt"):
                type(side).resume(state, terms)


def test_unmask_goes_on_with_what_comes_late() -> None:
    """Too few answers, a restart of the server, the rest: the sum, once."""
    play = Play(terms_of(6, 2, 0))
    asks = play.until("masked", {"masked": [5]})
    early = dict(play.answer("unmask", asks, (3, 4)))
    assert len(early) == play.terms.plan.threshold - 1
    with pytest.raises(RoundFailed, match="too few shares") as failed:
        play.server.take_unmask(early.items())
    assert set(failed.value.missing) == {3, 4}
    play.server = play.server.resume(play.server.state(), play.terms)
    asks = play.server.ask_unmask()
    total = play.server.take_unmask(play.answer("unmask", asks, ()))
    np.testing.assert_array_equal(total, play.sum_of(range(5)))
    with pytest.raises(OutOfOrder):
        play.server.ask_unmask()


def wrong_shares(play: Play, asks: dict[int, Message], liars: set[int]) -> Any:
    for i, answer in play.answer("unmask", asks, ()):
        shares = answer["shares"] ^ np.uint8(i in liars)
        yield i, seal("unmask.answer", play.server.session, i, shares=shares)


def test_wrong_shares_cost_no_sum_while_enough_others_are_right() -> None:
    """N = 9, t = 6: one liar is found and named; two among the first six are not told apart."""
    play = Play(terms_of(9, 2, 1))
    total = play.server.take_unmask(wrong_shares(play, play.until("masked"), {4}))
    np.testing.assert_array_equal(total, play.sum_of(range(9)))
    assert play.server.refused == {4: "its share of node 0 is wrong"}
    play = Play(terms_of(9, 2, 1))
    with pytest.raises(RoundFailed, match="node 0: its shares restore"):
        play.server.take_unmask(wrong_shares(play, play.until("masked"), {1, 4}))
    with pytest.raises(RoundFailed, match="node 0: its shares restore"):
        play.server.take_unmask([])
    play = Play(terms_of(9, 3, 1))
    asks = play.until("masked", {"masked": [0, 8, 7]})
    with pytest.raises(RoundFailed, match="node 0: its shares restore"):
        play.server.take_unmask(wrong_shares(play, asks, {2}))


def test_bad_settings_are_named() -> None:
    terms = terms_of(4, 1, 0)
    for name, given in (
        ("node", (4, {})),
        ("owner_key", (0, {"owner_key": b"short"})),
        ("peers", (0, {"peers": [b"short"]})),
    ):
        with pytest.raises(ValueError, match=name):
            NodeAttempt(terms, given[0], **given[1])
    play = Play(terms)
    asks = play.until("shares")
    for values in (np.zeros(4, "u4"), np.zeros(5, "u8"), np.zeros((5, 1), "u4")):
        with pytest.raises(ValueError, match="values"):
            play.nodes[0].masked(asks[0], values)


@pytest.mark.parametrize(("users", "taken"), [(7, True), (8, False)])
def test_a_reply_for_more_users_than_asked_is_left_out(users: int, taken: bool) -> None:
    play = Play(terms_of(5, 1, 1))
    asks = play.until("shares")
    answers = [
        (i, play.nodes[i].masked(ask, play.values[i], users if i == 2 else 7))
        for i, ask in asks.items()
    ]
    play.server.take_masked(answers, most_users=7)
    assert (2 in play.server.present) == taken
    assert (2 in play.server.refused) != taken
