"""Objects and tables as text and as HTML for notebooks, with small pictures; NumPy only, so that showing an object imports nothing."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np

CAPTION = "caption-side:top;text-align:left"
LEFT = "text-align:left"
SIDE = 160  # least side of a picture, in pixels
MOST_CELLS = 512  # along a side; finer tables are thinned

# Dark blue to yellow, the ends and quarters of matplotlib's cividis: lightness increases for colour-blind people and in grey print too.
SHADES = np.asarray([(0, 34, 78), (65, 77, 107), (124, 123, 120), (188, 175, 111), (254, 232, 56)], float)
WHITE, MARK = np.asarray([255.0] * 3), np.asarray([213, 94, 0], float)


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


def thumbnail(values: np.ndarray, feasible: np.ndarray, best: tuple[int, int] | None) -> bytes:
    """Return a PNG of a table on a two-dimensional grid: shades of the values, pale where infeasible, a cross at the best point.

    Args:
      values: ``[across, up]`` numbers.
      feasible: ``[across, up]`` booleans.
      best: place of the point to mark.
    """
    thin = tuple(-(-size // MOST_CELLS) for size in values.shape)
    values, feasible = values[:: thin[0], :: thin[1]], feasible[:: thin[0], :: thin[1]]
    finite = values[np.isfinite(values)]
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
    # Where a user's table has NaN or is infinite the picture has an end of its scale; what runs on the table flags such points.
    share = np.nan_to_num((values - low) / max(high - low, 1e-300)).clip(0, 1) * (len(SHADES) - 1)
    below = np.minimum(share.astype(int), len(SHADES) - 2)
    colours = SHADES[below] + (share - below)[..., None] * (SHADES[below + 1] - SHADES[below])
    colours = np.where(feasible[..., None], colours, 0.35 * colours + 0.65 * WHITE)
    zoom = tuple(max(1, -(-SIDE // size)) for size in values.shape)
    pixels = np.repeat(np.repeat(colours, zoom[0], axis=0), zoom[1], axis=1)
    if best is not None:
        _mark(pixels, *((place // step) * size + size // 2 for place, step, size in zip(best, thin, zoom, strict=True)))
    return png(pixels.transpose(1, 0, 2)[::-1])  # the second axis is drawn upwards


def _mark(pixels: np.ndarray, across: int, up: int) -> None:
    """Draw a cross with a white border on ``pixels [across, up, 3]``."""
    for reach, half, colour in ((7, 2, WHITE), (6, 1, MARK)):
        for wide, high in ((reach, half), (half, reach)):
            pixels[max(across - wide, 0) : across + wide + 1, max(up - high, 0) : up + high + 1] = colour


def png(pixels: np.ndarray) -> bytes:
    """Return colours ``[rows, columns, 3]`` in [0, 255] as a PNG file."""
    whole = np.rint(pixels).clip(0, 255).astype(np.uint8)
    rows, columns = whole.shape[:2]
    raw = np.concatenate([np.zeros((rows, 1), np.uint8), whole.reshape(rows, -1)], axis=1).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
