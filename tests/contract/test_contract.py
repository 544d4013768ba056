"""Every registered protocol keeps the contract; so do the throw-away protocols of the tests."""

from __future__ import annotations

from configurations import configured, shared

from fedhist.model.protocol import Protocol
from fedhist.model.registry import own_protocols
from fedhist.testing import Law, parametrize
from tests.conftest import throwaway_module

throwaway_module()
from fedhist.model.registry import protocols

NAMES = sorted(protocols())


@parametrize([p for name in NAMES for p in configured(name)])
def test_a_protocol(protocol: Protocol, law: Law) -> None:
    law(protocol)


@parametrize([p for name in own_protocols() for p in shared(name)])
def test_a_protocol_with_shares(protocol: Protocol, law: Law) -> None:
    law(protocol)
