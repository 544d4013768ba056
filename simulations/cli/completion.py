"""What a shell completes names with; nothing heavy is imported, or each tab would take a second."""

from __future__ import annotations

import re
from pathlib import Path

from simulations.config.named_files import builtin_names


def _fitting(incomplete: str, names: list[str]) -> list[str]:
    """Return the names, and the files of settings, that begin so."""
    folder, _, start = incomplete.rpartition("/")
    place = Path(f"{folder}/") if folder else Path()
    files = [str(p) for p in sorted(place.glob("*.toml")) if p.name.startswith(start)]
    return [*(n for n in names if n.startswith(incomplete)), *files]


def configs(incomplete: str) -> list[str]:
    """Complete a configuration.

    >>> configs("quick")
    ['quickstart']
    """
    return _fitting(incomplete, builtin_names())


def comparisons(incomplete: str) -> list[str]:
    """Complete a comparison."""
    return _fitting(incomplete, builtin_names("comparisons"))


def sweeps(incomplete: str) -> list[str]:
    """Complete a sweep."""
    return _fitting(incomplete, builtin_names("sweeps"))


def templates(incomplete: str) -> list[str]:
    """Complete what a plan starts from: a configuration or a protocol."""
    return list(dict.fromkeys([*configs(incomplete), *protocols(incomplete)]))


def protocols(incomplete: str) -> list[str]:
    """Complete a protocol of this package.

    >>> protocols("mean-l")
    ['mean-l2', 'mean-linf']
    """
    import fedhist.protocols as ours

    names = [re.sub(r"(?<!^)(?=[A-Z])", "-", c).lower() for c in vars(ours)["__all__"]]
    return sorted(n for n in names if n.startswith(incomplete))
