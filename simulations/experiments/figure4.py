"""Figure 4 of Liu et al. (ICML 2023): one item's count on Poisson data, clipped and debiased."""

from __future__ import annotations

import numpy as np

from fedhist.base.hashing import digest64
from simulations.experiments.base import Check, Curve, Request, Result
from simulations.experiments.settings import positives, whole
from simulations.experiments.single_items import (
    HOW,
    Pair,
    check_settings,
    compare,
    protocol_for,
)


def run(request: Request) -> Result:
    """Sweep the concentration of the users' rates. NOT PRIVATE."""
    check_settings(request)
    alphas = sorted(positives(request, "alphas"))
    repeats, runs = whole(request, "populations"), whole(request, "runs")
    pairs: list[list[Pair]] = []
    title = ""
    for alpha in alphas:
        some = []
        for k in range(repeats):
            seed = digest64("figure4", request.seed, f"{alpha:g}", k)
            loaded = request.load(alpha=alpha, seed=seed)
            protocol = protocol_for(loaded.users, request.settings)
            some.append(compare(protocol, loaded.users, runs, seed))
            title = loaded.title
        pairs.append(some)
    expected = np.array([[(p.clipping, p.debiasing) for p in some] for some in pairs])
    measured = np.array([np.concatenate([p.runs for p in some], axis=1) for some in pairs])
    clips = np.array([np.median(np.concatenate([p.clips for p in some])) for some in pairs])
    mean = expected.mean(axis=1)
    ratio = mean[:, 1] / mean[:, 0]
    judged = (
        (f"alpha = {alphas[-1]:g}", "debiasing / clipping", ratio[-1]),
        ("all alpha", "largest debiasing / clipping", ratio.max()),
        (f"alpha = {alphas[-1]:g} to {alphas[0]:g}", "quotient of the two", ratio[-1] / ratio[0]),
    )
    checks = [request.judge(s, q, float(x)) for s, q, x in judged]
    rows = [
        Check(f"alpha = {a:g}", what, None, float(y), -np.inf, np.inf)
        for a, m, c in zip(alphas, mean, clips, strict=True)
        for what, y in (("clipping", m[0]), ("debiasing", m[1]), ("median C", c))
    ]
    return Result(
        title="Relative error of one item's count on Poisson data, by similarity of the users",
        paper="Figure 4",
        checks=(*(c for c in checks if c), *rows),
        curves=curves(np.array(alphas), expected, measured),
        x_label="alpha (larger: the users' rates are more alike)",
        y_label="relative error",
        log="xy",
        notes=(
            *HOW,
            f"each point: {repeats} populations; crosses are means of {repeats * runs} real runs",
            "the paper gives no scale to its Dirichlet rates; read with mean_items per user, and "
            "the verdict depends on it: with n = 200,000 users debiasing leaves 0.52 of the error "
            "at mean_items = 10 and alpha = 1000 (FAIL), 0.22 at mean_items = 0.1 (PASS)",
            'C is not the paper\'s "top 1 / epsilon": the rank that the private choice looks for '
            "is raised until its noise cannot take the empty tail for it",
        ),
        not_judged=("the curves themselves: the paper prints no numbers",),
        population=title.rsplit(",", 1)[0],
    )


def curves(
    alphas: np.ndarray[tuple[int], np.dtype[np.float64]],
    expected: np.ndarray[tuple[int, int, int], np.dtype[np.float64]],
    measured: np.ndarray[tuple[int, int, int], np.dtype[np.float64]],
) -> tuple[Curve, ...]:
    """Draw exact expectations as lines and means of real runs as crosses."""
    out = []
    for k, name in enumerate(("clipping", "clipping + debiasing")):
        out.append(Curve("one item", name, alphas, expected[:, :, k].mean(axis=1), marker="o"))
        runs = measured[:, k]
        error = runs.std(axis=1, ddof=1) / np.sqrt(runs.shape[1]) if runs.shape[1] > 1 else None
        out.append(
            Curve("one item", f"{name}, real runs", alphas, runs.mean(axis=1), error, "x", "none")
        )
    return tuple(out)
