"""Write the fixed test vectors of secure aggregation: ``python -m tests.vectors.write_secagg``.

What is in them and how to read them: ``fedhist/secagg/README.md``. They change only with
the protocol's version; ``tests/secagg/test_secagg_vectors.py`` computes each a second, slow way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.secagg import Message, NodeAttempt, ServerAttempt, Terms
from fedhist.secagg import keys as k
from fedhist.secagg.keys import WORDS, mask
from fedhist.secagg.messages import LAYOUT
from fedhist.secagg.shamir import SHARE, draw
from fedhist.secagg.terms import Graph
from tests.secagg.attempts import entropy

HERE = Path(__file__).parent
DIGEST = bytes.fromhex("00112233445566778899aabbccddeeff")


def element(x: int) -> str:
    return x.to_bytes(SHARE, "little").hex()


def masks() -> list[dict[str, Any]]:
    return [
        {"key": key.hex(), "bits": bits, "length": d, "mask": mask(key, d, bits).tobytes().hex()}
        for key in (bytes(32), bytes(range(32)), entropy("mask")(32))
        for bits in (32, 64)
        for d in (1, 8, 17, 40)
    ]


def graph() -> dict[str, Any]:
    plans = []
    for n, drop, collude in (
        (2, 0, 0), (3, 1, 0), (10, 1, 1), (100, 10, 10), (101, 10, 5), (150, 15, 15),
        (300, 30, 15), (1000, 100, 50), (1000, 100, 100), (10_000, 1000, 500),
    ):  # fmt: skip
        p = Terms(DIGEST, n, drop, collude, 32, 1).plan
        plans.append(
            {
                "parties": n,
                "drop": drop,
                "collude": collude,
                "degree": p.degree,
                "threshold": p.threshold,
                "colluders": p.colluders,
                "window": p.window,
            }
        )
    circle = Graph(Terms(DIGEST, 101, 10, 5, 32, 1))
    neighbours = {str(i): circle.neighbours(i) for i in (0, 1, 50, 100)}
    circle_of = {"parties": 101, "drop": 10, "collude": 5, "digest": DIGEST.hex()}
    return {"plans": plans, "circle": {**circle_of, "neighbours": neighbours}}


def shown(kind: str, message: Message) -> dict[str, Any]:
    header = {"session": message["session"].hex(), "node": message["node"]}
    fields = {name: message[name].tobytes().hex() for name in LAYOUT[kind]}
    return {**header, **fields, "check": message["check"].hex()}


def attempt(name: str, terms: Terms, lost: dict[str, list[int]], signed: bool) -> dict[str, Any]:
    n = terms.parties
    owners = [entropy(f"{name} owner {i}")(32) for i in range(n)]
    server = ServerAttempt(terms, entropy(name)(16))
    nodes = [
        NodeAttempt(
            terms,
            i,
            min_parties=2,
            entropy=entropy(f"{name} {i}"),
            owner_key=owners[i] if signed else None,
            peers={k.owner_public_key(owner) for owner in owners} if signed else None,
        )
        for i in range(n)
    ]
    word = WORDS[terms.bits]
    raw = entropy(f"{name} values")(n * terms.length * word.itemsize)
    values = np.frombuffer(raw, word).reshape(n, terms.length)
    known = []
    for i in range(n):
        fresh = entropy(f"{name} {i}")
        secret = {"r": fresh(16).hex(), "b": fresh(16).hex(), "enc_private": fresh(32).hex()}
        for of in ("r", "b"):
            drawn = draw(terms.plan.threshold - 1, fresh)
            secret[f"coefficients_{of}"] = [element(x) for x in drawn]
        owner = {"owner_private": owners[i].hex()} if signed else {}
        known.append(
            {"node": i, **secret, **owner, "values": values[i].tobytes().hex(), "users": 3 + i}
        )
    messages: list[dict[str, Any]] = []
    asks: Any = server.start()
    for of in ("keys", "shares", "masked", "unmask"):
        answers = {}
        for i, ask in asks.items():
            if i not in lost.get(of, []):
                extra = (values[i], 3 + i) if of == "masked" else ()
                answers[i] = getattr(nodes[i], of)(ask, *extra)
        messages += [{"kind": f"{of}.ask", **shown(f"{of}.ask", m)} for m in asks.values()]
        messages += [{"kind": f"{of}.answer", **shown(f"{of}.answer", m)} for m in answers.values()]
        asks = getattr(server, f"take_{of}")(answers.items())
    return {
        "terms": {
            "digest": terms.digest.hex(),
            "parties": n,
            "drop": terms.drop,
            "collude": terms.collude,
            "bits": terms.bits,
            "length": terms.length,
        },
        "nonce": entropy(name)(16).hex(),
        "lost": lost,
        "nodes": known,
        "messages": messages,
        "present": server.present,
        "sum": asks.tobytes().hex(),
    }


def sums() -> list[dict[str, Any]]:
    dropping = Terms(DIGEST, 8, 3, 1, 32, 5)
    lost = {"keys": [6], "shares": [0], "masked": [3], "unmask": []}
    return [
        attempt("dropping", dropping, lost, signed=False),
        attempt("signed", Terms(DIGEST, 3, 1, 0, 64, 3), {"unmask": [1]}, signed=True),
    ]


VECTORS = {"masks": masks, "graph": graph, "sums": sums}


def text_of(name: str) -> str:
    return json.dumps(VECTORS[name](), indent=1) + "\n"


if __name__ == "__main__":
    for name in VECTORS:
        (HERE / f"secagg-{name}.json").write_text(text_of(name))
