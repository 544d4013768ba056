"""Table 2 of Liu et al. (ICML 2023): single words, clipped and debiased."""

from __future__ import annotations

import numpy as np

from fedhist.users.batch import Users
from simulations.experiments.experiment import Findings, Request, Result
from simulations.experiments.single_items import (
    COLUMNS,
    HOW,
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
    found = Findings(request if whole_file else request.only_shown())
    for name, word, clip in zip(names, words, clips, strict=True):
        mine = only(users, word)
        protocol = protocol_for(mine, request.settings, clip)
        pair = compare(protocol, mine, int(request.settings["runs"]), request.seed)
        found.check(name, "clipping", pair.clipping)
        found.check(name, "debiasing", pair.debiasing)
        found.check(name, "debiasing / clipping", pair.ratio)
        if pair.runs.shape[1] > 1:
            for what, runs in zip(("clipping", "debiasing"), pair.runs, strict=True):
                found.show(name, f"{what}, std of runs", runs.std(ddof=1))
        found.show(name, "median C", np.median(pair.clips))
        found.show(name, "true total", protocol.truth(mine)[0])
        if abs(pair.ratio - 1) < EQUAL:
            notes.append(
                f"{name}: C lies so far above the mean count that debiasing, which inverts the "
                "clipping of Poisson counts, changes nothing: the two columns cannot differ here"
            )
        at, errors = errors_by_clip(mine, request.settings)
        for label, y in zip(COLUMNS, errors, strict=True):
            found.draw(name, label, at, y)
            best = int(np.argmin(y))
            found.show(name, f"{label}, least over C (C = {at[best]:g})", y[best])
    return found.result(
        "Relative error of single items, clipped and debiased",
        "Table 2",
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


def most_used(users: Users, most: int) -> list[str]:
    """Name the items with the largest totals. NOT PRIVATE."""
    v = users.counts
    totals = np.bincount(v.item, weights=v.count, minlength=len(v.vocabulary))
    order = np.argsort(-totals, kind="stable")[: min(most, int((totals > 0).sum()))]
    return [v.vocabulary[int(j)] for j in order]
