"""A benchmark's own process: ``python -m simulations.benchmarks '{"name": ..., "out": ...}'``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from simulations.benchmarks.running import measure


def main(task: str) -> None:
    """Run one benchmark and write its result as JSON."""
    body = json.loads(task)
    out = Path(body.pop("out"))
    out.write_text(json.dumps(measure(**body).to_json()))


if __name__ == "__main__":
    main(sys.argv[1])
