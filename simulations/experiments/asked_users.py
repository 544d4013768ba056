"""Users of local protocols whose records are drawn when they are asked: exact in law, any size.

Each user of a local protocol answers one query and then nothing more, and an answer reads one
scalar of the record, or its votes. So a record is drawn when its user is asked, and only what
the query reads of it: the joint law of all answers is that of users who held their records
before. Neither n T samples nor n d numbers are ever held. NOT PRIVATE.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import binom

from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.users.batch import Users
from fedhist.users.folds import fold_of
from server.noise import noise_source
from server.session.session import Session
from simulations.experiments.local_populations import fresh_ids
from simulations.runtimes.inline import InlinePopulation

BLOCK = 1 << 25
"""Numbers of a dense block of records."""


@dataclass(frozen=True, eq=False)
class AskedUsers(ABC):
    """A population of i.i.d. users with T samples each.

    ``samples``: T.
    """

    n_users: int
    samples: int

    @abstractmethod
    def draw(self, query: Query, ids: Words, rng: np.random.Generator) -> Users:
        """Draw what the query reads of these users' records."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers that one drawn record takes."""

    def run(self, protocol: Protocol, seed: int) -> Estimate:
        """Run a protocol in which each user answers at most once, under fresh ids."""
        session = Session(protocol, noise_source("simulated", seed, protocol))
        if session.query is None:  # refused before anybody was asked
            return session.estimate or Estimate.failed("no query and no estimate")
        return session.run(Asked(self, seed).ask)


@dataclass(frozen=True, eq=False)
class Asked:
    """One run on a population, for one seed."""

    population: AskedUsers
    seed: int

    @cached_property
    def ids(self) -> Words:
        """The users, anew for each seed."""
        rng = np.random.default_rng(digest64("asked ids", self.seed))
        return fresh_ids(self.population.n_users, rng)

    def ask(self, query: Query, round_index: int) -> Summary:
        """Draw the records of those who are asked, block by block, and ask them."""
        cohort, ids = query.cohort, self.ids
        asked = ids if cohort is None else ids[cohort.contains(ids)]
        size = max(1, BLOCK // self.population.width)
        parts = []
        for start in range(0, max(len(asked), 1), size):
            # streams of their own: the answers draw from others, keyed by seed and query
            key = digest64("asked records", self.seed, round_index, start)
            rng = np.random.default_rng(key)
            users = self.population.draw(query, asked[start : start + size], rng)
            node = InlinePopulation([users], key, aggregate=True)
            parts.append(node.ask(query, round_index))
        return Summary.merge(parts)


@dataclass(frozen=True, eq=False)
class SparseCoins(AskedUsers):
    """Samples of {-1, 1}^d, independent, with the mean theta: 2 Bin(T, (1 + theta_j) / 2) / T - 1.

    ``theta``: (d,) float64, mostly 0.
    """

    theta: Floats

    @property
    def width(self) -> int:
        return len(self.theta)

    def draw(self, query: Query, ids: Words, rng: np.random.Generator) -> Users:
        """Draw the means that can be voted for, or the one of the user's fold; the rest is 0."""
        if isinstance(query, HashedVotes):
            rows = self._votable(len(ids), float(query.threshold), rng)
        else:
            if not isinstance(query, BinVotes | ClippedMean):
                raise TypeError(f"this population answers queries about means, got {query!r}")
            functional: Any = query.functional
            fold = fold_of(ids, query.fold_salt, functional.n_folds)
            column = fold if functional.columns is None else functional.columns[fold]
            rows = np.zeros((len(ids), len(self.theta)))
            rows[np.arange(len(ids)), column] = self._means(self.theta[column], rng)
        return Users.from_samples(ids, np.arange(len(ids) + 1), rows)

    def _means(self, theta: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(2 * rng.binomial(self.samples, (1 + theta) / 2) / self.samples - 1)

    def _votable(self, n: int, threshold: float, rng: np.random.Generator) -> Floats:
        """Draw every mean that is at least a threshold from 0; those below it may be anything."""
        rows = np.zeros((n, len(self.theta)))
        signal = np.flatnonzero(self.theta)
        rows[:, signal] = self._means(np.tile(self.theta[signal], (n, 1)), rng)
        null = np.flatnonzero(self.theta == 0)
        levels = 2 * np.arange(self.samples + 1) / self.samples - 1
        far = np.abs(levels) >= threshold
        weight = binom.pmf(np.flatnonzero(far), self.samples, 0.5)
        cells = successes(n * len(null), float(weight.sum()), rng)
        values = rng.choice(levels[far], size=len(cells), p=weight / weight.sum())
        rows[cells // len(null), null[cells % len(null)]] = values
        return rows


def successes(trials: int, p: float, rng: np.random.Generator) -> Integers:
    """Return which of many independent trials succeed, by the gaps between them.

    >>> successes(3, 1.0, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    if p <= 0 or trials == 0:
        return np.zeros(0, dtype=np.int64)
    findings, last = [], -1
    while last < trials:
        expected = (trials - last) * p
        gaps = rng.geometric(min(p, 1.0), math.ceil(expected + 4 * math.sqrt(expected) + 8))
        findings.append(last + np.cumsum(gaps))
        last = int(findings[-1][-1])
    places = np.concatenate(findings)
    return np.asarray(places[places < trials], dtype=np.int64)
