"""The protocol a second time, slowly: pure Python from the RFCs, and another library's ciphers.

X25519 is the ladder of RFC 7748, ChaCha20 the block function of RFC 8439, HKDF that of RFC 5869 on
the standard library; AES-GCM and Ed25519 are pycryptodome's. Nothing of fedhist is imported.
"""

from __future__ import annotations

import hashlib
import hmac
import struct

from Crypto.Cipher import AES
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

P255, P130 = 2**255 - 19, 2**130 - 5


def ctx(session: bytes, *nodes: int) -> bytes:
    return b"fedhist-secagg-1" + session + b"".join(struct.pack("<I", i) for i in nodes)


def hkdf(secret: bytes, info: bytes) -> bytes:
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def x25519(private: bytes, public: bytes) -> bytes:
    scalar = bytearray(private)
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    n = int.from_bytes(scalar, "little")
    u = int.from_bytes(public, "little") % 2**255
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in range(254, -1, -1):
        if n >> bit & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        e = a * a - b * b
        x3, z3 = (d * a + c * b) ** 2 % P255, u * (d * a - c * b) ** 2 % P255
        x2, z2 = a * a * b * b % P255, e * (a * a + 121665 * e) % P255
        if n >> bit & 1:
            x2, x3, z2, z3 = x3, x2, z3, z2
    return (x2 * pow(z2, -1, P255) % P255).to_bytes(32, "little")


def public(private: bytes) -> bytes:
    return x25519(private, (9).to_bytes(32, "little"))


def chacha20(key: bytes, size: int) -> bytes:
    stream = b""
    for counter in range(-(-size // 64)):
        start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
        start += [*struct.unpack("<8I", key), counter, 0, 0, 0]
        s = list(start)
        for turn in range(80):
            column, diagonal = turn % 4, turn // 4 % 2
            a, b, c, d = (4 * row + (column + row * diagonal) % 4 for row in range(4))
            for one, other, into, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                s[one] = (s[one] + s[other]) % 2**32
                mixed = s[into] ^ s[one]
                s[into] = (mixed << by | mixed >> (32 - by)) % 2**32
        stream += struct.pack("<16I", *((x + y) % 2**32 for x, y in zip(s, start, strict=True)))
    return stream[:size]


def words(data: bytes, bits: int) -> list[int]:
    size = bits // 8
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def box(key: bytes, session: bytes, sender: int, receiver: int, text: bytes) -> bytes:
    cipher = AES.new(key, AES.MODE_GCM, nonce=struct.pack("<III", sender, receiver, 0))
    cipher.update(ctx(session, sender, receiver))
    return b"".join(cipher.encrypt_and_digest(text))


def ed25519(private: bytes, text: bytes) -> bytes:
    key = ECC.construct(curve="Ed25519", seed=private)
    return key.public_key().export_key(format="raw") + eddsa.new(key, "rfc8032").sign(text)


def share(secret: int, coefficients: list[int], x: int) -> int:
    return sum(c * x**power for power, c in enumerate([secret, *coefficients])) % P130


def check_value(kind: str, session: bytes, node: int, fields: list[bytes]) -> bytes:
    text = b"fedhist-secagg-1" + session + struct.pack("<I", node) + kind.encode()
    for field in fields:
        text += struct.pack("<Q", len(field)) + field
    return hashlib.sha256(text).digest()[:16]
