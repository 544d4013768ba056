"""The query of descent: every user's average gradient, clipped around a public centre.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from clients.histograms.contributions import NORM_STEPS
from clients.records.gradients import Model, user_gradients, user_products
from clients.records.user_rows import shorten
from fedhist.base.arrays import Array, Bounds, Floats, Words
from fedhist.base.checks import check_choice, check_scale
from fedhist.base.errors import WireError
from fedhist.model.query import MOST_KNOWN, Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.shards import Shard
from fedhist.users.streams import Streams

NAME = "gradient"


@register_query
@dataclass(frozen=True, eq=False)
class UserGradients(Query):
    """Each user sends the clipped offset of its average gradient from a public centre.

    See :func:`clients.records.gradients.user_gradients`; theta and centre are released values.

    Privacy
    -------
    Whatever its record, a user's row lies in a ball of radius ``clip``. Under replacement the sum
    therefore moves by at most the diameter, :attr:`l2_sensitivity`; antipodal users attain it. A
    row that is rounded towards zero becomes no longer, so that the same holds in steps. Real-valued
    sums keep this up to the rounding of doubles; ``discrete`` sums are exact.
    """

    wire_name: ClassVar[str] = "user-gradients"
    trust: ClassVar[Trust] = Trust.CENTRAL

    model: str
    theta: Array
    centre: Array
    clip: float  # of the l2 norm of an offset; inf clips nothing (not private)
    discrete: bool = False  # send whole multiples of clip / 2^20, rounded towards zero
    keep_rows: bool = False  # keep every user's own row instead of the sum
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_choice("model", self.model, get_args(Model))
        for name in ("theta", "centre"):
            a = getattr(self, name)
            if a.dtype != np.float64 or a.ndim != 1 or not a.size or not np.isfinite(a).all():
                raise ValueError(f"{name} must be a finite float64 vector, got {a.dtype} {a}")
            a = a.copy()
            a.setflags(write=False)
            object.__setattr__(self, name, a)
        if self.theta.shape != self.centre.shape:
            raise ValueError(f"centre has {len(self.centre)} entries, theta {len(self.theta)}")
        if not math.isinf(self.clip):
            check_scale("clip", self.clip)
        if self.discrete and not 0 < self.unit < math.inf:
            raise ValueError(f"a discrete clip must be finite and not tiny, got {self.clip}")
        if self.discrete and self.keep_rows:
            raise ValueError("rows are real-valued: discrete and keep_rows exclude each other")

    @property
    def unit(self) -> float:
        """Value of one step; 1 for real offsets."""
        return self.clip / NORM_STEPS if self.discrete else 1.0

    @property
    def most(self) -> float:
        """Largest l2 norm of a row, as sent."""
        return NORM_STEPS if self.discrete else self.clip

    @property
    def l2_sensitivity(self) -> float:
        """Largest change of the sum, as sent, when one user is replaced."""
        return 2 * self.most

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return :attr:`l2_sensitivity`, of whole steps and under replacement."""
        if not self.discrete or norm != 2 or adjacency is not Adjacency.REPLACE_USER:
            return super().integer_sensitivity(norm, adjacency)
        return self.l2_sensitivity

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        rows = user_gradients(users.reals, self.model, self.theta, self.centre, self.clip)
        return self._report(users.ids, rows)

    def _report(self, ids: Words, rows: Floats) -> Report:
        if self.discrete:
            return Report(ids, {NAME: np.trunc(rows / self.unit).astype(np.int64)})
        return Report(ids, {NAME: rows})

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary] | None:
        """Prepare the summary, up to rounding, of least squares from products of samples."""
        d = len(self.theta)
        if self.model != "least-squares" or len(users) * d * (d + 1) > MOST_KNOWN:
            return None
        key = f"products of {self.cohort}"
        if key not in cache:
            blocks = [*users.blocks()] or [users.none]
            cache[key] = [(block.ids, user_products(block.reals)) for block in blocks]

        def law(rng: np.random.Generator) -> Summary:
            parts = []
            for ids, products in cache[key]:
                with np.errstate(invalid="ignore"):  # unusable records, zeroed after
                    slopes = products.reshape(-1, d + 1) @ np.append(self.theta, -1.0)
                rows = slopes.reshape(-1, d) - self.centre
                rows[~np.isfinite(rows).all(axis=1)] = 0.0
                rows = shorten(rows, self.clip * (1 - 2.0**-30))
                parts.append(self.fold(self._report(ids, rows)))
            return Summary.merge(parts)

        return law

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        rows = report.arrays[NAME]
        if self.keep_rows:
            return Summary(report.n_users, rows={NAME: rows.copy()}, ids=report.ids)
        return Summary(report.n_users, {NAME: rows.sum(axis=0)})

    def check(self, report: Report) -> None:
        rows = only_array(report, NAME)
        self._limits((report.n_users, len(self.theta)), 1).check(NAME, rows)
        self._check_norms(rows, self.most)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        if self.keep_rows:
            return {NAME: self._limits((n_users, len(self.theta)), 1, "rows")}
        return {NAME: self._limits((len(self.theta),), n_users)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        if self.keep_rows:
            self._check_norms(summary.rows[NAME], self.most)
        elif summary.n_users:
            self._check_norms(summary.sums[NAME][None], summary.n_users * self.most)

    def _limits(self, shape: tuple[int, ...], n_users: int, part: str = "sums") -> Bounds:
        most = n_users * self.most * (1 + 1e-9) if n_users else 0.0
        return Bounds(shape, "i" if self.discrete else "f", -most, most, part)

    def _check_norms(self, rows: Array, most: float) -> None:
        if math.isinf(most) or not most:
            return  # the bounds say it all
        size = np.linalg.norm(rows.astype(np.float64) / most, axis=1).max(initial=0.0)
        if size > 1 + 1e-9:  # room for rounding
            raise WireError(f"{NAME!r} has norm {size * most:g}, more than {most:g}")

    def mean(self, total: NDArray[np.float64] | NDArray[np.int64], n_users: int) -> Array:
        """Turn a released sum into the mean gradient of n_users: (d,) float64."""
        return np.asarray(self.centre + self.unit * np.asarray(total, np.float64) / n_users)
