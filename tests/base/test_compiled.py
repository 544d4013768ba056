"""Kernels beside an installation where nothing can be written."""

from __future__ import annotations

import pytest

from fedhist.base import compiled


def test_a_kernel_without_a_folder_for_its_cache_is_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of source that is in no file numba says the same as of a read-only installation."""
    scope: dict[str, object] = {}
    exec("def add(x, y):\n    return x + y", scope)
    compiled._warn_once.cache_clear()
    first, second = (compiled.kernel()(scope["add"]) for _ in range(2))  # type: ignore[arg-type]
    assert first(1, 2) == second(1, 2) == 3
    assert capsys.readouterr().err.count("NUMBA_CACHE_DIR") == 1
