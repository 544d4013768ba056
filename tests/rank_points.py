"""The public points of reports by ranks, written out: a slow version of what the kernels walk."""

from __future__ import annotations

import numpy as np

from fedhist.base.arrays import Floats, Words
from fedhist.base.hashing import GOLDEN, mix64
from fedhist.channels.rank_unit import RankUnit, normal_cells, point_keys


def public_points(ids: Words, salt: int, channel: RankUnit) -> Floats:
    keys, (N, d) = point_keys(ids, salt), (channel.size, channel.dimension)
    if d == 1:
        return np.broadcast_to(np.array([[[1.0], [-1.0]]]), (len(ids), 2, 1)).copy()
    j, k = np.meshgrid(np.arange(N), np.arange(d), indexing="ij")
    blocks = N // 4
    index = (k * blocks + j % blocks + 1).astype(np.uint64) * np.uint64(GOLDEN)
    words = mix64(keys[:, None, None] + index) >> (16 * (j // blocks)).astype(np.uint64)
    y = normal_cells()[words & np.uint64(0xFFFF)].astype(np.float64)
    return np.asarray(y / np.linalg.norm(y, axis=-1, keepdims=True))
