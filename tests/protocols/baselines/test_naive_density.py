"""Densities by one report over the whole range: what is asked, the error, and whom it protects."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from fedhist.base.errors import PopulationError
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.protocols.baselines.naive_density import NaiveDensity
from fedhist.protocols.baselines.scalar_reports import ItemScalars, SampledScalar
from fedhist.protocols.densities.density import Density
from fedhist.protocols.localize.queries import ClippedMean
from fedhist.users.batch import Users
from server.densities.series import tail_energy
from simulations.populations.density_samples import DensitySamples
from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.setup import set_up
from tests.protocols.running import drawn as run

METHODS = ("user-mean", "one-item", "item-level")


def sample(n: int, T: Any, density: Any = "two-bumps") -> Users:
    spec = DensitySamples(n_users=n, samples_per_user=T, density=density, seed=1)
    return spec.load().users


def bare(method: str, kind: str, n: int, T: int) -> NaiveDensity:
    return NaiveDensity(
        2.0,
        n,
        method,
        T,
        kind=kind,
        level=9,
        shrink=False,
        project=False,  # type: ignore[arg-type]
    )


# -- privacy ---------------------------------------------------------------------------------------


def test_what_is_asked_and_promised() -> None:
    kinds = {"user-mean": ClippedMean, "one-item": SampledScalar, "item-level": ItemScalars}
    users = NaiveDensity.example_users()
    for method, kind in kinds.items():
        protocol = dataclasses.replace(NaiveDensity.example(), method=method)
        estimate, queries, _ = run(protocol, users)
        assert [type(q) for q in queries] == [kind]
        assert (queries[0].half_width, queries[0].epsilon) == (1.0, 2.0)
        assert queries[0].functional.n_folds == 4
        if method == "item-level":
            continue
        assert protocol.guarantee == Guarantee(2.0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
        assert not estimate.warnings


def test_item_level_privacy_is_named() -> None:
    protocol = dataclasses.replace(NaiveDensity.example(), method="item-level")
    assert protocol.guarantee.adjacency is Adjacency.REPLACE_ITEM
    assert protocol.guarantee.unit == "item"
    assert "NOT user-level" in str(protocol.guarantee)
    estimate, queries, _ = run(protocol, NaiveDensity.example_users())
    assert not queries[0].exact  # real clients refuse it
    assert "NOT for a user: it is 8 for a user of 4 items" in estimate.warnings[0]
    assert estimate.public["user_level_epsilon"] == 8.0
    assert estimate.public["n_items"] == 1600


# -- error -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["laplace", "onebit", "piecewise"])
@pytest.mark.parametrize("method", METHODS)
def test_predicted_error(method: str, kind: str) -> None:
    """Of the series, in 40 runs.

    Over 200 runs 0.96 to 1.06 of the prediction. One run deviates by up to 50%, the average of 40
    by 8%: the bounds are over four deviations away.
    """
    users = sample(2000, 8)
    protocol = bare(method, kind, 2000, 8)
    truth, expected = protocol.truth(users), protocol.error(users).expected
    found = [protocol.loss(run(protocol, users, seed)[0].value, truth) for seed in range(40)]
    assert 0.6 < np.mean(found) / expected < 1.4


@pytest.mark.parametrize("method", METHODS)
def test_standard_errors_cover(method: str) -> None:
    """Squares of standardized errors, in 40 runs.

    Over 100 runs they average 0.96, 0.97 and 1.15; the average of 40 deviates by up to 9%.
    """
    users = sample(2000, 8, [0.3, -0.2])
    protocol = bare(method, "laplace", 2000, 8)
    truth = protocol.truth(users)
    z2 = []
    for seed in range(40):
        estimate, _, _ = run(protocol, users, seed)
        z2.append(np.mean(np.square((estimate.value - truth) / estimate.stderr)))
    assert 0.6 < np.mean(z2) < 1.5


def test_more_samples_help_neither_a_drawn_one_nor_the_level() -> None:
    """What localization buys: with 200 samples the same users get a tenth of the error.

    Over 24 runs 0.0437 and 0.0032; one run deviates by 40%, an average of four by 20%.
    """
    n, T = 6000, 200
    users = sample(n, T)
    few, many = (NaiveDensity(2.0, n, samples_per_user=t, radius=4.0) for t in (1, T))
    assert few.terms == many.terms
    assert few.error(users).expected == many.error(users).expected
    local = Density(2.0, n, T, radius=4.0)
    truth = many.truth(users)
    ours, theirs = (
        np.mean([p.loss(run(p, users, seed)[0].value, truth) for seed in range(4)])
        for p in (local, many)
    )
    assert ours < theirs / 3
    items = NaiveDensity(2.0, n, "item-level", T, radius=4.0)
    assert items.terms > many.terms


@pytest.mark.parametrize("method", METHODS)
def test_the_level_is_the_best_of_all(method: Any) -> None:
    protocol = NaiveDensity(1.0, 5000, method, 20, radius=3.0, kind="laplace")
    one = 8.0 + (1 / 40 if method == "user-mean" else 0.5)
    n = 5000 * (20 if method == "item-level" else 1)
    levels = range(1, 201, 2)
    totals = [2 * (j - 1) ** 2 * one / n + tail_energy(j, 1.0, 3.0) for j in levels]
    assert protocol.terms == levels[int(np.argmin(totals))] > 1
    estimate, _, _ = run(protocol, sample(5000, 20))
    assert estimate.public["predicted_ise"] == pytest.approx(min(totals))


# -- what users and configurations may be ----------------------------------------------------------


def test_truth_counts_users_or_samples() -> None:
    users = Users.from_records({"a": [0.1], "b": [0.6, 0.7, 0.8], "c": [0.2, math.nan], "d": []})
    x = (np.arange(16) + 0.5) / 16
    usual = {"epsilon": 1.0, "n_users": 4, "samples_per_user": 2, "level": 3, "grid": 16}
    for method, counted in (
        ("one-item", [([0.1], 1 / 2), ([0.6, 0.7, 0.8], 1 / 6)]),
        ("item-level", [([0.1, 0.6, 0.7, 0.8, 0.2], 1 / 5)]),
    ):
        protocol = NaiveDensity(method=method, truth_level=3, **usual)  # type: ignore[arg-type]
        wave = sum(w * 2 * np.cos(2 * math.pi * (x - v)) for values, w in counted for v in values)
        assert protocol.truth(users) == pytest.approx(1 + wave)
        with pytest.raises(PopulationError, match="no user has usable samples"):
            protocol.truth(Users.from_records({"a": [math.nan], "b": []}))


@pytest.mark.parametrize("method", METHODS)
def test_few_or_no_users(method: Any) -> None:
    protocol = NaiveDensity(1.0, 3, method, 2, level=9, grid=32, truth_level=9)
    estimate, _, _ = run(protocol, sample(3, 2))
    assert any("have no reports: zero stands in" in w for w in estimate.warnings)
    assert np.isfinite(estimate.value).all()
    assert np.isinf(estimate.stderr).all()
    nobody, _, _ = run(protocol, Users.from_samples([], [0], []))
    assert (nobody.status, nobody.reason) == ("failed", "nobody reported")


def test_one_term_asks_nobody() -> None:
    protocol = NaiveDensity(0.1, 50)
    assert (protocol.terms, protocol.max_rounds) == (1, 0)
    estimate, queries, _ = run(protocol, sample(50, 2))
    assert queries == []
    assert estimate.value.tolist() == [1.0] * 1024


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "all"}, "method.*all"),
        ({"method": "item-level", "samples_per_user": None}, "item-level.*None"),
        ({"samples_per_user": 0}, "samples_per_user.*0"),
        ({"samples_per_user": "harmonic-mean"}, "samples_per_user.*harmonic"),
        ({"kind": "gaussian"}, "kind.*gaussian"),
        ({"n_users": 0}, "n_users.*0"),
        ({"smoothness": -1.0}, "smoothness.*-1"),
        ({"level": 256}, "level.*256"),
    ],
)
def test_bad_parameters(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(NaiveDensity.example(), **wrong)


def test_the_built_in_comparison_has_every_kind() -> None:
    """Central, local and naive, ranked; without noise, or for single samples, flagged."""
    changes = ["population.n_users=400", "population.samples_per_user=20", "compare.seeds=1"]
    ready = set_up(load_comparison("density", changes))
    assert not ready.left_out
    flagged = {c.protocol.name: c.flags for c in ready.contenders if c.flags}
    assert flagged == {
        "central-density": ("NOT PRIVATE",),
        "naive-density": ("item-level: does not protect a user",),
    }
    ranked = {c.protocol.name for c in ready.contenders if not c.flags}
    assert ranked == {"central-density", "density", "naive-density"}
    assert {"user-mean", "one-item", "item-level"} == {
        c.protocol.method for c in ready.contenders if isinstance(c.protocol, NaiveDensity)
    }
