"""Plain data and back: the one encoding of queries and summaries, for the wire and the journal.

A value becomes a JSON object of its scalar fields plus named arrays. Nothing is pickled, and
nothing is imported to decode: classes come from the registry.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.errors import WireError
from fedhist.model.fields import fits, hints
from fedhist.model.part import Part
from fedhist.model.protocol import Protocol
from fedhist.model.query import Keyed, Query, Summary
from fedhist.model.registry import part_class, query_class
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys

LATER = "trust"
"""Field of protocols that came after digests were recorded: left out where it is None."""
DTYPES = frozenset(
    ["bool", *(f"{k}int{b}" for k in ("", "u") for b in (8, 16, 32, 64)), "float32", "float64"]
)


def encode_fields(value: Any, *, rounded: bool = False) -> tuple[str, dict[str, Array]]:
    """Split a dataclass into the canonical JSON of its scalars and its named arrays."""
    scalars: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    cls: type = type(value)
    asked = hints(cls)
    for f in fields(value):
        v = _spelled(getattr(value, f.name), asked[f.name])
        if v is None and f.name == LATER:
            continue
        if isinstance(v, Cohort):
            bounds = (float(v.lo), float(v.hi))
            scalars[f.name] = {"cohort": [v.salt, *(_rounded(bounds) if rounded else bounds)]}
        elif isinstance(v, Keys):
            scalars[f.name] = {"keys": len(v)}
            arrays[f.name + "/offsets"] = v.offsets
            arrays[f.name + "/bytes"] = v.data
        elif isinstance(v, np.ndarray):
            scalars[f.name] = {"array": str(v.dtype)}
            arrays[f.name] = v
        elif isinstance(v, Part | Query):
            text, inner = encode_fields(v, rounded=rounded)
            kind = "part" if isinstance(v, Part) else "query"
            scalars[f.name] = {kind: [v.wire_name, text]}
            arrays |= {f"{f.name}/{name}": a for name, a in inner.items()}
        elif f.name == LATER and is_dataclass(v):
            scalars[f.name] = {type(v).__name__: encode_fields(v, rounded=rounded)[0]}
        elif isinstance(v, tuple):
            scalars[f.name] = {"tuple": list(_rounded(v) if rounded else v)}
        elif v is None or isinstance(v, bool | int | float | str):
            scalars[f.name] = _rounded(v) if rounded else v
        else:
            raise WireError(f"field {f.name!r} cannot travel: {type(v).__name__}")
    return json.dumps(scalars, sort_keys=True, separators=(",", ":")), arrays


def decode_fields(cls: type, text: str, arrays: Mapping[str, Array]) -> Any:
    """Rebuild a dataclass from its encoding."""
    try:
        scalars = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise WireError(f"the fields of {cls.__name__} are not JSON: {e}") from None
    names = {f.name for f in fields(cls)}
    if not isinstance(scalars, dict) or scalars.keys() != names:
        got = sorted(scalars) if isinstance(scalars, dict) else type(scalars).__name__
        raise WireError(f"{cls.__name__} has the fields {sorted(names)}, the message has {got}")
    left = dict(arrays)
    asked = hints(cls)
    try:
        values = {n: _spelled(_decode_value(n, v, left), asked[n]) for n, v in scalars.items()}
        for n, v in values.items():
            if not fits(v, asked[n], exact=True):
                raise WireError(f"field {n!r} must be {asked[n]}, got {type(v).__name__} {v!r}")
            if type(v) is int and abs(v) > 1 << 40 and not n.endswith("salt"):
                # sums, and products with an index, stay below 2^63
                raise WireError(f"field {n!r} must be at most 2^40 in size, got {v}")
        if left:
            raise WireError(f"{cls.__name__} has no arrays {sorted(left)}")
        return cls(**values)
    except (ValueError, TypeError, KeyError, OverflowError, UnicodeDecodeError) as e:
        raise WireError(f"{cls.__name__} cannot be built from the message: {e}") from None


def _spelled(v: Any, hint: Any) -> Any:
    """Write whole numbers as floats where floats are meant: one spelling, hence one digest."""
    if type(v) is int and fits(0.0, hint, exact=True) and not fits(0, hint, exact=True):
        return float(v)
    if isinstance(v, tuple) and get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return tuple(_spelled(x, get_args(hint)[0]) for x in v)
    return v


def _decode_value(name: str, v: Any, left: dict[str, Array]) -> Any:
    if isinstance(v, dict):
        if len(v) != 1:
            raise WireError(f"field {name!r} is not understood: {v}")
        kind, body = next(iter(v.items()))
        if kind == "cohort":
            salt, lo, hi = body
            if type(salt) is not int or type(lo) is not float or type(hi) is not float:
                raise WireError(f"field {name!r} is not a cohort: {body}")
            return Cohort(salt, lo, hi)
        if kind == "keys":
            return Keys(left.pop(name + "/offsets"), left.pop(name + "/bytes"))
        if kind == "array":
            if str(left[name].dtype) != body:
                raise WireError(f"field {name!r} is said to be {body}, got {left[name].dtype}")
            return left.pop(name)
        if kind in ("part", "query") and isinstance(body, list) and len(body) == 2:
            text = body[1]
            cls: type = part_class(body[0]) if kind == "part" else query_class(body[0])
            if kind == "query" and Query in hints(cls).values():
                raise WireError(f"field {name!r} holds a query around another query")
            start = name + "/"
            inner = {k.removeprefix(start): left.pop(k) for k in list(left) if k.startswith(start)}
            return decode_fields(cls, text, inner)
        if kind == "tuple" and isinstance(body, list):
            return tuple(body)
        raise WireError(f"field {name!r} is not understood: {v}")
    if v is None or isinstance(v, bool | int | float | str):
        return v
    raise WireError(f"field {name!r} is not understood: {type(v).__name__}")


def query_digest(query: Query, round_index: int) -> str:
    """Name a query of a round: 32 hexadecimal digits over every public field.

    Floating-point numbers are rounded before they are hashed, never in what travels: processors
    differ in the last bits of a logarithm or of a product of matrices, and the same run has the
    same digests, and so the same seeds, on all of them. Scalars have ten significant decimal digits
    (most configurations are written with fewer), entries of arrays 32 bits after the leading one.

    Two queries that differ beyond that, or in anything else, never share a digest, so they never
    share private randomness. Two that differ by less share one, and a server gains nothing by
    asking both: a node that draws from system entropy gives the second the stored answer to the
    first, or refuses it, and reads no record again (``clients/node.py``); a node with a seed is
    one of a simulation, whose users are made up.
    """
    return _digest(query, query.wire_name, str(round_index))


def protocol_digest(protocol: Protocol) -> str:
    """Name a configuration: 32 hexadecimal digits over the protocol's name and every field."""
    return _digest(protocol, protocol.name)


def _digest(value: Any, *names: str) -> str:
    text, arrays = encode_fields(value, rounded=True)
    h = hashlib.blake2b(digest_size=16)
    for part in (*names, text):
        h.update(f"{len(part)}:{part}".encode())
    for name in sorted(arrays):
        a = np.asarray(arrays[name], order="C")
        h.update(f"{name}:{a.dtype.str}:{a.shape}:".encode())
        h.update((_rounded_array(a) if a.dtype.kind == "f" else a).tobytes())
    return h.hexdigest()


def _rounded(v: Any) -> Any:
    """Round a float, or those of a tuple, to ten significant digits; 0.0 for -0.0."""
    if isinstance(v, tuple):
        return tuple(map(_rounded, v))
    return float(f"{v:.9e}") + 0.0 if isinstance(v, float) else v


def _rounded_array(a: Array) -> Array:
    """Round floats to 32 bits after the leading one, by whole numbers: the same everywhere."""
    bits = (a.astype(np.float64) + 0.0).view(np.uint64)  # + 0.0: one zero
    short = (bits + np.uint64(1 << 19)) & ~np.uint64((1 << 20) - 1)
    return np.where(np.isnan(a), np.nan, short.view(np.float64))


def decode_query(wire_name: str, text: str, arrays: Mapping[str, Array]) -> Query:
    """Rebuild a query; WireError for names outside the registry's allow-list."""
    try:
        cls = query_class(wire_name)
    except ValueError as e:
        raise WireError(str(e)) from None
    query: Query = decode_fields(cls, text, arrays)
    return query


def summary_arrays(summary: Summary) -> dict[str, Array]:
    """Flatten a summary to named arrays: "sums/x", "keyed/x/offsets", "rows/x", "ids"."""
    out: dict[str, Array] = {f"sums/{k}": v for k, v in summary.sums.items()}
    for name, part in summary.keyed.items():
        out[f"keyed/{name}/offsets"] = part.keys.offsets
        out[f"keyed/{name}/bytes"] = part.keys.data
        out[f"keyed/{name}/values"] = part.values
    out |= {f"rows/{k}": v for k, v in summary.rows.items()}
    if summary.ids is not None:
        out["ids"] = summary.ids
    return out


def summary_of_arrays(n_users: int, arrays: Mapping[str, Array]) -> Summary:
    """Rebuild a summary from its named arrays; WireError for anything it does not know."""
    sums: dict[str, Array] = {}
    rows: dict[str, Array] = {}
    parts: dict[str, dict[str, Array]] = {}
    ids = None
    for path, a in arrays.items():
        kind, _, name = path.partition("/")
        if kind == "sums" and name:
            sums[name] = a
        elif kind == "rows" and name:
            rows[name] = a
        elif kind == "keyed" and name.count("/") == 1:
            key, _, part = name.partition("/")
            parts.setdefault(key, {})[part] = a
        elif path == "ids" and a.dtype == np.uint64 and a.ndim == 1:
            ids = a
        else:
            raise WireError(f"a summary has no part {path!r}")
    keyed = {}
    for name, p in parts.items():
        if p.keys() != {"offsets", "bytes", "values"}:
            raise WireError(f"the keyed part {name!r} is incomplete: {sorted(p)}")
        try:
            keys = Keys(p["offsets"], p["bytes"])
        except (ValueError, TypeError, UnicodeDecodeError) as e:
            raise WireError(f"the keys of {name!r} are malformed: {e}") from None
        if len(p["values"].shape) < 1 or len(p["values"]) != len(keys):
            raise WireError(f"{len(keys)} keys of {name!r} with values {p['values'].shape}")
        keyed[name] = Keyed(keys, p["values"])
    return Summary(n_users, sums, keyed, rows, ids)


def array_to_json(a: Array) -> dict[str, Any]:
    """Encode an array for the journal."""
    data = base64.b64encode(np.ascontiguousarray(a).astype(a.dtype.newbyteorder("<")).tobytes())
    return {"dtype": str(a.dtype), "shape": list(a.shape), "data": data.decode("ascii")}


def array_from_json(entry: Mapping[str, Any]) -> Array:
    """Decode an array of the journal."""
    if entry["dtype"] not in DTYPES:
        raise WireError(f"dtype {entry['dtype']!r} is not allowed")
    dtype = np.dtype(entry["dtype"])
    flat = np.frombuffer(base64.b64decode(entry["data"]), dtype=dtype.newbyteorder("<"))
    return flat.astype(dtype).reshape(entry["shape"])
