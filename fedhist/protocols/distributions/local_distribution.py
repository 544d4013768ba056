"""Learn a discrete distribution under user-level local differential privacy, in two rounds.

The Hadamard transform of the distribution is a vector of means in [-1, 1]. The users are split into
folds, one for each row but the first, which is known; a user votes on, or reports about, the row of
its fold only, as in the localize-then-refine procedure [1]_. It is the local companion of
``distribution``: target and loss are the same.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Sections 3.1, 3.2 and 5.2.
.. [2] Acharya, Liu & Sun, "Discrete distribution estimation under user-level local
   differential privacy", AISTATS 2023: the rate, k^2 / (n T epsilon^2) for the squared l1 error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from clients.records.functionals import HadamardRows
from fedhist.base.arrays import Array
from fedhist.channels.hadamard import fwht, next_power_of_two
from fedhist.model.losses import L1
from fedhist.model.protocol import ErrorBound, Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.results import Goal, ResultsRow
from fedhist.protocols.distributions.theory import average_distribution
from fedhist.protocols.localize.protocol import FoldProtocol
from fedhist.protocols.localize.script import (
    FoldEstimates,
)
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.protocols.shared.distribution_target import DistributionTarget
from fedhist.protocols.shared.domains import with_domain
from fedhist.protocols.shared.sample_sizes import resolve_sizes
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from server.distributions.simplex import project_simplex
from server.means.localize import Plan

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

MOST_SYMBOLS = 1 << 16


@register_protocol
@dataclass(frozen=True)
class LocalDistribution(DistributionTarget, FoldProtocol):
    """The distribution over k public symbols, under local differential privacy.

    Parameters
    ----------
    domain : Keys
        The k >= 1 symbols. A user's items outside it are dropped on its own device.
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    samples_per_user : float
        Public planning value T of items in the domain, repetitions counted;
        ``"harmonic-mean"`` in a configuration, see :class:`Mean`. Privacy never depends on it.
    mean_scale : float, optional
        Standard deviation of a user's own row, a mean of +-1, around the common one; by default
        1 / sqrt(T), for users who draw from one distribution. Enlarge it if the users' own
        distributions differ; 1 is always enough.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of the second round; "auto" takes the one of least variance, which for users of one
        item each is that at +-1.
    project : bool
        Whether to project the estimate onto the simplex.
    salt : int
        Public salt of the cohorts; that of the folds is derived from it.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: each user answers one
    epsilon-LDP query about one scalar in [-1, 1]; a user without items in the domain answers about
    the middle of the interval.

    Error
    -----
    Squared l2 error risk(n / (K - 1)) (K - 1) / K for K the next power of two: about
    25 K / (n T epsilon^2) for epsilon <= 1 while the votes succeed (n / K of some 400 / epsilon^2
    or more); squared l1 error at most k times that, the rate of [2].

    Users without items in the domain report the middle of their fold's interval. After a vote
    that is at most about ``plan.half_width`` from the truth; in a script of one round it is 0 for
    all rows, so that they count as the uniform distribution on K symbols. Declare a domain that
    most users have items of.

    Examples
    --------
    >>> LocalDistribution(Keys.range(50), 1.0, 64_000, 100).n_folds
    63
    """

    name: ClassVar[str] = "local-distribution"
    paper: ClassVar[str] = "Kent, Berrett & Yu, arXiv 2405.11923, Section 3.2, on Hadamard rows"
    goals: ClassVar[tuple[Goal, ...]] = (Goal(0.1, words="k = 50, m = 300"),)
    domain: Keys
    epsilon: float
    n_users: int
    samples_per_user: float
    mean_scale: float | None = None
    kind: str = "auto"
    project: bool = True
    salt: int = 1

    def __post_init__(self) -> None:
        self.check_fields(self.mean_scale)
        if not 1 <= len(self.domain) <= MOST_SYMBOLS:
            raise ValueError(f"the domain must have 1 to {MOST_SYMBOLS} symbols, got {self.domain}")
        _ = self.plan

    @property
    def n_folds(self) -> int:
        """Rows of the Hadamard matrix but the first: K - 1; none for one symbol."""
        return next_power_of_two(len(self.domain)) - 1

    @property
    def plan(self) -> Plan:
        """Bins, shares and widths of one fold; from public numbers only."""
        return self.fold_plan(self.n_users / max(1, self.n_folds), 1.0)

    @property
    def report_size(self) -> float | None:
        """A row of a single item is +-1; with several, or some other scale, nothing is known."""
        return 1.0 if self.samples_per_user == 1 and self.mean_scale is None else None

    @property
    def scale(self) -> float:
        """Standard deviation of a user's row that is planned with."""
        return self.mean_scale or 1 / math.sqrt(self.samples_per_user)

    @property
    def max_rounds(self) -> int:
        """Two; one where a vote would not help; none for one symbol."""
        return 0 if self.n_folds == 0 else super().max_rounds

    def rounds(self, server: Curator) -> Script:
        """Estimate the Hadamard rows fold by fold, and transform them back."""
        if self.n_folds == 0:
            return Estimate.ok([1.0], stderr=np.zeros(1), keys=self.domain)
        if not self.plan.feasible:
            return Estimate.refused(self.too_few(self.n_folds, 1.0))
        found = yield from self.ask(HadamardRows(self.domain), self.plan)
        return found if isinstance(found, Estimate) else self._conclude(found)

    def _conclude(self, found: FoldEstimates) -> Estimate:
        """Compute H q / K, q_0 = 1; the standard errors are those before the projection."""
        k, K = len(self.domain), self.n_folds + 1
        p = fwht(np.append(1.0, found.value))[:k] / K
        stderr = math.sqrt(np.square(found.stderr).sum()) / K
        return Estimate.ok(
            project_simplex(p) if self.project else p,
            stderr=np.full(k, stderr),
            keys=self.domain,
            public=found.public,
            warnings=found.warnings,
        )

    def error(self, users: Users) -> ErrorBound:
        """Predict the expected l1 error before the projection, which lowers it. NOT PRIVATE.

        A symbol's estimate is (1 / K) times a signed sum of K - 1 row estimates; it is taken as
        Gaussian, with the plan's risk in each row and, in a script of one round, the bias of the
        users without items in the domain.
        """
        K, p = self.n_folds + 1, self.truth(users)
        deviation = math.sqrt(self.n_folds * self.plan.risk) / K
        bias = np.zeros(len(p))
        if self.plan.n_bins == 1:
            bias = self._n_empty(users) / len(users) * (1 / K - p)
        expected = float(mean_absolute(bias, deviation).sum()) if self.n_folds else 0.0
        source = "the plans' risks, as Gaussian errors of the rows; rate of Acharya et al. 2023"
        return ErrorBound(L1, expected, exact=False, source=source)

    def truth(self, users: Users) -> Array:
        """Average the users' empirical distributions, (k,), empty ones left out. NOT PRIVATE."""
        return average_distribution(users, self.domain)

    def diagnostics(self, users: Users) -> Mapping[str, float]:
        """Count the users without items in the domain. NOT PRIVATE."""
        return {"users without items in the domain": self._n_empty(users)}

    def _n_empty(self, users: Users) -> int:
        return int(np.count_nonzero(user_norms(users, self.domain)[0] == 0))

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Users, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain, n_users, and samples_per_user in the domain where that is asked for."""
        p = with_domain(parameters, domain)
        return resolve_sizes(p, users, lambda some: user_norms(some, p["domain"])[0])

    @classmethod
    def results(cls) -> Sequence[ResultsRow]:
        """Hold the prediction against runs."""

        def row(
            label: str, size: tuple[int, int, int], repeats: int, least: float, project: bool
        ) -> ResultsRow:
            n, k, T = size
            people = {"kind": "items", "n_users": n, "d": k, "items": T}
            given = {"epsilon": 1.0, "samples_per_user": T, "project": project}
            return ResultsRow(label, given, people, repeats, (least, 1.1), anew=True)

        projected = "n=32000 k=16 T=1000 eps=1, projected"
        return (
            row("n=16000 k=8 T=100 eps=1", (16_000, 8, 100), 60, 0.6, False),
            row(projected, (32_000, 16, 1000), 30, 0.5, True),
            row("EDGE n=3500 k=8 T=100 eps=1", (3500, 8, 100), 200, 0.4, True),
        )

    @classmethod
    def example(cls) -> Self:
        """Five drinks, 64 cups each or a multiple, in seven folds."""
        return cls(Keys.of(["chai", "maté", "rye", "tea", "お茶"]), 2.0, 1400, 64)

    @classmethod
    def example_users(cls) -> Users:
        """Users of one distribution each, in differing amounts; some drink others besides.

        Their shares are equal, so that every fold's average is that of all users.
        """
        cups = np.array([6, 10, 12, 16, 20]) * (1 + np.arange(1400)[:, None] % 3)
        cups = np.hstack([cups, np.arange(1400)[:, None] % 4])  # milk is outside the domain
        user, item = np.nonzero(cups)
        drinks = Keys.of(["maté", "rye", "tea", "chai", "お茶", "milk"])
        return Users.from_counts(user_ids(Keys.range(1400)), user, item, cups[user, item], drinks)


def mean_absolute(mean: NDArray[np.float64], deviation: float) -> NDArray[np.float64]:
    """Return E |X| for Gaussian X with the given means and one positive deviation.

    >>> mean_absolute(np.array([0.0, 3.0]), 1.0).round(4)
    array([0.7979, 3.0008])
    """
    z = mean / deviation
    spread = deviation * math.sqrt(2 / math.pi) * np.exp(-(z**2) / 2)
    return np.asarray(spread + mean * erf(z / math.sqrt(2)))
