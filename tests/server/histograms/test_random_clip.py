"""The query of random clipping: strings of any kind, the wire, and what a server refuses."""

import itertools

import numpy as np
import pytest

from clients.histograms.key_queries import RandomClip
from clients.records.item_rows import pack_records
from fedhist.base.errors import WireError
from fedhist.model.codec import decode_query, encode_fields
from fedhist.model.query import Keyed, Report, Summary
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SystemStreams
from tests.running import streams

NAMES = [
    "",
    "a",
    "a\0",
    "a\0b",
    "\0",
    "ß",
    "日本",
    "🍵",
    "👩‍👩‍👧",
    "ｚ",
    "z" * 300,
    "\u202eabc",
    "\n",
]


def population(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return Users.from_records(
        {
            f"u{u}": {k: int(rng.integers(1, 5)) for k in NAMES if rng.random() < 0.4 * (u % 3)}
            for u in range(n)
        }
    )


def rows_of(report):
    """Every user's row as a dict, by an obvious reader of its own."""
    out = []
    data = report.ragged["records"]
    for a, b in itertools.pairwise(report.indptr):
        raw, row = data[a:b].tobytes(), {}
        while raw:
            length = int.from_bytes(raw[:4], "little")
            row[raw[12 : 12 + length].decode()] = int.from_bytes(raw[4:12], "little")
            raw = raw[12 + length :]
        out.append(row)
    return out


def records_of(users):
    v = users.counts
    return [
        {v.vocabulary[int(j)]: int(c) for j, c in zip(v.item[a:b], v.count[a:b], strict=True)}
        for a, b in itertools.pairwise(v.indptr)
    ]


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("clip", [1, 4, 1 << 31])
def test_rows_are_samples_of_the_records_under_their_names(clip, raw):
    users = population()
    query = RandomClip(clip, raw)
    report = query.answer(users, streams(users))
    query.check(report)
    for row, record in zip(rows_of(report), records_of(users), strict=True):
        assert sum(row.values()) == min(clip, sum(record.values()))
        assert all(count <= record[name] for name, count in row.items())
        assert row.keys() == record.keys() if raw else 0 not in row.values()
    for part in (query.fold(report), query.answer_folded(users, streams)):
        counts = part.keyed["counts"]
        wanted: dict[str, int] = {}
        for row in rows_of(report):
            for name, count in row.items():
                wanted[name] = wanted.get(name, 0) + count
        assert list(counts.keys) == sorted(wanted, key=str.encode)
        assert counts.values.tolist() == [wanted[k] for k in counts.keys]
        assert counts.values.dtype == np.int64
        query.check_summary(part)


def test_vocabulary_order_and_unused_words_do_not_show():
    """Items are numbered otherwise, and most words are nobody's: the answer is the same."""
    users = population()
    v = users.counts
    words = ["unused", *reversed(list(v.vocabulary)), "never"]
    owner = np.repeat(np.arange(len(users)), np.diff(v.indptr))
    item = [words.index(v.vocabulary[int(j)]) for j in v.item]
    other = Users.from_counts(users.ids, owner, item, v.count, Keys.of(words))
    query = RandomClip(3)
    one, two = (query.answer(u, streams(u)) for u in (users, other))
    np.testing.assert_array_equal(one.ragged["records"], two.ragged["records"])
    a, b = (query.answer_folded(u, streams).keyed["counts"] for u in (users, other))
    assert list(a.keys) == list(b.keys)
    np.testing.assert_array_equal(a.values, b.values)


def test_empty_users_and_no_users():
    users = Users.from_records({"a": {}, "b": {}})
    query = RandomClip(2)
    for some in (users, users.slice(0, 0)):
        report = query.answer(some, streams(some))
        query.check(report)
        assert len(report.ragged["records"]) == 0
        for part in (query.fold(report), query.answer_folded(some, streams)):
            query.check_summary(part)
            assert len(part.keyed["counts"].keys) == 0


def test_system_randomness_differs_every_time():
    users = Users.from_records({"a": {str(k): 1 for k in range(60)}})
    query = RandomClip(30)
    rows = [query.answer(users, SystemStreams(1)).ragged["records"].tobytes() for _ in range(3)]
    assert len(set(rows)) > 1  # all three equal by chance: 1e-34


def test_fields():
    for bad in (0, -1, (1 << 31) + 1):
        with pytest.raises(ValueError, match=rf"clip must be an integer in \[1, .*, got {bad}"):
            RandomClip(bad)
    for wrong in (2.0, "2", True, None):
        with pytest.raises(ValueError, match="clip must be an integer in"):
            RandomClip(wrong)  # type: ignore[arg-type]
    query = RandomClip(12, raw_support=True)
    assert decode_query("random-clip", *encode_fields(query)) == query


def row(*records):
    """One user's report, from (name, count) pairs as they are."""
    raw = b"".join(len(k).to_bytes(4, "little") + c.to_bytes(8, "little") + k for k, c in records)
    return Report(
        np.array([5], dtype=np.uint64),
        ragged={"records": np.frombuffer(raw, dtype=np.uint8)},
        indptr=np.array([0, len(raw)]),
    )


def cut(report, by):
    data = report.ragged["records"][:-by]
    return Report(report.ids, ragged={"records": data}, indptr=np.array([0, len(data)]))


GOOD = row((b"a", 1), (b"b", 2))
MALFORMED = {
    "count 0, below 1": row((b"a", 0)),
    "outside \\[0, 3\\]": row((b"a", 4)),
    "18446744073709551615": row((b"a", 2**64 - 1)),
    "adds up to 4, more than clip = 3": row((b"a", 2), (b"b", 2)),
    "record 1 does not follow": row((b"a", 1), (b"a", 1)),
    "byte order": row((b"b", 1), (b"a", 1)),
    "not UTF-8.*xff": row((b"\xff", 1)),
    "not UTF-8": row((b"\xed\xa0\x80", 1)),  # a surrogate
    "ends after the row": cut(GOOD, 1),
    "record of 11 bytes": cut(row((b"", 1)), 1),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_rows_are_refused(what):
    query = RandomClip(3)
    query.check(GOOD)
    with pytest.raises(WireError, match=what):
        query.check(MALFORMED[what])


def test_rows_of_another_shape_are_refused():
    query, ids = RandomClip(3), np.zeros(1, dtype=np.uint64)
    data, ptr = GOOD.ragged["records"], GOOD.indptr
    for report in (
        Report(ids),
        Report(ids, {"records": np.zeros(1)}),
        Report(ids, ragged={"other": data}, indptr=ptr),
        Report(ids, ragged={"records": data, "more": data}, indptr=ptr),
        Report(ids, {"x": np.zeros(1)}, ragged={"records": data}, indptr=ptr),
        Report(ids, ragged={"records": data.astype(np.int64)}, indptr=ptr),
    ):
        with pytest.raises(WireError):
            query.check(report)


def test_zero_counts_belong_to_the_raw_support_only():
    report = row((b"a", 0), (b"b", 3))
    RandomClip(3, raw_support=True).check(report)
    part = RandomClip(3, raw_support=True).fold(report).keyed["counts"]
    assert dict(zip(part.keys, part.values.tolist(), strict=True)) == {"a": 0, "b": 3}


@pytest.mark.parametrize(
    ("values", "n", "what"),
    [
        ([7, 1], 2, "holds 7, outside"),
        ([6, 1], 2, "adds up to 7, more than 2 users of 3 each"),
        ([0, 1], 2, "holds 0"),
        ([-1, 1], 2, "holds -1"),
        ([1.0, 1.0], 2, "dtype float64"),
        ([[1], [1]], 2, "shape"),
    ],
)
def test_summaries_of_no_honest_node_are_refused(values, n, what):
    part = Keyed(Keys.of(["a", "b"]), np.array(values))
    with pytest.raises(WireError, match=what):
        RandomClip(3).check_summary(Summary(n, keyed={"counts": part}))


def test_a_node_of_the_largest_clip_does_not_overflow():
    query = RandomClip(1 << 31)
    users = Users.from_records({f"u{k}": {"x": 1 << 40, f"y{k}": 1 << 40} for k in range(64)})
    part = query.answer_folded(users, streams)
    assert int(part.keyed["counts"].values.sum()) == 64 << 31
    query.check_summary(part)
    data, indptr = pack_records(
        Keys.of(["x"]), np.array([0, 1]), np.array([0]), np.array([1 << 31], dtype=np.uint64)
    )
    report = Report(np.zeros(1, np.uint64), ragged={"records": data}, indptr=indptr)
    query.check(report)
    assert query.fold(report).keyed["counts"].values.tolist() == [1 << 31]
