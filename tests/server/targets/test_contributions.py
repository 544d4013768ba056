"""Norm histograms and private quantiles: obvious versions, exact sensitivities, exact privacy."""

import itertools
import math

import numpy as np
import pytest

import fedhist as fh
from clients.answers import streams
from clients.histograms.contributions import NORM_STEPS, NormHistogram

NAMES = ["お茶", "tea", "rye", "maté"]


def population(rows):
    return fh.Users.from_records(
        {f"u{i}": dict(zip(NAMES, r, strict=False)) for i, r in enumerate(rows)}
    )


def dense(users, domain):
    out = []
    c = users.counts
    for a, b in itertools.pairwise(c.indptr):
        row = {c.vocabulary[int(j)]: int(k) for j, k in zip(c.item[a:b], c.count[a:b], strict=True)}
        out.append([k for name, k in row.items() if domain is None or name in domain])
    return out


ROWS = [
    (0, 0, 0, 0),
    (3, 4, 0, 0),
    (1, 1, 1, 1),
    (0, 0, 9, 0),
    (2**32, 1, 0, 5),
    (0, 2, 0, 0),
    (7, 0, 0, 24),
]


@pytest.mark.parametrize("domain", [None, fh.Keys.of(["tea", "maté", "absent"])])
@pytest.mark.parametrize(("norm", "radius"), [(1, 0.0), (2, 0.0), (2, 1.3), (2, 2.0), (1, 1.0)])
def test_bins_and_weights(domain, norm, radius):
    users = population(ROWS)
    query = NormHistogram(domain, (1.0, 2.0, 4.5, 5.0, 25.0), norm, radius)
    weight = np.zeros(5, dtype=np.int64)
    for row in dense(users, domain):
        size = math.sqrt(sum(k * k for k in row)) if norm == 2 else float(sum(row))
        below = [k for k, e in enumerate(query.edges) if size > e]
        if below:
            slope = sum(row) / size
            weight[below[-1]] += math.floor(min(slope / radius, 1.0) * NORM_STEPS) if radius else 1
    summary = query.answer_folded(users, lambda u: streams(u, 1, 2))
    assert summary.sums["weight"].tolist() == weight.tolist()
    assert query.tails(summary).tolist() == [int(weight[k:].sum()) for k in range(5)]
    report = query.answer(users, streams(users, 1, 2))
    query.check(report)
    query.check_summary(summary)
    assert np.array_equal(query.fold(report).sums["weight"], weight)


@pytest.mark.parametrize(
    ("bins", "weight"),
    [([0, 3], [0, 1]), ([0, 1], [0, NORM_STEPS + 1]), ([0, 1], [5, 1]), ([0, 1], [0, -1])],
)
def test_messages_that_are_not_honest(bins, weight):
    query = NormHistogram(None, (1.0, 2.0), 2, 1.0)

    def report(bins, weight):
        columns = {"bin": np.array(bins, np.int32), "weight": np.array(weight)}
        return fh.Report(np.arange(2, dtype=np.uint64), columns)

    query.check(report([0, 2], [0, NORM_STEPS]))
    with pytest.raises(fh.WireError):
        query.check(report(bins, weight))
    with pytest.raises(fh.WireError):
        NormHistogram(None, (1.0,), 1).check(report([1, 1], [1, 0]))
    with pytest.raises(fh.WireError):
        query.check_summary(fh.Summary(2, {"weight": np.array([2 * NORM_STEPS, 1])}))
