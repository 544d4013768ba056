"""The protocols that come with fedhist, one file each."""

from fedhist.protocols.adaptive_histogram import AdaptiveHistogram
from fedhist.protocols.bounded_histogram import BoundedHistogram
from fedhist.protocols.mean import Mean
from fedhist.protocols.poisson_counts import PoissonCounts
from fedhist.protocols.unbounded_histogram import UnboundedHistogram

__all__ = ["AdaptiveHistogram", "BoundedHistogram", "Mean", "PoissonCounts", "UnboundedHistogram"]
