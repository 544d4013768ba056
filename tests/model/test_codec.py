"""Plain data and back: fields, digests, arrays in JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

import fedhist as fh
from fedhist.model import codec


@dataclass(frozen=True)
class Everything(fh.Query):
    """One field of every kind that can travel. Not registered."""

    wire_name: ClassVar[str] = "everything"
    trust: ClassVar[Any] = None
    number: float
    whole: int
    flag: bool
    text: str
    maybe: float | None
    kind: Literal["a", "b"]
    floats: tuple[float, ...]
    pair: tuple[int, str]
    keys: fh.Keys
    table: NDArray[np.float64]
    cohort: fh.Cohort | None = None

    answer = fold = check = bounds = lambda self, *a: {}


Everything.__abstractmethods__ = frozenset()
GIVEN: dict[str, Any] = {
    "number": 0.1,
    "whole": 3,
    "flag": True,
    "text": "日本 \0 \"'",
    "maybe": None,
    "kind": "a",
    "floats": (0.5, math.inf, -0.0),
    "pair": (1, "x"),
    "keys": fh.Keys.of(["", "é"]),
    "table": np.arange(6.0).reshape(2, 3),
    "cohort": fh.Cohort(1, 0.25, 0.5),
}


def same(a: Everything, b: Everything) -> bool:
    pairs = [(getattr(a, n), getattr(b, n)) for n in GIVEN]
    return all(
        np.array_equal(x, y) if isinstance(x, np.ndarray) else (type(x), x) == (type(y), y)
        for x, y in pairs
    )


def test_there_and_back() -> None:
    value = Everything(**GIVEN)
    text, arrays = codec.encode_fields(value)
    again = codec.decode_fields(Everything, text, arrays)
    assert same(again, value)
    assert codec.encode_fields(again)[0] == text
    assert codec.query_digest(again, 4) == codec.query_digest(value, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 1, "maybe": 2, "floats": (1, 2), "cohort": fh.Cohort(1, 0, 1)},
        {"number": math.inf, "maybe": -math.inf},
        {"cohort": None, "floats": ()},
    ],
)
def test_whole_numbers_are_spelled_as_floats(change: dict[str, Any]) -> None:
    """Otherwise the digest differs between the two sides, and every client refuses the query."""
    value = Everything(**(GIVEN | change))
    text, arrays = codec.encode_fields(value)
    again = codec.decode_fields(Everything, text, arrays)
    assert type(again.number) is float
    assert codec.query_digest(again, 0) == codec.query_digest(value, 0)


def test_every_public_field_changes_the_digest() -> None:
    changes: list[dict[str, Any]] = [
        {"number": 0.2},
        {"whole": 4},
        {"flag": False},
        {"text": ""},
        {"maybe": 0.0},
        {"kind": "b"},
        {"floats": (0.5, math.inf)},
        {"pair": (1, "y")},
        {"keys": fh.Keys.of(["é", ""])},
        {"table": np.arange(6.0).reshape(3, 2)},
        {"table": np.arange(6.0, dtype=np.float32).reshape(2, 3)},
        {"cohort": fh.Cohort(1, 0.25, 0.75)},
        {"cohort": fh.Cohort(2, 0.25, 0.5)},
        {"cohort": None},
    ]
    values = [Everything(**(GIVEN | c)) for c in [{}, *changes]]
    digests = {codec.query_digest(v, 0) for v in values} | {codec.query_digest(values[0], 1)}
    assert len(digests) == len(values) + 1


def test_last_bits_do_not_change_the_digest() -> None:
    """They differ from processor to processor; nothing larger goes unnoticed."""
    table = np.array([[1 / 3, -1e300, 5e-324], [np.inf, np.nan, 0.0]])
    value = {"number": 0.1 + 0.2, "floats": (1 / 3, math.inf, math.nan, -1e-310, 0.0)}
    near = {"number": 0.3, "floats": (1 / 3 + 1e-15, math.inf, math.nan, -1e-310, -0.0)}
    far = {"number": 0.3 + 1e-9, "floats": (1 / 3 + 1e-9, *value["floats"][1:])}

    def digest(**change: Any) -> str:
        return codec.query_digest(Everything(**(GIVEN | value | {"table": table} | change)), 0)

    assert digest(**near, table=table * (1 + 1e-15) - 0.0) == digest()
    assert digest(table=np.asfortranarray(table)) == digest()
    assert digest(cohort=fh.Cohort(1, 0.25 + 1e-15, 0.5)) == digest()
    others = [*({k: v} for k, v in far.items()), *({"table": table * x} for x in (1 + 1e-9, -1))]
    assert len({digest(**c) for c in others} | {digest()}) == len(others) + 1


BAD = {
    "number": ["x", None, True, {"tuple": [1.0]}],
    "whole": [1.5, "1", True],
    "flag": [1, "true"],
    "text": [1, None, {"keys": 1}],
    "maybe": ["x", True],
    "kind": ["c", None],
    "floats": [1.0, [1.0], {"tuple": 1}, {"tuple": ["x"]}, {"tuple": [True]}],
    "pair": [{"tuple": [1]}, {"tuple": [1, 2]}, {"tuple": [1, "x", 2]}],
    "keys": ["abc", {"array": "uint8"}, {"keys": 1, "more": 2}],
    "table": [1.0, {"keys": 1}],
    "cohort": [1, {"cohort": [1, 0.5]}, {"cohort": [1, 0.9, 0.1]}, {"cohort": ["1", 0.0, 1.0]}],
}


@pytest.mark.parametrize(("name", "bad"), [(n, b) for n, bads in BAD.items() for b in bads])
def test_values_of_another_type_are_refused(name: str, bad: object) -> None:
    text, arrays = codec.encode_fields(Everything(**GIVEN))
    broken = json.dumps(json.loads(text) | {name: bad})
    with pytest.raises(fh.WireError):
        codec.decode_fields(Everything, broken, arrays)


@pytest.mark.parametrize("text", ["", "[]", "{}", "1", "null", "{", "[" * 100_000, '{"number": 1}'])
def test_what_is_no_object_of_the_fields_is_refused(text: str) -> None:
    with pytest.raises(fh.WireError):
        codec.decode_fields(Everything, text, {})


@pytest.mark.parametrize("name", ["keys/offsets", "keys/bytes", "table"])
def test_missing_and_mistyped_arrays_are_refused(name: str) -> None:
    text, arrays = codec.encode_fields(Everything(**GIVEN))
    with pytest.raises(fh.WireError):
        codec.decode_fields(Everything, text, {k: v for k, v in arrays.items() if k != name})
    with pytest.raises(fh.WireError):
        codec.decode_fields(Everything, text, arrays | {"more": np.zeros(1)})
    scalars = json.loads(text)
    del scalars["cohort"]  # which has a default
    with pytest.raises(fh.WireError):
        codec.decode_fields(Everything, json.dumps(scalars), arrays)
    if name != "table":
        for bad in (arrays[name].astype(np.float64), arrays[name] * 2, arrays[name][:-1]):
            with pytest.raises(fh.WireError):
                codec.decode_fields(Everything, text, arrays | {name: bad})


def test_what_cannot_travel() -> None:
    for bad in ({"a": 1}, object(), b"bytes", {1.0}):
        with pytest.raises(fh.WireError, match="'text' cannot travel"):
            codec.encode_fields(Everything(**(GIVEN | {"text": bad})))


def summary() -> fh.Summary:
    return fh.Summary(
        2,
        {"n": np.array([1, 2])},
        {"k": fh.Keyed(fh.Keys.of(["", "é"]), np.array([[1.0], [2.0]]))},
        {"r": np.zeros((2, 3))},
        np.array([4, 9], dtype=np.uint64),
    )


def test_parts_of_a_summary_are_all_needed() -> None:
    arrays = codec.summary_arrays(summary())
    for name in ("keyed/k/offsets", "keyed/k/bytes", "keyed/k/values", "rows/r", "ids"):
        with pytest.raises(fh.WireError):
            codec.summary_of_arrays(2, {k: v for k, v in arrays.items() if k != name})


def test_arrays_of_objects_are_refused() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    assert codec.array_from_json(codec.array_to_json(odd)).tobytes() == odd.tobytes()
    with pytest.raises(fh.WireError, match="object"):
        codec.array_from_json(codec.array_to_json(odd) | {"dtype": "object"})


@pytest.mark.parametrize(
    "change",
    [
        {"more": np.zeros(1)},
        {"keyed/k": np.zeros(1)},
        {"keyed/k/values": np.zeros(3)},
        {"keyed/k/offsets": np.array([0, 2**63 - 1, 2])},
        {"keyed/k/offsets": np.array([0.0, np.nan, 2.0])},
        {"keyed/k/bytes": np.array([0xC3, 0xC3], dtype=np.uint8)},
        {"rows/r": np.zeros((3, 3))},
        {"ids": np.zeros((2, 1), dtype=np.uint64)},
        {"ids": np.zeros(3, dtype=np.uint64)},
    ],
)
def test_malformed_summaries_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(fh.WireError):
        codec.summary_of_arrays(2, codec.summary_arrays(summary()) | change)


def swapped(**parts: Any) -> fh.Summary:
    return fh.Summary(**({k: getattr(summary(), k) for k in summary().__dict__} | parts))


@pytest.mark.parametrize(
    "other",
    [
        swapped(sums={}),
        swapped(sums={"n": np.array([1, 2, 3])}),
        swapped(sums={"n": np.array([1, 2], dtype=np.int32)}),
        swapped(keyed={}),
        swapped(keyed={"k": fh.Keyed(fh.Keys.of(["a"]), np.array([[1]]))}),
        swapped(rows={"q": np.zeros((2, 3))}),
        swapped(rows={"r": np.zeros((2, 4))}),
        swapped(),  # the same users once more
    ],
)
def test_parts_that_disagree_are_refused(other: fh.Summary) -> None:
    if other.ids is not None and "r" not in other.rows:
        other = swapped(rows=other.rows, ids=np.array([1, 2], dtype=np.uint64))
    with pytest.raises(fh.WireError):
        fh.Summary.merge([summary(), other])
    with pytest.raises(fh.WireError):
        fh.Summary.merge([other, summary()])


IDS = np.arange(2, dtype=np.uint64)


@pytest.mark.parametrize(
    ("arrays", "ragged", "indptr"),
    [
        ({"a": np.zeros(3)}, {}, None),
        ({}, {"a": np.zeros(2)}, None),
        ({}, {}, np.array([0, 1, 2])),
        ({}, {"a": np.zeros(2)}, np.array([0, 2])),
        ({}, {"a": np.zeros(2)}, np.array([1, 1, 2])),
        ({}, {"a": np.zeros(2)}, np.array([0, 2**63 - 1, 2])),
        ({}, {"a": np.zeros((2, 2))}, np.array([0, 1, 2])),
    ],
)
def test_malformed_reports_are_refused(arrays: Any, ragged: Any, indptr: Any) -> None:
    with pytest.raises(fh.WireError):
        fh.Report(IDS, arrays, ragged, indptr)


@pytest.mark.parametrize(
    ("bounds", "a"),
    [
        (fh.Bounds((2,), "i"), np.zeros(3, int)),
        (fh.Bounds((2,), "i"), np.zeros(2)),
        (fh.Bounds((None,), "f"), np.array([np.nan])),
        (fh.Bounds((None,), "iu", 0, 5), np.array([0, 6])),
        (fh.Bounds((None,), "iu", 0, 5), np.array([-1, 5])),
        (fh.Bounds((), "f"), np.zeros(1)),
    ],
)
def test_bounds_refuse(bounds: fh.Bounds, a: np.ndarray) -> None:
    with pytest.raises(fh.WireError, match="'x'"):
        bounds.check("x", a)


def test_bounds_hold_at_their_ends() -> None:
    fh.Bounds((None, 2), "iu", 0, 5).check("x", np.array([[0, 5]]))
    fh.Bounds((None,), "f", 0, 1).check("x", np.zeros(0))
    fh.Bounds((), "f", 0, 1).check("x", np.array(0.5))
