"""Check-ins in the layout of SNAP's location networks [1]_ (Gowalla, Brightkite).

References
----------
.. [1] Cho, Myers & Leskovec, "Friendship and mobility: user movement in location-based social
   networks", KDD 2011.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from simulations.populations.base import ItemDomain, Loaded
from simulations.populations.tables import TableFormat, read_items

USER, LOCATION, WIDTH = 0, 4, 5
LAYOUT = TableFormat(separator="\t", header=False, quote="")


@dataclass(frozen=True, kw_only=True)
class Snap(ItemDomain):
    """Users' check-in counts per location.

    Parameters
    ----------
    path : path
        Tab-separated user, time, latitude, longitude, location id; no header; gzip or plain.
    top, domain, max_users
        See :class:`~simulations.populations.base.ItemDomain`.
    skip_bad_rows : bool, default False
        Leave out and count rows without a user or a location, instead of refusing the file.
    """

    kind: ClassVar[str] = "snap"
    path: str | Path
    skip_bad_rows: bool = False

    def load(self) -> Loaded:
        """Read the file.

        Raises PopulationError for a missing file and for bad rows; names the file, the row and the
        value.
        """
        path = Path(self.path)
        columns = [USER, LOCATION]
        users, dropped = read_items(path, columns, LAYOUT, skip_bad_rows=self.skip_bad_rows)
        return self.bounded(users, f"check-ins of {path.name}", dropped)
