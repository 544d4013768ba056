"""The query behind the choice of a contribution bound: sums over the users by size."""

from dataclasses import replace

import numpy as np
import pytest

import fedhist as fh
from clients.bounding.size_curves import SHARE_PARTS
from clients.histograms.key_queries import SizeCurves
from clients.records.item_rows import pack_records
from tests.running import streams, table_users, zipf_table


def of(rows):
    return fh.Users.from_records({f"u{i}": row for i, row in enumerate(rows)})


def zipf(n):
    return table_users(zipf_table(n, 40, 8.0, 0))


QUERY = SizeCurves((1, 3, 10))
MIXED = of(
    [
        {},
        {"お茶": 3, "~": 1},
        {"a\0b": 2**61, "🙂": 1},
        {"tea": 1},
        {"tea": 9, "お茶": 4},
        {"z": 11},
    ]
)


def test_a_row_is_the_user_s_histogram():
    report = QUERY.answer(MIXED, streams(MIXED))
    v = MIXED.counts
    data, indptr = pack_records(v.vocabulary, v.indptr, v.item, v.count)
    assert np.array_equal(report.ragged["records"], data)
    assert np.array_equal(report.indptr, indptr)
    assert QUERY.trust is fh.Trust.CENTRAL


def reports():
    good = QUERY.answer(MIXED, streams(MIXED))
    data, indptr = good.ragged["records"], good.indptr
    cut = indptr.copy()
    cut[1:-1] -= np.minimum(cut[1:-1], 3)
    huge = data.copy()
    huge[4:12] = 255
    yield replace(good, ragged={"records": data, "more": data})
    yield replace(good, ragged={"rows": data})
    yield fh.Report(good.ids, {"records": np.zeros(len(good.ids))})
    yield fh.Report(good.ids)
    yield replace(good, indptr=cut)
    yield replace(good, ragged={"records": data.astype(np.int64)})
    yield replace(good, ragged={"records": huge})


@pytest.mark.parametrize("bad", list(reports()))
def test_malformed_reports_are_refused(bad):
    with pytest.raises(fh.WireError):
        QUERY.check(bad)


def summaries():
    good = QUERY.answer_folded(zipf(50), streams)
    shares = good.keyed["shares"]

    def with_shares(values, keys=shares.keys):
        return replace(good, keyed={"shares": fh.Keyed(keys, values)})

    yield with_shares(shares.values - 50 * SHARE_PARTS)
    yield with_shares(shares.values + 40 * SHARE_PARTS)  # each may be, all together not
    yield with_shares(shares.values[:, :2])
    yield with_shares(shares.values.astype(np.float64))
    yield with_shares(np.zeros(0, dtype=np.int64))
    yield replace(good, keyed={})
    yield replace(good, n_users=0)
    yield replace(good, sums={**good.sums, "users": good.sums["users"] + 30})
    yield replace(good, sums={**good.sums, "users": good.sums["users"] * 0})
    yield replace(good, sums={**good.sums, "sizes": good.sums["sizes"] + 200})
    yield replace(good, sums={**good.sums, "sizes": good.sums["sizes"] * 0})
    yield replace(good, sums={"users": good.sums["users"]})


@pytest.mark.parametrize("bad", list(summaries()))
def test_impossible_summaries_are_refused(bad):
    with pytest.raises(fh.WireError):
        QUERY.check_summary(bad)
