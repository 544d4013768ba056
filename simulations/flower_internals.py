"""Every use of Flower's internal API, in one place; a test fails loudly when one of them changes.

``Message(...)`` outside a process that Flower started needs the task identity set, and only
internal code can set a message's id.
"""

from __future__ import annotations

from flwr.app import Message
from flwr.supercore.task_identity import TaskIdentity

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
