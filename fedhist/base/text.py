"""Texts of others, made safe to show: in a terminal, in a log."""

from __future__ import annotations

import unicodedata

NARROWEST = 40
"""Columns that tables are written for at least; a narrower terminal breaks the lines by itself."""


def visible(text: str) -> str:
    r"""Write control characters as escapes: none of them reaches a terminal. Line ends stay.

    Of Unicode, the categories Cc (C0, DEL and C1), Cf (marks that turn the direction of writing
    and such), Cs, Zl and Zp.

    >>> visible("red \x1b[31m, bell \x07, C1 \x9b, tea"), visible("お茶")
    ('red \\x1b[31m, bell \\x07, C1 \\x9b, tea', 'お茶')
    """
    if text.isascii() and text.isprintable():
        return text
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return "".join(
        ascii(c)[1:-1] if unicodedata.category(c) in hidden and c != "\n" else c for c in text
    )


def warned(what: str, means: str, todo: str) -> str:
    """Put a warning together: what happened, what it means for the estimate, what to do."""
    return f"{what}: {means}; {todo}"


def one_line(text: str, most: int = 300) -> str:
    r"""Cut a stranger's text to one line of printable characters.

    >>> one_line("no\nline 2\x1b"), one_line("x" * 400)[-3:], len(one_line("x" * 400))
    ('no line 2\\x1b', 'xx…', 300)
    """
    line = visible(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most else line[: most - 1] + "…"
