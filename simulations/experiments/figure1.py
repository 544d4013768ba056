"""Figure 1 of Liu et al. (ICML 2023): how many distinct items each user contributes."""

from __future__ import annotations

import numpy as np

from simulations.experiments.experiment import Findings


def run(findings: Findings) -> None:
    """Sort the users by their number of distinct items, s_i. NOT PRIVATE."""
    s, loaded = findings.settings, findings.load()
    distinct = np.sort(np.diff(loaded.users.counts.indptr))[::-1]
    some = distinct[distinct > 0]
    if not len(some):
        raise ValueError(f"{loaded.title}: no user has any item")
    setting = "users with at least one item"
    share = float((some < s.below).mean())
    findings.check(setting, f"share with fewer than {s.below} distinct items", share)
    for q in (50, 90, 99, 100):
        findings.show(setting, f"{q:g} % quantile of distinct items", np.percentile(some, q))
    shown = rank_points(len(some), s.points)
    rank = shown + 1.0
    findings.draw(loaded.title, "distinct items", rank, some[shown], style="-")
    findings.draw(loaded.title, f"{s.below} items", rank[[0, -1]], s.below, style="--")
    if len(some) < len(distinct):
        findings.note(f"{len(distinct) - len(some):,} users without any item are left out")
    if some[0] < s.below:
        findings.note(f"no user has {s.below} distinct items or more: here the claim cannot fail")


def rank_points(n: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions 0 to n - 1, at most ``most``, evenly spread over a logarithmic axis.

    >>> rank_points(1000, 6).tolist()
    [0, 3, 15, 62, 250, 999]
    """
    return np.unique(np.rint(np.geomspace(1, n, min(n, most))).astype(np.int64)) - 1
