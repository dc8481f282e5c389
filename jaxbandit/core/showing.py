"""Objects and tables as text and as HTML for notebooks."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

CAPTION = "caption-side:top;text-align:left"
LEFT = "text-align:left"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Format lines of cells as text in columns: the first left-aligned, the others right-aligned, a rule under the first line."""
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]

    def joined(line: Sequence[str]) -> str:
        first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        return "  ".join([first.strip().ljust(widths[0]), *rest])

    text = [joined(line) for line in lines]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def html_table(head: Sequence[str], body: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return a table as HTML, all text escaped; the first column is left-aligned."""

    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}{'' if n else f' style={LEFT!r}'}>{escape(cell)}</{tag}>" for n, cell in enumerate(cells)) + "</tr>"

    said = f"<caption style={CAPTION!r}>{escape(caption)}</caption>" if caption else ""
    rows = "".join(line(cells, "td") for cells in body)
    return f"<table>{said}<thead>{line(head, 'th')}</thead><tbody>{rows}</tbody></table>"


def html_fields(title: str, fields: Sequence[tuple[str, str]], *, picture: bytes = b"", said: str = "") -> str:
    """Return an object as HTML: its title, a line for each field, and a picture with alternative text ``said``; all text escaped."""
    rows = "".join(
        f"<tr><th style={LEFT!r}>{escape(name)}</th><td style={LEFT!r}>{escape(text).replace(chr(10), '<br>')}</td></tr>"
        for name, text in fields
    )
    table = f"<table><caption style={CAPTION!r}><b>{escape(title)}</b></caption><tbody>{rows}</tbody></table>"
    if not picture:
        return table
    code = base64.b64encode(picture).decode()
    image = f'<img src="data:image/png;base64,{code}" alt="{escape(said)}" title="{escape(said)}">'
    return f'<div style="display:flex;gap:1em;align-items:center">{table}{image}</div>'
