"""Means under local privacy as they are taken today: one noisy report over the whole range.

Baselines of the two-round procedures: what they cost does not fall with the number of samples per
user, or it is not user-level privacy.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018.
.. [2] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.records.draws import each_alone
from clients.records.functionals import Coordinates, samples_of
from clients.records.user_rows import ball_means, coordinate_points, user_points
from fedhist.base.arrays import Array
from fedhist.base.checks import check_range
from fedhist.base.text import warned
from fedhist.channels.sphere import SphereChannel
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Summary
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols.baselines.protocol import SCALAR_QUERIES, Method, NaiveReport
from fedhist.protocols.baselines.sphere_reports import ItemSpheres, SphereReports
from fedhist.protocols.localize.queries import ClippedMean
from fedhist.protocols.shared.lower_bounds import ParameterSet
from fedhist.protocols.shared.mean_target import MeanTarget
from fedhist.protocols.shared.noninteractive_error import fold_mse, naive_mse, sphere_mse
from fedhist.protocols.shared.seen import Seen
from fedhist.protocols.shared.shuffles import Batch
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.folds import fold_of, salt_of_folds
from fedhist.users.keys import Keys, user_ids

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

Geometry = Literal["linf", "l2"]


@register_protocol
@dataclass(frozen=True)
class NaiveMean(MeanTarget, NaiveReport):
    """Mean of samples of a box or a ball by one noisy report a user, over the whole range.

    Parameters
    ----------
    epsilon : float
        Budget of each user; of each ITEM for method "item-level". inf switches noise off.
    n_users : int
        Public planning value, for :attr:`planned_mse`.
    dimension : int
        d: coordinates of a sample.
    method : {"user-mean", "one-item", "item-level"}
        Report the mean of the user's samples; one of them, drawn uniformly; or each on its own,
        with noise of its own. The last one protects single items, NOT users: a user of T samples
        has T times epsilon.
    geometry : {"linf", "l2"}
        "linf": samples of [low, high]^d, one coordinate a user, by a public hash of its id. "l2":
        samples of a ball, whole vectors, by the mechanism of Duchi et al. [1].
    low, high : float
        Range of every coordinate in "linf"; a sample outside is clipped first.
    radius : float
        Of the ball in "l2"; a longer sample is scaled onto it first.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Channel of a coordinate in "linf"; "auto" takes the one of least variance.
    samples_per_user : float, optional
        Public planning value T. Item-level privacy needs it: for :attr:`planned_mse`, and for the
        user-level epsilon that it amounts to.
    salt : int
        Public salt of the coordinates.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~fedhist.protocols.shared.shuffles.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round, exact as drawn; for "item-level"
    epsilon-LDP for one item of known user, whose number of items is public.

    Error
    -----
    The squared l2 error is at most d^2 h^2 coth^2(epsilon / 2) / N with one-bit reports in "linf"
    (h the half width) and about radius^2 (pi d / 2) coth^2(epsilon / 2) / N in "l2", where N counts
    the users; the items for "item-level". T does not occur in the former.

    Examples
    --------
    >>> NaiveMean(epsilon=1.0, n_users=8000, kind="laplace").planned_mse
    0.001
    """

    name: ClassVar[str] = "naive-mean"
    paper: ClassVar[str] = "Duchi, Jordan & Wainwright, JASA 2018; baselines of arXiv 2405.11923"
    epsilon: float
    n_users: int
    dimension: int = 1
    method: Method = "user-mean"
    geometry: Geometry = "linf"
    low: float = -1.0
    high: float = 1.0
    radius: float = 1.0
    kind: str = "auto"
    samples_per_user: float | None = None
    salt: int = 1
    trust: Shuffling | None = field(default=None, kw_only=True)
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("kind", ("onebit", "piecewise"))

    def __post_init__(self) -> None:
        self.check_report()
        check_range(self.low, self.high)
        Cohort(self.salt)
        _ = self.query
        self.check_trust()

    @property
    def batches(self) -> Sequence[Batch]:
        """The users of each coordinate."""
        if self.item_level:
            raise ValueError("naive-mean: a shuffler hides users, and item-level reports do not")
        return (Batch.of(self.query),)

    @property
    def report_risk(self) -> float:
        """The planned error."""
        return self.planned_mse

    @property
    def sphere(self) -> SphereChannel:
        """What happens to a vector."""
        return SphereChannel(self.dimension, float(self.radius), float(self.epsilon))

    @property
    def value_range(self) -> tuple[float, float]:
        """The range, or the ball's: means lie where samples do."""
        far = float(self.radius)
        return (-far, far) if self.geometry == "l2" else (float(self.low), float(self.high))

    @property
    def half_width(self) -> float:
        """Half of high - low."""
        return float(self.high - self.low) / 2

    @property
    def query(self) -> ClippedMean | SphereReports | ItemSpheres:
        """The one question."""
        if self.geometry == "l2":
            ball = self.dimension, float(self.radius), float(self.epsilon)
            if self.item_level:
                return ItemSpheres(*ball)
            return SphereReports(*ball, one_sample=self.method == "one-item")
        return SCALAR_QUERIES[self.method](
            functional=Coordinates(self.dimension, float(self.low), float(self.high)),
            centres=np.full(self.dimension, self.low + self.half_width),
            half_width=self.half_width,
            epsilon=float(self.epsilon),
            kind=self.channel.kind,
            fold_salt=salt_of_folds(self.salt),
        )

    @property
    def planned_mse(self) -> float:
        """Mean squared error for n_users users of samples_per_user samples at the midpoint."""
        return naive_mse(
            geometry=self.geometry,
            kind=self.channel.kind,
            epsilon=float(self.epsilon),
            dimension=self.dimension,
            scale=float(self.radius) if self.geometry == "l2" else self.half_width,
            n_reports=self.planned_reports,
        )

    def rounds(self, server: Curator) -> Script:
        """Ask, average."""
        query = self.query
        summary = yield query
        if summary.n_users == 0:
            return Estimate.failed("nobody answered")
        public, warnings = self.told(summary)
        if self.item_level and not public["n_items"]:
            return Estimate.failed("nobody has an item", public=public)
        if isinstance(query, ClippedMean):
            value, stderr = self._by_coordinate(query, summary)
            empty = int(np.isinf(stderr).sum())
            if empty:
                means = "the middle of the range stands in, which says nothing of the users"
                what = f"{empty} coordinates have no reports"
                warnings.append(warned(what, means, "ask more users"))
        else:
            n = public["n_items"] if self.item_level else public["n_report"]
            value = summary.sums["reports"] / n
            most = self.sphere.length**2 / self.dimension if self._noisy else 0.0
            stderr = np.full(self.dimension, math.sqrt(most / n))
        return Estimate.ok(value, stderr=stderr, public=public, warnings=tuple(warnings))

    @property
    def _noisy(self) -> bool:
        return not math.isinf(self.epsilon)

    def _by_coordinate(self, query: ClippedMean, summary: Summary) -> tuple[Array, Array]:
        """Average each coordinate's reports; the standard error is that of the worst input."""
        n = summary.sums["items" if self.item_level else "users"]
        u = summary.sums["reports"] / np.maximum(n, 1) / self.channel.gain
        one = 4 * self.channel.worst_v
        if self.method == "one-item" and self.channel.kind != "onebit" and self._noisy:
            one += 1.0  # the draw of the item; a bit is as spread as it can be
        with np.errstate(divide="ignore"):
            stderr = np.where(n > 0, self.half_width * np.sqrt(one / np.maximum(n, 1)), math.inf)
        return query.centres + self.half_width * u, stderr

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up own means, or all items for "item-level", and the reports' laws. NOT PRIVATE."""
        found = super().sums(users)
        if self.item_level:
            found = {**super().sums(each_alone(users)[0]), "unusable": found["unusable"]}
        return {**found, **(self._l2_law if self.geometry == "l2" else self._linf_law)(users)}

    def error_of(self, seen: Seen) -> ErrorBound:
        """Compute the mean squared error for these very users. NOT PRIVATE.

        It averages over the noise and the drawn items; the coordinates that users report in "linf"
        follow from their ids.
        """
        source = "the exact variance of the reports, summed over the users' own means"
        n, total, square = (seen[name] for name in ("reports", "report", "variance"))
        if self.geometry == "linf":
            middle = self.low + self.half_width
            mse = fold_mse(n, total, square, seen.truth, middle)
        elif self._noisy:
            mse = sphere_mse(int(n[0]), total, float(square[0]), self.sphere.length, seen.truth)
        else:
            mse = float(np.square(total / max(int(n[0]), 1) - seen.truth).sum())
        return ErrorBound(SQUARED_L2, mse, exact=True, source=source)

    def _l2_law(self, users: Users) -> dict[str, Array]:
        """Count reports, add up what they are unbiased for, and its squared norms."""
        radius, samples = float(self.radius), samples_of(users, self.dimension)
        if self.method == "user-mean":
            rows = ball_means(samples, radius)
        else:
            alone, indptr = each_alone(replace(users, samples=samples))
            rows = ball_means(alone.reals, radius)
            if self.method == "one-item":
                rows = _averages(rows, indptr)
        square = np.square(rows).sum(keepdims=True)[0]
        return {"reports": np.array([len(rows)]), "report": rows.sum(axis=0), "variance": square}

    def _linf_law(self, users: Users) -> dict[str, Array]:
        """Count reports, and add up their means and variances, by coordinate."""
        functional = Coordinates(self.dimension, float(self.low), float(self.high))
        fold = fold_of(users.ids, salt_of_folds(self.salt), self.dimension)
        h, middle = self.half_width, self.low + self.half_width
        if self.method == "user-mean":
            u = np.nan_to_num((functional.scalars(users, fold) - middle) / h, nan=0.0)
            variance = self.channel.variance(u)
        else:
            alone, indptr = each_alone(users)
            each = np.repeat(fold, np.diff(indptr))
            u = np.nan_to_num((functional.scalars(alone, each) - middle) / h, nan=0.0)
            variance = self.channel.variance(u)
            if self.item_level:
                fold = each
            else:
                second = _averages((variance + u**2)[:, None], indptr)[:, 0]
                u = _averages(u[:, None], indptr)[:, 0]
                nothing = np.diff(indptr) == 0
                second[nothing] = float(self.channel.variance(0.0))
                variance = second - u**2
        mean, spread = (  # of nobody it counts in integers, whatever the weights
            np.bincount(fold, weights, self.dimension).astype(np.float64)
            for weights in (middle + h * u, h**2 * variance)
        )
        n = np.bincount(fold, minlength=self.dimension)
        return {"reports": n, "report": mean, "variance": spread}

    @property
    def parameter_set(self) -> ParameterSet:
        """The box, or the ball."""
        size = self.samples_per_user or 0.0
        if self.geometry == "l2":
            return ParameterSet("ball", self.dimension, float(self.radius), size)
        return ParameterSet("box", self.dimension, self.half_width, size)

    def own_means(self, users: Users) -> Array:
        """Average each user's samples: (n, d), NaN where they cannot be used. NOT PRIVATE.

        In "l2" a sample that is not finite spoils them all. In "linf" a NaN spoils its coordinate,
        and an infinity stands for the end of the range. What cannot be used counts in a run as
        the midpoint.
        """
        samples = samples_of(users, self.dimension)
        if self.geometry == "l2":
            return user_points(samples)
        return coordinate_points(samples, float(self.low), float(self.high))

    @property
    def estimates(self) -> Truth:
        """The average of the users' own means; of all items for "item-level"."""
        return Truth.POOLED if self.item_level else Truth.AVERAGE_OF_USERS

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(epsilon=2.0, n_users=300, dimension=2, samples_per_user=4)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of four equal samples: every method finds the same mean without noise."""
        sizes = np.full(300, 4)
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        values = np.tile([0.25, -0.5], (int(indptr[-1]), 1))
        return Users.from_samples(user_ids(Keys.range(300)), indptr, values)


def _averages(rows: Array, indptr: Array) -> Array:
    """Average each user's rows: (n, d); zeros for a user without any."""
    before = np.concatenate((np.zeros((1, rows.shape[1])), np.cumsum(rows, axis=0)))
    sizes = np.diff(indptr)[:, None]
    return np.asarray((before[indptr[1:]] - before[indptr[:-1]]) / np.maximum(sizes, 1))
