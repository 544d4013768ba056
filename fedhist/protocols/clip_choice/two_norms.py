"""Laplace or Gaussian noise, and the threshold for either: from both norms of the users, privately.

Laplace noise is in proportion to an l1 clip C1, Gaussian noise to an l2 clip C2. Which is less
depends on how broad users are: C1 / C2 lies between 1, for users of one item each, and sqrt(d). One
question brings both histograms of norms, half of the choice's budget finds each of C1 and C2, and
the lesser noise is post-processing. Idea and constants are the project's own; against the better
of the two on every population either of them alone is up to three times worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Bounds, Floats
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.clip_choice.by_exponential import drawn, law_of, slope_aim
from fedhist.protocols.clip_choice.rule import Choice, Search, ThresholdTask
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

FEWER = 0.8
"""Gaussian noise must be less than so much of the Laplace noise: ties go to Laplace noise, which
needs no delta and whose threshold is the easier one to find."""


@register_query
@dataclass(frozen=True)
class NormHistograms(Query):
    """Each user adds to two histograms: 1 to the bin of its l1 norm, its slope to that of its l2.

    Parameters
    ----------
    domain : Keys or None
    l1_edges, l2_edges : tuple of float
    radius : float
        As in :class:`~fedhist.protocols.shared.contributions.NormHistogram`, of which this is two.
    cohort : Cohort, optional

    Privacy
    -------
    A tail of the first histogram has sensitivity 1, one of the second ``NormHistogram.most``, under
    every adjacency. A user changes both: two mechanisms on them are two charges.
    """

    wire_name: ClassVar[str] = "norm-histograms"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys | None
    l1_edges: tuple[float, ...]
    l2_edges: tuple[float, ...]
    radius: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise ValueError(f"radius must be positive, got {self.radius}")
        _ = self.parts

    @property
    def parts(self) -> tuple[NormHistogram, NormHistogram]:
        """The two questions."""
        return (
            NormHistogram(self.domain, self.l1_edges, 1),
            NormHistogram(self.domain, self.l2_edges, 2, self.radius),
        )

    def part_of(self, summary: Summary, norm: int) -> Summary:
        """Take one histogram out."""
        return Summary(summary.n_users, {"weight": summary.sums[f"l{norm}"]})

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send both bins (0: none) and both weights; uses no randomness."""
        arrays = {}
        for part in self.parts:
            for name, values in part.answer(users, rng).arrays.items():
                arrays[f"{name}{part.norm}"] = values
        return Report(users.ids, arrays)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up the weights by bin: (K1,) and (K2,) int64."""
        sums = {f"l{p.norm}": p.fold(_own(report, p)).sums["weight"] for p in self.parts}
        return Summary(report.n_users, sums)

    def check(self, report: Report) -> None:
        """Raise WireError unless every user names two bins and the weights that it may have."""
        if report.arrays.keys() != {"bin1", "weight1", "bin2", "weight2"} or report.ragged:
            raise WireError(f"two bins and two weights are expected, got {[*report.arrays]}")
        for part in self.parts:
            part.check(_own(report, part))

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each bin by everybody's largest weight."""
        return {f"l{p.norm}": p.bounds(n_users)["weight"] for p in self.parts}

    def check_summary(self, summary: Summary) -> None:
        """Bound the whole sums as well: a user weighs in one bin of each."""
        super().check_summary(summary)
        for part in self.parts:
            part.check_summary(self.part_of(summary, part.norm))


def choose_norm(l1: ThresholdTask, l2: ThresholdTask, server: Curator) -> Search:
    """Choose C1 and C2 by the exponential mechanism, and of them the one with the lesser noise.

    Parameters
    ----------
    l1, l2 : ThresholdTask
        For the norms 1 and 2, each with its own budget.
    server : Curator

    Returns
    -------
    Choice
        Its public number "norm" is 1 or 2.

    Privacy
    -------
    (epsilon of l1 + epsilon of l2)-DP under every adjacency.
    """
    edges = tuple(l1.grid.tolist()), tuple(l2.grid.tolist())
    query = NormHistograms(l1.domain, *edges, l2.radius)
    summary = yield query
    chosen = [
        drawn(slope_aim(task), task, part, query.part_of(summary, part.norm), server, f"l{n}-clip")
        for n, task, part in zip((1, 2), (l1, l2), query.parts, strict=True)
    ]
    norm = 2 if _gaussian(l1, l2, chosen[0].clip, chosen[1].clip) else 1
    found = chosen[norm - 1]
    public = {**found.public, "norm": float(norm)}
    public |= {f"l{n}_clip": c.clip for n, c in zip((1, 2), chosen, strict=True)}
    return Choice(found.clip, found.warnings, public)


def norm_law(
    l1: ThresholdTask, l2: ThresholdTask, tails: tuple[Floats, Floats]
) -> tuple[Floats, Floats]:
    """Compute the exact law of :func:`choose_norm`: weights of (norm 1, C1) and of (norm 2, C2).

    Parameters
    ----------
    l1, l2 : ThresholdTask
    tails : ((K1,), (K2,)) float64
        At the aims' radii. NOT PRIVATE.

    Returns
    -------
    (K1,) and (K2,) float64
        1 in sum over both.
    """
    p, q = (law_of(slope_aim(t), t, s) for t, s in zip((l1, l2), tails, strict=True))
    both = p[:, None] * q
    gaussian = _gaussian(l1, l2, l1.grid[:, None], l2.grid)
    return np.where(gaussian, 0.0, both).sum(axis=1), np.where(gaussian, both, 0.0).sum(axis=0)


def _gaussian(
    l1: ThresholdTask, l2: ThresholdTask, c1: Floats | float, c2: Floats | float
) -> NDArray[np.bool_]:
    """Whether Gaussian noise at C2 is that much less than Laplace noise at C1."""
    return np.asarray(l2.mass * c2 < FEWER * l1.mass * c1)


def _own(report: Report, part: NormHistogram) -> Report:
    names = ("bin", "weight")
    return Report(report.ids, {n: report.arrays[f"{n}{part.norm}"] for n in names})
