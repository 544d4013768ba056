"""Docstrings as others read them: reST is for the source only."""

from __future__ import annotations

import re


def as_markdown(text: str) -> str:
    """Turn the few marks of a docstring that are not Markdown into Markdown.

    >>> as_markdown(":class:`~fedhist.protocols.means.mean.Mean` with ``T``")
    '`Mean` with `T`'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def as_plain(text: str) -> str:
    """Turn the marks of a docstring into plain text, for a terminal.

    >>> as_plain(":func:`~fedhist.model.losses.l1` of ``value`` [1]_")
    'l1 of value [1]'
    """
    text = re.sub(r"^(\s*)\.\. \[", r"\1[", as_markdown(text), flags=re.MULTILINE)
    return re.sub(r"\[(\w+)\]_", r"[\1]", text).replace("`", "")
