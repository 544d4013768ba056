"""The papers' versions as printed, each with what it really guarantees: ``mode = "paper"``.

Not proven, or proven for worse numbers than the paper states; kept for comparisons. Each is a
subclass of the protocol it is a version of, and is built by that protocol's field ``mode``.
"""

from server.printed import (
    distribution,
    few_users,
    histograms,
    localize,
    means,
    ragged_distribution,
)

__all__ = [
    "distribution",
    "few_users",
    "histograms",
    "localize",
    "means",
    "ragged_distribution",
]
