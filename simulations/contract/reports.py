"""Laws of reports: a row is one user's, honest rows pass, sums do not depend on the packing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from clients.answers import streams
from fedhist.base.arrays import Array
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate
from fedhist.model.query import CHUNK, Query, Summary
from fedhist.users.batch import Users, join
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard, Wrapped
from simulations.audit.drawing import Note, NotedStreams, all_of
from simulations.contract.law import (
    ANY_NODES,
    EVERYBODY,
    demand,
    demand_same_arrays,
    demand_same_estimate,
    demand_same_summary,
    law,
)
from simulations.contract.subject import SEED, Subject, whole_numbers

MANY_TIMES = 1000


# -- a row belongs to one user --------------------------------------------------------------------


@law(ANY_NODES)
def a_row_depends_on_its_user_alone(subject: Subject) -> None:
    """Whoever else answers, in whatever order, and whatever another user holds."""
    users, n = subject.users, len(subject.users)
    batches = [
        users.take(np.arange(n)[::-1]),
        users.slice(0, 1),
        users.slice(1, n // 3),
        users.slice(n // 3, n),
    ]
    row = min(5, n - 1)
    larger = larger_record(users, row)
    for query, number in subject.queries:
        whole = subject.answer(query, users, number)
        rows = {int(u): whole.row(i) for i, u in enumerate(whole.ids)}
        for batch in batches:
            report = subject.answer(query, batch, number)
            for i, u in enumerate(batch.ids):
                demand_same_arrays(report.row(i), rows[int(u)], f"The row of user {u}")
        changed = subject.answer(query, larger, number)
        demand(changed.ids[row] == users.ids[row], "The rows are in another order.")
        for i, u in enumerate(changed.ids):
            if i != row:
                told = f"The row of user {u} where user {users.ids[row]} has more"
                demand_same_arrays(changed.row(i), rows[int(u)], told)


@law(ANY_NODES)
def an_honest_report_passes_the_check(subject: Subject) -> None:
    """Of all users, of one, of none; and of one whose record is extreme, or larger than others."""
    users = subject.users
    larger = larger_record(users, min(5, len(users) - 1))
    for (query, number), (_, reports) in zip(subject.queries, subject.honest, strict=True):
        batches = users, users.slice(0, 1), users.none, larger
        for report in (*reports, *(subject.answer(query, batch, number) for batch in batches)):
            query.check(report)
            query.check_summary(query.fold(report))


def larger_record(users: Users, row: int) -> Users:
    """Return the same users, one of them with a thousand times more items or samples."""
    if users.items is not None:
        extra = [f"~{k}" for k in range(MANY_TIMES)]
        # the new words come first, so that every item gets another number
        vocabulary = Keys.of([*extra, *users.vocabulary])
        c = users.counts
        owner = np.repeat(np.arange(len(users)), np.diff(c.indptr))
        return Users.from_counts(
            users.ids,
            np.concatenate([owner, np.full(MANY_TIMES, row)]),
            np.concatenate([c.item.astype(np.int64) + MANY_TIMES, np.arange(MANY_TIMES)]),
            np.concatenate([c.count, np.full(MANY_TIMES, MANY_TIMES, c.count.dtype)]),
            vocabulary,
        )
    s = users.reals
    parts = [s.values[a:b] for a, b in pairwise(s.indptr)]
    parts[row] = np.tile(parts[row], (MANY_TIMES, 1)) + 0.01
    indptr = np.cumsum([0, *map(len, parts)])
    return Users.from_samples(users.ids, indptr, np.concatenate(parts), unusable=True)


@law(EVERYBODY)
def every_purpose_has_its_own_words(subject: Subject) -> None:
    """No user's substream is drawn from twice in one answer: two draws would be one."""
    users = subject.users
    for query, number in subject.queries:
        asked, digest = query.inner, query_digest(query, number)
        chosen, notes = users.select(asked.cohort), list[Note]()
        _noted_answer(asked, chosen, digest)
        asked.answer_folded(chosen, partial(_noted, digest=digest, notes=notes))
        _demand_own_words(notes)


def _noted(
    users: Users, digest: str, notes: list[Note], changed: tuple[str, int] | None = None
) -> NotedStreams:
    return NotedStreams(users.ids, SEED, digest, notes, changed)


def _noted_answer(
    query: Query, users: Users, digest: str, changed: tuple[str, int] | None = None
) -> tuple[dict[str, Array], list[Note]]:
    """Answer, and return what is sent and what was drawn."""
    notes: list[Note] = []
    report = query.answer(users, _noted(users, digest, notes, changed))
    _demand_own_words(notes)
    return all_of(report), notes


def _demand_own_words(notes: list[Note]) -> None:
    drawers: dict[str, set[int]] = {}
    for path, ids, _ in notes:
        before, now = drawers.setdefault(path, set()), set(ids.tolist())
        told = f"The substream {path or 'itself'!r} is drawn from twice: its words are the same."
        demand(not before & now, told)
        before |= now


@law(EVERYBODY)
def every_word_that_is_drawn_is_used(subject: Subject) -> None:
    """Another word changes somebody's report: what it is for has not been drawn from another.

    Of the first two words of each substream, in one question of the run, for users of the example
    or of extreme records; but for the substreams that a query calls ``spare``.
    """
    users = subject.users
    far = [repeat_users(one, 8) for one in subject.records(subject.rows[0]).values()]
    far.append(larger_record(users, min(5, len(users) - 1)))
    used: dict[tuple[str, str, int], bool] = {}
    for query, number in subject.queries:
        asked, digest = query.inner, query_digest(query, number)
        batches = [users.select(asked.cohort), *far]
        for path, column in _drawn(asked, batches[0], digest):
            name = asked.wire_name, path, column
            if path.removeprefix("/") not in asked.spare and not used.get(name):
                used[name] = any(_differs(asked, u, digest, (path, column)) for u in batches)
    for (query_name, path, column), is_used in used.items():
        demand(is_used, f"Word {column} of {path!r} changes no report of {query_name!r}.")


def _drawn(query: Query, users: Users, digest: str) -> list[tuple[str, int]]:
    _, notes = _noted_answer(query, users, digest)
    columns = {path: words.shape[1] for path, _, words in notes if words.ndim > 1}
    return [(path, i) for path, n in columns.items() for i in range(min(n, 2))]


def _differs(query: Query, users: Users, digest: str, changed: tuple[str, int]) -> bool:
    one, other = (_noted_answer(query, users, digest, words)[0] for words in (None, changed))
    return not all(np.array_equal(a, other[k]) for k, a in one.items())


# -- sums and packing -----------------------------------------------------------------------------


@law(ANY_NODES)
def fold_is_additive(subject: Subject) -> None:
    """The summaries of any parts of the users, in any order, add up to that of all."""
    for query, number, summary in subject.asked:
        chosen = subject.users.select(query.cohort)
        n = len(chosen)
        exact = whole_numbers(summary) or not summary.sums
        for cuts in ([0, n], [0, 1, n], [0, n // 2, n], [0, n // 3, n // 3, n - 1, n]):
            batches = [chosen.slice(a, b) for a, b in pairwise(cuts)]
            parts = [query.fold(subject.answer(query, b, number)) for b in batches]
            for order in (parts, parts[::-1]):
                told = f"The users cut at {cuts[1:-1]}"
                demand_same_summary(Summary.merge(order), summary, told, exact=exact)


@law(ANY_NODES)
def nobody_adds_nothing(subject: Subject) -> None:
    """A node without users of the cohort has an honest summary that changes no other.

    On each of the three ways to a summary.
    """
    nobody = subject.users.none
    for query, number, summary in subject.asked:
        digest = query_digest(query, number)
        ways = [
            query.fold(subject.answer(query, nobody, number)),
            query.answer_folded(nobody, partial(streams, seed=SEED, digest=digest)),
            query.draw_summary(nobody, np.random.default_rng(SEED)),
        ]
        for empty in ways:
            query.check_summary(empty)
            demand_same_summary(Summary.merge([empty, summary, empty]), summary, "With nobody more")


@law(ANY_NODES)
def answering_and_folding_at_once_is_the_same(subject: Subject) -> None:
    """``answer_folded`` has the bits of folding the answers chunk by chunk."""
    small = subject.users
    many = repeat_users(small, CHUNK // len(small) + 2)
    for query, number in subject.queries[:2]:
        digest = query_digest(query, number)
        for users in (many, small, small.none):
            fused = query.answer_folded(users, partial(streams, seed=SEED, digest=digest))
            chunks = list(users.blocks(CHUNK)) or [users]
            parts = [query.fold(subject.answer(query, c, number)) for c in chunks]
            demand_same_summary(fused, Summary.merge(parts), f"{len(users)} users at once")
            query.check_summary(fused)


def repeat_users(users: Users, times: int) -> Users:
    """Return so many copies of the users, under ids of their own."""
    copies = []
    for k in range(times):
        ids = users.ids ^ np.uint64(k << 48)
        copies.append(dataclasses.replace(users, ids=ids).take(np.argsort(ids)))
    return join(copies)


@law(ANY_NODES)
def packing_does_not_matter(subject: Subject) -> None:
    """Integers: the same bits for any number of nodes; reals: the same up to rounding.

    And where three nodes send reports that the server folds.
    """
    for nodes, fold in ((7, True), (3, False)):
        other = subject.walk(nodes=nodes, fold=fold)[0]
        told = f"On {nodes} nodes"
        demand_same_estimate(subject.estimate, other, told, exact=subject.integers)


@law(EVERYBODY, once=True)
def blocks_of_any_size_give_the_same(subject: Subject) -> None:
    """Users who are made block by block, in any order, give the bits of users in memory.

    Integer sums on any nodes; real ones on the same nodes and blocks.
    """
    users = subject.users
    order = np.random.default_rng(SEED).permutation(len(users))
    mixed, size = users.take(order), max(2, len(users) // 23)
    few, some = subject.nodes, subject.nodes if subject.nodes > 1 else 3
    for nodes in {few, 7 if few == 1 and subject.integers else few}:
        blocks = _walk_blocks(subject, mixed, size, nodes)
        told = f"In blocks of {size} on {nodes} nodes"
        demand_same_estimate(blocks, subject.estimate, told, exact=subject.integers)
    whole = subject.estimate if subject.integers else subject.walk(nodes=some)[0]
    demand_same_estimate(_walk_blocks(subject, users, BLOCK, some), whole, "In one block a node")


class Blocks(Wrapped):
    """Users who are handed out by blocks of one size, as populations that are made or read."""

    users: Users

    def __init__(self, users: Users, size: int) -> None:
        super().__init__(users)
        self.size = size

    def slice(self, start: int, stop: int) -> Shard:
        return Blocks(self.users.slice(start, stop), self.size)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        for a in range(0, len(self), self.size):
            yield self.users.slice(a, min(a + self.size, len(self))).copy()


def _walk_blocks(subject: Subject, users: Users, size: int, nodes: int) -> Estimate:
    return subject.walk(users=Blocks(users, size), nodes=nodes)[0]
