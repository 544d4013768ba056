"""The wire format: queries and answers as Flower RecordDicts, with a version.

A message holds one ConfigRecord of scalars and one ArrayRecord of named arrays. Names are looked
up in the registry's allow-list; nothing is imported or unpickled because a message says so, and
anything unknown, missing, mistyped or out of bounds is a :class:`~fedhist.base.errors.WireError`.

Arrays travel in NumPy's ``.npy`` format, as Flower's own do; writing and parsing the header
ourselves, with a cache, saves most of the cost of a small message.
"""

from __future__ import annotations

import ast
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedhist.base.arrays import Array as NDArray
from fedhist.base.errors import WireError
from fedhist.model.codec import (
    DTYPES,
    decode_query,
    encode_fields,
    query_digest,
    summary_arrays,
    summary_of_arrays,
)
from fedhist.model.query import Query, Report, Summary

WIRE_VERSION = 2
"""2: nodes add up their blocks of users as a tree; 1 added them up one after the other."""
HEAD, ARRAYS = "fedhist", "fedhist.arrays"
MESSAGE_TYPE = "query"
AHEAD, READY = "ahead", "ready"
"""Kinds of messages: whether a node would answer a question, and that it would."""
MAGIC = b"\x93NUMPY\x01\x00"
_DESCRIPTIONS = {
    dtype.str: dtype for n in DTYPES for dtype in (np.dtype(n), np.dtype(n).newbyteorder(">"))
}


@dataclass(frozen=True)
class Question:
    """A decoded query message; ``fold`` says whether a node folds its reports before it answers.

    ``ahead`` asks whether the node would answer, and not for the answer: that costs nothing.
    """

    query: Query
    round_index: int
    digest: str
    fold: bool
    ahead: bool = False


@dataclass(frozen=True)
class Answer:
    """A decoded answer: a folded summary, unfolded reports, or the reason of a refusal.

    Ahead of a question: None, or the reason of a refusal.

    ``node`` is the node's public index, which fixes the order of merging.
    """

    body: Summary | Report | str | None
    node: int
    digest: str


def encode_question(
    query: Query, round_index: int, *, fold: bool = True, ahead: bool = False
) -> RecordDict:
    """Pack a query for the clients; the same record serves every node."""
    text, arrays = encode_fields(query)
    head = {
        "version": WIRE_VERSION,
        "kind": AHEAD if ahead else "question",
        "name": query.wire_name,
        "round": round_index,
        "digest": query_digest(query, round_index),
        "fold": fold,
        "fields": text,
    }
    return pack_record(head, arrays)


def decode_question(record: RecordDict) -> Question:
    """Unpack a query; WireError unless every byte of it is ours."""
    head, arrays = unpack_message(
        record,
        {
            "kind": str,
            "name": str,
            "round": int,
            "digest": str,
            "fold": bool,
            "fields": str,
        },
        ("question", AHEAD),
    )
    return question_of(head, arrays)


def question_of(head: Mapping[str, Any], arrays: Mapping[str, NDArray]) -> Question:
    """Rebuild a question from its head and its query's arrays; WireError if they do not fit."""
    query = decode_query(head["name"], head["fields"], arrays)
    if head["round"] < 0:
        raise WireError(f"round must be non-negative, got {head['round']}")
    digest = query_digest(query, head["round"])
    if digest != head["digest"]:
        raise WireError(f"the query's digest is {digest}, the message says {head['digest']}")
    return Question(query, head["round"], digest, head["fold"], head.get("kind") == AHEAD)


def encode_answer(body: Summary | Report | str, node: int, digest: str) -> RecordDict:
    """Pack a node's answer: a folded summary, unfolded reports, or a refusal."""
    if isinstance(body, str):
        return pack_record(_answer_head("refusal", body, digest, node, 0), {})
    if isinstance(body, Summary):
        head = _answer_head("summary", "", digest, node, body.n_users)
        return pack_record(head, summary_arrays(body))
    arrays: dict[str, NDArray] = {"ids": body.ids}
    arrays |= {f"rows/{k}": v for k, v in body.arrays.items()}
    if body.indptr is not None:
        arrays["indptr"] = body.indptr
        arrays |= {f"ragged/{k}": v for k, v in body.ragged.items()}
    return pack_record(_answer_head("report", "", digest, node, body.n_users), arrays)


def encode_ready(node: int, digest: str) -> RecordDict:
    """Pack what a node says ahead of a question that it would answer."""
    return pack_record(_answer_head(READY, "", digest, node, 0), {})


def _answer_head(kind: str, reason: str, digest: str, node: int, n: int) -> ConfigRecord:
    head = _common_head(kind, reason, digest).copy()
    head["node"], head["n"] = node, n
    return head


@lru_cache(maxsize=16)  # Flower checks every entry that is set, and thousands of nodes say the same
def _common_head(kind: str, reason: str, digest: str) -> ConfigRecord:
    head: dict[str, Any] = {"version": WIRE_VERSION, "node": 0, "digest": digest}
    return ConfigRecord(head | {"kind": kind, "reason": reason, "n": 0})


def decode_answer(
    record: RecordDict, kinds: tuple[str, ...] = ("summary", "report", "refusal")
) -> Answer:
    """Unpack an answer; its contents are checked against the query by the caller."""
    expected = {"kind": str, "node": int, "digest": str, "reason": str, "n": int}
    head, arrays = unpack_message(record, expected, kinds)
    if head["n"] < 0 or head["node"] < 0:
        raise WireError(f"n and node must be non-negative, got {head['n']} and {head['node']}")
    body: Summary | Report | str | None
    if head["kind"] == READY:
        body = None
    elif head["kind"] == "refusal":
        body = head["reason"]
    elif head["kind"] == "summary":
        body = summary_of_arrays(head["n"], arrays)
    else:
        body = _report_of_arrays(head["n"], arrays)
    return Answer(body, head["node"], head["digest"])


def _report_of_arrays(n: int, arrays: dict[str, NDArray]) -> Report:
    ids = arrays.pop("ids", None)
    if ids is None or ids.dtype != np.uint64 or ids.shape != (n,):
        raise WireError(f"a report of {n} users needs their ids")
    if len(np.unique(ids)) != n:
        raise WireError("a report names a user twice")
    indptr = arrays.pop("indptr", None)
    if indptr is not None and (indptr.dtype != np.int64 or indptr.ndim != 1):
        raise WireError(f"indptr must be (n + 1,) int64, got {indptr.dtype}{indptr.shape}")
    dense, ragged = {}, {}
    for path, a in arrays.items():
        kind, _, name = path.partition("/")
        if kind == "rows" and name:
            dense[name] = a
        elif kind == "ragged" and name:
            ragged[name] = a
        else:
            raise WireError(f"a report has no part {path!r}")
    return Report(ids, dense, ragged, indptr)


def answer_bytes(record: RecordDict) -> int:
    """Return the bytes of a message's arrays and scalars."""
    head, arrays = _halves(record)
    return sum(len(a.data) for a in arrays.values()) + sum(
        len(v) if isinstance(v, str | bytes) else 8 for v in head.values()
    )


# -- records ---------------------------------------------------------------------------------------


def pack_record(head: dict[str, Any] | ConfigRecord, arrays: dict[str, NDArray]) -> RecordDict:
    """Put scalars and arrays into a record."""
    packed = ArrayRecord()
    for name, a in arrays.items():  # one by one: from a dict, Flower builds every Array again
        packed[name] = pack_array(a)
    record = head if isinstance(head, ConfigRecord) else ConfigRecord(head)
    return RecordDict({HEAD: record, ARRAYS: packed})


def unpack_record(record: RecordDict) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Take scalars and arrays out of a record that this side packed (a stored answer)."""
    head, arrays = _halves(record)
    return dict(head), {str(name): unpack_array(str(name), a) for name, a in arrays.items()}


def _halves(record: object) -> tuple[ConfigRecord, ArrayRecord]:
    """Take a message's two records; by key, since Flower's typed views copy the whole message."""
    if not isinstance(record, RecordDict) or record.keys() != {HEAD, ARRAYS}:
        raise WireError(f"not a fedhist message: it holds {_names(record)}")
    head, arrays = record[HEAD], record[ARRAYS]
    if not isinstance(head, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        raise WireError(f"not a fedhist message: it holds {_names(record)}")
    return head, arrays


def kind_of(record: object) -> str:
    """Return what kind of message this says it is; empty where it says nothing that can be read."""
    head = record.get(HEAD) if isinstance(record, RecordDict) else None
    return str(head.get("kind", "")) if isinstance(head, ConfigRecord) else ""


def unpack_message(
    record: RecordDict, expected: dict[str, type], kinds: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Take a message apart, after every check of its form: version, kind, names and types."""
    config, packed = _halves(record)
    head = dict(config)
    version = head.pop("version", None)
    if type(version) is not int or version != WIRE_VERSION:
        raise WireError(f"wire version {version!r}, this side speaks {WIRE_VERSION}")
    if head.keys() != expected.keys():
        raise WireError(f"the message has {sorted(head)}, expected {sorted(expected)}")
    for name, kind in expected.items():
        if type(head[name]) is not kind:
            raise WireError(f"{name!r} must be {kind.__name__}, got {head[name]!r}")
    if head["kind"] not in kinds:
        raise WireError(f"a message of kind {head['kind']!r}, expected {' or '.join(kinds)}")
    return head, {str(name): unpack_array(str(name), a) for name, a in packed.items()}


def _names(record: object) -> str:
    return str(sorted(record)) if isinstance(record, RecordDict) else type(record).__name__


def pack_array(a: NDArray) -> Array:
    """Serialise an array as ``.npy`` bytes, as ``flwr.app.Array(a)`` does but faster."""
    a = np.asarray(a, order="C")
    name = _dtype_names(a.dtype)[0]
    if name not in DTYPES:
        raise WireError(f"dtype {a.dtype} cannot travel")
    return Array(name, a.shape, "numpy.ndarray", _header(a.dtype.str, a.shape) + a.tobytes())


@lru_cache(maxsize=256)  # NumPy makes them anew each time
def _dtype_names(dtype: np.dtype[Any]) -> tuple[str, str]:
    return dtype.name, str(dtype)


@lru_cache(maxsize=4096)
def _header(descr: str, shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(len(MAGIC) + 2 + len(text) + 1) % 64) + "\n"
    return MAGIC + struct.pack("<H", len(text)) + text.encode("latin1")


def unpack_array(name: str, packed: Array) -> NDArray:
    """Read an array of an allowed dtype; WireError for anything malformed. Read-only view."""
    data = packed.data
    if packed.stype != "numpy.ndarray" or not isinstance(data, bytes) or len(data) > 1 << 31:
        raise WireError(f"array {name!r} is not in numpy.ndarray form")
    if len(data) < 10 or data[:8] != MAGIC:
        raise WireError(f"array {name!r} does not start like an .npy file")
    start = 10 + struct.unpack("<H", data[8:10])[0]
    if start > 256 or len(name) > 256:
        raise WireError(f"array {name[:256]!r} has a header of {start} bytes")
    try:
        dtype, shape, size = _parse_header(data[10:start])
    except WireError as e:
        raise WireError(f"array {name!r} has {e}") from None
    if len(data) - start != size:
        raise WireError(f"array {name!r} has {len(data) - start} bytes of data, not {size}")
    if packed.dtype not in _dtype_names(dtype) or tuple(packed.shape) != shape:
        said = f"{packed.dtype}{tuple(packed.shape)}"
        raise WireError(f"array {name!r} is {dtype.name}{shape}, the message says {said}")
    a = np.frombuffer(data, dtype=dtype, offset=start).reshape(shape)
    if dtype == np.bool_ and a.view(np.uint8).max(initial=0) > 1:
        raise WireError(f"array {name!r} holds bytes that are not booleans")
    return a if dtype.isnative else a.astype(dtype.newbyteorder("="))


@lru_cache(maxsize=4096)  # of headers that are well formed, and short: a megabyte at most
def _parse_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    try:
        head = ast.literal_eval(header.decode("latin1"))
        dtype = _DESCRIPTIONS.get(head["descr"])
        shape, order = head["shape"], head["fortran_order"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as e:
        raise WireError(f"a malformed header: {e}") from None
    if dtype is None or order is not False:
        raise WireError(f"dtype {head['descr']!r}, fortran_order {order!r}")
    if not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape):
        raise WireError(f"shape {shape!r}")
    # zeros apart, so that no shape of an empty array is larger than NumPy can hold
    if len(shape) > 8 or math.prod(max(s, 1) for s in shape) > 1 << 31:
        raise WireError(f"shape {shape!r}")
    return dtype, shape, dtype.itemsize * math.prod(shape)
