"""Decisions against searches in plain NumPy: epsilon within 10%, and the target holds.

Every search bisects epsilon by the mean error over 20,000 runs of a mechanism in a few lines. The
decision is left the protocols that are that mechanism: it finds its epsilon within 10%. Over 400
fresh runs its error is above 1.05 times the target by no more than the 99% interval.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fedhist as fh
from fedhist.model.registry import load_builtin, protocols

load_builtin()
pytestmark = pytest.mark.slow

Error = Callable[[float, np.random.Generator], float]
RUNS, SEARCHED = 400, 20_000


def least_epsilon(error: Error, target: float) -> float:
    """Bisect: the mean error falls with epsilon."""
    low, high = 0.005, 64.0
    for step in range(14):
        middle = math.sqrt(low * high)
        rng = np.random.default_rng(step)
        low, high = (low, middle) if error(middle, rng) <= target else (middle, high)
    return high


def zipf_counts() -> pl.DataFrame:
    rng = np.random.default_rng(3)
    n, d = 5000, 20
    p = 1 / np.arange(1, d + 1)
    item = rng.choice(d, n, p=p / p.sum())
    return pl.DataFrame({"user": np.arange(n), "item": [f"i{j}" for j in item]})


def real(name: str, columns: list[str]) -> pl.DataFrame:
    folder = os.environ.get("FEDHIST_DATA")
    if folder is None or not (Path(folder) / name).is_file():
        pytest.skip("needs the folder FEDHIST_DATA")
    return pl.read_csv(Path(folder) / name, separator="\t").select(columns)


def check_decision(
    users: fh.Users, given: dict[str, Any], name: str, error: float, search: Error
) -> None:
    """Check a decision of one level against a search, and over fresh runs."""
    others = [n for n, cls in protocols().items() if cls.target == given["target"] and n != name]
    d = fh.decide(data=users, error=f"{100 * error:g}%", without=others, **given)
    (f,) = d.findings
    assert f.x is not None
    assert f.trial is not None
    assert f.x == pytest.approx(least_epsilon(search, error), rel=0.1)
    fresh = range(1 << 31, (1 << 31) + RUNS)
    losses = np.array(d.problem.run(f.trial.candidate, f.x, fresh).losses)
    top = losses.mean() - 2.576 * losses.std() / math.sqrt(RUNS)
    assert d.problem.measure.stated(top) <= 1.05 * error


def test_a_histogram_with_laplace_noise() -> None:
    """One item each; a replaced user moves two counts by 1."""
    frame = zipf_counts()
    n, d = 5000, 20

    def error(epsilon: float, rng: np.random.Generator) -> float:
        return float(np.abs(rng.laplace(0, 2 / epsilon, (SEARCHED, d))).sum(axis=1).mean() / n)

    users = fh.Users.from_frame(frame, user="user", item="item")
    given = {"target": "histogram", "trust": "central", "delta": 0.0, "top": d}
    check_decision(users, given | {"protocol": {"clip": 1.0}}, "bounded-histogram", 0.02, error)


def test_a_histogram_with_gaussian_noise_of_listeners() -> None:
    """Last.fm: a user's plays are cut to an l2 norm of 50,000; the noise is by dp-accounting."""
    from dp_accounting.dp_event import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    frame = real("lastfm_user_artists.tsv", ["userID", "artistID", "weight"])
    top = frame.group_by("artistID").agg(pl.len(), pl.sum("weight")).sort("weight").tail(100)
    rows = frame.join(top.select("artistID"), on="artistID").sort("userID")
    user, place = (rows[c].rank("dense").to_numpy() - 1 for c in ("userID", "artistID"))
    dense = np.zeros((int(user.max()) + 1, 100))
    dense[user, place] = rows["weight"].to_numpy()
    clip, truth = 50_000.0, dense.sum(axis=0)
    cut = dense * np.minimum(1, clip / np.linalg.norm(dense, axis=1))[:, None]

    def sigma(epsilon: float) -> float:
        low, high = 0.01, 1000.0
        for _ in range(30):
            middle = math.sqrt(low * high)
            accountant = PLDAccountant().compose(GaussianDpEvent(middle))
            met = accountant.get_epsilon(1e-6) <= epsilon
            low, high = (low, middle) if met else (middle, high)
        return high * math.sqrt(2) * clip

    def error(epsilon: float, rng: np.random.Generator) -> float:
        noise = rng.normal(0, sigma(epsilon), (RUNS, 100))
        return float(np.abs(cut.sum(axis=0) + noise - truth).sum(axis=1).mean() / truth.sum())

    users = fh.Users.from_frame(
        frame.cast({"artistID": pl.String}), user="userID", item="artistID", count="weight"
    )
    given = {"target": "histogram", "trust": "central", "delta": 1e-6}
    domain = [str(a) for a in top["artistID"]]
    given |= {"domain": domain, "protocol": {"clip": clip}}
    check_decision(users, given, "bounded-histogram", 0.5, error)


def test_shares_by_randomized_response() -> None:
    frame = zipf_counts()
    counts = frame["item"].value_counts().sort("item")["count"].to_numpy()
    n, d = int(counts.sum()), len(counts)

    def error(epsilon: float, rng: np.random.Generator) -> float:
        p = math.exp(epsilon) / (math.exp(epsilon) + d - 1)
        q = (1 - p) / (d - 1)
        told = np.zeros((SEARCHED, d))
        for j in range(d):
            law = np.full(d, q)
            law[j] = p
            told += rng.multinomial(counts[j], law, SEARCHED)
        return float(np.abs((told / n - q) / (p - q) - counts / n).sum(axis=1).mean())

    users = fh.Users.from_frame(frame, user="user", item="item")
    given = {"target": "distribution", "trust": "local", "top": d}
    given |= {"protocol": {"kind": "krr", "project": False}}
    check_decision(users, given, "frequency-oracle", 0.3, error)


def test_a_mean_of_ratings_with_laplace_noise_on_the_box() -> None:
    """MovieLens: the average of users' own means, in [1, 5]: one user moves it by 4 / n."""
    frame = real("movielens_100k.tsv", ["userId", "rating"])
    n = frame["userId"].n_unique()
    mean = float(frame.group_by("userId").agg(pl.mean("rating"))["rating"].mean() or 0.0)

    def error(epsilon: float, rng: np.random.Generator) -> float:
        return float(np.sqrt(np.square(rng.laplace(0, 4 / (n * epsilon), SEARCHED)).mean()) / mean)

    users = fh.Users.from_frame(frame, user="userId", value="rating")
    given = {"target": "mean", "trust": "central", "delta": 0.0}
    given |= {"protocol": {"low": 1.0, "high": 5.0}}
    check_decision(users, given, "box-mean", 0.01, error)


def test_a_mean_of_ratings_by_one_bit_each() -> None:
    """Every user rounds its mean to an end of [1, 5] at random and flips the bit."""
    frame = real("movielens_100k.tsv", ["userId", "rating"])
    own = frame.group_by("userId").agg(pl.mean("rating"))["rating"].to_numpy()
    n, mean = len(own), float(own.mean())

    def error(epsilon: float, rng: np.random.Generator) -> float:
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        ends = rng.random((RUNS, n)) < (own - 1) / 4
        bits = ends ^ (rng.random((RUNS, n)) >= p)
        value = 1 + 4 * (bits.mean(axis=1) - (1 - p)) / (2 * p - 1)
        return float(np.sqrt(np.square(value - mean).mean()) / mean)

    users = fh.Users.from_frame(frame, user="userId", value="rating")
    given = {"target": "mean", "trust": "local"}
    given |= {"protocol": {"low": 1.0, "high": 5.0, "method": "user-mean"}}
    check_decision(users, given, "naive-mean", 0.05, error)


def test_a_median_of_mean_ratings_by_the_exponential_mechanism() -> None:
    """Users' own means on 100 bins of [1, 5]; a replaced user moves the rank of a bin by 1."""
    frame = real("movielens_100k.tsv", ["userId", "rating"])
    own = frame.group_by("userId").agg(pl.mean("rating")).sort("userId")
    x, middles = own["rating"].to_numpy(), 1 + 4 * (np.arange(100) + 0.5) / 100
    n, inside = len(x), np.histogram(x, 100, (1.0, 5.0))[0]
    upto = np.cumsum(inside)
    score = -np.maximum(upto - inside - n / 2, n / 2 - upto)
    off = np.array([max((x < m).mean() - 0.5, 0.5 - (x <= m).mean(), 0) for m in middles])

    def error(epsilon: float, rng: np.random.Generator) -> float:
        law = np.exp(epsilon * (score - score.max()) / 2)
        return float(off[rng.choice(100, SEARCHED, p=law / law.sum())].mean())

    users = fh.Users.from_frame(own, user="userId", value="rating")
    given = {"target": "quantiles", "trust": "central", "delta": 0.0}
    given |= {"protocol": {"low": 1.0, "high": 5.0, "n_bins": 100, "levels": [0.5]}}
    least = least_epsilon(error, 0.01)
    d = fh.decide(data=users, error="1%", **given)
    (f,) = d.findings
    assert f.x is not None
    assert 0.9 * least <= f.x <= 1.1 * least
