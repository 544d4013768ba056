"""Benchmarks: ratios measured in one run, printed with their targets (``fedhist bench``).

Each benchmark runs in a process of its own with one BLAS thread. What is compared is measured in
turns (A B A B ...), so that another program on the machine slows both sides; what is shown is the
median of the turns, with the smallest and the largest.
"""

from __future__ import annotations

from simulations.benchmarks.report import plain_results, print_report, save_results
from simulations.benchmarks.running import NAMES, run_benchmarks

__all__ = ["NAMES", "plain_results", "print_report", "run_benchmarks", "save_results"]
