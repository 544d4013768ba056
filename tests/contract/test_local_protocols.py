"""Local protocols, and those behind a shuffler, keep the contract."""

from __future__ import annotations

from configurations import named

from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Trust
from fedhist.testing import Law, parametrize


@parametrize(p for p in named() if p.guarantee.trust is not Trust.CENTRAL)
def test_the_contract(protocol: Protocol, law: Law) -> None:
    law(protocol)
