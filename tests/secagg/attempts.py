"""An attempt played through in memory, for the tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.secagg import Message, NodeAttempt, ServerAttempt, Terms
from fedhist.secagg.keys import WORDS


def entropy(name: str) -> Callable[[int], bytes]:
    drawn = [0]

    def draw(n: int) -> bytes:
        drawn[0] += 1
        return hashlib.shake_256(f"{name} {drawn[0]}".encode()).digest(n)

    return draw


def terms_of(parties: int, drop: int, collude: int, length: int = 5, bits: int = 32) -> Terms:
    return Terms(b"a query's digest", parties, drop, collude, bits, length)


class Play:
    """All parties of one attempt; `drops[round]` are those whose answer of the round is lost."""

    def __init__(self, terms: Terms, name: str = "play", **settings: Any) -> None:
        self.terms = terms
        self.server = ServerAttempt(terms, entropy(name)(16))
        settings = {"min_parties": 2} | settings
        self.nodes = {
            i: NodeAttempt(terms, i, entropy=entropy(f"{name} {i}"), **settings)
            for i in range(terms.parties)
        }
        shape = (terms.parties, terms.length)
        words = hashlib.shake_256(f"{name} x".encode()).digest(8 * shape[0] * shape[1])
        self.values: Array = np.frombuffer(words, "<u8").astype(WORDS[terms.bits]).reshape(shape)

    def answer(self, name: str, asks: dict[int, Message], lost: Collection[int]) -> Any:
        for i, ask in asks.items():
            if i not in lost:
                extra = (self.values[i],) if name == "masked" else ()
                yield i, getattr(self.nodes[i], name)(ask, *extra)

    def until(self, last: str, drops: dict[str, Collection[int]] | None = None) -> Any:
        asks: Any = self.server.start()
        for name in ("keys", "shares", "masked", "unmask"):
            lost = (drops or {}).get(name, ())
            asks = getattr(self.server, f"take_{name}")(self.answer(name, asks, lost))
            if name == last:
                break
        return asks

    def sum_of(self, nodes: Collection[int]) -> Array:
        return self.values[sorted(nodes)].sum(axis=0, dtype=self.values.dtype)
