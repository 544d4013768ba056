"""A page of documentation per protocol, made from the registry, the docstrings and the example.

``python docs/protocol_pages.py`` (a part of ``make docs``) writes docs/protocols.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

from fedhist.base.files import whole_file
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.model.registry import load_builtin, own_protocols
from fedhist.privacy.guarantee import Trust
from simulations.reporting.table import Table, markdown
from simulations.runs.config import configs_of
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.studies.levels import possible_levels
from simulations.studies.runner import bytes_per_user

SEED = 1
CITED = r"\[(\d)(?:\]|, [A-Z])"  # no interval such as [0, 1]
REFERENCE = re.compile(r"(?ms)^\.\. \[(\d)\] (.*?)(?=^\.\. |\Z)")
HEADING = re.compile(r"^(?P<title>\S.*)\n(?P<line>-{3,})$", re.MULTILINE)
TRUST = {
    Trust.CENTRAL: "central: the users trust the server with exact, bounded contributions",
    Trust.AGGREGATE: "aggregate: nodes add the noise, and the server sees one sum of them all",
    Trust.SHUFFLE: "shuffle: a shuffler passes the users' own randomized reports on, unsigned",
    Trust.LOCAL: "local: every message is private before it leaves its user",
}


def as_markdown(text: str) -> str:
    """Turn the few marks of a docstring that are not Markdown into Markdown.

    >>> as_markdown(":class:`~server.means.mean.Mean` with ``T``")
    '`Mean` with `T`'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return re.sub(r"(\[\d\])_", r"\1", text).replace("``", "`")


def sections(text: str) -> dict[str, str]:
    r"""Split a numpydoc docstring: "" for what comes first, then by the title of each section.

    >>> sections("One line.\n\nPrivacy\n-------\nAll of it.")
    {'': 'One line.', 'Privacy': 'All of it.'}
    """
    headings = list(HEADING.finditer(text))
    ends = [m.start() for m in headings] + [len(text)]
    out = {"": text[: ends[0]].strip()}
    for m, end in zip(headings, ends[1:], strict=True):
        out[m["title"]] = text[m.end() : end].strip("\n")
    return out


def parameters_of(text: str) -> dict[str, str]:
    """Read the section "Parameters": for every name its values, if few, and its description."""
    out: dict[str, str] = {}
    names: list[str] = []
    for line in text.split("\n"):
        if line and not line[0].isspace():
            head, _, kind = line.partition(" : ")
            names = [n.strip() for n in head.split(",")]
            out |= dict.fromkeys(names, f"One of {kind}." if kind.startswith("{") else "")
        else:
            for n in names:
                out[n] = f"{out[n]} {line.strip()}".strip()
    return out


def page_of(cls: type[Protocol]) -> str:
    """Write the page of one protocol: Markdown."""
    parts = sections(as_markdown(inspect.getdoc(cls) or ""))
    lead, _, rest = parts[""].partition("\n\n")
    lines = [f"# `{cls.name}`", "", lead.replace("\n", " "), ""]
    lines += [rest, ""] if rest else []
    lines += [f"Reference: {cls.paper}.", ""]
    lines += ["| | |", "|---|---|", *facts(cls), ""]
    for title in ("Privacy", "Error", "Notes"):
        if title in parts:
            lines += [f"## {title}", "", parts[title], ""]
    meaning = _meanings(cls)
    rows = [
        (
            f"`{f.name}`",
            "required" if f.default is MISSING else f"`{f.default!r}`",
            meaning.get(f.name, ""),
        )
        for f in fields(cls)  # type: ignore[arg-type]
    ]
    lines += ["## Parameters", "", markdown(Table.of(("Parameter", "Default", "Meaning"), rows))]
    lines += ["", *_references(cls, "\n".join(lines))]
    return "\n".join(lines).rstrip() + "\n"


def _meanings(cls: type[Protocol]) -> dict[str, str]:
    """Say what parameters mean; those that are "as for" another protocol, in its words."""
    parts = sections(as_markdown(inspect.getdoc(cls) or ""))
    out = parameters_of(parts.get("Parameters", ""))
    others = {n: c for c in own_protocols().values() for n in (c.name, c.__name__)}
    for name, text in out.items():
        other = re.fullmatch(r"(?:One of \{.*\}\.)?(?:As for|See) `([\w-]+)`\.", text)
        if other and other[1] in others:
            out[name] = _meanings(others[other[1]])[name]
    return out


def facts(cls: type[Protocol]) -> Iterator[str]:
    """Say what the example promises and costs, as rows of a table."""
    example, users = cls.example(), cls.example_users()
    queries: list[Query] = []
    outcome = execute(example, users, Options(seed=SEED, watch=queries.append))
    promise, levels = example.guarantee, possible_levels(cls)
    rounds = len(outcome.rounds)
    asked = ", ".join(f"`{q.wire_name}`" for q in queries)
    bound = example.error(users)
    yield f"| Estimates | {cls.target}: {example.estimates} ({example.estimates.in_words}) |"
    yield f"| Trust | {'; '.join(TRUST[t] for t in levels)} |"
    yield f"| Its example | `{_cell(repr(example))}`, with {len(users):,} users |"
    yield f"| Guarantee of its example | {promise} |"
    yield f"| Neighbouring data | {promise.adjacency.in_words} |"
    yield f"| Rounds of its example | {rounds}: {asked} |"
    yield f"| Bytes per user of its example | {bytes_per_user(queries, users):,.0f} |"
    yield f"| Error that is predicted | {bound.loss}; {_cell(bound.source)} |"
    if names := ", ".join(f"`{n}`" for n in configs_of(cls.name)):
        yield f"| Built-in configurations | {names} |"


def write_pages(folder: Path) -> list[Path]:
    """Write the page of every registered protocol of fedhist, and the page that lists them."""
    load_builtin()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for path, text in pages():
        whole_file(folder / path, text)
        written.append(folder / path)
    return written


def pages() -> Iterator[tuple[str, str]]:
    """Return name and text of every page; "README.md" lists the others."""
    ours = own_protocols()
    lines = ["# Protocols", "", "Written by `make docs` from the code.", ""]
    rows = []
    for name, cls in ours.items():
        example = cls.example()
        trust = ", ".join(t.value for t in possible_levels(cls))
        what = f"{cls.target}: {example.estimates}"
        lead, _, _ = sections(as_markdown(inspect.getdoc(cls) or ""))[""].partition("\n\n")
        rows.append((f"[`{name}`]({name}.md)", what, trust, lead))
    lines.append(markdown(Table.of(("Protocol", "Estimates", "Trust", "What it does"), rows)))
    yield "README.md", "\n".join(lines) + "\n"
    for name, cls in ours.items():
        yield f"{name}.md", page_of(cls)


def _references(cls: type[Protocol], page: str) -> list[str]:
    """Return the references of the module or the class, if the page cites some by number."""
    texts = [inspect.getdoc(inspect.getmodule(cls)) or "", inspect.getdoc(cls) or ""]
    listed = dict(REFERENCE.findall("\n".join(sections(t).get("References", "") for t in texts)))
    cited = sorted({*re.findall(CITED, page)})
    if missing := [n for n in cited if n not in listed]:
        raise ValueError(f"{cls.name} cites {missing}, which no docstring lists")
    rows = [f"- [{n}] {' '.join(listed[n].split())}" for n in cited]
    return ["## References", "", *rows, ""] if rows else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    write_pages(Path(__file__).with_name("protocols"))
