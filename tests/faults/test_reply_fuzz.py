"""Mutated replies to every query of every protocol, folded by the node and not.

The other nodes are honest. Whatever one node sends costs that node alone: it is used within what
so many users could send, or it is dropped and counted, and no exception leaves the intake.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from clients.answers import fold_node, streams
from fedhist.flower.wire import ARRAYS, HEAD, encode_answer, encode_question
from fedhist.model.codec import query_digest
from fedhist.model.query import Query, Summary
from fedhist.model.registry import protocol_class
from fedhist.users.batch import Users
from server.intake import Intake
from simulations.runs.options import Options
from simulations.runs.run import open_session
from simulations.runtimes.inline import InlinePopulation

pytestmark = pytest.mark.usefixtures("flower_task")

SEED, NODES, MOST_ROUNDS = 11, 3, 3
SCALARS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 100, 2**31, 2**62, 2**63 - 1, -(2**63), 0.5, math.nan, math.inf),
    *("", "summary", "report", "refusal", "x" * 5000, True, b"\0"),
)
DTYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64", "bool")
NUMBERS = (
    0,
    1,
    -1,
    2**31,
    2**62,
    2**63 - 1,
    -(2**63),
    0.5,
    -0.0,
    5e-324,
    1e308,
    math.nan,
    math.inf,
)


def mutated(record: RecordDict, other: RecordDict, rng: np.random.Generator) -> RecordDict:
    head, arrays = dict(record[HEAD]), dict(record[ARRAYS].items())
    for _ in range(rng.integers(1, 3)):
        kind = rng.integers(8)
        if kind < 2 or not arrays:
            key = list(head)[rng.integers(len(head))]
            if rng.random() < 0.1:
                head.pop(key)
            else:
                head[key] = SCALARS[rng.integers(len(SCALARS))]
            if not head:
                head = {"version": 1}
            continue
        name = list(arrays)[rng.integers(len(arrays))]
        a = arrays[name]
        try:
            body = a.numpy()
        except Exception:  # changed before so that NumPy cannot read it
            continue
        if kind == 2:
            with np.errstate(all="ignore"):
                arrays[name] = Array(body.astype(DTYPES[rng.integers(len(DTYPES))]))
        elif kind == 3:
            shape = [body.T, body[:0], body[..., None], body.ravel()[:1], np.repeat(body, 2)]
            arrays[name] = Array(np.ascontiguousarray(shape[rng.integers(len(shape))]))
        elif kind == 4 and body.size:
            copy = body.copy().ravel()
            at = rng.integers(copy.size, size=1 + copy.size * rng.integers(2))
            number = NUMBERS[rng.integers(len(NUMBERS))]
            with np.errstate(all="ignore"):
                copy[at] = np.asarray(number).astype(copy.dtype)
            arrays[name] = Array(copy.reshape(body.shape))
        elif kind == 5:
            raw = bytearray(a.data)
            raw[rng.integers(len(raw))] ^= 1 << int(rng.integers(8))
            arrays[name] = Array(a.dtype, a.shape, a.stype, bytes(raw))
        elif kind == 6:
            arrays[str(rng.choice(["ids", "x" * 9999, "sums/", "rows/y", name + "2"]))] = (
                arrays.pop(name)
            )
        else:
            theirs = dict(other[ARRAYS].items())
            if theirs:
                name = list(theirs)[rng.integers(len(theirs))]
                arrays[name] = theirs[name]
    packed = ArrayRecord()
    for name, a in arrays.items():
        packed[name] = a
    return RecordDict({HEAD: ConfigRecord(head), ARRAYS: packed})


def asked(name: str) -> Iterator[tuple[Query, int, Users]]:
    protocol, users = protocol_class(name).example(), protocol_class(name).example_users()
    session, _ = open_session(protocol, Options(seed=SEED))
    population = InlinePopulation([users], SEED)
    while session.query is not None and session.round_index < MOST_ROUNDS:
        yield session.query, session.round_index, users
        session.advance(population.ask(session.query, session.round_index))


def attack(name: str, n: int, seed: int) -> dict[str, int]:
    rng, ends = np.random.default_rng(seed), {"used": 0, "dropped": 0}
    for query, number, users in asked(name):
        digest = query_digest(query, number)
        sent = encode_question(query, number)
        nodes = [part.select(query.cohort) for part in users.split(NODES)]
        for fold in (True, False):
            bodies = [
                fold_node(query, part, SEED, digest)
                if fold
                else query.answer(part, streams(part, SEED, digest))
                for part in nodes
            ]
            records = [encode_answer(body, i, digest) for i, body in enumerate(bodies)]
            for turn in range(n):
                bad = mutated(records[2], records[turn % 2], rng)
                replies = [
                    Message(record, reply_to=Message(sent, 1000 + i, "query"))
                    for i, record in enumerate([*records[:2], bad])
                ]
                order = rng.permutation(NODES)
                on_bad = ("drop", "stop")[turn % 2]
                intake = Intake(query, digest, on_bad, max_users=len(users))
                with np.errstate(all="ignore"):
                    got = intake.collect([replies[i] for i in order], NODES, min_replies=1)
                check(query, got.summary, len(users))
                ends["used" if got.replies == NODES else "dropped"] += 1
                if got.replies < NODES:
                    assert sum(got.dropped.values()) > 0
    return ends


def check(query: Query, summary: Summary, n_users: int) -> None:
    assert summary.n_users <= 2 * n_users
    query.check_summary(summary)


@pytest.mark.parametrize("n", [8, pytest.param(1200, marks=pytest.mark.slow)])
def test_a_mutated_reply_costs_its_node_alone(protocol_name: str, n: int) -> None:
    ends = attack(protocol_name, n, 5)
    assert not ends["used"] + ends["dropped"] or ends["dropped"]
