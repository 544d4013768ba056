"""What a table ``[[adversary]]`` of a configuration says: who misbehaves, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Words
from fedhist.base.hashing import digest64
from fedhist.users.keys import keyed_hash
from simulations.config.reading import Must, Natural, Settings, one_of, read

POISON = ("input-poisoning", "output-poisoning", "corrupted")
KINDS = ("dropout", *POISON)
LEVELS = ("user", "node")
MOST_CORRUPTED = 0.49
"""Largest share that a robust estimator can be asked to stand."""

WORDS = {
    "dropout": "do not answer",
    "input-poisoning": "answer honestly on a made-up record",
    "output-poisoning": "send the message that gains most",
    "corrupted": "all hold the same made-up record",
}


Target = Annotated[int | float | str | None, Must("a number or an item", lambda _: True)]


@dataclass(frozen=True)
class Adversary(Settings):
    """Users, or whole nodes, that misbehave in one way.

    Parameters
    ----------
    kind : str
        "dropout": no answer. "input-poisoning": an honest client on a record made up by the
        attacker. "output-poisoning": no honest client; the message of the alphabet that gains
        most. "corrupted": input poisoning of at most 49% of the users, all with the same record,
        for the robust estimators.
    fraction : float
        Of all users (or nodes), rounded down; 0 switches the table off.
    level : {"user", "node"}
        Who is chosen. A poisoned node poisons all of its users.
    correlated : bool
        Choose users in proportion to the size of their record, not independently of it.
    target : float or str, optional
        Of poisoning: the value of every coordinate of every sample, or the item that is promoted.
        Default: the largest sample of the population, or its rarest item.
    seed : int
        Who is chosen is a function of it and of the user ids, not of the run's seed.

    Examples
    --------
    >>> Adversary("dropout", 0.25).kind
    'dropout'
    """

    table: ClassVar[str] = "adversary"
    many: ClassVar[bool] = True
    kind: Annotated[str, one_of(*KINDS)]
    fraction: float
    level: Annotated[str, one_of(*LEVELS)] = "user"
    correlated: bool = False
    target: Target = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        most = MOST_CORRUPTED if self.kind == "corrupted" else 1.0
        if not 0.0 <= self.fraction <= most:
            raise ValueError(
                f"adversary.fraction of {self.kind} must lie in [0, {most:g}], got {self.fraction}"
            )
        if self.correlated and self.level == "node":
            raise ValueError("adversary.correlated is about users' records, not about nodes")

    @property
    def poisons(self) -> bool:
        """Whether the record is replaced."""
        return self.kind in POISON

    @property
    def in_words(self) -> str:
        """Who does what.

        >>> Adversary("dropout", 0.1).in_words
        'dropout: 10% of the users do not answer'
        """
        share, does = f"{100 * self.fraction:.6g}%", WORDS.get(self.kind, "misbehave")
        text = f"{self.kind}: {share} of the {self.level}s {does}"
        if self.poisons and self.target is not None:
            text += f" (target {self.target})"
        return text + ("; large records are chosen first" if self.correlated else "")


def read_adversaries(tables: object) -> tuple[Adversary, ...]:
    """Read ``[adversary]`` or ``[[adversary]]``.

    Raises ValueError for unknown or missing keys and values out of range.
    """
    return tuple(read(Adversary, table) for table in rows_of(tables))


def rows_of(tables: object) -> list[dict[str, Any]]:
    """Return the tables ``[[adversary]]`` as they are written, also of a single ``[adversary]``."""
    rows = [tables] if isinstance(tables, dict) else tables
    if not isinstance(rows, list) or not all(isinstance(t, dict) for t in rows):
        raise ValueError(f"adversary must be tables ([[adversary]]), got {tables!r}")
    return rows


def override_adversary(tables: dict[str, Any], name: str, value: object) -> None:
    """Set "fraction" of the only table, or "1.fraction" of the second (numbers from 0).

    Raises ValueError if there are several tables and no number, or no table of that number.
    """
    rows = tables["adversary"] = rows_of(tables.get("adversary", []))
    number, dot, key = name.partition(".")
    if not (dot and number.isdecimal()):
        if len(rows) > 1:
            raise ValueError(
                f"there are {len(rows)} tables [[adversary]]: say which, adversary.0.{name}"
            )
        number, key = "0", name
    elif int(number) > len(rows):
        raise ValueError(f"there are {len(rows)} tables [[adversary]], got adversary.{name}")
    if int(number) == len(rows):
        rows.append({})
    rows[int(number)][key] = value


def assign(
    adversaries: Sequence[Adversary], level: str, ids: Words, sizes: ArrayLike
) -> NDArray[np.int64]:
    """Choose who misbehaves at one level: nobody follows two tables.

    ``ids``: (n,) uint64, users or nodes; ``sizes``: (n,) array, of their records. Raises ValueError
    if the fractions add up to more than 1.

    Returns
    -------
    (n,) int64
        Number of the table; -1 for the honest. A larger fraction chooses the same and more.
    """
    out = np.full(len(ids), -1, dtype=np.int64)
    for number, adversary in enumerate(adversaries):
        if adversary.level != level:
            continue
        n = int(adversary.fraction * len(ids) * (1 + 1e-12))
        free = np.flatnonzero(out < 0)
        if n > len(free):
            raise ValueError(
                f"adversary.{number}.fraction = {adversary.fraction} is more than what other "
                f"adversaries leave of {len(ids)} {level}s: {len(free)}"
            )
        salt = digest64("fedhist.adversary", adversary.seed) >> 1
        wait = -np.log1p(-keyed_hash(ids[free], salt).astype(np.float64) / 2.0**64 * (1 - 1e-9))
        if adversary.correlated:  # the first of exponential clocks at rates in proportion to size
            with np.errstate(divide="ignore"):
                wait = wait / np.asarray(sizes, dtype=np.float64)[free]
        out[free[np.argsort(wait, kind="stable")[:n]]] = number
    return out


def as_tables(adversaries: Sequence[Adversary]) -> list[Mapping[str, Any]]:
    """Return the tables as plain data."""
    return [{k: v for k, v in vars(a).items() if v is not None} for a in adversaries]
