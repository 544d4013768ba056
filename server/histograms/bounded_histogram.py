"""Histogram over a public domain: clip every user, add up, add noise (central) [1]_.

Corrected against the paper: noise is calibrated to the adjacency that is declared (the paper
declares replacement and calibrates for zeroing out).

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from clients.histograms.contributions import NORM_STEPS
from clients.histograms.queries import ClippedCounts
from fedhist.base.arrays import Array
from fedhist.base.errors import warned
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.renamed import instead
from fedhist.model.truths import L1, Prediction
from fedhist.privacy import noise_law
from fedhist.privacy.guarantee import Adjacency, Moves, check_budget, sensitivity_multipliers
from fedhist.privacy.shares import Aggregation
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain
from fedhist.users.shards import Shard
from server.histograms.reference_clips import c_star
from server.session.curator import Curator
from server.targets import domains
from server.targets.domains import DomainHistogram, with_domain
from server.trust import Central, add_noise


@register_protocol
@dataclass(frozen=True)
class BoundedHistogram(DomainHistogram, Central):
    """Total count of every item of a public domain, under central user-level privacy.

    Parameters
    ----------
    domain : Keys
        Public items.
    epsilon : float
        Positive; ``inf`` switches noise off (not private).
    clip : float
        C, in counts: each user's contribution is scaled to at most this norm. Public: choose it
        without the data. In a configuration, "c-star" computes it FROM the data, as a reference
        that is not private.
    delta : float
        0: l1 norm and Laplace noise. Positive: l2 norm and Gaussian noise.
    adjacency : str
        "zero-out-user" (default), "add-remove-user" or "replace-user".
    grid : float or "default", optional
        Send whole multiples of ``grid`` and add discrete noise. Needed for secure noise, and the
        default under aggregate trust. "default" becomes clip / 2^20 when the protocol is made:
        rounding down by less than one step per item of a user then costs next to nothing. None:
        real values.
    nonneg : bool
        Raise negative totals to zero; never increases the l1 error.
    trust : Aggregation, optional
        The nodes add the noise, on the grid; None: the server does.

    Privacy
    -------
    (epsilon, delta)-DP per user. Sensitivities: :func:`sensitivity_multipliers` times C. With
    ``delta = 0`` Laplace noise of scale k1 C / epsilon; otherwise the analytic Gaussian of std
    k2 C sigma(epsilon, delta), or on a grid the discrete Gaussian of two steps more.

    Error
    -----
    Sum over items of E|Z - b|, b what clipping took away; exact, see :meth:`error`.

    Examples
    --------
    >>> BoundedHistogram(Keys.of(["tea", "rye"]), epsilon=1.0, clip=4.0).noise.scale
    4.0
    """

    name: ClassVar[str] = "bounded-histogram"
    paper: ClassVar[str] = "Liu et al., ICML 2023, Algorithm 1"

    domain: Keys
    epsilon: float
    clip: float
    delta: float = 0.0
    adjacency: str = Adjacency.ZERO_OUT_USER.value
    grid: float | Literal["default"] | None = None
    nonneg: bool = True
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_domain(self.domain)
        Adjacency(self.adjacency)
        if self.grid == "default" or (self.grid is None and self.trust is not None):
            step = self.clip / NORM_STEPS if 0 < self.clip < math.inf else None
            object.__setattr__(self, "grid", step)
        if self.grid is not None and not 0 < self.step < math.inf:
            raise ValueError(f"grid must be positive and finite, got {self.grid}")
        _ = self.asks(self.query, 0)

    @property
    def null_safe(self) -> bool:
        return Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER

    @property
    def max_rounds(self) -> int:
        return 1

    @property
    def norm(self) -> int:
        """1 with Laplace noise, 2 with Gaussian noise."""
        return 2 if self.delta else 1

    @property
    def step(self) -> float:
        """What a unit of an answer is worth, in counts."""
        return 1.0 if self.grid is None else float(self.grid)

    @property
    def query(self) -> ClippedCounts:
        """The one question."""
        return ClippedCounts(self.domain, float(self.clip), self.norm, float(self.grid or 0.0))

    @property
    def noise(self) -> noise_law.NoiseLaw:
        """Law of the noise on every entry; of the shares of all parties under aggregate trust."""
        sensitivity = self.query.sensitivity(Adjacency(self.adjacency))
        if self.trust is not None:
            return replace(self.noise_of_shares(self.query), step=self.step)
        unit = noise_law.noise_per_sensitivity(
            self.epsilon, self.delta, bool(self.grid), sensitivity
        )
        return noise_law.NoiseLaw(unit.kind, unit.scale * sensitivity, self.step)

    def rounds(self, server: Curator) -> Script:
        d = len(self.domain)
        if self.clip == 0:
            zero, public = np.zeros(d), {"clip": 0.0, "noise_std": 0.0}
            means = "the estimate is 0 whatever the data, and nobody was asked"
            why = warned("clip is 0", means, "give a positive clip")
            return Estimate.ok(zero, keys=self.domain, stderr=zero, warnings=(why,), public=public)
        if server.grade == "secure" and self.grid is None and not math.isinf(self.epsilon):
            return Estimate.refused(
                'noise = "secure" draws integers only: set a grid (grid = "default")'
            )
        summary = yield self.query
        value = (
            add_noise(
                server,
                summary.sums["counts"],
                self.query.sensitivity(Adjacency(self.adjacency)),
                self.epsilon,
                self.delta,
                discrete=self.grid is not None,
                moves=Moves.of(self.query.sensitivity),
            )
            * self.step
        )
        public = {"clip": float(self.clip), "noise_std": self.noise.std}
        if Adjacency(self.adjacency) is not Adjacency.ADD_REMOVE_USER:
            public["n_users"] = float(summary.n_users)
        value = np.maximum(value, 0.0) if self.nonneg else value
        stderr = np.full(d, self.noise.std)
        return Estimate.ok(value, keys=self.domain, stderr=stderr, public=public)

    def sums(self, users: Users) -> dict[str, Array]:
        clipping = float(self.clip), self.norm, float(self.grid or 0.0)
        whole, clipped = domains.whole_and_clipped(users, self.domain, *clipping)
        return {"whole": whole, "kept": clipped}

    def error_of(self, facts: Facts) -> Prediction:
        """Compute the exact expected l1 error. NOT PRIVATE."""
        clipped = facts["kept"]
        bias = np.maximum(facts.truth - clipped, 0.0)
        expected = noise_law.expected_l1(self.noise, bias, clipped if self.nonneg else None)
        return Prediction(L1, expected, "exact", "sum of E|Z - b|; Liu et al. 2023, Section 4.1")

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain; compute ``clip`` given as "c-star".

        C* reads the private data: it is a reference, and is reported as such.
        """
        p = with_domain(parameters, domain)
        not_private: list[str] = []
        if isinstance(p.get("clip"), str):
            if p["clip"] != "c-star":
                gone = instead(f"{cls.name}.clip={p['clip']}")
                raise ValueError(f'clip must be a number or "c-star", got {p["clip"]!r}{gone}')
            budget = float(p["epsilon"]), float(p.get("delta", cls.delta))
            k = sensitivity_multipliers(
                Adjacency(p.get("adjacency", cls.adjacency)), len(p["domain"])
            )
            discrete = p.get("grid") is not None
            p["clip"] = c_star(users, p["domain"], budget, k, discrete=discrete)
            not_private.append(
                f"clip = {p['clip']:.6g} was computed from the private data by the C* rule "
                "(Liu et al. 2023, Section 4.1)"
            )
        return p, not_private

    @classmethod
    def example(cls) -> Self:
        domain = Keys.of(["chai", "maté", "rooibos", "tea", "お茶"])
        return cls(domain, epsilon=1.0, clip=16.0, delta=1e-6)
