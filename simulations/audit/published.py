"""What a whole run publishes, as numbers that the auditor's features look at.

The released estimate, the choices (threshold used and other public numbers, questions asked), the
status (ok, refused, failed, broken off; and every word of the reason and the warnings), and which
keys came out, in which order.

A run of a central protocol draws its randomness on the server. The exact answers of a population
are therefore computed once for every question and kept, as long as the client half is seen to
draw nothing; a run is then the script alone, with the noise of a fresh seed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Words
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.ledger import Ledger
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams
from server.noise import NoiseFactory
from server.session.curator import Curator
from server.session.journal import Journal
from server.session.session import in_key_order
from simulations.audit.drawing import Note, NotedStreams
from simulations.audit.features import Answer

STATUSES = ("ok", "refused", "failed", "broken off")
BROKEN = STATUSES.index("broken off")

MOST_KEPT = 1 << 10
MOST_NUMBERS = 256
MOST_ORDERED = 8
"""Of so many keys it is looked at which comes first, pair by pair."""
_GRID = 2.0**20
_WORDS = 1 << 12

_COUNTED = (
    "the number of other public numbers",
    "the number of questions",
    "the number of charges",
    "the hash of the questions",
    "the status",
    "the hash of the reason and warnings",
    "the number of values",
)


@dataclass(frozen=True)
class Run:
    """What one run shows to the world.

    ``estimate``: "failed" where the run broke off; ``status``: index into STATUSES; ``charged``:
    entries of the ledger; ``digests``: of the questions.
    """

    estimate: Estimate
    status: int
    charged: int
    digests: Sequence[str]


@dataclass(frozen=True)
class Layout:
    """Which numbers of a run stand where.

    ``public``: names of the public numbers; others are only counted; ``width``: most entries of a
    value without keys that are looked at; ``names``: keys to look at where an estimate has keys;
    ``ordered``: keys whose order is looked at: those that came out most often.
    """

    public: tuple[str, ...]
    width: int
    names: Keys
    ordered: Keys

    @classmethod
    def of(cls, estimates: Sequence[Estimate], vocabulary: Keys) -> Layout:
        """Learn it from a few runs."""
        public = tuple(sorted({name for e in estimates for name in e.public}))
        sizes = [e.value.size for e in estimates if e.value is not None and e.keys is None]
        width, names = min(max(sizes, default=0), MOST_NUMBERS), Keys.of([])
        if len(vocabulary) and any(e.keys is not None for e in estimates):
            at = np.linspace(0, len(vocabulary) - 1, min(len(vocabulary), MOST_NUMBERS))
            names = Keys.of(dict.fromkeys(vocabulary[int(j)] for j in at))
            width = len(names)
        common = Counter(key for e in estimates for key in e.keys or ())
        ordered = Keys.of(key for key, _ in common.most_common(MOST_ORDERED))
        return cls(public, width, names, ordered)

    def table(self, runs: Sequence[Run]) -> dict[str, Floats]:
        """Tabulate runs: a column for each number, of one row for each run.

        On a grid far below the noise: how simulated noise rounds is no protocol's fault.
        """
        places = [repr(key) for key in self.names] or [f"[{j}]" for j in range(self.width)]
        columns = [f"{what}{place}" for what in ("value", "stderr") for place in places]
        columns += [*self.public, *_COUNTED]
        columns += [f"whether {a!r} comes before {b!r}" for a, b in combinations(self.ordered, 2)]
        rows = np.array([self._row(run) for run in runs], dtype=np.float64)
        return dict(zip(columns, np.rint(rows * _GRID).T / _GRID, strict=True))

    def _row(self, run: Run) -> list[float]:
        e, both = run.estimate, np.full((2, self.width), np.nan)
        at = np.arange(self.width) if e.keys is None else self.names.positions(e.keys)
        for row, numbers in zip(both, (e.value, e.stderr), strict=True):
            if numbers is not None:
                flat = np.ravel(numbers)[: len(at)]
                inside = at[: len(flat)] >= 0
                row[at[: len(flat)][inside]] = flat[inside]
        words = "\n".join((e.reason, *e.warnings))
        hashes = [zlib.crc32(text.encode()) % _WORDS for text in ("".join(run.digests), words)]
        return [
            *both.ravel(),
            *(e.public.get(name, np.nan) for name in self.public),
            len(e.public.keys() - set(self.public)),
            len(run.digests),
            run.charged,
            hashes[0],
            run.status,
            hashes[1],
            0 if e.value is None else e.value.size,
            *_order(self.ordered, Keys.of([]) if e.keys is None else e.keys),
        ]


class Runs:
    """Whole runs of a protocol on one population, with fresh noise for each.

    ``seed``: of the clients' own randomness, should they use any.
    """

    def __init__(self, protocol: Protocol, users: Users, seed: int) -> None:
        self.protocol, self.users, self.seed = protocol, users, seed
        self._answers: dict[str, Summary] = {}

    def run(self, seed: int) -> Run:
        """Run once.

        The ledger has no limit: what the script would release is compared, not what a session
        lets it.
        """
        digests, ledger = list[str](), Ledger()
        curator = Curator(ledger, NoiseFactory("simulated", seed), Journal())
        script = self.protocol.rounds(curator)
        try:
            query = self.protocol.asks(next(script), 0)
            while True:
                digests.append(query_digest(query, len(digests)))
                curator.holds(query)
                summary = self.ask(query, digests[-1], seed)
                query = self.protocol.asks(script.send(summary), len(digests))
        except StopIteration as stop:
            estimate: Estimate = in_key_order(self.protocol, stop.value)
            status = STATUSES.index(estimate.status)
        except Exception as error:  # whatever it is, its operator sees it
            estimate, status = Estimate.failed(f"{type(error).__name__}: {error}"), BROKEN
        return Run(estimate, status, len(ledger.entries), digests)

    def ask(self, query: Query, digest: str, seed: int) -> Summary:
        """Answer for the whole population, from memory where the answer is no random one."""
        stored = self._answers.get(digest)
        if stored is None:
            drawn: list[Note] = []

            def streams(batch: Users) -> Streams:
                key = self.seed ^ seed  # fresh in every run
                return NotedStreams(batch.ids, key, digest, drawn)

            stored = query.answer_folded(self.users.select(query.cohort), streams)
            if drawn or len(self._answers) >= MOST_KEPT:
                return stored
            self._answers[digest] = stored
        return Summary.merge([stored])  # a copy: a script may change what it is given

    def table(self, layout: Layout, seeds: Words) -> dict[str, Floats]:
        """Tabulate one run for each seed."""
        return layout.table([self.run(seed) for seed in seeds.tolist()])

    def answer(self, layout: Layout, batch: Users, rng: Streams) -> Answer:
        """Answer as a client half, with a run for each user: for the auditor to draw from."""
        return (Report(batch.ids, self.table(layout, rng.words(1)[:, 0])),)


@lru_cache(maxsize=256)
def _order(names: Keys, keys: Keys) -> NDArray[np.int64]:
    """Say of every pair of names whether the first comes before: 1 or 0; -1 unless both do."""
    at = keys.positions(names)
    a, b = (np.array(x, dtype=np.int64) for x in np.triu_indices(len(names), 1))
    both = (at[a] >= 0) & (at[b] >= 0)
    return np.where(both, at[a] < at[b], -1)
