"""A robust central mean: steps from a start, each a noisy mean of what is clipped around the last.

The fixed point is Huber's M-estimator: users far away pull with a bounded force. Where users are
skewed it is NOT the average of their means, and the prediction says by how much.

References
----------
.. [1] Zhao, Lai, Zhang, Wu & Fan, "A Huber loss minimization approach to mean estimation under
   user-level differential privacy", NeurIPS 2024: the idea; the steps are own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_integer, check_scale
from fedhist.base.text import warned
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.protocols.central_means.box_centre import FOLLOWED
from fedhist.protocols.central_means.box_mean import some_users
from fedhist.protocols.central_means.protocol import CentralMeans, Steps
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from server.central_means.noise import COUNTED
from server.central_means.settling import Settling, spread_noise

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

MOST_STEPS = 64

RARE = 0.08
"""Noise on a hidden number of users, in parts of it, from which on it may come close to none: so
rarely that the runs that are followed need not show it, with errors that are much of the mean."""

MOVING = 0.75
"""Share of the radius that a last step does not move by where steps have come to the users."""

SCALES = 3.0
"""Radius of the clip, in standard deviations of a user's mean."""


@register_protocol
@dataclass(frozen=True, kw_only=True)
class HuberMean(CentralMeans):
    """Huber's M-estimate of the users' own means, by a few noisy steps.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``.
    radius : float, optional
        Public: how far from the centre of a step a user pulls in full, in l2.
    samples_per_user : float, optional
        Instead of ``radius``: m, of which 3 B / sqrt(m) is made, B being half the range.
    start : float, optional
        Public: first centre, in every coordinate; default the middle of the range.
    n_steps : int, optional
        J. Default: what comes from any end of the range, one more, but 64 at most; 1 is right where
        the start is good. Where the last step still moved by much of the radius, the estimate says
        that it has not come to the users.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record: J sums of vectors no longer than the radius,
    which move by it or, under "replace-user", by twice that; J equal shares of one Gaussian, or of
    epsilon where Laplace noise is less. Centres are released numbers.

    Error
    -----
    c <- c + mean of (x_u - c) clipped + noise of std 2 R z sqrt(J) / n: predicted by following the
    steps with the users' own means, for 48 draws of the noise. Centres, and the estimate, are
    settled as ``box-mean`` settles its estimate; under "add-remove-user" every step takes the ratio
    of two noisy sums, and where these count hardly anybody, now and then, the prediction is a bound
    for most runs. ``stderr`` is that of the last step's noise: not what clips take away, nor what
    the steps before have left to go.

    Examples
    --------
    >>> HuberMean(epsilon=1.0, n_users=2000, low=-6.0, high=6.0, radius=3.0).looks
    3
    """

    name: ClassVar[str] = "huber-mean"
    paper: ClassVar[str] = "the idea: Zhao et al., NeurIPS 2024; the steps are own"
    revision: ClassVar[int] = 2

    radius: float | None = None
    samples_per_user: float | None = None
    start: float | None = None
    n_steps: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        m = self.samples_per_user
        if self.radius is None and m is None:
            raise ValueError("give radius or samples_per_user; got neither")
        if self.radius is not None:
            check_scale("radius", self.radius)
            if m is not None:
                raise ValueError(
                    f"give radius or samples_per_user; got radius = {self.radius} and "
                    f"samples_per_user = {m}"
                )
        if m is not None and not 1 <= m < math.inf:
            raise ValueError(f"samples_per_user must be a number of at least 1, got {m}")
        if self.start is not None and not math.isfinite(self.start):
            raise ValueError(f"start must be finite, got {self.start}")
        if self.n_steps is not None:
            check_integer("n_steps", self.n_steps, MOST_STEPS)

    @property
    def reach(self) -> float:
        """R: the radius, or 3 B / sqrt(m); B at most."""
        if self.radius is not None:
            return min(float(self.radius), self.half)
        return min(SCALES * self.half / math.sqrt(self.samples_per_user or 1.0), self.half)

    @property
    def looks(self) -> int:
        """Steps."""
        if self.n_steps is not None:
            return self.n_steps
        if self.reach >= self.half:
            return 1
        return min(math.ceil(self.half / self.reach) + 1, MOST_STEPS)

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the steps: equal ones."""
        return (1 / self.looks,) * self.looks

    @property
    def first(self) -> Floats:
        """The first centre: (d,)."""
        return self.middle if self.start is None else np.full(self.dimension, float(self.start))

    @property
    def max_rounds(self) -> int:  # type: ignore[override]
        """One a step."""
        return self.looks if self.guarantee.private else 1

    def steps(self, server: Curator) -> Script:
        """Take the steps."""
        steps = Steps(self, server, self.noise(self.shares), self.shares)
        centre, std, moved = self.first, 0.0, 0.0
        for _ in range(self.looks):
            found = yield from steps.ask(centre, self.reach)
            if isinstance(found, Estimate):
                return found
            moved = float(np.linalg.norm(found[0] - centre))
            centre, std = self.settled(*found), found[1]
        return Estimate.ok(
            centre,
            stderr=np.hypot(std, steps.along),
            public=steps.public | {"radius": self.reach},
            warnings=self._moving(moved, std) + self.drowned(std),
        )

    def _moving(self, moved: float, std: float) -> tuple[str, ...]:
        """Warn where a last step is most of the radius, beyond what noise in two centres makes."""
        noise = math.sqrt(2 * self.dimension) * std
        if self.reach >= self.half or moved <= MOVING * self.reach + 3 * noise:
            return ()
        return (
            warned(
                f"the last of {self.looks} steps moved by {moved:.3g}, of {self.reach:.3g} at most",
                "most users are farther away, which no stated error has",
                "more steps, a larger radius or a start that is nearer come to them",
            ),
        )

    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Follow the steps."""
        rows = self.followed(seen)
        if not len(rows.means):
            return 0.0, False
        rng, noise = np.random.default_rng(20), self.noise(self.shares)
        settling, each = Settling(noise.kind, self.dimension, self.half), noise.std(self.shares[0])
        d, moves = self.dimension, self.looks - 1
        drawn = spread_noise(rng, noise.kind, (FOLLOWED if moves else 1, moves * (d + 1)))
        total = 0.0
        for row in drawn:
            centre = self.first
            for each_noise in row.reshape(-1, d + 1):
                found = rows.look(centre, self.reach, each).drawn(each_noise)
                centre = self.settled(*found)
            look = rows.look(centre, self.reach, each)
            total += settling.look_error(look, rows.truth, self.middle)
        plain = rows.risk(self.first, self.reach, noise, self.shares[0])
        return total / len(drawn), self.looks == 1 and not self.hidden and total == plain

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict it, and say where rare runs are much of it. NOT PRIVATE."""
        found = super().error_of(seen)
        counted = self.noise(self.shares).std(self.shares[0]) / COUNTED
        if not (self.guarantee.private and self.hidden) or counted < RARE * self.n_users:
            return found
        return replace(found, source=f"{found.source}; a bound: rare runs count hardly anybody")

    @classmethod
    def example(cls) -> Self:
        """Build a small instance in three dimensions."""
        return cls(epsilon=4.0, n_users=120, low=-1.0, high=1.0, dimension=3, radius=1.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two samples around (.3, .3, .3)."""
        return some_users(120, 3)
