"""Whole runs on two neighbouring populations, told apart by the auditor's own certificates.

A run is one draw: its answer is what it publishes. Thousands of runs with fresh noise under each
population are then compared like the answers of one user under two records.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from bank_frame import CentralBank

from fedhist.curator import Curator
from fedhist.journal import Journal
from fedhist.keys import Keys
from fedhist.ledger import Ledger
from fedhist.protocol import Estimate
from fedhist.query import Report, Summary
from fedhist.session import Session
from fedhist.streams import Streams
from fedhist.users import Users
from simulations.audit.drawing import Client, Drawer, Meter
from simulations.audit.features import Answer
from simulations.audit.finding import Finding, Settings
from simulations.audit.statistical import certify
from simulations.inline import InlinePopulation
from simulations.run import NoiseFactory

RUNS = 1 << 13
WIDTH = 48
"""Most numbers that a run of the bank publishes."""
GRID = 2.0**20
STATUSES = ("ok", "refused", "failed")


def published(protocol: CentralBank, users: Users) -> Client:
    """Make a client half whose every answer is a run's estimate: status, numbers, keys."""
    population = InlinePopulation([users], 0)
    session = Session(protocol, NoiseFactory("simulated", 0))
    if session.query is None:
        raise ValueError(f"{protocol.name} asks nothing")
    exact = population.ask(session.query, 0)  # a central answer is not random: once is enough
    # one complete run, with everything that a session checks; then the script alone
    session.advance(replace(exact, rows={n: a.copy() for n, a in exact.rows.items()}))

    def client(batch: Users, rng: Streams) -> Answer:
        table = np.full((len(batch), WIDTH), np.nan)
        for out, word in zip(table, rng.words(1)[:, 0].tolist(), strict=True):
            row = _numbers(_run(protocol, exact, word))
            out[: len(row)] = row
        # a grid far below the noise: how floats round is another check's business
        return (Report(batch.ids, {"published": np.rint(table * GRID) / GRID}),)

    return client


def _run(protocol: CentralBank, exact: Summary, seed: int) -> Estimate:
    script = protocol.rounds(Curator(Ledger(), NoiseFactory("simulated", seed), Journal()))
    next(script)
    try:
        script.send(exact)
    except StopIteration as stop:
        return stop.value
    raise ValueError(f"{protocol.name} asks more than one question")


def _numbers(estimate: Estimate) -> list[float]:
    row = [float(STATUSES.index(estimate.status)), *estimate.public.values()]
    if estimate.keys is not None:
        return [*row, float(len(estimate.keys)), _lowest(estimate.keys)]
    return row if estimate.value is None else [*row, *estimate.value.ravel().tolist()]


def _lowest(keys: Keys) -> float:
    return min((float(k) for k in keys), default=-1.0)


def audit_runs(protocol: CentralBank, settings: Settings, *, subject: str = "") -> Finding:
    """Compare runs on the protocol's two neighbouring populations."""
    meter, dummy = Meter(), Users.from_samples([0], [0, 1], [0.0])
    first, second = protocol.neighbours()
    pair = tuple(
        Drawer(published(protocol, users), dummy, words, settings.seed, meter)
        for users, words in ((first, "the first population"), (second, "the second population"))
    )
    claim = (protocol.guarantee.epsilon, protocol.guarantee.delta)
    n = max(int(RUNS * settings.effort), 256)
    return certify(
        (pair[0], pair[1]), claim, subject or protocol.name, settings, n, kind="end to end"
    )
