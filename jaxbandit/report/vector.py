"""Figures as SVG elements that stand inside an HTML page: small, with an alternative text, and with values shown under the pointer."""

from __future__ import annotations

import io
import re
import zlib
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxbandit.report.markup import Markup, element, escaped, joined

# Text as outlines looks the same everywhere; names of equal parts are equal, so that a report of equal results is the same file.
STYLE: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxbandit", "path.simplify_threshold": 0.5}
NOISE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->| xmlns(?::\w+)?=\"[^\"]*\"|\n\s*", re.DOTALL)
NAME = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(href="|url\()#([^")]*)')
PATH = re.compile(r' d="[^"]*"')  # coordinates; other numbers may be small factors
LONG = re.compile(r"(\.\d\d)\d+")  # hundredths of a point are finer than any screen
POINTS = 72  # per inch, the unit of SVG files
MOST_TIPS = 12  # points of a line that show their value


def svg_of(figure: Figure) -> Markup:
    """Return a figure as SVG, with names that no other figure of a page has; labelled lines show values where the pointer rests."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format="svg")
    text = NOISE.sub(lambda found: " " if found.group().startswith("\n") else "", buffer.getvalue().decode("utf-8"))
    own = f"{zlib.crc32(text.encode()):08x}"
    used = {name for _, name in REFERENCE.findall(text)}
    text = NAME.sub(lambda found: f' id="f{own}-{found.group(1)}"' if found.group(1) in used else "", text)
    text = PATH.sub(lambda found: LONG.sub(r"\1", found.group()), REFERENCE.sub(rf"\1#f{own}-\2", text)).strip()
    tips = joined([tip for axis in figure.axes for tip in _tips(figure, axis)], "")
    return Markup(f"{text.removesuffix('</svg>')}{tips}</svg>")


def _tips(figure: Figure, axis: Axes) -> list[Markup]:
    """Return circles that nobody sees, with a label and a value, on up to ``MOST_TIPS`` points of every labelled line."""
    scale, height = POINTS / figure.dpi, POINTS * figure.get_size_inches()[1]
    found = []
    for line in axis.get_lines():
        x, y = (np.asarray(values, float) for values in line.get_data())
        label = str(line.get_label()).replace(r"\$", "$")
        if label.startswith("_") or len(x) < 2:  # matplotlib's own names begin so
            continue
        for i in np.unique(np.linspace(0, len(x) - 1, MOST_TIPS).astype(int)):
            across, up = scale * axis.transData.transform((x[i], y[i]))
            if np.isfinite([across, up]).all() and axis.bbox.contains(across / scale, up / scale):
                said = element("title", f"{label}: {y[i]:.4g} at {x[i]:g}")
                found.append(element("circle", said, cx=f"{across:.1f}", cy=f"{height - up:.1f}", r="6", fill="transparent"))
    return found


def figure_with_values(figure: Figure, caption: str, values: str = "") -> Markup:
    """Return a figure of a page: an SVG element with its caption, and ``values`` in words for who does not see it."""
    said = escaped(f"{caption} {values}".strip())
    svg = Markup(svg_of(figure).replace("<svg ", f'<svg role="img" aria-label="{said}" ', 1))
    return element("figure", svg, element("figcaption", caption))
