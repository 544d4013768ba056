"""Table 2 of Liu et al. (ICML 2023): single words, clipped and debiased."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedhist.users.batch import Users
from simulations.experiments.base import Check, Curve, Request, Result
from simulations.experiments.single_items import (
    HOW,
    Pair,
    check_settings,
    compare,
    errors_by_clip,
    only,
    protocol_for,
)

EQUAL = 1e-3
RANKS = ("most frequent item", "second item", "third item")


def run(request: Request) -> Result:
    """Estimate the total of each word by itself. NOT PRIVATE."""
    check_settings(request)
    loaded = request.load()
    users = loaded.users
    whole_file = len(users) >= int(request.tolerances["whole_file"])
    notes = [f"NOT PRIVATE: {x}" for x in loaded.not_private]
    names: list[str] = [str(w) for w in request.settings["words"]]
    if not names:
        raise ValueError(f"words must be a list of at least one, got {names}")
    if request.population == "sentiment140":
        words = names
        missing = [w for w in words if users.vocabulary.position(w) < 0]
        if missing:
            raise ValueError(f"{loaded.title}: nobody uses the word {missing[0]!r}")
    else:
        words = most_used(users, len(RANKS))
        names = list(RANKS[: len(words)])
        notes.append("NOT PRIVATE: the items are the most frequent ones, by all users' data")
    clips = [int(c) for c in request.settings["clips"]] or [0] * len(words)
    if len(clips) != len(words):
        raise ValueError(f"clips must name one C per word ({len(words)}), got {clips}")
    checks: list[Check] = []
    curves: list[Curve] = []
    for name, word, clip in zip(names, words, clips, strict=True):
        mine = only(users, word)
        protocol = protocol_for(mine, request.settings, clip)
        pair = compare(protocol, mine, int(request.settings["runs"]), request.seed)
        found = rows(request, name, pair, int(protocol.truth(mine)[0]))
        checks += found if whole_file else [shown(c) for c in found]
        if abs(pair.ratio - 1) < EQUAL:
            notes.append(
                f"{name}: C lies so far above the mean count that debiasing, which inverts the "
                "clipping of Poisson counts, changes nothing: the two columns cannot differ here"
            )
        at, errors = errors_by_clip(mine, request.settings)
        for label, y in zip(("clipping", "clipping + debiasing"), errors, strict=True):
            curves.append(Curve(name, label, at, y))
            best = int(np.argmin(y))
            checks.append(told(name, f"{label}, least over C (C = {at[best]:g})", float(y[best])))
    return Result(
        title="Relative error of single items, clipped and debiased",
        paper="Table 2",
        checks=tuple(checks),
        curves=tuple(curves),
        x_label="C",
        y_label="expected relative error",
        log="x",
        notes=(
            *HOW,
            "C was given, not chosen privately" if any(clips) else
            f"the choice of C spends epsilon' = {request.settings['epsilon_choice']:g} on top",
            "the least error over C, and the curves over C, are chosen by the true total",
            *notes,
        ),
        not_judged=(
            "the paper's standard deviations: it does not say of how many runs, nor what epsilon, "
            "epsilon' and C were",
            *([] if whole_file or request.population != "sentiment140" else
              ["the printed numbers: they are of the whole file, and this part has "
               f"{len(users):,} users"]),
        ),
        population=loaded.title,
    )  # fmt: skip


def rows(request: Request, name: str, pair: Pair, total: int) -> list[Check]:
    """Judge one word: the two errors against the paper's, and one against the other."""
    out = []
    for quantity, x in (
        ("clipping", pair.clipping),
        ("debiasing", pair.debiasing),
        ("debiasing / clipping", pair.ratio),
    ):
        out.append(request.judge(name, quantity, x) or told(name, quantity, x))
    for k, what in enumerate(("clipping", "debiasing")):
        if pair.runs.shape[1] > 1:
            out.append(told(name, f"{what}, std of runs", float(pair.runs[k].std(ddof=1))))
    return [
        *out,
        told(name, "median C", float(np.median(pair.clips))),
        told(name, "true total", float(total)),
    ]


def shown(check: Check) -> Check:
    """Show a printed number without judging it."""
    if check.paper is None:
        return check
    return replace(check, low=-np.inf, high=np.inf)


def told(name: str, quantity: str, x: float) -> Check:
    """Make a line for orientation."""
    return Check(name, quantity, None, x, -np.inf, np.inf)


def most_used(users: Users, most: int) -> list[str]:
    """Name the items with the largest totals. NOT PRIVATE."""
    v = users.counts
    totals = np.bincount(v.item, weights=v.count, minlength=len(v.vocabulary))
    order = np.argsort(-totals, kind="stable")[: min(most, int((totals > 0).sum()))]
    return [v.vocabulary[int(j)] for j in order]
