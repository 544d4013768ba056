"""A commented study file for a file of data: what run, compare, sweep and decide read as it is.

The settings are suggestions of the data's profile, which is NOT PRIVATE: the file says so of each.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulations.config.named_files import toml_value
from simulations.config.parts import STUDIES
from simulations.populations import population
from simulations.populations.guessing import Guess
from simulations.studies.profile.profile import Profile, profile_of

WIDTH = 98
FALLBACK_TOP = 100
MOST_SLOTS = 10
"""Items of a user that a local report is drawn from: more of them hide everything."""


@dataclass(frozen=True)
class Started:
    """A study file to be written.

    Attributes
    ----------
    text : str
    profile : Profile
    """

    text: str
    profile: Profile


def start(path: Path, guess: Guess, name: str, *, epsilon: float = 1.0) -> Started:
    """Profile a file and write a study of it.

    Parameters
    ----------
    path : Path
        As the study shall name it: relative to where commands are started.
    guess : Guess
        What its columns are.
    name : str
        What the study's file will be called, for the commands in its first lines.
    epsilon : float

    Raises
    ------
    PopulationError
        If the file cannot be read.
    """
    columns: dict[str, Any] = {"path": str(path), "user": guess.user}
    for key in ("item", "count") if guess.item is not None else ("value",):
        if getattr(guess, key) is not None:
            columns[key] = getattr(guess, key)
    form = {k: v for k, v in vars(guess.form).items() if v != getattr(type(guess.form), k)}
    kind = "events" if guess.item is not None else "samples"
    loaded = population(kind, **columns, **form).load()
    n_users = len(loaded.users)
    delta = min(1e-6, 10.0 ** -(len(str(n_users)) + 1))
    profile = profile_of(loaded, epsilon=epsilon, delta=delta)
    budget = {"epsilon": epsilon, "delta": delta}
    people = [
        f"[population]\nkind = {toml_value(kind)}",
        *(_column(k, v, guess.why.get(k)) for k, v in columns.items()),
        *(f"{k} = {toml_value(v)}" for k, v in form.items()),
    ]
    parts = _of_items if kind == "events" else _of_samples
    text = "\n".join([*_head(path, name, profile), *parts(budget, people, profile)]) + "\n"
    return Started(text, profile)


def _column(key: str, value: Any, why: str | None) -> str:
    line = f"{key} = {toml_value(value)}"
    if key == "path":
        return f"{line}  # as seen from where the command is started"
    return f"{line}  # {why}" if why not in (None, "given") else line


def _head(path: Path, name: str, profile: Profile) -> list[str]:
    """Say what the file is for, and what is to be thought of."""
    what = f"{profile.n_users:,} users with {profile.n_events:,} {profile.what}"
    lines = [
        *comment(f"A study of {path.name}: {what}. One file for several commands:"),
        "#",
        *(f"#     fedhist {command} {name}" for command in ("run", *STUDIES)),
        "#",
        *comment(
            "Values that end in NOT PRIVATE were suggested by looking at the data (fedhist profile "
            "says how). They are for studies. For a release take them from public knowledge."
        ),
    ]
    for warning in profile.warnings:
        lines += ["#", *comment(sentence(warning))]
    return [
        *lines,
        "",
        "[run]",
        'runtime = "inline"  # in this process; "ray" takes all cores',
        "seed = 1  # repeats the noise, and whoever knows it knows the noise: -1 draws one",
        "",
    ]


def _of_items(
    budget: Mapping[str, float], people: Sequence[str], profile: Profile
) -> Iterable[str]:
    suggested = profile.suggested
    clip, top = suggested.get("clip"), int(suggested["top"])
    why = profile.reasons.get("clip", "")
    if clip is None:  # nothing stands out of the noise: something to start from all the same
        clip = max(1.0, round(profile.per_user["50%"]))
        top, why = min(profile.n_items or 1, FALLBACK_TOP), "the median of the users' events"
    whole = max(1, round(clip))  # which all protocols take that clip
    slots = min(MOST_SLOTS, max(1, round(profile.items_per_user["50%"])), top)
    return [
        "# What fedhist run runs, and fedhist sweep varies. Its target, budget and adjacency are",
        "# those of the comparison too.",
        "[protocol]",
        'name = "bounded-histogram"  # fedhist protocols lists the others',
        *_budget(budget),
        *comment(f"A user's counts are scaled down to this length, rounded. {sentence(why)}"),
        f"clip = {whole}  # NOT PRIVATE",
        "",
        *people,
        *comment(
            'The domain: its most frequent items. Better is a public list, domain = "items.txt" '
            "with an item a line, in its place."
        ),
        f"top = {top}  # NOT PRIVATE",
        "",
        *_compare("histogram"),
        "# One record is hidden by it, and not a user.",
        'without = ["item-histogram"]',
        "protocols = [",
        "    # No trusted server: each user reports one of so many items of its own.",
        f'    {{ name = "local-histogram", clip = {slots} }},  # NOT PRIVATE',
        "]",
        "",
        *_studies("histogram"),
    ]


def _of_samples(
    budget: Mapping[str, float], people: Sequence[str], profile: Profile
) -> Iterable[str]:
    suggested = profile.suggested
    low = suggested.get("low", profile.values.get("least", 0.0))
    high = suggested.get("high", profile.values.get("most", 1.0))
    low, high = (low, high) if low < high else (low - 0.5, low + 0.5)
    size = max(1, int(suggested.get("samples_per_user", 1)))
    return [
        "# What fedhist run runs, and fedhist sweep varies. Its target, budget and adjacency are",
        "# those of the comparison too.",
        "[protocol]",
        'name = "central-mean"  # fedhist protocols lists the others',
        *_budget(budget),
        *comment(f"Samples outside are clipped. {sentence(profile.reasons.get('low', ''))}"),
        f"low = {_real(low)}  # NOT PRIVATE",
        f"high = {_real(high)}  # NOT PRIVATE",
        "",
        *people,
        "",
        *_compare("mean"),
        "protocols = [",
        "    # No trusted server. A planning value: "
        + ("so many samples most users hold at least."),
        f'    {{ name = "mean", samples_per_user = {size} }},  # NOT PRIVATE',
        "]",
        "",
        *_studies("mean"),
    ]


def _budget(budget: Mapping[str, float]) -> list[str]:
    return [
        f"epsilon = {budget['epsilon']:g}",
        f"delta = {budget['delta']:g}  # far below one over the number of users",
        "# One user's whole record is replaced by any other: what every protocol can state.",
        'adjacency = "replace-user"',
    ]


def _compare(target: str) -> list[str]:
    return [
        "# fedhist compare: every protocol of the target, on the same users.",
        "[compare]",
        f"target = {toml_value(target)}",
        "seeds = 3",
        "# Or each under every level of trust that it has:",
        '# trust = ["central", "aggregate", "shuffle", "local"]',
    ]


def _studies(target: str) -> list[str]:
    return [
        "# fedhist sweep: all combinations of the axes; any table.key may be one.",
        "[sweep]",
        '"protocol.epsilon" = [0.5, 1, 2, 4]',
        "seeds = 3",
        "",
        "# fedhist decide: which protocol under which trust, and the epsilon that the error takes.",
        "[decide]",
        f"target = {toml_value(target)}",
        'error = "10%"  # of the answer\'s own size',
    ]


def comment(text: str) -> list[str]:
    """Write prose as lines of comment."""
    flat = " ".join(text.split())
    return [f"# {line}" for line in textwrap.wrap(flat, WIDTH, break_on_hyphens=False)]


def sentence(text: str) -> str:
    """Write words as a sentence; nothing stays nothing.

    >>> sentence("the best there is")
    'The best there is.'
    """
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def _real(x: float) -> str:
    """Write a number so that TOML reads a real one."""
    text = f"{x:.12g}"
    return text if any(c in text for c in ".en") or not math.isfinite(x) else f"{text}.0"
