"""HTML elements of reports. All text is escaped; only :class:`Markup` is inserted unchanged."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; color: #1a1a1a; background: #fff;
  max-width: 76rem; margin: 0 auto; padding: 1.5rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; padding-top: .7rem; border-top: 1px solid #ccc; }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p, li { max-width: 60rem; }
.finding { font-size: 1.02em; margin: .35rem 0; padding-left: .7rem; border-left: 3px solid #0072B2; }
.quiet { color: #595959; font-size: .92em; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; white-space: nowrap; }
th.words, td.words { white-space: normal; text-align: left; min-width: 9rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead th { border-bottom: 1.5px solid #1a1a1a; vertical-align: bottom; white-space: normal; }
tbody tr + tr > * { border-top: 1px solid #e3e3e3; }
tbody th { font-weight: 600; white-space: normal; min-width: 7rem; }
code, pre { font-family: ui-monospace, "SFMono-Regular", Menlo, Consolas, monospace; font-size: .85em; }
pre { background: #f5f5f5; border: 1px solid #ddd; border-radius: 4px; padding: .7rem .9rem; overflow-x: auto; margin: .4rem 0; }
pre.command { white-space: pre-wrap; overflow-wrap: anywhere; }
figure { margin: 1rem 0 1.6rem; }
figure svg { max-width: 100%; height: auto; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption { color: #595959; font-size: .92em; margin-top: .2rem; }
details { margin: .3rem 0; }
summary { cursor: pointer; }
progress { width: 100%; height: 1.1rem; accent-color: #0072B2; }
nav { margin: 1rem 0; font-size: .92em; }
nav a { color: #005a8c; margin-right: 1rem; white-space: nowrap; }
@page { size: A4 landscape; margin: 12mm; }
@media print {
  :root { font-size: 11px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  nav { display: none; }
  figure, tr { break-inside: avoid; }
  h2, h3, .finding { break-after: avoid; }
}
"""
# With this policy a browser loads nothing from elsewhere, whatever a report holds.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Markup(str):
    """Text that is HTML already."""


def escaped(value: object) -> Markup:
    """Return a value as HTML: its text with special characters escaped, :class:`Markup` unchanged."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value), quote=True))


def element(tag: str, *children: object, **attributes: str) -> Markup:
    """Return ``<tag attributes>children</tag>``, all escaped; trailing underscores of names and empty attributes are dropped."""
    words = "".join(f' {name.rstrip("_")}="{escaped(value)}"' for name, value in attributes.items() if value)
    return Markup(f"<{tag}{words}>{''.join(escaped(child) for child in children)}</{tag}>")


def joined(parts: Sequence[object], between: str = "\n") -> Markup:
    """Join parts, escaped, with ``between`` between them."""
    return Markup(between.join(escaped(part) for part in parts))


def table(heads: Sequence[object], rows: Sequence[Sequence[object]], words: Sequence[int] = ()) -> Markup:
    """Return a table whose first column names the rows; the columns numbered in ``words`` are text that may wrap."""
    head = element("tr", *(element("th", cell, scope="col", class_="words" if c in words else "") for c, cell in enumerate(heads)))

    def cell(column: int, value: object) -> Markup:
        if column == 0:
            return element("th", value, scope="row")
        return element("td", value, class_="words" if column in words else "")

    body = [element("tr", *(cell(c, value) for c, value in enumerate(row))) for row in rows]
    return element("div", element("table", element("thead", head), element("tbody", joined(body))), class_="scroll")


def picture(png: bytes, caption: str) -> Markup:
    """Embed a PNG at 60% of its size (sharp on any screen), with its caption below it and as its description."""
    data = base64.b64encode(png).decode("ascii")
    width = round(0.6 * int.from_bytes(png[16:20], "big"))  # the width in the header chunk, with which every PNG begins
    image = Markup(f'<img alt="{escaped(caption)}" width="{width}" src="data:image/png;base64,{data}">')
    return element("figure", image, element("figcaption", caption))


def section(name: str, heading: str, *parts: object) -> Markup:
    """Return a section of the document with a heading; links refer to its ``name``."""
    return element("section", element("h2", heading), joined(parts), id=name)


def document(title: str, *parts: object, reload: int = 0) -> str:
    """Return a complete HTML document that needs no other file; browsers load it again after ``reload`` seconds, unless that is 0."""
    again = f'<meta http-equiv="refresh" content="{reload}">\n' if reload else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{again}<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{joined(parts)}\n</body>\n</html>\n"
    )
