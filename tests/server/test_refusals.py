"""Values that protocols, questions and policies refuse: an error that names the field."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.centred.queries import RadiusVotes, RankReports
from clients.distributions.queries import CentredNorms, ExceedanceCounts, ItemCounts
from clients.guard import Policy
from clients.heavy_hitters.queries import CodeCounts, CodePieces, packed
from clients.histograms.contributions import NormHistogram
from clients.histograms.key_queries import RandomClip, SizeCurves
from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from clients.quantiles.queries import RankCells
from clients.records.functionals import BallMean, BoxMean, Leaning, Rotated
from clients.regression.queries import UserGradients
from fedhist.channels.bits import MAX_BITS
from fedhist.channels.covers import MAX_BITS as COVER_BITS
from fedhist.channels.covers import BallLattice, BoxGrid, SobolevLattice, SparseLattice
from fedhist.channels.layers import Layers
from fedhist.channels.oracles import UnaryOracle
from fedhist.channels.sphere import MAX_DIMENSION, SphereChannel
from fedhist.model.aggregated import Share
from fedhist.privacy.shuffling import Shuffling
from fedhist.protocols import (
    AdaptiveHistogram,
    BoundedHistogram,
    CentralDensity,
    CoverSelect,
    Density,
    Distribution,
    FewUsersDistribution,
    FewUsersMean,
    FrequencyOracle,
    HeavyHitters,
    LocalDistribution,
    LocalHistogram,
    Mean,
    MeanL2,
    MeanLinf,
    NaiveMean,
    PoissonCounts,
    Quantiles,
    RaggedDistribution,
    SparseMean,
    UnboundedHistogram,
    UserLevelErm,
)
from fedhist.secagg import Terms
from server.session.unknown_keys import WeightedKeys

NOBODY = fh.Keys.of(())
ABC = fh.Keys.of(["a", "b", "c"])
FEW = FewUsersMean(epsilon=1.0, n_users=100, dimension=32, radius=0.1)
DENSITY = Density(1.0, 100, 10)
FOLDS = replace(DENSITY, basis="fourier", method="folds")
RAGGED = RaggedDistribution(fh.Keys.range(3), 1.0, 1e-6, n_users=100)
RANKS = RankReports(BallMean(3, 1.0), np.zeros(3), 0.5, 1.0)
RADII = RadiusVotes(BallMean(3, 1.0), np.zeros(3), np.array([0.8, 0.4]), 1.0)
VOTES = BinVotes(fh.Coordinates(1), 70, 1.0)
REPORTS = ClippedMean(fh.Coordinates(1), np.array([0.1]), 0.2, 1.0, "onebit")
NORMS = CentredNorms(ABC, 3, False, np.full(3, 0.3), np.full(3, 0.5), np.array([0.3, 0.9]))

BOUNDED = BoundedHistogram.example()
ADAPTIVE = AdaptiveHistogram(ABC, 1.0, 1e-6)
UNBOUNDED = UnboundedHistogram(1.0, 1e-6, clip=10)
KEYS = UnboundedHistogram(1.0, 1e-6, method="keys")
POISSON = PoissonCounts(fh.Keys.of(["tea"]), 1.0, n_users=10, clip=4)
NAIVE = NaiveMean(epsilon=1.0, n_users=40, samples_per_user=3)
CELLS = RankCells(0.0, 1.0, 5, "samples", 1.0, np.array([[1, 3]]), np.array([[0.25, 0.75]]))
PIECES = CodePieces(packed(["000", "011"], 3), 3, 1, "text", 1.0, 8)
VOTED = CodeCounts(packed(["000", "011"], 3), 3, 1, "text", math.inf, 8)
SHUFFLING = Shuffling(1.0, 1e-6, 20_000, tau=0.0)
SHARE = Share("gaussian", 0.5, 1e-6, "zero-out-user", 20)
COORDINATES = fh.Coordinates(2, 0.0, 1.0)
CURVES = SizeCurves((1, 2))
SPHERE = SphereChannel(2, 1.0, 1.0)
COHORT = fh.Cohort(1, 0.0, 0.5)
TERMS = Terms(b"q", 10, 1, 1, 32, 1)
POLICY = Policy()

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
    (BOUNDED, [{"delta": 1.0}, {"clip": -1.0}, {"clip": math.nan}, {"grid": 0.0}, {"grid": 17.0}]),
    (BOUNDED, [{"grid": 1e-12}, {"adjacency": "swap"}, {"domain": NOBODY}]),
    (ADAPTIVE, [{"delta": 1.0}, {"epsilon_choice": 0.0}, {"epsilon_choice": 1.0}, {"steps": 0}]),
    (ADAPTIVE, [{"noise": "none"}, {"clip_min": 0.0}, {"clip_min": 5.0, "clip_max": 4.0}]),
    (ADAPTIVE, [{"clip_max": math.inf}, {"sparsity": 0}, {"sparsity": 4}, {"domain": NOBODY}]),
    (ADAPTIVE, [{"delta": 0.0, "threshold": "dp-sgd"}, {"delta": 0.0, "noise": "gaussian"}]),
    (UNBOUNDED, [{"delta": 0.0}, {"clip": 0}, {"clip": 10.0}, {"clip_max": 0, "clip": None}]),
    (UNBOUNDED, [{"threshold": "median"}, {"mode": "printed"}, {"epsilon_choice": 0.1}]),
    (UNBOUNDED, [{"method": "both"}, {"epsilon_keys": 0.5}, {"clip": 10, "method": "keys"}]),
    (KEYS, [{"mode": "paper"}, {"threshold": "paper"}, {"epsilon_keys": 1.0}]),
    (POISSON, [{"clip": 0}, {"clip": 2.5}, {"clip": 2**31}, {"clip_max": 0, "clip": None}]),
    (POISSON, [{"n_users": 0}, {"delta": 1.0}, {"domain": NOBODY}]),
    (POISSON, [{"epsilon_choice": 1.0, "clip": None}]),
    (NAIVE, [{"dimension": 0}, {"dimension": 0, "geometry": "l2"}, {"method": "both"}]),
    (NAIVE, [{"geometry": "l1"}, {"low": 1.0}, {"radius": 0.0, "geometry": "l2"}]),
    (NAIVE, [{"kind": "gauss"}, {"samples_per_user": 0.5}, {"salt": -1}]),
    (LocalHistogram.example(), [{"clip": c} for c in (0, -1, 2.5, "best", 1 << 31)]),
    (LocalHistogram.example(), [{"oracle": "direct"}, {"domain": NOBODY}]),
    (FrequencyOracle.example(), [{"domain": NOBODY}, {"kind": "best"}]),
    (Quantiles.example(), [{"levels": x} for x in ((), (0.5, 0.5), (0.0, 0.5))]),
    (Quantiles.example(), [{"low": 1.0}, {"n_bins": 1}, {"of": "items"}, {"kind": "forest"}]),
    (Quantiles.example(), [{"low": -1e308, "high": 1e308}, {"adjacency": "replace-item"}]),
    (HeavyHitters.example(), [{"level_bits": 30}, {"exclude": "tea"}]),
    *((CELLS, [{"upto": np.array(x)}]) for x in ([[4, 4]], [[-1, 2]], [[3, 1]], [[0.5, 1]], [1])),
    *((CELLS, [{"levels": np.array([x])}]) for x in ([0.1, 1.5], [0.5, 0.1], [math.nan, 0.5])),
    (CELLS, [{"of": "items"}, {"n_bins": 1}, {"low": 1.0}]),
    (PIECES, [{"prefixes": packed(x, 3)} for x in (["011", "000"], ["000", "000"])]),
    (PIECES, [{"prefixes": packed(["00001"], 5)}, {"prefixes": np.zeros((2, 2), np.uint8)}]),
    (PIECES, [{"size": 3}, {"size": (1 << 22) + 1}, {"code": "gzip"}]),
    (RandomClip(3), [{"clip": c} for c in (0, -1, (1 << 31) + 1, 2.0, True)]),
    (NormHistogram(None, (1.0,), 1), [{"edges": e} for e in ((), (2.0, 1.0), (-1.0,))]),
    (NormHistogram(None, (1.0,), 1), [{"norm": 3}, {"radius": -1.0}, {"domain": NOBODY}]),
    (WeightedKeys(5, 1.0, 1e-6), [{"limit": 0}, {"epsilon": 0.0}, {"delta": 0.0}]),
    (SHUFFLING, [{"delta": 0.0}, {"delta": 1.0}, {"tau": 0.5}, {"tau": math.nan}]),
    (SHUFFLING, [{"tau": -0.1}, {"n_users": 0}, {"colluders": -1}]),
    (SHARE, [{"parties": 0}, {"tau_d": 0.5}, {"tau_c": -0.1}, {"kind": "skellam"}, {"bits": 48}]),
    (SHARE, [{"delta": 0.0}, {"place": 2, "rounds": 2}, {"epsilon": 0.0}]),
    (COORDINATES, [{"dimension": 0}, {"dimension": 1 << 25}, {"low": 1.0}, {"max_items": -1}]),
    (COORDINATES, [{"low": -1e308, "high": 1e308}, {"columns": np.array([0, 2])}]),
    (COORDINATES, [{"columns": np.array([0.0])}, {"columns": np.empty(0, dtype=np.int64)}]),
    (Rotated(2, 1.0, 1), [{"radius": 0.0}, {"radius": math.inf}, {"clip": 0.0}]),
    (BoxMean(3, 1.0, np.array([0])), [{"columns": np.array([3])}]),
    (Leaning(3, 1.0, 0.1, 4.0), [{"most": 301.0}, {"scale": 0.0}]),
    (BallMean(2, 1.0), [{"dimension": 0}, {"radius": math.inf}]),
    (TERMS, [{"parties": 1}, {"parties": (1 << 16) + 1}, {"drop": -1}, {"collude": 99}]),
    (TERMS, [{"bits": 31}, {"length": 0}, {"digest": b""}]),
    (POLICY, [{"max_answers": 0}, {"max_reply_bytes": 0}, {"max_store_bytes": 0}]),
    (POLICY, [{"simulated": "false"}, {"trust": "everyone"}]),
    (Layers(1.0, 4, 2), [{"epsilon": 0.0}, {"size": 1}, {"chosen": 0}, {"chosen": 4}]),
    (SPHERE, [{"dimension": 0}, {"radius": 0.0}, {"radius": math.inf}, {"epsilon": 0.0}]),
    (SPHERE, [{"dimension": MAX_DIMENSION + 1}]),
    (fh.UnaryChannel(1.0), [{"ones": 0}]),
    (UnaryOracle(1.0, 2), [{"n_symbols": 0}, {"n_symbols": MAX_BITS + 1}, {"epsilon": 0.0}]),
    (BoxGrid(1, 1.0, 2), [{"dimension": 0}, {"bound": -1.0}, {"bound": math.nan}]),
    (BallLattice(1, 1.0, 2), [{"per_axis": 0}]),
    (SparseLattice(3, 1.0, 3, 1), [{"sparsity": 4}]),
    (SobolevLattice(3, 1.0, 3, 1.0), [{"smoothness": 0.0}]),
    (fh.Aggregation(100), [{"tau_d": 0.5}, {"tau_d": math.nan}, {"tau_c": -0.1}, {"parties": 0}]),
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
    (VOTES, {"functional": fh.Coordinates(2049), "n_bins": 65536}, "2049 .* 65536"),
    (ADAPTIVE, {"threshold": "em-quantile"}, "em-slope"),
    (ADAPTIVE, {"threshold": "huang-quantile"}, "adaptive-quantile"),
    (ADAPTIVE, {"threshold": "em-slop"}, "'em-slope'"),
    (ADAPTIVE, {"threshold": "dp-sgd-paper"}, "n_users"),
    (ADAPTIVE, {"adjacency": "add-remove-user", "n_users": 5}, "users"),
    (UNBOUNDED, {"threshold": "ramp"}, "exact-range"),
    (UNBOUNDED, {"clip": None, "threshold": "paper", "clip_max": 9}, "clip_max = 9"),
    (KEYS, {"most_keys": 0}, "got 0"),
    (POISSON, {"adjacency": "add-remove-user"}, "users"),
    (POISSON, {"domain": ABC, "clip": None}, "3"),
    (POISSON, {"epsilon_choice": 0.1}, "clip"),
    *((CURVES, {"grid": g}, "threshold") for g in ((), (0,), (1, 1), (3, 2), (1.5,), (2**31,))),
    (Layers(1.0, 4, 2), {"epsilon": 1e-300}, "too small"),
    (BoxGrid(1, 1.0, 2), {"dimension": 17}, str(COVER_BITS)),
    (BallLattice(30, 1.0, 1), {"per_axis": 8}, str(COVER_BITS)),
    (SparseLattice(30, 1.0, 1, 20), {"per_axis": 8}, str(COVER_BITS)),
    *((COHORT, {"salt": x}, f"got {x}") for x in (-1, 2**63)),
    *((COHORT, {"lo": x}, "got") for x in (0.5, 0.6, -0.1, math.nan)),
    *((COHORT, {"hi": x}, "got") for x in (1.1, math.nan)),
    (SHARE, {"tau_d": 0.3, "tau_c": 0.3}, "half"),
    (TERMS, {"drop": 3, "collude": 3}, "half"),
    (VOTED, {"epsilon": 1.0}, "epsilon is inf"),
    (POLICY, {"epsilon": 0.0}, "positive"),
    (POLICY, {"epsilon": math.nan}, "nan"),
    (POLICY, {"max_epsilon": -1.0}, "positive"),
    *((POLICY, {"limits": (x,)}, x) for x in ("clip<=1", "a.b<1", "a.b<=x1", "a.b=<1")),
    (
        ExceedanceCounts(ABC, 4, (0, 2)),
        {"domain": fh.Keys.range(1 << 14), "m": 5000, "thresholds": tuple(range(4097))},
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
