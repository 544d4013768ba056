"""``noise = "secure"`` end to end: no seed, nothing drawn in floating point, and it is said."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
import scipy.stats  # noqa: F401 - it makes a generator when it is imported
from commands import Command
from kill_campaign import SECURE, Case

from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, SystemStreams
from server.few_users.draws import Rotation
from server.noise import SecureNoise, SimulatedNoise
from simulations.runs.options import Options
from simulations.runs.run import execute

load_builtin()
SECURE_OPTIONS = Options(seed=1, noise="secure", nodes=2)


class Forbidden(Exception):
    """Something drew what secure noise must not draw."""


@dataclasses.dataclass
class Seen:
    """What the run drew from, by name."""

    draws: set[str]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Every seeded or floating-point source raises; the secure ones are counted."""
    result = Seen(set())
    signs = {(d, s): Rotation(d, s).signs for d in (20, 24, 32, 40) for s in (1,)}

    def forbid(owner: Any, name: str) -> None:
        def forbidden(*args: Any, **kwargs: Any) -> Any:
            raise Forbidden(f"{getattr(owner, '__name__', owner)}.{name} was used")

        monkeypatch.setattr(owner, name, forbidden)

    for name in ("default_rng", "Generator", "Philox", "PCG64", "MT19937", "RandomState", "random"):
        forbid(np.random, name)
    for name in ("random", "getrandbits", "gauss", "Random"):
        forbid(random, name)
    for name in ("__init__", "_of", "words", "bernoulli_bits", "ragged_words"):
        forbid(SeededStreams, name)
    forbid(SimulatedNoise, "__init__")
    for name in ("laplace", "gaussian", "generator"):
        forbid(SecureNoise, name)
    for name in ("make_laplace", "make_gaussian", "make_noisy_max"):
        monkeypatch.setattr(dp.m, name, counted(getattr(dp.m, name), name, result))
    monkeypatch.setattr(SystemStreams, "_draw", counted(SystemStreams._draw, "ChaCha20", result))
    monkeypatch.setattr(Rotation, "signs", property(lambda self: signs[self.dimension, self.salt]))
    return result


def counted(call: Any, name: str, seen: Seen) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.draws.add(name)
        if name in ("make_laplace", "make_gaussian"):
            assert "i64" in str(args[0]), f"{name} on {args[0]}"
        return call(*args, **kwargs)

    return noted


@pytest.fixture(scope="module")
def users() -> dict[str, Users]:
    return {name: protocol_class(name).example_users() for name in own_protocols()}


NAMES = list(own_protocols())
EXAMPLES = {name: Case(name, "secure").protocol for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_seeded_and_nothing_is_real(
    name: str, users: dict[str, Users], seen: Seen
) -> None:
    """Every protocol, served: what it draws from is exact integers and system entropy alone."""
    protocol = EXAMPLES[name]
    estimate = execute(protocol, users[name], SECURE_OPTIONS).estimate
    assert estimate.status in ("ok", "failed"), estimate.reason
    assert estimate.ledger.entries
    assert estimate.ledger.noise == "secure"
    if protocol.guarantee.trust is Trust.LOCAL:
        assert seen.draws == {"ChaCha20"}
    else:
        assert seen.draws & {"make_laplace", "make_gaussian", "make_noisy_max"}


@pytest.mark.parametrize("name", sorted(SECURE))
def test_what_has_no_exact_sampler_is_refused(
    name: str, users: dict[str, Users], seen: Seen
) -> None:
    plain = PLAIN[name]
    estimate = execute(plain, users[name], SECURE_OPTIONS).estimate
    assert estimate.status == "refused"
    changes = SECURE[name]
    assert any(key in estimate.reason for key in changes), estimate.reason
    assert not seen.draws
    assert not estimate.ledger.entries


PLAIN = {name: protocol_class(name).example() for name in SECURE}


def test_the_oracle_of_few_users_is_refused(users: dict[str, Users], seen: Seen) -> None:
    plain = PLAIN["user-level-erm"]
    protocol = dataclasses.replace(plain, oracle="few-users", steps=8, max_failed=0.9)
    estimate = execute(protocol, users["user-level-erm"], SECURE_OPTIONS).estimate
    assert estimate.status == "refused"
    assert "oracle" in estimate.reason


def test_the_instrument_is_not_blind(users: dict[str, Users], seen: Seen) -> None:
    for name in ("mean", "bounded-histogram"):
        with pytest.raises(Forbidden):
            execute(EXAMPLES[name], users[name], Options(seed=1))
    with pytest.raises(ValueError, match="exact"):
        real_generator()


real_generator = SecureNoise().generator


def test_a_seed_changes_nothing(users: dict[str, Users]) -> None:
    """The same seed twice: 120 or more coins of clients differ, equal with a chance below 2^-80."""
    options = Options(seed=7, noise="secure")
    one, two = (
        execute(EXAMPLES["mean-linf"], users["mean-linf"], options).estimate.value for _ in range(2)
    )
    assert one is not None
    assert not np.array_equal(one, two)


def test_the_results_say_secure(fedhist: Command) -> None:
    settings = ("run.runtime=inline", "run.nodes=1", "run.noise=secure", "population.n_users=60")
    told = fedhist("run", "mean", *(x for s in settings for x in ("--set", s)), "--out", "results")
    assert told.status == 0, told.err
    assert "secure (" in told.out
    (ledger,) = Path().rglob("ledger.json")
    assert json.loads(ledger.read_text())["noise"] == "secure"


def test_what_is_simulated_with_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="secure"):
        Options(noise="secure", clients="aggregate")
