"""Algorithm 3 as printed: noise on every item that any user has, sent or not. NOT PRIVATE [1]_.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 3, Lemma 5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fedhist.model.modes import Mode
from fedhist.model.registry import register_printed
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from fedhist.protocols.histograms.unbounded_histogram import KeyRelease, UnboundedHistogram
from fedhist.session.unknown_keys import printed_key_threshold


@register_printed
@dataclass(frozen=True)
class UnboundedHistogramAsPrinted(UnboundedHistogram):
    """Real-valued noise of scale C / epsilon, and t = C + (C / epsilon) ln(C / 2 delta)."""

    raw_support: ClassVar[bool] = True
    way_out: ClassVar[str] = 'mode = "paper" draws none'
    mode: Mode = "paper"

    @property
    def guarantee(self) -> Guarantee:
        """Nothing finite: an item that clipping took away may appear."""
        return Guarantee(math.inf, 0.0, Trust.CENTRAL, Adjacency(self.adjacency))

    @property
    def claimed(self) -> Guarantee:
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency.REPLACE_USER)

    @property
    def real_valued(self) -> bool:
        return True

    def l1_sensitivity(self, clip: int) -> int:
        """C, whatever the adjacency."""
        return clip

    def release_at(self, clip: int) -> KeyRelease:
        """Law of the release at a given C: noise scale, threshold and support."""
        at = printed_key_threshold(clip, self.release_epsilon, self.delta)
        return KeyRelease(clip / self.release_epsilon, at, discrete=False, raw_support=True)
