"""A law: what it demands, of whom, and the function that holds a protocol to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest import SkipTest

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from simulations.contract.subject import Subject, subject_of


@dataclass(frozen=True)
class Whom:
    """Protocols that a law is for, in words; ``takes`` tells them."""

    words: str
    takes: Callable[[Protocol], bool]


EVERYBODY = Whom("every protocol", lambda p: True)
SERVER_TRUSTED = Whom(
    "protocols that trust the server", lambda p: p.guarantee.trust is Trust.CENTRAL
)
NODES_ADD_NOISE = Whom(
    "protocols whose nodes add the noise", lambda p: p.guarantee.trust is Trust.AGGREGATE
)
ANY_NODES = Whom(
    "protocols that any number of nodes can answer",
    lambda p: p.guarantee.trust is not Trust.AGGREGATE,
)


@dataclass(frozen=True)
class Law:
    """One law of the contract; call it with a protocol to hold that to it.

    Attributes
    ----------
    name : str
        In words with hyphens.
    demand : str
        What is demanded, in one line.
    whom : Whom
        Of which protocols.
    once : bool
        Whether one configuration of a class stands for the others.

    Examples
    --------
    >>> from fedhist.testing import laws
    >>> law = laws["spends-what-it-declares"]
    >>> law.demand
    'The ledger holds at most the guarantee, and .99 of it at least.'
    """

    name: str
    demand: str
    whom: Whom
    once: bool
    check: Callable[[Subject], None]

    def __call__(self, protocol: Protocol, users: Users | None = None) -> None:
        """Hold a protocol to the law, on its ``example_users()`` unless given others.

        Raises
        ------
        AssertionError
            If the law does not hold: with the law, the protocol and what is different.
        unittest.SkipTest
            If the law is not for such protocols.
        """
        broken = f"the law {self.name!r} does not hold for {protocol}: {self.demand}"
        if not self.is_for(protocol):
            raise SkipTest(f"{self.name} is for {self.whom.words}")
        try:
            self.check(subject_of(protocol, users))
        except SkipTest:
            raise
        except AssertionError as e:
            raise AssertionError(f"{broken} {e}") from e
        except Exception as e:
            raise AssertionError(f"{broken} {type(e).__name__}: {e}") from e

    def is_for(self, protocol: Protocol) -> bool:
        """Say whether the law is for a protocol; one that raises is held to it, and fails."""
        try:
            return self.whom.takes(protocol)
        except Exception:
            return True


LAWS: dict[str, Law] = {}
"""All laws by name."""


def law(whom: Whom, *, once: bool = False) -> Callable[[Callable[[Subject], None]], Any]:
    """Make a function a law: its name is the law's, the first line of its docstring the demand."""

    def register(check: Callable[[Subject], None]) -> Law:
        name = check.__name__.replace("_", "-")
        demand = (check.__doc__ or "").partition("\n")[0]
        made = Law(name, demand, whom, once, check)
        LAWS[name] = made
        return made

    return register


# -- what a law finds -----------------------------------------------------------------------------


def passes_over(told: str) -> NoReturn:
    """End a law that says nothing about a protocol, with why."""
    raise SkipTest(told)


def demand(holds: object, told: str) -> None:
    """Raise AssertionError, with what is different, unless something holds."""
    if not holds:
        raise AssertionError(told)


@contextmanager
def refused(error: type[Exception], what: str, *words: str) -> Iterator[None]:
    """Demand that an error is raised, whose message holds the words."""
    try:
        yield
    except error as e:
        missing = [w for w in words if w not in str(e)]
        demand(not missing, f"{what} is refused without the words {missing}: {e}")
    else:
        raise AssertionError(f"{what} is taken; {error.__name__} is expected")


def demand_same_arrays(a: dict[str, Any], b: dict[str, Any], what: str) -> None:
    """Demand the same names, types and bits."""
    if a.keys() != b.keys():
        raise AssertionError(f"{what}: {sorted(a)} and {sorted(b)}")
    for name in a:
        x, y = a[name], b[name]
        if x.dtype != y.dtype or not np.array_equal(x, y):
            raise AssertionError(f"{what}: {name} is {x} and {y}, {x.dtype} and {y.dtype}")


def demand_same_estimate(a: Estimate, b: Estimate, what: str, *, exact: bool = True) -> None:
    """Demand the same estimate, bit for bit or up to rounding."""
    one, other = ((x.status, x.reason, x.warnings, x.keys) for x in (a, b))
    demand(one == other, f"{what}: {one} and {other}")
    for name in ("value", "stderr"):
        x, y = getattr(a, name), getattr(b, name)
        demand((x is None) == (y is None), f"{what}: one of two has a {name}")
        if x is not None and not _same(x, y, exact):
            raise AssertionError(f"{what}: {name} is {x} and {y}")


def demand_same_summary(a: Summary, b: Summary, what: str, *, exact: bool = True) -> None:
    """Demand the same summary, bit for bit or up to rounding."""
    demand(a.n_users == b.n_users, f"{what}: {a.n_users} and {b.n_users} users")
    for part in ("sums", "keyed", "rows"):
        one, other = getattr(a, part), getattr(b, part)
        demand(one.keys() == other.keys(), f"{what}: {part} {sorted(one)} and {sorted(other)}")
        for name in one:
            x, y = one[name], other[name]
            if part == "keyed":
                demand(list(x.keys) == list(y.keys), f"{what}: {name} has other keys")
                x, y = x.values, y.values
            demand(part == "keyed" or x.dtype == y.dtype, f"{what}: {name} is {x.dtype}, {y.dtype}")
            if not _same(x, y, exact):
                raise AssertionError(f"{what}: {name} is {x} and {y}")
    if a.rows:
        ids: Any = a.ids
        demand(np.array_equal(ids, b.ids), f"{what}: the rows are other users'")  # type: ignore[arg-type]


def flat(sums: Mapping[str, Any]) -> Floats:
    """Write sums as one row, in the order of their names."""
    parts = [np.ravel(sums[name]) for name in sorted(sums)]
    return np.concatenate([np.zeros(0), *parts]).astype(np.float64)


def _same(x: Any, y: Any, exact: bool) -> bool:
    if exact:
        return np.array_equal(x, y)
    return np.shape(x) == np.shape(y) and np.allclose(x, y, rtol=1e-9, atol=1e-9)
