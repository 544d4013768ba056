"""From replies to a summary: every reply is decoded, checked and counted; none is skipped.

Whether a message passes depends on that message and the query alone, and every honest message
passes, whatever the record behind it. So leaving messages out says nothing about honest users.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.errors import MissingReplies, WireError, one_line
from fedhist.model.query import Query, Report, Summary, Tree
from fedhist.privacy.guarantee import Trust

if TYPE_CHECKING:
    from flwr.app import Message

    from fedhist.flower.wire import Answer

ELSEWHERE = "the user has answered on another node"


@dataclass(frozen=True)
class Collected:
    """One round's replies, added up.

    ``replies`` nodes were used; ``dropped`` counts why others were not, and single users' reports
    ("..., users"), and is NOT for a private report. ``last`` is the clock when the last reply had
    come.
    """

    summary: Summary
    replies: int
    bytes_received: int
    dropped: dict[str, int]
    last: float


class Intake:
    """Takes in the replies of one round, and adds them up as a tree over node indices.

    A sum that nothing can take back any more is added when it comes; the others wait for the end.
    Neither the order in which replies come nor how they are received changes a digit.

    A folded summary, or a message that cannot be read, is refused whole. Of unfolded reports, each
    user's is checked on its own, and of several that one user sends through its node the first good
    one counts. ``on_bad_reply`` says what becomes of a user whose report fails: "drop" leaves it
    out, and "stop" refuses all that its node sends. A node none of whose users is left, or with
    more than ``max_users``, has not answered.

    A reply belongs to whom it came from: the index that it claims fixes the order of adding up and
    nothing else. Where Flower's ids are consecutive from ``first`` on, as a simulation's are, a
    node's folded sum is final once it has passed; elsewhere another sender may still claim the
    index.
    """

    def __init__(
        self,
        query: Query,
        digest: str,
        on_bad_reply: str = "drop",
        max_users: int | None = None,
    ) -> None:
        self.query, self.digest, self.on_bad_reply = query, digest, on_bad_reply
        self.max_users = 1 << 40 if max_users is None else max_users
        self.dropped: Counter[str] = Counter()
        self._index: dict[int, int] = {}  # claimed by each sender; the keys below are senders, too
        self.first = 0
        self._tree = Tree()
        self._done: set[int] = set()  # whose sum is in the tree
        self._parts: dict[int, list[tuple[int, Summary]]] = {}  # with the first of their users
        self._used: dict[int, list[Words]] = {}
        self._stopped: set[int] = set()
        self._seen = Ids()
        self._sums: Counter[str] = Counter()  # largest sizes of what was added up
        self._came: set[int] = set()
        self._size, self._last = 0, time.perf_counter()

    def collect(
        self, replies: Iterable[Message], expected: int, min_replies: int | None = None
    ) -> Collected:
        """Take in all replies of a round, and add them up; MissingReplies for too few."""
        for message in replies:
            self._take(message)
        self._last = time.perf_counter()
        if len(self._came) < expected:
            self.dropped["no reply"] += expected - len(self._came)
        return self.total(expected, min_replies)

    def _take(self, message: Message) -> None:
        # Flower is imported by those who have messages of its kind; an inline run has none
        from fedhist.flower.wire import answer_bytes

        source = message.metadata.src_node_id
        self._came.add(source)
        try:
            answer = opened(message, ("summary", "report", "refusal"))
            used = self.use(answer.node, answer.digest, answer.body, source)  # type: ignore[arg-type]
        except WireError as e:
            self.dropped[str(e)] += 1
        else:
            self._size += answer_bytes(message.content) if used else 0

    def use(
        self, node: int, digest: str, body: Summary | Report, source: int | None = None
    ) -> bool:
        """Check what a node answers, and keep what passes; says whether anything does."""
        source = node if source is None else source
        if digest != self.digest and isinstance(body, Report):
            self._leave_out({"an answer to another query": body.n_users})
            return False
        if digest != self.digest:
            raise WireError(f"an answer to another query, {digest}")
        if body.n_users > self.max_users:
            raise WireError(
                f"a reply for {body.n_users} users; a node has {self.max_users} at most"
            )
        node = self._index.get(source, node)  # as it claimed with what was used first
        use = self._use_report if isinstance(body, Report) else self._use_sum
        return use(source, node, body)  # type: ignore[arg-type]

    def _use_sum(self, source: int, node: int, summary: Summary) -> bool:
        if source in self._index or source in self._stopped:
            raise WireError(f"node {node} answered twice")
        self.query.check_part(summary)
        if summary.ids is not None:
            if (summary.ids[1:] <= summary.ids[:-1]).any():
                raise WireError("rows of users must be in the order of their ids, each once")
            if self._seen.has(summary.ids).any():
                raise WireError(f"{ELSEWHERE}, or names its users")
        self._check_room(summary)  # the last: it notes the sizes of what is added
        if summary.ids is not None:
            self._seen.add(summary.ids)
        self.add(node, summary, source)
        return True

    def _check_room(self, summary: Summary) -> None:
        """Refuse whole numbers that wrap, and should not, when they are added to what is here."""
        if self.query.trust is Trust.AGGREGATE:
            return
        sums = {("sums", name): a for name, a in summary.sums.items()}
        sums |= {("keyed", name): k.values for name, k in summary.keyed.items()}
        whole = {str(key): a for key, a in sums.items() if a.size and a.dtype.kind in "iu"}
        sizes = {key: max(abs(int(a.min())), abs(int(a.max()))) for key, a in whole.items()}
        for key, size in sizes.items():
            if self._sums[key] + size >= 1 << 63:
                raise WireError(f"a sum of {size} does not fit into 64 bits with the others")
        self._sums.update(sizes)

    def _use_report(self, source: int, node: int, report: Report) -> bool:
        if self._has(source) and source not in self._used:
            raise WireError(f"node {node} answered twice")
        good, reasons = well_formed(self.query, report)
        if reasons and self.on_bad_reply == "stop":
            self._stopped.add(source)
        if reasons and (self.on_bad_reply == "stop" or not report.n_users):
            raise WireError(next(iter(reasons)))
        self._leave_out(reasons)
        self._index.setdefault(source, node)
        fresh = good & ~self._seen.has(report.ids)
        own = np.isin(report.ids, np.concatenate([report.ids[:0], *self._used.get(source, [])]))
        self._leave_out({"the user has answered already": int((good & own).sum())})
        self._leave_out({ELSEWHERE: int((good & ~fresh & ~own).sum())})
        if report.n_users and not fresh.any():
            return False
        rows = report if fresh.all() else take_rows(report, fresh)
        try:
            summary = self.query.fold(rows)
        except (TypeError, ValueError, OverflowError) as e:  # numbers of a type that nobody sends
            raise WireError(f"a report that cannot be folded: {e}") from None
        self.query.check_summary(summary)
        self._check_room(summary)
        self._used.setdefault(source, []).append(rows.ids)
        self._seen.add(rows.ids)
        self._wait(source, summary, rows.ids)
        return True

    def _leave_out(self, reasons: Mapping[str, int]) -> None:
        for reason, count in reasons.items():
            if count:
                self.dropped[f"{reason}, users"] += count

    def _has(self, source: int) -> bool:
        return source in self._parts or source in self._done

    def add(self, node: int, summary: Summary, source: int | None = None) -> None:
        """Keep a summary that needs no check, or has passed it, and is all that its node sends."""
        source = node if source is None else source
        index = self._index.setdefault(source, node)
        if self._has(source) or index != source - self.first:
            self._wait(source, summary)
            return
        self._tree.add(index, summary)
        self._done.add(source)

    def _wait(self, source: int, summary: Summary, ids: Words | None = None) -> None:
        """Keep a part until all have come: of one sender they are ordered by their first users."""
        first = -1 if ids is None or not len(ids) else int(ids.min())
        self._parts.setdefault(source, []).append((first, summary))

    def total(self, expected: int = 0, min_replies: int | None = None) -> Collected:
        """Add up what was kept, once; see :meth:`collect`."""
        senders = sorted(self._parts.keys() - self._stopped, key=lambda s: (self._index[s], s))
        replies = len(self._done) + len(senders)
        all_of = expected if self.query.quorum is None else self.query.quorum
        need = all_of if min_replies is None else min_replies
        told = {} if self.query.trust is Trust.SHUFFLE else dict(self.dropped)  # no reasons pass
        if replies < max(need, self.query.quorum or 1):
            raise MissingReplies(expected, replies, told, self.query.quorum or 0)
        leaves: dict[int, list[Summary]] = {}
        for sender in senders:
            parts = sorted(self._parts[sender], key=lambda part: part[0])
            leaves.setdefault(self._index[sender], []).extend(part for _, part in parts)
        summary = self.query.lift(self._merged(leaves), replies)
        return Collected(summary, replies, self._size, told, self._last)

    def _merged(self, leaves: dict[int, list[Summary]]) -> Summary:
        """Add what has waited to the tree; what others claim of a node's index comes after it."""
        more = Tree()
        for index, parts in leaves.items():
            there = index + self.first in self._done
            (more if there else self._tree).add(index, Summary.merge(parts))
        sums = [tree.total() for tree in (self._tree, more) if len(tree)]
        return sums[0] if len(sums) == 1 else Summary.merge(sums)


def opened(message: Message, kinds: tuple[str, ...]) -> Answer:
    """Unpack a reply; WireError, in words, for a failure or a refusal."""
    from fedhist.flower.wire import decode_answer

    if message.has_error():
        raise WireError(f"the client failed: {last_line(message.error.reason)}")
    answer = decode_answer(message.content, kinds)
    if isinstance(answer.body, str):
        raise WireError(f"the client refused: {one_line(answer.body)}")
    return answer


def last_line(reason: str | None) -> str:
    """Keep the line of a traceback that says what happened."""
    lines = [line.strip() for line in (reason or "").splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else "no reason given"


# -- users' reports one by one: which of them pass, and whose were here already --------------------


def well_formed(query: Query, report: Report) -> tuple[NDArray[np.bool_], Counter[str]]:
    """Check every row of a report: which rows pass, and why the others do not.

    A batch passes exactly if each of its rows does; one that fails is halved: some 2 m log(n / m)
    checks for m bad rows of n. Where not even its empty part passes, no row does. Numbers are left
    out of the reasons, so that like faults count together.
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
    return re.sub(r"[-+]?(?<![\w.])\d+(\.\d+)?(e[-+]?\d+)?", "#", reason)


def _fault(query: Query, report: Report) -> str | None:
    try:
        with np.errstate(over="ignore"):  # a square that overflows is larger than any bound
            query.check_cohort(report.ids)
            query.check(report)
    except WireError as e:
        return str(e)
    return None


class Ids:
    """User ids that have answered: sorted runs, of which two of a size become one."""

    def __init__(self) -> None:
        self._runs: list[Words] = []

    def add(self, ids: Words) -> None:
        """Keep distinct ids that are not here yet."""
        run = np.sort(ids)
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)

    def has(self, ids: Words) -> NDArray[np.bool_]:
        """Say which of these are here: (n,) bool."""
        known = np.zeros(len(ids), dtype=bool)
        for run in self._runs:
            if len(run):
                at = np.minimum(np.searchsorted(run, ids), len(run) - 1)
                known |= run[at] == ids
        return known
