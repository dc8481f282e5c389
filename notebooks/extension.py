"""The parts of the site that Sphinx does not have: the public names and where they stand, formulas that need no script, strictness."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from html import unescape
from types import ModuleType
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from skeletons import Skeletons
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import jaxbandit
from jaxbandit import fields

LOGGER = logging.getLogger(__name__)
MOST_LETTERS = 63  # in a line of a formula


def public_modules() -> dict[str, ModuleType]:
    """Return the public modules by the names that users give them, such as ``jaxbandit.fields``, importable by these from now on."""
    found, left = {}, {"jaxbandit": jaxbandit}
    while left:
        name, module = left.popitem()
        found[name] = sys.modules[name] = module
        inner = {f"{name}.{part}": getattr(module, part) for part in dir(module)}
        left |= {part: value for part, value in inner.items() if inspect.ismodule(value) and part not in found}
    return found


MODULES = public_modules()


def home(name: str, value: object) -> str:
    """Return the public module in which an object is described, of those that list it: the nearest to its definition."""
    places = [
        place for place, module in MODULES.items() if place != "jaxbandit" and getattr(module, name, None) is value and name in dir(module)
    ]
    near = [place for place in places if f"{getattr(value, '__module__', '')}.".startswith(f"{MODULES[place].__name__}.")]
    return max(near, key=len) if near else (places or ["jaxbandit"])[0]


def speaks(value: object) -> bool:
    """Return whether an object has a docstring of its own, where others are commented on."""
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)


def comment_on(name: str, value: object) -> str:
    """Return what stands beside a number, a table or a type where it is defined, or what a check says of itself."""
    if isinstance(value, fields.Check | fields.Shape):
        return f"Check for {value.allowed}." if isinstance(value, fields.Check) else f"Shape: {value.described()}."
    for module in [module for place, module in sys.modules.items() if place.startswith("jaxbandit")]:
        if vars(module).get(name) is value:
            analyser = ModuleAnalyzer.for_module(module.__name__)
            analyser.analyze()
            if ("", name) in analyser.attr_docs:
                return "\n".join(analyser.attr_docs["", name])
    return ""


class Public(SphinxDirective):
    """Describe a public module: ``{public} jaxbandit.kernels``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        module = MODULES[name]
        own = {part: value for part in dir(module) if home(part, value := getattr(module, part)) == name and not inspect.ismodule(value)}
        objects = [part for part, value in own.items() if speaks(value)]
        lines = [f".. automodule:: {name}", f"   :members: {', '.join(objects)}" if objects else ""]
        for part in own.keys() - objects:
            lines += ["", f".. py:data:: {part}", "", textwrap.indent(comment_on(part, own[part]), "   ")]
        return self.parse_text_to_nodes("````{eval-rst}\n" + "\n".join(lines) + "\n````")


def found(name: str) -> tuple[int, str] | None:
    """Return what tells an object from others wherever it is listed, or ``None`` if there is none of that name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        owner = value
        for part in parts[cut:]:
            owner, value = value, inspect.getattr_static(value, part, None) or getattr(value, part, None)
            if value is None:
                known = part in getattr(owner, "__annotations__", {})
                return (id(owner), part) if known else None
        if speaks(value):
            return id(value), ""
        return (id(value) if inspect.ismodule(owner) else id(owner)), parts[-1]
    return None


def _resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Resolve a reference to a public object by any of the names that it is imported by."""
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    if not hasattr(env, "described"):
        env.described = {key: name for name, entry in domain.objects.items() if not entry.aliased and (key := found(name))}
    source = (node.source or "").rpartition("docstring of ")[2].split(".")
    context = [node.get("py:class"), node.get("py:module"), *(".".join(source[:cut]) for cut in range(len(source), 0, -1))]
    for place in ["", *(f"{place}." for place in context if place)]:
        name = env.described.get(found(f"{place}{node['reftarget']}"))
        if name is not None:
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, text)
    return None if "refwarn" in node else text  # what no role has asked for is a type, of Python's or another library's


def _check_coverage(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of every public name that no page describes, or that says nothing of itself."""
    described = {found(name) for name in env.domains.python_domain.objects}
    for name, module in MODULES.items():
        for part in dir(module):
            value = getattr(module, part)
            if found(f"{name}.{part}") not in described:
                LOGGER.warning("%s.%s is public, and no page of the reference describes it", name, part)
            elif not (inspect.getdoc(value) if speaks(value) else comment_on(part, value)):
                LOGGER.warning("%s.%s is public, and says nothing of itself", name, part)


def _say_fields(app: Sphinx, what: str, name: str, value: object, options: Any, lines: list[str]) -> None:
    """Describe fields by the comments beside them, where the docstring does not; name types and several fields at once in short."""
    names = re.compile(r"^:(?:ivar|param) [^:]*,[^:]*:")  # of which Sphinx would take the first for a type
    types = re.compile(r"^(:(?:vartype|type) .*?:)(.*)")
    for at, line in enumerate(lines):
        line = names.sub(lambda found: found[0].replace(", ", ",\u200b"), line)
        lines[at] = types.sub(lambda found: found[1] + re.sub(r"(?:\w+\.)+(\w+)", r"\1", found[2]), line)
    if inspect.isclass(value) and dataclasses.is_dataclass(value) and not any(line.startswith(":ivar") for line in lines):
        comments = re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(value), re.MULTILINE)
        beside = {field: comment.replace("|", r"\|") for field, comment in comments}
        lines += ["", *(f":ivar {field}: {beside[field]}" for field in value.__annotations__ if field in beside), ""]


def _formula(writer: Any, node: nodes.Node, display: str) -> None:
    """Write a formula as MathML, which browsers show without a script from elsewhere."""
    formula = node.astext().replace(r"\arg\m", r"\operatorname{arg}\m")
    lines = [convert(line.replace("&", "")) for line in formula.split(r"\\")] if display == "block" else []
    if len(lines) > 1:  # browsers break no lines of MathML, but have tables of it
        formula = rf"\begin{{array}}{{{'rl' if '&' in formula else 'l'}}}{formula}\end{{array}}"
    if any(len(re.sub(r"<[^>]*>", "", unescape(line))) > MOST_LETTERS for line in lines):
        LOGGER.warning("a formula is too wide for a window of 1,300 pixels, break it by \\\\: %s", node.astext(), location=node)
    written = convert(formula, display=display)
    if "\\" in written:
        LOGGER.warning("a formula has a command that MathML lacks: %s", node.astext(), location=node)
    writer.body.append(written)
    raise nodes.SkipNode


def _fail_on_warnings(app: Sphinx, exception: Exception | None) -> None:
    """End with an error where anything was warned of, and forget what was read, so that the next build warns again."""
    if app._warncount and exception is None:
        app.statuscode = 1
        (app.doctreedir / "environment.pickle").unlink(missing_ok=True)


def _keep_outputs(app: Sphinx) -> None:
    """Have the figures of notebooks unpacked inside the folder that is built, where myst_nb puts them beside it."""
    app.env.mystnb_config = app.env.mystnb_config.copy(output_folder=str(app.doctreedir / "outputs"))


def _write_contents(app: Sphinx, exception: Exception | None) -> None:
    """Write ``llms.txt``: every page of the side bar with its address and its first paragraph."""
    if exception is not None or app.builder.format != "html":
        return
    includes = app.env.toctree_includes
    names = [*includes.get("index", ()), *(name for names in includes.values() for name in names)]
    lines = []
    for name in ["index", *dict.fromkeys(names)]:
        paragraph = next(iter(app.env.get_doctree(name).findall(nodes.paragraph)), None)
        words = "" if paragraph is None else f": {' '.join(paragraph.astext().split())}"
        lines.append(f"- [{app.env.titles[name].astext()}]({app.builder.get_target_uri(name)}){words}")
    (app.outdir / "llms.txt").write_text("\n".join([f"# {app.config.project}", "", *lines, ""]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the parts with Sphinx."""
    inline, block = (lambda writer, node, display=display: _formula(writer, node, display) for display in ("inline", "block"))
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("builder-inited", _keep_outputs, priority=900)  # after myst_nb
    app.add_directive("public", Public)
    app.add_directive("skeletons", Skeletons)
    app.connect("autodoc-process-docstring", _say_fields, priority=900)  # after napoleon
    app.connect("missing-reference", _resolve)
    app.connect("env-check-consistency", _check_coverage)
    app.connect("build-finished", _write_contents)
    app.connect("build-finished", _fail_on_warnings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
