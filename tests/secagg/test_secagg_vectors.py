"""The fixed vectors: still what the code computes, and the same by the slow path."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest

from tests.secagg import slow
from tests.vectors.write_secagg import HERE, VECTORS, text_of

hexed = bytes.fromhex


def vectors(name: str) -> Any:
    return json.loads((HERE / f"secagg-{name}.json").read_text())


def element(text: str) -> int:
    return int.from_bytes(hexed(text), "little")


@pytest.mark.parametrize("name", VECTORS)
def test_the_code_still_computes_them(name: str) -> None:
    assert (HERE / f"secagg-{name}.json").read_text() == text_of(name)


def test_the_slow_path_is_that_of_the_rfcs() -> None:
    """RFC 7748 5.2, RFC 8439 A.1 (zero key), RFC 5869 A.3 (no salt, no info)."""
    scalar = "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"
    point = "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"
    agreed = "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"
    assert slow.x25519(hexed(scalar), hexed(point)).hex() == agreed
    zero = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    assert slow.chacha20(bytes(32), 32).hex() == zero
    okm = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert slow.hkdf(b"\x0b" * 22, b"").hex() == okm


def test_masks() -> None:
    for v in vectors("masks"):
        assert v["mask"] == slow.chacha20(hexed(v["key"]), v["length"] * v["bits"] // 8).hex()


def test_graph() -> None:
    v = vectors("graph")
    circle = v["circle"]
    query, n = hashlib.sha256(hexed(circle["digest"])).digest()[:16], circle["parties"]
    (k,) = {p["degree"] for p in v["plans"] if p["parties"] == n}
    place = {i: hashlib.sha256(slow.ctx(query, i) + b"place").digest() for i in range(n)}
    order = sorted(range(n), key=place.__getitem__)
    for node, neighbours in circle["neighbours"].items():
        at = order.index(int(node))
        beside = {order[(at + s) % n] for s in range(-(k // 2), k // 2 + 1)} - {int(node)}
        assert neighbours == sorted(beside)


class Slow:
    """An attempt in the complete graph, message by message, from its secrets alone."""

    def __init__(self, v: Any) -> None:
        self.v, terms = v, v["terms"]
        self.n, self.bits = terms["parties"], terms["bits"]
        self.digest, self.nonce = hexed(terms["digest"]), hexed(v["nonce"])
        self.session = hashlib.sha256(self.nonce + self.digest).digest()[:16]
        self.messages: list[dict[str, Any]] = []
        self.secret = {s["node"]: s for s in v["nodes"]}
        self.mask_private = {
            i: slow.hkdf(hexed(s["r"]), slow.ctx(self.session, i) + b"mask-key")
            for i, s in self.secret.items()
        }
        self.row = {}
        for i, s in self.secret.items():
            self.row[i] = slow.public(hexed(s["enc_private"])) + slow.public(self.mask_private[i])
            own = slow.ctx(self.session, i) + b"self" + hexed(s["b"])
            self.row[i] += hashlib.sha256(own).digest()

    def left(self, name: str, nodes: list[int]) -> list[int]:
        return [i for i in nodes if i not in self.v["lost"].get(name, [])]

    def note(self, kind: str, node: int, **fields: bytes) -> None:
        check = slow.check_value(kind, self.session, node, list(fields.values()))
        shown = {name: data.hex() for name, data in fields.items()}
        header = {"kind": kind, "session": self.session.hex(), "node": node}
        self.messages.append({**header, **shown, "check": check.hex()})

    def agreed(self, i: int, j: int, use: bytes) -> bytes:
        enc = use == b"enc"
        mine = hexed(self.secret[i]["enc_private"]) if enc else self.mask_private[i]
        theirs = self.row[j][:32] if enc else self.row[j][32:64]
        info = slow.ctx(self.session, min(i, j), max(i, j)) + use
        return slow.hkdf(slow.x25519(mine, theirs), info)

    def shares_of(self, i: int, holder: int) -> bytes:
        text = b""
        for of in ("r", "b"):
            secret = int.from_bytes(hexed(self.secret[i][of]), "little")
            coefficients = list(map(element, self.secret[i][f"coefficients_{of}"]))
            text += slow.share(secret, coefficients, holder + 1).to_bytes(17, "little")
        return text

    def masked(self, i: int, sharers: list[int]) -> list[int]:
        size = self.bits // 8 * self.v["terms"]["length"]
        own = slow.hkdf(hexed(self.secret[i]["b"]), slow.ctx(self.session, i) + b"self-mask")
        y = slow.words(hexed(self.secret[i]["values"]), self.bits)
        parts = [(slow.chacha20(own, size), 1)]
        parts += [
            (slow.chacha20(self.agreed(i, j, b"pair"), size), 1 if j > i else -1)
            for j in sharers
            if j != i
        ]
        for stream, sign in parts:
            mask = slow.words(stream, self.bits)
            y = [(a + sign * m) % 2**self.bits for a, m in zip(y, mask, strict=True)]
        return y

    def packed(self, y: list[int]) -> bytes:
        return b"".join(x.to_bytes(self.bits // 8, "little") for x in y)

    def play(self) -> None:
        everybody = list(range(self.n))
        for i in everybody:
            self.note("keys.ask", i, nonce=self.nonce)
        members = self.left("keys", everybody)
        signed = {i: b"" for i in members}
        for i in members:
            if "owner_private" in self.secret[i]:
                text = slow.ctx(self.session, i) + b"signature" + self.row[i] + self.digest
                signed[i] = slow.ed25519(hexed(self.secret[i]["owner_private"]), text)
            self.note("keys.answer", i, keys=self.row[i], signed=signed[i])
        roster = {
            "members": struct.pack(f"<{len(members)}I", *members),
            "keys": b"".join(self.row[i] for i in members),
            "signed": b"".join(signed.values()),
        }
        for i in members:
            self.note("shares.ask", i, **roster)
        sharers = self.left("shares", members)
        box = {
            (i, j): slow.box(self.agreed(i, j, b"enc"), self.session, i, j, self.shares_of(i, j))
            for i in sharers
            for j in members
            if i != j
        }
        for i in sharers:
            boxes = b"".join(box[i, j] for j in members if j != i)
            self.note("shares.answer", i, boxes=boxes)
        listed = struct.pack(f"<{len(sharers)}I", *sharers)
        for i in sharers:
            boxes = b"".join(box[j, i] for j in sharers if j != i)
            self.note("masked.ask", i, present=listed, boxes=boxes)
        present = self.left("masked", sharers)
        for i in present:
            users = struct.pack("<Q", self.secret[i]["users"])
            values = self.packed(self.masked(i, sharers))
            self.note("masked.answer", i, values=values, users=users)
        for i in present:
            self.note("unmask.ask", i, present=struct.pack(f"<{len(present)}I", *present))
        for i in self.left("unmask", present):
            both = {j: self.shares_of(j, i) for j in sharers}
            shares = [both[j][17:] if j in present else both[j][:17] for j in sharers]
            self.note("unmask.answer", i, shares=b"".join(shares))
        values = [slow.words(hexed(self.secret[i]["values"]), self.bits) for i in present]
        total = [sum(column) % 2**self.bits for column in zip(*values, strict=True)]
        assert self.v["present"] == present
        assert self.v["sum"] == self.packed(total).hex()


@pytest.mark.parametrize("at", [0, 1])
def test_sums(at: int) -> None:
    v = vectors("sums")[at]
    attempt = Slow(v)
    attempt.play()
    kinds = [m["kind"] for m in v["messages"]]
    assert len(set(kinds)) == 8
    assert attempt.messages == v["messages"]
