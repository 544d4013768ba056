"""Numba's compiler, cached on disk wherever a folder can be written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numba


def kernel(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a loop that holds no lock; beside an installation that is read-only, without cache.

    Numba caches beside the source or in the user's cache, and refuses where both are read-only.
    """

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
