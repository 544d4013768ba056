"""What an oracle's messages, and their counts, can be: the checks of every query that has one."""

from __future__ import annotations

import numpy as np

from fedhist.base.arrays import Bounds
from fedhist.base.errors import WireError
from fedhist.channels.bit_oracles import SubsetOracle
from fedhist.channels.bits import check_bits
from fedhist.channels.oracle_base import OracleChannel
from fedhist.channels.symbol_oracles import SymbolOracle
from fedhist.model.query import Report, Summary, only_array


def check_reports(report: Report, name: str, channel: OracleChannel) -> None:
    """Raise WireError unless every user sends one message that the channel can give.

    That is a symbol or the erasure; or packed bits, of which a subset has a fixed number.
    """
    if isinstance(channel, SymbolOracle):
        sent = only_array(report, name)
        Bounds((report.n_users,), "u", 0, channel.layers.erasure).check(name, sent)
        if sent.dtype != np.uint32:
            raise WireError(f"{name!r} has dtype {sent.dtype}, expected uint32")
        return
    check_bits(report, name, channel.size)
    if isinstance(channel, SubsetOracle):
        ones = np.bitwise_count(report.arrays[name]).sum(axis=1)
        if (ones != channel.chosen).any():
            bad = int(ones[ones != channel.chosen][0])
            raise WireError(f"{name!r} has {bad} bits set, expected {channel.chosen}")


def check_counts(summary: Summary, name: str, channel: OracleChannel) -> None:
    """Raise WireError unless counts add up to one symbol of every user, or to its subset."""
    if not isinstance(channel, SymbolOracle | SubsetOracle):
        return
    each = channel.chosen if isinstance(channel, SubsetOracle) else 1
    found, total = int(summary.sums[name].sum()), each * summary.n_users
    if found != total:
        raise WireError(f"{name!r} adds up to {found}, expected {total}")
