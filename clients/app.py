"""The Flower ClientApp: unpack, guard, answer, fold, pack."""

from __future__ import annotations

from logging import ERROR

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common import log

from clients.guard_folder import FolderStore
from clients.node import Node
from clients.owned import is_owned, owned_node
from clients.store import ContextStore
from fedhist.base.errors import FedhistError, WireError
from fedhist.flower.host import current_host
from fedhist.model.registry import load_like

app = ClientApp()
_nodes: dict[tuple[int, int], Node] = {}


@app.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one query for the users of this node.

    Raises WireError if the message is not ours; Flower sends the error back as the reply;
    FedhistError if anything else went wrong on a node with an owner: its own log says what, because
    the text of an error could say something about the data.
    """
    node = _node(context)
    folder = node.setup.owner.get("guard-folder")
    if folder is None:
        return Message(node.answer(message.content, ContextStore(context.state)), reply_to=message)
    try:
        store = FolderStore(str(folder), node.setup.index, node.setup.owner.get("guard-counter"))
        reply = node.answer(message.content, store)
    except WireError:
        raise
    except Exception as error:
        log(ERROR, "the query could not be answered: %s", error)
        raise FedhistError("this node could not answer; its own log says why") from None
    return Message(reply, reply_to=message)


def _node(context: Context) -> Node:
    """Set up the node once per process and run."""
    key = (context.run_id, context.node_id)
    node = _nodes.get(key)
    if node is None:
        if not _nodes:
            load_like(("clients.questions",))
        run, own = context.run_config, context.node_config
        set_up = owned_node if is_owned(own) else current_host().node
        node = Node(set_up(run, own))
        _nodes[key] = node
    return node
