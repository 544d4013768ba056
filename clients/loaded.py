"""A node of somebody's own Flower app: its users are what a function of the app loads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from logging import INFO
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.common import log

from clients.guard import Policy
from clients.node import POLICY_KEYS
from clients.owned import (
    KEEPING_KEYS,
    in_simulation,
    limits_of,
    natural,
    seed_of,
    shape,
    unreadable,
    users_of_file,
)
from fedhist.base.errors import PopulationError, one_line
from fedhist.flower.host import NodeSetup
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.frames import is_table

LoadUsers = Callable[[Context], Any]
LOADED = "fedhist.Users, a table, a data set or the path of a file"


@dataclass(frozen=True)
class Loader:
    """Sets nodes up from what ``load_users`` returns; ``columns`` are those of a table.

    In a simulation the app's policy holds for one run. In a deployment the node's owner has the
    last word: keys of its configuration replace the policy's, what was answered is kept in its
    guard folder, and errors tell the server nothing about the data.
    """

    load_users: LoadUsers
    policy: Policy
    columns: Mapping[str, Any]

    def __call__(self, context: Context) -> NodeSetup:
        """Set up the node of a context."""
        node_config, simulated = context.node_config, in_simulation()
        owner = {key: getattr(self.policy, field) for key, field in POLICY_KEYS.items()}
        if not simulated:
            if self.policy.simulated:
                raise PopulationError("a policy for simulated users does not protect real ones")
            _refuse_misspelt(node_config)
            owner |= limits_of(node_config, ("partition-id", "guard-folder"))
        index, seed = natural(node_config, "partition-id"), seed_of(node_config)
        try:
            users = users_of(self.load_users(context), self.columns)
            if not len(users) and owner["adjacency"] != Adjacency.ADD_REMOVE_USER.value:
                raise PopulationError("load_users returned no users: this node has no data")
        except Exception as error:
            if not simulated:
                raise unreadable(error) from None
            told = error if isinstance(error, PopulationError) else f"load_users failed: {error!r}"
            raise PopulationError(f"node {index}: {one_line(str(told))}") from error
        dimension = None if users.samples is None else users.samples.values.shape[1]
        return NodeSetup(users, index, seed, owner, shape(dimension))


def _refuse_misspelt(node_config: Mapping[str, Any]) -> None:
    """Refuse a key that looks like one of an owner's limits: other keys are the app's."""
    limits = {*POLICY_KEYS, *KEEPING_KEYS}
    for key in node_config.keys() - limits:
        if close := get_close_matches(key, limits, n=1, cutoff=0.85):
            raise PopulationError(f"unknown node configuration {key!r}; did you mean {close[0]!r}?")


def users_of(loaded: Any, columns: Mapping[str, Any]) -> Users:
    """Make users of what a function has loaded; PopulationError if it is none of :data:`LOADED`."""
    if isinstance(loaded, Users):
        return loaded
    is_path = isinstance(loaded, str | Path)
    if not is_path and not is_table(loaded):
        raise PopulationError(f"load_users returned {type(loaded).__name__}, not {LOADED}")
    if "user" not in columns:
        raise PopulationError(
            f"load_users returned {type(loaded).__name__}: name its columns, "
            'client_app(load_users, user="...", item="...") or value="..."'
        )
    if is_path:
        return users_of_file(str(Path(loaded).expanduser()), tuple(columns.items()))
    users, dropped = Users.read_frame(loaded, **columns)
    if dropped:
        log(INFO, "rows left out (NOT PRIVATE): %s", dropped)
    return users
