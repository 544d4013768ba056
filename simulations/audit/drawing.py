"""Drawing many independent answers of one user at once, and counting what they say.

The answers are those of a batch of copies of one user: the same record and the same public id,
because the law of an answer may depend on the id, and a private stream for each copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Words
from fedhist.base.hashing import mix64
from fedhist.model.query import Report
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams
from simulations.audit.features import Answer, Feature
from simulations.audit.finding import Case
from simulations.audit.learning import tally

Client = Callable[[Users, Streams], Answer]
"""A client half: what a batch of users sends, in every round it is asked in."""

BATCH = 1 << 14
MOST_BYTES = 1 << 26


def all_of(report: Report) -> dict[str, Array]:
    """Return all that users send, by name."""
    return {**report.arrays, **report.ragged}


def copies_of(user: Users, ids: Words) -> Users:
    """Give the record of the one user of a batch to each of these ids."""
    return replace(user.take(np.zeros(len(ids), np.int64)), ids=ids)


Note = tuple[str, Words, Words]


class NotedStreams(SeededStreams):
    """Streams that note every draw: from which substream, for whom, and the words.

    Of bits, which are sent, there are no words. ``changed``: of which substream words are others
    than usual, and in which column.
    """

    path = ""
    notes: list[Note]
    changed: tuple[str, int] | None

    def __init__(
        self,
        ids: Words,
        seed: int,
        context: str,
        notes: list[Note],
        changed: tuple[str, int] | None = None,
    ) -> None:
        super().__init__(ids, seed, context)
        self.notes, self.changed = notes, changed

    def _go_on(self, made: SeededStreams, path: str) -> SeededStreams:
        vars(made).update(notes=self.notes, changed=self.changed, path=path)
        return made

    def substream(self, purpose: str) -> SeededStreams:
        return self._go_on(super().substream(purpose), f"{self.path}/{purpose}")

    def rows(self, start: int, stop: int) -> SeededStreams:
        return self._go_on(super().rows(start, stop), self.path)

    @property
    def keys(self) -> Words:
        self.notes.append((self.path, self._ids, np.zeros((self.n_users, 0), np.uint64)))
        return super().keys

    def words(self, n_draws: int) -> Words:
        words = super().words(n_draws)
        if self.changed is not None and self.changed[0] == self.path:
            words[:, self.changed[1]] = mix64(words[:, self.changed[1]])
        self.notes.append((self.path, self._ids, words.copy()))
        return words

    def ragged_words(self, indptr: NDArray[np.int64]) -> Words:
        words = super().ragged_words(indptr)  # by the keys, which are noted
        self.notes[-1] = (self.path, self._ids, words.copy())
        return words


class Leak(Exception):
    """What no private answer may do was seen: the message is a structural finding's event."""

    def __init__(self, event: str, inputs: tuple[str, str]) -> None:
        super().__init__(event)
        self.event, self.inputs = event, inputs


@dataclass(frozen=True, eq=False)
class Drawer:
    """Independent answers of one user with one record.

    ``user``: the one user; ``words``: the record, for a witness; ``case``: whose draws it counts.
    """

    client: Client
    user: Users
    words: str
    seed: int
    case: Case

    def draw(self, n: int, purpose: str) -> Iterator[Answer]:
        """Draw n answers, in batches; another purpose gives independent ones."""
        size = max(1, min(n, BATCH, MOST_BYTES // max(self.user.nbytes, 1)))
        copies = copies_of(self.user, np.repeat(self.user.ids, size))
        context = f"fedhist.audit {purpose} {self.words}"
        for start in range(0, n, size):
            k = min(size, n - start)
            users = copies if k == size else copies.slice(0, k)
            ids = np.arange(start, start + k, dtype=np.uint64)
            streams = SeededStreams(ids, self.seed, context)
            try:
                answer = self.client(users, streams)
                for report in answer:
                    if report.n_users != k:
                        raise ValueError(f"{k} users were asked, {report.n_users} answered")
            except Exception as error:  # whatever it is: it depends on the record
                event = f"the client fails: {type(error).__name__}: {error}"
                raise Leak(event, (self.words, "any other record")) from error
            self.case.draws += k
            yield answer

    def sample(self, n: int, purpose: str) -> Answer:
        """Draw at most n answers in one batch."""
        return next(self.draw(n, purpose))

    def count(self, features: Sequence[Feature], n: int, purpose: str) -> list[NDArray[np.float64]]:
        """Count the values of features over n answers."""
        totals = [np.zeros(f.size) for f in features]
        for answer in self.draw(n, purpose):
            for total, feature in zip(totals, features, strict=True):
                total += tally(feature, answer)
        return totals


Pair = tuple[Drawer, Drawer]
