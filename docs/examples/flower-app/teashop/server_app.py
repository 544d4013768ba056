"""The server: one statistic under local privacy, then federated averaging."""

from logging import INFO

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.common import log
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedhist as fh
from fedhist.protocols import FrequencyOracle
from teashop.make_data import TEAS

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask what people drink; then train."""
    run = context.run_config
    shares = FrequencyOracle(epsilon=run["epsilon"], domain=fh.Keys.of(TEAS))
    statistic = fh.flower.Strategy(shares, run["nodes"])
    statistic.start(grid)
    for tea, share in zip(TEAS, statistic.estimate.value, strict=True):
        log(INFO, "%s: %.2f", tea, share)

    averaging = FedAvg(min_available_nodes=run["nodes"])
    result = averaging.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=run["rounds"])
    log(INFO, "mse: %.3f", result.evaluate_metrics_clientapp[run["rounds"]]["mse"])
