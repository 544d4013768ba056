"""Figures 2, 5 and 6 of Liu et al. (ICML 2023), sections 7.1, D.1 and D.2."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fedhist.base.arrays import Floats
from simulations.experiments.bounded_domain import (
    BEST,
    C_STAR,
    DP_QUANTILE,
    DP_SGD,
    DP_SGD_D,
    EM,
    M_QUANTILE,
    OUTPUT,
    OUTPUT_FIXED,
    OUTPUT_OURS,
    RULES,
    Losses,
    Setting,
)
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error
from simulations.populations import Loaded
from simulations.populations.base import most_frequent

FIGURE2 = (C_STAR, BEST, DP_QUANTILE, DP_SGD, OUTPUT, EM)
FIGURE5 = (C_STAR, DP_QUANTILE, DP_SGD, OUTPUT, OUTPUT_FIXED, OUTPUT_OURS)
PAIRS6 = (
    (C_STAR, BEST),
    (DP_SGD_D, C_STAR),
    (DP_SGD, C_STAR),
    (DP_SGD_D, M_QUANTILE),
    (DP_SGD_D, DP_QUANTILE),
)
FIGURE6 = (M_QUANTILE, DP_QUANTILE, DP_SGD_D, DP_SGD, C_STAR, BEST)
NAMES6 = dict(zip(FIGURE6, ("TQ", "PQ", "P2-Opt", "PS2-Opt", "T2-Opt", "Min"), strict=True))
NAMES = (
    "TQ: the M-th largest norm; PQ: its private estimate (DP-M-quantile); P2-Opt: DP-SGD with s = "
    "d; PS2-Opt: with s = 0.1 d; T2-Opt: C*; Min: the best C",
)
MEAN = "geometric mean over d"
Judge = Callable[[Findings, Sequence[Setting], Sequence[Losses]], None]

HOW = (
    "NOT PRIVATE: losses are computed with the truth; C*, best C and M-quantile with all norms",
    "private methods choose their threshold as adaptive-histogram does; the expected loss of the "
    "release at that threshold is exact",
    "em-slope: averaged over the exact law of the choice; the others over as "
    "many choices as the setting repeats says, bars are standard errors of that average",
    "a loss is an expectation: choices are averaged arithmetically at each d, and the ratios of "
    "these averages geometrically over d",
    "adjacency zero-out-user and no rounding up to zero, as in the paper's figures",
)

ONE_DATA_SET = '"SNAP has much higher errors" than Sentiment140: a run measures one data set'


def settings_of(request: Request) -> tuple[Loaded, list[Setting], tuple[str, ...]]:
    """Load the population and take its most frequent items, for each d there are enough for."""
    for name in ("repeats", "steps"):
        request.whole(name)
    for name in ("epsilon", "epsilon_choice", "clip_max"):
        request.positive(name)
    wanted = sorted(set(request.wholes("d")))
    loaded = request.load()
    items = loaded.users.counts
    known = int(np.count_nonzero(np.bincount(items.item, minlength=1)))
    possible = [d for d in wanted if d <= known]
    if not possible:
        raise ValueError(f"{loaded.title}: no d of {wanted} is possible with {known} items")
    dropped = [d for d in wanted if d not in possible]
    notes = [
        "NOT PRIVATE: the domain is the d most frequent items, chosen with all users' data",
        *(f"NOT PRIVATE: {x}" for x in loaded.not_private),
        *([f"left out, with {known:,} items in all: d = {dropped}"] if dropped else []),
    ]
    found = [Setting(loaded.users, most_frequent(loaded.users, d), request) for d in possible]
    return loaded, found, (*HOW, *notes)


def loss_against_d(
    request: Request,
    methods: Sequence[str],
    paper: str,
    judge: Judge,
    not_judged: tuple[str, ...] = (),
) -> Result:
    """Measure relative l1 losses for a row of domain sizes."""
    loaded, settings, notes = settings_of(request)
    measured, found = [s.measure(methods) for s in settings], Findings(request)
    ds = [len(s.domain) for s in settings]
    judge(found, settings, measured)
    for method in methods:
        pairs = [m.summary(method) for m in measured]
        error = None if any(e is None for _, e in pairs) else [e or 0.0 for _, e in pairs]
        style = "" if method in RULES else "--"
        found.draw(loaded.title, method, ds, [x for x, _ in pairs], error, style=style)
    return found.result(
        "Relative loss of histograms over bounded domains",
        paper,
        x_label="domain size d",
        y_label="relative l1 loss",
        notes=notes,
        not_judged=("the curves themselves: the paper prints no numbers", *not_judged),
        population=loaded.title,
    )


def figure2(request: Request) -> Result:
    """Figure 2: all methods against the domain size."""
    request.whole("whole_runs", 0)
    most = request.tolerances.get("largest_d", {}).get(request.population, math.inf)

    def judge(found: Findings, on: Sequence[Setting], losses: Sequence[Losses]) -> None:
        found.check(
            "every d", "C* / best C, worst d", max(m.mean(C_STAR) / m.mean(BEST) for m in losses)
        )
        near = [m for s, m in zip(on, losses, strict=True) if len(s.domain) <= most]
        far = [m for s, m in zip(on, losses, strict=True) if len(s.domain) > most]
        if near:
            for method in FIGURE2[2:]:
                found.check(MEAN, f"{method} / C*", *ratio(near, method))
        runs = on[len(on) // 2].whole_runs(DP_SGD)
        if len(runs):
            found.check("whole runs", f"{DP_SGD}: measured / expected", *mean_and_error(runs))
        if far:
            for method in FIGURE2[2:]:
                found.show(f"{MEAN} > {most:,}", f"{method} / C*", *ratio(far, method))

    unjudged = (
        [f"d > {most:,}: even the best C loses nearly half of the counts there, or more"]
        if not math.isinf(most)
        else []
    )
    return loss_against_d(request, FIGURE2, "Figure 2", judge, (ONE_DATA_SET, *unjudged))


def figure5(request: Request) -> Result:
    """Figure 5: output perturbation with a fixed C_m, as printed and corrected."""
    request.positive("fixed_clip_max")

    def judge(found: Findings, on: Sequence[Setting], losses: Sequence[Losses]) -> None:
        better = ratio(losses, OUTPUT_FIXED, OUTPUT)
        found.check(MEAN, "C_m fixed / C_m = DP-M-quantile", *better)
        for method in (OUTPUT, OUTPUT_FIXED, OUTPUT_OURS):
            found.check(MEAN, f"{method} / C*", *ratio(losses, method))
        spread = max(relative_std(m.losses[OUTPUT_FIXED]) for m in losses)
        found.check("every d", "spread of output pert., C_m fixed, worst d", spread)

    return loss_against_d(request, FIGURE5, "Figure 5", judge)


def figure6(request: Request) -> Result:
    """Figure 6: slopes cut to sqrt(0.1 d) or not at all, at two domain sizes."""
    loaded, settings, notes = settings_of(request)
    found = Findings(request)
    for setting in settings:
        m, panel = setting.measure(FIGURE6), f"d = {len(setting.domain):,}"
        chosen = np.concatenate([m.clips[method] for method in FIGURE6])
        shown = (m.grid > chosen.min() / 2) & (m.grid < chosen.max() * 2)
        found.draw(panel, "loss at C", m.grid[shown], m.grid_losses[shown], style="-")
        for method, name in NAMES6.items():
            found.draw(panel, name, m.clips[method], m.losses[method], style=" ")
            found.show(panel, f"relative loss at {name}", *m.summary(method))
        for upper, lower in PAIRS6:
            quantity = f"{NAMES6[upper]} / {NAMES6[lower]}"
            found.check(panel, quantity, *ratio([m], upper, lower))
    return found.result(
        "Thresholds with slopes cut to sqrt(0.1 d) and not cut",
        "Figure 6",
        x_label="threshold C (counts)",
        y_label="expected relative l1 loss",
        notes=(*NAMES, *notes),
        not_judged=("the heights of the bars: the paper prints no numbers",),
        population=loaded.title,
    )


def ratio(found: Sequence[Losses], upper: str, lower: str = C_STAR) -> tuple[float, float | None]:
    """Geometric mean over domains of a ratio of mean losses, and its standard error, if any."""
    logs, variance = [], 0.0
    for m in found:
        logs.append(math.log(m.mean(upper) / m.mean(lower)))
        for method in (upper, lower):
            mean, error = m.summary(method)
            variance += ((error or 0.0) / mean) ** 2
    value = math.exp(math.fsum(logs) / len(logs))
    return value, value * math.sqrt(variance) / len(logs) if variance else None


def relative_std(losses: Floats) -> float:
    """Compute the std over the repeats, relative to their mean; NaN of a single one.

    >>> round(relative_std(np.array([1.0, 3.0])), 6)
    0.707107
    """
    return float(losses.std(ddof=1) / losses.mean()) if len(losses) > 1 else math.nan
