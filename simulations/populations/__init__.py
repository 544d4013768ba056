"""Populations: where simulated users' data come from.

A population is named by its ``kind`` and configured by the fields of its dataclass, which are the
keys of the ``[population]`` table of a run's configuration. A new kind is one new class and one
more entry in the table below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from fedhist.base.errors import nearest
from simulations.populations.base import Loaded, Plan, PopulationSpec


class _Kinds(Mapping[str, type[PopulationSpec]]):
    """Specifications by their kind; each is imported when it is first asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, kind: str) -> type[PopulationSpec]:
        file, name = self._places[kind].split(".")
        spec: type[PopulationSpec] = getattr(import_module(f"{__name__}.{file}"), name)
        return spec

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


KINDS: Mapping[str, type[PopulationSpec]] = _Kinds(
    {
        "events": "files.Events",
        "samples": "files.SampleFile",
        "memory": "memory.Memory",
        "shards": "shards.Shards",
        "sentiment140": "sentiment140.Sentiment140",
        "snap": "files.Snap",
        "zipf": "zipf.Zipf",
        "paper-iid": "papers.PaperIid",
        "paper-non-iid": "papers.PaperNonIid",
        "paper-poisson": "papers.PaperPoisson",
        "gaussian": "shared_mean.Gaussian",
        "regression": "regression.Regression",
        "density": "density_samples.DensitySamples",
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
