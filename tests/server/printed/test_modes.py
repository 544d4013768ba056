"""``mode`` builds the proven protocol or its version as printed, however it is said."""

import copy
import pickle
from dataclasses import dataclass, fields, replace

import pytest

import server.printed
from fedhist.model.codec import protocol_digest
from fedhist.model.protocol import Protocol
from fedhist.model.registry import own_protocols, parameters, protocol_class
from fedhist.protocols import Distribution, Mean, RaggedDistribution
from server.modes import TwoModes, printed_class

PRINTED = [name for name, cls in own_protocols().items() if issubclass(cls, TwoModes)]
NEEDED = {
    "distribution": {"mechanism": "gaussian"},
    "ragged-distribution": {},
    "few-users-mean": {"n_users": 400, "method": "auto", "n_blocks": None},
    "few-users-distribution": {"n_users": 400},
}
each = pytest.mark.parametrize("name", PRINTED)


def both(name: str) -> tuple[Protocol, Protocol]:
    """The example, with what its paper's version needs, in both modes."""
    proven = replace(protocol_class(name).example(), **NEEDED.get(name, {}))
    return proven, replace(proven, mode="paper")


def test_every_printed_class_is_that_of_a_protocol() -> None:
    result = {n for n in own_protocols() if printed_class(n) is not None}
    assert result == set(PRINTED)
    assert len(result) == 10
    rooms = {printed_class(n).__module__.rpartition(".")[2] for n in result}
    assert rooms == set(server.printed.__all__)


@each
def test_the_mode_builds_the_class(name: str) -> None:
    proven, printed = both(name)
    cls, as_printed = protocol_class(name), printed_class(name)
    assert as_printed is not None
    assert (type(proven), type(printed)) == (cls, as_printed)
    assert isinstance(printed, cls)
    assert parameters(cls) == parameters(as_printed)
    values = {f.name: getattr(printed, f.name) for f in fields(printed)}
    assert cls(**values) == printed == as_printed(**values)
    assert as_printed(**{k: v for k, v in values.items() if k != "mode"}) == printed
    assert replace(printed, mode="default") == proven
    assert replace(printed) == printed
    assert protocol_digest(printed) != protocol_digest(proven)


@each
def test_copies_keep_their_class(name: str) -> None:
    for protocol in both(name):
        for twin in (
            copy.copy(protocol),
            copy.deepcopy(protocol),
            pickle.loads(pickle.dumps(protocol)),
        ):
            assert type(twin) is type(protocol)
            assert twin == protocol


def test_a_mode_by_position_and_a_mode_that_is_none() -> None:
    printed = Mean(2.0, 400, 64, -1.0, 1.0, None, "auto", "paper")
    assert printed == Mean(2.0, 400, 64, -1.0, 1.0, mode="paper")
    assert type(printed) is printed_class("mean")
    with pytest.raises(ValueError, match=r"mode must be .* got 'papers'"):
        Mean(2.0, 400, 64, -1.0, 1.0, mode="papers")


@each
def test_a_subclass_never_draws_as_printed_and_states_what_is_proven(name: str) -> None:
    proven, _ = both(name)
    cls = dataclass(frozen=True)(type("Mine", (type(proven),), {"name": f"mine-{name}"}))
    values = {f.name: getattr(proven, f.name) for f in fields(proven)}
    assert type(cls(**values)) is cls
    with pytest.raises(ValueError, match="has no version as printed, got mode 'paper'"):
        cls(**values | {"mode": "paper"})


def test_what_is_really_guaranteed() -> None:
    """Only the printed classes claim what they do not guarantee."""
    for name in PRINTED:
        proven, printed = both(name)
        assert proven.claimed == proven.guarantee
        assert printed.claimed.epsilon == proven.guarantee.epsilon
    assert both(Distribution.name)[1].guarantee != both(Distribution.name)[1].claimed
    assert both(RaggedDistribution.name)[1].guarantee.epsilon != 6.0
