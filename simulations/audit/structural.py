"""The structural checks: what no private mechanism does, seen without counting anything.

A claim of epsilon and delta is about laws; these checks are about what a mechanism is: what its
questions hold, how often and in what form a user answers, whether an answer that is asked for again
is the same one, and how a run may end. They prove nothing about laws, and a mechanism that passes
them can still be broken; but a finding here is certain, not statistical.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import fields
from functools import cached_property
from typing import Any, get_args

import numpy as np

from fedhist.base.errors import BudgetExceeded
from fedhist.flower.wire import answer_bytes, encode_answer
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate, Protocol, Status
from fedhist.model.query import Query, Report
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from simulations.audit.asked import asked_of, kinds_of
from simulations.audit.drawing import Note, NotedStreams, all_of, copies_of
from simulations.audit.finding import Case, Finding, Kind, Settings, Witness
from simulations.audit.inputs import Space, space_of

SECRET_WORDS = frozenset({"seed", "seeds", "private", "secret", "rng", "entropy"})
"""Words of a field's name that say it should not travel."""
COPIES = 5
_ECHO_USERS = 64


def audit_structure(protocol: Protocol, settings: Settings) -> Iterator[Finding]:
    """Run a protocol's example once and look at its questions, its answers and its end.

    Yields one for each thing that is wrong, of kind "structural" or "wire"; one that says
    "consistent" if nothing is.
    """
    started, users = time.perf_counter(), protocol.example_users()
    guarantee = protocol.guarantee
    claim = (guarantee.epsilon, guarantee.delta)
    asked = asked_of(protocol, users, settings.seed)
    end = asked.end
    findings: list[tuple[Kind, str, Witness]] = []
    if isinstance(end, Estimate) and end.status not in get_args(Status):
        event = f"the run ends with the unknown status {end.status!r}"
        findings.append(("structural", protocol.name, _any(event)))
    if isinstance(end, BudgetExceeded):
        why = "cohorts overlap, or one is asked again; " * (guarantee.trust is Trust.LOCAL)
        event = f"{why}the run's own ledger stops it: {end}"
        findings.append(("structural", protocol.name, _any(event)))
    single = guarantee.unit == "item"
    for query in kinds_of(asked.queries):
        subject = f"{protocol.name}: {query.wire_name}"
        findings += [("structural", subject, w) for w in _secrets(query)]
        if query.trust is Trust.LOCAL:
            space = space_of([query], users, single=single)
            findings += [(k, subject, w) for k, w in _answers(query, users, space, settings.seed)]
    if not findings:
        note = "fields, answers, their repetition and length, cohorts, the end of the run"
        case = Case(protocol.name, claim, settings, "structural", note, started)
        yield case.found(0.0, 1.0)
    for kind, subject, witness in findings:
        yield Case(subject, claim, settings, kind, "", started).found(math.inf, 1.0, witness)


# -- a question


def _secrets(query: Query) -> Iterator[Witness]:
    """Fields that name a secret, and state that is not a field."""
    names = [f.name for f in fields(query)]  # type: ignore[arg-type]
    for name in names:
        if SECRET_WORDS & set(name.strip("_").split("_")) or name.startswith("_"):
            yield _any(f"the question holds the field {name!r}, which everybody can read")
    cached = {n for c in type(query).__mro__ for n, v in vars(c).items() if _cached(v)}
    for name in vars(query).keys() - set(names) - cached - vars(Query).keys():
        yield _any(f"the query holds {name!r}, which is not a field: it does not travel")


def _cached(value: Any) -> bool:
    return isinstance(value, cached_property)


# -- answers


def _answers(query: Query, users: Users, space: Space, seed: int) -> Iterator[tuple[Kind, Witness]]:
    """Look at the answers of a few copies of one user, for one record after the other."""
    rng = np.random.default_rng(seed)
    digest = query_digest(query, 0)
    ids = np.arange(1 << 12, dtype=np.uint64)
    ids = ids if query.cohort is None else ids[query.cohort.contains(ids)]
    usual, told = ("any other record", -1), set[str]()
    for record in space.extremes(rng):
        batch, words = copies_of(space.user(record, 0), ids[:COPIES]), space.words(record)
        try:
            report, again = (
                query.answer(batch, SeededStreams(batch.ids, seed, digest)) for _ in range(2)
            )
        except Exception as error:  # whatever it is: it depends on the record
            problem = f"the client fails: {error!r}"
        else:
            size = _message_bytes(report)
            usual = usual if usual[1] >= 0 else (words, size)
            problem = _problem(report, again, batch, size, usual[1])
        what = problem.partition(":")[0]
        if what and what not in told:
            told.add(what)
            yield "wire" if what == "length" else "structural", Witness((words, usual[0]), problem)
    yield from (("structural", w) for w in _echoes(query, users, seed, digest))


def _problem(report: Report, again: Report, batch: Users, size: int, usual: int) -> str:
    """Say what is wrong with an answer; nothing: an empty event."""
    if not np.array_equal(report.ids, batch.ids):
        return f"answers: {report.n_users} of {len(batch)} users answer"
    if not _same(report, again):
        return "repetition: the same question, asked again, gets fresh noise"
    if size != usual:
        return f"length: the message has {size} bytes, not {usual}"
    return ""


def _message_bytes(report: Report) -> int:
    """Bytes of the encoded message; names and types of arrays are part of it."""
    return answer_bytes(encode_answer(report, 0, "")) + sum(len(n) for n in report.arrays)


def _same(a: Report, b: Report) -> bool:
    one, other = all_of(a), all_of(b)
    return one.keys() == other.keys() and all(
        x.dtype == other[n].dtype and x.tobytes() == other[n].tobytes() for n, x in one.items()
    )


# -- private randomness in a message


def _echoes(query: Query, users: Users, seed: int, digest: str) -> Iterator[Witness]:
    """Whole words of a user's private randomness that stand in the message beside something else.

    A message that is nothing but its randomness tells nothing; one that sends a report and the
    words it was made with lets the server undo it.
    """
    batch = users.select(query.cohort).slice(0, _ECHO_USERS)
    notes: list[Note] = []
    report = query.answer(batch, NotedStreams(batch.ids, seed, digest, notes))
    drawn = np.unique(np.concatenate([np.zeros(0, np.uint64), *(w.ravel() for _, _, w in notes)]))
    parts = all_of(report)
    for name, a in parts.items():
        if a.dtype.itemsize != 8 or not a.size or len(parts) == 1:
            continue
        sent = np.ascontiguousarray(a).reshape(-1).view(np.uint64)
        if np.isin(sent[sent > np.uint64(1 << 32)], drawn).any():
            yield _any(f"{name!r} of the message repeats words of the user's private randomness")


def _any(event: str) -> Witness:
    return Witness(("any record", "any other"), event)
