"""What every private rule for the clipping threshold is given, and what it returns.

A rule is a part of a script: it yields queries, receives summaries, and returns a :class:`Choice`.
All rules look for the threshold C at which a tail sum over the users meets a public level:

    S(C) = sum over users with norm > C of min(slope, R),        S(C*) = M,

because -S(C) + M is the slope of (a bound on) the expected l1 error at C [1, Theorem 4.3]. With
Gaussian noise the norm is v_i = ||N_i||_2 and the slope r_i = ||N_i||_1 / ||N_i||_2; with Laplace
noise the norm is m_i = ||N_i||_1 and every slope is 1 [1, Lemma 4.2].

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.text import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys


@dataclass(frozen=True)
class ThresholdTask:
    """The public side of a search for C; a rule may use nothing else and its queries' answers.

    Attributes
    ----------
    domain : Keys
        Public items; others are dropped before any norm is computed.
    norm : {1, 2}
        1 with Laplace noise in the release, 2 with Gaussian noise.
    mass : float
        M, the expected l1 norm of the release's noise per unit of C.
    rank : float
        The rank of the l2-optimal quantile, k2 sigma sqrt(d) (Huang et al.); norm 2 only.
    radius : float
        R, the public bound that slopes are cut to on the client: sqrt(s), or 1 for norm 1.
    c_min, c_max : float
        Public ends of the search, in counts.
    epsilon, delta : float
        Budget of the choice, (epsilon', delta').
    adjacency : Adjacency
    n_users : int or None
        Public number of users, where a printed rule needs it; None where it is not public.
    steps : int
        Rounds of an iterative rule (T).
    per_octave : int
        Grid points per factor of two.
    secure : bool
        Whether noise must be integer-valued.
    trust : Aggregation or None
        The nodes add the noise.
    """

    domain: Keys
    norm: int
    mass: float
    rank: float
    radius: float
    c_min: float
    c_max: float
    epsilon: float
    delta: float
    adjacency: Adjacency
    n_users: int | None = None
    steps: int = 40
    per_octave: int = 4
    secure: bool = False
    trust: Aggregation | None = None

    @property
    def multiplier(self) -> float:
        """Std of Gaussian noise for the whole budget, per unit of sensitivity: of all shares."""
        one = gaussian_multiplier(self.epsilon, self.delta)
        return one if self.trust is None else one * self.trust.excess

    @property
    def grid(self) -> Floats:
        """Geometric grid from c_min to c_max, both included, (K,) in counts."""
        octaves = math.log2(self.c_max / self.c_min)
        return np.geomspace(self.c_min, self.c_max, math.ceil(octaves * self.per_octave) + 1)


@dataclass(frozen=True)
class Choice:
    """What a rule returns: the threshold, in counts, what to know about it, and public numbers."""

    clip: float
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)


Search = Generator[Query, Summary, Choice]


@dataclass(frozen=True)
class Aim:
    """Public side of a mechanism: which tail is compared with which level.

    Attributes
    ----------
    radius : float
        Bound on the slopes that are added up; 0 counts users.
    level : float
        What the tail should be.
    interval : bool
        Whether a grid point is scored by the interval of tails that it closes.
    warnings : tuple of str
        Where M lies below the error of the mechanism.
    decay : float
        Thresholds have the weights C^-decay to begin with.
    excess : bool
        Whether only what a tail has beyond the level counts against a threshold
        (:func:`~fedhist.protocols.shared.contributions.excess_scores`).
    """

    radius: float
    level: float
    interval: bool
    warnings: tuple[str, ...] = ()
    decay: float = 0.0
    excess: bool = False

    @property
    def sensitivity(self) -> float:
        """Largest change of a tail by one user."""
        return self.radius or 1.0


def one_round(task: ThresholdTask) -> int:
    """Ask once."""
    return 1


@dataclass(frozen=True)
class ThresholdRule:
    """A private way to choose C.

    Attributes
    ----------
    name : str
        The word in a configuration.
    search : callable of (ThresholdTask, Curator) to a part of a script
    source : str
        Paper and section.
    needs_delta : bool
        Whether the choice spends delta' (Gaussian noise); otherwise delta' must be 0.
    norms : tuple of int
        The norms (1: Laplace release, 2: Gaussian release) it is meant for.
    rounds : callable of ThresholdTask to int
        Most rounds it takes.
    aim : callable of ThresholdTask to Aim, optional
        What an exponential mechanism looks for; its law is then known exactly.
    by_sums : callable of ThresholdTask to float, optional
        Of a rule that needs nothing but sums with noise, which nodes can add: how slopes are cut
        for them, 0 where users are counted.
    """

    name: str
    search: Callable[[ThresholdTask, Curator], Search]
    source: str
    needs_delta: bool = False
    norms: tuple[int, ...] = (1, 2)
    rounds: Callable[[ThresholdTask], int] = one_round
    aim: Callable[[ThresholdTask], Aim] | None = None
    by_sums: Callable[[ThresholdTask], float] | None = None


def at_the_top(most: float) -> str:
    """Say that a clip is the largest that there was to choose from."""
    return warned(
        f"the chosen clip is the upper end of its grid, {most:g}",
        "what users hold beyond it is cut away, and the estimate is too low by that",
        "raise clip_max",
    )


def at_the_ends(clip: float, task: ThresholdTask) -> tuple[str, ...]:
    """Warn where a search ended at an end of its grid: the best threshold may lie beyond it."""
    if clip <= task.c_min * (1 + 1e-9):
        return (
            warned(
                f"the chosen clip is the lower end of its grid, {task.c_min:g}",
                "a smaller one might have had less noise",
                "lower clip_min if users may hold less",
            ),
        )
    if clip >= task.c_max * (1 - 1e-9):
        return (at_the_top(task.c_max),)
    return ()
