"""One report a user over the whole range: a scalar of a fold, or a point of a sphere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.localize.queries import ClippedMean
from clients.randomizers.sphere import duchi_l2
from clients.records.draws import draw_one
from clients.records.functionals import samples_of
from clients.records.user_rows import ball_means
from fedhist.base.arrays import ROUNDING, Bounds
from fedhist.base.errors import WireError
from fedhist.channels.sphere import SphereChannel, sphere_law
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import LocalQuery, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class SampledScalar(ClippedMean):
    """Each user reports its fold's scalar of ONE of its samples, drawn uniformly.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one call of the scalar channel, whichever
    sample was drawn.
    """

    wire_name: ClassVar[str] = "sampled-scalar"

    def answer(self, users: Users, rng: Streams) -> Report:
        words = rng.substream("one-sample").words(1)[:, 0]
        return super().answer(draw_one(users, words), rng)

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw everybody's sample, then the sum of each fold's reports."""
        words = rng.integers(1 << 64, size=len(users), dtype=np.uint64)
        return super().draw_summary(draw_one(users, words), rng)


@register_query
@dataclass(frozen=True)
class SphereReports(LocalQuery):
    """Each user reports the mean of its samples, or one sample, as a point of a sphere.

    Privacy
    -------
    epsilon-LDP for a user's whole record, see :func:`clients.randomizers.sphere.duchi_l2`.
    """

    wire_name: ClassVar[str] = "sphere-reports"
    exact = True  # only the sign depends on the data: one bit against an integer threshold
    dimension: int
    radius: float  # samples of a larger l2 norm are scaled down to it first
    epsilon: float
    cohort: Cohort | None = None
    one_sample: bool = False  # one, drawn uniformly, in place of the mean

    def __post_init__(self) -> None:
        _ = self.channel

    @property
    def channel(self) -> SphereChannel:
        """What happens to a vector."""
        return SphereChannel(self.dimension, self.radius, self.epsilon)

    def finite_channel(self) -> FiniteChannel | None:
        return sphere_law(self.channel)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report; the zero vector stands for a record that cannot be used."""
        if self.one_sample:
            users = draw_one(users, rng.substream("one-sample").words(1)[:, 0])
        x = np.nan_to_num(ball_means(samples_of(users, self.dimension), self.radius), copy=False)
        return Report(users.ids, {"reports": duchi_l2(x, self.channel, rng)})

    def fold(self, report: Report) -> Summary:
        return Summary(report.n_users, {"reports": report.arrays["reports"].sum(axis=0)})

    def check(self, report: Report) -> None:
        rows, length = only_array(report, "reports"), self.channel.length
        Bounds((report.n_users, self.dimension), "f").check("reports", rows)
        norms = np.linalg.norm(rows / length, axis=1)
        if (norms > ROUNDING).any():
            raise WireError(f"'reports' holds a vector of norm {norms.max() * length}")
        if np.isfinite(self.epsilon) and (norms < 2 - ROUNDING).any():
            raise WireError(f"'reports' holds a vector of norm {norms.min() * length}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        most = n_users * self.channel.length * ROUNDING
        return {"reports": Bounds((self.dimension,), "f", -most, most)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        norm = float(np.linalg.norm(summary.sums["reports"]))
        if norm > summary.n_users * self.channel.length * ROUNDING:
            raise WireError(f"'reports' adds up to the norm {norm}, more than its users can report")
