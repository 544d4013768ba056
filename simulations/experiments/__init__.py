"""The tables and figures of the papers, measured again: ``fedhist reproduce``."""

from simulations.experiments.base import Check, Curve, Request, Result, Run

__all__ = ["Check", "Curve", "Request", "Result", "Run"]
