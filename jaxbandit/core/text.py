"""Values, fields and tables as text and HTML."""

from __future__ import annotations

import base64
import dataclasses
import shutil
import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MAX_NUMBERS_SHOWN = 6


def fields_in_brief(item: Any) -> list[tuple[str, str]]:
    """Return a dataclass's fields as text, without defaults ``None`` and ``()``."""
    named = ((field, getattr(item, field.name)) for field in dataclasses.fields(item) if field.repr)
    nothing: tuple[object, ...] = None, ()
    return [(field.name, in_brief(value)) for field, value in named if not any(value is one and field.default is one for one in nothing)]


def in_brief(value: Any) -> str:
    """Return a value as text, a large array as type and shape."""
    if isinstance(value, jax.core.Tracer):
        return f"traced {value.dtype}{list(value.shape)}"
    if isinstance(value, tuple) and type(value) is tuple:
        return f"({', '.join(map(in_brief, value))}{',' if len(value) == 1 else ''})"
    if not isinstance(value, np.ndarray | np.generic | jax.Array):
        return repr(value)
    if jnp.issubdtype(value.dtype, jax.dtypes.extended) or not 1 <= value.size <= MAX_NUMBERS_SHOWN:
        return f"{value.dtype}{list(value.shape)}"
    return " ".join(np.array2string(np.asarray(value), separator=", ").split())


LEFT = "text-align:left"


def aligned(lines: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    """Format lines of cells as columns of text under a ruled head.

    The first column is left-aligned. A table wider than ``width`` letters becomes blocks, one below the other, each with the first column,
    wrapped where it would leave no room, and the columns after it that distinguish lines.
    """
    tell = next((n for n in range(1, len(lines[0])) if len({tuple(line[:n]) for line in lines}) == len(lines)), 1)
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
    widths[0] = widths[0] if width is None else min(widths[0], max(width - 2 - max(widths[1:], default=0), 20))
    blocks = [[*range(1, tell)]]
    for column in range(tell, len(widths)):
        if width is not None and len(blocks[-1]) >= tell and sum(widths[c] + 2 for c in [*blocks[-1], column]) + widths[0] > width:
            blocks.append([*range(1, tell)])
        blocks[-1].append(column)

    def joined(line: Sequence[str], block: Sequence[int]) -> str:
        first, *more = textwrap.wrap(line[0], widths[0], drop_whitespace=False) if len(line[0]) > widths[0] else [line[0]]
        return "\n".join(["  ".join([first.ljust(widths[0]), *(line[c].rjust(widths[c]) for c in block)]).rstrip(), *more])

    texts = [[joined(line, block) for line in lines] for block in blocks]
    return "\n\n".join("\n".join([head, "-" * len(head.split("\n")[0]), *body]) for head, *body in texts)


def filled(line: str, width: int | None = None, indent: str = "") -> str:
    """Wrap a line at ``width`` letters, by default the terminal's."""
    width = shutil.get_terminal_size().columns if width is None else width
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def html_table(head: Sequence[str], body: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return a table as HTML, its first column left-aligned and text escaped."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{'' if n else f' style={LEFT!r}'}>{escape(cell)}</{tag}>" for n, cell in enumerate(cells)) + "</tr>"

    said = f"<caption style='caption-side:top;{LEFT}'>{escape(caption)}</caption>" if caption else ""
    rows = "".join(line(cells, "td") for cells in body)
    return f"<table>{said}<thead>{line(head, 'th')}</thead><tbody>{rows}</tbody></table>"


def html_fields(title: str, fields: Sequence[tuple[str, str]], *, picture: bytes = b"", said: str = "") -> str:
    """Return an object as HTML, with a picture that ``said`` describes."""
    rows = "".join(
        f"<tr><th style={LEFT!r}>{escape(name)}</th><td style={LEFT!r}>{escape(text).replace(chr(10), '<br>')}</td></tr>"
        for name, text in fields
    )
    table = f"<table><caption style='caption-side:top;{LEFT}'><b>{escape(title)}</b></caption><tbody>{rows}</tbody></table>"
    if not picture:
        return table
    code = base64.b64encode(picture).decode()
    image = f'<img src="data:image/png;base64,{code}" alt="{escape(said)}" title="{escape(said)}">'
    return f'<div style="display:flex;gap:1em;align-items:center">{table}{image}</div>'
