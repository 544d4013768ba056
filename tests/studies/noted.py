"""A histogram that notes every run in a file and ends as configured. Loaded as a plugin."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import fedhist as fh
from fedhist.protocols import BoundedHistogram


@fh.register_protocol
@dataclass(frozen=True)
class Noted(BoundedHistogram):
    """A bounded histogram; ``log`` gets a line per run, ``broken`` names a file that breaks it."""

    name: ClassVar[str] = "test-noted"
    log: str = ""
    broken: str = ""
    ending: str = "ok"
    pause: float = 0.0

    def rounds(self, server: fh.Curator) -> fh.Script:
        if self.log:
            with Path(self.log).open("a") as f:
                f.write("run\n")
        time.sleep(self.pause)
        if self.broken and Path(self.broken).exists():
            raise RuntimeError("the script broke")
        if self.ending == "dead":
            os._exit(1)
        if self.ending == "refused":
            return fh.Estimate.refused("too few users")
        return (yield from super().rounds(server))
