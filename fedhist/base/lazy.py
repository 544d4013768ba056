"""What waits until it is needed: imports of names (PEP 562), compiled loops, calls elsewhere."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def public_names(
    package: str,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make a package's ``__getattr__``, ``__dir__`` and ``__all__``.

    Its names are those that it imports under ``if TYPE_CHECKING``: there is one list, which type
    checkers and the running program share.
    """
    loader: Any = sys.modules[package].__loader__
    home_of = homes(loader.get_source(package))

    def find(name: str) -> Any:
        if name not in home_of:
            gone = import_module("fedhist.model.renamed").instead(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{gone}")
        if home_of[name] == package:  # a room of the package itself
            return import_module(f"{package}.{name}")
        return getattr(import_module(home_of[name]), name)

    def names() -> list[str]:
        mine = vars(sys.modules[package])
        rooms = (n for n in mine if n.startswith("__") or f"{package}.{n}" in sys.modules)
        return sorted({*rooms, *home_of})

    return find, names, sorted(home_of)


def homes(source: str) -> dict[str, str]:
    """Return the names that a package's source imports under ``if TYPE_CHECKING``, and whence."""
    return {
        alias.name: str(line.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process that was sent this one: it imports ``fedhist`` first.

    That hides somebody's ``simulations.py`` before the function's own module is looked for.
    """
    return function(*arguments)


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a loop that holds no lock; beside an installation that is read-only, without cache.

    Numba caches beside the source or in the user's cache, and refuses where both are read-only.
    """
    import numba

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:
            _warn_once()
            return numba.njit(nogil=True, **options)(function)

    return compiled


@cache
def _warn_once() -> None:
    print(
        "no folder for numba's cache can be written, so every process compiles again; "
        "NUMBA_CACHE_DIR names one",
        file=sys.stderr,
    )
