"""The protocols that come with fedhist, by class name; each is imported when it is asked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedhist.protocols.baselines.naive_mean import NaiveMean as NaiveMean
    from fedhist.protocols.central_means.box_mean import BoxMean as BoxMean
    from fedhist.protocols.central_means.central_mean import CentralMean as CentralMean
    from fedhist.protocols.densities.central_density import CentralDensity as CentralDensity
    from fedhist.protocols.densities.density import Density as Density
    from fedhist.protocols.distributions.distribution import Distribution as Distribution
    from fedhist.protocols.distributions.local_distribution import (
        LocalDistribution as LocalDistribution,
    )
    from fedhist.protocols.distributions.ragged_distribution import (
        RaggedDistribution as RaggedDistribution,
    )
    from fedhist.protocols.few_users.few_users_distribution import (
        FewUsersDistribution as FewUsersDistribution,
    )
    from fedhist.protocols.few_users.few_users_mean import FewUsersMean as FewUsersMean
    from fedhist.protocols.frequency_oracles.frequency_oracle import (
        FrequencyOracle as FrequencyOracle,
    )
    from fedhist.protocols.frequency_oracles.frequency_oracle import (
        LocalHistogram as LocalHistogram,
    )
    from fedhist.protocols.heavy_hitters.heavy_hitters import HeavyHitters as HeavyHitters
    from fedhist.protocols.histograms.adaptive_histogram import (
        AdaptiveHistogram as AdaptiveHistogram,
    )
    from fedhist.protocols.histograms.bounded_histogram import BoundedHistogram as BoundedHistogram
    from fedhist.protocols.histograms.item_histogram import ItemHistogram as ItemHistogram
    from fedhist.protocols.histograms.poisson_counts import PoissonCounts as PoissonCounts
    from fedhist.protocols.histograms.unbounded_histogram import (
        UnboundedHistogram as UnboundedHistogram,
    )
    from fedhist.protocols.means.cover_select import CoverSelect as CoverSelect
    from fedhist.protocols.means.mean import Mean as Mean
    from fedhist.protocols.means.mean_l2 import MeanL2 as MeanL2
    from fedhist.protocols.means.mean_linf import MeanLinf as MeanLinf
    from fedhist.protocols.means.sparse.sparse_mean import SparseMean as SparseMean
    from fedhist.protocols.quantiles.local_quantiles import LocalQuantiles as LocalQuantiles
    from fedhist.protocols.quantiles.quantiles import Quantiles as Quantiles
    from fedhist.protocols.regression.user_level_erm import UserLevelErm as UserLevelErm
else:
    from fedhist.base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(__name__)
