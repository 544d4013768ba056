"""The mean of users' own means with a trusted server: the estimator is chosen by public numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fedhist.model.error_bounds import ErrorBound
from fedhist.model.protocol import Script
from fedhist.model.registry import register_protocol
from fedhist.protocols.central_means.box_centre import BoxCentre
from fedhist.protocols.central_means.box_mean import BoxMean, some_users
from fedhist.protocols.central_means.interval_mean import IntervalMean
from fedhist.protocols.central_means.protocol import CentralMeans
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

CLOSE = 1.5
"""A prediction tells of the whole range where it errs so many times less."""


@register_protocol
@dataclass(frozen=True, kw_only=True)
class CentralMean(CentralMeans):
    """Average of the users' own means; where to look is chosen by public numbers.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``: nothing else needs to be known.

    Privacy
    -------
    That of the estimator in use, for the whole (epsilon, delta): ``box-centre`` of three looks
    where its noise is Gaussian, as in many dimensions, and three looks share the budget at little
    loss. Else ``interval-mean`` where there are enough users for medians, else ``box-centre`` of
    two looks, and ``box-mean`` where its first mean lies not well inside the range, or no radius
    can be drawn. The choice reads the number of users, the dimension and the budget only.

    Error
    -----
    The estimator's. All of them but ``box-mean`` draw how far they look from the users, privately,
    and come back to the whole range where the users fill it. What a drawn radius takes from the few
    users of a long tail can be more than noise on the range: a prediction knows, and says so. In
    three dimensions or more noise that is longer than the mean costs about what the middle of the
    range would.

    Examples
    --------
    >>> budget = {"epsilon": 1.0, "low": -1.0, "high": 1.0}
    >>> [CentralMean(n_users=n, **budget).chosen.name for n in (50, 300, 1000)]
    ['box-mean', 'box-centre', 'interval-mean']
    """

    name: ClassVar[str] = "central-mean"
    paper: ClassVar[str] = "own choice of interval-mean, box-centre and box-mean"
    revision: ClassVar[int] = 5

    @cached_property
    def chosen(self) -> CentralMeans:
        """The estimator in use; from public numbers only."""
        given: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(CentralMeans)}
        interval, centre = IntervalMean(**given), BoxCentre(**given)
        if not self.guarantee.private:
            return BoxMean(**given)
        three = BoxCentre(**given, n_looks=3)
        if three.step_noise.kind == "gaussian" and three.worthwhile:
            return three
        if interval.enough:
            return interval
        return centre if centre.worthwhile else BoxMean(**given)

    @property
    def max_rounds(self) -> int:  # type: ignore[override]
        """The estimator's."""
        return self.chosen.max_rounds

    def steps(self, server: Curator) -> Script:
        """Run the estimator."""
        return (yield from self.chosen.steps(server))

    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Predict the estimator's error."""
        return self.chosen.risk(seen)

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the estimator's error, and say where the whole range would do better.

        At large epsilon noise on it can be less than what one user brings who is far away: a drawn
        radius does not hold the few of a long tail.
        """
        found = super().error_of(seen)
        whole = self.whole_risk(seen)[0]
        if not found.expected > CLOSE * whole > 0:
            return found
        told = f"close: box-mean would err {found.expected / whole:.2g} times less on these users"
        return replace(found, source=f"{found.source}; {told}")

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(epsilon=8.0, n_users=120, low=-1.0, high=1.0, delta=0.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around .3."""
        return some_users(120, 1)
