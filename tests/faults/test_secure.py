"""``noise = "secure"`` end to end: no seed, nothing drawn in floating point, and it is said."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from kill_campaign import SECURE, Case
from scipy import stats

from clients import answers, node
from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams, SystemStreams
from server.few_users.draws import Rotation
from server.noise import SecureNoise, SimulatedNoise
from simulations.cli import main as cli
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
    """Every seeded or floating-point source raises; the secure ones are counted.

    NumPy's and Python's generators are forbidden whole. One use is public and stays: the signs of
    a rotation are a function of a number in the protocol.
    """
    found = Seen(set())
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
        monkeypatch.setattr(dp.m, name, counted(getattr(dp.m, name), name, found))
    monkeypatch.setattr(SystemStreams, "_draw", counted(SystemStreams._draw, "ChaCha20", found))
    monkeypatch.setattr(Rotation, "signs", property(lambda self: signs[self.dimension, self.salt]))
    return found


def counted(call: Any, name: str, seen: Seen) -> Any:
    """Note a call of OpenDP's constructors: integers only, or scores compared bit by bit."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.draws.add(name)
        if name in ("make_laplace", "make_gaussian"):
            assert "i64" in str(args[0]), f"{name} on {args[0]}"
        return call(*args, **kwargs)

    return noted


def population(name: str) -> Users:
    return protocol_class(name).example_users()


@pytest.fixture(scope="module")
def users() -> dict[str, Users]:
    """Made before anything is forbidden: examples are drawn with seeds."""
    return {name: population(name) for name in own_protocols()}


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
    assert estimate.ledger is not None
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
    """Before anybody is asked, and with a way out that the example above takes."""
    plain = PLAIN[name]
    estimate = execute(plain, users[name], SECURE_OPTIONS).estimate
    assert estimate.status == "refused"
    assert 'noise = "secure"' in estimate.reason
    changes = SECURE[name]
    assert any(key in estimate.reason for key in changes), estimate.reason
    assert not seen.draws
    assert estimate.ledger is not None
    assert not estimate.ledger.entries


PLAIN = {name: protocol_class(name).example() for name in SECURE}


def test_the_oracle_of_few_users_is_refused(users: dict[str, Users], seen: Seen) -> None:
    plain = PLAIN["user-level-erm"]
    protocol = dataclasses.replace(plain, oracle="few-users", steps=8, max_failed=0.9)  # type: ignore[call-arg]
    estimate = execute(protocol, users["user-level-erm"], SECURE_OPTIONS).estimate
    assert estimate.status == "refused"
    assert "take another oracle" in estimate.reason


def test_the_instrument_is_not_blind(users: dict[str, Users], seen: Seen) -> None:
    for name in ("mean", "bounded-histogram"):
        with pytest.raises(Forbidden):
            execute(EXAMPLES[name], users[name], Options(seed=1))
    with pytest.raises(ValueError, match="no exact sampler"):
        real_generator()


real_generator = SecureNoise().generator


@pytest.mark.parametrize("runtime", [{"fold": True}, {"fold": False}])
def test_a_seed_changes_nothing(
    runtime: dict[str, Any], users: dict[str, Users], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seed twice: 120 or more coins of clients differ, equal with a chance below 2^-80."""
    made: list[Streams] = []
    original = answers.streams

    def noted(*args: Any) -> Streams:
        made.append(original(*args))
        return made[-1]

    for module in (answers, node):
        monkeypatch.setattr(module, "streams", noted)
    monkeypatch.setattr("simulations.runtimes.inline.streams", noted)
    values = []
    for _ in range(2):
        options = Options(seed=7, noise="secure", **runtime)
        values.append(execute(EXAMPLES["mean-linf"], users["mean-linf"], options).estimate.value)
    assert made
    assert {type(s) for s in made} == {SystemStreams}
    assert values[0] is not None
    assert not np.array_equal(values[0], values[1])


def test_cryptographic_bits_have_the_channel_s_law() -> None:
    """A count of 2^18 bits, each Bernoulli(p); a false alarm has a chance of 1e-9 each."""
    n = 1 << 12
    for p in (1 / 3, 1 / (1 + np.e)):
        packed = SystemStreams(n).bernoulli_bits(64, p)
        ones = int(np.bitwise_count(packed).sum())
        assert stats.binomtest(ones, 64 * n, p).pvalue > 1e-9


def test_what_is_simulated_with_a_seed_is_refused() -> None:
    with pytest.raises(ValueError, match='noise = "secure" has no seed'):
        Options(noise="secure", clients="aggregate")


SMALL = ["run.runtime=inline", "run.nodes=1", "run.noise=secure", "population.n_users=60"]
MEAN = ["mean", *SMALL, "protocol.epsilon=4.0", "population.samples_per_user=20"]
HISTOGRAM = ["quickstart", *SMALL, 'protocol.grid="default"', "population.d=12"]


def run_cli(monkeypatch: pytest.MonkeyPatch, config: str, *settings: str, out: Path) -> object:
    """Call ``fedhist run`` and return its exit code."""
    arguments = [argument for setting in settings for argument in ("--set", setting)]
    monkeypatch.setattr(sys, "argv", ["fedhist", "run", config, *arguments, "--out", str(out)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.mark.parametrize("config", [MEAN, HISTOGRAM], ids=["local", "central"])
def test_the_results_say_secure(
    config: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is printed, and the ledger in the run's folder."""
    assert not run_cli(monkeypatch, *config, out=tmp_path / "results")
    assert "secure (" in capsys.readouterr().out
    (ledger,) = tmp_path.rglob("ledger.json")
    assert json.loads(ledger.read_text())["noise"] == "secure"


def test_a_refused_choice_of_options_reserves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "spent.jsonl"
    more = ["run.clients=aggregate", f"run.ledger={ledger}"]
    assert run_cli(monkeypatch, *MEAN, *more, out=tmp_path / "results")
    assert "has no seed" in " ".join(capsys.readouterr().err.split())
    assert not ledger.exists()
