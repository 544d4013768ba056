"""How the estimates of targets that several families share are shown."""

from fedhist.model.display import Display
from fedhist.model.losses import L1

HISTOGRAM = Display(
    form="items",
    label="count (all users)",
    unit="counts",
    entry="item",
    rank="count",
    interval="of the noise (clipping bias apart)",
    loss=L1,
)
DISTRIBUTION = Display(
    form="items", label="share", unit="probability, no unit", entry="symbol", rank="share", loss=L1
)
