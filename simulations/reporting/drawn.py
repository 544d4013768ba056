"""A figure that a notebook shows where it is the value of a cell, without pyplot."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

DPI = 150


class Drawn(Figure):
    """A figure of matplotlib that knows how to be shown."""

    def _repr_png_(self) -> bytes:
        body = io.BytesIO()
        self.savefig(body, format="png", dpi=DPI)
        return body.getvalue()
