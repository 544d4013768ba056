"""What tests of protocols share: a run in this process, and small populations."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from scipy.stats import chisquare

import fedhist as fh
from fedhist.privacy.ledger import Ledger
from fedhist.privacy.noise_law import Noise
from fedhist.users.shards import BLOCK, Wrapped
from server.noise import SecureNoise, SimulatedNoise
from server.session.journal import Journal
from server.session.session import Session
from simulations.runtimes.inline import InlinePopulation


class Cut(Wrapped):
    """Users who come in blocks that end at some of them."""

    users: fh.Users

    def __init__(self, users: fh.Users, ends: tuple[int, ...]) -> None:
        super().__init__(users)
        self.ends = ends

    def blocks(self, size: int = BLOCK) -> Iterator[fh.Users]:
        for a, b in pairwise((0, *self.ends, len(self.users))):
            yield self.users.slice(a, b)


class Ran(NamedTuple):
    """What a run returned, what it asked, and what was answered."""

    estimate: fh.Estimate
    queries: list[Any]
    summaries: list[fh.Summary]


def run(
    protocol: fh.Protocol,
    users: fh.Users,
    seed: int = 0,
    *,
    aggregate: bool = False,
    nodes: int = 1,
    noise: Noise | None = None,
) -> Ran:
    """Run a protocol; by the exact law of the summaries where that is asked for."""
    session = Session(protocol, noise or (lambda index: SimulatedNoise(seed, index)))
    population = InlinePopulation(
        users.split(nodes) if nodes > 1 else [users], seed, aggregate=aggregate
    )
    queries: list[fh.Query] = []
    summaries: list[fh.Summary] = []
    while session.query is not None:
        queries.append(session.query)
        summaries.append(population.ask(session.query, session.round_index))
        session.query.check_summary(summaries[-1])
        session.advance(summaries[-1])
    assert session.estimate is not None
    return Ran(session.estimate, queries, summaries)


drawn = partial(run, aggregate=True)


def result(
    protocol: fh.Protocol, users: fh.Users, seed: int = 1, *, noise: Noise | None = None
) -> fh.Estimate:
    return run(protocol, users, seed, noise=noise).estimate


def drive(script: fh.Script, users: fh.Users, seed: int = 0) -> tuple[Any, list[fh.Query]]:
    """Walk a script, or a part of one, by hand: what it returns, and what it asked."""
    asked: list[fh.Query] = []
    summary: Any = None
    while True:
        try:
            query = script.send(summary)
        except StopIteration as end:
            return end.value, asked
        asked.append(query)
        some = users.select(query.cohort)
        summary = query.answer_folded(some, lambda part: streams(part, seed))
        query.check_summary(summary)


def curator(noise: Noise | None = None) -> fh.Curator:
    """Make a Curator without a limit, which draws as simulations do unless it is told otherwise."""
    return fh.Curator(Ledger(), noise or (lambda index: SimulatedNoise(0, index)), Journal())


def concluded(protocol: Any, summary: fh.Summary) -> Any:
    """Return what a script of one question, which releases nothing, makes of its answer."""
    script = protocol.rounds(None)
    next(script).check_summary(summary)
    try:
        script.send(summary)
    except StopIteration as end:
        return end.value
    raise AssertionError("a second question")


class Recorder:
    """Stands for the Curator: keeps what would be released, and how, without noise."""

    grade = "simulated"

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def method(value: Any, **how: Any) -> Any:
            value = np.array(value)
            self.calls.append((name, value, how))
            return value.argmax(axis=-1) if name.startswith("exponential") else value

        return method

    def law(self) -> NDArray[np.float64]:
        """Return the exact law of the only choice that was made."""
        ((_, scores, how),) = self.calls
        return np.asarray(softmax(scores * how["epsilon"] / (2 * how["sensitivity"])))

    def sensitivities(self) -> dict[str, float]:
        return {
            way["label"]: next(v for k, v in way.items() if k.endswith("sensitivity"))
            for _, _, way in self.calls
        }


def recorded(kind: str, seed: int = 1) -> tuple[Noise, list[tuple[Any, float]]]:
    """Draw noise as simulations do; list the shape and scale or std of all that is of a kind."""
    drawn: list[tuple[Any, float]] = []

    def source(index: int) -> SimulatedNoise:
        noise = SimulatedNoise(seed, index)
        plain = getattr(noise, kind)

        def draw(shape: Any, size: float) -> Any:
            drawn.append((shape, size))
            return plain(shape, size)

        setattr(noise, kind, draw)
        return noise

    return source, drawn


def secure(index: int) -> SecureNoise:
    return SecureNoise()


def streams(users: fh.Users, seed: int = 0, context: str = "test") -> fh.SeededStreams:
    return fh.SeededStreams(users.ids, seed, context)


def p_value(observed: ArrayLike, expected: ArrayLike) -> float:
    """Test counts by Pearson; cells of which fewer than 10 are expected are one."""
    result, mean = np.asarray(observed, float), np.asarray(expected, float)
    few = mean < 10
    if mean[few].sum() < 10:
        few[np.argmin(np.where(few, np.inf, mean))] = True
    result, mean = (np.append(a[~few], a[few].sum()) for a in (result, mean))
    if len(result) == 1:
        return 1.0
    return float(chisquare(result, mean / mean.sum() * result.sum()).pvalue)


def coins(n: int, seed: int = 0) -> fh.SeededStreams:
    return fh.SeededStreams(np.arange(n, dtype=np.uint64), seed, "test")


def table_users(table: ArrayLike, keys: fh.Keys | None = None) -> fh.Users:
    """Users from an (n, d) table of counts; the items are 0, ..., d - 1 unless they have names."""
    counts = np.asarray(table)
    user, item = np.nonzero(counts)
    names = fh.Keys.range(counts.shape[1]) if keys is None else keys
    return fh.Users.from_counts(np.arange(len(counts)), user, item, counts[user, item], names)


def zipf_table(n: int, d: int, mean: float, seed: int = 0) -> NDArray[np.int64]:
    """Counts of users of geometric sizes, whose items have weights 1, 1 / 2, ..., 1 / d: (n, d)."""
    rng, p = np.random.default_rng(seed), 1 / np.arange(1, d + 1)
    return rng.multinomial(rng.geometric(1 / mean, n), p / p.sum())


def one_sample(rows: ArrayLike) -> fh.Users:
    """Users with one sample each, which stands for the mean of many: (n, d)."""
    x = np.asarray(rows, dtype=np.float64)
    ids, indptr = np.arange(1, len(x) + 1), np.arange(len(x) + 1)
    return fh.Users.from_samples(ids, indptr, x, unusable=True)


def sampled(sizes: ArrayLike, values: ArrayLike) -> fh.Users:
    """Users 0, 1, ... who have so many of the samples each."""
    held = np.asarray(sizes)
    indptr = np.append(0, np.cumsum(held))
    return fh.Users.from_samples(np.arange(len(held)), indptr, values, unusable=True)


def one_each(*records: list[float]) -> fh.Users:
    """Users 0, 1, ... who have these numbers."""
    return sampled([len(r) for r in records], [x for r in records for x in r])


def count_table(users: fh.Users, domain: fh.Keys) -> NDArray[np.float64]:
    """Hold every user's count of every item of the domain, slowly: (n, d)."""
    v, at, out = (
        users.counts,
        domain.positions(users.vocabulary),
        np.zeros((len(users), len(domain))),
    )
    for u in range(len(users)):
        for k in range(v.indptr[u], v.indptr[u + 1]):
            if at[v.item[k]] >= 0:
                out[u, at[v.item[k]]] += v.count[k]
    return out
