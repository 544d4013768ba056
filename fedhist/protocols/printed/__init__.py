"""The papers' versions as printed, each with what it really guarantees: ``mode = "paper"``.

Not proven, or proven for worse numbers than the paper states; kept for comparisons. Each is a
subclass of the protocol it is a version of, and is built by that protocol's field ``mode``.
"""

from fedhist.protocols.printed import (
    density,
    distribution,
    few_users,
    means,
    ragged_distribution,
    unbounded_histogram,
)

__all__ = [
    "density",
    "distribution",
    "few_users",
    "means",
    "ragged_distribution",
    "unbounded_histogram",
]
