"""The mean of users' own means with a trusted server: clipped to a public range, and noise.

The baseline of central means: it never refuses, and its error does not depend on the users as long
as their means lie inside the range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from clients.central_means.queries import STEPS, SummedMeans
from fedhist.model.evaluation import Facts
from fedhist.model.query import Query
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Prediction
from fedhist.privacy.shares import Aggregation
from fedhist.users.batch import Users
from server.central_means.central_mean import CentralMeans, some_users
from server.central_means.localizing import SumNoise


@register_protocol
@dataclass(frozen=True, kw_only=True)
class BoxMean(CentralMeans):
    """Average of the users' own means, clipped to a public range, with noise on the sum.

    Parameters
    ----------
    epsilon, delta : float
        Budget of each user; epsilon = inf switches noise off. Laplace noise, which spends no delta,
        is taken where it is less than Gaussian noise; with delta = 0 always.
    n_users : int
        Public planning value; the estimate divides by the number who answered, or by a noisy one.
    low, high : float, optional
        Public range of every coordinate of a user's mean.
    dimension : int
        d.
    box : float, optional
        Instead of the range: public bound on the l2 norm of a user's mean.
    adjacency : {"replace-user", "zero-out-user", "add-remove-user"}
        What is hidden; the number of users too in the last.
    discrete : bool
        Integer noise on integer sums, as secure noise needs it; of the same size.
    trust : Aggregation, optional
        The nodes add the noise; needs ``discrete`` and a public number of users.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. A user's vector less the middle of the range is
    shortened to B: half the range, sqrt(d) times that in d dimensions, or ``box``. The sum moves by
    B in l2 with a user's record emptied, by 2 B with another record; by sqrt(d) times as much in
    l1. The number of users with data is released with it: under "replace-user" in units of B, which
    moves as much as another record at most; under "add-remove-user" .2 times it, for
    sqrt(1 + .2^2) B in l2.

    Error
    -----
    Mean squared l2: d (2 B z / n)^2 with z the noise multiplier of (epsilon, delta), half as much
    in l2 under "zero-out-user"; and the square of what clipping takes away. Exact, but under
    "add-remove-user", and under "replace-user" where the number with data is surely less than n:
    the estimate is the ratio of two noisy sums then, and ``stderr`` is that of both. A user without
    samples, or with a NaN or an infinity, counts as nobody then; as the middle under
    "zero-out-user" and under aggregate trust.

    Examples
    --------
    >>> box = BoxMean(epsilon=2.0, n_users=150, dimension=40, box=10.0, delta=1e-5)
    >>> round(40**0.5 * 10 * box.noise().std() / 150, 3)
    1.681
    """

    name: ClassVar[str] = "box-mean"
    paper: ClassVar[str] = "noise on the clipped mean: Laplace, or Balle & Wang, ICML 2018"
    revision: ClassVar[int] = 5

    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_integers(self.discrete)
        if self.trust is not None:
            if self.hidden:
                raise ValueError(
                    "the mean divides by the number of users, which nodes do not send under "
                    f"{self.adjacency}: take another adjacency"
                )
            _ = self.noise()

    def asks(self, query: Query, round_index: int) -> Query:
        if self.trust is None:
            return query
        wanted = super().noise()
        return self.shared(query, wanted.epsilon, wanted.delta)

    def noise(self) -> SumNoise:
        """Noise of the one release; under aggregate trust that of all parties' shares."""
        noise = super().noise()
        if self.trust is None or not self.guarantee.private:
            return noise
        law = self.noise_of_shares(SummedMeans(self.middle, self.half))
        return replace(noise, multiplier=law.std / (noise.unit * STEPS))

    def error_of(self, facts: Facts) -> Prediction:
        """Predict the mean squared l2 error: noise, and what clipping takes away."""
        private = self.guarantee.private
        if private and self.counted and (self.hidden or facts["unusable"][0]):
            return super().error_of(facts)
        by = facts.n_users if private or self.trust is not None else int(facts["usable"][0])
        off = facts["inside"] / max(by, 1) - (facts.truth - self.middle)
        each = self.half * self.noise().std() / max(by, 1)
        expected = float(off @ off) + self.dimension * each**2
        return Prediction(self.loss_name, expected, "exact", "noise, and what the clip takes away")

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, n_users=120, low=-1.0, high=1.0, dimension=3)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around (.3, .3, .3)."""
        return some_users(120, 3)
