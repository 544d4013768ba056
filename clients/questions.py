"""Every question of this package: importing this module registers what a node may be asked."""

# ruff: noqa: F401
from clients.baselines import queries as baselines
from clients.central_means import queries as central_means
from clients.centred import queries as centred
from clients.densities import queries as densities
from clients.distributions import queries as distributions
from clients.few_users import queries as few_users
from clients.frequency_oracles import oracle_votes
from clients.heavy_hitters import queries as heavy_hitters
from clients.histograms import contributions, key_queries
from clients.histograms import queries as histograms
from clients.localize import queries as localize
from clients.means import queries as means
from clients.quantiles import queries as quantiles
from clients.regression import queries as regression
from fedhist.model import aggregated, shuffled
