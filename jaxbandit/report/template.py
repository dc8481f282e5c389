"""Pages of reports: one template for results of studies, studies that run and sessions, with figures as small SVG elements."""

from __future__ import annotations

import dataclasses
import io
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jinja2
import matplotlib
from markupsafe import Markup
from matplotlib.figure import Figure

# Text as outlines looks the same everywhere; names of equal parts are equal, so that a report of equal results is the same file.
STYLE: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxbandit", "path.simplify_threshold": 0.5}
NOISE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->| xmlns(?::\w+)?=\"[^\"]*\"|\n\s*", re.DOTALL)
NAME = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(href="|url\()#([^")]*)')
PATH = re.compile(r' d="[^"]*"')  # coordinates; other numbers may be small factors
LONG = re.compile(r"(\.\d\d)\d+")  # hundredths of a point are finer than any screen

Section: TypeAlias = Mapping[str, object] | Sequence[object] | str
"""Contents of a section, as its part of the template takes them; a section without any is left out."""

Cell: TypeAlias = str | Mapping[str, object]
"""A cell of a table: text, or a mapping of text, the tag that it stands in, an interval and asides below it."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of a page, and its caption."""

    caption: str
    figure: Figure


def render(kind: str, sections: Mapping[str, Section], **head: object) -> str:
    """Return a page that needs no other file: of a ``kind`` ("study", "watched" or "session"), with the sections that are not empty."""
    shown = {name: content for name, content in sections.items() if content}
    return _ENVIRONMENT.get_template("page.html.j2").render(kind=kind, sections=shown, **head)


def svg_of(picture: Picture) -> Markup:
    """Return a figure as SVG, with names that no other figure of a page has."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        picture.figure.savefig(buffer, format="svg")
    text = NOISE.sub(lambda found: " " if found.group().startswith("\n") else "", buffer.getvalue().decode("utf-8"))
    prefix = f"{zlib.crc32(text.encode()):08x}"
    used = {name for _, name in REFERENCE.findall(text)}
    text = NAME.sub(lambda found: f' id="f{prefix}-{found.group(1)}"' if found.group(1) in used else "", text)
    text = PATH.sub(lambda found: LONG.sub(r"\1", found.group()), REFERENCE.sub(rf"\1#f{prefix}-\2", text)).strip()
    return Markup('<svg role="img" aria-label="{}" ').format(picture.caption) + Markup(text.removeprefix("<svg "))


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("jaxbandit.report", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True, cache_size=1
)
_ENVIRONMENT.filters["svg"] = svg_of
