"""Whether a Ray cluster's machines answer as this one does: compared before any user is asked."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedhist.base.errors import FedhistError
from fedhist.base.hashing import digest64
from fedhist.model.registry import load_plugin
from fedhist.users.batch import Users
from fedhist.users.shards import Shard
from fedhist.users.streams import SeededStreams
from simulations.runtimes.ray_start import TASK

PACKAGES = ("fedhist", "numpy", "numba", "flwr")

PLACED_SECONDS = 60.0
"""How long a cluster's first free CPU is waited for."""

ANSWERED_SECONDS = 180.0
"""How long machines may take to say what they are: fresh ones import and compile first."""

PROBED = 64
"""Users that every machine makes, and lets vote."""


@dataclass(frozen=True)
class Likeness:
    """What a machine must be like to answer as the driver's does.

    Attributes
    ----------
    facts : mapping of str to str
        Versions of packages, and digests: of plugin files, of a vote, of the plan's first users.
    plugins : tuple of str
        Paths of the plugin files.
    probe : ObjectRef or None
        Of the first users, if they are made or read where they are asked.
    """

    facts: Mapping[str, str]
    plugins: tuple[str, ...]
    probe: Any

    @classmethod
    def of(cls, plugins: Sequence[str], users: Shard | None = None) -> Self:
        """Say what this machine is like."""
        facts, probe = facts_of(plugins), None
        if users is not None and not isinstance(users, Users):
            first = users.slice(0, min(PROBED, len(users)))
            facts, probe = facts | facts_of_users(first), ray.put(first)
        return cls(facts, tuple(plugins), probe)

    def check(self) -> None:
        """Compare the machine that this runs on; FedhistError if it is unlike."""
        self._compare(facts_of(self.plugins))
        if self.probe is not None:  # to be made by plugins, perhaps: they are here, as was seen
            for plugin in self.plugins:
                load_plugin(plugin)
            self._compare(facts_of_users(ray.get(self.probe)))

    def _compare(self, found: Mapping[str, str]) -> None:
        unlike = [
            f"{name} is {what} there and {self.facts[name]} here"
            for name, what in found.items()
            if self.facts[name] != what
        ]
        if unlike:
            raise FedhistError(
                f"the machine {socket.gethostname()} would not answer as this one does: "
                + "; ".join(unlike)
            )


def facts_of(plugins: Sequence[str]) -> dict[str, str]:
    """Say what the machine that this runs on is like."""
    from clients.randomizers.scalars import randomize  # with many channels, for clusters only
    from fedhist.channels.catalogue import scalar_channel

    facts = {f"the version of {name}": version(name) for name in PACKAGES}
    for plugin in plugins:
        file = Path(plugin)
        digest = f"{digest64(file.read_bytes()):016x}" if file.is_file() else "missing"
        facts[f"the plugin {plugin}"] = digest
    streams = SeededStreams(np.arange(PROBED, dtype=np.uint64), 1, "fedhist.probe")
    votes = randomize(np.linspace(-1.0, 1.0, PROBED), scalar_channel("laplace", 1.0), streams)
    facts["the digest of a vote"] = f"{digest64(votes.tobytes()):016x}"
    return facts


def facts_of_users(probe: Shard) -> dict[str, str]:
    """Digest users as the machine makes them that this runs on."""
    return {"the digest of the first users": f"{probe.in_memory().digest:016x}"}


def compare(wanted: Likeness) -> None:
    """Compare every machine of a cluster, and wait until one has a free CPU.

    Raises
    ------
    FedhistError
        If a machine is unlike this one, or cannot say so, or if there is no CPU for anybody.
    """
    machines = [m for m in ray.nodes() if m["Alive"] and m["Resources"].get("CPU")]
    if not machines:
        raise FedhistError("no machine of the Ray cluster has a CPU")
    free = ray.remote(_here).options(**TASK).remote()
    check = partial(ray.remote(Likeness.check).options, **(TASK | {"num_cpus": 0}))
    asked = {}
    for machine in machines:
        where = NodeAffinitySchedulingStrategy(machine["NodeID"], soft=False)
        asked[check(scheduling_strategy=where).remote(wanted)] = machine["NodeManagerAddress"]
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWERED_SECONDS)
    for ref in done:
        _checked(ref, asked[ref])
    if late:
        names = ", ".join(sorted({asked[ref] for ref in late}))
        raise FedhistError(f"no answer within {ANSWERED_SECONDS:g} s from Ray's machines {names}")
    if not ray.wait([free], timeout=PLACED_SECONDS)[0]:
        ray.cancel(free)
        raise FedhistError(
            f"Ray started no worker within {PLACED_SECONDS:g} s: are its CPUs taken?"
        )


def _here() -> None:
    """Take a CPU for a moment."""


def _checked(ref: Any, address: str) -> None:
    try:
        ray.get(ref)
    except ray.exceptions.RayTaskError as e:
        if isinstance(e.cause, FedhistError):
            raise e.cause from None
        raise FedhistError(
            f"the machine {address} of the Ray cluster cannot answer: {e.cause or e}; "
            "fedhist has to be installed there, with the plugins of the run"
        ) from e
    except ray.exceptions.RayError:
        return  # it is gone: nobody is asked there
