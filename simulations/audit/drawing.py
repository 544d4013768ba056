"""Drawing many independent answers of one user at once, and counting what they say.

The answers are those of a batch of copies of one user: the same record and the same public id,
because the law of an answer may depend on the id, and a private stream for each copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.users.batch import Users
from fedhist.users.shards import Items, Samples
from fedhist.users.streams import SeededStreams, Streams
from simulations.audit.features import Answer, Feature
from simulations.audit.finding import Case
from simulations.audit.learning import tally

Client = Callable[[Users, Streams], Answer]
"""A client half: what a batch of users sends, in every round it is asked in."""

BATCH = 1 << 14
MOST_BYTES = 1 << 26


def copies_of(user: Users, ids: Words) -> Users:
    """Give the record of the one user of a batch to each of these ids."""
    n, size = len(ids), int(user.n_items()[0])
    indptr = np.arange(n + 1, dtype=np.int64) * size
    if user.items is None:
        return Users(ids, samples=Samples(indptr, np.tile(user.reals.values, (n, 1))))
    one = user.items
    items = Items(one.vocabulary, indptr, np.tile(one.item, n), np.tile(one.count, n))
    return Users(ids, items=items)


class Watched(Streams):
    """Streams that note every draw in ``drawn``: the words, or nothing for bits, which are sent."""

    def __init__(self, inner: Streams, drawn: list[Words]) -> None:
        self.inner, self.drawn, self.n_users = inner, drawn, inner.n_users

    def substream(self, purpose: str) -> Streams:
        return Watched(self.inner.substream(purpose), self.drawn)

    def rows(self, start: int, stop: int) -> Streams:
        return Watched(self.inner.rows(start, stop), self.drawn)

    def words(self, n_draws: int) -> Words:
        """Draw, and note the words."""
        self.drawn.append(self.inner.words(n_draws).ravel())
        return self.drawn[-1].reshape(-1, n_draws).copy()

    def ragged_words(self, indptr: NDArray[np.int64]) -> Words:
        self.drawn.append(self.inner.ragged_words(indptr))
        return self.drawn[-1].copy()

    def bernoulli_bits(self, n_bits: int, probability: float) -> Words:
        """Draw, and note that bits were drawn."""
        self.drawn.append(np.zeros(0, dtype=np.uint64))
        return self.inner.bernoulli_bits(n_bits, probability)


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
            answer = self.client(users, streams)
            for report in answer:
                if report.n_users != k:
                    raise ValueError(f"{k} users were asked, {report.n_users} answered")
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
