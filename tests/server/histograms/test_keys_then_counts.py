"""Keys, then counts: the query, the stages' budgets, failures, a hoarder."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedhist as fh
from clients.histograms.key_queries import WEIGHT, DistinctKeys, weight_of
from clients.records.item_rows import pack_records
from server.histograms.unbounded_histogram import UnboundedHistogram
from tests.running import result, run, streams, table_users, zipf_table

BASE = UnboundedHistogram(2.0, 1e-4)


def some_users(n=2000, d=60, mean=8.0):
    return table_users(zipf_table(n, d, mean), fh.Keys.of(f"item-{j:02}" for j in range(d)))


def test_a_sample_is_uniform():
    """2000 users of six items who send two: every item within 5 standard deviations, 4e-6."""
    users = table_users(np.tile([1, 9, 2, 5, 1, 3], (2000, 1)))
    weights = DistinctKeys(2).answer_folded(users, streams).keyed["weights"].values
    sent = weights / weight_of(2)
    assert np.abs(sent - 2000 / 3).max() <= 5 * math.sqrt(2000 * 2 / 9)


def test_dishonest_reports_are_refused():
    users = some_users(20)
    report = DistinctKeys(50).answer(users, streams(users))
    with pytest.raises(fh.WireError, match="more than limit = 1"):
        DistinctKeys(1).check(report)
    twice = users.counts
    data, indptr = pack_records(
        twice.vocabulary, twice.indptr, twice.item, np.full_like(twice.count, 2)
    )
    with pytest.raises(fh.WireError):
        DistinctKeys(50).check(fh.Report(users.ids, ragged={"records": data}, indptr=indptr))
    summary = DistinctKeys(50).fold(report)
    part = summary.keyed["weights"]
    many = replace(summary, keyed={"weights": replace(part, values=part.values + 20 * WEIGHT)})
    with pytest.raises(fh.WireError):
        DistinctKeys(50).check_summary(many)


@pytest.mark.parametrize("adjacency", ["zero-out-user", "replace-user"])
def test_the_budget_is_spent_exactly(adjacency):
    protocol = replace(BASE, adjacency=adjacency)
    estimate, queries, _ = run(protocol, some_users())
    assert [q.wire_name for q in queries] == ["distinct-keys", "norm-histogram", "clipped-counts"]
    entries = estimate.ledger.entries
    spent = estimate.ledger.spent()
    assert spent.basic_epsilon == pytest.approx(2.0)
    assert spent.basic_delta == pytest.approx(1e-4)
    assert entries[0].release.epsilon == pytest.approx(0.8)
    assert entries[0].release.delta == 1e-4
    assert replace(protocol, epsilon_keys=0.5, epsilon_choice=0.25).first.epsilon == 0.5
    given = replace(protocol, epsilon_choice=0.25).second(fh.Keys.range(3))
    assert (given.shares.choice_epsilon, given.shares.release_epsilon) == (0.25, 0.95)
    assert protocol.max_rounds == 3


def test_no_key_is_a_failure():
    users = fh.Users.from_records({f"u{k}": {f"own-{k}": 3} for k in range(30)})
    for population in (users, fh.Users.from_records({"a": {}, "b": {}})):
        estimate = result(BASE, population)
        assert estimate.status == "failed"
        assert [e.label for e in estimate.ledger.entries] == ["keys"]
