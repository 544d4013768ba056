"""What a cell of a study is known by: files by their contents, and versions."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_type_hints

import fedhist
from fedhist.model.registry import protocol_class
from simulations.populations import KINDS
from simulations.populations.base import existing
from simulations.reporting.json_files import plain


def population_identity(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table [population] with files named by their contents, not by their paths.

    The format of a kind's users stands beside it: under another one they are others.
    """
    spec = KINDS.get(str(table["kind"]))
    hints = get_type_hints(spec) if spec is not None else {}
    made = {"format": spec.format} if spec is not None and spec.format else {}
    return made | {
        k: file_digest(v) if isinstance(v, str) and Path in get_args(hints.get(k)) else plain(v)
        for k, v in table.items()
    }


@lru_cache(maxsize=64)
def revision_of(name: str) -> dict[str, str]:
    """Return the revision of the law of one of this package's protocols, where it had others.

    A plugin's law is that of its file, which a cell names by its contents.
    """
    try:
        cls = protocol_class(name)
    except ValueError:  # a plugin's, not loaded yet
        return {}
    ours = cls.revision and cls.__module__.startswith("fedhist.")
    return {"revision": str(cls.revision)} if ours else {}


def file_digest(path: str) -> str:
    """Digest the contents of a file; PopulationError if there is none."""
    file = existing(Path(path)).resolve()
    state = file.stat()
    return _digest(file, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=64)
def _digest(file: Path, size: int, changed: int) -> str:
    """Read a file once for as long as its size and time stay."""
    with file.open("rb") as f:
        found = hashlib.file_digest(f, lambda: hashlib.blake2b(digest_size=16))
    return f"contents:{found.hexdigest()}"


@lru_cache(maxsize=1)
def _versions() -> tuple[tuple[str, str], ...]:
    return (
        ("fedhist", fedhist.__version__),
        ("python", platform.python_version()),
        *((name, version(name)) for name in ("numpy", "numba", "scipy")),
    )


def versions() -> dict[str, str]:
    """Return the versions that a loss may depend on in its last bits."""
    return dict(_versions())
