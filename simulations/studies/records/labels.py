"""What the files of sweeps and comparisons write alike: rows of protocols, and seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from simulations.config.reading import Must, Table

MOST_SEEDS = 1_000_000


def labelled(entries: Sequence[Table], usual_name: object, what: str) -> list[tuple[str, Table]]:
    """Label rows of protocols: by "label", by the name, and by their own keys if that comes twice.

    Parameters
    ----------
    entries : sequence of mapping
        As in the file.
    usual_name : object
        Of entries without a name.
    what : str
        Key of the file, for errors: "sweep.protocols".

    Returns
    -------
    list of (str, mapping)
        Label, and the entry with its name and without its label.

    Raises
    ------
    ValueError
        If two labels are equal.

    Examples
    --------
    >>> rows = [{"name": "mean", "mode": "paper"}, {"name": "mean", "kind": "onebit", "salt": 3}]
    >>> [label for label, _ in labelled(rows, None, "rows")]
    ['mean paper', 'mean onebit salt=3']
    """
    names = [str(e.get("name", usual_name)) for e in entries]
    out: list[tuple[str, Table]] = []
    for entry, name in zip(entries, names, strict=True):
        own = [_told(k, v) for k, v in entry.items() if k not in ("name", "label")]
        usual = " ".join([name, *own]) if names.count(name) > 1 else name
        table = {"name": name, **{k: v for k, v in entry.items() if k != "label"}}
        out.append((str(entry.get("label", usual)), table))
    check_labels([label for label, _ in out], what)
    return out


def check_labels(labels: Sequence[str], what: str) -> None:
    """Raise ValueError if two rows are called alike."""
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"{what}: two rows are called {label!r}; give a label")


def _told(key: str, value: object) -> str:
    """Write a key that tells rows apart: text says by itself what it is."""
    return value if isinstance(value, str) else f"{key}={value}"


def seeds_of(given: int | tuple[int, ...], first: int) -> tuple[int, ...]:
    """Return the seeds that a file asks for: so many from ``first`` on, or those of a list.

    >>> seeds_of(3, 5), seeds_of((4, 9, 4), 5)
    ((5, 6, 7), (4, 9))
    """
    if isinstance(given, int) and given > MOST_SEEDS:
        raise ValueError(f"{given:,} seeds are more than {MOST_SEEDS:,}")
    return tuple(dict.fromkeys(range(first, first + given) if isinstance(given, int) else given))


def _usable(seeds: int | tuple[int, ...]) -> bool:
    return seeds > 0 if isinstance(seeds, int) else min(seeds, default=-1) >= 0


Seeds = Annotated[int | tuple[int, ...], Must("a positive number or a list of seeds", _usable)]
