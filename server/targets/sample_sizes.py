"""How many samples users hold, and the planning value of it where they hold different numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Protocol
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard


def samples_held(users: Users) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return each user's number of samples; for item counts, the total: (n,) float64."""
    if users.items is None:
        return users.n_items().astype(np.float64)
    before = np.append(0, np.cumsum(users.items.count, dtype=np.uint64))  # modulo 2^64
    return np.diff(before[users.items.indptr]).astype(np.float64)


OWN_CELLS, WIDE_CELLS = 4096, 64 * 52
"""Numbers of samples that have a cell each, and cells beyond: 64 to a doubling, up to 2^64."""


@dataclass(frozen=True)
class Held:
    """How many users hold how many samples: what adds up of it. NOT PRIVATE.

    ``users`` counts those of each cell, ``samples`` is what the users of the wide cells hold.
    """

    n_users: int
    users: Integers
    samples: Floats

    @staticmethod
    def sums(users: Users) -> dict[str, Array]:
        """Count a block of users, for the summary of a measure."""
        held = users.n_items() if users.items is None else samples_held(users)
        few = np.minimum(held, OWN_CELLS).astype(np.int64, copy=False)
        cells = np.bincount(few, minlength=OWN_CELLS + 1)
        large = held[held >= OWN_CELLS].astype(np.float64) if cells[OWN_CELLS] else np.zeros(0)
        cells = cells[:OWN_CELLS]
        beyond = np.minimum(64 * (np.log2(large) - np.log2(OWN_CELLS)), WIDE_CELLS - 1)
        at = beyond.astype(np.int64)
        more, samples = (np.bincount(at, w, WIDE_CELLS) for w in (None, large))
        counts = np.concatenate((cells, more)).astype(np.int64)
        return {"held users": counts, "held samples": np.asarray(samples, dtype=np.float64)}

    @classmethod
    def read(cls, total: Summary) -> Self:
        """Take the counts out of a measure's total."""
        return cls(total.n_users, total.sums["held users"], total.sums["held samples"])

    @classmethod
    def of(cls, users: Users) -> Self:
        """Count users in memory."""
        return cls.read(Summary(len(users), cls.sums(users)))

    @property
    def some(self) -> tuple[Floats, Floats]:
        """Numbers of samples above 0, those of a wide cell as their mean, and users of each."""
        beyond = np.ceil(self.samples / np.maximum(self.users[OWN_CELLS:], 1) * (1 - 1e-12))
        sizes = np.concatenate((np.arange(OWN_CELLS, dtype=np.float64), beyond))
        held = (self.users > 0) & (sizes > 0)
        return sizes[held], self.users[held].astype(np.float64)


def held(facts: Facts) -> Held:
    """Count the samples of evaluated users, in a pass of its own. NOT PRIVATE."""
    return Held.read(facts.walk(Held.sums))


def resolve_users(
    parameters: Mapping[str, Any], users: Shard, **public: Any
) -> tuple[dict[str, Any], list[str]]:
    """Complete ``n_users`` and other ``public`` facts; say so where the adjacency hides n_users."""
    hidden = parameters.get("adjacency") == Adjacency.ADD_REMOVE_USER.value
    reads = ["n_users is the number of the users"] * (hidden and "n_users" not in parameters)
    return {"n_users": len(users), **public, **parameters}, reads


def resolve_sizes(
    parameters: Mapping[str, Any],
    users: Shard,
    held: Callable[[Users], np.ndarray[Any, np.dtype[np.float64]]] = samples_held,
) -> tuple[dict[str, Any], list[str]]:
    """Complete ``n_users`` and, where that is asked for, ``samples_per_user``.

    ``samples_per_user = "harmonic-mean"`` takes the harmonic mean of the users' numbers of samples;
    so does ``samples_public = true`` without a value, which declares the numbers public. ``held``
    counts each user's samples that matter. The second value says what was read that is not public.
    """
    out = dict(parameters)
    out.setdefault("n_users", len(users))
    public = bool(out.pop("samples_public", False))
    asked = out.get("samples_per_user") == "harmonic-mean"
    if not asked and not (public and "samples_per_user" not in out):
        return out, []
    holding, inverse = 0, 0.0
    for block in users.blocks():
        sizes = held(block)
        sizes = sizes[sizes > 0]
        holding, inverse = holding + len(sizes), inverse + float(np.sum(1.0 / sizes))
    if not holding:
        raise PopulationError("no user has samples; there is no harmonic mean of their numbers")
    out["samples_per_user"] = holding / inverse
    if public:
        return out, []
    return out, ["samples_per_user is the harmonic mean of the users' numbers of samples"]


class PlannedUsers(Protocol):
    """A protocol with the public planning value n_users."""

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users from the population, where the configuration does not name it."""
        return resolve_users(parameters, users)


class PlannedSizes(Protocol):
    """A protocol with the public planning values n_users and samples_per_user."""

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Take n_users from the population, and samples_per_user too where that is asked for."""
        return resolve_sizes(parameters, users)


def surely_fewer(noisy: float, n_users: int, std: float) -> float | None:
    """Return a noisy number of users with data where it is surely below n: else n divides better.

    Surely is three standard deviations of its noise, which are also the least it is taken for.

    >>> surely_fewer(700.0, 1000, 10.0), surely_fewer(980.0, 1000, 10.0), surely_fewer(0.0, 50, 9.0)
    (700.0, None, 27.0)
    """
    return max(noisy, 3 * std) if noisy < n_users - 3 * std else None
