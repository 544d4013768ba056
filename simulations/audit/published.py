"""What a whole run publishes, as arrays that the auditor's features look at.

Four views of the same runs: the released *estimate*, the *choices* (threshold used and other
public numbers, questions asked), the *status* (ok, refused, failed, broken off; and every word of
the reason and the warnings), and the *support* (which keys came out, and in which order).

A run of a central protocol draws its randomness on the server. The exact answers of a population
are therefore computed once for every question and kept, as long as the client half is seen to
draw nothing; a run is then the script alone, with the noise of a fresh seed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array, Words
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Keyed, Query, Report, Summary
from fedhist.privacy.ledger import Ledger
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams, Streams
from server.noise import NoiseFactory
from server.session.curator import Curator
from server.session.journal import Journal
from server.session.session import in_key_order
from simulations.audit.drawing import Client, Watched
from simulations.audit.features import Answer

VIEWS = ("estimate", "choices", "status", "support")
STATUSES = ("ok", "refused", "failed", "broken off")
BROKEN = STATUSES.index("broken off")

MOST_KEPT = 1 << 10
MOST_NUMBERS = 256
MOST_ORDERED = 8
"""Of so many keys it is looked at which comes first, pair by pair."""
QUESTIONS = "the hash of the questions"
_GRID = 2.0**20
_WORDS = 1 << 12

_COUNTED = (
    "the number of other public numbers",
    "the number of questions",
    "the number of charges",
    QUESTIONS,
)

Views = Mapping[str, Mapping[str, Array]]


@dataclass(frozen=True)
class Layout:
    """Which numbers of an estimate stand where.

    ``public``: names of the public numbers; others are only counted; ``width``: most entries of a
    value without keys that are looked at; ``names``: keys to look at where an estimate has keys;
    ``ordered``: keys whose order is looked at: those that came out most often.
    """

    public: tuple[str, ...]
    width: int
    names: Keys | None
    ordered: Keys

    @classmethod
    def of(cls, estimates: Sequence[Estimate], vocabulary: Keys | None) -> Layout:
        """Learn it from a few runs."""
        public = tuple(sorted({name for e in estimates for name in e.public}))
        sizes = [e.value.size for e in estimates if e.value is not None and e.keys is None]
        names = None
        if vocabulary is not None and any(e.keys is not None for e in estimates):
            at = np.linspace(0, len(vocabulary) - 1, min(len(vocabulary), MOST_NUMBERS))
            names = Keys.of(dict.fromkeys(vocabulary[int(j)] for j in at))
        common = Counter(key for e in estimates for key in e.keys or ())
        ordered = Keys.of(key for key, _ in common.most_common(MOST_ORDERED))
        width = min(max(sizes, default=0), MOST_NUMBERS)
        return cls(public, width, names, ordered)

    def views(self, runs: Sequence[Run]) -> Views:
        """Tabulate runs: arrays with one row for each, by view and name."""
        n = len(runs)
        width = self.width if self.names is None else len(self.names)
        value, stderr = np.full((n, width), np.nan), np.full((n, width), np.nan)
        choices = np.full((n, len(self.public) + len(_COUNTED)), np.nan)
        status, size = np.zeros((n, 2), dtype=np.int64), np.zeros(n, dtype=np.int64)
        present = np.zeros((n, width if self.names is not None else 0), dtype=bool)
        pairs = list(combinations(range(len(self.ordered)), 2))
        order = np.zeros((n, len(pairs)), dtype=np.int64)
        for i, run in enumerate(runs):
            e = run.estimate
            status[i] = run.status, zlib.crc32(run.words.encode()) % _WORDS
            named = [e.public.get(name, np.nan) for name in self.public]
            unnamed = len(e.public.keys() - set(self.public))
            choices[i] = [*named, unnamed, len(run.queries), run.charged, run.questions]
            if e.value is None:
                continue
            size[i] = e.value.size
            for row, numbers in ((value[i], e.value), (stderr[i], e.stderr)):
                if numbers is None:
                    continue
                if e.keys is None:
                    flat = np.asarray(numbers, dtype=np.float64).reshape(-1)[:width]
                    row[: len(flat)] = flat
                elif self.names is not None:
                    at = _positions(self.names, e.keys)
                    row[at[at >= 0]] = np.asarray(numbers)[at >= 0]
                    present[i, at[at >= 0]] = True
            if e.keys is not None:
                order[i] = _order(self.ordered, e.keys)
        where = range(width) if self.names is None else map(repr, self.names)
        places = [f"[{j}]" for j in where]
        return {
            "estimate": {
                **_columns("value", places, _coarse(value)),
                **_columns("stderr", places, _coarse(stderr)),
                "the number of values": size,
            },
            "choices": _columns("", (*self.public, *_COUNTED), _coarse(choices)),
            "status": _columns("", ("the status", "the hash of the reason and warnings"), status),
            "support": {
                **_columns("the presence of ", places[: present.shape[1]], present),
                **_columns("whether ", (_pair(self.ordered, *p) for p in pairs), order),
                "the number of keys": size,
            },
        }


@dataclass(frozen=True)
class Run:
    """What one run shows to the world.

    ``estimate``: "failed" where the run broke off; ``status``: index into STATUSES; ``charged``:
    entries of the ledger; ``queries``: the questions: whoever answers reads them; ``digests``:
    theirs.
    """

    estimate: Estimate
    status: int
    charged: int
    queries: tuple[Query, ...]
    digests: str

    @property
    def questions(self) -> int:
        """A hash of the questions."""
        return zlib.crc32(self.digests.encode()) % _WORDS

    @property
    def words(self) -> str:
        """All text that is published."""
        return "\n".join((self.estimate.reason, *self.estimate.warnings))


class Runs:
    """Whole runs of a protocol on one population, with fresh noise for each.

    ``seed``: of the clients' own randomness, should they use any.
    """

    def __init__(self, protocol: Protocol, users: Users, seed: int) -> None:
        self.protocol, self.users, self.seed = protocol, users, seed
        self._answers: dict[str, Summary] = {}
        self._views: dict[bytes, Views] = {}

    def run(self, seed: int) -> Run:
        """Run once.

        The ledger has no limit: what the script would release is compared, not what a session
        lets it.
        """
        digests, asked, ledger = "", list[Query](), Ledger()
        curator = Curator(ledger, NoiseFactory("simulated", seed), Journal())
        script = self.protocol.rounds(curator)
        try:
            query = self.protocol.asks(next(script), 0)
            while True:
                digest = query_digest(query, len(asked))
                digests += digest
                asked.append(query)
                curator.holds(query)
                summary = self.ask(query, digest, seed)
                query = self.protocol.asks(script.send(summary), len(asked))
        except StopIteration as stop:
            estimate: Estimate = in_key_order(self.protocol, stop.value)
            status = STATUSES.index(estimate.status)
        except Exception as error:  # whatever it is, its operator sees it
            estimate, status = Estimate.failed(f"{type(error).__name__}: {error}"), BROKEN
        return Run(estimate, status, len(ledger.entries), tuple(asked), digests)

    def ask(self, query: Query, digest: str, seed: int) -> Summary:
        """Answer for the whole population, from memory where the answer is no random one."""
        stored = self._answers.get(digest)
        if stored is None:
            drawn: list[Words] = []

            def streams(batch: Users) -> Streams:
                key = self.seed ^ seed  # fresh in every run
                return Watched(SeededStreams(batch.ids, key, digest), drawn)

            stored = query.answer_folded(self.users.select(query.cohort), streams)
            if drawn or len(self._answers) >= MOST_KEPT:
                return stored
            self._answers[digest] = stored
        return _copy(stored)

    def views(self, layout: Layout, seeds: Words) -> Views:
        """Tabulate one run for each seed; the same seeds again cost nothing."""
        key = seeds.tobytes()
        if key not in self._views:
            self._views[key] = layout.views([self.run(seed) for seed in seeds.tolist()])
        return self._views[key]

    def client(self, layout: Layout, view: str) -> Client:
        """Make a client half that answers with one view of a run, for the auditor to draw from."""

        def answer(batch: Users, rng: Streams) -> Answer:
            return (Report(batch.ids, self.views(layout, rng.words(1)[:, 0])[view]),)

        return answer


def _columns(what: str, names: Iterable[str], table: Array) -> dict[str, Array]:
    return {f"{what}{name}": table[:, j] for j, name in enumerate(names)}


@lru_cache(maxsize=256)
def _order(names: Keys, keys: Keys) -> NDArray[np.int64]:
    """Say of every pair of names whether the first comes before: 1 or 0; -1 unless both do."""
    at = keys.positions(names)
    a, b = (np.array(x, dtype=np.int64) for x in np.triu_indices(len(names), 1))
    both = (at[a] >= 0) & (at[b] >= 0)
    return np.where(both, at[a] < at[b], -1)


def _pair(names: Keys, a: int, b: int) -> str:
    return f"{names[a]!r} comes before {names[b]!r}"


@lru_cache(maxsize=256)
def _positions(names: Keys, keys: Keys) -> NDArray[np.int32]:
    return names.positions(keys)


def _copy(summary: Summary) -> Summary:
    """Copy the arrays: a script may change what it is given."""
    return replace(
        summary,
        sums={k: a.copy() for k, a in summary.sums.items()},
        rows={k: a.copy() for k, a in summary.rows.items()},
        keyed={k: Keyed(p.keys, p.values.copy()) for k, p in summary.keyed.items()},
    )


def _coarse(x: NDArray[Any]) -> NDArray[np.float64]:
    """Round to a grid far below the noise: how simulated noise rounds is no protocol's fault."""
    return np.asarray(np.rint(x * _GRID) / _GRID)
