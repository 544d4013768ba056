"""Protocols that trust the server, and the same with shares of the nodes, keep the contract."""

from __future__ import annotations

import pytest
from configurations import has_shares, named, shared

from fedhist.model.protocol import Protocol
from fedhist.model.registry import own_protocols, protocol_class
from fedhist.privacy.guarantee import Trust
from fedhist.testing import Law, parametrize
from simulations.runs.config import reason


@parametrize(p for p in named() if p.guarantee.trust is Trust.CENTRAL)
def test_the_contract(protocol: Protocol, law: Law) -> None:
    law(protocol)


@parametrize(p for name in own_protocols() for p in shared(name))
def test_the_contract_with_shares(protocol: Protocol, law: Law) -> None:
    law(protocol)


@pytest.mark.parametrize("name", own_protocols())
def test_a_protocol_has_shares_or_says_why_not(name: str) -> None:
    assert bool(shared(name)) == has_shares(name)
    assert has_shares(name) or len(reason(protocol_class(name)).split()) > 5


def test_every_protocol_is_held_to_it() -> None:
    assert set(own_protocols()) < {p.name for p in named()}
