"""The Flower ClientApp: unpack, guard, answer, fold, pack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import ERROR
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common import log

from clients.guard import Policy
from clients.guard_folder import FolderStore
from clients.loaded import Loader
from clients.node import Node
from clients.owned import is_owned, owned_node
from clients.store import ContextStore
from fedhist.base.errors import FedhistError, WireError
from fedhist.flower.host import NodeSetup, current_host
from fedhist.flower.wire import HEAD
from fedhist.model.registry import load_like


class QueryApp(ClientApp):
    """Answers fedhist's queries, and leaves every other message to the app ``beside`` it."""

    def __init__(
        self, set_up: Callable[[Context], NodeSetup], beside: ClientApp | None = None
    ) -> None:
        super().__init__()
        self._set_up, self._beside = set_up, beside
        self._nodes: dict[tuple[int, int], Node] = {}
        self.query()(self.answer)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message, or let the app beside answer it, with its own mods and lifespan."""
        if self._beside is not None and HEAD not in message.content:
            return self._beside(message, context)
        return super().__call__(message, context)

    def answer(self, message: Message, context: Context) -> Message:
        """Answer one query for the users of this node.

        Raises WireError if the message is not ours; Flower sends the error back as the reply;
        FedhistError if anything else went wrong on a node with an owner: its own log says what,
        because the text of an error could say something about the data.
        """
        node = self._node(context)
        folder = node.setup.owner.get("guard-folder")
        if folder is None:
            reply = node.answer(message.content, ContextStore(context.state))
            return Message(reply, reply_to=message)
        try:
            counter = node.setup.owner.get("guard-counter")
            reply = node.answer(
                message.content, FolderStore(str(folder), node.setup.index, counter)
            )
        except WireError:
            raise
        except Exception as error:
            log(ERROR, "the query could not be answered: %s", error)
            raise FedhistError("this node could not answer; its own log says why") from None
        return Message(reply, reply_to=message)

    def _node(self, context: Context) -> Node:
        key = (context.run_id, context.node_id)
        node = self._nodes.get(key)
        if node is None:
            if not self._nodes:
                load_like(("clients.questions",))
            node = self._nodes[key] = Node(self._set_up(context))
        return node


def client_app(
    load_users: Callable[[Context], Any],
    policy: Policy | None = None,
    *,
    app: ClientApp | None = None,
    user: str | None = None,
    item: str | None = None,
    count: str | None = None,
    value: str | Iterable[str] | None = None,
) -> ClientApp:
    """Make the ClientApp of your own Flower app: it answers queries about the users you load.

    Parameters
    ----------
    load_users : callable
        Takes Flower's Context and returns the node's users: Users, a polars or pandas frame, a data
        set with ``to_polars`` or ``to_pandas`` (Hugging Face's), a mapping to columns, or the path
        of a CSV or Parquet file. Called once per process and run, at the first query.
    policy : Policy, optional
        What a node answers; default: what costs a user at most epsilon = 1 and needs no trust in
        the server. In a deployment the owner's node configuration replaces single keys of it.
    app : ClientApp, optional
        Gets every message that is no query of fedhist, such as those of training.
    user, item, count, value : str, optional
        Columns of a table or a file, as in ``Users.from_frame``.

    Raises
    ------
    ValueError
        For arguments of another kind. What ``load_users`` returns is checked on the node, before
        any node is asked: see ``Strategy``.
    """
    if not callable(load_users):
        raise ValueError(f"load_users must be a function of the context, got {load_users!r}")
    if not isinstance(policy, Policy | None):
        raise ValueError(f"policy must be a fedhist.flower.Policy, got {policy!r}")
    if not isinstance(app, ClientApp | None):
        raise ValueError(f"app must be a flwr.clientapp.ClientApp, got {app!r}")
    if item is not None and value is not None:
        raise ValueError(f"give item or value, not both: got {item=}, {value=}")
    values = value
    if isinstance(value, Iterable) and not isinstance(value, str):
        values = tuple(value)
    columns = {"user": user, "item": item, "count": count, "value": values}
    named = {name: column for name, column in columns.items() if column is not None}
    for name, column in named.items():
        if not all(isinstance(c, str) for c in (column if isinstance(column, tuple) else [column])):
            raise ValueError(f"{name} must name a column, got {column!r}")
    return QueryApp(Loader(load_users, policy or Policy(), named), app)


def _configured(context: Context) -> NodeSetup:
    """Set up a node from configurations: its owner's, or those of a simulation."""
    own = context.node_config
    set_up = owned_node if is_owned(own) else current_host().node
    return set_up(context.run_config, own)


app = QueryApp(_configured)
