"""Fields and public plan of the sparse mean: what is asked, by which procedure, of how many."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from clients.records.functionals import Coordinates
from fedhist.base.checks import check_integer, check_scale
from fedhist.base.hashing import digest64
from fedhist.base.text import warned
from fedhist.protocols.means.mean_linf import FoldMean
from fedhist.protocols.means.sparse.queries import HashedVotes, vote_channel
from fedhist.protocols.means.sparse.vectors import (
    LOOKS,
    MOST_DIMENSION,
    MOST_ROUNDS,
    VectorSetting,
)
from fedhist.users.cohort import Cohort
from server.means.localize import Plan
from server.means.sparse_rule import VOTE_SHARES, Choice, SparseSetting, sparse_rule
from server.means.support import REACH, VoteLaw, selection_level, vote_threshold

HADAMARD_FROM = 1 << 14
"""From so many coordinates on, "auto" hashes by Hadamard rows: a fold then costs one addition."""
NOT_LOST = 2.0
"""Deviations above the level of noise of a signal that is found in 39 runs of 40."""


@dataclass(frozen=True)
class SparsePlan(FoldMean):
    """What ``sparse-mean`` decides before it asks anybody."""

    auto_vote: ClassVar[str] = "sign"
    sparsity: int = field(kw_only=True)
    radius: float = 1.0
    method: Literal["vectors", "auto", "select", "threshold"] = "vectors"
    min_signal: float | None = None
    max_votes: int | None = None
    mean_scale: float | None = None
    vote: Literal["auto", "sign", "laplace"] = "auto"
    hash: Literal["auto", "rademacher", "hadamard"] = "auto"

    def __post_init__(self) -> None:
        self._check(self.mean_scale)
        check_scale("radius", self.radius)
        check_integer("sparsity", self.sparsity)
        if self.min_signal is not None and not 0 <= self.min_signal <= self.radius:
            raise ValueError(f"min_signal must lie in [0, {self.radius}], got {self.min_signal}")
        if self.max_votes is not None:
            check_integer("max_votes", self.max_votes, self.dimension)
        if self.procedure == "vectors":
            _ = self.vectors.part
        elif self.procedure == "threshold":
            _ = self.functional
        else:
            _ = self.vote_query, self.plan_of(1), self.plan_of(min(self.sparsity, self.dimension))

    @property
    def scale(self) -> float:
        """Standard deviation of a coordinate of a user's mean that is planned with."""
        return self.mean_scale or self.radius / math.sqrt(self.samples_per_user)

    @property
    def selects(self) -> bool:
        """Whether there is anything to select."""
        return self.sparsity < self.dimension

    @property
    def procedure(self) -> str:
        """The procedure in use: "vectors", "select" or "threshold"."""
        if self.method not in ("vectors", "auto"):
            return self.method
        if self.method == "vectors" and self.reports_vectors:
            return "vectors"
        return self.best_procedure if self.selects else "select"

    @property
    def reports_vectors(self) -> bool:
        """Whether whole vectors can be reported: with noise, of not too many coordinates."""
        return self.selects and self.dimension <= MOST_DIMENSION and not math.isinf(self.epsilon)

    @property
    def vectors(self) -> VectorSetting:
        """Public numbers of the reports of whole vectors."""
        return VectorSetting(
            float(self.n_users),
            self.scale,
            self.dimension,
            self.sparsity,
            float(self.radius),
            float(self.epsilon),
            self.salt,
        )

    @property
    def best_procedure(self) -> str:
        """The procedure of least regret over the amplitudes that may occur."""
        return self.choice.method

    @cached_property
    def choice(self) -> Choice:
        """The procedure and the number of votes: by regret, of those that the fields allow."""
        method = "auto" if self.method == "vectors" else self.method
        return sparse_rule(self.setting, method, self.min_signal, self.max_votes)

    @property
    def close(self) -> str:
        """Say where the automatic choice may be another one than the signals'; else empty."""
        given = self.procedure == "vectors" or self.method not in ("vectors", "auto")
        if given or not self.selects or not self.choice.close:
            return ""
        return warned(
            f"two procedures come close: at some amplitude of the signals another than "
            f"{self.procedure} errs {self.choice.worst:.2g} times less",
            "the error may be so much larger than it need be",
            "declare min_signal",
        )

    @property
    def selection(self) -> Choice:
        """How selection goes about it, whether or not it is chosen."""
        return sparse_rule(self.setting, "select", self.min_signal, self.max_votes)

    @property
    def setting(self) -> SparseSetting:
        """What the procedures are chosen by."""
        return SparseSetting(
            float(self.n_users),
            self.scale,
            self.dimension,
            min(self.sparsity, self.dimension),
            float(self.radius),
            float(self.epsilon),
            self.channel_kind,
            self.law_of(1),
        )

    @property
    def votes(self) -> int:
        """Most votes of a user who selects."""
        return self.selection.votes if self.selects else self.dimension

    @property
    def vote_share(self) -> float:
        """Expected share of the users who select."""
        return self.selection.share if self.selects else VOTE_SHARES[0]

    @property
    def law(self) -> VoteLaw:
        """Gain and noise of a selecting user's report."""
        return self.law_of(self.votes)

    def law_of(self, votes: int) -> VoteLaw:
        """Return the law of a report about so many votes."""
        vote = self.auto_vote if self.vote == "auto" else self.vote
        reach = REACH * math.sqrt(votes) if vote == "laplace" else 0.0
        return VoteLaw(vote_channel(vote, self.epsilon), votes, reach)

    @property
    def vote_query(self) -> HashedVotes:
        """What the selecting users are asked."""
        d, votes, reach, hashed = self.dimension, self.votes, self.law.reach, self.hash
        if hashed == "auto":
            hashed = "hadamard" if d >= HADAMARD_FROM else "rademacher"
        return HashedVotes(
            dimension=d,
            radius=float(self.radius),
            threshold=vote_threshold(self.scale, d, votes),
            max_votes=votes,
            epsilon=float(self.epsilon),
            vote="laplace" if reach else "sign",
            reach=reach or 1.0,
            hash=hashed,
            hash_salt=digest64("fedhist.hash", self.salt) >> 1,
            cohort=Cohort(self.salt, 0.0, self.vote_share),
            signed=True,
        )

    @property
    def plan(self) -> Plan:
        """The plan of one of all d coordinates, for thresholding."""
        return self.fold_plan(self.n_users / self.dimension, self.radius)

    @property
    def functional(self) -> Coordinates:
        """Fold j is coordinate j."""
        return self.coordinates(None, self.plan.max_items)

    def coordinates(self, columns: NDArray[np.int64] | None, max_items: int) -> Coordinates:
        """Give every fold one of the coordinates."""
        radius = float(self.radius)
        return Coordinates(self.dimension, -radius, radius, columns, max_items)

    @property
    def max_rounds(self) -> int:
        """Ten for vectors; up to two for the means, and one for selection before them."""
        if self.procedure == "vectors":
            return MOST_ROUNDS
        if self.procedure == "threshold":
            return super().max_rounds
        return 3 if self.selects else 2

    def plan_of(self, n_selected: int) -> Plan:
        """Plan the means of so many selected coordinates."""
        share = 1 - self.vote_share if self.selects else 1.0
        return self.fold_plan(self.n_users * share / n_selected, self.radius)

    @property
    def missable(self) -> float:
        """Amplitude up to which a signal may be lost in one run of forty; the radius at most."""
        b = np.geomspace(min(self.scale / 8, self.radius), self.radius, 200)
        if self.procedure == "vectors":
            lead = self.vectors.lead(b, LOOKS[-1]) - self.vectors.level
        elif self.procedure == "select":
            lead = self.setting.lead(b, self.votes) * math.sqrt(self.n_users * self.vote_share)
            lead -= selection_level(self.dimension, self.sparsity)
        else:
            lead = b / math.sqrt(self.plan.variance) - math.sqrt(2 * math.log(2 * self.dimension))
        return float(b[lead < NOT_LOST].max(initial=0.0))

    def useless(self) -> str:
        """Say why 0 is expected to be the better estimate; empty where it is not."""
        if self.procedure == "select" and not self.selects:
            d = self.dimension
            return "" if self.plan_of(d).feasible else self.too_few(d, self.radius)
        vectors = self.procedure == "vectors"
        if self.vectors.useful if vectors else self.choice.useful:
            return ""
        what = "find" if vectors else self.procedure
        return (
            f"{self.n_users} users with {self.samples_per_user:g} samples each are too few to "
            f"{what} {self.sparsity} of {self.dimension} coordinates at epsilon = "
            f"{self.epsilon:g}: 0 is expected to be the better estimate"
        )
