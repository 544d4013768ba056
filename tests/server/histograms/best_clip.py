"""The clip of least expected error, with the private data: what tests compare with."""

import math

import numpy as np

from fedhist.privacy.noise_law import NoiseLaw, expected_l1
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from server.targets.clipped_totals import totals, user_norms
from simulations.experiments.bounded_domain import clipped_curve


def best_clip(
    users: Shard, domain: Keys, norm: int, unit: NoiseLaw, nonneg: bool, per_octave: int = 8
) -> tuple[float, float]:
    """Search the threshold with the least expected l1 error, and that error. NOT PRIVATE.

    On a log grid from the largest norm down to 1/16; 0 is tried as well. ``unit`` is the noise at
    C = 1, its scale in proportion to C.
    """
    norms = (user_norms(block, domain)[norm - 1] for block in users.blocks())
    largest = max((float(size.max(initial=0.0)) for size in norms), default=0.0)
    truth = totals(users, domain)
    best = 0.0, float(truth.sum())
    if largest == 0.0:
        return best
    octaves = math.log2(largest) + 4
    clips = largest * 2.0 ** (np.arange(math.ceil(octaves * per_octave) + 1) / per_octave - octaves)
    clips[-1] = largest
    for clip, kept in zip(clips, clipped_curve(users, domain, clips, norm), strict=True):
        law = NoiseLaw(unit.kind, unit.scale * clip, unit.step)
        bias = np.maximum(truth - kept, 0.0)
        error = expected_l1(law, bias, kept if nonneg else None)
        if error < best[1]:
            best = float(clip), error
    return best
