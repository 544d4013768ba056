"""A population some of whose users and nodes misbehave, in this process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from clients.node import streams
from fedhist.base.arrays import Words
from fedhist.base.errors import MissingReplies, WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.session.codec import query_digest
from fedhist.session.session import Session
from fedhist.users.batch import Users
from server.sift import OTHER_QUERY, gather, take_rows, without_numbers
from simulations.adversaries.corrupted_records import default_target, emptied, poisoned
from simulations.adversaries.gain import best_messages
from simulations.adversaries.malformed import FORMS, malform_report, malform_summary
from simulations.adversaries.table import Adversary, assign
from simulations.runtimes.inline import InlinePopulation, Progress

SILENT = {"dropout": "no answer", "straggler": "an answer after the timeout"}
NODE_TWICE = "the node has answered already"
UNFIT = "cannot be added up"
INDEX_NAMES, MOST_INDEX = ("item", "index"), 1 << 24
"""A server that counts by index without looking makes a table as long as the largest one."""
Sent = list[tuple[str, Report]]


class Assigned:
    """Who follows which table, and the records that poisoning leaves.

    Parameters
    ----------
    adversaries : sequence of Adversary
    nodes : sequence of Users

    Attributes
    ----------
    nodes : list of Users
        With the attackers' records in place of the poisoned users' own.
    node_table : (n_nodes,) int64
        Number of the table that a node follows as a whole; -1 for none.
    """

    def __init__(self, adversaries: Sequence[Adversary], nodes: Sequence[Users]) -> None:
        self.adversaries = tuple(adversaries)
        numbers = np.arange(len(nodes), dtype=np.uint64)
        of_node = assign(self.adversaries, "node", numbers, np.ones(len(nodes)))
        ids = np.concatenate([u.ids for u in nodes])
        sizes = np.concatenate([u.n_items() for u in nodes])
        of_user = assign(self.adversaries, "user", ids, sizes)
        whole = np.repeat(of_node, [len(u) for u in nodes])
        poisons = np.array([a.poisons for a in self.adversaries] + [False])
        of_user = np.where((of_user < 0) & poisons[whole], whole, of_user)
        self.node_table = np.where(poisons[of_node], -1, of_node)
        order = np.argsort(ids)
        self._ids, self._table = ids[order], of_user[order]
        self.nodes = list(nodes)
        for number, adversary in enumerate(self.adversaries):
            if adversary.poisons and (of_user == number).any():
                target = adversary.target
                target = default_target(nodes) if target is None else target
                self.nodes = [poisoned(u, self.table(u.ids) == number, target) for u in self.nodes]

    def table(self, ids: Words) -> NDArray[np.int64]:
        """Return the number of the table that each user follows; -1 for the honest."""
        return np.asarray(self._table[np.searchsorted(self._ids, ids)])

    def of_kind(self, table: NDArray[np.int64], *kinds: str) -> NDArray[np.bool_]:
        """Say which users follow a table of one of these kinds."""
        known = np.array([a.kind in kinds for a in self.adversaries] + [False])
        return np.asarray(known[table])

    def form(self, number: int, node: int) -> str:
        """Return the form of a malformed node's summary."""
        form = self.adversaries[number].form
        return FORMS[node % len(FORMS)] if form == "any" else form


class HostilePopulation(InlinePopulation):
    """Nodes in this process, whose users' messages reach the server one by one.

    Parameters
    ----------
    nodes : sequence of Users
        Honest records.
    seed : int
    adversaries : sequence of Adversary
    checks : bool
        False: the server uses whatever can be added up, late and foreign answers apart. NOT SAFE.
    on_bad_reply : {"drop", "null", "stop"}
        What becomes of a user whose message fails: nothing, the null record, or a WireError.
    min_replies : int, optional
        Fewest nodes that must answer; default: all.
    progress : callable, optional

    Attributes
    ----------
    injected, dropped : Counter of str
        Messages tampered with, by what was done; messages not used, by reason. Over all rounds.
        NOT PRIVATE.
    nulls : int
        Null records put in the place of refused messages.

    Notes
    -----
    "replay" sends the user's answer to the question before, or in the first round an answer to the
    same question of another run.
    """

    def __init__(
        self,
        nodes: Sequence[Users],
        seed: int,
        adversaries: Sequence[Adversary] = (),
        *,
        checks: bool = True,
        on_bad_reply: str = "drop",
        min_replies: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.assigned = Assigned(adversaries, nodes)
        super().__init__(self.assigned.nodes, seed, fold=False, progress=progress)
        self.checks, self.on_bad_reply, self.min_replies = checks, on_bad_reply, min_replies
        self.injected: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.nulls = 0
        self._before: tuple[Query, str] | None = None
        self._summaries: dict[int, Summary] = {}

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """What was done and what was dropped. NOT PRIVATE."""
        return {
            "injected": dict(self.injected),
            "dropped": dict(self.dropped),
            "replaced": {"null record": self.nulls} if self.nulls else {},
        }

    def ask(self, query: Query, round_index: int) -> Summary:
        """Ask every node; the server checks, folds and adds up what comes."""
        with np.errstate(all="warn" if self.checks else "ignore"):
            summary = super().ask(query, round_index)
        self._before = query, query_digest(query, round_index)
        return summary

    def _replies(self, index: int, query: Query, users: Users, digest: str) -> list[Summary]:
        number = int(self.assigned.node_table[index])
        kind = self.assigned.adversaries[number].kind if number >= 0 else ""
        if kind:
            self.injected[f"{kind} (node)"] += 1
        if kind in SILENT:
            self.dropped[f"{SILENT[kind]} (node)"] += 1
            return []
        summary = self._reply(index, query, users, digest)
        if kind == "malformed":
            summary = malform_summary(summary, self.assigned.form(number, index))
            return [summary] if not self.checks or self._passes(query, summary) else []
        if kind == "duplicate":
            return self._second(summary, summary, NODE_TWICE)
        if kind == "replay":
            old = self._summaries.get(index)
            self._summaries[index] = summary
            again = query.fold(query.answer(users, streams(users, self.seed, f"{digest}, before")))
            return self._second(summary, old or again, OTHER_QUERY)
        return [summary]

    def _passes(self, query: Query, summary: Summary) -> bool:
        """Check a node's summary: users who are added up already cannot be told apart."""
        try:
            query.check_summary(summary)
        except WireError as e:
            if self.on_bad_reply == "stop":
                raise
            self.dropped[f"{without_numbers(str(e))} (node)"] += 1
            return False
        return True

    def _second(self, summary: Summary, more: Summary, reason: str) -> list[Summary]:
        """Take in one summary of a node, or both where nothing is checked."""
        if not self.checks:
            return [summary, more]
        self.dropped[f"{reason} (node)"] += 1
        return [summary]

    def _total(self, query: Query, parts: list[Summary], replies: int) -> Summary:
        least = len(self.nodes) if self.min_replies is None else self.min_replies
        if replies < max(least, 1):
            raise MissingReplies(len(self.nodes), replies, self.dropped)
        if self.checks:
            return Summary.merge(parts)
        return self._merged(sorted(parts, key=lambda p: not _fits(query, p)), node=True)

    # -- one node's users

    def _reply(self, index: int, query: Query, users: Users, digest: str) -> Summary:
        """Take in what the users of a node send, one message each."""
        sent = self._sent(query, users, digest) + self._replayed(index, query, digest)
        if not self.checks:
            return self._unchecked(query, [report for _, report in sent])
        got = gather(query, digest, sent)
        self.dropped += got.dropped
        summary = got.summary
        if summary is None:
            raise WireError("the honest users' reports were refused")
        if len(got.refused) and self.on_bad_reply == "stop":
            raise WireError(next(iter(got.dropped)))
        if len(got.refused) and self.on_bad_reply == "null":
            blank = emptied(users.take(np.flatnonzero(np.isin(users.ids, got.refused))))
            self.nulls += len(blank)
            report = query.answer(blank, streams(blank, self.seed, digest))
            summary = Summary.merge([summary, query.fold(report)])
        return summary

    def _sent(self, query: Query, users: Users, digest: str) -> Sent:
        """Make the messages of a node's users, the honest ones first, in the order of arrival."""
        at, table = self.assigned, self.assigned.table(users.ids)
        for number, adversary in enumerate(at.adversaries):
            n = int((table == number).sum())
            if n and adversary.kind != "replay":
                self.injected[adversary.kind] += n
            if n and adversary.kind in SILENT:
                self.dropped[SILENT[adversary.kind]] += n
        honest = _some(users, ~at.of_kind(table, *SILENT, "malformed", "output-poisoning"))
        sent = [(digest, query.answer(honest, streams(honest, self.seed, digest)))]
        twice = at.of_kind(at.table(honest.ids), "duplicate")
        if twice.any():
            sent.append((digest, take_rows(sent[0][1], twice)))
        greedy = _some(users, at.of_kind(table, "output-poisoning"))
        if len(greedy):
            rng = streams(greedy, self.seed, digest)
            sent.append((digest, best_messages(query, greedy, rng)))
        for number, adversary in enumerate(at.adversaries):
            if adversary.kind == "malformed":
                sent += self._malformed(query, _some(users, table == number), adversary, digest)
        return sent

    def _replayed(self, index: int, query: Query, digest: str) -> Sent:
        """Answer the question before once more, with the same coins: the same messages."""
        query, when = self._before or (query, f"{digest}, before")
        asked = self.nodes[index].select(query.cohort)
        again = _some(asked, self.assigned.of_kind(self.assigned.table(asked.ids), "replay"))
        if not len(again):
            return []
        self.injected["replay"] += len(again)
        return [(when, query.answer(again, streams(again, self.seed, when)))]

    def _malformed(self, query: Query, users: Users, adversary: Adversary, digest: str) -> Sent:
        forms = FORMS if adversary.form == "any" else (adversary.form,)
        turn = np.arange(len(users)) % len(forms)
        out: Sent = []
        for i, form in enumerate(forms):
            some = _some(users, turn == i)
            if len(some):
                honest = query.answer(some, streams(some, self.seed, digest))
                out.append((digest, malform_report(honest, form)))
        return out

    def _unchecked(self, query: Query, reports: Iterable[Report]) -> Summary:
        """Fold whatever can be folded."""
        parts = []
        for report in reports:
            try:
                parts.append(_folded(query, report))
            except Exception:  # whatever a server that does not check stumbles over
                self.dropped[UNFIT] += report.n_users
        return self._merged(parts)

    def _merged(self, parts: Sequence[Summary], node: bool = False) -> Summary:
        """Add up whatever can be added to the first."""
        total = Summary.merge(parts[:1])
        for part in parts[1:]:
            try:
                total = Summary.merge([total, part])
            except WireError:
                self.dropped[f"{UNFIT} (node)" if node else UNFIT] += 1 if node else part.n_users
        return total


class UncheckedSession(Session):
    """A session whose server believes what it is told. NOT SAFE: for evaluation only."""

    def _check(self, query: Query, summary: Summary) -> None:
        """Check nothing."""


def _folded(query: Query, report: Report) -> Summary:
    for name, a in (*report.arrays.items(), *report.ragged.items()):
        if name in INDEX_NAMES and a.size and not a.max() <= MOST_INDEX:
            raise WireError(f"{name!r} needs a table of {a.max()} counts")
    return query.fold(report)


def _fits(query: Query, summary: Summary) -> bool:
    try:
        query.check_summary(summary)
    except WireError:
        return False
    return True


def _some(users: Users, chosen: NDArray[np.bool_]) -> Users:
    return users if chosen.all() else users.take(np.flatnonzero(chosen))
