"""Naive reports of a vector in an l2 ball by the mechanism of Duchi, Jordan & Wainwright."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.randomizers.sphere import duchi_l2, duchi_sums
from clients.records.draws import ItemStreams, draw_one
from clients.records.functionals import samples_of
from clients.records.user_rows import ball_means
from fedhist.base.arrays import Array, Bounds
from fedhist.base.errors import WireError
from fedhist.channels.sphere import SphereChannel, sphere_law
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import LocalQuery, Report, Summary
from fedhist.model.registry import register_query
from fedhist.protocols.baselines.scalar_reports import MOST_ITEMS, ItemLevel
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.columns import Samples
from fedhist.users.streams import SeededStreams, Streams

ROUNDING = 1 + 1e-9


@dataclass(frozen=True)
class _Sphere(LocalQuery):
    """Vectors of a ball, sent as points of a sphere."""

    dimension: int
    radius: float
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        _ = self.channel

    @property
    def channel(self) -> SphereChannel:
        """What happens to a vector."""
        return SphereChannel(self.dimension, self.radius, self.epsilon)

    def finite_channel(self) -> FiniteChannel | None:
        """Return the law of a report for every input of its channel."""
        return sphere_law(self.channel)

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Add up reports from fresh streams: a sum of such vectors has no shorter exact law."""
        key = int(rng.integers(1 << 62))
        return self.answer_folded(users, lambda chunk: SeededStreams(chunk.ids, key, "aggregate"))

    def rows_of(self, report: Report, *names: str) -> NDArray[np.float64]:
        """Return the reported vectors; WireError unless the arrays are these and finite."""
        if report.arrays.keys() != {"reports", *names} or report.ragged:
            raise WireError(f"{('reports', *names)} are expected, got {sorted(report.arrays)}")
        rows = report.arrays["reports"]
        Bounds((report.n_users, self.dimension), "f").check("reports", rows)
        return rows


@register_query
@dataclass(frozen=True)
class SphereReports(_Sphere):
    """Each user reports the mean of its samples, or one sample, as a point of a sphere.

    Parameters
    ----------
    dimension : int
    radius : float
        Samples of a larger l2 norm are scaled down to it first.
    epsilon : float
    cohort : Cohort, optional
    one_sample : bool
        Report one sample, drawn uniformly, in place of the mean.

    Privacy
    -------
    epsilon-LDP for a user's whole record, see :func:`clients.randomizers.sphere.duchi_l2`.
    """

    wire_name: ClassVar[str] = "sphere-reports"
    one_sample: bool = False

    @property
    def exact(self) -> bool:
        """Whether the channel keeps its promise as it is drawn."""
        return self.channel.exact

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report; the zero vector stands for a record that cannot be used."""
        if self.one_sample:
            users = draw_one(users, rng.substream("one-sample").words(1)[:, 0])
        x = ball_means(samples_of(users, self.dimension), self.radius)
        return Report(users.ids, {"reports": duchi_l2(x, self.channel, rng)})

    def fold(self, report: Report) -> Summary:
        """Add up the reports: (d,) float64."""
        return Summary(report.n_users, {"reports": report.arrays["reports"].sum(axis=0)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every report lies on the sphere; in the ball without noise."""
        rows, length = self.rows_of(report), self.channel.length
        norms = np.linalg.norm(rows / length, axis=1)
        if (norms > ROUNDING).any():
            raise WireError(f"'reports' holds a vector of norm {norms.max() * length}")
        if np.isfinite(self.epsilon) and (norms < 2 - ROUNDING).any():
            raise WireError(f"'reports' holds a vector of norm {norms.min() * length}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far from zero as n_users reports can be."""
        most = n_users * self.channel.length * ROUNDING
        return {"reports": Bounds((self.dimension,), "f", -most, most)}


@register_query
@dataclass(frozen=True)
class ItemSpheres(ItemLevel, _Sphere):
    """Each user reports EVERY sample as a point of a sphere and sends the sum: item-level privacy.

    Parameters
    ----------
    dimension, radius, epsilon, cohort
        As in :class:`SphereReports`; epsilon is per sample.

    Privacy
    -------
    NOT user-level: T epsilon for a user of T samples, which are declared public, see
    :class:`~fedhist.protocols.baselines.scalar_reports.ItemScalars`.
    """

    wire_name: ClassVar[str] = "item-level-spheres"

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report every sample and add up."""
        samples = samples_of(users, self.dimension)
        alone = Samples(np.arange(len(samples.values) + 1), samples.values)
        x = ball_means(alone, self.radius)
        sums = duchi_sums(x, samples.indptr, self.channel, ItemStreams(rng, samples.indptr))
        return Report(users.ids, {"reports": sums, "items": np.diff(samples.indptr)})

    def fold(self, report: Report) -> Summary:
        """Add up the reports, (d,) float64, and the samples, (1,) int64."""
        items = report.arrays["items"].sum(dtype=np.int64, keepdims=True)
        return Summary(
            report.n_users, {"reports": report.arrays["reports"].sum(axis=0), "items": items}
        )

    def check(self, report: Report) -> None:
        """Raise WireError unless every sum is one of so many points."""
        rows, items = self.rows_of(report, "items"), report.arrays["items"]
        self.refuse_items(items, report.n_users)
        self._refuse_sums(rows, items)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far from zero as the reports of n_users with the most samples can be."""
        most = n_users * float(MOST_ITEMS)
        far = most * self.channel.length
        return {
            "reports": Bounds((self.dimension,), "f", -far, far),
            "items": Bounds((1,), "i", 0, most),
        }

    def check_summary(self, summary: Summary) -> None:
        """Bound the reports by the samples."""
        super().check_summary(summary)
        self._refuse_sums(summary.sums["reports"][None, :], summary.sums["items"])

    def _refuse_sums(self, rows: Array, items: Array) -> None:
        norms = np.linalg.norm(rows / self.channel.length, axis=1)
        if (norms > items * ROUNDING).any():
            raise WireError(f"'reports' adds up to the norm {norms.max() * self.channel.length}")
