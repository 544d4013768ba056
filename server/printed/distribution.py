"""Mechanisms for a discrete distribution with the budgets that the paper prints [1]_.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Lemma 1, Algorithms 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust, pure, zcdp_epsilon
from server.distributions.distribution import Distribution
from server.distributions.mechanisms import Additive, DistributionTask, Mechanism
from server.distributions.selection import PHS, Budgets, Family, Selection
from server.modes import Mode, register_printed
from server.printed.claims import AsPrinted


def printed_multiplier(epsilon: float, delta: float) -> float:
    """Noise std per unit of l2 sensitivity in [1, Lemma 1]: sqrt(2 ln(1.25 / delta)) / epsilon.

    That suffices for epsilon < 1 only; :func:`printed_gaussian_spends` says what it is worth.
    """
    return 0.0 if math.isinf(epsilon) else math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def printed_gaussian_spends(
    epsilon: float, delta: float, discrete: bool, sensitivity: float = math.inf
) -> float:
    """Epsilon at ``delta`` of the noise printed in [1, Lemma 1], exactly."""
    multiplier = printed_multiplier(epsilon, delta)
    if multiplier == 0:
        return math.inf
    import dp_accounting  # takes most of a second

    if not discrete:
        return float(dp_accounting.get_epsilon_gaussian(multiplier, delta))
    spent = zcdp_epsilon(0.5 / multiplier**2, delta)
    left = multiplier**2 - 4 / sensitivity**2  # the 4 of lattice_std
    if left > 0:
        spent = min(spent, float(dp_accounting.get_epsilon_gaussian(math.sqrt(left), delta)))
    return spent


@dataclass(frozen=True)
class GaussianAsPrinted(Additive):
    """Counts with variance 4 m^2 ln(1.25 / delta) / epsilon^2: too little for large epsilon."""

    linear: ClassVar[bool] = False  # no sums with noise of a known law

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        size = self.sensitivity(task)
        spent = printed_gaussian_spends(task.epsilon, task.delta, task.discrete, size)
        return spent, task.delta


@dataclass(frozen=True)
class PresenceAsPrinted(Additive):
    """Lap(q / epsilon) on FREQUENCIES, q = min(k, 2 m), which a user moves by 1 / s."""

    linear: ClassVar[bool] = False

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        """Return the (epsilon, delta) that the noise is worth."""
        return task.epsilon / task.n_users, 0.0


def _dense(epsilon: float, delta: float, k: int) -> float:
    return epsilon / (4 * math.sqrt(k) * math.log(1 / delta))


def dense(task: DistributionTask) -> Budgets:
    """Budget per symbol of [1, Algorithm 3]."""
    return Budgets(_dense(task.epsilon, task.delta, task.k))


def sparse(task: DistributionTask) -> Budgets:
    """Budgets of [1, Algorithm 5]: noise Lap(1 / epsilon') on FREQUENCIES.

    A user moves a frequency by 1 / s, so that this spends epsilon' / s. Line 3 calls Dense with the
    budget epsilon' of one symbol, and Dense splits it once more.
    """
    one = task.epsilon / (8 * math.sqrt(min(task.k, task.m) * math.log(1 / task.delta)))
    return Budgets(_dense(one, task.delta, task.k), laplace=one / task.n_users)


@dataclass(frozen=True)
class SelectionAsPrinted(Selection):
    """Selection with the printed budgets."""

    family: Family = PHS

    @property
    def pure(self) -> bool:
        return False

    def budgets(self, task: DistributionTask) -> Budgets:
        """Return the printed ones."""
        return (sparse if self.sparse else dense)(task)

    def spends(self, task: DistributionTask) -> tuple[float, float]:
        """Add up what the stages charge, as the Curator does: by the basic sum or by zCDP."""
        budget, q = self.budgets(task), task.touched
        costs = [Release(q * budget.each, 0.0, q * budget.each**2 / 8)]
        costs += [pure(q * budget.laplace)] if budget.laplace else []
        concentrated = zcdp_epsilon(sum(c.rho for c in costs), task.delta)
        return min(sum(c.epsilon for c in costs), concentrated), task.delta


AS_PRINTED: Mapping[str, GaussianAsPrinted | PresenceAsPrinted | SelectionAsPrinted] = {
    "gaussian": GaussianAsPrinted("gaussian", gaussian=True),
    "presence-laplace": PresenceAsPrinted("presence-laplace", "presence"),
    "phs": SelectionAsPrinted("phs"),
    "sparse": SelectionAsPrinted("sparse"),
}
"""Every mechanism as printed, by name; ``spends`` is the (epsilon, delta) provable for it."""


@register_printed
@dataclass(frozen=True)
class DistributionAsPrinted(AsPrinted, Distribution):
    """A mechanism by name, with its printed budget; ``guarantee`` says what that really spends."""

    mechanisms: ClassVar[Mapping[str, Mechanism]] = AS_PRINTED
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
        spent, delta = AS_PRINTED[self.mechanism].spends(self.task)
        spent = max(spent, 1e-12)  # 0 where delta alone pays for it
        return Guarantee(spent, delta, Trust.CENTRAL, Adjacency.REPLACE_USER)
