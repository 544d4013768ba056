"""What the grids of simulated nodes share, and the one whose nodes are in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid

from clients.guard import SIMULATED_OWNER
from clients.node import Node
from clients.store import ContextStore
from fedhist.base.errors import PopulationError
from fedhist.base.origin import in_words
from fedhist.flower.host import NodeSetup
from fedhist.model.query import Summary
from fedhist.users.shards import Shard
from simulations.runtimes.flower_internals import FIRST_NODE_ID, act_as_server, set_message_id

CLIENT_APP_RAISED = 2
"""Flower's error code for a ClientApp that raises."""

Progress = Callable[[int, int], None]
"""Called with (replies so far, messages sent) while a round runs."""


class SimulatedGrid(Grid):
    """A Flower Grid over nodes that are numbered from 0.

    ``walks_once``: whether messages may be made as they are sent; Flower's own grids walk them
    twice.
    """

    walks_once: ClassVar[bool] = True

    def __init__(self, n_nodes: int, progress: Progress | None = None) -> None:
        self.n_nodes, self.progress = n_nodes, progress
        self._run: Any = None
        self._ids = count(1)

    def set_run(self, run: Any) -> None:
        """Set the run that this grid operates in."""
        self._run = run

    @property
    def run(self) -> Any:
        """The run that was set, if any."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message to a node."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of all nodes."""
        return range(FIRST_NODE_ID, FIRST_NODE_ID + self.n_nodes)

    def beside_total(self) -> Summary | None:
        """Return what was measured of all users as they answered, if it was. NOT PRIVATE."""
        return None

    def index_of(self, message: Message) -> int:
        """Return the index of the node that a message goes to; PopulationError if there is none."""
        index = message.metadata.dst_node_id - FIRST_NODE_ID
        if not 0 <= index < self.n_nodes:
            raise PopulationError(f"there is no node {message.metadata.dst_node_id}")
        return index

    def numbered(self, message: Message) -> Message:
        """Give a message its id, as the SuperLink does on arrival."""
        set_message_id(message, f"{next(self._ids)}")
        return message

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: whoever asks waits for the replies."""
        raise NotImplementedError("simulated nodes are asked with send_and_receive")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse: whoever asks waits for the replies."""
        raise NotImplementedError("simulated nodes are asked with send_and_receive")


class LocalGrid(SimulatedGrid):
    """Nodes in this process, each of which answers when the reply to its message is read.

    ``seed``: the simulation's seed: users' coins are a function of it; None takes system entropy.
    """

    def __init__(
        self, nodes: Sequence[Shard], seed: int | None, progress: Progress | None = None
    ) -> None:
        super().__init__(len(nodes), progress)
        setups = (NodeSetup(users, i, seed, SIMULATED_OWNER) for i, users in enumerate(nodes))
        self._nodes = [(Node(setup), RecordDict()) for setup in setups]
        act_as_server(run_id=1)

    def answer(self, message: Message) -> Message:
        """Let the node that a message is for answer it."""
        return reply_of(*self._nodes[self.index_of(message)], message)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; the replies can be iterated over once."""
        sent = list(messages)
        return self._replies_one_by_one(sent)

    def _replies_one_by_one(self, sent: list[Message]) -> Iterator[Message]:
        for number, message in enumerate(sent, 1):
            yield self.answer(message)
            if self.progress is not None:
                self.progress(number, len(sent))


def reply_of(node: Node, state: RecordDict, message: Message) -> Message:
    """Let a simulated node answer; what it raises is its reply, as in Flower's own runtimes."""
    try:
        return Message(node.answer(message.content, ContextStore(state)), reply_to=message)
    except Exception as e:
        return Message(error_of(e), reply_to=message)


def error_of(e: Exception) -> Error:
    """Return what a node's exception becomes on its way to the server."""
    return Error(CLIENT_APP_RAISED, in_words(e))
