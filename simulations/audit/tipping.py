"""Populations on a tipping point: where one user's record changes what a run does.

A mechanism that decides by an exact number betrays itself only where one user moves that number
across its limit, and hardly any population lies there. All users get one of two records. As users
go over from the one to the other, a run with the same noise changes what it asks, how it ends or
what it publishes; bisection finds a user who tips it, within about log2 n runs.

Nothing is proved here. Correct mechanisms tip as well, at a place that depends on their noise; what
the neighbours at the tip show is certified on fresh runs, like everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from fedhist.base.arrays import Words
from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users, join
from simulations.audit.drawing import copies_of
from simulations.audit.neighbours import Changes, Family
from simulations.audit.published import Run, Runs

MOST_PAIRS = 3
"""Pairs of records that are bisected for one thing that a run shows."""
MOST_TIPS = 12

Shown = Mapping[str, str | float]
"""What one run shows, by name: words that differ or not, and numbers that may jump."""


@dataclass
class _Mixtures:
    """Runs on populations of two camps, each made once."""

    protocol: Protocol
    changes: Changes
    seed: int
    seen: dict[tuple[int, int, int], Shown] = field(default_factory=dict)

    def shown(self, a: int, b: int, k: int) -> Shown:
        """Run where the first k users hold record a and the others record b."""
        n = len(self.changes.users)
        key = (a, a, n) if k == n else (b, b, n) if k == 0 else (a, b, k)
        if key not in self.seen:
            users = mixture(self.changes, self.changes.users.ids, a, b, k)
            self.seen[key] = _shown(Runs(self.protocol, users, self.seed).run(self.seed))
        return self.seen[key]


def tips(protocol: Protocol, changes: Changes, seed: int) -> Iterator[Family]:
    """Find users who tip a run, and give them the records of either camp.

    Parameters
    ----------
    protocol : Protocol
    changes : Changes
    seed : int
        Of the noise that stays the same while users go over.
    """
    runs, ids = _Mixtures(protocol, changes, seed), changes.users.ids
    found: set[tuple[int, int, int]] = set()
    for name, a, b in _worth_bisecting(runs):
        if len(found) == MOST_TIPS:
            return
        k = _bisect(runs, name, a, b)
        if (a, b, k) in found:
            continue
        found.add((a, b, k))
        others = mixture(changes, np.delete(ids, k), a, b, k)
        words = (changes.records[i][1] for i in (a, b))
        camps = "the first {} users hold {}, the others {}".format(k, *words)
        # the user who tips the run holds either record, or what both are neighbours of
        between = {0} if changes.adjacent[0, [a, b]].any() else set()
        yield changes.family(others, int(ids[k]), camps, sorted({a, b} | between))


def mixture(changes: Changes, ids: Words, a: int, b: int, k: int) -> Users:
    """Make a population whose first k users hold record a, and the others record b."""
    camps = ((changes.records[a][0], ids[:k]), (changes.records[b][0], ids[k:]))
    user = changes.space.user
    parts = [copies_of(user(record, 0), members) for record, members in camps if len(members)]
    return join(parts) if parts else changes.users.slice(0, 0)


def _shown(run: Run) -> Shown:
    value = run.estimate.value
    total = math.nan if value is None else float(np.nansum(np.abs(value)))
    return {
        "questions": run.digests,
        "status": f"{run.status} {run.words}",
        "value": total,
        "size": 0.0 if value is None else float(value.size),
        **{f"public {name}": float(x) for name, x in run.estimate.public.items()},
    }


def _step(one: Shown, other: Shown, name: str) -> float:
    """Say how far two runs lie apart in one thing."""
    x, y = one.get(name, math.nan), other.get(name, math.nan)
    if isinstance(x, str) or isinstance(y, str):
        return float(x != y)
    if math.isfinite(x) and math.isfinite(y):
        return abs(x - y)
    return 0.0 if x == y or (math.isnan(x) and math.isnan(y)) else math.inf


def _worth_bisecting(runs: _Mixtures) -> list[tuple[str, int, int]]:
    """List pairs of records that make runs differ if all users hold one or the other.

    The best pair for each thing that a run shows, then the second best for each, and so on.
    """
    changes, n = runs.changes, len(runs.changes.users)
    near = changes.adjacent
    present = [i for i, (record, _) in enumerate(changes.records) if record is not None]
    alone = {i: runs.shown(i, i, n) for i in present}
    out: list[tuple[int, str, int, int]] = []
    for name in dict.fromkeys(name for shown in alone.values() for name in shown):
        pairs: dict[tuple[object, ...], tuple[float, tuple[int, int]]] = {}
        for a, b in combinations(present, 2):
            step = _step(alone[a], alone[b], name)
            if step > 0 and (near[a, b] or (near[0, a] and near[0, b])):
                kind = tuple(sorted(str(alone[i].get(name)) for i in (a, b)))
                pairs.setdefault(kind, (step, (a, b)))
        best = sorted(pairs.values(), key=lambda p: -p[0])
        out += [(rank, name, a, b) for rank, (_, (a, b)) in enumerate(best[:MOST_PAIRS])]
    return [(name, a, b) for _, name, a, b in sorted(out, key=lambda o: o[0])]


def _bisect(runs: _Mixtures, name: str, a: int, b: int) -> int:
    """Follow the larger change: user k, counted from 0, is the one who makes it."""
    low, high = 0, len(runs.changes.users)
    while high - low > 1:
        middle = (low + high) // 2
        here, ends = runs.shown(a, b, middle), (runs.shown(a, b, low), runs.shown(a, b, high))
        if _step(ends[0], here, name) >= _step(here, ends[1], name):
            high = middle
        else:
            low = middle
    return low
