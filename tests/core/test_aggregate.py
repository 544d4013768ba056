"""The aggregate path draws the very law of the sums that the per-user path has."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import fedhist
from clients.functionals import Coordinates
from fedhist.aggregate import vote_totals
from fedhist.errors import FedhistError
from fedhist.protocols import BoundedHistogram, Mean
from fedhist.protocols.fold_queries import BinVotes, ClippedMean
from fedhist.query import Query
from fedhist.streams import SeededStreams, integer_threshold
from fedhist.users import Users
from simulations.run import Options, execute


def samplers(n: int = 60) -> Users:
    """Two coordinates; the last five users have nothing or a NaN."""
    values = np.random.default_rng(1).uniform(-1, 1, (n, 2))
    values[-3:] = np.nan
    indptr = np.concatenate((np.arange(n - 1), [n - 1, n - 1, n]))
    indptr[-3:] = n - 2, n - 2, n
    return Users.from_samples(np.arange(1, n + 2), indptr, values)


QUERIES: list[Query] = [
    BinVotes(Coordinates(2), 5, 1.0),
    BinVotes(Coordinates(2), 5, 1.0, neighbours=True),
    *(
        ClippedMean(Coordinates(2), np.array([0.1, -0.2]), 0.4, 1.0, kind)
        for kind in ("onebit", "laplace", "piecewise")
    ),
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: f"{q.wire_name} {getattr(q, 'kind', '')}")
def test_both_paths_agree_in_mean_and_variance(query: Query) -> None:
    """2,000 draws each; means within 5.5 standard errors, variances within 5.5 of theirs.

    At most 14 sums a query; false alarm below 14 * 2 * 4e-8 = 1.2e-6 a query.
    """
    users, draws = samplers(), 2000
    per_user = np.array(
        [
            flat(query.fold(query.answer(users, SeededStreams(users.ids, s, "t"))))
            for s in range(draws)
        ]
    )
    rng = np.random.default_rng(3)
    aggregate = np.array([flat(query.draw_summary(users, rng)) for _ in range(draws)])
    for sums in (per_user, aggregate):
        query.check_summary(query.draw_summary(users, rng))
        assert np.isfinite(sums).all()
    scale = np.sqrt((per_user.var(axis=0) + aggregate.var(axis=0)) / draws)
    gap = np.abs(per_user.mean(axis=0) - aggregate.mean(axis=0))
    assert (gap <= 5.5 * scale).all()
    a, b = per_user.var(axis=0), aggregate.var(axis=0)
    fourth = ((per_user - per_user.mean(axis=0)) ** 4).mean(axis=0)
    spread = np.sqrt(2 * np.maximum(fourth - a**2, 0) / draws)
    assert (np.abs(a - b) <= 5.5 * spread + 1e-12).all()


def flat(summary: fedhist.query.Summary) -> np.ndarray:
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


def test_a_run_in_aggregate() -> None:
    users = Mean.example_users()
    protocol = Mean.example()
    estimates = [execute(protocol, users, Options(seed=s, clients="aggregate")) for s in (1, 1, 2)]
    values = [o.estimate.value[0] for o in estimates]
    assert values[0] == values[1] != values[2]
    assert all(abs(v - 0.3) < 0.2 for v in values)
    open_ended = replace(protocol, epsilon=float("inf"))
    exact = fedhist.run(open_ended, users, seed=1, clients="aggregate")
    assert exact.value == pytest.approx(open_ended.truth(users))


def test_central_answers_are_folded() -> None:
    users = BoundedHistogram.example_users()
    one = fedhist.run(BoundedHistogram.example(), users, seed=4)
    other = fedhist.run(BoundedHistogram.example(), users, seed=4, clients="aggregate")
    assert np.array_equal(one.value, other.value)


def test_what_has_no_law_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BinVotes, "draw_summary", Query.draw_summary)
    with pytest.raises(FedhistError, match="'bin-votes' has no aggregate path"):
        QUERIES[0].draw_summary(samplers(), np.random.default_rng(0))
    with pytest.raises(ValueError, match="needs runtime"):
        Options(clients="aggregate", runtime="ray")
    with pytest.raises(ValueError, match="got 'sums'"):
        Options(clients="sums")
