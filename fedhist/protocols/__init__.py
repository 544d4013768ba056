"""The protocols that come with fedhist, one file each."""

from fedhist.protocols.baselines.naive_density import NaiveDensity
from fedhist.protocols.baselines.naive_mean import NaiveMean
from fedhist.protocols.densities.central_density import CentralDensity
from fedhist.protocols.densities.density import Density
from fedhist.protocols.distributions.distribution import Distribution
from fedhist.protocols.distributions.local_distribution import LocalDistribution
from fedhist.protocols.distributions.ragged.ragged_distribution import RaggedDistribution
from fedhist.protocols.few_users.few_users_distribution import FewUsersDistribution
from fedhist.protocols.few_users.few_users_mean import FewUsersMean
from fedhist.protocols.frequency_oracles.hadamard_response import HadamardResponse
from fedhist.protocols.frequency_oracles.local_histogram import LocalHistogram
from fedhist.protocols.frequency_oracles.unary_encoding import UnaryEncoding
from fedhist.protocols.histograms.adaptive_histogram import AdaptiveHistogram
from fedhist.protocols.histograms.bounded_histogram import BoundedHistogram
from fedhist.protocols.histograms.item_histogram import ItemHistogram
from fedhist.protocols.histograms.poisson_counts import PoissonCounts
from fedhist.protocols.histograms.unbounded_histogram import UnboundedHistogram
from fedhist.protocols.means.cover_select import CoverSelect
from fedhist.protocols.means.mean import Mean
from fedhist.protocols.means.mean_l2 import MeanL2
from fedhist.protocols.means.mean_linf import MeanLinf
from fedhist.protocols.means.sparse.sparse_mean import SparseMean
from fedhist.protocols.regression.user_level_erm import UserLevelErm

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
