"""What every private rule for the clipping threshold is given, and what it returns.

A rule is a part of a script: it yields queries, receives summaries, and returns a :class:`Choice`.
All rules look for the threshold C at which a tail sum over the users meets a public level:

    S(C) = sum over users with norm > C of min(slope, R),        S(C*) = M,

because -S(C) + M is the slope of (a bound on) the expected l1 error at C [1, Theorem 4.3]. With
Gaussian noise the norm is v_i = ||N_i||_2 and the slope r_i = ||N_i||_1 / ||N_i||_2; with Laplace
noise the norm is m_i = ||N_i||_1 and every slope is 1 [1, Lemma 4.2].

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 4.
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
    def slope_radius(self) -> float:
        """Cut of the slopes in a NormHistogram; 0 (everybody weighs 1) for l1 norms."""
        return 0.0 if self.norm == 1 else self.radius

    @property
    def public_users(self) -> int:
        """The public number of users; ValueError without it: a printed rule needs it."""
        if self.n_users is None:
            raise ValueError("a rule as printed needs a public number of users: set n_users")
        return self.n_users

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
    by_sums : callable of ThresholdTask to float, optional
        Of a rule that needs nothing but sums with noise, which nodes can add: how slopes are cut
        for them, 0 where users are counted.
    """

    name: str
    search: Callable[[ThresholdTask, Curator], Search]
    source: str
    needs_delta: bool = False
    norms: tuple[int, ...] = (1, 2)
    rounds: Callable[[ThresholdTask], int] = lambda task: 1
    by_sums: Callable[[ThresholdTask], float] | None = None


def free_choice(task: ThresholdTask) -> Choice | None:
    """Answer where the release has no noise (M = 0): then the largest threshold is the best."""
    return Choice(task.c_max, at_the_ends(task.c_max, task)) if task.mass == 0 else None


def drowned(noise: float, level: float) -> tuple[str, ...]:
    """Warn, from public numbers, where a choice's noise exceeds what it looks for."""
    if noise <= level:
        return ()
    return (mostly_noise(f"std {noise:.4g}, where it looks for the level {level:.4g}"),)


def mostly_noise(numbers: str) -> str:
    """Say that a choice is one of its noise."""
    return warned(
        f"the chosen clip is mostly noise ({numbers})",
        "it may be far from the best one, and the error as much larger",
        "raise epsilon_choice, or lower sparsity where slopes are summed",
    )


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
