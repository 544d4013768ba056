"""Few users: what the test of agreement balances, and errors beside the better of two methods."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.base.errors import WireError
from fedhist.model.query import Report
from fedhist.protocols.distributions.agreement_choice import (
    AGREEING,
    ALARMS,
    automatic,
    doubt,
    passing,
    terms_of,
)
from fedhist.protocols.distributions.count_rows import CountRows
from fedhist.protocols.distributions.distribution import Distribution
from fedhist.protocols.distributions.exceedance_counts import ExceedanceCounts
from fedhist.users.keys import Keys
from tests.protocols.running import run, streams, table_users


def zipf(k):
    p = 1 / np.arange(1, k + 1)
    return p / p.sum()


def people(kind, k, m, n, seed=1):
    """Users alike, Dirichlet(c p), or of whom a part draws from the mirror image."""
    rng, p = np.random.default_rng(seed), zipf(k)
    shares = np.tile(p, (n, 1))
    if kind[0] == "D":
        shares = rng.dirichlet(float(kind[1:]) * p, n)
    elif kind != "alike":
        shares[rng.permutation(n)[: round(n * float(kind))]] = p[::-1]
    return table_users(rng.multinomial(m, shares), Keys.of([f"{i:03d}" for i in range(k)]))


def predicted(users, m, epsilon, how="auto", delta=1e-6):
    protocol = Distribution(
        users.vocabulary, epsilon, m, len(users), delta=delta, mechanism=how, project=True
    )
    return protocol.error(users).expected


KINDS = ("alike", "D10000", "D1000", "D10", "D1", "0.5", "0.2", "0.05")


@pytest.mark.parametrize(
    ("k", "m", "n", "epsilon", "most"),
    [
        (20, 100, 400, 1.0, 1.3),
        (20, 1000, 800, 1.0, 1.3),
        (50, 300, 200, 3.0, 1.3),
        (5, 100, 200, 1.0, 1.5),
        (5, 1000, 400, 1.0, 1.65),
        (5, 1000, 800, 1.0, 1.65),
    ],
)
def test_never_much_worse_than_the_better_of_counts_and_selection(k, m, n, epsilon, most):
    """On all users there are; for five symbols no test does it by less, and predictions say so."""
    for kind in KINDS:
        users = people(kind, k, m, n)
        best = min(predicted(users, m, epsilon, how) for how in ("laplace", "ks"))
        assert predicted(users, m, epsilon) < most * best, kind
    task = Distribution(users.vocabulary, epsilon, m, n, delta=1e-6).task
    assert ("close" in doubt(task)) == (most > 1.3)
    assert terms_of(task).worst < most


@pytest.mark.parametrize("kind", ["alike", "D300", "0.05", "0.5"])
def test_predictions_are_what_is_measured(kind):
    """Forty runs, within 4.5 standard errors and 10 %: a false alarm has probability 1e-5."""
    k, m, n = 8, 300, 300
    users = people(kind, k, m, n)
    protocol = Distribution(users.vocabulary, 1.0, m, n, delta=1e-6)
    assert protocol.chosen is AGREEING
    truth = protocol.truth(users)
    losses = [protocol.loss(run(protocol, users, i).estimate.value, truth) for i in range(40)]
    expected = protocol.error(users).expected
    off = abs(float(np.mean(losses)) - expected)
    assert off < 4.5 * np.std(losses) / math.sqrt(40) + 0.1 * expected


def test_no_test_hides_fewer_with_the_same_budget():
    """One user more changes the chances by a factor of e^epsilon, at most and at every step.

    Both constraints of privacy are tight somewhere along the way, so that no other test of the
    same false alarms finds more: of chances to fail first, of chances to pass then.
    """
    for epsilon in (0.05, 0.3):
        for alarm in ALARMS:
            passed = passing(epsilon * np.arange(200), alarm)
            one, two = passed[:-1], passed[1:]
            least = np.maximum(one * math.exp(-epsilon), 1 - (1 - one) * math.exp(epsilon))
            assert (two >= least - 1e-12).all()
            tight = np.isclose(two, least, rtol=1e-9)
            assert (~tight).sum() <= 1  # where one law becomes the other


def test_a_selection_is_tried_where_it_gains_and_is_possible():
    keys = Keys.range(10)

    def task(n, m=1000, epsilon=1.0, delta=1e-6):
        return Distribution(keys, epsilon, m, n, delta=delta).task

    assert automatic(task(1000)) is AGREEING
    assert automatic(task(50)).name == "laplace"  # too few to select from
    assert automatic(task(1000, m=3)).name == "laplace"  # nothing to gain
    assert terms_of(task(1 << 16)) is None  # rows of too many
    assert doubt(task(1000, m=3)) == ""
    assert terms_of(task(1000)).epsilon < 0.21
    assert 1 <= terms_of(task(170)).radius < terms_of(task(1000)).radius < 5  # few must fit closely


def test_rows_are_what_summed_cells_are():
    users = people("D5", 6, 40, 50)
    keys = users.vocabulary
    thresholds = (0, 3, 10, 39)
    query = CountRows(keys, 30)
    summary = query.answer_folded(users, streams)
    cells = ExceedanceCounts(keys, 30, thresholds[:3])
    other = cells.below(cells.answer_folded(users, streams))
    assert np.array_equal(query.below(summary, thresholds[:3]), other)
    assert (summary.rows["counts"].sum(axis=1) == 30).all()
    query.check_summary(summary)
    shuffled = query.shuffled(summary)
    assert not np.array_equal(shuffled, summary.rows["counts"])
    assert np.array_equal(np.sort(shuffled, axis=0), np.sort(summary.rows["counts"], axis=0))


def test_rows_that_no_user_sends():
    query = CountRows(Keys.range(3), 5)
    ids = np.arange(2, dtype=np.uint64)
    for bad in (np.full((2, 3), 2), np.array([[6, 0, 0], [0, 0, 0]]), -np.ones((2, 3), dtype=int)):
        with pytest.raises(WireError):
            query.check(Report(ids, {"counts": bad}))
    with pytest.raises(WireError, match="'counts' is expected"):
        query.check(Report(ids, {"mean": np.zeros((2, 3))}))
    query.check(Report(ids, {"counts": np.array([[5, 0, 0], [0, 0, 0]])}))
