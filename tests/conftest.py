"""What several tests share: the throw-away protocol, the way a script is walked, a Flower task."""

from __future__ import annotations

import fcntl
import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from commands import Answer, Command
from rich.console import Console

from fedhist.model.registry import load_builtin, load_plugin, protocols
from simulations.runtimes.flower_internals import act_as_server

THROWAWAY = Path(__file__).resolve().with_name("throwaway.py")
# helpers are no tests; collecting a plugin would register it twice, under another module's name
collect_ignore = [
    str(f)
    for f in Path(__file__).resolve().parent.rglob("*.py")
    if not f.name.startswith(("test_", "conftest"))
]


SHARED_RAY = "one_ray"
LONGEST = ("test_printed.py", "runtimes/", "benchmarks/", "studies/", "contract/", "faults/")
"""Files of a few long tests each, the longest first: begun last they would keep one worker busy."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files; whoever runs files side by side ends when all do."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        path = item.path.as_posix()
        places = (i for i, part in enumerate(LONGEST) if f"/tests/{part}" in path)
        return shares_ray(item), next(places, len(LONGEST))

    items.sort(key=place)


def shares_ray(item: pytest.Item | None) -> bool:
    return SHARED_RAY in getattr(item, "fixturenames", ())


@cache
def scope_of(file: Path) -> str:
    """Return what runs in one process: a file, or all those with a test that shares a Ray."""
    return SHARED_RAY if SHARED_RAY in file.read_text(encoding="utf-8") else str(file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out files as ``--dist loadfile`` does, those that share a Ray to one worker."""
    from xdist.scheduler import LoadFileScheduling

    class ByRay(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(config.rootpath / super()._split_scope(nodeid))

    return ByRay(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def one_ray() -> None:
    """Start Ray with two workers, unless it is up: its start takes as long as most tests on it."""
    from simulations.runtimes.ray_start import start_ray

    start_ray(2, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop the Ray that tests share behind the last of them."""
    try:
        return (yield)
    finally:
        if shares_ray(item) and not shares_ray(nextitem):
            import ray

            ray.shutdown()


def pytest_configure() -> None:
    """Look for cycles seldom: collecting loads all packages, and nearly all of that stays."""
    gc.set_threshold(100_000, 20, 50)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Workers collect in turn: the first compiles what it imports, the others read that."""
    with Path(__file__).open(encoding="utf-8") as turn:
        with suppress(OSError):  # where files cannot be locked, all collect at once
            fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """Leave out of every later look what was loaded and collected: 600,000 objects."""
    gc.freeze()


def throwaway_module() -> ModuleType:
    load_builtin()
    load_plugin(THROWAWAY)
    return next(m for m in sys.modules.values() if getattr(m, "__file__", None) == str(THROWAWAY))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test that takes a ``protocol_name`` over the whole registry."""
    if "protocol_name" in metafunc.fixturenames:
        throwaway_module()
        metafunc.parametrize("protocol_name", sorted(protocols()))


@pytest.fixture(scope="session")
def throwaway() -> ModuleType:
    return throwaway_module()


@pytest.fixture
def flower_task() -> None:
    act_as_server(run_id=1)


@pytest.fixture
def fedhist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run ``fedhist ARGUMENTS`` in this process, in an empty folder and 80 columns wide."""
    from simulations.cli import main as cli
    from simulations.cli import terminal

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal, "console", Console(width=80, highlight=False))
    monkeypatch.setattr(terminal, "errors", Console(width=80, highlight=False, stderr=True))

    def command(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fedhist", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return Answer(code if isinstance(code, int) else int(code is not None), out, err)

    return command
