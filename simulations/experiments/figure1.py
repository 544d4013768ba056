"""Figure 1 of Liu et al. (ICML 2023): how many distinct items each user contributes."""

from __future__ import annotations

import numpy as np

from simulations.experiments.experiment import Findings, Request, Result

NOT_PRIVATE = "NOT PRIVATE: every point of the curve is a count of one real user"


def run(request: Request) -> Result:
    """Sort the users by their number of distinct items, s_i. NOT PRIVATE."""
    below, most = request.whole("below"), request.whole("points")
    loaded = request.load()
    distinct = np.sort(np.diff(loaded.users.counts.indptr))[::-1]
    some = distinct[distinct > 0]
    if not len(some):
        raise ValueError(f"{loaded.title}: no user has any item")
    share = float((some < below).mean())
    setting, found = "users with at least one item", Findings(request)
    quantity = f"share with fewer than {below} distinct items"
    if request.judge(setting, quantity, share):
        found.check(setting, quantity, share)
    shown = rank_points(len(some), most)
    rank = shown + 1.0
    found.draw(loaded.title, "distinct items", rank, some[shown], style="-")
    found.draw(loaded.title, f"{below} items", rank[[0, -1]], below, style="--")
    for q in (50, 90, 99, 100):
        found.show(setting, f"{q:g} % quantile of distinct items", np.percentile(some, q))
    empty = len(distinct) - len(some)
    return found.result(
        "Number of distinct items of each user",
        "Figure 1",
        x_label="rank of the user, from the most distinct items to the fewest",
        y_label="distinct items of the user",
        notes=(
            NOT_PRIVATE,
            *(f"NOT PRIVATE: {x}" for x in loaded.not_private),
            *([f"{empty:,} users without any item are left out"] if empty else []),
            *(
                [f"no user has {below} distinct items or more: here the claim cannot fail"]
                if some[0] < below
                else []
            ),
        ),
        not_judged=("the curves themselves: the paper prints no numbers",),
        population=loaded.title,
    )


def rank_points(n: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions 0 to n - 1, at most ``most``, evenly spread over a logarithmic axis.

    >>> rank_points(1000, 6).tolist()
    [0, 3, 15, 62, 250, 999]
    """
    return np.unique(np.rint(np.geomspace(1, n, min(n, most))).astype(np.int64)) - 1
