"""Other libraries' unary oracles, in an environment of their own.

Two parts: :class:`Rivals`, which sets that environment up and talks to a process in it, and the
program that runs there (``python rivals.py``), which imports nothing of this package. A line of
input, ``name n_users bins epsilon``, is answered by a line: seconds, users, estimated share of
bin 0, or the error.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REQUIREMENTS = ("pure-ldp==1.2.0", "multi-freq-ldpy==0.2.5", "xxhash<4", "scikit-learn")
"""pure-ldp does not declare scikit-learn, but its modules import it; statsmodels comes with it."""

EXTRA = ("statsmodels",)
INSTALL_SECONDS = 600
READY = "fedhist-bench-ready"


class Unavailable(Exception):
    """The other libraries' environment cannot be set up, or a library does not run in it."""


FOLDER = ".venv-bench"
"""Where the environment is kept between runs, in the working directory."""


def environment(folder: Path) -> Path:
    """Make the environment unless it exists; returns its Python.

    Raises
    ------
    Unavailable
        If it cannot be made (no network, no package index, no room).
    """
    python = folder / "bin" / "python"
    marker = folder / READY
    wanted = " ".join((*REQUIREMENTS, *EXTRA))
    if marker.exists() and marker.read_text() == wanted:
        return python
    try:
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run(
            [*pip, *REQUIREMENTS, *EXTRA],
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as e:
        raise Unavailable(f"{type(e).__name__}: {e}") from None
    if done.returncode:
        lines = [x for x in done.stderr.splitlines() if x.startswith("ERROR")] or ["pip failed"]
        raise Unavailable(lines[-1])
    marker.write_text(wanted)
    return python


class Rivals:
    """A process in the other libraries' environment.

    Parameters
    ----------
    process : subprocess.Popen
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, name: str, n_users: int, bins: int, epsilon: float) -> tuple[float, float]:
        """Run a library once; returns the seconds it took and its share of bin 0.

        Raises
        ------
        Unavailable
            If the library does not run.
        """
        asked, answered = self._process.stdin, self._process.stdout
        if asked is None or answered is None:
            raise Unavailable("the process has no pipes")
        try:
            asked.write(f"{name} {n_users} {bins} {epsilon}\n")
            asked.flush()
            kind, _, rest = answered.readline().strip().partition(" ")
        except OSError as e:
            raise Unavailable(f"{name}: {e}") from None
        if kind != "ok":
            raise Unavailable(f"{name}: {rest or 'its process ended'}")
        taken, share = rest.split()
        return float(taken), float(share)


@contextmanager
def rivals(folder: Path) -> Iterator[Rivals]:
    """Start a process in the environment, which is made if need be; end it afterwards."""
    python = environment(folder)
    process = subprocess.Popen(
        [str(python), str(Path(__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,  # so that no package of this tree is found first
    )
    try:
        yield Rivals(process)
    finally:
        process.kill()
        process.communicate()


# -- what runs in that environment -----------------------------------------------------------------


def pure_ldp(values: list[int], bins: int, epsilon: float) -> float:
    """Ask every value through pure-ldp's symmetric unary encoding; returns the share of bin 0."""
    oracle: Any = importlib.import_module("pure_ldp.frequency_oracles.unary_encoding")
    client = oracle.UEClient(epsilon, bins, index_mapper=lambda v: v)
    server = oracle.UEServer(epsilon, bins, index_mapper=lambda v: v)
    for value in values:
        server.aggregate(client.privatise(value))
    estimates = [server.estimate(b, suppress_warnings=True) for b in range(bins)]
    return float(estimates[0]) / len(values)


def multi_freq_ldpy(values: list[int], bins: int, epsilon: float) -> float:
    """Ask every value through multi-freq-ldpy's symmetric unary encoding."""
    oracle: Any = importlib.import_module("multi_freq_ldpy.pure_frequency_oracles.UE")
    reports = [oracle.UE_Client(value, bins, epsilon, False) for value in values]
    return float(oracle.UE_Aggregator_MI(reports, epsilon, False)[0])


LIBRARIES: dict[str, Callable[[list[int], int, float], float]] = {
    "pure-ldp": pure_ldp,
    "multi-freq-ldpy": multi_freq_ldpy,
}


def serve() -> None:
    """Answer requests until the input ends."""
    numpy: Any = importlib.import_module("numpy")
    for line in sys.stdin:
        name, n_users, bins, epsilon = line.split()
        values = numpy.random.default_rng(1).integers(0, int(bins), int(n_users)).tolist()
        try:
            started = time.perf_counter()
            share = LIBRARIES[name](values, int(bins), float(epsilon))
            answer = f"ok {time.perf_counter() - started} {share}"
        except Exception as e:  # whatever is wrong with another library is reported, not ours
            answer = f"error {type(e).__name__}: {e}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    serve()
