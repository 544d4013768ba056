"""The wire: our .npy writer against NumPy's and Flower's, and messages mutated in every way.

A mutated message is a WireError, or it means exactly what the unmutated one means.
"""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedhist as fh
from clients.histograms.queries import ClippedCounts
from clients.localize.queries import BinVotes
from fedhist.flower.wire import (
    ARRAYS,
    HEAD,
    WIRE_VERSION,
    Answer,
    Question,
    answer_bytes,
    decode_answer,
    decode_question,
    encode_answer,
    encode_question,
    pack_array,
    pack_record,
    unpack_array,
    unpack_record,
)
from fedhist.model.codec import DTYPES, encode_fields, query_digest, summary_arrays

FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
SHAPES = [(), (0,), (1,), (5,), (2, 0, 3), (2, 3, 4)]


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_arrays_are_those_of_numpy_and_flower(name: str) -> None:
    for shape in SHAPES:
        a = np.random.default_rng(2).integers(0, 2, shape).astype(name)
        buffer = io.BytesIO()
        np.save(buffer, a)
        for layout in (a, np.array(a, order="F"), np.repeat(a[..., None], 2, axis=-1)[..., 0]):
            packed = pack_array(layout)
            assert packed.data == buffer.getvalue()
            got = unpack_array("x", packed)
            assert (got.dtype, got.shape, got.tobytes()) == (a.dtype, a.shape, a.tobytes())
            if a.ndim:
                flower = Array(np.ascontiguousarray(a))
                assert vars(packed) == vars(flower)


def npy(header: str, body: bytes = b"", magic: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    raw = header.encode("latin1") + b"\n"
    return magic + struct.pack("<H", len(raw)) + raw + body


def as_array(data: bytes, dtype: str = "float64", shape: tuple[int, ...] = (2,)) -> Array:
    return Array(dtype, shape, "numpy.ndarray", data)


def header(descr: object = "<f8", shape: object = (2,), order: object = False) -> str:
    return repr({"descr": descr, "fortran_order": order, "shape": shape})


GOOD = npy(header(), np.zeros(2).tobytes())
MALFORMED = {
    "short": GOOD[:9],
    "no header": GOOD[:12],
    "truncated": GOOD[:-1],
    "longer": GOOD + b"\0",
    "other magic": npy(header(), bytes(16), b"\x93NUMPY\x02\x00"),
    "pickled objects": npy(header("|O"), pickle.dumps([1, 2])),
    "string": npy(header("<U4"), bytes(32)),
    "record": npy(header([("a", "<f8")]), bytes(16)),
    "no descr": npy(header(None), bytes(16)),
    "fortran": npy(header(order=True), bytes(16)),
    "fortran one": npy(header(order=0), bytes(16)),
    "huge": npy(header(shape=(2**39, 2**39)), bytes(16)),
    "huge and empty": npy(header(shape=(0, 2**62, 2**62)), b""),
    "both negative": npy(header(shape=(-1, -2)), bytes(16)),
    "bool shape": npy(header(shape=(True, 2)), bytes(16)),
    "list shape": npy(header(shape=[2]), bytes(16)),
    "many dimensions": npy(header(shape=(1,) * 9), bytes(8)),
    "call": npy("__import__('os').system('true')", bytes(16)),
    "no dict": npy("(1, 2)", bytes(16)),
    "no shape": npy("{'descr': '<f8', 'fortran_order': False}", bytes(16)),
    "nul": npy("\0", bytes(16)),
    "deep": npy("(" * 200, bytes(16)),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_arrays_are_refused(name: str) -> None:
    with pytest.raises(fh.WireError, match="'x'"):
        unpack_array("x", as_array(MALFORMED[name]))


def test_the_good_one_is_read() -> None:
    assert unpack_array("x", as_array(GOOD)).tolist() == [0.0, 0.0]
    swapped = npy(header(">f8"), np.array([1.0, 2.0], dtype=">f8").tobytes())
    assert unpack_array("x", as_array(swapped)).tolist() == [1.0, 2.0]
    assert unpack_array("x", as_array(swapped)).dtype.isnative


def test_metadata_that_disagrees_is_refused() -> None:
    for packed in (
        as_array(GOOD, dtype="int64"),
        as_array(GOOD, dtype="float32"),
        as_array(GOOD, shape=(1, 2)),
        as_array(GOOD, shape=()),
        as_array(MALFORMED["many dimensions"], shape=(1,) * 9),
        Array("float64", (2,), "pickle", GOOD),
    ):
        with pytest.raises(fh.WireError, match="'x'"):
            unpack_array("x", packed)


def test_booleans_are_zero_or_one() -> None:
    """A byte 2 would count twice in some sums and once in others."""
    data = npy(header("|b1", (3,)), b"\0\1\2")
    with pytest.raises(fh.WireError, match="'x'"):
        unpack_array("x", as_array(data, "bool", (3,)))


@pytest.mark.parametrize("bad", [np.array([None]), np.array(["a"]), np.zeros(2, complex)])
def test_what_cannot_travel(bad: np.ndarray) -> None:
    with pytest.raises(fh.WireError, match=str(bad.dtype)):
        pack_array(bad)


QUERIES = [
    ClippedCounts(fh.Keys.of(["", "é", "日本"]), 2.0, 2, cohort=fh.Cohort(1, 0.0, 0.5)),
    BinVotes(fh.Coordinates(3, columns=np.array([0, 2])), 70, 1.0),
]
IDS = np.array([3, 5], dtype=np.uint64)
BODIES: list[fh.Summary | fh.Report | str] = [
    fh.Summary(2, {"counts": np.array([1.0, 2.0])}),
    fh.Summary(
        2,
        keyed={"k": fh.Keyed(fh.Keys.of(["a", "é"]), np.array([1, 2]))},
        rows={"r": np.zeros((2, 2))},
        ids=IDS,
    ),
    fh.Report(IDS, {"votes": np.arange(4, dtype=np.uint64).reshape(2, 2)}),
    fh.Report(IDS, ragged={"item": np.array([1, 2, 3])}, indptr=np.array([0, 0, 3])),
    "the budget is spent",
]


def meaning(x: Question | Answer) -> object:
    if isinstance(x, Question):
        text, arrays = encode_fields(x.query)
        head: tuple[object, ...] = (type(x.query), text, x.round_index, x.digest, x.fold)
        return head, plain(arrays)
    if isinstance(x.body, str):
        return x.body, x.node, x.digest
    if isinstance(x.body, fh.Summary):
        return x.body.n_users, x.node, x.digest, plain(summary_arrays(x.body))
    arrays = {"ids": x.body.ids, **x.body.arrays, **x.body.ragged}
    if x.body.indptr is not None:
        arrays["indptr"] = x.body.indptr
    return x.node, x.digest, plain(arrays)


def plain(arrays: dict[str, Any]) -> object:
    return sorted((k, a.dtype.name, a.shape, a.tobytes()) for k, a in arrays.items())


def messages() -> list[tuple[RecordDict, Any]]:
    out: list[tuple[RecordDict, Any]] = []
    for k, query in enumerate(QUERIES):
        out.append((encode_question(query, k, fold=bool(k)), decode_question))
    digest = query_digest(QUERIES[0], 0)
    out += [(encode_answer(b, k, digest), decode_answer) for k, b in enumerate(BODIES)]
    return out


@pytest.mark.parametrize("number", range(len(QUERIES) + len(BODIES)))
def test_there_and_back(number: int, flower_task: None) -> None:
    """By our own code, and as it really travels: to protobuf and back."""
    record, decode = messages()[number]
    decoded = decode(record)
    if isinstance(decoded, Question):
        again = encode_question(decoded.query, decoded.round_index, fold=decoded.fold)
    else:
        again = encode_answer(decoded.body, decoded.node, decoded.digest)
    assert dict(again[HEAD]) == dict(record[HEAD])
    assert {k: a.data for k, a in again[ARRAYS].items()} == {
        k: a.data for k, a in record[ARRAYS].items()
    }
    assert meaning(decode(again)) == meaning(decoded)
    head, arrays = unpack_record(record)
    stored = pack_record(head, arrays)
    assert meaning(decode(stored)) == meaning(decoded)
    sent = message_from_proto(message_to_proto(Message(record, 5, "query")))
    assert meaning(decode(sent.content)) == meaning(decoded)
    if decode is decode_answer:
        assert answer_bytes(record) > sum(a.nbytes for a in arrays.values())


scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.lists(st.integers(-5, 5), max_size=3),
    st.sampled_from(["question", "summary", "report", "refusal", "clipped-counts", "bin-votes"]),
)
NAMES = ["x", "ids", "sums/x", "rows/x", "indptr", "keyed/x/values"]
mutations = st.sampled_from(
    ["drop", "add", "set", "text", "flip", "cut", "grow", "swap", "rename", "dtype", "retype"]
)


def mutate(record: RecordDict, kind: str, data: st.DataObject) -> RecordDict:
    head, arrays = dict(record[HEAD]), dict(record[ARRAYS])
    draw = data.draw
    name = draw(st.sampled_from(sorted(arrays))) if arrays else ""
    if kind == "drop":
        gone = draw(st.sampled_from([*sorted(head), *sorted(arrays)]))
        head.pop(gone, None), arrays.pop(gone, None)
    elif kind == "add":
        head[draw(st.text(max_size=5))] = draw(scalars)
        arrays[draw(st.sampled_from(NAMES))] = pack_array(np.zeros(2))
    elif kind == "text":
        which = draw(st.sampled_from([k for k in sorted(head) if isinstance(head[k], str)]))
        text = str(head[which])
        at = draw(st.integers(0, max(len(text) - 1, 0)))
        head[which] = text[:at] + draw(st.text(max_size=2)) + text[at + draw(st.integers(0, 2)) :]
    elif kind == "set" or not arrays:
        head[draw(st.sampled_from(sorted(head)))] = draw(scalars)
    elif kind == "swap":
        arrays[draw(st.sampled_from(sorted(arrays)))] = arrays[name]
    elif kind == "rename":
        arrays[draw(st.text(max_size=4))] = arrays.pop(name)
    else:
        arrays[name] = spoil(name, arrays[name], kind, draw)
    return RecordDict({HEAD: ConfigRecord(head), ARRAYS: ArrayRecord(arrays)})


def spoil(name: str, a: Array, kind: str, draw: Callable[[Any], Any]) -> Array:
    raw, dtype = bytearray(a.data), a.dtype
    if kind == "flip":
        raw[draw(st.integers(0, len(raw) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif kind == "cut":
        raw = raw[: draw(st.integers(0, len(raw) - 1))]
    elif kind == "grow":
        raw += draw(st.binary(min_size=1, max_size=16))
    elif kind == "dtype":
        dtype = draw(st.sampled_from(["object", "float32", "int64", "float64", "x"]))
    else:
        with warnings.catch_warnings(action="ignore"):
            other = unpack_array(name, a).astype(draw(st.sampled_from(sorted(DTYPES))))
        return pack_array(other)
    return Array(dtype, tuple(a.shape), a.stype, bytes(raw))


@settings(FUZZ, max_examples=300)
@given(st.integers(0, len(QUERIES) - 1), mutations, st.data())
def test_mutated_questions(number: int, kind: str, data: st.DataObject) -> None:
    """A query's digest covers its every public field: another query cannot pass as this one."""
    record, decode = messages()[number]
    original = decode(record)
    try:
        broken = mutate(record, kind, data)
    except (TypeError, ValueError, KeyError):
        return  # Flower's own records refuse it
    try:
        got = decode(broken)
    except fh.WireError:
        return
    if got.fold != original.fold:
        got, original = replace(got, fold=True), replace(original, fold=True)  # a free choice
    assert meaning(got) == meaning(original)


@settings(FUZZ, max_examples=300)
@given(st.integers(0, len(BODIES) - 1), mutations, st.data())
def test_mutated_answers(number: int, kind: str, data: st.DataObject) -> None:
    """A mutated answer is a WireError, or a well-formed answer that the query then checks."""
    record, decode = messages()[len(QUERIES) + number]
    try:
        broken = mutate(record, kind, data)
    except (TypeError, ValueError, KeyError):
        return
    try:
        got = decode(broken)
    except fh.WireError:
        return
    assert meaning(got) == said(broken)
    if isinstance(got.body, str):
        return
    for query in QUERIES:
        try:
            if isinstance(got.body, fh.Report):
                query.check_cohort(got.body.ids)
                query.check(got.body)
                query.check_summary(query.fold(got.body))
            else:
                query.check_summary(got.body)
        except fh.WireError:
            continue


def said(record: RecordDict) -> object:
    head = dict(record[HEAD])
    assert head["version"] == WIRE_VERSION
    if head["kind"] == "refusal":
        return head["reason"], head["node"], head["digest"]
    arrays = {k: np.load(io.BytesIO(a.data)) for k, a in record[ARRAYS].items()}
    if head["kind"] == "summary":
        return head["n"], head["node"], head["digest"], plain(arrays)
    assert head["n"] == len(arrays["ids"])
    names = {k: k.partition("/")[2] or k for k in arrays}
    return head["node"], head["digest"], plain({names[k]: a for k, a in arrays.items()})


def question(**changes: Any) -> RecordDict:
    record = encode_question(QUERIES[1], 0)
    return RecordDict({HEAD: ConfigRecord(dict(record[HEAD]) | changes), ARRAYS: record[ARRAYS]})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": 1}, "1"),
        ({"version": "2"}, "'2'"),
        ({"version": True}, "True"),
        ({"name": "os.system"}, "os.system"),
        ({"name": "bin-vote"}, "bin-votes"),
        ({"name": "clipped-mean"}, "n_bins"),
        ({"kind": "summary"}, "summary"),
        ({"round": -1}, "-1"),
        ({"round": 1}, "digest"),
        ({"round": 0.0}, "'round'"),
        ({"fold": 1}, "'fold'"),
        ({"digest": "0" * 32}, "0{32}"),
        ({"seed": 1}, "seed"),
        ({"fields": "{}"}, "fields"),
    ],
)
def test_named_mutations_of_a_question(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(fh.WireError, match=named):
        decode_question(question(**changes))


@pytest.mark.parametrize("changes", [{"n": -1}, {"node": -1}, {"kind": "question"}])
def test_named_mutations_of_an_answer(changes: dict[str, Any]) -> None:
    record = encode_answer(BODIES[-1], 0, "d")
    head = ConfigRecord(dict(record[HEAD]) | changes)
    with pytest.raises(fh.WireError, match=str(next(iter(changes.values())))):
        decode_answer(RecordDict({HEAD: head, ARRAYS: record[ARRAYS]}))


def test_what_is_no_message_of_ours() -> None:
    head, arrays = ConfigRecord({"version": 1}), ArrayRecord({})
    for record in (
        RecordDict({HEAD: head}),
        RecordDict({HEAD: head, ARRAYS: arrays, "more": head}),
        RecordDict({HEAD: arrays, ARRAYS: arrays}),
        RecordDict({HEAD: head, ARRAYS: head}),
        None,
        {HEAD: head, ARRAYS: arrays},
    ):
        for decode in (decode_question, decode_answer):
            with pytest.raises(fh.WireError):
                decode(record)


def test_a_report_names_each_user_once() -> None:
    report = fh.Report(np.array([4, 4], dtype=np.uint64), {"votes": np.zeros((2, 2), np.uint64)})
    with pytest.raises(fh.WireError, match="twice"):
        decode_answer(encode_answer(report, 0, "d"))


def test_nothing_is_imported_because_a_message_names_it() -> None:
    """In a process of its own, where nobody has asked for the protocols."""
    code = (
        "import sys\n"
        "from fedhist.base.errors import WireError\n"
        "from fedhist.model.registry import part_class, query_class\n"
        "for find in (query_class, part_class):\n"
        "    try: find('no-such-name')\n"
        "    except ValueError as e: print('no-such-name' in str(e))\n"
        "print(sum(name.startswith(('clients', 'server')) for name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "0"]


def test_a_header_of_an_array_is_at_most_256_bytes() -> None:
    """A longer one would be parsed by Python's own parser, and kept: it is refused unread."""
    description = "{'descr': '<f8', 'fortran_order': False, 'shape': (0,), }"
    for room, taken in ((256, True), (257, False)):
        data = npy(description.ljust(room - 11))
        assert len(data) == room
        packed = Array("float64", (0,), "numpy.ndarray", data)
        if taken:
            assert unpack_array("x", packed).shape == (0,)
        else:
            with pytest.raises(fh.WireError, match=str(room)):
                unpack_array("x", packed)


def test_a_name_of_an_array_is_at_most_256_letters() -> None:
    packed = pack_array(np.zeros(1))
    assert unpack_array("x" * 256, packed).shape == (1,)
    with pytest.raises(fh.WireError, match=r"array 'x{256}'"):
        unpack_array("x" * 257, packed)
