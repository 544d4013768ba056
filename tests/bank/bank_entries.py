"""What is wrong with each mechanism of the bank, where it comes from, and what must catch it.

False alarms. Findings of the kinds exact, structural and wire are certain. A statistical finding
or one of whole runs says "violation" of a correct mechanism with probability
at most ``bounds.ALPHA`` = 5 10^-10: its m events are fixed before the certifying draws, both
Clopper-Pearson limits of each are wrong with probability at most ALPHA / (2 m), and the union bound
over limits and events gives ALPHA. The bank and the registry together make at most
``bounds.MOST_CHECKS`` = 2000 of them (the tests count), so that the probability that any correct
mechanism is flagged is at most 10^-6.
"""

from __future__ import annotations

from dataclasses import dataclass

FILES = ("local_noise", "local_messages", "central")


@dataclass(frozen=True)
class Entry:
    """One broken mechanism: what its protocol gets wrong, and who makes the mistake.

    ``check`` is the kind of the finding that must say "violation" ("floating point" is a
    statistical one about the low bits of a float), and ``event`` what its witness must speak of.
    Exact, structural and wire entries are always in the quick subset.
    """

    name: str
    wrong: str
    source: str
    check: str
    event: str = ""
    quick: bool = False

    @property
    def cheap(self) -> bool:
        return self.check in ("exact", "structural", "wire")


def _entry(name: str, wrong: str, source: str, check: str, event: str = "", q: int = 0) -> Entry:
    return Entry(f"bank-{name}", wrong, source, check, event, bool(q))


SLIP = "a slip"
EXACT, STAT, FLOAT, STRUCT, WIRE = "exact", "statistical", "floating point", "structural", "wire"
RUNS = "end to end"

ENTRIES = (
    # local noise
    _entry("half-noise", "half the noise", SLIP, EXACT),
    _entry("half-range", "sensitivity R, not 2 R", "no factor of replacement", STAT, q=1),
    _entry("float-laplace", "low bits of a float sum", "Mironov 2012", FLOAT, "lowest set bit", 1),
    _entry("seed-in-the-question", "noise from a public seed", SLIP, STRUCT, "'seed'"),
    _entry("seed-in-the-answer", "noise can be recomputed", SLIP, STRUCT, "private randomness"),
    _entry("nan-passes", "NaN in, NaN out", "spec 0.3", STAT, "NaN", 1),
    _entry("item-noise", "item-level noise, user-level claim", "spec 0.3: T in a scale", STAT, q=1),
    _entry("fresh-noise", "asked again, it draws again", SLIP, STRUCT, "fresh noise"),
    _entry("overlapping-cohorts", "two cohorts overlap", SLIP, STRUCT, "overlap"),
    _entry("asked-again", "one question in two rounds", SLIP, STRUCT, "asked again"),
    # local messages
    _entry("skips-empty", "the empty do not answer", "spec 0.3", STRUCT, "answer"),
    _entry("narrow-type", "the type of number depends on it", SLIP, WIRE, "length"),
    _entry("raises-on-nan", "an error that depends on the record", SLIP, STRUCT, "fails"),
    _entry("hidden-state", "a query with private state", SLIP, STRUCT, "not a field"),
    _entry("unknown-status", "a status that nobody knows", SLIP, STRUCT, "'garbage'"),
    # central releases
    _entry("no-replacement-factor", "C where 2 C is needed", "Liu et al. 2023, erratum 1", RUNS),
    _entry("one-draw-for-all", "one noise for all entries", SLIP, RUNS, "linear score", 1),
    # central decisions
    _entry("doubling-by-count", "stops by an exact count", SLIP, RUNS, "questions"),
    _entry(
        "keys-by-exact-count", "keys in the order of exact counts", SLIP, RUNS, "comes before", 1
    ),
)

TWINS = tuple(
    f"bank-ok-{name}"
    for name in (
        "laplace-mean",
        "opaque-mean",
        "two-halves",
        "padded",
        "histogram",
        "doubling",
        "listed",
    )
)
QUICK_TWINS = ("bank-ok-opaque-mean", "bank-ok-histogram")
