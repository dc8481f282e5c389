"""Measures of figures by their renderer."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_outside(figure: Figure) -> list[str]:
    """Return texts that lie outside, and axes whose labels do.

    The figure has been written.
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer, page = canvas.get_renderer(), figure.bbox.padded(1.0)
    axes = [one for panel in figure.axes if panel.axison for one in (panel.xaxis, panel.yaxis)]
    ticks = {label for one in axes for label in one.get_ticklabels(which="both")}
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip() and text not in ticks]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in shown]
    boxes += [(f"ticks beside {one.label.get_text()!r}", box) for one in axes if (box := one.get_tightbbox(renderer)) is not None]
    return [words for words, box in boxes if not (page.contains(box.x0, box.y0) and page.contains(box.x1, box.y1))]
