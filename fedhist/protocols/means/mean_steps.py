"""The rounds of a mean: vote, check, and what follows from it; or stages, for few users.

Every round asks the next interval of one hash of the user ids, so that each user answers once;
what a round asks depends on the messages of users before it.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.text import warned
from fedhist.channels.catalogue import scalar_channel
from fedhist.channels.scalar import ScalarChannel
from fedhist.model.part import Functional
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Query, Summary
from fedhist.protocols.localize.queries import BinVotes, ClippedMean
from fedhist.protocols.localize.script import averaged, find_windows
from fedhist.protocols.means.distance_bins import DistanceBins
from fedhist.protocols.means.interval_bits import IntervalBits
from fedhist.users.cohort import Cohort
from fedhist.users.folds import salt_of_folds
from server.means.checks import (
    MOST_OUTSIDE,
    SEEN,
    SHELL_SHARE,
    SURE,
    Check,
    Fit,
    Shells,
    share_error,
    shell_edges,
    shell_noise,
)
from server.means.design import Design
from server.means.localize import keep_inside
from server.means.signs import (
    CLIP_SCALE,
    FIRST_SHARE,
    FIRST_STEP,
    SECOND_STEP,
    Signs,
    read_signs,
    weighted,
)
from server.means.stages import StagePlan

UNCHECKED = warned(
    "with so few users nobody was asked whether the users' means agree",
    "where they differ by more than their samples explain, the error is larger than stated",
    "if they may, set mean_scale to how far they lie apart, or ask more users",
)
Answers = Generator[Query, Summary, Estimate]


@dataclass
class Rounds:
    """One run of the script.

    Parameters
    ----------
    functional : Functional
        One scalar of a record; its only fold.
    design : Design
    epsilon : float
        Of every query.
    kind : str
        Scalar channel of the clipped reports; not "auto".
    salt : int
        Public salt of the cohorts.
    n_users, samples : float
        Planned.
    scale : float
        Planned standard deviation of a user's mean.

    Privacy
    -------
    epsilon-LDP, sequentially interactive: the cohorts of the rounds are disjoint intervals of one
    hash of the public ids, and each query is epsilon-LDP.
    """

    functional: Functional
    design: Design
    epsilon: float
    kind: str
    salt: int
    n_users: float
    samples: float
    scale: float
    asked: float = 0.0
    public: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    near: float = 0.0
    sure: float = SURE

    @property
    def channel(self) -> ScalarChannel:
        """Of the clipped reports."""
        return scalar_channel(self.kind, self.epsilon)

    @property
    def gain(self) -> float:
        """Of a randomised bit."""
        return math.tanh(self.epsilon / 2)

    @property
    def low(self) -> float:
        """Of the range."""
        return self.functional.low

    @property
    def high(self) -> float:
        """Of the range."""
        return self.functional.high

    @property
    def half_range(self) -> float:
        """Of the range."""
        return self.functional.half_range

    def next_users(self, share: float = 1.0) -> Cohort:
        """Take a share of the users who have not been asked yet."""
        lo, hi = self.asked, 1.0 if share == 1.0 else self.asked + share * (1 - self.asked)
        self.asked = hi
        return Cohort(self.salt, lo, hi)

    # -- scripts

    def run(self) -> Script:
        """Vote, check, refine; or go by stages."""
        design = self.design
        if design.stages is not None:
            return (yield from self.by_stages(design.stages))
        plan = design.vote
        salt = salt_of_folds(self.salt)
        voters = self.next_users(plan.vote_share)
        vote = BinVotes(self.functional, plan.n_bins, self.epsilon, cohort=voters, fold_salt=salt)
        windows = yield from find_windows(vote, plan)
        if isinstance(windows, Estimate):
            return windows
        found, middles = windows
        self.public, self.warnings = dict(found.public), found.warnings
        centre = float(middles[0])
        if design.check is not None:
            if (yield from self.differing(centre, design.check)):
                return (yield from self.by_distance(centre))
        elif design.unchecked:
            self.warnings += (UNCHECKED,)
        if design.signs and abs(centre - self.middle) + 2 * self.scale < self.half_range:
            estimate = yield from self.by_signs(centre)
            if estimate is not None:
                return estimate
        found = replace(found, public=self.public, warnings=self.warnings)
        refine = self.clipped(centre, plan.half_width, self.next_users())
        reports = yield refine
        end = averaged(found, refine, reports, plan, self.n_users)
        if isinstance(end, Estimate):
            return end
        return Estimate.ok(end.value, stderr=end.stderr, public=end.public, warnings=end.warnings)

    @property
    def middle(self) -> float:
        """Of the range."""
        return (self.low + self.high) / 2

    def clipped(self, centre: float, half_width: float, cohort: Cohort) -> ClippedMean:
        """Ask for scalars clipped to an interval of the range."""
        return ClippedMean(
            self.functional,
            keep_inside(np.array([centre]), half_width, self.low, self.high),
            half_width,
            self.epsilon,
            self.kind,
            cohort=cohort,
            fold_salt=salt_of_folds(self.salt),
        )

    def bits(self, centre: float, ends: list[tuple[float, float]], share: float) -> IntervalBits:
        """Ask whether scalars lie in closed intervals; with a dither where these are rays."""
        lows, highs = np.array(ends).T
        rays = bool(np.isinf(highs).any())
        return IntervalBits(
            self.functional,
            lows.copy(),
            highs.copy(),
            centre=centre,
            dither=self.half_range / self.samples if rays else 0.0,
            epsilon=self.epsilon,
            cohort=self.next_users(share),
            fold_salt=salt_of_folds(self.salt),
        )

    def differing(self, centre: float, check: Check) -> Generator[Query, Summary, bool]:
        """Ask some users whether their mean lies near the centre; say whether too few do."""
        ends = [(centre - H, centre + H) for H in check.half_widths]
        query = self.bits(centre, ends, check.share)
        answers = yield query
        inside = query.shares(answers)
        least = check.thresholds(answers.sums["users"].astype(np.float64))
        j = int(np.argmin(inside - least))  # where most are missed
        self.public |= {
            "n_check": float(answers.n_users),
            "inside": float(inside[j]),
            "inside_expected": check.certain[1] if j else check.expected,
        }
        reach = self.half_range + abs(centre - self.middle)
        error = share_error(float(answers.sums["users"][-1]), self.gain, check.certain[-1])
        missed = max(0.0, check.certain[-1] - float(inside[-1])) + SURE * error
        self.public["unseen"] = min(1.0, missed) * reach
        self.near, self.sure = check.half_widths[j], SEEN if (inside < least)[1:].any() else SURE
        return bool(inside[j] < least[j])

    def by_distance(self, centre: float) -> Answers:
        """Ask some users how far they are; average the others over an interval that fits."""
        R, H = self.half_range, self.design.vote.half_width
        offset = abs(centre - self.middle)
        edges = shell_edges(H, R + offset)
        fit, v = Fit(R, 0.0, 0.0), 4 * self.channel.v + 0.25
        if len(edges) > 1:
            cohort = self.next_users(SHELL_SHARE)
            query = DistanceBins(self.functional, centre, edges, self.epsilon, cohort=cohort)
            answers = yield query
            if answers.n_users:
                variance = float(query.channel.variance(MOST_OUTSIDE))
                noise = shell_noise(variance, answers.n_users)
                left = v / (self.n_users * (1 - self.asked))
                shells = Shells(edges, noise, R, offset, left, self.sure)
                fit = shells.fit(query.shares(answers))
        width = fit.half_width
        refine = self.clipped(centre, width, self.next_users())
        reports = yield refine
        self.public |= {"differ": 1.0, "outside": fit.outside, "unseen": fit.unseen}
        if reports.n_users == 0:
            return Estimate.failed("nobody reported", public=self.public)
        self.public |= interval(refine, reports)
        variance = v * width**2 / reports.n_users
        inside, expected = self.public["inside"], self.public["inside_expected"]
        said = warned(
            f"the users' means differ (a share of {inside:.2f} lies within {self.near:.3g} of the "
            f"vote's centre, where {expected:.2f} or more would if they agreed)",
            f"their average is taken over +-{width:.3g}, with more noise, and "
            "its standard error is a bound",
            "plan for it by a larger mean_scale",
        )
        return self.estimate(refine.estimates(reports), variance + fit.bias**2, said)

    def by_signs(self, centre: float) -> Generator[Query, Summary, Estimate | None]:
        """Ask users whether their means lie above two points, twice; None to clip instead."""
        reach = 1.5 * self.half_range / self.design.vote.n_bins + self.scale
        low, high = max(self.low, centre - reach), min(self.high, centre + reach)

        def ask(
            middle: float, step: float, share: float
        ) -> Generator[Query, Summary, tuple[Signs, Summary]]:
            rays = [(middle - step, math.inf), (middle + step, math.inf)]
            query = self.bits(middle, rays, share)
            answers = yield query
            sizes: Floats = answers.sums["users"].astype(np.float64)
            told = read_signs(query.shares(answers), sizes, middle, step, self.scale, self.gain)
            return replace(told, mean=min(max(told.mean, low), high)), answers

        first, answers = yield from ask(centre, FIRST_STEP * self.scale, FIRST_SHARE)
        self.public |= {"n_signs": float(answers.n_users), "scale": first.scale}
        if first.scale < CLIP_SCALE * self.scale or not answers.sums["users"].all():
            return None
        second, answers = yield from ask(first.mean, SECOND_STEP * first.scale, 1.0)
        if not answers.sums["users"].all():
            return Estimate.failed("nobody told a sign", public=self.public)
        self.public |= {
            "n_bins": float(self.design.vote.n_bins),
            "n_signs": self.public["n_signs"] + answers.n_users,
        }
        mean, variance = weighted(first, second)
        return self.estimate(np.array([mean]), variance)

    def by_stages(self, plan: StagePlan) -> Answers:
        """Narrow the interval from stage to stage; weigh the averages by their precisions."""
        value, precision, asked = self.middle, 0.0, 0.0
        users = 0
        for s in plan.stages:
            last = s is plan.stages[-1]
            share = 1.0 if last else s.share / (1 - asked)
            asked += s.share
            refine = self.clipped(value, s.half_width, self.next_users(share))
            reports = yield refine
            if reports.n_users == 0:
                continue
            more = reports.n_users / s.user_variance
            found = float(refine.estimates(reports)[0])
            value = (precision * value + more * found) / (precision + more)
            precision, users = precision + more, users + reports.n_users
            self.public |= interval(refine, reports)
        if users == 0:
            return Estimate.failed("nobody reported")
        self.public |= {"stages": float(len(plan.stages)), "n_report": float(users)}
        unchecked = (UNCHECKED,) if self.design.unchecked else ()
        return self.estimate(np.array([value]), plan.risk * self.n_users / users, *unchecked)

    def estimate(self, value: Floats, variance: float, *said: str) -> Estimate:
        """Conclude."""
        warnings = said or self.warnings
        stderr = np.full(1, math.sqrt(variance))
        return Estimate.ok(value, stderr=stderr, public=self.public, warnings=warnings)


def interval(refine: ClippedMean, reports: Summary) -> dict[str, float]:
    """Say what was refined."""
    centre, H = float(refine.centres[0]), refine.half_width
    return {
        "interval_low": centre - H,
        "interval_high": centre + H,
        "n_report": float(reports.n_users),
    }
