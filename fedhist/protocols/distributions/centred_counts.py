"""The two queries of centred counts: how far a user's shares are from a centre, and the offset.

Shares less a released centre are of the size of a user's own sampling, not of 1. Divided by the
spread that sampling gives each symbol and clipped to a released radius, their mean needs noise for
that radius only: what privacy costs falls with the number of samples m like m^(-1/2), as it does
for selection, but whatever distributions the users have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.item_encodings import cut_rows
from clients.bounding.sampling import MOST_CLIP
from clients.records.whitened import STEPS, Frame, Rows, add_scaled_rows, row_norms, scaled_rows
from fedhist.base.arrays import Array, Bounds, Floats
from fedhist.base.checks import check_integer, check_scale
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.item_encodings import cut_words
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

MOST_SYMBOLS = 1 << 14
"""Most symbols: a client sends a number for each of them."""
MOST_RADII = 1 << 10


class FramedShares(Query):
    """What both queries ask about: (shares - centre) / spread of a user's cut record."""

    trust: ClassVar[Trust] = Trust.CENTRAL
    domain: Keys
    m: int
    own: bool
    centre: Floats
    spread: Floats

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_CLIP)
        if len(self.domain) > MOST_SYMBOLS:
            raise ValueError(f"{len(self.domain)} symbols are too many: at most {MOST_SYMBOLS}")
        for name in ("centre", "spread"):
            keep_vector(self, name, len(self.domain))
        if (np.abs(self.centre) > 1).any():
            raise ValueError(f"centre must lie in [-1, 1], got {np.abs(self.centre).max()}")
        if not (self.spread.min() >= 2.0**-40 and self.spread.max() <= 1):
            raise ValueError(f"spread must lie in [2^-40, 1], got {self.spread.min()}")

    @property
    def frame(self) -> Frame:
        """What the kernels read."""
        return self.centre, self.spread, 0 if self.own else self.m

    def rows(self, users: Users, rng: Streams) -> Rows:
        """Cut each user to m in-domain items."""
        return cut_rows(users.counts, self.domain, self.m, cut_words(rng))


def keep_vector(query: object, name: str, size: int) -> None:
    """Keep a read-only copy of a public vector; ValueError unless it is finite and of a size."""
    a: Array = getattr(query, name)
    if a.dtype != np.float64 or a.shape != (size,) or not np.isfinite(a).all():
        raise ValueError(f"{name} must be ({size},) finite float64, got {a.dtype} {a.shape}")
    a = a.copy()
    a.setflags(write=False)
    object.__setattr__(query, name, a)


@register_query
@dataclass(frozen=True, eq=False)
class CentredNorms(FramedShares):
    """Each user says between which public radii the norm of its framed shares lies.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped.
    m : int
        Most items of a user; one with more draws m of them, uniformly without replacement.
    own : bool
        Shares are counts over the user's own number of items (after the cut), not over m.
    centre, spread : (k,) float64
        From released numbers.
    radii : (K,) float64
        Increasing. Cell j holds the norms above radius j - 1, up to radius j; cell K those above
        all radii. A user without items has the norm 0.
    cohort : Cohort, optional

    Privacy
    -------
    A user is in one cell. Replacing, adding or removing one moves each number of users above a
    radius by at most 1.
    """

    wire_name: ClassVar[str] = "centred-norms"

    domain: Keys
    m: int
    own: bool
    centre: Floats
    spread: Floats
    radii: Floats
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.radii) <= MOST_RADII:
            raise ValueError(f"1 to {MOST_RADII} radii are needed, got {len(self.radii)}")
        keep_vector(self, "radii", len(self.radii))
        if not (self.radii[0] > 0 and (np.diff(self.radii) > 0).all()):
            raise ValueError(f"radii must be positive and increase, got {self.radii[:5]}")

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cell; randomness is used by users with more than m items only."""
        norm = row_norms(self.rows(users, rng), self.frame)
        return Report(users.ids, {"cell": np.searchsorted(self.radii, norm).astype(np.int32)})

    def fold(self, report: Report) -> Summary:
        """Count the users of each cell: (K + 1,) int64."""
        cells = np.bincount(report.arrays["cell"], minlength=len(self.radii) + 1)
        return Summary(report.n_users, {"users": cells.astype(np.int64)})

    def above(self, summary: Summary) -> Array:
        """Count the users beyond each radius: (K,) int64, a copy. NOT PRIVATE."""
        cells = summary.sums["users"]
        return np.array(np.cumsum(cells[::-1])[::-1][1:], dtype=np.int64)

    def check(self, report: Report) -> None:
        """Raise WireError unless every user names a cell."""
        cell = only_array(report, "cell")
        Bounds((report.n_users,), "i", 0, len(self.radii)).check("cell", cell)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """No cell holds more than all users."""
        return {"users": Bounds((len(self.radii) + 1,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """Raise WireError unless everybody is in one cell."""
        super().check_summary(summary)
        total = int(summary.sums["users"].sum())
        if total != summary.n_users:
            raise WireError(f"the cells hold {total} users, not {summary.n_users}")


@register_query
@dataclass(frozen=True, eq=False)
class CentredCounts(FramedShares):
    """Each user sends its framed shares, scaled into a ball, in integer steps.

    Parameters
    ----------
    domain, m, own, centre, spread
        As in :class:`CentredNorms`.
    radius : float
        Rows beyond are scaled down to it. A step is radius / 2^20.
    cohort : Cohort, optional

    Privacy
    -------
    Whatever its record, a user's row has l2 norm <= 2^20 in steps: it is scaled to a little less
    than the radius and cut towards zero, in integers, whose sums are exact. An empty user has the
    zero row. So the sum moves by at most 2^20 if a user is added, removed or emptied, and by twice
    that if it is replaced.
    """

    wire_name: ClassVar[str] = "centred-counts"

    domain: Keys
    m: int
    own: bool
    centre: Floats
    spread: Floats
    radius: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("radius", self.radius)

    @property
    def unit(self) -> float:
        """Value of a step, in spreads."""
        return self.radius / STEPS

    def l2_sensitivity(self, times: int = 2) -> float:
        """Largest move of the sum, in steps: two rows under replacement, else one."""
        return float(times * STEPS)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the row; randomness is used by users with more than m items only."""
        rows = scaled_rows(self.rows(users, rng), self.frame, self.radius)
        return Report(users.ids, {"row": rows})

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Scale and add up; integers, so bit-identical to folding the answers."""
        total = np.zeros(len(self.domain), dtype=np.int64)
        for chunk in users.blocks(CHUNK):
            add_scaled_rows(self.rows(chunk, rng(chunk)), self.frame, self.radius, total)
        return Summary(len(users), {"steps": total})

    def fold(self, report: Report) -> Summary:
        """Add up by symbol: (k,) int64."""
        return Summary(report.n_users, {"steps": report.arrays["row"].sum(axis=0, dtype=np.int64)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row lies in the ball."""
        row = only_array(report, "row")
        Bounds((report.n_users, len(self.domain)), "i", -STEPS, STEPS).check("row", row)
        square = (row.astype(np.int64) ** 2).sum(axis=1)
        if len(square) and square.max() > STEPS * STEPS:
            raise WireError(f"a row has the norm {float(square.max()) ** 0.5:.15g}, over 2^20")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """No entry of a sum is larger than everybody's row."""
        most = n_users * STEPS
        return {"steps": Bounds((len(self.domain),), "i", -most, most)}
