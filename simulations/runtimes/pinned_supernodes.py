"""Pinned SuperNodes: they run the code their owner installed, not the code a server sends.

A Flower SuperNode runs the app that its SuperLink sends it with a run, so whoever controls the
SuperLink controls the client half: no guard inside that app can protect the users. A pinned
SuperNode takes queries from the SuperLink and nothing else.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clients.app import app
from fedhist.base.files import whole_file
from simulations.runtimes.flower_internals import CLIENT_COMMAND, run_client_process, task_commands


def pin(folder: str | Path) -> Path:
    """Write the commands of a pinned SuperNode; returns their folder.

    The folder goes first on the PATH of ``flower-supernode``. Its ``flwr-clientapp`` runs the
    ClientApp of this distribution, as it is installed here; every other kind of task that a
    SuperLink can ask a SuperNode for is refused.

    ``folder``: made if it does not exist.
    """
    commands = task_commands()
    home = Path(folder).absolute()
    home.mkdir(parents=True, exist_ok=True)
    for command in commands:
        what = "run_installed" if command == CLIENT_COMMAND else "refuse"
        source = f"from {__name__} import {what}\n\n{what}()\n"
        text = f"#!{sys.executable} -P\n{source}"
        whole_file(home / command, text, mode=0o777)
    return home


def run_installed() -> None:
    """Be ``flwr-clientapp``, with the installed ClientApp in place of the one that was sent."""
    run_client_process(app)


def refuse() -> None:
    """Be a command that a pinned SuperNode does not run."""
    sys.exit("a pinned SuperNode runs the installed ClientApp only")


def main() -> None:
    """Entry point of ``python -m simulations.runtimes.pinned_supernodes``."""
    parser = argparse.ArgumentParser(
        "python -m simulations.runtimes.pinned_supernodes", description=pin.__doc__
    )
    parser.add_argument("folder", type=Path, help="where to put the commands")
    print(pin(parser.parse_args().folder))


if __name__ == "__main__":
    main()
