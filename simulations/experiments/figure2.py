"""Figures 2, 5 and 6 of Liu et al. (ICML 2023), sections 7.1, D.1 and D.2."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
    RULES,
    Losses,
    Setting,
)
from simulations.experiments.experiment import Findings, mean_and_error
from simulations.populations import most_frequent

FIGURE2 = (C_STAR, BEST, DP_QUANTILE, DP_SGD, OUTPUT, EM)
FIGURE5 = (C_STAR, DP_QUANTILE, DP_SGD, OUTPUT, OUTPUT_FIXED)
FIGURE6 = {
    M_QUANTILE: "TQ",
    DP_QUANTILE: "PQ",
    DP_SGD_D: "P2-Opt",
    DP_SGD: "PS2-Opt",
    C_STAR: "T2-Opt",
    BEST: "Min",
}
PAIRS6 = (
    (C_STAR, BEST),
    (DP_SGD_D, C_STAR),
    (DP_SGD, C_STAR),
    (DP_SGD_D, M_QUANTILE),
    (DP_SGD_D, DP_QUANTILE),
)
MEAN = "geometric mean over d"


def run(findings: Findings) -> None:
    """Measure all methods at every d that there are items enough for, and judge each figure."""
    s, loaded = findings.settings, findings.load()
    items = int(np.count_nonzero(np.bincount(loaded.users.counts.item, minlength=1)))
    wanted = sorted({*s.d, *s.figure6_d})
    ds = [d for d in wanted if d <= items]
    if not ds:
        raise ValueError(f"{loaded.title}: no d of {wanted} is possible with {items} items")
    if len(ds) < len(wanted):
        dropped = [d for d in wanted if d > items]
        findings.note(f"left out, with {items:,} items in all: d = {dropped}")
    on = {d: Setting(loaded.users, most_frequent(loaded.users, d), s, findings.seed) for d in ds}
    losses = {d: setting.measure() for d, setting in on.items()}
    rows = {d: losses[d] for d in s.d if d in ds}
    if rows:
        _figure2(findings, rows)
        _figure5(findings, rows)
        middle = list(rows)[len(rows) // 2]
        ratios = mean_and_error(on[middle].whole_runs(DP_SGD))
        findings.check("whole runs", f"{DP_SGD}: measured / expected", *ratios)
    for d in s.figure6_d:
        if d in ds:
            _figure6(findings, d, losses[d])


def _curves(
    findings: Findings, panel: str, rows: Mapping[int, Losses], methods: Sequence[str]
) -> None:
    """Draw relative losses against the domain size."""
    for method in methods:
        means = [m.summary(method) for m in rows.values()]
        style = "" if method in RULES else "--"
        axes = {"x_label": "domain size d", "y_label": "relative l1 loss"}
        findings.draw_means(panel, method, list(rows), means, "", style, **axes)


def _figure2(findings: Findings, rows: Mapping[int, Losses]) -> None:
    """Judge all methods against the domain size."""
    _curves(findings, "Figure 2", rows, FIGURE2)
    worst = max(m.mean(C_STAR) / m.mean(BEST) for m in rows.values())
    findings.check("every d", "C* / best C, worst d", worst)
    most = findings.settings.largest_d.get(findings.request.population, math.inf)
    near = [m for d, m in rows.items() if d <= most]
    for method in FIGURE2[2:] if near else ():
        findings.check(MEAN, f"{method} / C*", *ratio(near, method))
    if not math.isinf(most):
        findings.not_judged.append(
            f"d > {most:,}: even the best C loses nearly half of the counts there, or more"
        )


def _figure5(findings: Findings, rows: Mapping[int, Losses]) -> None:
    """Judge output perturbation with a fixed C_m, as printed."""
    _curves(findings, "Figure 5", rows, FIGURE5)
    every = list(rows.values())
    better = ratio(every, OUTPUT_FIXED, OUTPUT)
    findings.check(MEAN, "C_m fixed / C_m = DP-M-quantile", *better)
    findings.check(MEAN, f"{OUTPUT_FIXED} / C*", *ratio(every, OUTPUT_FIXED))
    spread = max(relative_std(m.losses[OUTPUT_FIXED]) for m in every)
    findings.check("every d", "spread of output pert., C_m fixed, worst d", spread)


def _figure6(findings: Findings, d: int, m: Losses) -> None:
    """Judge slopes cut to sqrt(0.1 d) or not at all, at one domain size."""
    setting = f"d = {d:,}"
    panel = f"Figure 6: {setting}"
    axes = {"x_label": "threshold C (counts)", "y_label": "expected relative l1 loss"}
    chosen = np.concatenate([m.clips[method] for method in FIGURE6])
    shown = (m.grid > chosen.min() / 2) & (m.grid < chosen.max() * 2)
    findings.draw(panel, "loss at C", m.grid[shown], m.grid_losses[shown], style="-", **axes)
    for method, name in FIGURE6.items():
        findings.draw(panel, name, m.clips[method], m.losses[method], style=" ")
        findings.show(setting, f"relative loss at {name}", *m.summary(method))
    for upper, lower in PAIRS6:
        quantity = f"{FIGURE6[upper]} / {FIGURE6[lower]}"
        findings.check(setting, quantity, *ratio([m], upper, lower))


def ratio(
    findings: Sequence[Losses], upper: str, lower: str = C_STAR
) -> tuple[float, float | None]:
    """Geometric mean over domains of a ratio of mean losses, and its standard error, if any."""
    logs, variance = [], 0.0
    for m in findings:
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
