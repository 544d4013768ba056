"""A Grid for tests: messages are answered in this process, through the clients' own nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from clients.node import Node
from clients.store import ContextStore
from fedhist.flower.host import NodeSetup
from simulations.runtimes.flower_internals import FIRST_NODE_ID, act_as_server


class NodeGrid(Grid):
    """Nodes and what they keep; the strategy sends and receives, and calls nothing else."""

    def __init__(self, setups: Iterable[NodeSetup]) -> None:
        self.nodes = [(Node(s), ContextStore(RecordDict())) for s in setups]
        act_as_server(run_id=1)

    def answer(self, message: Message) -> Message:
        """Let the node that a message is for answer it."""
        node, store = self.nodes[message.metadata.dst_node_id - FIRST_NODE_ID]
        return Message(node.answer(message.content, store), reply_to=message)

    def get_node_ids(self) -> Iterable[int]:
        return [FIRST_NODE_ID + i for i in range(len(self.nodes))]

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError
