"""Laws of the estimate: without noise the truth, on average the truth, and of one seed the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.protocol import Estimate
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users, join
from server.session.journal import Journal
from server.targets.mean_target import MeanTarget
from simulations.audit.neighbours import shared_space
from simulations.contract.law import (
    ANY_NODES,
    EVERYBODY,
    SERVER_TRUSTED,
    Whom,
    demand,
    demand_same_estimate,
    law,
    passes_over,
)
from simulations.contract.subject import Subject, remembering, under_adjacencies
from simulations.contract.watching import watch
from simulations.runtimes.inline import InlinePopulation

FALSE_ALARM = 1e-7
"""Probability that a correct protocol fails one of the statistical laws under other seeds."""
SEEDS = 24
"""Runs whose mean is held against the truth."""
MORE_EPSILON = 4.0
"""By how much the budget is larger there, so that a wrong constant is more than noise."""
POSTPROCESSED = ("nonneg", "project", "shrink")
"""Fields that trade a bias for a smaller error: off where a mean is held against the truth."""


@law(ANY_NODES)
def exact_without_noise(subject: Subject) -> None:
    """At epsilon = inf, on users whom no clipping touches, the truth comes back.

    But for what the protocol itself says in ``resolution``: one that works on bins, say, is off by
    part of a bin.
    """
    if "epsilon" not in subject.fields:
        passes_over("It has no field epsilon.")
    users, open_ended = subject.users, subject.replaced(epsilon=math.inf)
    estimate = subject.walk(open_ended)[0]
    demand(estimate.status == "ok", f"The estimate is {estimate.status}: {estimate.reason}")
    demand(not open_ended.guarantee.private, f"It promises {open_ended.guarantee}.")
    truth = open_ended.truth(users)
    allowed = open_ended.resolution(users) + 1e-9 * float(np.abs(truth).sum())
    loss = open_ended.loss_of(estimate, users, truth)
    demand(loss <= allowed, f"It is off by {loss:g}, more than {allowed:g}.")


@law(ANY_NODES)
def same_seed_same_estimate(subject: Subject) -> None:
    """Another object of the same fields gives the same estimate, bit for bit."""
    again = subject.walk(subject.replaced())[0]
    demand_same_estimate(subject.estimate, again, "Two runs of one seed")
    demand(subject.estimate.public == again.public, "Two runs of one seed publish other numbers.")


@law(ANY_NODES, once=True)
def another_seed_other_coins(subject: Subject) -> None:
    """Of two seeds reports differ where they are private, and releases where the server draws."""
    query, number = subject.queries[0]
    if query.trust is not Trust.CENTRAL:
        chosen = subject.users.select(query.cohort)
        a, b = (subject.answer(query, chosen, number, seed) for seed in (1, 2))
        demand(any((a.arrays[k] != b.arrays[k]).any() for k in a.arrays), "The reports are equal.")
        return
    releases = set()
    for seed in (1, 2, 3):
        run = watch(subject.protocol, InlinePopulation([subject.users], seed).ask, seed, Journal())
        releases.add(str([act.given for act in run.acts]))
    demand(len(releases) > 1, "Three seeds release the same.")


@law(EVERYBODY)
def no_more_rounds_than_it_says(subject: Subject) -> None:
    """It asks once at least, and ``max_rounds`` times at most."""
    rounds, most = len(subject.queries), subject.protocol.max_rounds
    demand(1 <= rounds <= most, f"It asks {rounds} times, of {most}.")


@law(ANY_NODES)
def an_empty_record_changes_nothing_if_null_safe(subject: Subject) -> None:
    """Where a protocol is ``null_safe``, a user who holds nothing changes no bit.

    Under every adjacency that it can be had with; and the number of users is not public.
    """
    users = subject.users
    ids = np.setdiff1d(np.array([2**64 - 1, 2**64 - 2], np.uint64), users.ids)[-1:]
    shared, space = shared_space(users, ())
    more = join([shared, space.user(space.nothing, int(ids[0]))])
    for protocol in [subject.protocol, *under_adjacencies(subject.protocol)]:
        if not protocol.null_safe:
            continue
        own = protocol is subject.protocol
        without = subject.estimate if own else subject.walk(protocol)[0]
        within = subject.walk(protocol, users=more)[0]
        demand_same_estimate(without, within, "With an empty record more")
        demand(without.public == within.public, "An empty record changes a public number.")
        demand(float(len(users)) not in without.public.values(), "The number of users is public.")


MEANS = Whom("means of the users' means", lambda p: isinstance(p, MeanTarget))


@law(MEANS)
def a_mean_of_zero_counts_and_an_infinite_sample_does_not_spread(subject: Subject) -> None:
    """In the truth; which users count must not depend on what their mean is."""
    protocol, users = subject.made, subject.users
    n, T, d = len(users), int(users.n_items()[0]), users.reals.values.shape[1]
    new = np.setdiff1d(np.arange(n + 2, dtype=np.uint64), users.ids)[:1]

    def with_one_more(rows: Floats) -> Floats:
        more = join([users, Users.from_samples(new, [0, T], rows, unusable=True)])
        return np.asarray(protocol.truth(more))

    zero, infinite = np.zeros((T, d)), np.full((T, d), np.inf)
    infinite[1:] = 0.0
    truth = protocol.truth(users)
    of_zero, of_infinite = with_one_more(zero), with_one_more(infinite)
    demand(np.allclose(of_zero, truth * n / (n + 1), rtol=1e-9), f"A mean of 0 gives {of_zero}.")
    high = getattr(protocol, "high", getattr(protocol, "radius", 1.0)) or 1.0
    near = np.abs(of_infinite - truth) <= (np.abs(truth) + high) / (n + 1)
    demand(near.all(), f"An infinite sample turns {truth} into {of_infinite}.")
    of_nan = with_one_more(infinite * np.nan)
    demand(np.allclose(of_nan, truth, rtol=1e-9), f"Samples of NaN give {of_nan}.")


# -- on average -----------------------------------------------------------------------------------


@law(ANY_NODES)
def unbiased_where_standard_errors_are_stated(subject: Subject) -> None:
    """The mean of estimates over 24 seeds is the truth, within 24 seeds' standard errors.

    At four times the budget, with the fields ``nonneg``, ``project`` and ``shrink`` off. For
    estimates with ``stderr``, unless the protocol says why not in ``biased``. The larger of the
    stated standard error and the spread that is seen counts, by Student's law, for each entry.
    False alarm: 1e-7 for all entries together.
    """
    protocol = subject.protocol
    if protocol.biased or subject.estimate.stderr is None:
        passes_over(protocol.biased or "Its estimate states no standard errors.")
    plain = _plain(subject)
    truth, allowed = np.asarray(plain.truth(subject.users)), plain.resolution(subject.users)
    support = plain.support(subject.users)
    runs = (subject.walk(plain, seed=1000 + seed)[0] for seed in range(1, SEEDS + 1))
    usable = [run for run in runs if run.value is not None and run.stderr is not None]
    if support is not None:
        usable = [run.over(support, invented=plain.invents) for run in usable]
    demand(len(usable) > SEEDS // 2, f"{SEEDS - len(usable)} runs of {SEEDS} give no value.")
    x, errors = stacked(usable)
    check_mean(x, np.sqrt(np.mean(errors**2, axis=0)), truth.ravel(), allowed)


def stacked(runs: Sequence[Estimate]) -> tuple[Floats, Floats]:
    """Write values and standard errors of runs as rows: (runs, entries) each."""
    values, errors = ([np.ravel(getattr(run, k)) for run in runs] for k in ("value", "stderr"))
    return np.array(values, np.float64), np.array(errors, np.float64)


def _plain(subject: Subject) -> Any:
    """Turn off what trades bias for error, and take more of the budget, as far as it can be had."""
    off = {name: False for name in POSTPROCESSED if name in subject.fields}
    more = {"epsilon": MORE_EPSILON * subject.made.epsilon} if "epsilon" in subject.fields else {}
    for changes in (off | more, off, {}):
        try:
            plain = subject.replaced(**changes)
            if subject.walk(plain)[0].stderr is not None:
                return plain
        except ValueError:
            continue
    return subject.protocol


def check_mean(
    x: Floats, stated: Floats, truth: Floats, allowed: float, what: str = "Estimates"
) -> None:
    """Hold the mean of runs, (runs, entries), against the truth, entry by entry."""
    from scipy.stats import t

    runs, entries = x.shape
    bias = x.mean(axis=0) - truth
    spread = np.maximum(stated, x.std(axis=0, ddof=1)) / math.sqrt(runs)
    limit = t.isf(FALSE_ALARM / 2 / entries, runs - 1)
    rounding = 1e-9 * max(1.0, float(np.abs(truth).max()))
    over = np.abs(bias) - limit * spread - allowed - rounding
    at = int(np.argmax(over))
    demand(
        over[at] <= 0,
        f"{what}: the mean of entry {at} over {runs} runs is {bias[at] + truth[at]:g}, with a "
        f"standard error of {spread[at]:g}, where {truth[at]:g} is expected.",
    )


@law(SERVER_TRUSTED)
def standard_errors_cover_the_noise(subject: Subject) -> None:
    """Drawing the last release anew spreads the estimate no more than its ``stderr`` says.

    Of 64 draws or more, 300 numbers in all, whose squared deviations add up to a chi-square; of
    entries that move together to one of fewer degrees. False alarm: 1e-7 for Gaussian noise;
    Laplace noise has a wider limit.
    """
    if subject.estimate.stderr is None:
        passes_over("Its estimate states no standard errors.")
    plain = subject.replaced(**{k: False for k in POSTPROCESSED if k in subject.fields})
    ask = remembering(InlinePopulation([subject.users], 1).ask)
    base = watch(plain, ask, 1)
    first, stderr = base.estimate.value, base.estimate.stderr
    if first is None or stderr is None:
        passes_over(f"The estimate is {base.estimate.status}.")
    draws = max(64, math.ceil(300 / max(1, first.size)))
    runs = (watch(plain, ask, k, base.but_the_last_release()).estimate for k in range(2, draws + 2))
    usable = [run for run in runs if run.value is not None and run.value.shape == first.shape]
    if len(usable) < draws // 2:
        passes_over("Which keys come out is noise as well.")
    # a square's variance is 5 in place of 2
    wider = math.sqrt(2.5) if "laplace" in base.acts[-1].method else 1.0
    check_spread(stacked(usable)[0], stderr.ravel(), wider=wider)


def check_spread(x: Floats, stated: Floats, *, least: float = 0.0, wider: float = 1.0) -> None:
    """Hold the spread of runs, (runs, entries), against what is stated, by a chi-square's limits.

    Of as many degrees as there are entries that move by themselves. ``least``: how small the spread
    may be beside the stated one; ``wider``: by how much the upper limit is further off.
    """
    from scipy.stats import chi2

    moving = (stated > 0) & np.isfinite(stated)
    if not moving.any():
        return
    moved, others = ((x - x.mean(axis=0)) / np.where(moving, stated, 1.0))[:, moving], len(x) - 1
    ratio = float(np.square(moved).sum()) / others / moved.shape[1]
    degrees = others * moving_entries(moved)
    low, high = chi2.ppf([FALSE_ALARM, 1 - FALSE_ALARM], degrees) / degrees
    told = f"The estimates spread {math.sqrt(ratio):.2f} times what stderr says"
    demand(ratio <= 1 + wider * (high - 1), f"{told}.")
    demand(ratio >= min(low, least**2), f"{told}, {least:g} times at least are expected.")


def moving_entries(moved: Floats) -> float:
    """Count the entries that move by themselves, of deviations (runs, entries).

    That is trace^2 / norm^2 of the covariance; products of runs have the norm of those of entries.
    """
    total = float(np.square(moved).sum())
    return total**2 / max(float(np.square(moved @ moved.T).sum()), 1e-300)
