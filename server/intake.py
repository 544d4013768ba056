"""From replies to a summary: every reply is decoded, checked and counted; none is skipped.

Whether a message passes depends on that message and the query alone, and every honest message
passes, whatever the record behind it. So leaving messages out says nothing about honest users.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.errors import MissingReplies, PopulationError, WireError
from fedhist.model.query import Query, Report, Summary

if TYPE_CHECKING:
    from flwr.app import Message

OTHER_QUERY = "an answer to another query"
TWICE = "the user has answered already"
NUMBER = re.compile(r"[-+]?(?<![\w.])\d+(\.\d+)?(e[-+]?\d+)?")

Nulls = Callable[[Query, str, int, Words], Report]
"""Answers to a query of the given digest, for users of the given node as if they had no data."""


@dataclass(frozen=True)
class Collected:
    """One round's replies, added up.

    Attributes
    ----------
    summary : Summary
    replies : int
        Nodes whose answer was used.
    bytes_received : int
        Size of the used answers.
    dropped : dict of str to int
        Why other replies were not used, and single users' reports ("..., users"). Depends on
        the nodes: NOT for a private report.
    replaced : int
        Users in whose place a null record stands.
    last : float
        Clock when the last reply had come; a grid may be receiving some while others are checked.
    """

    summary: Summary
    replies: int
    bytes_received: int
    dropped: dict[str, int]
    replaced: int
    last: float


class Intake:
    """Takes in the replies of one round, and adds them up in the order of node indices.

    A folded summary, or a message that cannot be read, is refused whole. Of unfolded reports, each
    user's is checked on its own, and of several that one user sends through its node the first good
    one counts.

    Parameters
    ----------
    query : Query
        What was asked.
    digest : str
        Its digest; a reply to another query is dropped.
    on_bad_reply : {"drop", "null", "stop"}
        What becomes of a user whose report fails its check: "drop" leaves it out, "null" puts the
        null record in its place, and "stop" refuses all that its node sends. A node none of whose
        users is left has not answered. An index belongs to the sender whose reply under it was the
        first to be used; a node sends one sum, or reports, and not both.
    nulls : callable, optional
        Makes null records' answers; "null" needs it.
    """

    def __init__(
        self, query: Query, digest: str, on_bad_reply: str = "drop", nulls: Nulls | None = None
    ) -> None:
        if on_bad_reply == "null" and nulls is None:
            raise ValueError('on_bad_reply = "null" needs somebody who answers for null records')
        self.query, self.digest, self.on_bad_reply = query, digest, on_bad_reply
        self.dropped: Counter[str] = Counter()
        self._nulls = nulls
        self._parts: dict[int, list[Summary]] = {}
        self._used: dict[int, list[Words]] = {}
        self._owner: dict[int, int] = {}  # who sent what is used under a node's index
        self._refused: dict[tuple[int, int], list[Words]] = {}  # by node and sender
        self._stopped: set[int] = set()  # senders
        self._came: set[int] = set()
        self._size, self._last = 0, time.perf_counter()

    def collect(
        self, replies: Iterable[Message], expected: int, min_replies: int | None = None
    ) -> Collected:
        """Take in all replies of a round and add them up.

        Parameters
        ----------
        replies : iterable of Message
        expected : int
            Nodes that were asked.
        min_replies : int, optional
            Fewest that must answer; all of them by default.

        Raises
        ------
        MissingReplies
            If too few answered; with the reasons, counted. Also if nobody answered.
        PopulationError
            If unfolded reports of one user came from two nodes.
        """
        for message in replies:
            self._take(message)
        self._last = time.perf_counter()
        if len(self._came) < expected:
            self.dropped["no reply"] += expected - len(self._came)
        return self.total(expected, min_replies)

    def _take(self, message: Message) -> None:
        # Flower is imported by those who have messages of its kind; an inline run has none
        from fedhist.flower.wire import answer_bytes, decode_answer

        self._came.add(message.metadata.src_node_id)
        if message.has_error():
            self.dropped[f"the client failed: {_last_line(message.error.reason)}"] += 1
            return
        try:
            answer = decode_answer(message.content)
            if isinstance(answer.body, str):
                raise WireError(f"the client refused: {answer.body}")
            source = message.metadata.src_node_id
            used = self.use(answer.node, answer.digest, answer.body, source)
        except WireError as e:
            self.dropped[str(e)] += 1
        else:
            self._size += answer_bytes(message.content) if used else 0

    def use(
        self, node: int, digest: str, body: Summary | Report, source: int | None = None
    ) -> bool:
        """Check what a node answers, and keep what passes; says whether anything does.

        Parameters
        ----------
        node : int
            Index that the reply claims.
        digest : str
            Of the query that it answers.
        body : Summary or Report
        source : int, optional
            Who sent it; by default the node.

        Raises
        ------
        WireError
            If all of it is refused, for one reason.
        """
        source = node if source is None else source
        if isinstance(body, Report):
            used = self._use_report(node, digest, body, source)
        else:
            used = self._use_sum(node, digest, body, source)
        if used:
            self._owner.setdefault(node, source)
        return used

    def _use_sum(self, node: int, digest: str, summary: Summary, source: int) -> bool:
        if digest != self.digest:
            raise WireError(f"{OTHER_QUERY}, {digest}")
        if node in self._parts or (node, source) in self._refused:
            raise WireError(f"node {node} answered twice")
        self.query.check_summary(summary)
        self.add(node, summary)
        return True

    def _use_report(self, node: int, digest: str, report: Report, source: int) -> bool:
        if digest != self.digest:
            self._leave_out({OTHER_QUERY: report.n_users})
            return False
        summed = node in self._parts and node not in self._used  # whoever is in it is in it already
        if summed or self._owner.get(node, source) != source:
            raise WireError(f"node {node} answered twice")
        good, reasons = sift(self.query, report)
        if reasons and self.on_bad_reply == "stop":
            self._stopped.add(source)
        if reasons and (self.on_bad_reply == "stop" or not report.n_users):
            raise WireError(next(iter(reasons)))
        self._leave_out(reasons)
        self._refused.setdefault((node, source), []).append(report.ids[~good])
        used = self._used.get(node, [])
        fresh = good & ~np.isin(report.ids, np.concatenate(used)) if used else good
        self._leave_out({TWICE: int(good.sum() - fresh.sum())})
        if report.n_users and not fresh.any():
            return False
        kept = report if fresh.all() else take_rows(report, fresh)
        self._used.setdefault(node, []).append(kept.ids)
        self.add(node, self.query.fold(kept))
        return True

    def _leave_out(self, reasons: Mapping[str, int]) -> None:
        for reason, count in reasons.items():
            if count:
                self.dropped[f"{reason}, users"] += count

    def add(self, node: int, summary: Summary) -> None:
        """Keep a summary that needs no check, or has passed it."""
        self._parts.setdefault(node, []).append(summary)

    def total(self, expected: int = 0, min_replies: int | None = None) -> Collected:
        """Add up what was kept; see :meth:`collect`."""
        replaced = self._replace()
        stopped = {node for node, source in self._owner.items() if source in self._stopped}
        found = {node: self._parts[node] for node in sorted(self._parts.keys() - stopped)}
        need = expected if min_replies is None else min_replies
        if len(found) < max(need, 1):
            raise MissingReplies(expected, len(found), self.dropped)
        _check_distinct([ids for node in found for ids in self._used.get(node, ())])
        summary = self._merged([part for parts in found.values() for part in parts])
        return Collected(summary, len(found), self._size, dict(self.dropped), replaced, self._last)

    def _replace(self) -> int:
        """Answer for the null record in the place of users who sent no good report."""
        replaced = 0
        if self.on_bad_reply != "null" or self._nulls is None:
            return replaced
        for (node, source), refused in self._refused.items():
            if self._owner.get(node, source) != source:
                continue  # somebody else's node
            used = [ids for parts in self._used.values() for ids in parts]
            left = np.setdiff1d(np.concatenate(refused), np.concatenate([*used, refused[0][:0]]))
            report = self._nulls(self.query, self.digest, node, left)
            if report.n_users:
                self._owner[node] = source
                self._used.setdefault(node, []).append(report.ids)
                self.add(node, self.query.fold(report))
                replaced += report.n_users
        return replaced

    def _merged(self, parts: Sequence[Summary]) -> Summary:
        return Summary.merge(parts)


def sift(query: Query, report: Report) -> tuple[NDArray[np.bool_], Counter[str]]:
    """Check every row of a report.

    Returns
    -------
    good : (n,) bool
        Rows that pass.
    reasons : Counter of str
        Why the others do not; where there are several rows numbers are left out, so that like
        faults count together.

    Notes
    -----
    A batch passes exactly if each of its rows does. Where not even its empty part passes, names,
    types or shapes are wrong, and no row does. Else a batch that fails is halved: the cost is one
    check where all is well, and some 2 m log(n / m) for m bad rows of n.
    """
    n = report.n_users
    good = np.ones(n, dtype=bool)
    reasons: Counter[str] = Counter()
    why = _fault(query, report)
    if why is None:
        return good, reasons
    if n == 1:
        return ~good, Counter({why: 1})
    none = _fault(query, take_rows(report, np.arange(0)))
    if none is not None:
        return ~good, Counter({without_numbers(none): n})
    spans = [(0, n)]
    while spans:
        a, b = spans.pop()
        why = _fault(query, take_rows(report, np.arange(a, b)))
        if why is None:
            continue
        if b - a <= 1:
            good[a:b] = False
            reasons[without_numbers(why)] += b - a
        else:
            spans += [(a, (a + b) // 2), ((a + b) // 2, b)]
    return good, reasons


def take_rows(report: Report, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Report:
    """Return the given rows of a report, by number or by mask."""
    at = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    dense = {name: a[at] for name, a in report.arrays.items()}
    if report.indptr is None:
        return Report(report.ids[at], dense)
    sizes = np.diff(report.indptr)[at]
    indptr = offsets(sizes)
    flat = np.arange(indptr[-1]) + np.repeat(report.indptr[:-1][at] - indptr[:-1], sizes)
    return Report(report.ids[at], dense, {n: a[flat] for n, a in report.ragged.items()}, indptr)


def without_numbers(reason: str) -> str:
    """Return a reason with its numbers left out.

    >>> without_numbers("'votes' holds -3.5e+10, outside [0, 1]")
    "'votes' holds #, outside [#, #]"
    """
    return NUMBER.sub("#", reason)


def _fault(query: Query, report: Report) -> str | None:
    try:
        with np.errstate(over="ignore"):  # a square that overflows is larger than any bound
            query.check_cohort(report.ids)
            query.check(report)
    except WireError as e:
        return str(e)
    return None


def _check_distinct(parts: Sequence[Words]) -> None:
    """Raise PopulationError where two nodes sent reports of one user, who would count twice."""
    ids = np.concatenate([np.zeros(0, np.uint64), *parts])
    if not (ids[1:] > ids[:-1]).all():
        ids = np.sort(ids)
        twice = ids[1:][ids[1:] == ids[:-1]]
        if len(twice):
            raise PopulationError(f"user {int(twice[0])} answered on two nodes")


def _last_line(reason: str | None) -> str:
    """Keep the line of a traceback that says what happened."""
    lines = [line.strip() for line in (reason or "no reason given").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"
