"""A histogram that ends as its configuration says. Loaded as a plugin, as a user's own would be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import fedhist as fh
from fedhist.protocols import BoundedHistogram


@fh.register_protocol
@dataclass(frozen=True)
class Ending(BoundedHistogram):
    """A bounded histogram; ``asked`` names a file that exists once somebody was asked.

    The ending ``once`` crashes unless the file exists that ``asked`` names, and makes it.
    """

    name: ClassVar[str] = "test-ending"
    ending: str = "ok"
    asked: str = ""

    def rounds(self, server: fh.Curator) -> fh.Script:
        if self.ending == "refused":
            return fh.Estimate.refused("60 users are too few; at least 100 are needed")
        if self.ending == "early":
            raise RuntimeError("the script broke before it asked")
        again = self.ending == "once" and Path(self.asked).exists()
        if self.asked:
            Path(self.asked).touch()
        if self.ending == "ok" or again:
            return (yield from super().rounds(server))
        yield self.query
        if self.ending == "failed":
            return fh.Estimate.failed("the vote had no winner")
        raise RuntimeError("the script broke")
