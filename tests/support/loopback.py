"""A real deployment on loopback: a SuperLink and SuperNodes, started, used and ended here."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedhist.base.errors import FedhistError
from simulations.config.named_files import toml_value
from simulations.runtimes.pinned_supernodes import pin
from tests.support.loopback_tls import make_certificates, make_owner_key
from tests.support.processes import MARKER, POLL_SECONDS, end_marked

Flat = Mapping[str, bool | int | float | str]
LOCALHOST = "127.0.0.1"
CONNECTION = "loopback"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",
    "RAY_USAGE_STATS_ENABLED": "0",
}
START_SECONDS, END_SECONDS = 180.0, 10.0


@dataclass(frozen=True)
class FlowerRun:
    """A submitted run that has ended: how, Flower's reason if it failed, what the server logged."""

    status: str
    details: str
    log: str


class Loopback:
    """A SuperLink on loopback and the SuperNodes that join it.

    Parameters
    ----------
    folder : path
        For Flower's state, the logs and the pinned commands; made if it does not exist.
    simulation : bool
        Flower's own simulation runtime instead of SuperNodes.
    tls : bool
        TLS with certificates made for this trial, and node authentication: each SuperNode has a key
        pair, and only those that are registered are admitted.

    Examples
    --------
    ::

        with Loopback("demo") as link:
            for i in range(3):
                link.supernode({"data": f"/data/{i}.csv", "user": "user", "item": "item",
                                "partition-id": i, "guard-folder": f"/data/guard-{i}"})
            run = link.run(".", {"config": "/data/remote.toml", "out": "/data/results"})
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        simulation: bool = False,
        tls: bool = False,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.address = f"{LOCALHOST}:{free_port()}"
        self.token = uuid.uuid4().hex
        self._processes: list[subprocess.Popen[bytes]] = []
        self._numbers = 0
        home = self.folder / "flower"
        home.mkdir(exist_ok=True)
        self._certificates = make_certificates(self.folder, LOCALHOST) if tls else None
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{self.address}"\n{self._trust_in_config()}\n'
        )
        self._env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | QUIET
        self._env |= {"FLWR_HOME": str(home), MARKER: self.token}
        self._env["PATH"] = os.pathsep.join([_commands(), self._env.get("PATH", os.defpath)])
        try:
            self._wait_until_up(
                self._start(
                    "superlink",
                    "flower-superlink",
                    "--disable-runtime-dependency-installation",
                    *self._server_options(),
                    simulation=simulation,
                )
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- processes -----------------------------------------------------------------------------

    def supernode(
        self,
        node_config: Flat,
        *,
        pinned: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a SuperNode as its owner would."""
        self._numbers += 1
        env = dict(self._env)
        if pinned:
            commands = pin(self.folder / "pinned")
            env["PATH"] = os.pathsep.join([str(commands), env["PATH"]])
        return self._start(
            f"supernode-{self._numbers}",
            "flower-supernode",
            *self._node_options(),
            *("--superlink", self.address, "--node-config", inline(node_config)),
            env=env,
        )

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
        end_marked(self.token)

    def _start(
        self,
        name: str,
        *command: str,
        simulation: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        port = self.address.rpartition(":")[2] if name == "superlink" else str(free_port())
        arguments = [*command, "--host", LOCALHOST, "--port", port]
        arguments += ["--simulation"] if simulation else []
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                arguments,
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
        made, scheme, trust = self._certificates, "http", None
        if made is not None:
            scheme, trust = "https", ssl.create_default_context(cafile=str(made.ca))
        url = f"{scheme}://{self.address}/health"
        while time.monotonic() < end and link.poll() is None:
            try:
                with urllib.request.urlopen(url, timeout=5, context=trust):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(POLL_SECONDS)
        raise FedhistError(f"the SuperLink did not start; see {self.folder / 'superlink.log'}")

    # -- transport -----------------------------------------------------------------------------

    def _trust_in_config(self) -> str:
        made = self._certificates
        return "insecure = true" if made is None else f'root-certificates = "{made.ca}"'

    def _server_options(self) -> list[str]:
        made = self._certificates
        if made is None:
            return ["--insecure"]
        files = ["--ssl-certfile", made.certificate, "--ssl-keyfile", made.key]
        return [*map(str, [*files, "--ssl-ca-certfile", made.ca]), "--enable-supernode-auth"]

    def _node_options(self) -> list[str]:
        if self._certificates is None:
            return ["--insecure"]
        private = self.folder / f"node-{self._numbers}"
        public = make_owner_key(private)
        self._flwr(START_SECONDS, "supernode", "register", str(public), CONNECTION)
        trust = ["--root-certificates", str(self._certificates.ca)]
        return [*trust, "--auth-supernode-private-key", str(private)]

    # -- runs ----------------------------------------------------------------------------------

    def run(
        self,
        app: str | Path,
        run_config: Flat,
        *,
        nodes: int | None = None,
        timeout: float = 900.0,
    ) -> FlowerRun:
        file = self.folder / "run.toml"
        file.write_text("".join(f"{k} = {toml_value(v)}\n" for k, v in run_config.items()))
        options = ["--run-config", str(file)]
        if nodes is not None:
            options += ["--federation-config", f"num-supernodes={nodes} {_ONE_CPU}"]
        shown = self._flwr(
            timeout, "run", str(Path(app).absolute()), CONNECTION, *options, "--stream"
        )
        started = re.search(r"started run (\d+)", shown)
        if started is None:
            raise FedhistError(f"the run was not started: {shown[-2000:]}")
        listed = self._flwr(timeout, "list", CONNECTION, "--run-id", started[1], "--format", "json")
        (run,) = json.loads(listed[listed.find("{") :])["runs"]
        return FlowerRun(str(run["status"]), str(run["status-details"]), shown)

    def _flwr(self, timeout: float, *arguments: str) -> str:
        try:
            done = subprocess.run(
                ["flwr", *arguments],
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise FedhistError(
                f"flwr {arguments[0]} did not end in {timeout:g} seconds; see {self.folder}"
            ) from None
        if done.returncode:
            why = (done.stderr or done.stdout)[-2000:]
            raise FedhistError(f"flwr {arguments[0]} failed: {why}")
        return done.stdout


_ONE_CPU = "client-resources-num-cpus=1 init-args-log-to-driver=false"


def free_port() -> int:
    with socket.socket() as s:
        s.bind((LOCALHOST, 0))
        return int(s.getsockname()[1])


def inline(config: Flat) -> str:
    """Write a node configuration for Flower's command line.

    >>> inline({"data": "/d/a.csv", "partition-id": 0, "split-data": True})
    'data="/d/a.csv" partition-id=0 split-data=true'
    """
    for value in config.values():
        if isinstance(value, str) and (set(value) & set("\"'\\\n")):
            raise ValueError(f"a node configuration cannot hold {value!r}")
    return " ".join(f"{k}={toml_value(v)}" for k, v in config.items())


def _commands() -> str:
    return str(Path(sys.executable).parent)
