"""The protocols that come with fedhist, one file each."""

from fedhist.protocols.bounded_histogram import BoundedHistogram
from fedhist.protocols.mean import Mean

__all__ = ["BoundedHistogram", "Mean"]
