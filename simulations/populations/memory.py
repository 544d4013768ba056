"""Users that this process has in memory: from a notebook, say."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations import ItemDomain, Loaded


@dataclass(frozen=True)
class Held:
    """Users in memory, which a table [population] names by their digest.

    They are there for as long as somebody has this object.

    ``domain``: PUBLIC bounded domain; ``dropped``: rows of the frame that were left out, by fault,
    NOT PRIVATE.
    """

    users: Users
    domain: Keys | None
    digest: str
    dropped: Mapping[str, int]

    @property
    def table(self) -> dict[str, Any]:
        """The table [population] of these users."""
        return {"kind": Memory.kind, "digest": self.digest}


_held: WeakValueDictionary[str, Held] = WeakValueDictionary()


def hold(
    users: Users, domain: Keys | None = None, dropped: Mapping[str, int] = MappingProxyType({})
) -> Held:
    """Let tables name users, and their public domain, for as long as the result is kept."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(users.ids.tobytes())
    if users.items is not None:
        record = users.items
        arrays: tuple[Any, ...] = (
            record.vocabulary.offsets,
            record.vocabulary.data,
            record.item,
            record.count,
        )
    else:
        arrays = (users.reals.values,)
    for array in (users.n_items(), *arrays):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    if domain is not None:
        digest.update(domain.digest.to_bytes(8, "little"))
    digest.update(repr(sorted(dropped.items())).encode() if dropped else b"")
    name = digest.hexdigest()
    return _held.setdefault(name, Held(users, domain, name, dropped))


@dataclass(frozen=True, kw_only=True)
class Memory(ItemDomain):
    """Users in the memory of this process, handed over in Python.

    Parameters
    ----------
    digest : str
        Names them.
    top, domain, max_users
        See :class:`~simulations.populations.ItemDomain`.
    """

    kind: ClassVar[str] = "memory"
    digest: str

    def load(self) -> Loaded:
        """Return the users.

        Raises PopulationError if this process has none of that digest.
        """
        held = _held.get(self.digest)
        if held is None:
            raise PopulationError(
                f"the users {self.digest!r} were in the memory of another process, or are gone: "
                "hand them over again, as data="
            )
        if held.users.samples is not None and (self.top is not None or self.domain is not None):
            raise PopulationError("top and domain are about items; these users hold real samples")
        if held.domain is not None and (self.top is not None or self.domain is not None):
            raise PopulationError("the domain is given already: top has no meaning beside it")
        users = held.users
        if self.max_users is not None and self.max_users < len(users):
            # they may stand in an order that tells of their data
            users = users.take(np.sort(np.argsort(users.ids)[: self.max_users]))
        loaded = self.bounded(users, "data in memory", held.dropped)
        if held.domain is None:
            return loaded
        title = f"{loaded.title}, {len(held.domain):,} items"
        return Loaded(loaded.users, title, domain=held.domain, dropped=held.dropped)
