"""Laws of refusals: what nobody honest reports or sends, by a little or by far, is a WireError."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.guarantee import Trust
from server.intake import take_rows
from simulations.contract.law import ANY_NODES, law, refused
from simulations.contract.subject import Subject

FAR = 1 << 40
"""More than any honest user sends in one entry."""
FEW = 64
"""Users whose sums are looked at one by one: those of extreme records, and some of the example."""
CELLS = 16
"""How many cells behind the furthest one may be there for users whom the example lacks."""
A_LITTLE = 1e-3
"""By how much of an entry a value is beyond what honest users reach; of integers by 1 at least."""


@law(ANY_NODES)
def what_nobody_honest_reports_is_refused(subject: Subject) -> None:
    """One user's report with an entry that no honest one has fails ``check``, or changes nothing.

    An entry a little further out than honest users and users of extreme records reach fails it. If
    it lets one pass that is far out, of another type, or a cell that nobody is in, what that adds
    to the sums must be what ``bounds`` allow one user.
    """
    for query, reports in subject.honest:
        drawn = query.trust is not Trust.CENTRAL
        users = one_by_one(reports)
        spoilt = list(_spoilt(users[0]))
        for part, name in [(p, k) for p in ("arrays", "ragged") for k in getattr(users[0], p)]:
            rows = [getattr(user, part)[name] for user in users]
            if part == "ragged" and rows[0].dtype == np.uint8:
                continue  # bytes of records, whose counts are what they add up to
            for i, beyond in a_little_beyond(rows, drawn=drawn):
                bad, told = _with(users[i], part, name, beyond), f"{name} = {beyond}"
                if part == "arrays" and rows[i].size == 1 and beyond > rows[i] and not drawn:
                    further = (beyond + k * (beyond - rows[i]) for k in range(CELLS))
                    spoilt += [(_with(bad, part, name, x), f"{name} = {x}") for x in further]
                    continue
                with refused(WireError, f"{query.wire_name} with {told}"):
                    query.check(bad)
        for bad, what in spoilt:
            try:
                query.check(bad)
            except WireError:
                continue
            told = f"{query.wire_name} takes a report with {what}"
            try:
                query.check_summary(query.fold(bad))
            except WireError as e:
                raise AssertionError(f"{told}, which no one user can add: {e}") from None


def one_by_one(reports: Sequence[Report]) -> list[Report]:
    """Split reports by user."""
    return [take_rows(report, np.array([i])) for report in reports for i in range(report.n_users)]


def _with(whole: Any, part: str, name: str, array: Any) -> Any:
    return dataclasses.replace(whole, **{part: getattr(whole, part) | {name: array}})


def a_little_beyond(rows: Sequence[Array], *, drawn: bool) -> Iterator[tuple[int, Array]]:
    """Yield rows that go furthest, a little further out, and which rows they are.

    Those of the largest and the least entry; of the largest norm, as a whole; and of the largest
    sum of numbers without sign, in the entry that others exceed most. Of what is ``drawn`` sums
    count where all are the same, and symbols if all up to the last were sent: the next one may say
    nothing, so that it is left out.
    """
    values = np.zeros((len(rows), max(a.size for a in rows)))
    for row, a in zip(values, rows, strict=True):
        row[: a.size] = a.ravel()
    sent, symbols = np.unique(values), drawn and rows[0].dtype.kind == "u"
    if rows[0].dtype.kind not in "iuf" or not len(sent) or (symbols and sent[-1] >= len(sent)):
        return
    size, total = np.abs(values), values.sum(axis=1)
    least = 2 if symbols else A_LITTLE
    moves = []
    for largest, sign in ((values.max(axis=1), 1), (-values.min(axis=1), -1)):
        i = int(np.argmax(largest))
        moves.append((i, int(np.argmax(sign * values[i])), sign))
    if sent[0] >= 0 and not (drawn and np.ptp(total)):
        i = int(np.lexsort((-size.max(axis=1), total))[-1])
        moves.append((i, int(np.argmax(values.max(axis=0) - values[i])), 1))
    for i, at, away in moves:
        if at < rows[i].size and values[i, at] * away >= 0:
            beyond = np.zeros(rows[i].shape)
            beyond.flat[at] = away * max(abs(values[i, at]) * A_LITTLE, least)
            yield i, _moved(rows[i], beyond)
    norm = np.sqrt(np.square(size).sum(axis=1))
    longest = norm >= (1 - A_LITTLE) * norm.max()
    i = int(np.argmin(np.where(longest, size.max(axis=1), np.inf)))  # with room in every entry
    if norm[i] and not symbols:
        yield i, _moved(rows[i], 10 * A_LITTLE * rows[i])


def _moved(a: Array, away: Any) -> Array:
    """Move a row, in integers by whole numbers; of the same type if that has room."""
    if a.dtype.kind in "iu":
        away = np.sign(away) * np.ceil(np.abs(away))
    moved = a + np.asarray(away, np.float64)
    fitting: Array = moved.astype(a.dtype)
    return fitting if np.array_equal(fitting, moved) else moved


def _spoilt(report: Report) -> Iterator[tuple[Report, str]]:
    """Change the first entry of each array: to the ends of its type, and of wider types."""
    for part in ("arrays", "ragged"):
        for name, a in getattr(report, part).items():
            if not a.size or a.dtype.kind not in "biuf":
                continue
            values: list[tuple[type | np.dtype[Any], float]] = [(np.int64, FAR), (np.int64, -1)]
            values += [(np.float64, x) for x in (math.nan, math.inf, FAR)]
            if a.dtype.kind in "iu":
                top = np.iinfo(a.dtype)
                values += [(a.dtype, max(top.min, -FAR)), (a.dtype, min(top.max, FAR))]
            for dtype, value in values:
                changed = a.astype(dtype)
                changed.flat[0] = value
                yield _with(report, part, name, changed), f"{name} = {value:g} of {np.dtype(dtype)}"


@law(ANY_NODES)
def what_nobody_honest_sends_is_refused(subject: Subject) -> None:
    """Summaries of other parts, shapes, types or sizes, or that are not finite, are a WireError.

    And those of one user that are a little further out than users of extreme records reach.
    """
    for query, reports in subject.honest:
        drawn = query.trust is not Trust.CENTRAL
        users = one_by_one(reports)
        summaries = [query.fold(user) for user in users[-FEW:]]  # extreme records come last
        for part in ("sums", "keyed", "rows"):
            for name in getattr(summaries[0], part):
                entries = [getattr(summary, part)[name] for summary in summaries]
                rows = [e.values if part == "keyed" else e for e in entries]
                by_name = any(values.ndim > 1 for values in rows) and part == "keyed"
                for i, beyond in a_little_beyond(rows, drawn=drawn or by_name):
                    entry = (
                        dataclasses.replace(entries[i], values=beyond)
                        if part == "keyed"
                        else beyond
                    )
                    with refused(WireError, f"{query.wire_name} with {name} = {beyond}"):
                        query.check_summary(_with(summaries[i], part, name, entry))
    for query, _, summary in subject.asked[:2]:
        query.check_summary(summary)
        for what, bad in corruptions(query, summary):
            with refused(WireError, f"{query.label!r} with {what}"):
                query.check_summary(bad)


def corruptions(query: Query, summary: Summary) -> list[tuple[str, Summary]]:
    """Return summaries that no honest population of that size can send, each with what it is."""
    bad: list[tuple[str, Summary]] = []
    swap, n = dataclasses.replace, summary.n_users
    for name, a in summary.sums.items():
        huge, others = a.copy(), {k: v for k, v in summary.sums.items() if k != name}
        huge.flat[0] = 2**62 if a.dtype.kind in "iu" else 1e300
        changed = {
            "an axis more": a[None],
            "twice as long": np.concatenate([a, a]),
            "as text": a.astype(str),
            "as objects": a.astype(object),
            "as complex numbers": a.astype(complex),
            "of another type": a.astype(np.int64 if a.dtype.kind == "f" else np.float64),
        }
        if math.isfinite(query.bounds(n)[name].high):  # a sum of Laplace reports has no bound
            changed["too large"] = huge
        for x in (np.nan, np.inf, -np.inf) if a.dtype.kind == "f" else ():
            changed[f"with {x}"] = a.copy()
            changed[f"with {x}"].flat[-1] = x
        bad += [(f"{name} {w}", _with(summary, "sums", name, b)) for w, b in changed.items()]
        bad.append((f"no {name}", swap(summary, sums=others)))
        bad.append(("a sum more", _with(summary, "sums", "more", a)))
        if np.any(a):
            bad.append((f"{name} of no users", swap(summary, n_users=0)))
        rows, ids = {name: np.resize(a, (n, *a.shape[1:]))}, np.arange(n, dtype=np.uint64)
        hidden = swap(summary, sums={name: huge}, rows=rows, ids=ids)
        bad.append((f"{name} in another part as well", hidden))
    for name, part in summary.keyed.items():
        bad.append((f"no {name}", swap(summary, keyed={})))
        for what, values in (
            ("huge", part.values + 2**60),
            ("negative", -part.values),
            ("of another type", part.values * 1.0),
        ):
            spoilt = _with(summary, "keyed", name, swap(part, values=values))
            bad.append((f"{what} {name}", spoilt))
        moved = swap(summary, keyed={}, sums={name: part.values})
        bad.append((f"{name} in another part", moved))
    for name, a in summary.rows.items():
        broken = a.copy()
        broken[0] = np.nan
        bad.append(("a row of NaN", _with(summary, "rows", name, broken)))
        bad.append(("huge rows", _with(summary, "rows", name, a + 1e9)))
        bad.append(("rows more", _with(summary, "rows", "more", a)))
        bad.append(("no rows", swap(summary, rows={}, ids=None)))
    return bad
