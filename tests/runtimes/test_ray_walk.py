"""Passes over users that a prediction takes, as tasks: the driver's sums, to the bit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import ray

from fedhist.base.errors import FedhistError
from fedhist.model.evaluation import walked
from fedhist.model.query import Summary
from fedhist.model.trees import Tree
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK
from simulations.populations import population
from simulations.runtimes import ray_tasks, ray_walk
from simulations.runtimes.ray_machines import Likeness
from simulations.runtimes.ray_tasks import NoMachines, _called, on_ray
from simulations.runtimes.ray_walk import GROUP, WalkedOnRay, _part


def of(users: Users) -> Summary:
    """Add up reals of many sizes: their order shows in the last bits."""
    x = users.ids * 2.0**-64
    return Summary(len(users), {"x": np.array([(x**3).sum(), np.exp(20 * x).sum()])})


def test_groups_of_blocks_add_up_as_the_whole_walk_does() -> None:
    plan = population("zipf", n_users=(2 * GROUP + 1) * BLOCK + 7, d=2, mean_items=1).plan()
    wanted = walked(of, plan.users)
    tree = Tree()
    for first in (2 * GROUP, 0, GROUP):
        tree.join(_part(of, plan.users, first))
    found = tree.total()
    assert found.n_users == wanted.n_users == len(plan.users)
    assert found.sums["x"].tobytes() == wanted.sums["x"].tobytes()


def test_what_lost_machines_leave_is_walked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """One piece comes, one dies with its worker, and of the third nothing is heard."""
    plan = population("zipf", n_users=(2 * GROUP + 1) * BLOCK, d=2, mean_items=1).plan()

    def on_ray(function: Any, tasks: Any, *more: Any) -> Any:
        yield tasks[1], function(tasks[1])
        yield tasks[0], ray.exceptions.WorkerCrashedError()
        raise NoMachines("they are gone")

    monkeypatch.setattr(ray_walk, "on_ray", on_ray)
    for name, stub in (("is_initialized", lambda: True), ("put", same), ("get", same)):
        monkeypatch.setattr(ray_walk.ray, name, stub)
    found = walked(of, WalkedOnRay(plan.users))
    assert found.sums["x"].tobytes() == walked(of, plan.users).sums["x"].tobytes()


def test_machines_are_compared_before_any_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a cluster, with the plugins of the tasks; where they differ nothing is started."""
    asked: list[Likeness] = []

    def compare(wanted: Likeness) -> None:
        asked.append(wanted)
        raise FedhistError("another version")

    monkeypatch.setattr(ray_tasks, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(ray_tasks, "compare", compare)
    with pytest.raises(FedhistError, match="another version"):
        next(on_ray(same, [1, 2], None, "10.0.0.1:1", [__file__]))
    assert asked[0].plugins == (__file__,)
    other = replace(asked[0], facts={**asked[0].facts, "the version of numpy": "0"})
    assert _called(asked[0], same, 7) == 7
    with pytest.raises(FedhistError, match="the version of numpy"):
        _called(other, same, 7)


def test_a_ray_without_any_cpu_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Remote:
        def options(self, **_: object) -> Remote:
            return self

        def remote(self, *_: object) -> object:
            return object()

    monkeypatch.setattr(ray_tasks, "ALONE_SECONDS", 0.05)
    monkeypatch.setattr(ray_tasks, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(ray_tasks, "window", lambda *_: 1)
    for name, stub in (
        ("remote", lambda _: Remote()),
        ("wait", lambda refs, timeout: ([], refs)),
        ("cluster_resources", dict),
    ):
        monkeypatch.setattr(ray_walk.ray, name, stub)
    with pytest.raises(NoMachines, match=r"no CPU for 0\.05 s"):
        next(on_ray(same, [1], None, None))


def same(x: Any) -> Any:
    return x


def test_without_ray_users_are_walked_here() -> None:
    plan = population("zipf", n_users=100, d=2, mean_items=1).plan()
    users = WalkedOnRay(plan.users)
    assert len(users) == 100
    assert users.digest == plan.users.digest
    assert walked(of, users).sums["x"].tobytes() == walked(of, plan.users).sums["x"].tobytes()
