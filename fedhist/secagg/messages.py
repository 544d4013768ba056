"""Messages: flat dicts of arrays whose types and shapes are fixed, each with a check value.

``session`` (16 bytes), ``node`` (the node that is asked or answers) and ``check`` (16 bytes) are in
every message; the other fields are arrays, by :data:`LAYOUT`. The check value finds what was
damaged on the way, not what somebody changed on purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.secagg.errors import Refused
from fedhist.secagg.keys import PREFIX, SECRET
from fedhist.secagg.shamir import SHARE

Message = dict[str, Any]
"""bytes for ``session`` and ``check``, int for ``node``, little-endian arrays for the rest."""

KEYS, BOX = 96, 2 * SHARE + 16
"""Bytes of a node's public keys and commitment, or of a signature with its key; of two shares under
AES-GCM, whose tag has 16."""

LAYOUT: dict[str, dict[str, tuple[str, tuple[int | None, ...]]]] = {
    "keys.ask": {"nonce": ("u1", (SECRET,))},
    "keys.answer": {"keys": ("u1", (KEYS,)), "signed": ("u1", (None,))},
    "shares.ask": {
        "members": ("u4", (None,)),
        "keys": ("u1", (None, KEYS)),
        "signed": ("u1", (None, None)),
    },
    "shares.answer": {"boxes": ("u1", (None, BOX))},
    "masked.ask": {"present": ("u4", (None,)), "boxes": ("u1", (None, BOX))},
    "masked.answer": {"values": ("u4 u8", (None,)), "users": ("u8", (1,))},
    "unmask.ask": {"present": ("u4", (None,))},
    "unmask.answer": {"shares": ("u1", (None, SHARE))},
}
"""Fields of each message, in the order of its check value: dtypes and shape, None for any."""


def _check_value(kind: str, session: bytes, node: int, fields: Mapping[str, Array]) -> bytes:
    h = hashlib.sha256(PREFIX + session + node.to_bytes(4, "little") + kind.encode())
    for name in LAYOUT[kind]:
        a = np.ascontiguousarray(fields[name])
        h.update(a.nbytes.to_bytes(8, "little"))
        h.update(a.data.cast("B") if a.size else b"")
    return h.digest()[:SECRET]


def seal(kind: str, session: bytes, node: int, **fields: Array) -> Message:
    """Return a message with its check value."""
    check = _check_value(kind, session, node, fields)
    return {"session": session, "node": node, **fields, "check": check}


def unseal(kind: str, message: Mapping[str, Any], session: bytes, node: int) -> dict[str, Array]:
    """Return a message's arrays after every check of form; Refused, naming the field, otherwise."""
    layout = LAYOUT[kind]
    if not isinstance(message, Mapping):
        raise Refused(f"{kind}: a {type(message).__name__} is no message")
    unlike = set(message) ^ {"session", "node", "check", *layout}
    if unlike:
        raise Refused(f"{kind}: missing or unknown fields {sorted(map(str, unlike))}")
    whole = isinstance(message["node"], int) and not isinstance(message["node"], bool)
    if not whole or message["node"] != node:
        raise Refused(f"{kind}: node is {message['node']!r}, not {node}")
    for name in ("session", "check"):
        if not isinstance(message[name], bytes):
            raise Refused(f"{kind}: {name} is no bytes")
    if message["session"] != session:
        raise Refused(f"{kind}: session is not that of this attempt")
    fields: dict[str, Array] = {}
    for name, (types, shape) in layout.items():
        a = message[name]
        if not isinstance(a, np.ndarray) or a.dtype.str[1:] not in types.split():
            raise Refused(f"{kind}: {name} is no array of {types}")
        fits = a.ndim == len(shape) and all(
            want is None or want == got for want, got in zip(shape, a.shape, strict=True)
        )
        if not fits or a.dtype.byteorder == ">":
            raise Refused(f"{kind}: {name} has shape {a.shape}, not {shape}, little-endian")
        fields[name] = a
    if message["check"] != _check_value(kind, session, node, fields):
        raise Refused(f"{kind}: the message of node {node} is damaged")
    return fields


def indices(nodes: Array, parties: int, kind: str) -> list[int]:
    """Return a list of nodes, or raise Refused unless it ascends strictly within the parties."""
    numbers: list[int] = nodes.tolist()
    if numbers != sorted(set(numbers)) or (numbers and numbers[-1] >= parties):
        raise Refused(f"{kind}: nodes must ascend and lie below {parties}")
    return numbers
