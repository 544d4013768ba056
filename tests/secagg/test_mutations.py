"""Every field of every message, damaged: a named refusal, and the others' sum or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedhist.secagg import Message, Refused, RoundFailed
from fedhist.secagg.messages import LAYOUT, seal, unseal
from tests.secagg.attempts import Play, entropy, terms_of

VICTIM = 1
EVERY = [(kind, field) for kind in LAYOUT for field in ("session", "node", "check", *LAYOUT[kind])]


def flipped(message: Message, field: str) -> Message:
    value = message[field]
    if field == "node":
        return {**message, field: value ^ 1}
    data = bytearray(value if isinstance(value, bytes) else value.tobytes())
    at = len(data) // 2
    data[at] ^= 1 << (at % 8)
    if isinstance(value, bytes):
        return {**message, field: bytes(data)}
    return {**message, field: np.frombuffer(bytes(data), value.dtype).reshape(value.shape)}


def sealed_again(kind: str, message: Message) -> Message:
    fields = {name: message[name] for name in LAYOUT[kind]}
    return seal(kind, message["session"], message["node"], **fields)


class Damaging(Play):
    """One message of the victim's, changed on its way."""

    def __init__(self, kind: str, change: Any, **settings: Any) -> None:
        super().__init__(terms_of(6, 1, 1), **settings)
        self.kind, self.change, self.seen = kind, change, ""

    def answer(self, name: str, asks: dict[int, Message], lost: Any) -> Any:
        for i, ask in asks.items():
            if i == VICTIM and self.kind == f"{name}.ask":
                ask = self.change(ask)
            extra = (self.values[i],) if name == "masked" else ()
            try:
                answer = getattr(self.nodes[i], name)(ask, *extra)
            except Refused as e:
                self.seen += f"{i}: {e}; "
                continue
            if i == VICTIM and self.kind == f"{name}.answer":
                answer = self.change(answer)
            yield i, answer


def outcome(play: Damaging) -> str:
    try:
        total = play.until("unmask")
    except RoundFailed as e:
        return f"{play.seen}failed: {e}"
    np.testing.assert_array_equal(total, play.sum_of(play.server.present))
    return f"{play.seen}present: {play.server.present}, {play.server.refused}"


@pytest.mark.parametrize(("kind", "field"), EVERY)
def test_a_bit_turns_over(kind: str, field: str) -> None:
    signed = {"owner_key": entropy("owner")(32)} if field == "signed" else {}
    play = Damaging(kind, lambda m: flipped(m, field), **signed)
    reasons: dict[int, str] = {}
    take = play.server._usable

    def usable(*args: Any) -> Any:
        yield from take(*args)
        reasons.update({i: r for i, r in play.server.refused.items() if r != "no answer"})

    play.server._usable = usable
    told = outcome(play)
    present = [0, 2, 3, 4, 5] if not kind.startswith("unmask") else [0, 1, 2, 3, 4, 5]
    assert f"present: {present}" in told
    if kind.endswith("ask"):
        assert told.startswith(f"{VICTIM}: {kind}: ")
    else:
        assert list(reasons) == [VICTIM]
        assert reasons[VICTIM].startswith(f"{kind}: ")


@pytest.mark.parametrize("field", ["session", "node", "check", "keys"])
@pytest.mark.parametrize("how", ["missing", "None", "text", "float", "wide"])
def test_another_type_or_shape(field: str, how: str) -> None:
    play = Play(terms_of(3, 1, 0))
    message = play.nodes[0].keys(play.server.start()[0])
    wrong: Any = {"None": None, "text": "x", "float": np.zeros(96), "wide": np.zeros((1, 96), "u1")}
    changed = {**message, field: wrong.get(how)}
    if how == "missing":
        changed.pop(field)
    with pytest.raises(Refused, match=r"keys\.answer: .*"):
        unseal("keys.answer", changed, play.server.session, 0)


RESEALED = {
    ("keys.ask", "nonce", 0): "session is not that of this attempt",
    ("keys.answer", "keys", 0): "1: the roster has not the keys that node 1 sent; present: [0, 2",
    ("keys.answer", "keys", 31): "a public key of node 1 is not in its one reduced spelling",
    ("keys.answer", "keys", 40): "1: the roster has not the keys that node 1 sent; present: [0, 2",
    ("keys.answer", "keys", 95): "1: the roster has not the keys that node 1 sent; present: [0, 2",
    ("shares.ask", "members", 0): "nodes must ascend",
    ("shares.ask", "members", 23): "nodes must ascend and lie below 6",
    ("shares.ask", "keys", 96): "1: the roster has not the keys that node 1 sent; present: [0, 2",
    ("shares.ask", "keys", 0): "0: the shares of node 1 for node 0 are damaged",
    ("shares.answer", "boxes", 0): "0: the shares of node 1 for node 0 are damaged; present: [1",
    ("masked.ask", "present", 20): "nodes must ascend",
    ("masked.ask", "boxes", 60): "1: the shares of node 2 for node 1 are damaged; present: [0, 2",
    ("unmask.ask", "present", 0): "1: unmask.ask: nodes must ascend and lie below 6; present: [0",
    ("unmask.answer", "shares", 0): "present: [0, 1, 2, 3, 4, 5], {1: 'its share of node 0 is",
    ("unmask.answer", "shares", 16): "present: [0, 1, 2, 3, 4, 5], {1: 'its share of node 0 is",
    ("unmask.answer", "shares", 101): "present: [0, 1, 2, 3, 4, 5], {1: 'its share of node 5 is",
}


@pytest.mark.parametrize(("kind", "field", "at"), RESEALED)
def test_a_change_with_its_check_value_mended(kind: str, field: str, at: int) -> None:
    """Keys, shares and sets hold by themselves; a vector, as its sender's own say, cannot."""

    def change(message: Message) -> Message:
        a = message[field].copy()
        a.view("u1").reshape(-1)[at] ^= 0x81
        return sealed_again(kind, {**message, field: a})

    play = Damaging(kind, change)
    failed: list[str] = []
    close = play.server._close

    def closing(name: str, usable: Any) -> list[int]:
        failed.extend(play.server.refused.values())
        return close(name, usable)

    play.server._close = closing
    told = outcome(play)
    assert RESEALED[kind, field, at] in told + " ".join(failed)
