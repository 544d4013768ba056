"""The query of random clipping: strings of any kind, the wire, and what a server refuses."""

import itertools

import numpy as np
import pytest

import fedhist as fh
from clients.histograms.key_queries import RandomClip
from clients.records.item_rows import pack_records
from tests.running import streams

NAMES = ["\t", "a", "a\0", "a\0b", "ß", "日本", "👩‍👩‍👧", "ｚ", "z" * 300, "\u202eabc", "\n"]


def population(n=50, seed=0):
    rng = np.random.default_rng(seed)
    return fh.Users.from_records(
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


def row(*records):
    """One user's report, from (name, count) pairs as they are."""
    raw = b"".join(len(k).to_bytes(4, "little") + c.to_bytes(8, "little") + k for k, c in records)
    return fh.Report(
        np.array([5], dtype=np.uint64),
        ragged={"records": np.frombuffer(raw, dtype=np.uint8)},
        indptr=np.array([0, len(raw)]),
    )


def cut(report, by):
    data = report.ragged["records"][:-by]
    return fh.Report(report.ids, ragged={"records": data}, indptr=np.array([0, len(data)]))


GOOD = row((b"a", 1), (b"b", 2))
MALFORMED = {
    "count 0": row((b"a", 0)),
    "count above the clip": row((b"a", 4)),
    "count beyond 63 bits": row((b"a", 2**64 - 1)),
    "more than the clip in all": row((b"a", 2), (b"b", 2)),
    "a name twice": row((b"a", 1), (b"a", 1)),
    "another order": row((b"b", 1), (b"a", 1)),
    "no UTF-8": row((b"\xff", 1)),
    "a surrogate": row((b"\xed\xa0\x80", 1)),
    "a name cut short": cut(GOOD, 1),
    "a head cut short": cut(row((b"", 1)), 1),
    "another type": fh.Report(
        GOOD.ids, ragged={"records": GOOD.ragged["records"].astype(int)}, indptr=GOOD.indptr
    ),
    "nothing": fh.Report(GOOD.ids),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_malformed_rows_are_refused(what):
    query = RandomClip(3)
    query.check(GOOD)
    with pytest.raises(fh.WireError):
        query.check(MALFORMED[what])


def test_zero_counts_belong_to_the_raw_support_only():
    report = row((b"a", 0), (b"b", 3))
    RandomClip(3, raw_support=True).check(report)
    part = RandomClip(3, raw_support=True).fold(report).keyed["counts"]
    assert dict(zip(part.keys, part.values.tolist(), strict=True)) == {"a": 0, "b": 3}


@pytest.mark.parametrize(
    ("values", "told"),
    [([7, 1], "7"), ([6, 1], "7"), ([0, 1], "0"), ([-1, 1], "-1"), ([[1], [1]], "shape")],
)
def test_summaries_of_no_honest_node_are_refused(values, told):
    part = fh.Keyed(fh.Keys.of(["a", "b"]), np.array(values))
    with pytest.raises(fh.WireError, match=told):
        RandomClip(3).check_summary(fh.Summary(2, keyed={"counts": part}))


def test_a_node_of_the_largest_clip_does_not_overflow():
    query = RandomClip(1 << 31)
    users = fh.Users.from_records({f"u{k}": {"x": 1 << 40, f"y{k}": 1 << 40} for k in range(64)})
    part = query.answer_folded(users, streams)
    assert int(part.keyed["counts"].values.sum()) == 64 << 31
    query.check_summary(part)
    data, indptr = pack_records(
        fh.Keys.of(["x"]), np.array([0, 1]), np.array([0]), np.array([1 << 31], dtype=np.uint64)
    )
    report = fh.Report(np.zeros(1, np.uint64), ragged={"records": data}, indptr=indptr)
    query.check(report)
    assert query.fold(report).keyed["counts"].values.tolist() == [1 << 31]
