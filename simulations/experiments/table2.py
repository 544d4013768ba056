"""Table 2 of Liu et al. (ICML 2023): single words, clipped and debiased."""

from __future__ import annotations

import numpy as np

from fedhist.users.batch import Users
from simulations.experiments.experiment import Findings
from simulations.experiments.single_items import (
    COLUMNS,
    compare,
    errors_by_clip,
    only,
    protocol_for,
)
from simulations.populations import item_totals

EQUAL = 1e-3
RANKS = ("most frequent item", "second item", "third item")


def run(findings: Findings) -> None:
    """Estimate the total of each word by itself. NOT PRIVATE."""
    s, users = findings.settings, findings.load().users
    words = names = list(s.words)
    if findings.request.population == "sentiment140":
        missing = [w for w in words if users.vocabulary.position(w) < 0]
        if missing:
            raise ValueError(f"{findings.users}: nobody uses the word {missing[0]!r}")
        if len(users) < s.whole_file:
            findings.only_shown()
            findings.not_judged.append(
                "the printed numbers: they are of the whole file, and this part has "
                f"{len(users):,} users"
            )
    else:
        words = most_used(users, len(RANKS))
        names = list(RANKS[: len(words)])
        findings.note("NOT PRIVATE: the items are the most frequent ones, by all users' data")
    clips = s.clips or [0] * len(words)
    if len(clips) != len(words):
        raise ValueError(f"clips must name one C per word ({len(words)}), got {clips}")
    for name, word, clip in zip(names, words, clips, strict=True):
        _measure(findings, name, only(users, word), clip)


def _measure(findings: Findings, name: str, mine: Users, clip: int) -> None:
    s = findings.settings
    protocol = protocol_for(mine, s, clip)
    pair = compare(protocol, mine, s.runs, findings.seed)
    findings.check(name, "clipping", pair.clipping)
    findings.check(name, "debiasing", pair.debiasing)
    findings.check(name, "debiasing / clipping", pair.ratio)
    findings.show(name, "median C", np.median(pair.clips))
    findings.show(name, "true total", protocol.truth(mine)[0])
    if abs(pair.ratio - 1) < EQUAL:
        findings.note(
            f"{name}: C lies so far above the mean count that debiasing, which inverts the "
            "clipping of Poisson counts, changes nothing: the two columns cannot differ here"
        )
    at, errors = errors_by_clip(mine, s)
    for label, y in zip(COLUMNS, errors, strict=True):
        findings.draw(name, label, at, y)
        best = int(np.argmin(y))
        findings.show(name, f"{label}, least over C (C = {at[best]:g})", y[best])


def most_used(users: Users, most: int) -> list[str]:
    """Name the items with the largest totals. NOT PRIVATE."""
    totals = item_totals(users)
    order = np.argsort(-totals, kind="stable")[: min(most, int((totals > 0).sum()))]
    return [users.vocabulary[int(j)] for j in order]
