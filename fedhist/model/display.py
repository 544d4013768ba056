"""Display: how estimates are shown, in words and plain data that a protocol's class declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Display:
    """What figures, pages and comparisons say of an estimate. The default suits any vector.

    Attributes
    ----------
    form : {"coordinates", "items", "cells", "quantiles"}
        How a figure is drawn: entries in their order; items, the largest first, with their keys;
        the values of a function on equal cells of [0, 1]; or a cumulative distribution function,
        the entries on its horizontal axis and the protocol's positions, levels, on the other.
    label : str
        What a value is, on its axis: "share". Empty: the protocol's target.
    unit : str
        Unit of an error: "counts"; empty where it goes without saying.
    entry : str
        What an entry belongs to: "coordinate", "symbol".
    rank : str
        What items are ranked by: "count".
    interval : str
        What is added to "± 1.96 standard errors": "of the noise (clipping bias apart)".
    loss : str
        Common loss of comparisons, see :mod:`fedhist.model.truths`; empty: each protocol's own.
    """

    form: Literal["coordinates", "items", "cells", "quantiles"] = "coordinates"
    label: str = ""
    unit: str = ""
    entry: str = "coordinate"
    rank: str = "value"
    interval: str = ""
    loss: str = ""
