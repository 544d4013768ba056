"""Shamir's secret sharing over a prime field.

A secret of 16 bytes is the value at 0 of a polynomial of degree t - 1, its other coefficients
uniform; a holder gets the value at its own point, which is its index plus 1 and never 0. Any t
shares restore the secret, t - 1 are uniform and independent of it (Shamir 1979). Shares are not
authenticated: what is restored is checked against a commitment or a public key.

The field is that of 2^130 - 5: the least well-known prime above 2^128, so a share is 17 bytes. One
inversion per secret and small points make 100 secrets cost milliseconds, where the GF(2^128) of
pycryptodome takes seconds. Python's integers do not take constant time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

PRIME = 2**130 - 5
SHARE = 17
"""Bytes of a share."""

Entropy = Callable[[int], bytes]
"""So many uniform bytes: ``secrets.token_bytes`` but in tests and fixed vectors."""


def draw(count: int, entropy: Entropy, prime: int = PRIME) -> list[int]:
    """Draw uniform elements of the field, by rejection."""
    size, top = (prime.bit_length() + 7) // 8, (1 << prime.bit_length()) - 1
    elements: list[int] = []
    while len(elements) < count:
        block = entropy(size * (count - len(elements)))
        words = (block[at : at + size] for at in range(0, len(block), size))
        elements += [x for word in words if (x := int.from_bytes(word, "little") & top) < prime]
    return elements


def split(
    secret: int, coefficients: Sequence[int], points: Sequence[int], prime: int = PRIME
) -> list[int]:
    """Return the shares at the points of a secret, given t - 1 uniform coefficients (of x, ...)."""
    _check_points(points, prime)
    shares = [0] * len(points)
    for coefficient in (*reversed(coefficients), secret):
        shares = [(y * x + coefficient) % prime for y, x in zip(shares, points, strict=True)]
    return shares


def weights(points: Sequence[int], prime: int = PRIME) -> list[int]:
    """Return the weights of Lagrange with which shares at these points add up to the secret."""
    _check_points(points, prime)
    whole = math.prod(points)
    below = [x * math.prod(z - x for z in points if z != x) for x in points]
    return [whole * pow(under, -1, prime) % prime for under in below]


def _check_points(points: Sequence[int], prime: int) -> None:
    if not all(0 < x < prime for x in points) or len(set(points)) < len(points):
        raise ValueError(f"points must be distinct and lie in [1, {prime}), got {list(points)}")


def combine(shares: Sequence[int], at: Sequence[int], prime: int = PRIME) -> int:
    """Return the secret of t shares under the :func:`weights` of their points."""
    return sum(y * w for y, w in zip(shares, at, strict=True)) % prime
