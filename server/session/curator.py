"""The Curator: the only source of server randomness.

Each method takes an exact value, its sensitivity under the protocol's adjacency and a budget. It
charges the ledger BEFORE it draws, journals the released value before returning it, and after a
restart returns the journalled value: nothing is ever drawn twice. Under aggregate trust the nodes
have drawn: it holds what a script asks for against their shares, and draws and charges nothing.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Array
from fedhist.base.checks import check_choice, check_count, check_size
from fedhist.base.errors import BudgetExceeded, FedhistError
from fedhist.model.aggregated import Aggregated
from fedhist.model.query import Keyed, Query
from fedhist.privacy.guarantee import (
    Moves,
    Release,
    Trust,
    approximate,
    bounded_range,
    check_budget,
    gaussian_cost,
    pure,
)
from fedhist.privacy.ledger import Ledger
from fedhist.privacy.noise_law import (
    Noise,
    NoiseSource,
    Sampler,
    Shape,
    discrete_gaussian_cost,
    discrete_gaussian_stds,
)
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from server.session.journal import Journal
from server.session.unknown_keys import (
    WeightedKeys,
    key_threshold,
    laplace_key_threshold,
    pack_keyed,
    printed_key_threshold,
    unpack_keyed,
)

__all__ = ["Curator", "Noise", "NoiseSource", "Shape"]

AddedNoise = Literal["laplace", "gaussian", "discrete_laplace", "discrete_gaussian"]
"""The methods of a noise source that give one number for each entry."""
Budget = tuple[float, float, float, int]
"""Sensitivity, epsilon, delta, and the rounds that share it."""
_SCORES_AT_ONCE = 1 << 20


class Curator:
    """Releases exact values through named mechanisms, within one ledger.

    ``moves``, where a method takes it: how far one user moves the value under each adjacency, so
    that the ledger can state the cost under others (:mod:`fedhist.privacy.guarantee`).

    Parameters
    ----------
    ledger : Ledger
        With the protocol's guarantee as its limit.
    noise : callable of int to NoiseSource
    journal : Journal
    """

    def __init__(self, ledger: Ledger, noise: Noise, journal: Journal) -> None:
        self.ledger, self._noise, self._journal = ledger, noise, journal
        self._index = 0
        self.cohort: Cohort | None = None
        """The users behind the summary in hand."""
        self._prepaid = ledger.limit is not None and ledger.limit.trust is Trust.AGGREGATE
        self._shared: Aggregated | None = None

    def holds(self, query: Query | None) -> None:
        """Be told by the Session which query the summary in hand answers."""
        self.cohort = query.cohort if query is not None else None
        self._shared = query if isinstance(query, Aggregated) else None

    @property
    def grade(self) -> str:
        """Grade of the noise; a script that needs integer noise for "secure" can refuse."""
        return str(getattr(self._noise, "grade", "")) or self._noise(0).grade

    def _release(
        self,
        label: str,
        cost: Release | None,
        draw: Callable[[NoiseSource], ArrayLike],
        moves: Moves | None = None,
    ) -> Array:
        """Charge (None: paid for already), then draw and journal, or return what was journalled."""
        if cost is not None:
            if self._prepaid:
                raise FedhistError(f"{label!r} needs exact sums, of which aggregate trust has none")
            self.ledger.charge(label, cost, self.cohort, moves)
        index, self._index = self._index, self._index + 1
        before = self._journal.released(index, label)
        if before is not None:
            return before
        value = np.array(draw(self._noise(index)))  # a copy: the exact value is wiped later
        self._journal.release(index, label, value)
        return value

    def _add(
        self,
        kind: AddedNoise,
        value: ArrayLike,
        size: float,
        cost: Release | None,
        label: str,
        moves: Moves | None = None,
        budget: Budget | None = None,
    ) -> Array:
        """Release value + noise of a size, 0 being none; the discrete kinds take integers."""
        discrete = kind.startswith("discrete")
        x: Array = _integers_of(value) if discrete else np.asarray(value, dtype=np.float64)
        if self._prepaid:
            if self._shared is None or budget is None:
                raise FedhistError(f"{label!r} adds noise that no node has: {kind}")
            self._shared.check_release(kind, *budget)
            return self._release(label, None, lambda _: x)
        return self._release(
            label, cost, lambda n: x + getattr(n, kind)(x.shape, size) if size else x, moves
        )

    def laplace(
        self,
        value: ArrayLike,
        *,
        l1_sensitivity: float,
        epsilon: float,
        label: str = "laplace",
        moves: Moves | None = None,
    ) -> NDArray[np.float64]:
        """Release value + Laplace(l1_sensitivity / epsilon) in every entry: epsilon-DP."""
        scale = _scale_of(l1_sensitivity, epsilon)
        return self._add("laplace", value, scale, pure(epsilon), label, moves)

    def gaussian(
        self,
        value: ArrayLike,
        *,
        l2_sensitivity: float,
        epsilon: float,
        delta: float,
        label: str = "gaussian",
        moves: Moves | None = None,
    ) -> NDArray[np.float64]:
        """Release value + Gaussian noise by the analytic mechanism: (epsilon, delta)-DP."""
        multiplier, cost = gaussian_cost(epsilon, delta)
        return self._add(
            "gaussian", value, _size_of(l2_sensitivity, multiplier), cost, label, moves
        )

    def sample(self, sampler: Sampler, *, label: str) -> Array:
        """Release one draw of a sampler, at the cost that it states."""
        return self._release(label, sampler.release, lambda n: sampler.draw(n.generator()))

    def gaussian_zcdp(
        self,
        value: ArrayLike,
        *,
        l2_sensitivity: float,
        rho: float,
        discrete: bool = False,
        label: str = "gaussian-zcdp",
        moves: Moves | None = None,
    ) -> Array:
        """Release value + Gaussian noise of std l2_sensitivity / sqrt(2 rho): rho-zCDP.

        For scripts that split a zCDP budget over many rounds; ``zcdp_rho`` gives the whole one.
        ``discrete``: integer noise on integers.
        """
        if not rho > 0:
            raise ValueError(f"rho must be positive, got {rho}")
        std = _size_of(l2_sensitivity, math.sqrt(0.5 / rho))
        kind: AddedNoise = "discrete_gaussian" if discrete else "gaussian"
        return self._add(kind, value, std, Release(math.inf, 0.0, rho), label, moves)

    def gaussian_series(
        self,
        rounds: int,
        *,
        epsilon: float,
        delta: float,
        discrete: bool = False,
        shares: tuple[float, ...] | None = None,
        label: str = "gaussian-series",
    ) -> Callable[[ArrayLike, float], Array]:
        """Pay once for ``rounds`` Gaussian releases, chosen adaptively: (epsilon, delta)-DP in all.

        Each has the noise multiplier sqrt(rounds) sigma, or sigma / sqrt(share) where ``shares``
        are given, which add up to at most 1. Adaptive Gaussians whose 1 / multiplier^2 add up to
        1 / sigma^2 compose to exactly one with multiplier sigma [1]_, so sigma is the analytic one
        of (epsilon, delta). Discrete noise on integers is of one of the two kinds of
        :func:`~fedhist.privacy.noise_law.discrete_gaussian_stds` in all rounds: the one that
        is smaller in the first that moves, which public numbers say.

        Returns
        -------
        callable of (value, l2_sensitivity) to array
            Releases one value; BudgetExceeded after ``rounds`` of them.

        References
        ----------
        .. [1] Dong, Roth & Su, "Gaussian differential privacy", JRSS B 2022, Corollary 3.3.
        """
        check_count("rounds", rounds)
        times = [math.sqrt(rounds)] * rounds
        if shares is not None:
            if len(shares) != rounds or min(shares) <= 0 or sum(shares) > 1 + 1e-12:
                raise ValueError(f"need {rounds} positive shares of at most 1 in all, got {shares}")
            times = [1 / math.sqrt(share) for share in shares]
        multiplier, cost = gaussian_cost(epsilon, delta)
        if not self._prepaid:
            self.ledger.charge(label, cost, self.cohort)
        left = rounds
        kind_of_all: int | None = None

        def release(value: ArrayLike, l2_sensitivity: float) -> Array:
            nonlocal left, kind_of_all
            if not left:
                raise BudgetExceeded(f"{label!r} was paid for {rounds} releases; all are made")
            more = times[-left]
            std = _size_of(l2_sensitivity, multiplier * more)
            if discrete:
                stds = discrete_gaussian_stds(l2_sensitivity, epsilon, delta, more)
                if kind_of_all is None and l2_sensitivity:
                    kind_of_all = stds.index(min(stds))
                std = stds[kind_of_all or 0]
            left -= 1
            kind: AddedNoise = "discrete_gaussian" if discrete else "gaussian"
            budget = (l2_sensitivity, epsilon, delta, rounds)
            return self._add(kind, value, std, None, label, budget=budget)

        return release

    def discrete_laplace(
        self,
        value: ArrayLike,
        *,
        l1_sensitivity: float,
        epsilon: float,
        label: str = "discrete-laplace",
        moves: Moves | None = None,
    ) -> NDArray[np.int64]:
        """Release integers + discrete Laplace(l1_sensitivity / epsilon): epsilon-DP, exactly."""
        scale = _scale_of(l1_sensitivity, epsilon)
        budget = (l1_sensitivity, epsilon, 0.0, 1)
        return self._add("discrete_laplace", value, scale, pure(epsilon), label, moves, budget)

    def discrete_gaussian(
        self,
        value: ArrayLike,
        *,
        l2_sensitivity: float,
        epsilon: float,
        delta: float,
        label: str = "discrete-gaussian",
        moves: Moves | None = None,
    ) -> NDArray[np.int64]:
        """Release integers + discrete Gaussian noise: (epsilon, delta)-DP."""
        std, cost = discrete_gaussian_cost(l2_sensitivity, epsilon, delta)
        budget = (l2_sensitivity, epsilon, delta, 1)
        return self._add("discrete_gaussian", value, std, cost, label, moves, budget)

    def exponential(
        self,
        scores: ArrayLike,
        *,
        sensitivity: float,
        epsilon: float,
        label: str = "exponential",
        moves: Moves | None = None,
    ) -> int:
        """Release an index with probability ~ exp(epsilon score / (2 sensitivity)): epsilon-DP."""
        s = np.asarray(scores, dtype=np.float64)
        if s.ndim != 1 or not len(s) or not np.isfinite(s).all():
            raise ValueError(f"scores must be a finite vector, got shape {s.shape}: {s[:5]}")
        weigh = _weight_of(sensitivity, epsilon)

        def draw(n: NoiseSource) -> int:
            if weigh == math.inf:
                return int(np.argmax(s))
            return n.exponential((s - s.max()) * weigh)

        return int(self._release(label, bounded_range(epsilon), draw, moves))

    def exponential_rows(
        self,
        scores: ArrayLike,
        *,
        sensitivity: float,
        epsilon_each: float,
        changed: int,
        label: str = "exponential-rows",
        moves: Moves | None = None,
    ) -> NDArray[np.int64]:
        """Release one index per row of scores (k, d): k exponential mechanisms, paid for together.

        One user changes at most ``changed`` of the rows, whichever they are, and in those no score
        by more than ``sensitivity``. The other rows' laws stay as they are, so ``changed``
        mechanisms compose: (changed epsilon_each)-DP and, each having bounded range,
        (changed epsilon_each^2 / 8)-zCDP.
        """
        s = np.asarray(scores, dtype=np.float64)
        if s.ndim != 2 or not s.size or not np.isfinite(s).all():
            raise ValueError(f"scores must be a finite (k, d) matrix, got shape {s.shape}")
        if not 1 <= changed <= len(s):
            raise ValueError(f"changed must lie in [1, {len(s)} rows], got {changed}")
        weigh, one = _weight_of(sensitivity, epsilon_each), bounded_range(epsilon_each)
        cost = Release(changed * one.epsilon, 0.0, changed * one.rho)
        step = max(1, _SCORES_AT_ONCE // s.shape[1])

        def draw(n: NoiseSource) -> Array:
            if weigh == math.inf:
                return np.asarray(np.argmax(s, axis=1))
            blocks = [s[i : i + step] for i in range(0, len(s), step)]
            return np.concatenate(
                [n.exponential_rows((b - b.max(axis=1, keepdims=True)) * weigh) for b in blocks]
            )

        return np.asarray(self._release(label, cost, draw, moves), dtype=np.int64)

    def threshold(
        self,
        part: Keyed,
        *,
        contribution: int,
        l1_sensitivity: int,
        epsilon: float,
        delta: float,
        noise: Literal["discrete", "laplace"] = "discrete",
        as_printed: bool = False,
        label: str = "threshold",
    ) -> Keyed:
        """Release the keys whose noisy integer count reaches a threshold: (epsilon, delta)-DP.

        Laplace noise of scale b = l1_sensitivity / epsilon on the support only; of the keys that
        one user alone holds, any appears with probability at most delta.

        ``part`` has non-negative integer counts; keys with count zero are not in the support. One
        user adds at most ``contribution`` over all keys (C); ``l1_sensitivity`` is C under
        add-remove and zero-out, 2 C under replacement. Secure noise is discrete.

        ``as_printed`` is NOT PRIVATE: noise on every key of ``part`` and the threshold of the
        paper. A user's keys that clipping took away may then appear, so that no (epsilon, delta)
        holds; the ledger is charged an infinite epsilon.
        """
        if contribution < 1 or l1_sensitivity not in (contribution, 2 * contribution):
            raise ValueError(
                f"l1_sensitivity must be contribution or twice that, got {l1_sensitivity} for "
                f"contribution {contribution}"
            )
        check_choice("noise", noise, ("discrete", "laplace"))
        find = laplace_key_threshold if noise == "laplace" else key_threshold
        at: float = find(contribution, l1_sensitivity, epsilon, delta)
        if as_printed:
            at = printed_key_threshold(contribution, epsilon, delta)
        keys, counts = part.keys, _integers_of(part.values)
        if not as_printed:
            keep = np.flatnonzero(counts > 0)
            keys, counts = Keys.of([part.keys[int(i)] for i in keep]), counts[keep]
        cost = approximate(math.inf, 0.0) if as_printed else approximate(epsilon, delta)
        scale = _scale_of(l1_sensitivity, epsilon)

        def draw(n: NoiseSource) -> Array:
            noisy: Array = counts if noise == "discrete" else counts.astype(np.float64)
            if scale:
                some = n.discrete_laplace if noise == "discrete" else n.laplace
                noisy = noisy + some(counts.shape, scale)
            return pack_keyed(keys, noisy, noisy >= at)

        return unpack_keyed(self._release(label, cost, draw))

    def keys(self, part: Keyed, mechanism: WeightedKeys) -> Keys:
        """Release which keys pass a threshold, at the cost that the mechanism states."""
        law = mechanism.release
        return unpack_keyed(self._release("keys", law, lambda n: mechanism.draw(part, n))).keys


# -- sizes of the noise ---------------------------------------------------------------------------


def _scale_of(l1_sensitivity: float, epsilon: float) -> float:
    """Scale of Laplace noise."""
    check_budget(epsilon)
    return _size_of(l1_sensitivity, 1 / epsilon)


def _weight_of(sensitivity: float, epsilon: float) -> float:
    """Logits per unit of score: epsilon / (2 sensitivity)."""
    check_budget(epsilon)
    check_size("sensitivity", sensitivity)
    return epsilon / (2 * sensitivity)


def _size_of(sensitivity: float, multiplier: float) -> float:
    """Size of the noise; 0 (no noise) only for sensitivity 0 or a budget without end."""
    check_size("a sensitivity", sensitivity, zero=True)
    size = sensitivity * multiplier
    if sensitivity > 0 and multiplier > 0 and size < sys.float_info.min:
        raise ValueError(f"noise of size {sensitivity} x {multiplier} vanishes in doubles")
    return size


def _integers_of(value: ArrayLike) -> NDArray[np.int64]:
    """Return a value as int64; ValueError unless it is made of integers."""
    x = np.asarray(value)
    if x.dtype.kind not in "iu":
        raise ValueError(f"this mechanism takes integers, got dtype {x.dtype}")
    return x.astype(np.int64)
