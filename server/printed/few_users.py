"""Algorithm 1 of [1]_ with its printed constants, which spend more than they state.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from server.few_users.few_users_distribution import FewUsersDistribution
from server.few_users.few_users_mean import FewUsers, FewUsersMean
from server.few_users.plan import Buckets, Wishes, paper_params
from server.modes import Mode, register_printed
from server.printed.claims import AsPrinted


def as_printed(n_users: int, epsilon: float, delta: float, kappa: float) -> Buckets:
    """Set the printed constants, among them F = 2n/3."""
    return paper_params(n_users, epsilon, delta)


class FewUsersAsPrinted(AsPrinted, FewUsers):
    """One ball, kappa = 2/3; spends (2 epsilon, e^epsilon delta / 4), and the ledger says so."""

    @property
    def wishes(self) -> Wishes:
        """One draw with the printed constants, whatever else is asked for."""
        lam = 1.0 if self.lam is None else self.lam
        return replace(super().wishes, method="ball", kappa=2 / 3, lam=lam, buckets=as_printed)

    def __post_init__(self) -> None:
        if self.method not in ("auto", "ball"):
            raise ValueError(f'mode "paper" is Algorithm 1: one ball, got method {self.method!r}')
        super().__post_init__()
        _ = self.guarantee  # raises where the printed procedure is none

    @property
    def guarantee(self) -> Guarantee:
        """What is really spent, under replacement."""
        if math.isinf(self.epsilon):
            return self.claimed
        cost = paper_params(self.n_users, self.epsilon, self.delta).release
        return Guarantee(cost.epsilon, cost.delta, Trust.CENTRAL, Adjacency.REPLACE_USER)


@register_printed
@dataclass(frozen=True, kw_only=True)
class FewUsersMeanAsPrinted(FewUsersAsPrinted, FewUsersMean):
    """The mean by one draw of Algorithm 1."""

    mode: Mode = "paper"


@register_printed
@dataclass(frozen=True, kw_only=True)
class FewUsersDistributionAsPrinted(FewUsersAsPrinted, FewUsersDistribution):
    """The distribution by one draw of Algorithm 1."""

    mode: Mode = "paper"
