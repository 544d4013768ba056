"""Whether this machine rounds as the one does on which seeded numbers were recorded.

NumPy, BLAS and compiled loops take other instructions on other processors, and the last bit of a
logarithm or of a product of matrices is another. Where such a number is part of a query, its
digest, and with it all seeded noise, is another: two queries that differ never share noise.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite.binding import get_host_cpu_name
from threadpoolctl import threadpool_info

ESTIMATES = Path(__file__).parent / "golden" / "estimates.json"


def fingerprint() -> dict[str, Any]:
    """Say what the last bits of a floating-point number depend on."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    blas = {
        x.get("architecture", x["internal_api"])
        for x in threadpool_info()
        if x["user_api"] == "blas"
    }
    return {
        "kernels": [*sorted(blas), get_host_cpu_name()],
        "simd": sorted({*simd["baseline"], *simd.get("found", [])}),
        "machine": [platform.machine(), platform.python_version(), *platform.libc_ver()],
        "versions": {name: version(name) for name in ("numpy", "numba", "scipy")},
    }


def rounds_as_recorded() -> bool:
    """Say whether seeded numbers are those of the golden record and of the documentation."""
    recorded = json.loads(ESTIMATES.read_text(encoding="utf-8"))["fingerprint"]
    return bool(recorded == fingerprint())
