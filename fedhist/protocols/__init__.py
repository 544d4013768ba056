"""The protocols that come with fedhist, one file each."""

from fedhist.protocols.adaptive_histogram import AdaptiveHistogram
from fedhist.protocols.bounded_histogram import BoundedHistogram
from fedhist.protocols.central_density import CentralDensity
from fedhist.protocols.convex_optimization import UserLevelErm
from fedhist.protocols.cover_select import CoverSelect
from fedhist.protocols.density import Density
from fedhist.protocols.distribution import Distribution
from fedhist.protocols.few_users_distribution import FewUsersDistribution
from fedhist.protocols.few_users_mean import FewUsersMean
from fedhist.protocols.hadamard_response import HadamardResponse
from fedhist.protocols.item_histogram import ItemHistogram
from fedhist.protocols.local_distribution import LocalDistribution
from fedhist.protocols.local_histogram import LocalHistogram
from fedhist.protocols.mean import Mean
from fedhist.protocols.mean_l2 import MeanL2
from fedhist.protocols.mean_linf import MeanLinf
from fedhist.protocols.naive_density import NaiveDensity
from fedhist.protocols.naive_mean import NaiveMean
from fedhist.protocols.poisson_counts import PoissonCounts
from fedhist.protocols.ragged_distribution import RaggedDistribution
from fedhist.protocols.sparse_mean import SparseMean
from fedhist.protocols.unary_encoding import UnaryEncoding
from fedhist.protocols.unbounded_histogram import UnboundedHistogram

__all__ = [
    "AdaptiveHistogram",
    "BoundedHistogram",
    "CentralDensity",
    "CoverSelect",
    "Density",
    "Distribution",
    "FewUsersDistribution",
    "FewUsersMean",
    "HadamardResponse",
    "ItemHistogram",
    "LocalDistribution",
    "LocalHistogram",
    "Mean",
    "MeanL2",
    "MeanLinf",
    "NaiveDensity",
    "NaiveMean",
    "PoissonCounts",
    "RaggedDistribution",
    "SparseMean",
    "UnaryEncoding",
    "UnboundedHistogram",
    "UserLevelErm",
]
