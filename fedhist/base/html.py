"""What notebooks show of an object: a title, a small table, sentences; all of it escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from functools import cache
from reprlib import Repr
from typing import TYPE_CHECKING, Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.base.text import visible

if TYPE_CHECKING:
    from jinja2 import Template

MOST_ROWS = 20
_SHORT = Repr()
_SHORT.maxlevel, _SHORT.maxtuple, _SHORT.maxlist, _SHORT.maxstring = 2, 4, 4, 40
_SHORT.maxother = 60
_PART = """\
<div><p><strong>{{ title }}</strong></p>
{% if rows %}<table>
{% if header %}<thead><tr>{% for c in header %}<th>{{ c }}</th>{% endfor %}</tr></thead>{% endif %}
<tbody>
{% for row in rows %}<tr>{% for c in row %}<td>{{ c }}</td>{% endfor %}</tr>{% endfor %}
</tbody></table>{% endif %}
{% for note in notes %}<p>{{ note }}</p>{% endfor %}
</div>"""


def short(value: object) -> str:
    """Write a value in one line of some sixty letters.

    >>> short(0.5), short(("a", "b", "c", "d", "e"))
    ('0.5', "('a', 'b', 'c', 'd', ...)")
    """
    return visible(" ".join(_SHORT.repr(value).split()))


def settings(made: Any, *, every: bool = True) -> list[tuple[str, str]]:
    """Write the fields of a dataclass; only those that differ from their defaults unless all."""
    out = []
    for f in fields(made):
        value = short(getattr(made, f.name))
        if f.init and (every or f.default is MISSING or value != short(f.default)):
            out.append((f.name, value))
    return out


def entries(
    value: Array | None, stderr: Array | None, names: Sequence[str] | None
) -> list[tuple[str, ...]]:
    """Write the first entries of an estimate, with their standard errors where there are some.

    >>> entries(np.array([1.0, 2.0]), np.array([0.5, 0.5]), ["a", "b"])
    [('a', '1.0', '0.5'), ('b', '2.0', '0.5')]
    """
    if value is None:
        return []
    columns = [np.atleast_1d(a) for a in (value, stderr) if a is not None]
    shown = range(min(len(columns[0]), MOST_ROWS))
    return [
        (str(i) if names is None else names[i], *(short(c[i].tolist()) for c in columns))
        for i in shown
    ]


def in_html(
    title: str,
    rows: Sequence[Sequence[str]],
    header: Sequence[str] = (),
    notes: Iterable[str] = (),
    n_rows: int | None = None,
) -> str:
    """Write a title, a table and sentences as a part of a page.

    ``rows``: at most :data:`MOST_ROWS`; ``n_rows``: how many rows there are, if these are the first
    of them.
    """
    more = [] if n_rows is None or n_rows <= len(rows) else [f"and {n_rows - len(rows):,} more"]
    return _part().render(title=title, rows=rows, header=header, notes=[*more, *notes])


@cache
def _part() -> Template:
    from jinja2 import Environment, StrictUndefined  # for notebooks only

    made = Environment(autoescape=True, finalize=visible, undefined=StrictUndefined)
    return made.from_string(_PART.replace("\n", ""))
