"""The frequency oracles: one item per user through every kind of channel."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from oracle_laws import enumerated

from clients.frequency_oracles.oracle_votes import OracleReports
from fedhist.base.errors import PopulationError, WireError
from fedhist.model.query import Report, Summary
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.frequency_oracles.frequency_oracle import FrequencyOracle
from tests.running import concluded, count_table, table_users

DOMAIN = Keys.of([f"w{j}" for j in range(9)])
Maker = Callable[..., FrequencyOracle]
KINDS = ["krr", "hadamard", "projective", "subset", "unary"]
each = pytest.mark.parametrize(
    "cls", [partial(FrequencyOracle, kind=k) for k in ["auto", *KINDS]], ids=["auto", *KINDS]
)


def mixed_users(n: int = 50) -> Users:
    """Users of several symbols; four have none, and four have items outside the domain only."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.4, (n, 12)) * rng.integers(1, 5, (n, 12))
    counts[:, 0] += rng.integers(0, 3, n)
    counts[:4] = 0
    counts[4:8, :6] = counts[4:8, 9:] = 0
    counts[4:8, 6] = 3
    words = Keys.of([f"w{j}" for j in range(6)] + [f"x{j}" for j in range(3)] + ["w8", "w7", "w6"])
    return table_users(counts, words)


def slow_shares(users: Users) -> np.ndarray:
    """Every user's shares of the domain's symbols, (n, 9)."""
    counts = count_table(users, DOMAIN)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


@each
def test_the_error_by_the_enumerated_law(cls: Maker) -> None:
    """The exact law of every user's report gives the mean and the variance of the estimate."""
    users = mixed_users()
    protocol = cls(1.3, DOMAIN)
    channel = protocol.query.channel
    weights, counts = enumerated(channel)
    laws = np.array([[float(w) for w in row] for row in weights])
    laws /= laws.sum(axis=1, keepdims=True)
    one = np.array([channel.debias(c, 1)[:-1] for c in counts])
    shares = slow_shares(users)
    votes = np.concatenate((1 - shares.sum(axis=1, keepdims=True), shares), axis=1)
    mixed = votes @ laws  # the law of every user's output, (n, outputs)
    means, second = mixed @ one, mixed @ one**2
    assert means == pytest.approx(shares, abs=1e-12)
    variance = (second - means**2).sum(axis=0) / len(users) ** 2
    bound = protocol.error(users)
    assert (bound.loss, bound.exact) == ("squared l2", True)
    assert bound.expected == pytest.approx(variance.sum(), rel=1e-12)
    assert protocol.truth(users) == pytest.approx(shares.mean(axis=0), abs=1e-14)


@each
def test_counts_without_data(cls: Maker) -> None:
    users = mixed_users()
    protocol = cls(1.0, DOMAIN)
    empty = float((slow_shares(users).sum(axis=1) == 0).sum())
    assert empty > 0
    assert protocol.diagnostics(users) == {"users without items": empty}
    nobody = users.slice(0, 0)
    with pytest.raises(PopulationError):
        protocol.truth(nobody)
    summary = protocol.query.draw_summary(nobody, np.random.default_rng(0))
    assert concluded(protocol, summary).status == "failed"


def test_messages_are_checked() -> None:
    ids = np.arange(2, dtype=np.uint64)
    subset, bits, index = (
        FrequencyOracle(1.0, DOMAIN, kind=k).query for k in ("subset", "unary", "hadamard")
    )
    w = subset.channel.chosen
    ones = np.full((2, 1), (1 << w) - 1, dtype=np.uint64)
    two = np.array([[3], [0]], dtype=np.uint64)
    fine = np.array([16, 0], dtype=np.uint32)  # 16 is the erasure
    more = ones << np.uint64(10 - w + 1)
    bad = {
        subset: (more, ones | np.uint64(512), ones & np.uint64(6)),
        bits: (two.astype(np.uint32), two + np.uint64(512), np.hstack([two, two])),
        index: (fine + np.uint32(1), fine.astype(np.uint64), fine.astype(np.int64)),
    }
    for query, good in ((subset, ones), (bits, two), (index, fine)):
        query.check(Report(ids, {"report": good}))
        for wrong in bad[query]:
            with pytest.raises(WireError):
                query.check(Report(ids, {"report": wrong}))
        with pytest.raises(WireError):
            query.check(Report(ids, {"other": good}))
    with pytest.raises(WireError, match="17"):
        index.check_summary(Summary(18, {"report": np.ones(17, dtype=np.int64)}))


def test_kinds_and_lengths_of_messages() -> None:
    wide = Keys.of([f"w{j}" for j in range(5000)])
    assert FrequencyOracle(1.0, wide).query.kind == "projective"
    assert FrequencyOracle(9.0, DOMAIN).query.kind == "krr"
    assert FrequencyOracle(math.inf, wide).query.kind == "krr"
    assert FrequencyOracle(1.0, wide, kind="unary").query.kind == "unary"  # as it is named
    with pytest.raises(ValueError, match="kind"):
        OracleReports(wide, 1.0, kind="auto")
