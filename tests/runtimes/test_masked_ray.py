"""Sums under masks on Ray: the bits of one process, also where a worker dies between rounds."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable

import numpy as np
import pytest
from flwr.app import Message
from masked_grids import ROUNDS, SEED, start, total_of

from fedhist import Users
from fedhist.flower.wire import kind_of
from fedhist.privacy.shares import Aggregation
from fedhist.protocols import BoundedHistogram
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.runtimes.ray_grid import RayGrid

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("one_ray")]
N = 20
USERS = Users.from_records({f"user-{i}": {"tea": 1 + i % 3, "rye": i % 2} for i in range(100)})
PROTOCOL = BoundedHistogram(
    domain=USERS.vocabulary, clip=3.0, epsilon=1.0, delta=1e-6, grid=0.01, trust=Aggregation(N)
)


class FatalGrid(RayGrid):
    """Kills a worker before the messages of a round are sent."""

    fatal = ""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        if kind_of(sent[0].content) == "secagg." + self.fatal:
            os.kill(min(self._pids), signal.SIGKILL)
        return super().send_and_receive(sent, timeout=600.0)


@pytest.mark.parametrize("fatal", ["", pytest.param(ROUNDS[2], marks=pytest.mark.slow)])
def test_same_bits_as_in_one_process(fatal: str) -> None:
    here = execute(PROTOCOL, USERS, Options(seed=SEED, nodes=N)).estimate
    with FatalGrid(USERS, N, SEED, workers=2) as grid:
        grid.fatal = fatal
        session, strategy = start(grid, PROTOCOL)
    assert here.value is not None
    np.testing.assert_array_equal(session.estimate.value, here.value)
    assert strategy.rounds[0]["replies"] == N
    assert len(total_of(session)) == 2
    assert len(grid._kept[0].lines) == 1
