"""Every field of every registered query at its extremes, against a node in a process of its own.

A message is decoded, guarded and answered as in a deployment, by nodes of the declared shapes,
under a limit on memory that a large allocation would pass. What may happen is an answer, a refusal
by the guard, or a WireError; anything else, the death of the process above all, is a failure.
"""

from __future__ import annotations

import dataclasses
import json
import math
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from clients.node import Node
from clients.store import ContextStore
from fedhist.base.errors import WireError
from fedhist.flower.host import NodeSetup
from fedhist.flower.wire import HEAD, encode_question
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import decode_query, encode_fields, query_digest
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.model.registry import own_protocols, queries
from fedhist.privacy.shares import Aggregation
from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.runs.options import Options
from simulations.runs.run import execute

MOST_BYTES = 1 << 30
"""What the process may allocate beyond what it has when it begins."""
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 255, 65536, 2**31, 2**40, 2**63 - 1, 2**64 - 1, -(2**63)),
    *(0.0, -1.0, 0.5, 5e-324, 1e-17, 1e308, -1e308, math.inf, -math.inf, math.nan),
)
OTHERS: tuple[Any, ...] = (None, True, "", "auto", "x" * 100_000, "\0", [], {}, {"tuple": []})
OWNER = {"trust": "central", "epsilon": 1e9, "max-answers": 10**9}


def asked() -> list[Query]:
    result: dict[str, Query] = {}
    histogram = dataclasses.replace(
        BoundedHistogram.example(), grid=1 / 64, trust=Aggregation(20, 0.1, 0.2)
    )
    runs: list[tuple[str, Protocol, type[Protocol]]] = [
        ("", cls.example(), cls) for cls in own_protocols().values()
    ]
    runs += [
        (kind, dataclasses.replace(histogram, delta=delta), BoundedHistogram)
        for kind, delta in ((", laplace", 0.0), (", gaussian", 1e-6))
    ]
    for kind, protocol, cls in runs:
        keep = partial(_keep, result, kind)
        execute(protocol, cls.example_users(), Options(seed=1, watch=keep))
    return list(result.values())


def _keep(found: dict[str, Query], kind: str, query: Query) -> None:
    found.setdefault(query.wire_name + kind, query)


def leaves(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(body, dict):
        for key, value in body.items():
            if key in ("part", "query") and isinstance(value, list):  # not a field of that name
                yield from ((*path, key, 1, *rest) for rest in leaves(json.loads(value[1])))
            else:
                yield from leaves(value, (*path, key))
    elif isinstance(body, list) and body:
        for i, value in enumerate(body):
            yield from leaves(value, (*path, i))
    yield path


def changed(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    if isinstance(body, str):  # the JSON of a part, or of a query around which there is another
        return json.dumps(changed(json.loads(body), path, value))
    copy = dict(body) if isinstance(body, dict) else list(body)
    copy[path[0]] = changed(body[path[0]], path[1:], value)
    return copy


def messages(query: Query, rng: np.random.Generator, n: int) -> Iterator[RecordDict]:
    usual = encode_question(query, 0)
    paths = [p for p in leaves(json.loads(str(usual[HEAD]["fields"]))) if p]
    arrays = encode_fields(query)[1]
    for _ in range(n):
        body = json.loads(str(usual[HEAD]["fields"]))
        for _ in range(rng.integers(1, 4)):
            path = paths[rng.integers(len(paths))]
            pool = NUMBERS if rng.random() < 0.9 else OTHERS
            try:
                body = changed(body, path, pool[rng.integers(len(pool))])
            except (TypeError, KeyError, IndexError, ValueError):  # under what was changed before
                continue
        text = json.dumps(body)
        head = dict(usual[HEAD]) | {"fields": text, "fold": bool(rng.integers(2))}
        with suppress(WireError):  # a digest that fits, where there is a query: else decoding ends
            head["digest"] = query_digest(decode_query(query.wire_name, text, arrays), 0)
        yield RecordDict({**usual, HEAD: ConfigRecord(head)})


def nodes() -> list[Node]:
    out = []
    items = Keys.of([f"item-{j:02d}" for j in range(11)])
    rng = np.random.default_rng(3)
    user, item = np.divmod(rng.choice(30 * 11, 60, replace=False), 11)
    held = Users.from_counts(np.arange(30), user, item, rng.integers(1, 9, 60), items)
    out.append(Node(NodeSetup(held, 0, None, OWNER, held.select(None))))
    for d in (1, 3):
        rows = np.vstack(
            [rng.uniform(0, 1, (38, d)), np.full((1, d), np.nan), np.full((1, d), 1e308)]
        )
        some = Users.from_samples(np.arange(21), [*range(0, 40, 2), 40, 40], rows, unusable=True)
        one = Users.from_samples([0], [0, 1], np.zeros((1, d)), unusable=True)
        out.append(Node(NodeSetup(some, d, None, OWNER, one)))
    # one that is made up: only such a node sends its share of noise without masks
    out.append(Node(NodeSetup(held, 9, 1, OWNER | {"simulated": True})))
    return out


def attack(seed: int, n: int) -> dict[str, int]:
    rng, ends = np.random.default_rng(seed), {"answered": 0, "refused": 0, "malformed": 0}
    targets, result = nodes(), asked()
    *owned, made_up = targets
    asks = {i: [made_up] if isinstance(q, Aggregated) else owned for i, q in enumerate(result)}
    for i, query in enumerate(result):  # compile what is compiled before memory is limited
        for target in asks[i]:
            target.answer(encode_question(query, 0), ContextStore(RecordDict()))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES,) * 2)
    for i, query in enumerate(result):
        for message in messages(query, rng, -(-n // len(result))):
            for target in asks[i]:
                try:
                    reply = target.answer(message, ContextStore(RecordDict()))
                except WireError:
                    ends["malformed"] += 1
                    break
                ends["refused" if reply[HEAD]["kind"] == "refusal" else "answered"] += 1
    return ends


@pytest.mark.parametrize("n", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_no_message_ends_a_node(n: int) -> None:
    assert {q.wire_name for q in asked()} <= queries().keys()
    done = subprocess.run(
        [sys.executable, __file__, "7", str(n)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    ends = json.loads(done.stdout)
    assert min(ends.values()) > n / 20, ends


if __name__ == "__main__":
    print(json.dumps(attack(int(sys.argv[1]), int(sys.argv[2]))))
