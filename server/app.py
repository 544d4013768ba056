"""The Flower ServerApp: set up a session, run it over the grid, publish the estimate."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedhist.flower.host import current_host
from fedhist.model.registry import load_builtin
from server.strategy import SessionStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one protocol over the nodes of the grid."""
    load_builtin()
    setup = current_host().server(context.run_config)
    try:
        strategy = SessionStrategy(
            setup.session,
            setup.n_nodes,
            fold=setup.fold,
            min_replies=setup.min_replies,
            on_bad_reply=setup.on_bad_reply,
        )
        strategy.start(grid, ArrayRecord(), timeout=setup.timeout)
    except BaseException:
        setup.broken_off()
        raise
    if setup.session.estimate is not None:
        setup.publish(setup.session.estimate, strategy.rounds)
