"""Noise by two norms: the query is two, the choice costs its epsilon, the lesser noise is taken."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fedhist.base.errors import WireError
from fedhist.model.query import Report
from fedhist.protocols.clip_choice.by_exponential import slope_aim
from fedhist.protocols.clip_choice.theory import tails_of
from fedhist.protocols.clip_choice.two_norms import NormHistograms, norm_law
from fedhist.protocols.histograms.adaptive_histogram import AdaptiveHistogram
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.users.keys import Keys
from tests.protocols.running import result, streams, table_users, zipf_table


def law(protocol, users):
    """Weights of all outcomes (norm, C), in one vector."""
    tasks = protocol.task_in(1), protocol.task_in(2)
    tails = [
        tails_of(*user_norms(users, protocol.domain), t.grid, t.norm, slope_aim(t).radius)
        for t in tasks
    ]
    return tasks, np.concatenate(norm_law(*tasks, tuple(tails)))


def test_the_question_is_both_questions():
    users = table_users(np.vstack([zipf_table(30, 6, 5.0), np.zeros((2, 6), int)]))
    both = NormHistograms(users.vocabulary, (1.0, 2.0, 8.0), (1.0, 4.0), 1.5)
    report = both.answer(users, streams(users))
    both.check(report)
    summary = both.fold(report)
    both.check_summary(summary)
    for part in both.parts:
        alone = part.fold(part.answer(users, streams(users))).sums["weight"]
        assert both.part_of(summary, part.norm).sums["weight"].tolist() == alone.tolist()


def test_dishonest_reports_are_refused():
    users = table_users([[1, 2], [0, 3]])
    both = NormHistograms(users.vocabulary, (1.0,), (1.0,), 1.0)
    good = dict(both.answer(users, streams(users)).arrays)
    bad = [
        {k: v for k, v in good.items() if k != "bin1"},
        good | {"weight1": good["weight1"] + 1},
        good | {"bin2": good["bin2"] + 9},
        good | {"weight2": np.full(2, 1 << 21)},
    ]
    for arrays in bad:
        with pytest.raises(WireError):
            both.check(Report(users.ids, arrays))
    summary = both.fold(Report(users.ids, good))
    with pytest.raises(WireError):
        both.check_summary(replace(summary, sums=dict(summary.sums, l2=np.array([1 << 30]))))
    with pytest.raises(ValueError, match="radius must be positive, got 0"):
        NormHistograms(None, (1.0,), (1.0,), 0.0)


@pytest.mark.parametrize("adjacency", ["zero-out-user", "replace-user"])
def test_the_choice_costs_exactly_its_epsilon_at_most(adjacency):
    """All pairs among populations of two users with 0, 1, 3 or 9 of each of 40 items or of one."""
    protocol = AdaptiveHistogram(
        Keys.range(40), 1.5, 1e-2, epsilon_choice=0.9, clip_max=16.0, per_octave=1,
        adjacency=adjacency,
    )  # fmt: skip
    assert protocol.norms == (1, 2)
    rows = [np.zeros(40, int)]
    for count in (1, 3, 9):
        rows += [np.full(40, count), np.eye(40, dtype=int)[0] * count]
    worst = 0.0
    for other in (0, 1, 4):
        laws = [law(protocol, table_users(np.stack([r, rows[other]])))[1] for r in rows]
        for a, b in itertools.permutations(range(len(rows)), 2):
            if adjacency == "replace-user" or 0 in (a, b):
                assert ((laws[a] > 0) == (laws[b] > 0)).all()  # else a threshold loses for sure
                some = laws[a] > 0
                worst = max(worst, float(np.log(laws[a][some] / laws[b][some]).max()))
    assert worst <= 0.9 * (1 + 1e-9)
    assert worst > 0.3


def test_runs_follow_the_law():
    """400 runs: every outcome's count within 5 standard deviations; false alarm below 1e-5."""
    users = table_users(zipf_table(400, 60, 12.0))
    protocol = AdaptiveHistogram(users.vocabulary, 2.0, 1e-5, clip_max=64.0)
    (l1, l2), weights = law(protocol, users)
    assert weights.sum() == pytest.approx(1.0)
    outcomes = [(1, c) for c in l1.grid] + [(2, c) for c in l2.grid]
    runs = [result(protocol, users, seed) for seed in range(400)]
    seen = Counter((int(e.public["norm"]), float(e.public["clip"])) for e in runs)
    assert sum(seen.values()) == 400
    assert seen.keys() <= set(outcomes)
    for outcome, p in zip(outcomes, weights, strict=True):
        assert abs(seen[outcome] - 400 * p) <= 5 * math.sqrt(400 * p * (1 - p)) + 1
    labels = {tuple(e.label for e in run.ledger.entries) for run in runs}
    assert labels == {("l1-clip", "l2-clip", "gaussian"), ("l1-clip", "l2-clip", "laplace")}
    spent = runs[0].ledger.entries
    assert sum(e.release.epsilon for e in spent) == pytest.approx(2.0)


def test_few_items_have_laplace_noise_whoever_they_are():
    """sqrt(d) <= 0.8 k2 z epsilon_r / k1: no user is broad enough for Gaussian noise."""
    for d, norms in ((1, (1,)), (8, (1,)), (40, (1, 2))):
        protocol = AdaptiveHistogram(Keys.range(d), 1.0, 1e-6)
        assert protocol.norms == norms
        assert replace(protocol, noise="gaussian").norms == (2,)
        assert replace(protocol, noise="laplace").norms == (1,)
        assert replace(protocol, delta=0.0).norms == (1,)
        assert replace(protocol, threshold="dp-sgd").norms == (2,)


@pytest.mark.parametrize(
    ("broad", "n", "d"), [(True, 2000, 60), (False, 2000, 60), (True, 4000, 300), (False, 400, 300)]
)
def test_it_is_near_the_better_noise(broad, n, d):
    """Within 1.35 of the better one, exactly; the worse one is up to three times the better."""
    if broad:
        table = np.random.default_rng(0).poisson(2.0, (n, d))
    else:
        table = np.eye(d, dtype=int)[np.arange(n) % d] * 7
    users = table_users(table, Keys.range(d))
    protocol = AdaptiveHistogram(Keys.range(d), 1.0, 1e-6, n_users=n)
    ours, laplace, gaussian = (
        replace(protocol, noise=noise).error(users).expected
        for noise in ("auto", "laplace", "gaussian")
    )
    assert ours <= 1.35 * min(laplace, gaussian)
    assert (gaussian < laplace) == broad
