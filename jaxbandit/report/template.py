"""Pages of reports: one template for results of studies, studies that run and sessions, with figures as small SVG elements."""

from __future__ import annotations

import dataclasses
import io
import re
import zlib
from collections.abc import Iterator
from typing import Any

import jinja2
import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

# Text as outlines looks the same everywhere; names of equal parts are equal, so that a report of equal results is the same file.
STYLE: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxbandit", "path.simplify_threshold": 0.5}
NOISE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>|<!--.*?-->| xmlns(?::\w+)?=\"[^\"]*\"|\n\s*", re.DOTALL)
NAME = re.compile(r' id="([^"]*)"')
REFERENCE = re.compile(r'(href="|url\()#([^")]*)')
PATH = re.compile(r' d="[^"]*"')  # coordinates; other numbers may be small factors
LONG = re.compile(r"(\.\d\d)\d+")  # hundredths of a point are finer than any screen
POINTS = 72  # per inch, the unit of SVG files
MOST_TIPS = 12  # points of a line that show their value
TIP = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="6" fill="transparent"><title>{}: {:.4g} at {:g}</title></circle>')


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of a page: its caption, the figure, and its values in words for who does not see it."""

    caption: str
    figure: Figure
    values: str = ""


def render(kind: str, sections: dict[str, Any], **head: Any) -> str:
    """Return a page that needs no other file: of a ``kind`` ("study", "watched" or "session"), with the sections that are not empty."""
    shown = {name: content for name, content in sections.items() if content}
    return _ENVIRONMENT.get_template("page.html.j2").render(kind=kind, sections=shown, **head)


def svg_of(picture: Picture) -> Markup:
    """Return a figure as SVG, with names that no other figure of a page has; labelled lines show values where the pointer rests."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        picture.figure.savefig(buffer, format="svg")
    text = NOISE.sub(lambda found: " " if found.group().startswith("\n") else "", buffer.getvalue().decode("utf-8"))
    prefix = f"{zlib.crc32(text.encode()):08x}"
    used = {name for _, name in REFERENCE.findall(text)}
    text = NAME.sub(lambda found: f' id="f{prefix}-{found.group(1)}"' if found.group(1) in used else "", text)
    text = PATH.sub(lambda found: LONG.sub(r"\1", found.group()), REFERENCE.sub(rf"\1#f{prefix}-\2", text)).strip()
    start = Markup('<svg role="img" aria-label="{}" ').format(f"{picture.caption} {picture.values}".strip())
    return start + Markup(text.removeprefix("<svg ").removesuffix("</svg>")) + Markup("").join(_tips(picture.figure)) + Markup("</svg>")


def _tips(figure: Figure) -> Iterator[Markup]:
    """Yield circles that nobody sees, with a label and a value, on up to ``MOST_TIPS`` points of every labelled line."""
    scale, height = POINTS / figure.dpi, POINTS * figure.get_size_inches()[1]
    for axis in figure.axes:
        inside = axis.bbox.padded(0.5)  # an end of a line lies on the edge
        for line in axis.get_lines():
            x, y = (np.asarray(values, float) for values in line.get_data())
            label = str(line.get_label()).replace(r"\$", "$")
            if label.startswith("_") or len(x) < 2:  # matplotlib's own names begin so
                continue
            for i in np.unique(np.linspace(0, len(x) - 1, MOST_TIPS).astype(int)):
                across, up = scale * axis.transData.transform((x[i], y[i]))
                if np.isfinite([across, up]).all() and inside.contains(across / scale, up / scale):
                    yield TIP.format(across, height - up, label, y[i], x[i])


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("jaxbandit.report", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True, cache_size=1
)
_ENVIRONMENT.filters["svg"] = svg_of
