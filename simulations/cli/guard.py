"""``fedhist node guard``: what a node's owner does with the guard's folder."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from clients.guard_folder import NODE, FolderStore, GuardDamaged


def check_guard(
    console: Console, folder: Path, counter: Path | None, *, start_counter: bool, reset: bool
) -> None:
    """Say whether the folder is whole and what was answered; start a counter; or reset it.

    Raises
    ------
    GuardDamaged
        If the folder is not whole, and it is not to be reset.
    ValueError
        If there is no such folder.
    """
    said = (folder / NODE).read_text().split() if (folder / NODE).is_file() else []
    if not said or not said[0].isdecimal():
        raise ValueError(f"no guard's folder: {folder} (it has a file {NODE!r} with a number)")
    store = FolderStore(folder, int(said[0]), counter)
    if start_counter:
        with store.locked():
            store.start_counter()
    try:
        answered = store.answered()
    except GuardDamaged as damage:
        if not reset:
            raise
        console.print(str(damage), markup=False, soft_wrap=True)
        lost = "what was answered before cannot be told"
    else:
        most = sum(a.epsilon for a in answered)
        lost = f"{len(answered)} answers, which cost a user epsilon = {most:g} at most"
        console.print(f"node {said[0]}: {lost}; {store.stored_bytes()} bytes. The folder is whole.")
    if reset:
        with store.locked():
            aside = store.reset()
        console.print(
            f"Reset. Every budget is unspent again ({lost}); the old files are in {aside}.",
            markup=False,
            soft_wrap=True,
        )
