"""Federated analytics under user-level differential privacy.

The Python way in::

    import fedhist
    estimate = fedhist.run(protocol, users, seed=1)

See :func:`fedhist.run`, :class:`fedhist.Users`, and :mod:`fedhist.protocols`.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.base.arrays import Bounds
from fedhist.base.errors import (
    BudgetExceeded,
    FedhistError,
    MissingReplies,
    PopulationError,
    WireError,
)
from fedhist.model.protocol import ErrorBound, Estimate, Protocol
from fedhist.model.query import Keyed, LocalQuery, Query, Report, Summary
from fedhist.model.registry import register_protocol, register_query
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams

if TYPE_CHECKING:
    from simulations.runs.run import run

__version__ = "0.2.0"

_SIBLINGS = ("clients", "server", "simulations")


def _check_siblings() -> None:
    """Say which folder shadows clients, server or simulations: their names are generic."""
    home = Path(__file__).resolve().parent.parent
    for name in _SIBLINGS:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ImportError(f"fedhist needs its package {name!r}, which is not installed")
        found = Path(next(iter(spec.submodule_search_locations or [spec.origin or ""])))
        if found.resolve() != home / name:
            raise ImportError(
                f"the package {name!r} of fedhist is shadowed by {found}; start Python elsewhere "
                "or rename that folder"
            )


_check_siblings()


def __getattr__(name: str) -> Any:
    # fedhist.run lives above the protocols and the runtimes; import it on first use
    if name == "run":
        return importlib.import_module("simulations.runs.run").run
    raise AttributeError(f"module 'fedhist' has no attribute {name!r}")


__all__ = [
    "Adjacency",
    "Bounds",
    "BudgetExceeded",
    "Cohort",
    "ErrorBound",
    "Estimate",
    "FedhistError",
    "Guarantee",
    "Keyed",
    "Keys",
    "LocalQuery",
    "MissingReplies",
    "PopulationError",
    "Protocol",
    "Query",
    "Release",
    "Report",
    "Streams",
    "Summary",
    "Trust",
    "Users",
    "WireError",
    "__version__",
    "register_protocol",
    "register_query",
    "run",
]
