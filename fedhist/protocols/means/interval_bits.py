"""One randomised bit per user: whether its scalar, with a private dither, lies in an interval.

The check of a vote ("is your mean within H of this point?") and the signs that refine an estimate
("is your mean above this point?") are the same question over differing intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import randomize
from fedhist.base.arrays import Floats, Integers
from fedhist.channels.scalar import OneBitChannel
from fedhist.model.part import Functional
from fedhist.model.query import Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.localize.fold_reports import FoldReports
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.folds import MAX_FOLDS
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class IntervalBits(FoldReports):
    """Each user tells, by randomised response, whether its scalar lies in its group's interval.

    Parameters
    ----------
    functional : Functional
        One scalar of a record; its only fold.
    lows, highs : (g,) float64
        The closed interval of each group; an end may be infinite.
    centre : float
        What stands for the scalar of a record without usable data.
    dither : float
        Half width of the uniform number that a user adds to its scalar first; 0 for none. It
        makes the share of yeses a smooth function of the interval where scalars lie on a lattice.
    epsilon : float
    cohort : Cohort, optional
    fold_salt : int
        Public salt of the groups.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the group is a hash of the public id, the bit is a
    function of the record and of a dither that is drawn before it from the user's own stream, and
    the report is one randomised response to that bit, whatever it is. A null record has the bit of
    ``centre``: the same draws and the same cost as any other.
    """

    wire_name: ClassVar[str] = "interval-bits"
    functional: Functional
    lows: Floats
    highs: Floats
    centre: float
    dither: float
    epsilon: float
    cohort: Cohort | None = None
    fold_salt: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if self.functional.n_folds != 1:
            raise ValueError(f"the functional must have one fold, got {self.functional.n_folds}")
        if not 0 <= self.fold_salt < 1 << 63:
            raise ValueError(f"fold_salt must lie in [0, 2^63), got {self.fold_salt}")
        g = len(self.lows) if self.lows.ndim == 1 else 0
        if not 1 <= g <= MAX_FOLDS:
            raise ValueError(f"there must be 1 to {MAX_FOLDS} intervals, got {self.lows.shape}")
        for name, ends in (("lows", self.lows), ("highs", self.highs)):
            if ends.dtype != np.float64 or ends.shape != (g,):
                raise ValueError(f"{name} must be ({g},) float64, got {ends.dtype}{ends.shape}")
            if np.isnan(ends).any():
                raise ValueError(f"{name} must be numbers, got nan")
        if not math.isfinite(self.centre):
            raise ValueError(f"centre must be finite, got {self.centre}")
        if not 0 <= self.dither < math.inf:
            raise ValueError(f"dither must be finite and not negative, got {self.dither}")

    @property
    def channel(self) -> OneBitChannel:
        """What happens to a bit, told as -1 or 1."""
        return OneBitChannel(self.epsilon)

    @property
    def n_folds(self) -> int:
        """Groups."""
        return len(self.lows)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Draw the dither, look, and answer by randomised response."""
        dither = rng.substream("dither").uniform(1)[:, 0]
        bits = self._bits(users, self._fold(users.ids), dither)
        return Report(users.ids, {"reports": randomize(bits, self.channel, rng)})

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Draw everybody's dither, then the sum of each group's reports."""
        fold = self._fold(users.ids)
        return self.draw_sums(self._bits(users, fold, rng.random(len(users))), fold, rng)

    def _bits(self, users: Users, fold: Integers, dither: Floats) -> Floats:
        """1 inside and -1 outside: (n,) float64, for dithers (n,) in [0, 1]."""
        x = self.functional.scalars(users, np.zeros(len(users), dtype=np.int64))
        with np.errstate(over="ignore"):  # which users a strange centre warns of is private
            y = np.where(np.isnan(x), self.centre, x) + self.dither * (2 * dither - 1)
        return np.where((self.lows[fold] <= y) & (y <= self.highs[fold]), 1.0, -1.0)
