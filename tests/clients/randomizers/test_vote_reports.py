import math

import numpy as np
import pytest

from clients.randomizers.oracle_reports import optimal_unary
from fedhist.channels.bits import n_words
from fedhist.channels.oracles import UnaryOracle
from tests.running import coins


@pytest.mark.parametrize("k", [1, 63, 64, 65, 200])
def test_bits_are_where_they_belong(k: int) -> None:
    """Without noise the one bit is the symbol's; with it only that bit depends on the symbol."""
    symbols = np.arange(-1, k)
    n = len(symbols)
    quiet = optimal_unary(symbols, UnaryOracle(math.inf, k), coins(n))
    assert quiet.shape == (n, n_words(k))
    unpacked = np.unpackbits(quiet.view(np.uint8), axis=1, bitorder="little")[:, :k]
    assert (unpacked[1:] == np.eye(k)).all()
    assert not unpacked[0].any()
    channel = UnaryOracle(1.0, k)
    a = optimal_unary(symbols, channel, coins(n))
    b = optimal_unary(np.full(n, -1), channel, coins(n))
    other = np.unpackbits((a ^ b).view(np.uint8), axis=1, bitorder="little")[:, :k]
    assert (other[1:] <= np.eye(k)).all()
