"""A benchmark's own process: ``python -m simulations.benchmarks '{"name": ..., "out": ...}'``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from simulations.benchmarks.running import measure


def main(task: str) -> None:
    """Run one benchmark and write its result as JSON."""
    body = json.loads(task)
    result = measure(body["name"], quick=body["quick"], rivals=body["rivals"])
    Path(body["out"]).write_text(json.dumps(result.to_json()))


if __name__ == "__main__":
    main(sys.argv[1])
