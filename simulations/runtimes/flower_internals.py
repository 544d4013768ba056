"""Every use of Flower's internal API, in one place; a test fails loudly when one of them changes.

``Message(...)`` outside a process that Flower started needs the task identity set, and only
internal code can set a message's id.
"""

from __future__ import annotations

import os
from typing import Any

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.supercore.task_identity import TaskIdentity

from fedhist.base.errors import FedhistError

SERVER_NODE_ID = 1
"""Flower's node id of the server."""

FIRST_NODE_ID = 1000
"""Node ids of the simulation are FIRST_NODE_ID + node index."""


def act_as_server(run_id: int) -> None:
    """Let this process make instruction messages, as a ServerApp's process does."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SERVER_NODE_ID
    TaskIdentity.task_id = 0


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message its id, as the SuperLink does on arrival."""
    message.metadata.__dict__["_message_id"] = message_id


def simulate(server: ServerApp, client: ClientApp, nodes: int, workers: int, folder: str) -> None:
    """Run two apps on Flower's own simulation runtime in this process, without its command line.

    ``flwr.simulation.run_simulation`` is deprecated and gives the apps no run configuration;
    this is what it calls.

    ``nodes``: simulated SuperNodes; ``workers``: CPUs, one per actor; ``folder``: holds the
    pyproject.toml whose ``[tool.flwr.app.config]`` is the run configuration.
    """
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    _run_simulation(
        num_supernodes=nodes,
        exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
        client_app=client,
        server_app=server,
        backend_config={
            "init_args": {"num_cpus": workers, "configure_logging": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
        app_dir=folder,
        is_app=True,
    )


CLIENT_COMMAND = "flwr-clientapp"
REPLACED = ("install_from_fab", "get_load_client_app_fn", "install_app_dependencies")
"""What Flower's client process calls to install and load the app that was sent."""


def task_commands() -> set[str]:
    """Return the commands that a SuperNode starts for the tasks its SuperLink sends.

    Raises FedhistError if this version of Flower has no client command of the known name.
    """
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND

    commands = set(TASK_TYPE_TO_COMMAND.values())
    if CLIENT_COMMAND not in commands:
        raise FedhistError(f"this version of Flower has no {CLIENT_COMMAND}: {sorted(commands)}")
    return commands


def run_client_process(app: ClientApp) -> None:
    """Be Flower's client process, with the given app in place of the one that was sent.

    Raises FedhistError if this version of Flower loads apps in another way: nothing is run then.
    """
    from flwr.supernode.cli.flwr_clientapp import flwr_clientapp
    from flwr.supernode.runtime import run_clientapp as runtime

    names: dict[str, Any] = vars(runtime)
    for name in REPLACED:
        if name not in names:
            raise FedhistError(f"this version of Flower has no {name}: the app cannot be pinned")
    names["install_from_fab"] = _nothing
    names["get_load_client_app_fn"] = lambda **options: lambda *fab: app
    names["install_app_dependencies"] = _nothing
    flwr_clientapp()


def _nothing(*args: object, **options: object) -> None:
    """Install nothing."""
