"""Masks: ChaCha20 keystreams read as words, added modulo 2^b; cost linear in the entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from fedhist.base.arrays import Array

WORDS: dict[int, np.dtype[Any]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
"""Little-endian words by bits: they wrap, so every sum is one modulo 2^bits."""


def mask(key: bytes, length: int, bits: int) -> Array:
    """Return the mask of a key: its ChaCha20 keystream from block 0, nonce zero, as words.

    The key is derived for this one use, so a fixed nonce repeats nothing.

    Parameters
    ----------
    key : bytes
        32 bytes.
    length : int
        Entries.
    bits : {32, 64}

    Returns
    -------
    array, (length,)
        Little-endian uint32 or uint64; read only.
    """
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    words: Array = np.frombuffer(stream.update(bytes(length * bits // 8)), WORDS[bits])
    return words


def add_masks(total: Array, keys: Iterable[tuple[bytes, int]], bits: int) -> None:
    """Add the masks of (key, sign) to a vector in place, modulo 2^bits.

    Parameters
    ----------
    total : array, (d,)
        Unsigned words of so many bits.
    keys : iterable of (bytes, {1, -1})
    bits : {32, 64}
    """
    for key, sign in keys:
        words = mask(key, len(total), bits)
        (np.add if sign > 0 else np.subtract)(total, words, out=total)


__all__ = ["WORDS", "add_masks", "mask"]
