"""A run in a process that has started Ray by itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import ray, fedhist
from fedhist.protocols import BoundedHistogram
ray.init(num_cpus={cpus}, include_dashboard=False, log_to_driver=False)
protocol = BoundedHistogram.example()
users = BoundedHistogram.example_users()
try:
    print(fedhist.run(protocol, users, seed=1, runtime="ray", nodes=4).status)
except fedhist.FedhistError as error:
    print(error)
"""


@pytest.mark.ray
@pytest.mark.parametrize(("cpus", "said"), [(0, "with 0 CPUs and none is free"), (1, "ok")])
def test_a_ray_without_a_free_cpu_is_refused(cpus: int, said: str) -> None:
    code = SCRIPT.format(cpus=cpus)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said in done.stdout
