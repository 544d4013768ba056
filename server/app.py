"""The Flower ServerApp: a strategy, set up by whoever hosts this process, over the grid."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedhist.flower.host import current_host

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one protocol over the nodes of the grid and publish the estimate."""
    setup = current_host().server(context.run_config)
    try:
        setup.strategy.start(grid, ArrayRecord(), timeout=setup.timeout)
    except BaseException:
        setup.broken_off()
        raise
    setup.publish()
