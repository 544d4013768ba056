"""Table 1 and Figure 3: sampling at all thresholds at once, losses, choices and verdicts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from running import count_table, table_users
from scipy.stats import chisquare, hypergeom

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments import table1
from simulations.experiments.experiment import Request, experiment
from simulations.experiments.unbounded_domain import Release, kept_totals, margins, scores_of

CLIPS = np.array([1, 2, 5, 9, 40])


def some_users(n: int = 300, d: int = 7, seed: int = 3, mean: float = 9.0) -> Users:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(mean / d * rng.gamma(0.5, 2.0, (n, 1)), (n, d))
    return table_users(counts)


def dense(users: Users) -> NDArray[np.float64]:
    return count_table(users, users.vocabulary)


def twins(n: int, first: int, second: int) -> Users:
    """n users with two items each that nobody else has, so that totals show every user."""
    user = np.repeat(np.arange(n), 2)
    words = Keys.of([f"{u:05d}{letter}" for u in range(n) for letter in "ab"])
    return Users.from_counts(np.arange(n), user, np.arange(2 * n), [first, second] * n, words)


def test_every_threshold_keeps_its_number_of_tokens_and_only_adds() -> None:
    """Sums are those of min(m, C); columns grow with C up to the raw totals."""
    users = some_users()
    sizes = dense(users).sum(axis=1)
    assert (sizes == 0).any()
    assert sizes.max() > 40
    clips = np.append(CLIPS, sizes.max())
    kept = kept_totals(users, clips, np.random.default_rng(5))
    assert kept.sum(axis=1).tolist() == [np.minimum(sizes, c).sum() for c in clips]
    assert (np.diff(kept, axis=0) >= 0).all()
    assert (kept[-1] == dense(users).sum(axis=0)).all()
    assert (margins(users)[0] == sizes).all()
    assert (margins(users)[1] == kept[-1]).all()


def test_kept_counts_are_hypergeometric() -> None:
    """Chi-squared, 6,000 users, three thresholds: a correct program fails with probability 3e-6."""
    n, first, second, rng = 6000, 3, 5, np.random.default_rng(1)
    kept = kept_totals(twins(n, first, second), np.array([1, 4, 6]), rng)[:, ::2]
    for c, drawn in zip((1, 4, 6), kept, strict=True):
        law = hypergeom(first + second, first, c).pmf(np.arange(c + 1))
        drawn = np.bincount(drawn, minlength=c + 1)
        assert not drawn[law == 0].any()
        few = law * n < 5
        pooled = (
            np.append(drawn[~few], drawn[few].sum()),
            np.append(law[~few], law[few].sum()) * n,
        )
        live = pooled[1] > 0
        assert chisquare(pooled[0][live], pooled[1][live]).pvalue > 1e-6


def test_expected_loss_is_the_mean_of_real_runs() -> None:
    """4,000 draws of the noise, within 5 standard errors: false alarm 1.2e-6."""
    release = Release(0.5, 0.01)
    kept, totals = np.array([0, 3, 30, 55, 200]), np.array([4, 3, 41, 55, 230])
    rng = np.random.default_rng(4)
    for clip in (1, 6):
        runs = [release.measured(clip, kept, totals, rng) for _ in range(4000)]
        error = np.std(runs) / math.sqrt(len(runs))
        assert abs(release.expected(clip, kept, totals) - np.mean(runs)) < 5 * error


def test_scores_are_the_formulas() -> None:
    users = some_users()
    release = Release(2.0, 0.01)
    task = release.task(1.0, 20, 4)
    counts = dense(users)
    m = counts.sum(axis=1)
    for c, score in zip(task.grid, scores_of(task, users), strict=True):
        h = (counts * np.minimum(1.0, c / np.maximum(m, 1))[:, None]).sum(axis=0)
        t, lost = release.level(c), np.maximum(m - c, 0).sum()
        assert score == pytest.approx(2 * lost + np.minimum(h, t).sum(), rel=1e-6)


def ask(name: str, *overrides: str, seed: int = 0, **more: str) -> Request:
    few = () if more.get("population") == "sentiment140" else ("population.n_users=2000",)
    data = Path(more.pop("data")) if "data" in more else None
    return experiment(name).request(
        overrides=(*few, *overrides), seed=seed, quick=True, data=data, **more
    )


def test_table1_shows_all_readings() -> None:
    """Thirteen lines each for i.i.d. and not; a cause stands with failures."""
    result = experiment("table1").run(ask("table1", "clip_step=200"))
    readings = ("as printed", "fitted", "fitted, n = 200")
    names = [f"{k}, d = 50 ({r})" for k in ("i.i.d.", "non-i.i.d.") for r in readings]
    assert list(dict.fromkeys(c.setting for c in result.checks)) == names
    by = {(c.setting, c.quantity): c for c in result.checks}
    for name in names:
        best, private = by[name, "best C"], by[name, "private C*"]
        assert best.paper is not None
        assert 0 < best.ours <= private.ours <= 1.2
        share = by[name, table1.ONE_RUN]
        assert (share.low, share.high) == pytest.approx((0.025, 0.975))
        assert 0 <= share.ours <= 1
        assert not private.judged
        assert not by[name, "private C* / best C"].judged
        assert by[name, "private C* / best C"].ours == pytest.approx(private.ours / best.ours)
    assert all(c.cause for c in result.failures if "as printed" in c.setting)
    assert {c.panel for c in result.curves} == set(names)
