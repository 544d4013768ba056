"""Federated analytics under user-level differential privacy.

The Python way in::

    import fedhist as fh
    estimate = fh.run(protocol, users, seed=1)

Every public name is here, and the protocols are in :mod:`fedhist.protocols`. A name's module is
imported when the name is first asked for: ``import fedhist`` itself costs next to nothing.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.randomizers.scalars import bin_indices as bin_indices
    from clients.randomizers.scalars import randomize as randomize
    from clients.randomizers.scalars import unary_votes as unary_votes
    from clients.records.draws import draw_item as draw_item
    from clients.records.draws import draw_subset as draw_subset
    from clients.records.functionals import Coordinates as Coordinates
    from clients.records.user_rows import coordinate_points as coordinate_points
    from clients.records.user_rows import user_means as user_means
    from fedhist import flower as flower
    from fedhist.base.arrays import Array as Array
    from fedhist.base.arrays import Bounds as Bounds
    from fedhist.base.arrays import Floats as Floats
    from fedhist.base.errors import BudgetExceeded as BudgetExceeded
    from fedhist.base.errors import FedhistError as FedhistError
    from fedhist.base.errors import MissingReplies as MissingReplies
    from fedhist.base.errors import PopulationError as PopulationError
    from fedhist.base.errors import WireError as WireError
    from fedhist.channels.bits import UnaryChannel as UnaryChannel
    from fedhist.channels.bits import flip_probability as flip_probability
    from fedhist.channels.bits import unary_law as unary_law
    from fedhist.channels.scalar import scalar_channel as scalar_channel
    from fedhist.channels.scalar import scalar_law as scalar_law
    from fedhist.model.display import Display as Display
    from fedhist.model.evaluation import Facts as Facts
    from fedhist.model.evaluation import measured as measured
    from fedhist.model.finite import FiniteChannel as FiniteChannel
    from fedhist.model.protocol import Estimate as Estimate
    from fedhist.model.protocol import Protocol as Protocol
    from fedhist.model.protocol import Script as Script
    from fedhist.model.query import Keyed as Keyed
    from fedhist.model.query import LocalQuery as LocalQuery
    from fedhist.model.query import Query as Query
    from fedhist.model.query import Report as Report
    from fedhist.model.query import Summary as Summary
    from fedhist.model.registry import register_protocol as register_protocol
    from fedhist.model.registry import register_query as register_query
    from fedhist.model.truths import Prediction as Prediction
    from fedhist.model.truths import Truth as Truth
    from fedhist.privacy.guarantee import Adjacency as Adjacency
    from fedhist.privacy.guarantee import Guarantee as Guarantee
    from fedhist.privacy.guarantee import Release as Release
    from fedhist.privacy.guarantee import Trust as Trust
    from fedhist.privacy.guarantee import approximate as approximate
    from fedhist.privacy.guarantee import check_budget as check_budget
    from fedhist.privacy.guarantee import pure as pure
    from fedhist.privacy.guarantee import zcdp_rho as zcdp_rho
    from fedhist.privacy.shares import Aggregation as Aggregation
    from fedhist.users.batch import Users as Users
    from fedhist.users.cohort import Cohort as Cohort
    from fedhist.users.keys import Keys as Keys
    from fedhist.users.shards import Shard as Shard
    from fedhist.users.streams import SeededStreams as SeededStreams
    from fedhist.users.streams import Streams as Streams
    from fedhist.users.streams import integer_threshold as integer_threshold
    from fedhist.users.streams import unit_interval as unit_interval
    from server.densities.density import density_of as density_of
    from server.predictor import simulated as simulated
    from server.session.curator import Curator as Curator
    from server.session.unknown_keys import key_threshold as key_threshold
    from simulations.api.audits import audit as audit
    from simulations.api.studies import compare as compare
    from simulations.api.studies import decide as decide
    from simulations.api.studies import show as show
    from simulations.populations import population as population
    from simulations.runs.run import run as run
else:
    from fedhist.base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(__name__)
    __all__ = sorted([*__all__, "__version__"])

__version__ = "0.3.0"


def _load_siblings() -> None:
    """Import clients, server and simulations by path where somebody's files of these names are.

    The names are generic: ``import server`` beside a file ``server.py`` finds that file.
    """
    home = Path(__file__).resolve().parent.parent
    for name in ("clients", "server", "simulations"):
        ours = home / name / "__init__.py"
        if not ours.is_file():
            raise ImportError(f"fedhist needs its package {name!r}, which is not at {ours.parent}")
        loaded = sys.modules.get(name)
        spec = loaded.__spec__ if loaded else importlib.util.find_spec(name)
        place = getattr(loaded, "__file__", None) or (spec and spec.origin)
        if place and Path(place).resolve() == ours:
            continue
        if loaded is not None:
            raise ImportError(
                f"fedhist needs its package {name!r}, but {place} was imported under this name; "
                "rename that file, or import fedhist before it"
            )
        if spec is not None:
            warnings.warn(
                f"{place or name} is hidden: `import {name}` gives fedhist's package of this name",
                stacklevel=3,
            )
        own = importlib.util.spec_from_file_location(name, ours)
        if own is None or own.loader is None:
            raise ImportError(f"not a Python file: {ours}")
        sys.modules[name] = importlib.util.module_from_spec(own)
        own.loader.exec_module(sys.modules[name])


_load_siblings()
