"""The parts of the site that Sphinx does not have: formulas that need no script, and warnings that are errors."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _formula(writer: Any, node: nodes.Node, display: str) -> None:
    """Write a formula as MathML, which browsers show without a script from elsewhere."""
    writer.body.append(convert(node.astext(), display=display))
    raise nodes.SkipNode


def _fail_on_warnings(app: Sphinx, exception: Exception | None) -> None:
    """End with an error where anything was warned of, and forget what was read, so that the next build warns again."""
    if app._warncount and exception is None:
        app.statuscode = 1
        (app.doctreedir / "environment.pickle").unlink(missing_ok=True)


def _keep_outputs(app: Sphinx) -> None:
    """Have the figures of notebooks unpacked inside the folder that is built, where others put them beside it."""
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=str(app.doctreedir / "outputs"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts with Sphinx."""
    inline, block = (lambda writer, node, display=display: _formula(writer, node, display) for display in ("inline", "block"))
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("builder-inited", _keep_outputs, priority=900)  # after myst_nb
    app.connect("build-finished", _fail_on_warnings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
