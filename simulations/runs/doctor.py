"""Whether an installation works: versions, machine and ports; tiny runs are beside this."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

GIGABYTE = 1 << 30
LEAST_DISK, LEAST_MEMORY, LEAST_SHARED = 1.0, 1.0, 0.25
"""Gigabytes below which something is said."""
PORTS = {9091: "a SuperLink's drivers", 9092: "its nodes", 9093: "its control"}
OK, NOTE, FAILED = "ok", "note", "FAILED"


@dataclass(frozen=True)
class Examined:
    """What one check found.

    Attributes
    ----------
    what : str
    status : {"ok", "note", "FAILED"}
        A note is nothing that keeps fedhist from working.
    words : str
        What was found, and what to do about it.
    """

    what: str
    status: str
    words: str


def examine(folder: Path) -> Iterator[Examined]:
    """Make every check that runs nothing.

    Parameters
    ----------
    folder : Path
        Where results shall be written.
    """
    yield python()
    yield from packages()
    yield cores()
    yield memory()
    yield disk("folder", folder)
    yield disk("temporary files", Path(tempfile.gettempdir()))
    yield shared_memory()
    yield loopback()
    yield ports()


def python() -> Examined:
    """Say which Python this is."""
    fine = sys.version_info >= (3, 11)
    told = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if not fine:
        return Examined("python", FAILED, f"{told}: fedhist needs 3.11 or newer")
    if platform.system() != "Linux":
        return Examined("python", NOTE, f"{told}: tested on Linux only")
    return Examined("python", OK, told)


def packages() -> Iterator[Examined]:
    """Compare what is installed with what fedhist asks for."""
    try:
        asked = ["ray", *(requires("fedhist") or ())]  # ray comes with flwr[simulation]
    except PackageNotFoundError:
        yield Examined("packages", NOTE, "fedhist is not installed: what it asks for is not known")
        return
    found, wrong = [], []
    for line in asked:
        name, fits, extra = _asked(line)
        if extra:
            continue
        try:
            here = version(name)
        except PackageNotFoundError:
            wrong.append(f"{line} is missing")
            continue
        if fits(here):
            found.append(f"{name} {here}")
        else:
            wrong.append(f"{name} is {here}, and {line.partition(';')[0].strip()} is asked for")
    if wrong:
        told = f"{'; '.join(wrong)}: install fedhist anew (pip install --upgrade fedhist)"
        yield Examined("packages", FAILED, told)
    if found:
        yield Examined("packages", OK, ", ".join(sorted(found, key=str.lower)))


def _asked(line: str) -> tuple[str, Callable[[str], bool], bool]:
    """Read a requirement: its name, whether a version meets it, whether it is of an extra."""
    from packaging.requirements import Requirement

    need = Requirement(line)
    extra = need.marker is not None and not need.marker.evaluate({"extra": ""})
    return need.name, lambda v: need.specifier.contains(v, prereleases=True), extra


def cores() -> Examined:
    """Count the cores that this process may use."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    more = "" if n > 1 else ": Ray gains nothing here; --runtime inline, --workers 0"
    return Examined("cores", OK if n > 1 else NOTE, f"{n}{more}")


def memory() -> Examined:
    """Say how much memory is free."""
    lines = _lines(Path("/proc/meminfo"))
    free = next((int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable")), None)
    if free is None:
        return Examined("memory", NOTE, "cannot be told here")
    short = free < LEAST_MEMORY * GIGABYTE
    more = ": Ray may be killed; fewer --workers, or --runtime inline" if short else ""
    return Examined("memory", NOTE if short else OK, f"{free / GIGABYTE:.1f} GB free{more}")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def disk(what: str, folder: Path) -> Examined:
    """Say whether a folder can be written to, and how much there is room for."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as e:
        return Examined(what, FAILED, f"{folder} cannot be written: {e.strerror}")
    short = free < LEAST_DISK * GIGABYTE
    more = ": results and Ray's files may not fit" if short else ""
    told = f"{folder}: {free / GIGABYTE:.1f} GB free{more}"
    return Examined(what, NOTE if short else OK, told)


def shared_memory() -> Examined:
    """Say whether Ray's objects fit into shared memory."""
    place = Path("/dev/shm")  # where Ray keeps its objects
    if not place.is_dir():
        return Examined("shared memory", NOTE, f"there is no {place}: Ray uses files, slowly")
    free = shutil.disk_usage(place).free
    short = free < LEAST_SHARED * GIGABYTE
    more = ": Ray uses files, slowly; of a container raise --shm-size" if short else ""
    return Examined("shared memory", NOTE if short else OK, f"{free / GIGABYTE:.1f} GB free{more}")


def loopback() -> Examined:
    """Say whether processes of this machine can talk to each other."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(5)
            with socket.create_connection(server.getsockname(), timeout=5):
                server.accept()[0].close()
    except OSError as e:
        told = f"127.0.0.1 cannot be used ({e}): Ray and Flower need it; --runtime inline does not"
        return Examined("network", FAILED, told)
    return Examined("network", OK, "processes reach each other over 127.0.0.1")


def ports() -> Examined:
    """Say whether the usual ports of a deployment are free."""
    busy = []
    for port in PORTS:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                busy.append(port)
    if busy:
        told = ", ".join(f"{p} ({PORTS[p]})" for p in busy)
        return Examined("ports", NOTE, f"taken: {told}; a SuperLink here needs others")
    return Examined("ports", OK, f"{', '.join(map(str, PORTS))} are free for a SuperLink")
