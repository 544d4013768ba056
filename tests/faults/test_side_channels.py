"""Side channels: what a reply's size, the number of replies, the work done and the end reveal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

import numpy as np
import pytest

import fedhist as fh
from fedhist.flower.wire import answer_bytes, encode_answer
from fedhist.model.codec import query_digest
from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.users.batch import join
from server.few_users import draws
from server.few_users.draws import BallSampler
from simulations.audit.asked import asked_of
from simulations.audit.inputs import space_of
from simulations.audit.neighbours import shared_space
from simulations.audit.published import BROKEN, STATUSES, Runs

load_builtin()


def of_trust(trust: fh.Trust) -> list[str]:
    return [
        name for name in own_protocols() if protocol_class(name).example().guarantee.trust is trust
    ]


LOCAL, CENTRAL = of_trust(fh.Trust.LOCAL), of_trust(fh.Trust.CENTRAL)


@cache
def asked(name: str) -> tuple[fh.Protocol, fh.Users, tuple[fh.Query, ...]]:
    protocol = protocol_class(name).example()
    users = protocol.example_users()
    return protocol, users, asked_of(protocol, users, 0).queries


def replies(one: fh.Users, queries: tuple[fh.Query, ...], seed: int) -> tuple[int, ...]:
    sizes: list[int] = []
    for r, query in enumerate(queries):
        digest, inside = query_digest(query, r), one.select(query.cohort)
        report = query.answer(inside, fh.SeededStreams(inside.ids, seed, digest))
        bodies = (report, query.fold(report))
        sizes += [report.n_users, *(answer_bytes(encode_answer(b, 0, digest)) for b in bodies)]
    return tuple(sizes)


def records(name: str) -> Iterator[tuple[str, fh.Users]]:
    protocol, users, queries = asked(name)
    space = space_of(queries, users, single=protocol.guarantee.unit == "item")
    for record in space.extremes(np.random.default_rng(0)):
        for user_id in users.ids[:2].tolist():
            yield space.words(record), space.user(record, user_id)


@pytest.mark.parametrize("name", LOCAL)
def test_no_reply_of_a_local_protocol_has_a_size_that_depends_on_the_record(name: str) -> None:
    """Nor does the number of replies: every user answers once in each round of its cohorts."""
    _, _, queries = asked(name)
    result: dict[int, dict[tuple[int, ...], str]] = {}
    for words, one in records(name):
        for seed in (0, 1):  # nor does it depend on the user's coins
            result.setdefault(int(one.ids[0]), {})[replies(one, queries, seed)] = words
    for user_id, sizes in result.items():
        assert len(sizes) == 1, (user_id, sizes)
        (sizes_of_one,) = sizes
        own = np.array([user_id], dtype=np.uint64)
        inside = [q.cohort is None or bool(q.cohort.contains(own)[0]) for q in queries]
        assert list(sizes_of_one[::3]) == [int(asked_in) for asked_in in inside]


def test_an_exact_answer_does_have_a_size_that_depends_on_the_record() -> None:
    """The measure sees differences where there are some: a trusted server gets raw keys."""
    _, _, queries = asked("unbounded-histogram")
    sizes = {replies(one, queries, 0) for _, one in islice(records("unbounded-histogram"), 8)}
    assert len(sizes) > 1


def work_of(protocol: fh.Protocol, users: fh.Users, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Run once and list the sampler's steps: proposals of a batch, and 0 for a point made."""
    work: list[int] = []
    count, point = BallSampler._count, BallSampler._point

    def counting(self: BallSampler, points: object, owner: object, *more: object) -> object:
        work.append(len(owner))
        return count(self, points, owner, *more)

    def pointing(self: BallSampler, *arguments: object) -> object:
        work.append(0)
        return point(self, *arguments)

    monkeypatch.setattr(draws, "BATCH_NUMBERS", 1)  # many batches, each of 64 proposals
    monkeypatch.setattr(BallSampler, "_count", counting)
    monkeypatch.setattr(BallSampler, "_point", pointing)
    Runs(protocol, users, 0).run(5)
    monkeypatch.undo()
    return work


def changed(name: str) -> Iterator[fh.Users]:
    """Give the first of the example users each extreme record, or take it away where it may go."""
    protocol, users, queries = asked(name)
    users, space = shared_space(users, queries)
    others, own = users.take(np.arange(1, len(users))), int(users.ids[0])
    if protocol.guarantee.adjacency is fh.Adjacency.ADD_REMOVE_USER:
        yield others
    for record in space.extremes(np.random.default_rng(0)):
        yield join([others, space.user(record, own)])


@pytest.mark.parametrize("name", ["few-users-mean", "few-users-distribution"])
def test_the_few_users_protocols_work_as_long_on_any_data(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rounds are executed: the same steps whether the first proposal is accepted or none is."""
    protocol, users, _ = asked(name)
    alike = users.take(np.zeros(len(users), dtype=np.int64))
    alike = fh.Users(users.ids, items=alike.items, samples=alike.samples)
    tried = [users, alike, *islice(changed(name), 6)]
    steps = [work_of(protocol, one, monkeypatch) for one in tried]
    assert len(steps[0]) >= 4
    assert sum(steps[0]) > 100
    assert all(work == steps[0] for work in steps)


@pytest.mark.parametrize("name", CENTRAL)
def test_no_record_makes_a_run_refuse_or_break_off(name: str) -> None:
    """A refusal says nothing of the data, and an error, which nobody pays for, never happens."""
    protocol = asked(name)[0]
    ends = {Runs(protocol, users, 0).run(0).status for users in changed(name)}
    assert BROKEN not in ends
    assert STATUSES.index("refused") not in ends
