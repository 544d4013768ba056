"""Which branch `few-users-mean` takes, or refuses, by number of users and dimension [1]_.

Public numbers alone decide, so that nothing is measured on users: every point of the map is what
the protocol would do. At the borders the protocol itself is run, on made-up users.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorems 4 and 6, Corollary 8, Lemma 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.base.search import MOST_USERS, first_true
from fedhist.users.batch import Users
from server.few_users.plan import FewUsersPlan
from simulations.experiments.experiment import Findings, Request, Result, power_law
from simulations.experiments.few_users_error import Task

REFUSED, BALL, BLOCKS, LARGE = "refused", "one ball", "blocks", "large n (medians and clip)"
NAMES = {"ball": BALL, "blocks": BLOCKS, "large-n": LARGE}
MARKS = {REFUSED: "x", BALL: "s", BLOCKS: "D", LARGE: "o"}
NEEDED, MAP = "users that are needed", "the map"


@dataclass(frozen=True)
class Panel:
    """One map: everything public but n and d."""

    title: str
    task: Task

    def asking(self, **wishes: Any) -> Task:
        """Return the same task with more wishes."""
        return replace(self.task, wishes={**self.task.wishes, **wishes})

    def needed(self, dimension: int, **wishes: Any) -> int:
        """Fewest users that are not refused, found by asking, not from the plan's own number."""
        task = self.asking(**wishes)
        found = first_true(lambda n: task.plan(n, dimension).feasible, MOST_USERS)
        return found or MOST_USERS


def run(request: Request) -> Result:
    """Draw the maps and judge their borders."""
    s = request.settings
    few, many = (int(n) for n in s["n_users"])
    ns = np.unique(np.rint(np.geomspace(few, many, int(s["columns"]))).astype(np.int64))
    ds = [int(d) for d in s["dimensions"]]
    panels, worse, found = panels_of(request), 0, Findings(request)
    for panel in panels:
        plans = [[panel.task.plan(int(n), d) for n in ns] for d in ds]
        _draw(found, panel, plans)
        errors = np.array([[p.error if p.feasible else math.inf for p in row] for row in plans])
        worse += int(np.count_nonzero(errors[:, 1:] > errors[:, :-1] * (1 + 1e-9)))
    found.check(MAP, "points where more users are worse", float(worse))
    _needed(found, panels[0])
    _runs(found, panels[0])
    return found.result(
        "Branch taken, or refused, by users and dimension",
        "Corollary 8",
        x_label="users n",
        y_label="dimension d",
        notes=(
            "public numbers decide: epsilon, delta, n, d, the typical distance r of a user's mean "
            "from the common mean, the box (a bound on the means' norm), the corrupted share",
            "the paper's branches: noise on the clipped mean, which `few-users-mean` also takes "
            "where there is a box, never refuses",
            "no user's data are read: the usual NOT PRIVATE of figures does not apply",
        ),
        not_judged=("the constants of Theorem 6 and Corollary 8: the paper prints none",),
        population="none: public numbers",
    )


def panels_of(request: Request) -> list[Panel]:
    """Read the maps' public numbers; the first is the one that the claims are judged on."""
    found = []
    for p in request.settings["maps"]:
        eps, delta, r, box = float(p["epsilon"]), float(p["delta"]), p["radius"], p.get("box")
        share = float(p.get("corrupted", 0.0))
        what = [f"({eps:g}, {delta:g})"]
        what.append("no box" if box is None else f"box {box / r:g} r")
        what += [f"{share:.0%} corrupted"] if share else []
        task = Task(eps, delta, float(r), None if box is None else float(box), {"corrupted": share})
        found.append(Panel(", ".join(what), task))
    if not found:
        raise ValueError("maps must name at least one map, got none")
    return found


def _draw(found: Findings, panel: Panel, plans: list[list[FewUsersPlan]]) -> None:
    """Draw one set of marks per branch, and the users that Lemma 9 excludes."""
    points: dict[str, list[tuple[int, int]]] = {name: [] for name in MARKS}
    for p in (p for row in plans for p in row):
        points[NAMES[p.method] if p.feasible else REFUSED].append((p.n_users, p.dimension))
    for name, mark in MARKS.items():
        at = np.array(points[name], dtype=np.float64).reshape(-1, 2)
        if len(at):
            found.draw(panel.title, name, at[:, 0], at[:, 1], marker=mark, style=" ")
    ends = [row[0].dimension for row in (plans[0], plans[-1])]
    for least, label, style in (
        (lemma_9_users(panel.task.epsilon, panel.task.delta), "Lemma 9", "--"),
        (least_users_of_any(panel.task.epsilon, panel.task.delta), "its proof, in full", ":"),
    ):
        if least is not None:
            label += ": nothing works left of it"
            found.draw(panel.title, label, [least, least], ends, style=style)


def _needed(found: Findings, panel: Panel) -> None:
    """Judge how the users that are needed grow."""
    s = found.request.settings
    ds = [int(d) for d in s["dimensions"] if d >= 16]
    ball = np.array([panel.needed(d, method="ball") for d in ds], dtype=np.float64)
    found.check(NEEDED, "one ball, d >= 16: most / fewest", float(ball.max() / ball.min()))
    public = panel.task.epsilon, panel.task.delta
    if (least := lemma_9_users(*public)) is not None:
        found.check(NEEDED, "one ball / Lemma 9", float(ball.max()) / least)
    full = float(ball.max()) / least_users_of_any(*public)
    found.check(NEEDED, "one ball / users that the proof of Lemma 9 excludes", full)
    found.check(NEEDED, "one ball: n", float(ball.max()))
    ks, d = [int(k) for k in s["blocks"]], max(ds)
    blocks = [panel.needed(d, method="blocks", n_blocks=k) for k in ks]
    for k, n in zip(ks, blocks, strict=True):
        found.check(NEEDED, f"{k} blocks: n", float(n))
    found.check(NEEDED, "blocks: log-log slope in K", power_law(ks, blocks)[0])
    large = [panel.needed(d, method="large-n") for d in ds]
    for d, n in zip(ds, large, strict=True):
        found.check(NEEDED, f"large n, d = {d:,}: n", float(n))
    found.check(NEEDED, "large n: log-log slope in d", power_law(ds, large)[0])


def _runs(found: Findings, panel: Panel) -> None:
    """Run the protocol on both sides of borders: it refuses, unasked, where the map does."""
    s, wrong = found.request.settings, 0
    for d, method in ((int(d), str(m)) for d in s["run_dimensions"] for m in s["run_methods"]):
        task = panel.asking(method=method, n_rounds=1)
        least = panel.needed(d, method=method)
        for n in (least - 1, least):
            estimate = task.run(_zeros(n, d), seed=found.request.seed)
            refused = estimate.status == "refused"
            spent = estimate.ledger is not None and bool(estimate.ledger.entries)
            wrong += refused != (n < least) or refused == spent
    found.check(MAP, "runs that contradict the map", float(wrong))


def _zeros(n_users: int, dimension: int) -> Users:
    ids = np.arange(n_users, dtype=np.uint64)
    return Users.from_samples(ids, np.arange(n_users + 1), np.zeros((n_users, dimension)))


def least_users_of_any(epsilon: float, delta: float) -> float:
    """Users with which nobody finds a ball that most users' means lie in, wherever it may be.

    ln(1 + (2/3) (e^epsilon - 1) / delta) / epsilon: at most so many are too few for any finite
    error with probability 2/3; inf where delta = 0. Three times [1, Lemma 9], whose proof gives it:
    a point that all users would make likely, with probability 2/3, has a positive probability
    whatever the data are, and points without number lie far apart.

    >>> round(least_users_of_any(1.0, 1e-6), 2)
    13.95
    """
    if not delta:
        return math.inf
    return math.log1p(2 / 3 * math.expm1(epsilon) / delta) / epsilon


def lemma_9_users(epsilon: float, delta: float) -> float | None:
    """Users below which [1, Lemma 9] excludes every algorithm; None unless 0 < delta <= epsilon^2.

    >>> round(lemma_9_users(1.0, 1e-6), 2), lemma_9_users(1e-4, 1e-6)
    (4.61, None)
    """
    if not 0 < delta <= epsilon**2:
        return None
    return math.log(1 / delta) / (3 * epsilon)
