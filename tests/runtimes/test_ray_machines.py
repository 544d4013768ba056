"""Machines that would not answer as the driver's does are named, with what differs."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from walked_users import Walked

from fedhist import Users
from fedhist.base.errors import FedhistError
from simulations.runtimes import ray_machines, ray_start
from simulations.runtimes.ray_machines import Likeness, facts_of

PLUGIN = str(Path(__file__).with_name("faulty.py"))
USERS = Users.from_samples(np.arange(100), np.arange(101), np.linspace(0.0, 1.0, 100))


@pytest.fixture(autouse=True)
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """What travels through Ray's store is here: no Ray is started."""
    monkeypatch.setattr(ray_machines.ray, "put", lambda found: found)
    monkeypatch.setattr(ray_machines.ray, "get", lambda found: found)


def test_a_machine_is_like_itself() -> None:
    for users in (USERS, Walked(USERS)):
        like = Likeness.of([PLUGIN], users)
        like.check()
        assert (like.probe is None) == isinstance(users, Users), "users in memory travel anyway"


@pytest.mark.parametrize("fact", [*facts_of([PLUGIN]), "the digest of the first users"])
def test_whatever_differs_is_named(fact: str) -> None:
    like = Likeness.of([PLUGIN], Walked(USERS))
    other = replace(like, facts={**like.facts, fact: "another"})
    with pytest.raises(
        FedhistError, match=f"{socket.gethostname()}.*{re.escape(fact)} is .* and another"
    ):
        other.check()


def test_other_plugins_and_other_users_differ(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text("x = 1\n")
    like = Likeness.of([str(plugin)], Walked(USERS))
    plugin.write_text("x = 2\n")
    with pytest.raises(FedhistError, match="the plugin"):
        like.check()
    plugin.unlink()
    with pytest.raises(FedhistError, match=r"plugin\.py is missing there"):
        like.check()
    others = Likeness.of([], Walked(USERS.slice(1, 100))).probe
    with pytest.raises(FedhistError, match="the digest of the first users"):
        replace(Likeness.of([], Walked(USERS)), probe=others).check()


def test_something_else_listens_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would try for minutes; whoever listens and says nothing is given some seconds."""
    monkeypatch.setattr(ray_start, "JOINED_SECONDS", 0.2)
    monkeypatch.setattr(ray_machines.ray, "init", lambda **_: time.sleep(1))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(FedhistError, match="is no Ray cluster, or a broken one"):
            ray_start.start_ray(None, address)
