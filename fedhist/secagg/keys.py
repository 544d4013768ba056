"""Keys and masks: one context for all that is derived, X25519, HKDF-SHA256, AES-GCM, Ed25519.

Masks are ChaCha20 keystreams read as words, added modulo 2^b; their cost is linear in the entries.

All primitives are those of ``cryptography``. What is derived is bound to the attempt's session, to
the nodes it is between and to a label, so no key serves twice. Source: spec, B1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedhist.base.arrays import Array
from fedhist.secagg.errors import Refused

PREFIX = b"fedhist-secagg-1"
SECRET = 16
"""Bytes of r_i, of b_i, of a session and of the server's fresh bytes."""
KEY = 32
SMALL_ORDER = {
    0,
    1,
    2**255 - 20,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
}
"""Coordinates of the points whose multiples are few (RFC 7748, section 6; Bernstein 2006)."""


def session_id(nonce: bytes, digest: bytes) -> bytes:
    """Return the 16 bytes that name one attempt: the server's fresh bytes and the query's digest.

    >>> session_id(bytes(16), b"query").hex()
    'b0a101288f7b789941bd665e8e98d41a'
    """
    return hashlib.sha256(nonce + digest).digest()[:SECRET]


def context(session: bytes, *nodes: int) -> bytes:
    """Return what every derivation is bound to: the version, the session and the nodes."""
    return PREFIX + session + b"".join(node.to_bytes(4, "little") for node in nodes)


def derive(secret: bytes, info: bytes) -> bytes:
    """Return 32 bytes of HKDF-SHA256 without salt."""
    return HKDF(hashes.SHA256(), KEY, None, info).derive(secret)


def public_key(private: bytes) -> bytes:
    """Return the public X25519 key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def mask_private_key(r: bytes, session: bytes, node: int) -> bytes:
    """Return the private key from which a node's pair masks follow: what its r-shares restore."""
    return derive(r, context(session, node) + b"mask-key")


def commitment(b: bytes, session: bytes, node: int) -> bytes:
    """Return the hash that a node's restored b must have, (32,) bytes."""
    return hashlib.sha256(context(session, node) + b"self" + b).digest()


def self_mask_key(b: bytes, session: bytes, node: int) -> bytes:
    """Return the ChaCha20 key of a node's own mask."""
    return derive(b, context(session, node) + b"self-mask")


def check_point(node: int, key: bytes) -> None:
    """Raise Refused unless a node's public key is in its one spelling, and not of small order.

    Two spellings of one key would pass as distinct; with a key of small order everybody knows what
    two nodes agree on.
    """
    u = int.from_bytes(key, "little")
    if u >= 2**255 - 19:
        raise Refused(f"a public key of node {node} is not in its one reduced spelling")
    if u in SMALL_ORDER:
        raise Refused(f"a public key of node {node} is of small order")


def pair_key(
    private: X25519PrivateKey, public: bytes, session: bytes, one: int, other: int, use: bytes
) -> bytes:
    """Return the key of two nodes for a use, ``b"enc"`` or ``b"pair"``: one from both sides."""
    agreed = private.exchange(X25519PublicKey.from_public_bytes(public))
    return derive(agreed, context(session, min(one, other), max(one, other)) + use)


def _nonce(sender: int, receiver: int) -> bytes:
    return sender.to_bytes(4, "little") + receiver.to_bytes(4, "little") + bytes(4)


def enclose(key: bytes, session: bytes, sender: int, receiver: int, text: bytes) -> bytes:
    """Encrypt what one node sends to another through the server; once per pair and direction."""
    nonce, bound = _nonce(sender, receiver), context(session, sender, receiver)
    return AESGCM(key).encrypt(nonce, text, bound)


def disclose(key: bytes, session: bytes, sender: int, receiver: int, box: bytes) -> bytes:
    """Decrypt it, or raise Refused: damaged, swapped, or of another session."""
    nonce, bound = _nonce(sender, receiver), context(session, sender, receiver)
    try:
        return AESGCM(key).decrypt(nonce, box, bound)
    except InvalidTag:
        raise Refused(f"the shares of node {sender} for node {receiver} are damaged") from None


def _signed_text(session: bytes, digest: bytes, node: int, keys: bytes) -> bytes:
    return context(session, node) + b"signature" + keys + digest


def owner_public_key(owner: bytes) -> bytes:
    """Return the public Ed25519 key of an owner's 32 private bytes: what peers are told."""
    return Ed25519PrivateKey.from_private_bytes(owner).public_key().public_bytes_raw()


def sign(owner: bytes, session: bytes, digest: bytes, node: int, keys: bytes) -> bytes:
    """Return an owner's public key and signature of (session, digest, round-1 keys): 96 bytes."""
    text = _signed_text(session, digest, node, keys)
    return owner_public_key(owner) + Ed25519PrivateKey.from_private_bytes(owner).sign(text)


def signer_of(signed: bytes, session: bytes, digest: bytes, node: int, keys: bytes) -> bytes:
    """Return whose signature it is, 32 bytes, or raise Refused."""
    try:
        if not any(signed[:KEY]):  # none; zeros as a key lie in a group of 4, and often verify
            raise InvalidSignature
        public = Ed25519PublicKey.from_public_bytes(signed[:KEY])
        public.verify(signed[KEY:], _signed_text(session, digest, node, keys))
    except (ValueError, InvalidSignature):
        raise Refused(f"the keys of node {node} bear no valid signature") from None
    return signed[:KEY]


# -- masks -----------------------------------------------------------------------------------------

WORDS: dict[int, np.dtype[Any]] = {32: np.dtype("<u4"), 64: np.dtype("<u8")}
"""Little-endian words by bits: they wrap, so every sum is one modulo 2^bits."""


def mask(key: bytes, length: int, bits: int) -> Array:
    """Return the mask of a key: its ChaCha20 keystream from block 0, nonce zero, as words.

    The key is derived for this one use, so a fixed nonce repeats nothing.
    """
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    words: Array = np.frombuffer(stream.update(bytes(length * bits // 8)), WORDS[bits])
    return words


def add_masks(total: Array, keys: Iterable[tuple[bytes, int]], bits: int) -> None:
    """Add the masks of (key, 1 or -1) to a vector of unsigned words in place, modulo 2^bits."""
    for key, sign in keys:
        words = mask(key, len(total), bits)
        (np.add if sign > 0 else np.subtract)(total, words, out=total)
