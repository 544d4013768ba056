"""Laws of the wire: what is asked and answered arrives, and what nobody honest sends is refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_type_hints

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedhist.base.errors import WireError
from fedhist.flower.wire import (
    ARRAYS,
    HEAD,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    pack_array,
    unpack_array,
)
from fedhist.model.codec import decode_query, encode_fields, query_digest
from fedhist.model.query import Report, Summary
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from simulations.audit.drawing import all_of
from simulations.contract.law import (
    ANY_NODES,
    demand,
    demand_same_arrays,
    demand_same_summary,
    law,
    refused,
)
from simulations.contract.subject import Subject


def travel(record: RecordDict) -> RecordDict:
    """Send a record as Flower does: to protobuf bytes and back."""
    head, arrays = record.config_records[HEAD], record.array_records[ARRAYS]
    copies = {k: Array(a.dtype, tuple(a.shape), a.stype, bytes(a.data)) for k, a in arrays.items()}
    return RecordDict({HEAD: ConfigRecord(dict(head)), ARRAYS: ArrayRecord(copies)})


@law(ANY_NODES)
def a_query_survives_the_wire(subject: Subject) -> None:
    """It arrives with the same fields and digest, and is answered the same.

    Two rounds have two digests.
    """
    for query, number in subject.queries:
        for fold in (True, False):
            question = decode_question(travel(encode_question(query, number, fold=fold)))
            got = question.round_index, question.fold
            demand(got == (number, fold), f"Round {number} arrives as {got}.")
            demand(
                type(question.query) is type(query), f"{query.label!r} arrives as another class."
            )
            text, arrays = encode_fields(query)
            text2, arrays2 = encode_fields(question.query)
            demand(text == text2, f"Fields {text} arrive as {text2}.")
            demand_same_arrays(arrays, arrays2, "The fields")
            digests = {
                question.digest,
                query_digest(query, number),
                query_digest(question.query, number),
            }
            demand(len(digests) == 1, f"{query.label!r} arrives with another digest.")
            demand(query_digest(query, number + 1) not in digests, "Two rounds have one digest.")
        sample = subject.users.select(query.cohort)
        here = subject.answer(query, sample, number)
        there = subject.answer(question.query, sample, number)
        demand_same_arrays(all_of(here), all_of(there), "The answer")


@law(ANY_NODES)
def an_answer_survives_the_wire(subject: Subject) -> None:
    """A summary and a report arrive with the same bits, with their node and question."""
    for query, number, summary in subject.asked:
        digest = query_digest(query, number)
        got = decode_answer(travel(encode_answer(summary, 3, digest)))
        demand((got.node, got.digest) == (3, digest), "A summary arrives from elsewhere.")
        demand(isinstance(got.body, Summary), f"A summary arrives as {type(got.body)}.")
        demand_same_summary(got.body, summary, "The summary")  # type: ignore[arg-type]
        report = subject.answer(query, subject.users.select(query.cohort), number)
        body: Any = decode_answer(travel(encode_answer(report, 4, digest))).body
        demand(isinstance(body, Report), f"A report arrives as {type(body)}.")
        demand_same_arrays(all_of(body), all_of(report), "The report")
        demand_same_summary(query.fold(body), query.fold(report), "The report's fold")
        for name, a in all_of(report).items():
            same = np.array_equal(unpack_array(name, pack_array(a)), a)
            demand(same, f"{name!r} is packed into something else.")


@law(ANY_NODES, once=True)
def a_query_holds_no_seed_and_no_users(subject: Subject) -> None:
    """What is in a query is public and frozen; the first one does not depend on the seed."""
    first = subject.walk(seed=1)[1]
    other = subject.walk(seed=2)[1]
    text, arrays = encode_fields(first[0][0])
    text2, arrays2 = encode_fields(other[0][0])
    demand(text == text2, f"Two seeds ask {text} and {text2}.")
    demand_same_arrays(arrays, arrays2, "Two seeds")
    for query, _, _ in first:
        asked: Any = query
        demand(dataclasses.is_dataclass(query), f"{query.label!r} is no dataclass.")
        for f in dataclasses.fields(asked):
            demand("seed" not in f.name, f"{query.label!r} has the field {f.name!r}.")
            private = isinstance(getattr(query, f.name), Users | SeededStreams)
            demand(not private, f"{query.label!r} holds private data in {f.name!r}.")
        with refused(dataclasses.FrozenInstanceError, f"A new value in {query.label!r}"):
            setattr(query, dataclasses.fields(asked)[0].name, None)


@law(ANY_NODES, once=True)
def fields_of_another_type_are_refused(subject: Subject) -> None:
    """A message whose field has a value of another type, or none, is a WireError."""
    for query, _ in subject.queries[:2]:
        text, arrays = encode_fields(query)
        scalars = json.loads(text)
        types = get_type_hints(type(query))
        for name in scalars:
            for bad in ("text", [1], {"a": 1}, {"tuple": [1, "x"]}, {"array": "float64"}, 10**400):
                both_integers = isinstance(bad, int) and isinstance(scalars[name], int)
                free_text = isinstance(bad, str) and types[name] is str
                if bad == scalars[name] or both_integers or free_text:
                    continue
                with refused(WireError, f"{name} = {str(bad)[:20]}"):
                    decode_query(query.wire_name, json.dumps(scalars | {name: bad}), arrays)
            without = {k: v for k, v in scalars.items() if k != name}
            with refused(WireError, f"{query.label!r} without {name}"):
                decode_query(query.wire_name, json.dumps(without), arrays)
            with refused(WireError, f"{query.label!r} with an array more"):
                decode_query(query.wire_name, text, arrays | {"more": np.zeros(3)})
