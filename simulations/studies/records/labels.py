"""What the files of sweeps and comparisons write alike: rows of protocols, and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Table = Mapping[str, Any]


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


def seeds_of(given: Any, first: int, what: str) -> tuple[int, ...]:
    """Read a number of seeds from ``first`` on, or a list of them; ``what`` is the key, for errors.

    >>> seeds_of(3, 5, "sweep.seeds"), seeds_of([4, 9, 4], 5, "sweep.seeds")
    ((5, 6, 7), (4, 9))
    """
    numbers = given if isinstance(given, list) else [given]
    if not numbers or any(type(x) is not int for x in numbers) or given == 0 or min(numbers) < 0:
        raise ValueError(f"{what} must be a positive number or a list of seeds, got {given!r}")
    return tuple(dict.fromkeys(given if isinstance(given, list) else range(first, first + given)))
