"""Every statistical test here uses a fixed seed; false-alarm probabilities are written beside."""

import math
from fractions import Fraction

import numpy as np
import pytest

from clients.randomizers.oracle_reports import _take_others, optimal_unary
from clients.randomizers.scalars import bin_indices, neighbours, unary_votes
from fedhist.channels.bits import UnaryChannel, n_words
from fedhist.channels.oracles import UnaryOracle
from fedhist.channels.scalar import LaplaceChannel, PiecewiseChannel
from fedhist.users.streams import SystemStreams
from tests.running import coins


def unpack(votes: np.ndarray, n_bits: int) -> np.ndarray:
    return np.unpackbits(votes.view(np.uint8), axis=1, count=n_bits, bitorder="little")


def test_bins_have_equal_width_and_closed_ends() -> None:
    x = np.array([-3.0, -1.0, -0.5, -1e-9, 0.0, 0.999, 1.0, 9.0, np.inf, -np.inf, np.nan])
    assert bin_indices(x, -1.0, 1.0, 4).tolist() == [0, 0, 1, 1, 2, 3, 3, 3, 3, 0, -1]


def test_neighbours_stay_inside() -> None:
    assert neighbours(np.array([0, 2, 4, -1]), 5).tolist() == [
        [0, -1, 1],
        [2, 1, 3],
        [4, 3, -1],
        [-1, -1, -1],
    ]


def test_votes_without_noise_are_the_truth_and_never_exceed_the_cap() -> None:
    wanted = np.array([[3, 70, 5, 6], [-1, 99, -1, 2], [-1, 200, -5, -1], [4, 4, 4, 4]])
    votes = unary_votes(wanted, 100, UnaryChannel(math.inf, ones=2), coins(4))
    assert votes.shape == (4, 2)
    assert votes.dtype == np.uint64
    result = [np.flatnonzero(row).tolist() for row in unpack(votes, 128)]
    assert result == [[3, 70], [2, 99], [], [4]]
    system = unary_votes(wanted, 100, UnaryChannel(math.inf, ones=2), SystemStreams(4))
    assert np.array_equal(system, votes)


def words(rounding: int, drawing: np.ndarray) -> np.ndarray:
    """Words as a stream would give them."""
    return np.stack((np.full(len(drawing), rounding, np.uint64), drawing), axis=1)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 1.0, 10.0, 1e4])
def test_laplace_noise_is_drawn_with_its_table_to_the_last_word(epsilon: float) -> None:
    """First and last word of every value: the search is monotone, so all between are right."""
    channel = LaplaceChannel(epsilon)
    upto, k = np.cumsum(channel.table), np.arange(len(channel.table))
    assert upto[-1] == 2**63
    for drawn in (np.append(np.uint64(0), upto[:-1]), upto - np.uint64(1)):
        up = channel.reports(np.zeros(len(k)), words(0, drawn))
        down = channel.reports(np.zeros(len(k)), words(0, drawn | np.uint64(2**63)))
        assert np.array_equal(up, np.minimum(k, channel.most))
        assert np.array_equal(down, np.maximum(-k, -channel.most))


@pytest.mark.parametrize("epsilon", [1e-4, 0.7, 3.0, 50.0])
@pytest.mark.parametrize("u", [-1.0, 0.25, 1.0])
def test_piecewise_reports_are_drawn_with_their_law_to_the_last_word(
    epsilon: float, u: float
) -> None:
    channel = PiecewiseChannel(epsilon)
    x, z = int(u * 512), channel.alphabet()
    weight = channel.weights([x])[0]
    inside = np.abs(z - x) <= channel.window // 2
    b = int(weight[~inside][0])  # so many leading 54 bits, each with all last ten bits
    for leading in {0, b // 2, b - 1}:
        drawn = (np.uint64(leading) << np.uint64(10)) + np.arange(1024, dtype=np.uint64)
        result = channel.reports(np.full(1024, u), words(0, drawn))
        assert np.array_equal(result, z[~inside])
    ends = np.uint64(1024 * b) + np.cumsum(weight[inside])  # the last one wraps to 0
    for drawn in (ends - np.uint64(1), ends - weight[inside]):
        assert np.array_equal(channel.reports(np.full(len(ends), u), words(0, drawn)), z[inside])


@pytest.mark.parametrize("u", [0.3, -0.7, 1e-9, -1e-30, 1.0, -1.0, 0.5])
def test_inputs_are_rounded_without_bias(u: float) -> None:
    channel = PiecewiseChannel(80.0)  # a window of one point, and all but 2^-54 inside
    y = Fraction(u) * 512
    low = math.floor(y)
    wanted = int((y - low) * 2**64)  # so many words, the least ones, round up
    slack = 2**12  # words: a double holds 53 bits
    last = 2**64 - 1

    def rounded(word: int) -> int:
        return int(channel.reports(np.array([u]), words(word, np.array([last], np.uint64)))[0])

    if wanted > slack:
        assert rounded(wanted - slack) == low + 1
    if wanted + slack <= last:
        assert rounded(wanted + slack) == low


def test_a_word_that_would_make_a_symbol_likelier_is_passed_over() -> None:
    """Of 2^32 halves one too many gives the first of three symbols: the half 0 gives none."""
    words = np.array([[0, 2**64 - 1]], dtype=np.uint64)
    own, need, done = np.array([4]), np.array([1]), np.array([0])
    bits = np.zeros((1, 1), dtype=np.uint64)
    _take_others(words, own, 3, need, done, bits)
    assert bits.tolist() == [[1 << 2]]


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
