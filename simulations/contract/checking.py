"""The way in: hold a protocol to all laws, at once or as tests of pytest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users
from simulations.contract import (
    budgets,
    declarations,
    estimates,
    messages,
    refusals,
    reports,
    restarts,
    shares,
    spread,
)
from simulations.contract.law import LAWS, Law

if TYPE_CHECKING:
    import pytest

__all__ = ["Law", "check_protocol", "laws", "parametrize"]

ROOMS = (declarations, estimates, budgets, reports, refusals, messages, restarts, shares, spread)

laws: Mapping[str, Law] = LAWS
"""Every law of the contract by its name."""


def check_protocol(protocol: Protocol, users: Users | None = None) -> dict[str, str]:
    """Hold a protocol to every law of the contract that is for such protocols.

    The laws hold for all protocols of fedhist: that the budget is spent and not more, that no user
    moves a release further than its noise is sized for, that draws have the size they are paid for,
    that estimates are exact without noise and on average, that users' rows do not depend on each
    other, that sums do not depend on the packing, that messages arrive, that runs go on where they
    were killed. :data:`fedhist.testing.laws` lists them.

    Parameters
    ----------
    protocol : Protocol
        An object of any registered class, from a plugin as well.
    users : Users, optional
        Whom it is run on: some hundreds, whom it need not clip. Default: the class's
        ``example_users()``.

    Returns
    -------
    dict of str to str
        The laws that are not for such a protocol, by name, and why.

    Raises
    ------
    AssertionError
        At the first law that does not hold: with the law, the protocol and what is different.

    See Also
    --------
    parametrize : The same as tests of pytest, one for each law.

    Examples
    --------
    >>> from fedhist.protocols import BoundedHistogram
    >>> from fedhist.testing import check_protocol
    >>> passed_over = check_protocol(BoundedHistogram.example())
    >>> passed_over["honest-shares-are-the-whole-noise"]
    'honest-shares-are-the-whole-noise is for protocols whose nodes add the noise'
    """
    passed_over = {}
    for name, law in laws.items():
        try:
            law(protocol, users)
        except SkipTest as e:
            passed_over[name] = str(e)
    return passed_over


def parametrize(protocols: Iterable[Protocol]) -> pytest.MarkDecorator:
    """Make a test of pytest run once for each protocol and law.

    Of several protocols of one name the first is held to all laws, the others to those in which one
    configuration does not stand for all. There is no test of a law that is not for a protocol;
    what shows only in a run skips the test, with the reason.

    Parameters
    ----------
    protocols : iterable of Protocol

    Returns
    -------
    decorator of pytest
        For a test with the arguments ``protocol`` and ``law``.

    Examples
    --------
    >>> from fedhist.protocols import BoundedHistogram
    >>> from fedhist.testing import parametrize
    >>> @parametrize([BoundedHistogram.example()])
    ... def test_the_contract(protocol, law):
    ...     law(protocol)
    """
    import pytest

    params: list[Any] = []
    numbers: dict[str, int] = {}
    for protocol in protocols:
        number = numbers[protocol.name] = numbers.get(protocol.name, -1) + 1
        label = f"{protocol.name}-{number}" if number else protocol.name
        params += [
            pytest.param(protocol, law, id=f"{label}-{law.name}")
            for law in laws.values()
            if law.is_for(protocol) and not (number and law.once)
        ]
    return pytest.mark.parametrize(("protocol", "law"), params)
