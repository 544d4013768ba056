"""Strings as bits: a public prefix code of bytes, so that a search can go from prefix to prefix."""

from __future__ import annotations

import codecs
import heapq
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, offsets
from fedhist.users.keys import Keys

Code = Literal["text", "bytes"]
Bytes = NDArray[np.uint8]

END, MOST_CODE_BITS = 256, 256
ENGLISH = (
    "e1270 t906 a817 o751 i697 n675 s633 h609 r599 d425 l403 c278 u276 m241 w236 f223 g202 y197 "
    "p193 b149 v98 k77 j15 x15 q10 z7"
)
"""Frequencies of the letters in English text, in hundredths of a percent."""


@lru_cache(maxsize=2)
def code_words(code: Code) -> tuple[Integers, Integers]:
    """Return how long the word of each byte, and of END, is, and the word: (257,) each.

    "text": a canonical Huffman code. In the weights' unit END has 1500, digits and usual
    punctuation 30, other printable ASCII 10, every other byte 1. "bytes": each byte is its own
    word, and a zero byte ends.

    >>> lengths, _ = code_words("text")
    >>> lengths[[END, ord("e"), ord("a"), ord("7")]].tolist(), float((0.5**lengths).sum())
    ([3, 3, 4, 9], 1.0)
    """
    if code == "bytes":
        return np.full(257, 8), np.append(np.arange(256), 0)
    weights = dict.fromkeys(range(256), 1) | dict.fromkeys(range(32, 127), 10) | {END: 1500}
    weights |= {ord(c): 30 for c in "0123456789 .-'/:@#_,"}
    weights |= {ord(word[0]): int(word[1:]) for word in ENGLISH.split()}
    heap = [(weight, symbol, [symbol]) for symbol, weight in weights.items()]
    heapq.heapify(heap)
    lengths, words = np.zeros(257, dtype=np.int64), np.zeros(257, dtype=np.int64)
    while len(heap) > 1:
        (light, _, one), (heavy, first, other) = heapq.heappop(heap), heapq.heappop(heap)
        lengths[one + other] += 1
        heapq.heappush(heap, (light + heavy, first, one + other))
    word, before = 0, 0
    for symbol in np.lexsort((np.arange(257), lengths)).tolist():
        word <<= int(lengths[symbol]) - before
        words[symbol], before, word = word, int(lengths[symbol]), word + 1
    return lengths, words


def code_lengths(keys: Keys, code: Code) -> Integers:
    """Count the bits of each string's code, END included: (k,) int64."""
    each = np.append(0, np.cumsum(code_words(code)[0][keys.data]))
    return np.asarray(np.diff(each[keys.offsets]) + code_words(code)[0][END])


def encode(keys: Keys, code: Code, n_bits: int) -> Bytes:
    """Encode strings: the first n_bits bits of each code, zeros behind END: (k, n_bits / 8) packed.

    >>> np.unpackbits(encode(Keys.of(["e", ""]), "text", 8), axis=1).tolist()
    [[0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]]
    """
    lengths, words = code_words(code)
    out = np.zeros((len(keys), -(-n_bits // 8)), dtype=np.uint8)
    for low in range(0, len(keys), 1 << 14):  # strings at a time: bits are spread out
        start = keys.offsets[low : low + (1 << 14)][: len(keys) - low]
        size = np.diff(keys.offsets[low : low + len(start) + 1])
        size = np.minimum(size, n_bits)  # a byte has a bit at least
        ends = offsets(size + 1)
        row = np.repeat(np.arange(len(size)), size + 1)
        at = np.arange(ends[-1]) - ends[row]
        symbol = np.full(len(row), END)
        inside = at < size[row]
        symbol[inside] = keys.data[(start[row] + at)[inside]]
        begins = offsets(lengths[symbol])
        begin = begins[:-1] - begins[ends[row]]
        near = begin < n_bits
        row, symbol, begin = row[near], symbol[near], begin[near]
        each = np.repeat(np.arange(len(symbol)), lengths[symbol])
        place = np.arange(len(each)) - offsets(lengths[symbol])[each]
        one = words[symbol[each]] >> (lengths[symbol[each]] - 1 - place) & 1 == 1
        place += begin[each]
        one &= place < n_bits
        grid = np.zeros((len(size), n_bits), dtype=np.uint8)
        grid[row[each[one]], place[one]] = 1
        out[low : low + len(size)] = np.packbits(grid, axis=1)
    return out


@lru_cache(maxsize=2)
def _symbols(code: Code) -> Mapping[str, int]:
    """Name the symbol of each word, written in bits."""
    lengths, words = code_words(code)
    pairs = zip(lengths.tolist(), words.tolist(), strict=True)
    return {format(w, f"0{n}b"): symbol for symbol, (n, w) in enumerate(pairs)}


def decode(bits: str, code: Code) -> tuple[str, bool] | None:
    """Read a prefix of a code, in bits: the text so far, and whether END was met.

    None where no string has this prefix: another bit than 0 behind END, or no UTF-8.

    >>> decode("00000100", "text"), decode("00000101", "text"), decode("00000", "text")
    (('e', True), None, ('e', False))
    """
    symbols, raw, word, whole = _symbols(code), bytearray(), "", False
    for place, bit in enumerate(bits):
        word += bit
        symbol = symbols.get(word)
        if symbol is None:
            continue
        if symbol == END:
            if "1" in bits[place + 1 :]:
                return None
            whole = True
            break
        raw.append(symbol)
        word = ""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(bytes(raw), final=whole), whole
    except UnicodeDecodeError:
        return None
