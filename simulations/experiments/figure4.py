"""Figure 4 of Liu et al. (ICML 2023): one item's count on Poisson data, clipped and debiased."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhist.base.hashing import digest64
from fedhist.model.evaluation import measured
from simulations.experiments.experiment import Findings, mean_and_error
from simulations.experiments.single_items import COLUMNS, Pair, compare, protocol_for

DEFAULT = "debiasing, our choice of C"


def run(findings: Findings) -> None:
    """Sweep the concentration of the users' rates. NOT PRIVATE."""
    s = findings.settings
    alphas = sorted(s.alphas)
    points = [_pairs(findings, alpha) for alpha in alphas]
    mean = np.array([np.mean([(p.clipping, p.debiasing) for p in some], axis=0)
                     for some, _ in points])  # fmt: skip
    ours = [own for _, own in points]
    ratio = mean[:, 1] / mean[:, 0]
    least, most = alphas[0], alphas[-1]
    findings.check(f"alpha = {most:g}", "debiasing / clipping", ratio[-1])
    findings.check("all alpha", "largest debiasing / clipping", ratio.max())
    findings.check(f"alpha = {most:g} to {least:g}", "quotient of the two", ratio[-1] / ratio[0])
    for k, (alpha, (some, own)) in enumerate(zip(alphas, points, strict=True)):
        setting = f"alpha = {alpha:g}"
        findings.show(setting, "clipping", mean[k, 0])
        findings.show(setting, "debiasing", mean[k, 1])
        findings.show(setting, DEFAULT, own)
        clips = np.concatenate([p.clips for p in some])
        findings.show(setting, "median C", float(np.median(clips)))
    for k, name in enumerate(COLUMNS):  # exact expectations are lines, means of real runs crosses
        findings.draw("one item", name, alphas, mean[:, k], marker="o")
        real = [mean_and_error(np.concatenate([p.runs[k] for p in some])) for some, _ in points]
        findings.draw_means("one item", f"{name}, real runs", alphas, real, "x", "none")
    findings.draw("one item", DEFAULT, alphas, ours, marker="s")
    findings.users = findings.users.rsplit(",", 1)[0]


def _pairs(findings: Findings, alpha: float) -> tuple[list[Pair], float]:
    """Measure several populations of one concentration; the mean error of our default as well."""
    s, pairs, ours = findings.settings, [], []
    for k in range(s.populations):
        seed = digest64("figure4", findings.seed, f"{alpha:g}", k)
        users = findings.load(alpha=alpha, seed=seed).users
        protocol = protocol_for(users, s)
        pairs.append(compare(protocol, users, s.runs, seed))
        known = measured(replace(protocol, choice="excess"), users)
        ours.append(known.error.expected / float(known.truth[0]))
    return pairs, float(np.mean(ours))
