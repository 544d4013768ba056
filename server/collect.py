"""From replies to a summary: every reply is decoded, checked and counted; none is skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from flwr.app import Message

from fedhist.errors import MissingReplies, PopulationError, WireError
from fedhist.mixing import Words
from fedhist.query import Query, Summary
from fedhist.wire import answer_bytes, decode_answer


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
        Why other replies were not used. Depends on the nodes: NOT for a private report.
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
                query.check_cohort(answer.body.ids)
                query.check(answer.body)
                found[answer.node] = query.fold(answer.body)
                seen.append(answer.body.ids)
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


def _check_distinct(ids: Words) -> None:
    """Raise PopulationError where two nodes sent reports of one user, who would count twice."""
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise PopulationError(f"user {int(twice[0])} answered on two nodes")


def _last_line(reason: str | None) -> str:
    """Keep the line of a traceback that says what happened."""
    lines = [line.strip() for line in (reason or "no reason given").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no reason given"
