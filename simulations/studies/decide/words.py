"""A decision in sentences: the verdict on each level of trust, and what holds for all of them."""

from __future__ import annotations

import math

from fedhist.model.registry import display_of
from fedhist.privacy.guarantee import Trust
from simulations.reporting.numbers import number
from simulations.studies.decide.findings import Decided, Finding
from simulations.studies.decide.search import HIGH, LOW, OFF, Trial
from simulations.studies.profile.profile import lopsided
from simulations.studies.records.scale import MIDPOINT, UNIFORM, ZEROS

NAMES = {
    Trust.CENTRAL: "A trusted server",
    Trust.AGGREGATE: "Secure aggregation",
    Trust.SHUFFLE: "A trusted shuffler",
    Trust.LOCAL: "Nobody trusted (local)",
}
WEAK = 10.0
"""From this epsilon on a verdict says that the promise is a weak one."""
MODEST = 4.0
"""From this epsilon on a promise is called modest, and it is said what it allows."""
FREE = {ZEROS: "0 everywhere", UNIFORM: "all alike (uniform)", MIDPOINT: f"the {MIDPOINT}"}
NONE = ("", math.inf)
NEAR = 3.0
"""Times the target within which an answer without data is worth a word."""
BETTER = 1.2
"""Times the epsilon of less trust from which on more trust is said to do worse."""
FAR = 1.5
"""Times theory's epsilon from which on the answer says theory's, too."""
FLAT = 1.4
"""Times the epsilon at which an error would be seen to fall if it were noise."""
ADJACENCY = "replace-user: one user's whole record is replaced by any other"


def asked(d: Decided) -> str:
    """Say what is asked, in one line."""
    q = d.settled.question
    entries = d.settled.measure.entries
    what = {
        "histogram": f"histogram of {entries:,} items",
        "distribution": f"distribution over {entries:,} items",
        "quantiles": f"{entries} quantiles",
    }.get(q.target, q.target)
    who = f"{what} from {d.settled.ready.n_users:,} users"
    if q.error is not None and q.epsilon is not None:
        return (
            f"{who}, at most {q.asked} off at epsilon = {q.epsilon:g}: how many users does it take?"
        )
    if q.error is not None:
        return f"{who}, at most {q.asked} off: which epsilon does it take?"
    return f"{who} at epsilon = {q.epsilon:g}: how far off is it?"


def terms(d: Decided) -> list[str]:
    """Say what holds for every line: loss, unit, adjacency, delta."""
    q, truth = d.settled.question, d.settled.ready.truth
    return [
        f"Error: {d.settled.measure.words}.",
        f"What is exact: {truth.value}, {truth.in_words}.",
        f"All under {ADJACENCY}; user-level, delta = {q.delta:g}.",
    ]


def verdicts(d: Decided) -> list[str]:
    """Write a sentence or two for each level."""
    return [f"{NAMES[f.level]}: {_verdict(d, f)}{_less_trust(d, f)}" for f in d.findings]


def _less_trust(d: Decided, f: Finding) -> str:
    """Say where a protocol that trusts less does better, which is open to those who trust more.

    What needs nobody needs no aggregation and no shuffler; a trusted server can play any of them.
    """
    q = d.settled.question
    if q.epsilon is not None or q.error is None:
        return ""
    less = [g for g in d.findings if g.level is not f.level and g.status == "reached" and g.x]
    if f.level is not Trust.CENTRAL:
        less = [g for g in less if g.level is Trust.LOCAL]
    best = min(less, key=lambda g: g.x or math.inf, default=None)
    own = f.x if f.status == "reached" and f.x else math.inf
    if best is None or best.x is None or BETTER * best.x > own:
        return ""
    stop = "." if f.candidate is None else ""  # after a reason, which has none
    return f"{stop} {NAMES[best.level]} takes {_epsilon(best.x)}, and that can be done here, too."


def _verdict(d: Decided, f: Finding) -> str:
    if f.candidate is None or f.trial is None:
        return f"not available. {_first(f.reason)}"
    solved = d.settled.question.epsilon is None
    if f.status == "measured":
        return (
            f"{_error(d, f.trial)} with {_protocol(f)}{_useless(d, f.trial)}{_theory(d, f.trial)}."
        )
    if f.status == "unsimulated":
        return (
            f"about {number(f.x, 3)} users by theory with {_protocol(f)}; so many are too many to "
            f"simulate. Your {d.settled.ready.n_users:,} users: {_error(d, f.trial)}."
        )
    if f.status == "reached":
        x = _epsilon(f.x) if solved else f"{number(f.x)} users"
        if solved and f.x is not None and f.planned and f.x >= FAR * f.planned:
            x += f" (by theory {number(f.planned, 3)}, which simulation did not bear out)"
        weak = ", a weak promise" if solved and f.x is not None and f.x >= WEAK else ""
        return f"yes, at {x}{weak}: {_protocol(f)}, {_error(d, f.trial)}{_theory(d, f.trial)}."
    if not solved:
        why = f" ({_first(f.reason)})" if f.reason else ""
        return (
            f"no number of users was found{why}. {_protocol(f)} with "
            f"{d.settled.ready.n_users:,} users: {_error(d, f.trial)}."
        )
    limit = (
        _left(f, ranked=d.settled.measure.ranked) if f.status == "not reached" else ""
    ) + _unsimulated(f)
    reach = f"no, at no epsilon up to {HIGH:g}"
    if f.status == "unsettled":
        reach = "not settled: theory reaches it, simulation did not yet"
    return (
        f"{reach}. Nearest: {_protocol(f)}, {_error(d, f.trial)} at epsilon = "
        f"{number(f.trial.x, 3)}{_useless(d, f.trial)}{_theory(d, f.trial)}.{limit}"
    )


def _unsimulated(f: Finding) -> str:
    """Say of whom theory alone says that they do not reach the target."""
    seen = {t.candidate.title for t in f.trials} | set(f.compared)
    names = [p.candidate.title for p in f.others if p.candidate.title not in seen]
    return f" Not simulated, so by theory alone: {', '.join(names)}." if names else ""


def _epsilon(x: float | None) -> str:
    """Write an epsilon that was found; the least that is tried is an upper end."""
    least = " or less" if x is not None and x <= LOW else ""
    return f"epsilon = {number(x, 3)}{least}"


def _times(epsilon: float) -> str:
    """Write e^epsilon."""
    x = math.exp(epsilon)
    return f"{x:,.0f}" if x < 1e9 else f"{x:.1e}"


def _left(f: Finding, *, ranked: bool) -> str:
    """Say what an error is mostly made of that no epsilon brings down."""
    limit = f.answer.limit if f.answer is not None else ""
    if not _flat(f) and (not limit or limit.startswith("noise")):  # "noise" alone: not known
        return " What is left there is mostly noise." if "%" in limit else ""
    clipped = "what is clipped, or not asked of a user"
    what = "that many users share a number or a bin" if ranked else clipped
    return f" What is left there is not noise: it is {what}."


def _flat(f: Finding) -> bool:
    """Say whether simulation showed that more epsilon does not help."""
    own = [t for t in f.trials if t.error and f.trial and t.candidate == f.trial.candidate]
    if not own:
        return False
    low, high = min(own, key=lambda t: t.x), max(own, key=lambda t: t.x)
    return high.x >= FLAT * low.x and (high.error or 0) >= 0.95 * (low.error or 0)


def _protocol(f: Finding) -> str:
    if f.candidate is None:
        return ""
    settings = f.candidate.settings
    return f.candidate.title + (f" ({settings})" if settings else "")


def _error(d: Decided, t: Trial) -> str:
    m = d.settled.measure
    half = "" if t.half_width is None else f" ± {m.write(t.half_width)}"
    target = d.settled.question.error
    beyond = target is not None and t.met(target) and t.error is not None and t.error > target
    good = t.runs - t.missing
    runs = f"{good} runs" if not t.missing else f"{good} of {t.runs} runs; the others gave nothing"
    inside = ", the target within its interval" if beyond else ""
    return f"simulated {m.write(t.error)}{half}{inside} ({runs})"


def _useless(d: Decided, t: Trial) -> str:
    worse = d.settled.measure.divides and t.error is not None and t.error >= 1
    free, least = without_data(d)
    if free and t.error is not None and t.error >= least:
        return f", worse than answering {free}"
    return ", worse than answering 0 everywhere" if worse else ""


def without_data(d: Decided) -> tuple[str, float]:
    """Name the best answer that needs no data, and its error as it is said; empty for none.

    A uniform histogram is none: it is told the true total.
    """
    m, target = d.settled.measure, d.settled.question.target
    row = next((t.row for f in d.findings for t in f.trials if t.row and t.row.trivial), None)
    found = {
        FREE.get(name, name): m.shown(loss)
        for name, loss in (row.trivial if row is not None else {}).items()
        if name != UNIFORM or display_of(target).unit != "counts"
    }
    return min(
        ((k, v) for k, v in found.items() if v is not None), key=lambda x: x[1], default=NONE
    )


def _free(d: Decided) -> str:
    """Say it where an answer without data meets the target, or comes near to it."""
    free, least = without_data(d)
    target = d.settled.question.error
    if not free or target is None or least > NEAR * target:
        return ""
    said = f"answering {free}, without asking anybody, is {d.settled.measure.write(least)} off"
    return f"{said}: that meets the target, which asks for too little" if least <= target else said


def _theory(d: Decided, t: Trial) -> str:
    """Say how far off theory was."""
    m = d.settled.measure
    if t.ratio is None:
        return "; theory says nothing"
    said = f"; theory {m.write(t.theory)}"
    if off(t):
        factor = max(t.ratio, 1 / t.ratio)
        said += f", OFF BY A FACTOR OF {factor:.2g}: the simulation counts"
    return said


def off(t: Trial | None) -> bool:
    """Say whether theory and simulation differ by more than a factor 2."""
    return t is not None and t.ratio is not None and not 1 / OFF <= t.ratio <= OFF


def _first(reason: str, most: int = 200) -> str:
    """Return the beginning of a reason, up to a whole part of it."""
    parts, out = reason.split("; "), ""
    for part in parts:
        if out and len(out) + len(part) > most:
            return f"{out}; ..."
        out = f"{out}; {part}" if out else part
    return out


def in_short(d: Decided) -> str:
    """Say in one sentence what to do, and in another what needs no data at all."""
    free = _free(d)
    return _answer(d) + (f" But {free}." if free else "")


def _answer(d: Decided) -> str:
    q = d.settled.question
    if q.error is None:
        return _least_error(d)
    reached = [f for f in d.findings if f.status == "reached" and f.x is not None]
    if not reached:
        said = f"{q.asked} was not reached by simulation under any of these kinds of trust"
        return f"{said}: ask for less (a larger error, fewer items), or bring more users."
    if q.epsilon is not None:
        least = reached[-1]
        return (
            f"of what was simulated, {_lower(least)} is the least trust that reaches {q.asked}, "
            f"with {number(least.x)} users."
        )
    strong = [f for f in reached if f.x is not None and f.x < WEAK]
    if not strong:
        least = min(reached, key=lambda f: f.x or math.inf)
        return (
            f"{q.asked} takes epsilon = {number(least.x, 3)} even with {_lower(least)}, and that "
            f"promises next to nothing (from about {WEAK:g} on): ask for less, or bring more users."
        )
    least = strong[-1]
    best = min(strong, key=lambda f: f.x or math.inf)
    whom = "nobody need be trusted" if least.level is Trust.LOCAL else f"{_lower(least)} will do"
    text = f"for {q.asked} {whom}, at {_epsilon(least.x)}"
    text += ", a modest promise" if (least.x or 0) >= MODEST else ""
    if best is not least:
        text += (
            f"; {_lower(best)} brings that down to {_epsilon(best.x).removeprefix('epsilon = ')}"
        )
    return text + "."


def _least_error(d: Decided) -> str:
    """Say which level has the least error, and the least trust that is of any use."""
    m = d.settled.measure
    errors = {f.level: f.trial.error for f in d.findings if f.trial is not None}
    found = [(f, e) for f in d.findings if (e := errors.get(f.level)) is not None]
    if not found:
        return "nothing could be measured under any of these kinds of trust."
    best, least = min(found, key=lambda item: item[1])
    text = f"the least error is {m.write(least)}, with {_lower(best)}"
    useful = [(f, e) for f, e in found if e < 1] if m.divides else []
    if useful and useful[-1][0] is not best:
        last, error = useful[-1]
        text += f"; the least trust that beats answering 0 everywhere is {_lower(last)}: "
        text += m.write(error)
    return text + "."


def _lower(f: Finding) -> str:
    name = NAMES[f.level]
    return name[0].lower() + name[1:]


def believed(d: Decided) -> list[str]:
    """Say what must be believed on each level that has an answer."""
    out = []
    for f in d.findings:
        row = None if f.candidate is None else f.row
        if row is not None and row.believed is not None:
            whose = ""
            if f.trial is not None and f.trial.row is None:
                whose = f" (said of your {d.settled.ready.n_users:,} users)"
            out.append(f"{f.level.value}: believe {row.believed.words}{whose}")
    return out


def notes(d: Decided) -> list[str]:
    """List what was not private, and what a reader must know to trust the numbers."""
    q = d.settled.question
    out = [
        "NOT PRIVATE: errors, theory and what they chose were computed from the users' data",
        *(f"NOT PRIVATE: {note}" for note in d.settled.read),
        *(f"NOT PRIVATE: {fact}" for fact in d.settled.profile.facts()),
        *(f"NOT PRIVATE: {w}" for w in lopsided(d.settled.loaded, d.settled.profile.held)),
        f"simulated: {q.seeds} runs of each protocol on these users; ± is Student's 95% interval "
        "of the mean over seeds. It speaks of the noise, not of other users",
    ]
    if q.delta > 1 / d.settled.ready.n_users:
        out.append(
            f"delta = {q.delta:g} is above 1 / {d.settled.ready.n_users:,} users: a protocol could "
            "publish somebody's record and keep the promise"
        )
    largest = max((f.x for f in d.findings if f.status == "reached" and f.x), default=0.0)
    if largest >= MODEST and q.epsilon is None:
        x = number(largest, 3)
        out.append(
            f"epsilon = {x} lets one user's data make an outcome e^{x} = {_times(largest)} "
            f"times likelier; a promise is modest from about {MODEST:g} on, weak from {WEAK:g}"
        )
    for f in d.findings:  # what a run would warn of, too
        records = f.row.records if f.candidate is not None and f.row is not None else ()
        warned = [r.warnings[0] for r in records if r.warnings]
        if warned:
            out.append(f"{f.level.value}: {warned[0]} ({len(warned)} of {len(records)} runs)")
    if d.settled.left_out:
        names = "; ".join(dict.fromkeys(label for label, _ in d.settled.left_out))
        out.append(f"not considered, for reasons that the page and its tables say: {names}")
    if any(off(t) for f in d.findings for t in f.trials):
        out.append(
            "where theory and simulation differ by more than a factor 2, the simulation counts"
        )
    return out
