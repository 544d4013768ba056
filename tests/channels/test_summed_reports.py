"""The aggregate path draws the very law of the sums that the per-user path has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fedhist
from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from clients.records.functionals import Coordinates
from fedhist.channels.bits import vote_totals
from fedhist.model.query import Query, Report
from fedhist.protocols import Mean
from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.streams import SeededStreams, integer_threshold
from server.baselines.naive_mean import SampledScalar, SphereReports
from simulations.runs.options import Options
from simulations.runs.run import execute

DRAWS = 6000


def samplers(n: int = 40) -> Users:
    """Two coordinates, up to three samples; some have nothing, a NaN or samples out of range."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(0, 4, n)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    values = rng.uniform(-0.9, 0.9, (indptr[-1], 2))
    values[-2:], values[0, 0] = np.nan, np.inf
    return Users.from_samples(np.arange(1, n + 1), indptr, values, unusable=True)


SCALARS: dict[str, Any] = {
    "functional": Coordinates(2), "centres": np.array([0.1, -0.2]), "half_width": 0.4,
}  # fmt: skip
VOTES: dict[str, Any] = {
    "dimension": 2, "radius": 1.0, "threshold": 0.2, "max_votes": 2, "epsilon": 1.0,
}  # fmt: skip
QUERIES: list[Query] = [
    BinVotes(Coordinates(2), 5, 1.0),
    BinVotes(Coordinates(2), 5, 1.0, neighbours=True),
    *(
        ClippedMean(**SCALARS, epsilon=1.0, kind=kind)
        for kind in ("onebit", "laplace", "piecewise")
    ),
    # everybody beyond one end of the interval: on both sides a wrong clip would cancel
    ClippedMean(**SCALARS | {"centres": np.full(2, -2.0)}, epsilon=1.0, kind="onebit"),
    SampledScalar(**SCALARS, epsilon=4.0, kind="laplace"),
    HashedVotes(**VOTES),
    HashedVotes(**VOTES, vote="laplace", reach=1.5),
    SphereReports(2, 0.8, 1.0),
    SphereReports(2, 0.8, 4.0, one_sample=True),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: f"{q.wire_name} {getattr(q, 'kind', '')}")
def test_both_paths_agree_in_mean_and_variance(query: Query) -> None:
    """Means within 4.5 standard errors, variances too, so that a factor of 1.15 is seen.

    At most 14 sums a query; false alarm below 14 * 2 * 7e-6 = 2e-4 a query.
    """
    users, rng = samplers(), np.random.default_rng(3)
    per_user = np.array([flat(s) for s in answered(query, users)])
    drawn = [query.draw_summary(users, rng) for _ in range(DRAWS)]
    query.check_summary(drawn[0])
    aggregate = np.array([flat(s) for s in drawn])
    assert np.isfinite(aggregate).all()
    a, b = per_user.var(axis=0), aggregate.var(axis=0)
    gap = np.abs(per_user.mean(axis=0) - aggregate.mean(axis=0))
    assert (gap <= 4.5 * np.sqrt((a + b) / DRAWS)).all()
    fourth = ((per_user - per_user.mean(axis=0)) ** 4).mean(axis=0)
    allowed = 4.5 * np.sqrt(2 * np.maximum(fourth - a**2, 0) / DRAWS)
    assert (allowed <= 0.15 * a).all()
    assert (a > 0).any()
    assert (np.abs(a - b) <= allowed + 1e-12).all()


def answered(query: Query, users: Users) -> Iterator[fedhist.model.query.Summary]:
    """Fold the answers of many copies of the same users, each with coins of its own."""
    n, m = len(users), len(users.reals.values)
    starts = (np.arange(DRAWS)[:, None] * m + users.reals.indptr[:-1]).ravel()
    samples = Samples(np.append(starts, DRAWS * m), np.tile(users.reals.values, (DRAWS, 1)))
    copies = Users(np.tile(users.ids, DRAWS), samples=samples)
    coins = SeededStreams(np.arange(len(copies), dtype=np.uint64), 0, "t")
    rows = query.answer(copies, coins).arrays
    for k in range(DRAWS):
        mine = {name: a[k * n : (k + 1) * n] for name, a in rows.items()}
        yield query.fold(Report(users.ids, mine))


def flat(summary: fedhist.model.query.Summary) -> np.ndarray:
    return np.concatenate([np.ravel(a).astype(float) for _, a in sorted(summary.sums.items())])


def test_vote_totals_have_the_exact_law() -> None:
    """Enumerated for two ones among three users; chi-squared false alarm 1e-6."""
    flip, draws = 0.3, 40_000
    p = float(integer_threshold(flip)) / 2**64
    law = np.zeros(4)
    for bits in itertools.product((0, 1), repeat=3):
        chance = [(1 - p if b else p) for b in bits[:2]] + [p if bits[2] else 1 - p]
        law[sum(bits)] += np.prod(chance)
    counts = np.full(draws, 2, dtype=np.int64)
    found = np.bincount(vote_totals(counts, 3, flip, np.random.default_rng(5)), minlength=4)
    chi = ((found - draws * law) ** 2 / (draws * law)).sum()
    assert chi < 30.7  # 1 - 1e-6 quantile of three degrees of freedom


def test_nobody_in_the_cohort_of_the_vote() -> None:
    """A vote that nobody heard is a failure, with nodes that have users and in aggregate too."""
    protocol, users = Mean.example(), Mean.example_users()
    asked = next(protocol.rounds(None))
    deaf = users.take(np.flatnonzero(~asked.cohort.contains(users.ids)))
    for clients in ("per-user", "aggregate"):
        found = execute(protocol, deaf, Options(seed=1, clients=clients, nodes=3)).estimate
        assert (found.status, found.reason) == ("failed", "nobody voted")
