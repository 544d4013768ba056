"""A Ray cluster of several raylets on this machine, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.cluster_utils import Cluster


@contextmanager
def raylets(n: int, **head: Any) -> Iterator[Cluster]:
    """Keep up ``n`` raylets of one CPU each, and a head without any, which takes ``head``.

    What still runs on them is shut down before the block ends.
    """
    args = {"num_cpus": 0, "include_dashboard": False, **head}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    try:
        for _ in range(n):
            cluster.add_node(num_cpus=1)
        yield cluster
    finally:
        cluster.shutdown()
