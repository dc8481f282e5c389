"""Figures as SVG elements that stand inside an HTML page: small, with an alternative text, and with values shown under the pointer."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from typing import BinaryIO

import matplotlib

from jaxbandit.report.markup import Markup, element, escaped

# Text as outlines looks the same everywhere; names of equal parts are equal, so that a report of equal results is the same file.
STYLE = {"savefig.format": "svg", "svg.fonttype": "path", "svg.hashsalt": "jaxbandit", "path.simplify_threshold": 0.5}
NOISE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->| xmlns(?::\w+)?="[^"]*"|\n\s*", re.DOTALL)
NAME = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(href="|url\()#([^")]*)')
LONG = re.compile(r"(\d+\.\d\d)\d+")  # hundredths of a point are finer than any screen


def svg_of(draw: Callable[[BinaryIO], object]) -> Markup:
    """Return as SVG what ``draw`` writes to the file that it is given, with names that no other figure of a page has."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        draw(buffer)
    text = NOISE.sub(lambda found: " " if found.group().startswith("\n") else "", buffer.getvalue().decode("utf-8"))
    own = f"{zlib.crc32(text.encode()):08x}"
    used = {name for _, name in REFERENCE.findall(text)}
    text = NAME.sub(lambda found: f' id="f{own}-{found.group(1)}"' if found.group(1) in used else "", text)
    text = REFERENCE.sub(rf"\1#f{own}-\2", text)
    return Markup(LONG.sub(r"\1", text).strip())


def figure(svg: Markup, caption: str, values: str = "") -> Markup:
    """Return a figure of a page: an SVG element with its caption, and ``values`` in words for who does not see it."""
    said = escaped(f"{caption} {values}".strip())
    return element("figure", Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{said}" ', 1)), element("figcaption", caption))
