"""The protocols that come with fedhist, one file each."""

from fedhist.protocols.adaptive_histogram import AdaptiveHistogram
from fedhist.protocols.bounded_histogram import BoundedHistogram
from fedhist.protocols.convex_optimization import UserLevelErm
from fedhist.protocols.distribution import Distribution
from fedhist.protocols.few_users_distribution import FewUsersDistribution
from fedhist.protocols.few_users_mean import FewUsersMean
from fedhist.protocols.mean import Mean
from fedhist.protocols.poisson_counts import PoissonCounts
from fedhist.protocols.ragged_distribution import RaggedDistribution
from fedhist.protocols.unbounded_histogram import UnboundedHistogram

__all__ = [
    "AdaptiveHistogram",
    "BoundedHistogram",
    "Distribution",
    "FewUsersDistribution",
    "FewUsersMean",
    "Mean",
    "PoissonCounts",
    "RaggedDistribution",
    "UnboundedHistogram",
    "UserLevelErm",
]
