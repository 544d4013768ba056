"""Values that protocols and questions refuse: a ValueError that names the field, or what to write.

What every protocol refuses alike, as a bad epsilon or a value of another type, is in the contract.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from clients.centred.queries import RadiusVotes, RankReports
from clients.distributions.queries import CentredNorms, ExceedanceCounts, ItemCounts
from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from clients.records.functionals import BallMean, Coordinates
from clients.regression.queries import UserGradients
from fedhist.protocols import (
    CentralDensity,
    CoverSelect,
    Density,
    Distribution,
    FewUsersDistribution,
    FewUsersMean,
    LocalDistribution,
    Mean,
    MeanL2,
    MeanLinf,
    RaggedDistribution,
    SparseMean,
    UserLevelErm,
)
from fedhist.users.keys import Keys

NOBODY = Keys.of(())
ABC = Keys.of(["a", "b", "c"])
FEW = FewUsersMean(epsilon=1.0, n_users=100, dimension=32, radius=0.1)
DENSITY = Density(1.0, 100, 10)
FOLDS = replace(DENSITY, basis="fourier", method="folds")
RAGGED = RaggedDistribution(Keys.range(3), 1.0, 1e-6, n_users=100)
RANKS = RankReports(BallMean(3, 1.0), np.zeros(3), 0.5, 1.0)
RADII = RadiusVotes(BallMean(3, 1.0), np.zeros(3), np.array([0.8, 0.4]), 1.0)
VOTES = BinVotes(Coordinates(1), 70, 1.0)
REPORTS = ClippedMean(Coordinates(1), np.array([0.1]), 0.2, 1.0, "onebit")
NORMS = CentredNorms(ABC, 3, False, np.full(3, 0.3), np.full(3, 0.5), np.array([0.3, 0.9]))

NAMED: list[tuple[Any, list[dict[str, Any]]]] = [
    (CentralDensity.example(), [{"smoothness": 0.0}, {"radius": math.inf}, {"level": 0}]),
    (CentralDensity.example(), [{"truth_level": 256}, {"grid": 1}, {"delta": 1.0}]),
    (CentralDensity.example(), [{"n_users": 0}, {"samples_per_user": 0.5}]),
    (CoverSelect.example(), [{"n_users": 0}, {"dimension": 0}, {"bound": -1.0}, {"per_axis": 0}]),
    (CoverSelect.example(), [{"geometry": "cube"}, {"sparsity": 2}, {"smoothness": 1.0}]),
    (DENSITY, [{"smoothness": 0.0}, {"radius": math.inf}, {"basis": "sine"}, {"method": "fold"}]),
    (DENSITY, [{"level": 1024}, {"clip_mass": 0.6}]),
    (FOLDS, [{"smoothness": 0.0}, {"level": 0}, {"truth_level": 2000}, {"grid": 1}]),
    (Distribution.example(), [{"samples_per_user": 0}, {"n_users": 0}, {"domain": NOBODY}]),
    (Distribution.example(), [{"p_max": 0.2}, {"p_max": 1.1}, {"assume": "iid"}]),
    (FewUsersDistribution.example(), [{"samples_per_user": 0}, {"domain": ["a"]}]),
    (FEW, [{"radius": 0.0}, {"radius": None}, {"delta": 0.0}, {"box": -1.0}, {"n_users": 0}]),
    (FEW, [{"samples_per_user": 0, "sample_radius": 1.0, "radius": None}, {"method": "cubes"}]),
    (FEW, [{"n_blocks": n, "method": "blocks"} for n in (3, 64)]),
    (FEW, [{"kappa": 0.4}, {"kappa": 0.9, "corrupted": 0.2}, {"corrupted": 0.5}, {"lam": 0.0}]),
    (FEW, [{"n_rounds": 0}, {"failure": 1.0}]),
    (LocalDistribution.example(), [{"samples_per_user": 0.0}, {"method": "best"}]),
    (LocalDistribution.example(), [{"clip_mass": 0.9}]),
    (Mean.example(), [{"low": 2.0}]),
    (MeanLinf.example(), [{"dimension": 0}, {"low": 2.0}]),
    (MeanL2.example(), [{"dimension": 0}, {"radius": 0.0}, {"radius": math.inf}]),
    (MeanL2.example(), [{"c_sigma": 1.5}, {"clip_mass": 0.1}, {"method": "best"}]),
    (RAGGED, [{"domain": NOBODY}, {"m_max": 0}, {"n_users": 0}, {"n_users": None}]),
    (RAGGED, [{"mechanism": "magic"}, {"assume": "alike"}, {"m_max": 1 << 22, "mechanism": "ks"}]),
    (RAGGED, [{"delta": 0.0, "mode": "paper"}, {"delta": 0.0, "mechanism": "centred"}]),
    (SparseMean.example(), [{"sparsity": 0}, {"sparsity": 1.5}, {"dimension": 0}, {"radius": 0.0}]),
    (SparseMean.example(), [{"max_votes": 13}, {"max_votes": 3, "mode": "paper"}]),
    (SparseMean.example(), [{"method": "both"}, {"vote": "count"}]),
    (UserLevelErm.example(), [{"radius": 0.0}, {"spread": math.inf}, {"strong_convexity": 99.0}]),
    (UserLevelErm.example(), [{"ridge": -0.1}, {"step": 0.0}, {"dimension": 0}, {"delta": 0.0}]),
    (UserLevelErm.example(), [{"model": "probit"}, {"oracle": "sgd"}, {"iterate": "best"}]),
    (UserLevelErm.example(), [{"max_failed": 1.0}, {"curvature": 99.0}, {"kappa": 0.5}]),
    (UserLevelErm.example(), [{"lam": 0.0}, {"discrete": True, "oracle": "few-users"}]),
    *(
        (cls.example(), [{"n_users": 0}, {"samples_per_user": 0.5}, {"salt": -1}])
        for cls in (Mean, MeanLinf, MeanL2, Density, LocalDistribution, SparseMean)
    ),
    *(
        (cls.example(), [{"mean_scale": -1.0}, {"kind": "gauss"}])
        for cls in (Mean, MeanLinf, SparseMean)
    ),
    *(
        (RANKS, [{"centre": centre}])
        for centre in (np.zeros(2), np.array([0, 0, math.nan]), np.zeros(3, dtype=np.float32))
    ),
    (RANKS, [{"radius": 0.0}, {"salt": -1}]),
    *((RADII, [{"edges": np.array(edges)}]) for edges in ([], [0.1, 0.2], [0.1, -0.2], [math.inf])),
    (VOTES, [{"n_bins": 0}, {"fold_salt": -1}]),
    (REPORTS, [{"kind": "auto"}, {"half_width": 0.0}, {"centres": np.array([math.inf])}]),
    (REPORTS, [{"centres": np.zeros(2)}]),
    (HashedVotes(5, 1.0, 0.3, 3, 1.0), [{"dimension": 0}, {"radius": math.inf}, {"reach": -1.0}]),
    (HashedVotes(5, 1.0, 0.3, 3, 1.0), [{"threshold": 0.0}, {"max_votes": 0}, {"vote": "count"}]),
    (HashedVotes(5, 1.0, 0.3, 3, 1.0), [{"hash_salt": -1}, {"max_items": -1}, {"epsilon": 0.0}]),
    (ItemCounts(ABC, 4), [{"domain": NOBODY}, {"m": 0}, {"m": True}, {"m": (1 << 31) + 1}]),
    (ExceedanceCounts(ABC, 4, (0, 2)), [{"domain": NOBODY}, {"m": 0}]),
    *(
        (ExceedanceCounts(ABC, 4, (0, 2)), [{"thresholds": levels}])
        for levels in ((), (0, 4), (1, 1), (-1, 1))
    ),
    (NORMS, [{"centre": np.array(c)} for c in ([0.5, 0.5], [0.5, 0.5, np.nan], [2.0, 0.0, 0.0])]),
    (NORMS, [{"spread": np.array([0.0, 1.0, 1.0])}, {"radii": np.ones(2)}, {"m": 0}]),
    (
        UserGradients("logistic", np.zeros(2), np.zeros(2), 1.0),
        [
            {"model": "probit"},
            {"theta": np.array([1.0, math.nan])},
            {"theta": np.array([1, 2])},
            {"centre": np.zeros(3)},
            {"clip": 0.0},
            {"clip": math.inf, "discrete": True},
            {"keep_rows": True, "discrete": True},
        ],
    ),
]
"""Changes of something that is right; the first field of each is at fault."""

TOLD: list[tuple[Any, dict[str, Any], str]] = [
    (CoverSelect.example(), {"geometry": "sparse"}, "sparsity .* 0"),
    (CoverSelect.example(), {"geometry": "sobolev"}, r"smoothness .* 0\.0"),
    (CoverSelect.example(), {"per_axis": 3000}, "cells"),
    (CentralDensity.example(), {"adjacency": "add-remove-user"}, "add-remove-user"),
    (DENSITY, {"method": "folds"}, "'cosine'"),
    (Distribution.example(), {"mechanism": "laplacian"}, "'laplace'"),
    (Distribution.example(), {"mode": "paper"}, "mechanism"),
    (Distribution.example(), {"mode": "paper", "mechanism": "laplace"}, "'laplace'"),
    (FEW, {"samples_per_user": 5, "sample_radius": 1.0}, "give radius"),
    (FEW, {"method": "large-n"}, "box"),
    (FEW, {"method": "drawn"}, '"central-mean"'),
    (FEW, {"mode": "paper", "method": "blocks"}, "'blocks'"),
    (FEW, {"mode": "paper", "epsilon": 0.001}, "1/2"),
    (LocalDistribution.example(), {"domain": NOBODY}, "symbols"),
    (LocalDistribution.example(), {"method": "auto"}, "gone"),
    (Mean.example(), {"mode": "paper", "kind": "onebit"}, "'onebit'"),
    (MeanL2.example(), {"method": "auto"}, "write method"),
    (RAGGED, {"mode": "paper", "mechanism": "frequencies"}, "'frequencies'"),
    (RAGGED, {"median": "dyadic"}, "paper"),
    (SparseMean.example(), {"method": "auto"}, '"vectors"'),
    (SparseMean.example(), {"mode": "paper", "vote": "sign"}, "'sign'"),
    (SparseMean.example(), {"min_signal": 0.1}, "max_votes"),
    (VOTES, {"functional": Coordinates(2049), "n_bins": 65536}, "2049 .* 65536"),
    (
        ExceedanceCounts(ABC, 4, (0, 2)),
        {"domain": Keys.range(1 << 20), "m": 100, "thresholds": tuple(range(100))},
        "too many",
    ),
]


def cases() -> Iterator[Any]:
    named = [(good, bad, next(iter(bad))) for good, changes in NAMED for bad in changes]
    for good, bad, words in (*named, *TOLD):
        values = ", ".join(f"{k}={v}" for k, v in bad.items())[:60]
        yield pytest.param(good, bad, words, id=f"{type(good).__name__}: {values}")


@pytest.mark.parametrize(("good", "bad", "words"), list(cases()))
def test_what_is_refused_is_named(good: Any, bad: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        replace(good, **bad)
