"""The protocols that come with fedhist, by class name; each is imported when it is asked for."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.baselines.naive_mean import NaiveMean as NaiveMean
    from server.central_means.box_mean import BoxMean as BoxMean
    from server.central_means.central_mean import CentralMean as CentralMean
    from server.densities.central_density import CentralDensity as CentralDensity
    from server.densities.density import Density as Density
    from server.distributions.distribution import Distribution as Distribution
    from server.distributions.local_distribution import (
        LocalDistribution as LocalDistribution,
    )
    from server.distributions.ragged_distribution import (
        RaggedDistribution as RaggedDistribution,
    )
    from server.few_users.few_users_distribution import (
        FewUsersDistribution as FewUsersDistribution,
    )
    from server.few_users.few_users_mean import FewUsersMean as FewUsersMean
    from server.frequency_oracles.frequency_oracle import (
        FrequencyOracle as FrequencyOracle,
    )
    from server.frequency_oracles.frequency_oracle import (
        LocalHistogram as LocalHistogram,
    )
    from server.heavy_hitters.heavy_hitters import HeavyHitters as HeavyHitters
    from server.histograms.adaptive_histogram import (
        AdaptiveHistogram as AdaptiveHistogram,
    )
    from server.histograms.bounded_histogram import BoundedHistogram as BoundedHistogram
    from server.histograms.item_histogram import ItemHistogram as ItemHistogram
    from server.histograms.poisson_counts import PoissonCounts as PoissonCounts
    from server.histograms.unbounded_histogram import (
        UnboundedHistogram as UnboundedHistogram,
    )
    from server.means.cover_select import CoverSelect as CoverSelect
    from server.means.mean import Mean as Mean
    from server.means.mean_l2 import MeanL2 as MeanL2
    from server.means.mean_linf import MeanLinf as MeanLinf
    from server.means.sparse_mean import SparseMean as SparseMean
    from server.quantiles.local_quantiles import LocalQuantiles as LocalQuantiles
    from server.quantiles.quantiles import Quantiles as Quantiles
    from server.regression.user_level_erm import UserLevelErm as UserLevelErm
else:
    from fedhist.base.lazy import public_names

    __getattr__, __dir__, __all__ = public_names(__name__)
