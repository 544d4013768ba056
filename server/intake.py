"""From replies to a summary: every reply is decoded, checked and counted; none is skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import Message

from fedhist.base.arrays import Words
from fedhist.base.errors import MissingReplies, PopulationError, WireError
from fedhist.flower.wire import answer_bytes, decode_answer
from fedhist.model.query import Query, Report, Summary
from server.sift import sift, take_rows


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
    """

    summary: Summary
    replies: int
    bytes_received: int
    dropped: dict[str, int]


def collect(
    query: Query,
    digest: str,
    replies: Iterable[Message],
    expected: int,
    min_replies: int | None = None,
    on_bad_reply: str = "drop",
) -> Collected:
    """Decode, check, fold and merge the replies of a round, in the order of node indices.

    Parameters
    ----------
    query : Query
        What was asked.
    digest : str
        Its digest; a reply to another query is dropped.
    replies : iterable of Message
    expected : int
        Nodes that were asked.
    min_replies : int, optional
        Fewest that must answer; all of them by default.
    on_bad_reply : {"drop", "stop"}
        "drop" leaves out the users whose unfolded reports fail their checks and keeps the others
        of their node; "stop" refuses the node's reply. A folded summary that fails, or a reply in
        which every report does, is refused in either case: the node has not answered.

    Raises
    ------
    MissingReplies
        If too few answered; with the reasons, counted. Also if nobody answered.
    PopulationError
        If unfolded reports of one user came from two nodes.
    """
    found: dict[int, Summary] = {}
    seen: list[Words] = []
    dropped: Counter[str] = Counter()
    size = n_replies = 0
    for message in replies:
        n_replies += 1
        if message.has_error():
            dropped[f"the client failed: {_last_line(message.error.reason)}"] += 1
            continue
        try:
            answer = decode_answer(message.content)
            if isinstance(answer.body, str):
                raise WireError(f"the client refused: {answer.body}")
            if answer.digest != digest:
                raise WireError(f"an answer to another query, {answer.digest}")
            if answer.node in found:
                raise WireError(f"node {answer.node} answered twice")
            if isinstance(answer.body, Summary):
                query.check_summary(answer.body)
                found[answer.node] = answer.body
            else:
                report = _usable(query, answer.body, on_bad_reply, dropped)
                found[answer.node] = query.fold(report)
                seen.append(report.ids)
        except WireError as e:
            dropped[str(e)] += 1
        else:
            size += answer_bytes(message.content)
    if n_replies < expected:
        dropped["no reply"] += expected - n_replies
    need = expected if min_replies is None else min_replies
    if len(found) < max(need, 1):
        raise MissingReplies(expected, len(found), dropped)
    if seen:
        _check_distinct(np.sort(np.concatenate(seen)))
    summary = Summary.merge(found[i] for i in sorted(found))
    return Collected(summary, len(found), size, dict(dropped))


def _usable(query: Query, report: Report, on_bad_reply: str, dropped: Counter[str]) -> Report:
    """Return the rows that pass their checks; WireError if none does, or if all of them must."""
    try:
        with np.errstate(over="ignore"):  # a square that overflows is larger than any bound
            query.check_cohort(report.ids)
            query.check(report)
    except WireError:
        good, reasons = sift(query, report)
        if on_bad_reply == "stop" or not good.any():
            raise
        for reason, count in reasons.items():
            dropped[f"{reason}, users"] += count
        return take_rows(report, good)
    return report


def _check_distinct(ids: Words) -> None:
    """Raise PopulationError where two nodes sent reports of one user, who would count twice."""
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise PopulationError(f"user {int(twice[0])} answered on two nodes")


def _last_line(reason: str | None) -> str:
    """Keep the line of a traceback that says what happened."""
    lines = [line.strip() for line in (reason or "no reason given").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"
