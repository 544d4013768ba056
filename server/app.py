"""The Flower ServerApp: a strategy over the grid, set up by its host or in somebody's own app."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from itertools import islice
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, Context
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from fedhist.base.checks import check_size
from fedhist.flower.host import ServerSetup, current_host
from fedhist.model.protocol import Estimate, Protocol
from server.strategy import Strategy, plain_integers

MOST_LOGGED = 100
"""Entries of an estimate that are logged."""


def server_app(
    protocol: Protocol | Callable[[Context], Protocol],
    nodes: int | None = None,
    *,
    publish: Callable[[Estimate, Context], None] | None = None,
    timeout: float = 3600.0,
    **options: Any,
) -> ServerApp:
    """Make the ServerApp of your own Flower app: it runs one protocol over the nodes.

    Parameters
    ----------
    protocol : Protocol or callable
        A callable takes Flower's Context and returns one: parameters from the run configuration.
    nodes : int, optional
        Nodes to ask; default: the number ``nodes`` of the run configuration.
    publish : callable, optional
        Gets the estimate and the Context at the end; default: the estimate is logged.
    timeout : float
        Seconds to wait for the replies of a round.
    options
        Those of :class:`server.strategy.Strategy`.

    Raises
    ------
    ValueError
        For arguments of another kind; in the run, if the number of nodes is not known.
    """
    if isinstance(protocol, type) or not (isinstance(protocol, Protocol) or callable(protocol)):
        raise ValueError(f"protocol must be a protocol or a function that makes one: {protocol!r}")
    if not (publish is None or callable(publish)):
        raise ValueError(f"publish must be a function of the estimate and the context: {publish!r}")
    check_size("timeout", timeout)
    signature(Strategy).bind(protocol, nodes, **options)  # TypeError here, not in the run
    plain_integers(1 if nodes is None else nodes, options.get("seed"))

    def set_up(context: Context) -> ServerSetup:
        made = protocol if isinstance(protocol, Protocol) else protocol(context)
        count: Any = context.run_config.get("nodes") if nodes is None else nodes
        if nodes is None and type(count) is not int:
            raise ValueError(
                "how many nodes are there? Say server_app(..., nodes=10), or nodes = 10 in the "
                f"run configuration; got {count!r}"
            )
        strategy = Strategy(made, count, **options)

        def tell() -> None:
            try:
                (publish or _log)(strategy.estimate, context)
            except Exception:  # its budget is spent: the estimate must not be lost
                _log(strategy.estimate, context)
                raise

        return ServerSetup(strategy, timeout, tell)

    return _app(set_up)


def _log(estimate: Estimate, context: Context) -> None:
    """Log an estimate, or why there is none."""
    if estimate.value is None:
        log(WARNING, "%r", estimate)
        return
    log(INFO, "%r", estimate)
    if estimate.keys is None:
        log(INFO, "%s", estimate.value)
        return
    for key, number in islice(zip(estimate.keys, estimate.value, strict=True), MOST_LOGGED):
        log(INFO, "%s: %s", key, number)
    if len(estimate.keys) > MOST_LOGGED:
        log(INFO, "... and %d more", len(estimate.keys) - MOST_LOGGED)


def _app(set_up: Callable[[Context], ServerSetup]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        setup = set_up(context)
        try:
            setup.strategy.start(grid, ArrayRecord(), timeout=setup.timeout)
        except BaseException:
            setup.broken_off()
            raise
        setup.publish()

    return app


app = _app(lambda context: current_host().server(context.run_config))
