"""Mechanisms for a discrete distribution with the budgets that the paper prints [1]_.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Lemma 1, Algorithms 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from fedhist.model.modes import Mode
from fedhist.model.registry import register_printed
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.protocols.distributions import selection_theory, theory
from fedhist.protocols.distributions.distribution import Distribution
from fedhist.protocols.distributions.mechanisms import (
    ALGORITHM,
    LEMMA,
    Additive,
    DistributionTask,
    Mechanism,
    additive,
)
from fedhist.protocols.distributions.selection import PHS, Budgets, costs, selection
from fedhist.protocols.printed.claims import AsPrinted

Spends = Callable[[DistributionTask], tuple[float, float]]


@dataclass(frozen=True)
class GaussianAsPrinted(Additive):
    """Counts with variance 4 m^2 ln(1.25 / delta) / epsilon^2: too little for large epsilon."""

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        """Return the (epsilon, delta) that the noise is worth."""
        delta, size = task.delta - task.delta0, self.query(task).l2_sensitivity
        return theory.printed_gaussian_spends(task.epsilon, delta, task.discrete, size), delta


@dataclass(frozen=True)
class PresenceAsPrinted(Additive):
    """Lap(q / epsilon) on FREQUENCIES, q = min(k, 2 m), which a user moves by 1 / s."""

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        """Return the (epsilon, delta) that the noise is worth."""
        return task.epsilon / task.n_users, 0.0


def dense(task: DistributionTask) -> Budgets:
    """Budget of [1, Algorithm 3]."""
    return Budgets(selection_theory.printed_dense(task.epsilon, task.delta, task.k))


def sparse(task: DistributionTask) -> Budgets:
    """Budgets of [1, Algorithm 5]: noise Lap(1 / epsilon') on FREQUENCIES.

    A user moves a frequency by 1 / s, so that this spends epsilon' / s.
    """
    each, small = selection_theory.printed_sparse(task.epsilon, task.delta, task.k, task.m)
    return Budgets(each, laplace=small / task.n_users)


def _spends(budgets: Callable[[DistributionTask], Budgets]) -> Spends:
    def spends(task: DistributionTask) -> tuple[float, float]:
        return selection_theory.spent_by(costs(task, budgets(task)), task.delta), task.delta

    return spends


_GAUSSIAN = GaussianAsPrinted("counts", gaussian=True)
_PRESENCE = PresenceAsPrinted("presence", gaussian=False)
_SOURCE = "Liu et al., NeurIPS 2020, Algorithm {} with its printed budget"

AS_PRINTED: Mapping[str, tuple[Mechanism, Spends]] = MappingProxyType(
    {
        found.name: (found, spends)
        for found, spends in (  # no sums with noise of a known law, to be shared: nothing is linear
            (replace(additive("gaussian", _GAUSSIAN, LEMMA), linear=None), _GAUSSIAN.spends),
            (
                replace(additive("presence-laplace", _PRESENCE, ALGORITHM), linear=None),
                _PRESENCE.spends,
            ),
            (selection("phs", PHS, dense, _SOURCE.format(3)), _spends(dense)),
            (selection("sparse", PHS, sparse, f"{_SOURCE.format(5)}s"), _spends(sparse)),
        )
    }
)
"""Every mechanism as printed, by name, and the (epsilon, delta) that is provable for it."""


@register_printed
@dataclass(frozen=True)
class DistributionAsPrinted(AsPrinted, Distribution):
    """A mechanism by name, with its printed budget; ``guarantee`` says what that really spends."""

    mechanisms: ClassVar[Mapping[str, Mechanism]] = MappingProxyType(
        {name: found for name, (found, _) in AS_PRINTED.items()}
    )
    mode: Mode = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mechanism == "auto":
            raise ValueError('mode "paper" needs a mechanism by name, got "auto"')

    @property
    def guarantee(self) -> Guarantee:
        """What the printed budget spends; inf if no finite epsilon holds."""
        if math.isinf(self.epsilon):
            return self.claimed
        spent, delta = AS_PRINTED[self.mechanism][1](self.task)  # 0 where delta alone pays for it
        return Guarantee(max(spent, 1e-12), delta, Trust.CENTRAL, Adjacency.REPLACE_USER)
