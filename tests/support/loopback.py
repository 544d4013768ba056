"""A real deployment on loopback: a SuperLink and SuperNodes, started, used and ended here."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fedhist.base.errors import FedhistError
from simulations.config.reading import toml_value
from simulations.runtimes.pinned_supernodes import pin

Flat = Mapping[str, bool | int | float | str]
LOCALHOST = "127.0.0.1"
CONNECTION = "loopback"
MARKER = "FEDHIST_LOOPBACK"
"""Environment variable that every process of one deployment inherits."""
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "RAY_USAGE_STATS_ENABLED": "0",
}
START_SECONDS, END_SECONDS, POLL_SECONDS = 180.0, 10.0, 0.2
ONE_CPU = "client-resources-num-cpus=1 init-args-log-to-driver=false"


def marked_processes(token: str) -> Iterator[int]:
    """Find the processes that inherited a deployment's marker (where there is a /proc)."""
    wanted = f"{MARKER}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            inherited = wanted in (folder / "environ").read_bytes().split(b"\0")
            if inherited and int(folder.name) != os.getpid():
                yield int(folder.name)


@dataclass(frozen=True)
class FlowerRun:
    """A submitted run that has ended: how, Flower's reason if it failed, what the server logged."""

    status: str
    details: str
    log: str


class Loopback:
    """A SuperLink on loopback and the SuperNodes that join it, or Flower's simulation runtime.

    All processes end with the block; ``folder`` is for Flower's state and the logs.
    """

    def __init__(self, folder: Path, *, simulation: bool = False) -> None:
        self.folder = folder.absolute()
        self.address = f"{LOCALHOST}:{free_port()}"
        self.token = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers = 0
        home = self.folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.address}"\ninsecure = true\n'
        )
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | QUIET
        self._env |= {"FLWR_HOME": str(home), MARKER: self.token}
        self._env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._env.get('PATH', '')}"
        options = ["--disable-runtime-dependency-installation", "--insecure"]
        options += ["--simulation"] if simulation else []
        try:
            port = self.address.rpartition(":")[2]
            link = self._start("superlink", "flower-superlink", *options, port=port)
            self._wait_until_up(link)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def supernode(self, node_config: Flat, *, pinned: bool = False) -> subprocess.Popen[bytes]:
        """Start a SuperNode as its owner would."""
        self._numbers += 1
        env = dict(self._env)
        if pinned:
            env["PATH"] = f"{pin(self.folder / 'pinned')}{os.pathsep}{env['PATH']}"
        told = " ".join(f"{k}={toml_value(v)}" for k, v in node_config.items())
        options = ["--insecure", "--superlink", self.address, "--node-config", told]
        return self._start(f"supernode-{self._numbers}", "flower-supernode", *options, env=env)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._processes.remove(process)

    def close(self) -> None:
        for process in self._processes[1:] + self._processes[:1]:
            self.end(process)
        end = time.monotonic() + END_SECONDS
        while (left := list(marked_processes(self.token))) and time.monotonic() < end:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(POLL_SECONDS)
        assert left == []

    def _start(
        self, name: str, *command: str, port: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*command, "--host", LOCALHOST, "--port", port or str(free_port())],
                cwd=self.folder,
                env=env or self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _wait_until_up(self, link: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and link.poll() is None:
            try:
                with urllib.request.urlopen(f"http://{self.address}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(POLL_SECONDS)
        raise FedhistError(f"the SuperLink did not start; see {self.folder / 'superlink.log'}")

    def run(self, app: Path, run_config: Flat, *, nodes: int | None = None) -> FlowerRun:
        """Submit a run and wait for its end; ``nodes``: of the simulation runtime."""
        file = self.folder / "run.toml"
        file.write_text("".join(f"{k} = {toml_value(v)}\n" for k, v in run_config.items()))
        options = ["--run-config", str(file), "--stream"]
        if nodes is not None:
            options += ["--federation-config", f"num-supernodes={nodes} {ONE_CPU}"]
        shown = self._flwr("run", str(app.absolute()), CONNECTION, *options)
        started = re.search(r"started run (\d+)", shown)
        assert started is not None, shown[-2000:]
        listed = self._flwr("list", CONNECTION, "--run-id", started[1], "--format", "json")
        (run,) = json.loads(listed[listed.find("{") :])["runs"]
        return FlowerRun(str(run["status"]), str(run["status-details"]), shown)

    def _flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            ["flwr", *arguments],
            cwd=self.folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900.0,
            check=False,
        )
        assert done.returncode == 0, (done.stderr or done.stdout)[-2000:]
        return done.stdout


def free_port() -> int:
    with socket.socket() as s:
        s.bind((LOCALHOST, 0))
        return int(s.getsockname()[1])
