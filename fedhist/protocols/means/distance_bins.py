"""How far users' means lie from a point: one shell of each user, through a frequency oracle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.part import Functional
from fedhist.model.query import Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.shared.oracle_votes import OracleVotes
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams

MAX_SHELLS = 64


@register_query
@dataclass(frozen=True)
class DistanceBins(OracleVotes):
    """Each user reports which shell around a point its scalar lies in.

    Parameters
    ----------
    functional : Functional
        One scalar of a record; its only fold.
    centre : float
    edges : (k,) float64
        Increasing outer edges of the shells; what lies beyond the last counts for the last shell.
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record: one report of a frequency oracle. A record without
    usable data reports the null symbol, at the same cost.
    """

    wire_name: ClassVar[str] = "distance-bins"
    sent: ClassVar[str] = "votes"
    functional: Functional
    centre: float
    edges: Floats
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if self.functional.n_folds != 1:
            raise ValueError(f"the functional must have one fold, got {self.functional.n_folds}")
        if not math.isfinite(self.centre):
            raise ValueError(f"centre must be finite, got {self.centre}")
        e = self.edges
        if e.dtype != np.float64 or e.ndim != 1 or not 2 <= len(e) <= MAX_SHELLS:
            raise ValueError(f"edges must be 2 to {MAX_SHELLS} float64, got {e.dtype}{e.shape}")
        if not (np.isfinite(e).all() and e[0] > 0 and (np.diff(e) > 0).all()):
            raise ValueError(f"edges must be positive, finite and increase, got {e.tolist()}")
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        """What happens to the number of a shell."""
        return oracle_channel("auto", self.epsilon, len(self.edges))

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        """Find every user's shell: (n,) int64."""
        return self._shells(users)

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        """Find every user's shell: (n,) int64."""
        return self._shells(users)

    def _shells(self, users: Users) -> Integers:
        """Find the shell of each scalar: (n,) int64; -1 for a record without usable data."""
        x = self.functional.scalars(users, np.zeros(len(users), dtype=np.int64))
        shell = np.searchsorted(self.edges[:-1], np.abs(x - self.centre))
        return np.where(np.isnan(x), -1, shell).astype(np.int64)

    # -- server half

    def shares(self, summary: Summary) -> Floats:
        """Return the unbiased share of the users in each shell: (k,); 0 where nobody answered."""
        k = len(self.edges)
        if summary.n_users == 0:
            return np.zeros(k)
        return np.asarray(self.channel.debias(summary.sums["votes"], summary.n_users)[:k])
