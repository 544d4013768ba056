"""Hooks of the documentation site: pages made from the root's files and from the packages.

README, CONTRIBUTING and CHANGELOG are pages of the site as they stand; every package has a page of
its docstrings. Nothing of it is written to disk: there is one source of each text.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import griffe
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from fedhist.base.lazy import homes

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
PACKAGES = ("fedhist", "clients", "server", "simulations")
USES = {
    "Run, compare, decide, audit": ("simulations.",),
    "Users and data": ("fedhist.users.",),
    "Write a protocol": ("fedhist.model.", "server.", "clients.records."),
    "Privacy": ("fedhist.privacy.",),
    "Randomizers": ("fedhist.channels.", "clients.randomizers."),
    "Arrays and errors": ("fedhist.base.",),
}
ROLE = re.compile(r":\w+:`([^`]+)`")
DOCTEST = re.compile(r"^>>> .*(?:\n(?!$).*)*", re.MULTILINE)
SHORT = re.compile(r"^~(?:[\w.]+\.)?(?=\w+$)")
FORMULA = re.compile(r'<(div|span) class="arithmatex">(.*?)</\1>', re.DOTALL)
EXAMPLES = "\nExamples\n---"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the protocols by family, and the Python packages, where the navigation names them."""
    made = sorted((name for name, _ in reference()), key=lambda n: (Path(n).stem != "index", n))
    pages = {"protocols/": protocols(), "reference/": made}

    def listed(entry: Any) -> Any:
        if isinstance(entry, list):
            return [listed(e) for e in entry]
        if isinstance(entry, dict):
            return {k: listed(v) for k, v in entry.items()}
        return pages.get(str(entry), entry)

    config.nav = listed(config.nav)
    return config


def protocols() -> list[Any]:
    """Return the pages of the protocols, those of one target under its name."""
    families: dict[str, list[str]] = {}
    table = (ROOT / "docs" / "protocols" / "README.md").read_text(encoding="utf-8")
    for page, target in re.findall(r"\]\((\S+)\) \| (\w+)", table):
        families.setdefault(target.capitalize(), []).append(f"protocols/{page}")
    return ["protocols/README.md", *({k: families[k]} for k in sorted(families))]


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for source, target in TEXTS.items():
        text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for other, page in TEXTS.items():
            text = text.replace(f"]({other})", f"]({page})")
        files.append(File.generated(config, target, content=text))
    for name, text in reference():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Typeset formulas as MathML, which browsers draw without a script."""

    def typeset(formula: re.Match[str]) -> str:
        text = unescape(formula[2]).strip()
        return str(convert(text[2:-2], display="block" if formula[1] == "div" else "inline"))

    return FORMULA.sub(typeset, html)


def public_names() -> str:
    """Return a page of every name that ``import fedhist`` hands out, by use."""
    names = homes((ROOT / "fedhist" / "__init__.py").read_text(encoding="utf-8"))
    names.pop("flower")
    blocks = ["# Public names", "What `import fedhist as fh` hands out."]
    for use, prefixes in USES.items():
        mine = [f"{home}.{name}" for name, home in names.items() if home.startswith(prefixes)]
        blocks += [f"## {use}", *(f"::: {name}" for name in mine)]
    if lost := [n for n, home in names.items() if not home.startswith(sum(USES.values(), ()))]:
        raise ValueError(f"USES has no place for {lost}")
    source = ROOT / "fedhist" / "flower" / "__init__.py"
    flower = homes(source.read_text(encoding="utf-8")).items()
    blocks += ["## fh.flower", *(f"::: {home}.{name}" for name, home in flower)]
    return "\n\n".join(blocks) + "\n"


def reference() -> list[tuple[str, str]]:
    """Return a page for every package: its modules in the order of their names."""
    pages = []
    for top in PACKAGES:
        for init in sorted((ROOT / top).rglob("__init__.py")):
            folder = init.parent
            package = ".".join(folder.relative_to(ROOT).parts)
            modules = sorted(f.stem for f in folder.glob("*.py") if not f.stem.startswith("_"))
            blocks = [f"# {package}", f"::: {package}\n    options: {{members: false}}"]
            blocks += [f"::: {package}.{m}" for m in modules]
            pages.append((f"reference/{package}.md", "\n\n".join(blocks) + "\n"))
    lines = [f"- [`{Path(name).stem}`]({Path(name).name})" for name, _ in pages]
    pages.append(("reference/public-names.md", public_names()))
    lines.insert(0, "- [Public names, by use](public-names.md)")
    return [("reference/index.md", "# Reference\n\n" + "\n".join(lines) + "\n"), *pages]


class Docstrings(griffe.Extension):
    """Turns what a docstring has of reST into Markdown: roles into code, doctests into blocks."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **_: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.is_alias or obj.docstring is None:
            return
        text = ROLE.sub(lambda role: f"`{SHORT.sub(r'', role[1])}`", obj.docstring.value)
        before, title, examples = text.partition(EXAMPLES)  # that section is shown as code anyway
        obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", before) + title + examples
