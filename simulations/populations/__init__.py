"""Populations: where simulated users' data come from.

A population is named by its ``kind`` and configured by the fields of its dataclass, which are the
keys of the ``[population]`` table of a run's configuration. A new kind is one new class and one
more entry in the tuple below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedhist.base.errors import nearest
from simulations.populations.base import Loaded, Plan, PopulationSpec
from simulations.populations.density_samples import DensitySamples
from simulations.populations.events import Events
from simulations.populations.memory import Memory
from simulations.populations.paper_iid import PaperIid
from simulations.populations.paper_non_iid import PaperNonIid
from simulations.populations.paper_poisson import PaperPoisson
from simulations.populations.regression import Regression
from simulations.populations.samples import SampleFile
from simulations.populations.sentiment140 import Sentiment140
from simulations.populations.shards import Shards
from simulations.populations.shared_mean import Coins, Gaussian, RankOne, TwoPoint, Uniform
from simulations.populations.snap import Snap
from simulations.populations.zipf import Zipf

KINDS: Mapping[str, type[PopulationSpec]] = MappingProxyType(
    {
        spec.kind: spec
        for spec in (
            Events,
            SampleFile,
            Memory,
            Shards,
            Sentiment140,
            Snap,
            Zipf,
            PaperIid,
            PaperNonIid,
            PaperPoisson,
            Uniform,
            Gaussian,
            TwoPoint,
            Coins,
            RankOne,
            Regression,
            DensitySamples,
        )
    }
)


def population(kind: str, **parameters: Any) -> PopulationSpec:
    """Build the specification of a population from its kind and parameters.

    Raises
    ------
    ValueError
        For an unknown kind (naming the nearest) and for parameters out of range.
    TypeError
        For an unknown parameter (naming the nearest) or a missing one.

    Examples
    --------
    >>> len(population("zipf", n_users=50, d=20, mean_items=5, seed=1).load().users)
    50
    """
    if kind not in KINDS:
        raise ValueError(f"no population kind {kind!r}" + nearest(kind, KINDS))
    spec = KINDS[kind]
    known = [field.name for field in dataclasses.fields(spec)]
    for name in parameters:
        if name not in known:
            raise TypeError(f"population {kind!r} has no key {name!r}" + nearest(name, known))
    return spec(**parameters)


__all__ = ["KINDS", "Loaded", "Plan", "PopulationSpec", "population"]
