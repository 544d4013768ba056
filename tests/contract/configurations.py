"""The configurations that are held to the contract: examples, further ones, those with shares."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from fedhist.model.protocol import Protocol
from fedhist.model.registry import load_plugin, own_protocols, parameters, protocol_class, protocols
from fedhist.privacy.shares import Aggregation
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.keys import Keys

THROWAWAY = Path(__file__).resolve().parents[1] / "throwaway.py"
WHO = Aggregation(10)
GRIDS: tuple[dict[str, Any], ...] = ({}, {"discrete": True}, {"grid": 1 / 64})
"""What makes a configuration's sums integers, one of them for each protocol."""


def shuffled(n_users: int, **how: Any) -> dict[str, Any]:
    """Configure shuffle trust: so many users, and the largest local epsilon that they hide."""
    return {"trust": Shuffling(1.2, 0.01, n_users, tau=0.0), **how}


# further configurations of protocols that have several: tested beside the example, never instead
MORE: dict[str, list[dict[str, Any]]] = {
    "adaptive-histogram": [
        {"discrete": True, "noise": "gaussian"},
        {"delta": 0.0, "discrete": True, "adjacency": "replace-user"},
        {"threshold": "adaptive-quantile", "steps": 3, "discrete": True},
        {"threshold": "dp-sgd", "steps": 3},
        {"threshold": "output-perturbation-paper", "steps": 3, "n_users": 40, "discrete": True},
    ],
    "bounded-histogram": [
        {"grid": 1 / 64},
        {"delta": 0.0, "grid": 1 / 64, "adjacency": "replace-user"},
        {"delta": 0.0},
    ],
    "box-mean": [
        {"delta": 0.0, "adjacency": "zero-out-user"},
        {"adjacency": "add-remove-user"},
        {"box": 2.0, "discrete": True},
    ],
    "central-density": [
        {"delta": 0.0},
        {"discrete": True, "adjacency": "zero-out-user"},
        {"delta": 0.0, "discrete": True, "shrink": False, "project": False},
    ],
    "cover-select": [
        {"geometry": "l2-ball"},
        {"geometry": "sparse", "sparsity": 2},
        {"geometry": "sobolev", "smoothness": 1.0, "bound": 2.0},
        {"per_axis": 75},
        shuffled(400),
    ],
    "density": [
        {"kind": "onebit"},
        {"mode": "paper"},
        {"shrink": False, "samples_per_user": 1},
        shuffled(800, method="folds", basis="fourier"),
    ],
    "distribution": [
        {"mechanism": "gaussian"},
        {"mechanism": "gaussian", "mode": "paper", "discrete": False},
        {"mechanism": "one-item", "delta": 0.0},
        {"mechanism": "presence"},
        {"mechanism": "presence-laplace"},
        {"mechanism": "ks", "epsilon": 20.0},
        {"mechanism": "sparse", "epsilon": 20.0},
        {"mechanism": "centred", "epsilon": 40.0, "delta": 0.4},
        {"mechanism": "phs", "mode": "paper"},
    ],
    "few-users-distribution": [{"method": "large-n", "samples_per_user": 100, "epsilon": 20.0}],
    "few-users-mean": [
        {"method": "blocks", "n_blocks": 2, "epsilon": 4.0},
        {"method": "boosted", "n_runs": 3, "epsilon": 4.0},
        {"method": "large-n", "epsilon": 16.0},
        {"mode": "paper", "method": "auto", "n_blocks": None},
    ],
    "frequency-oracle": [
        {"kind": "krr"},
        {"kind": "hadamard"},
        {"kind": "projective", "project": True},
        {"kind": "subset"},
        {"kind": "unary"},
        shuffled(300, kind="krr"),
    ],
    "central-mean": [
        {"epsilon": 1.0},
        {"epsilon": 40.0, "adjacency": "zero-out-user", "radius": 0.2},
        {"epsilon": 40.0, "adjacency": "add-remove-user", "delta": 1e-6},
        {"epsilon": 3.5, "discrete": True},
    ],
    "heavy-hitters": [{"of": "named"}, {"code": "bytes", "level_bits": 8}],
    "local-distribution": [
        {"method": "folds", "kind": "onebit", "project": False},
        {"domain": Keys.of(["rye", "tea"]), "project": False},
        {"domain": Keys.of(["rye", "tea"]), "method": "folds", "kind": "laplace"},
        {"samples_per_user": 1},
        shuffled(1400, method="folds"),
    ],
    "local-histogram": [
        {"oracle": "unary"},
        {"oracle": "hadamard", "nonneg": False},
        {"oracle": "projective"},
        {"oracle": "subset"},
        shuffled(300, oracle="krr"),
    ],
    "mean-l2": [
        {"method": "folds"},
        {"method": "folds", "kind": "laplace"},
        {"mode": "paper"},
        {"samples_per_user": 1},
        shuffled(1200, method="folds"),
    ],
    "mean-linf": [{"kind": "onebit"}, {"mode": "paper"}, {"samples_per_user": 1}, shuffled(900)],
    "mean": [
        {"kind": "onebit"},
        {"kind": "laplace"},
        {"mode": "paper"},
        shuffled(400),
        {"method": "centred"},
        {"method": "stages"},
    ],
    "naive-mean": [
        {"method": "one-item", "kind": "laplace"},
        {"geometry": "l2"},
        {"geometry": "l2", "method": "one-item"},
        shuffled(300),
    ],
    "poisson-counts": [
        {"discrete": True, "adjacency": "replace-user"},
        {"clip": 32, "debias": False, "delta": 1e-6},
        {"domain": Keys.of(["rye", "chai", "お茶"]), "clip": 32, "delta": 1e-6, "discrete": True},
    ],
    "ragged-distribution": [
        {"mechanism": "ks", "epsilon": 40.0},
        {"mechanism": "phs", "epsilon": 60.0, "delta": 0.0},
        {"mechanism": "auto", "delta": 0.0},
        {"mechanism": "centred"},
        {"mechanism": "auto", "mode": "paper"},
    ],
    "sparse-mean": [
        {"method": "vectors"},
        {"method": "threshold", "kind": "onebit"},
        {"vote": "laplace", "kind": "laplace"},
        {"mode": "paper"},
        {"sparsity": 12},
    ],
    "unbounded-histogram": [
        {"clip": 8},
        {"method": "sample"},
        {"discrete": False, "adjacency": "replace-user"},
        {"clip": 8, "discrete": False, "adjacency": "replace-user"},
        {"threshold": "exact-range", "adjacency": "add-remove-user"},
        {"threshold": "exact-range", "discrete": False},
        {"threshold": "paper", "mode": "paper", "clip_max": 100},
    ],
    "user-level-erm": [
        {"discrete": True},
        {"oracle": "fixed", "ridge": 0.1, "curvature": 1.0, "iterate": "last"},
        {"model": "logistic", "smoothness": 0.27, "strong_convexity": 0.1, "steps": 14},
        {"oracle": "few-users", "steps": 8, "max_failed": 0.9},
    ],
}


@cache
def configured(name: str) -> tuple[Protocol, ...]:
    example: Any = protocol_class(name).example()
    return (example, *(changed(example, more) for more in MORE.get(name, [])))


def changed(example: Any, more: dict[str, Any]) -> Protocol:
    if not isinstance(more.get("trust"), Shuffling):
        return dataclasses.replace(example, **more)
    given = {f.name: getattr(example, f.name) for f in dataclasses.fields(example) if f.init}
    given |= more
    trust = given.pop("trust")
    del given["epsilon"]
    return type(example).shuffled(trust, **given)


def named() -> list[Protocol]:
    load_plugin(THROWAWAY)
    own = [p for name in own_protocols() for p in configured(name)]
    return [*own, *(c.example() for n, c in protocols().items() if n.startswith("throwaway-"))]


def has_shares(name: str) -> bool:
    cls = protocol_class(name)
    return "trust" in parameters(cls) and Aggregation in get_args(get_type_hints(cls)["trust"])


@cache
def shared(name: str) -> tuple[Protocol, ...]:
    example: Any = protocol_class(name).example()
    result: list[Protocol] = []
    for more in ({}, *MORE.get(name, [])) if has_shares(name) else ():
        for grid in GRIDS:
            if grid.keys() <= set(parameters(type(example))):
                with suppress(ValueError):
                    result.append(dataclasses.replace(example, **more | grid | {"trust": WHO}))
                    break
    return tuple(result)
