"""Pages from what the library says of itself: one for each algorithm and each paper, and the bibliography.

An algorithm's page is what its class says, with the text in ``algorithms/NAME.md``: difference from the paper, cost, and when it fails.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import jaxbandit as jb
from experiments.common.experiment import Experiment, Options, find_experiments
from jaxbandit.algorithms.safe_sets import Safe
from jaxbandit.core.codec import words_of_fields
from jaxbandit.core.declare import Role, parameters
from jaxbandit.results.citations import entries, papers_in_words

LOGGER = logging.getLogger(__name__)
ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "experiments" / "figures"
# Sizes at which figures of the page are made, where the whole study takes more than some minutes of one core.
SHOWN = {
    "bpe": "replace(EXPERIMENT.defaults, trials=10, points_per_axis=16)",
    "bpe-vs-bpe": "replace(EXPERIMENT.defaults, trials=10, points_per_axis=16)",
    "bpe-delays": "replace(EXPERIMENT.defaults, trials=10, points_per_axis=16)",
    "misspecified": "replace(EXPERIMENT.quick, trials=24, horizon=150, points_per_axis=20)",
    "boxes": "replace(EXPERIMENT.quick, trials=10, horizon=40)",
    "zj22": "replace(EXPERIMENT.defaults, trials=20, horizon=1000)",
    "zj22-stocks": "replace(EXPERIMENT.defaults, horizon=2000)",
    "scgp": "replace(EXPERIMENT.defaults, trials=20, horizon=2000)",
    "data-rate": "replace(EXPERIMENT.defaults, trials=20, points_per_axis=7)",
    "rivals": "replace(EXPERIMENT.defaults, trials=3)",
    "default": "replace(EXPERIMENT.defaults, extra=EXPERIMENT.defaults.extra | {'settings': ('2 axes, 1 constraint', '6 axes')})",
    "hyperparameters": "replace(EXPERIMENT.defaults, trials=3)",
    "config-p": "replace(EXPERIMENT.quick, trials=20, horizon=100, points_per_axis=50)",
    "board": "replace(EXPERIMENT.defaults, trials=10, points_per_axis=20, extra=EXPERIMENT.defaults.extra | {'parts': ('grids', 'late')})",
    "shootout": "replace(EXPERIMENT.quick, trials=20, horizon=200)",
}
KINDS = {kind.name: kind for kind in jb.ALGORITHMS.values()}
SECTIONS = ("## Difference from the paper", "## Cost of a round", "## When it fails")
GREEK = {"eps": r"\epsilon", **{name: rf"\{name}" for name in ("beta", "delta", "eta", "phi", "rho", "tau", "xi", "zeta")}}
LETTERS = {"E_tau": r"E[\tau]", "eta_over_sqrt_t": r"\eta_t / \sqrt t", "min": r"\min"}
WIDTHS = {"reward_width": r"\beta_t", "cost_width": r"\beta_t"}  # of strategies, whose letters papers share


def said_of_fields(kind: type) -> tuple[str, dict[str, str]]:
    """Return the docstring of a class before its fields, and what it says of each, as Markdown."""
    said = {name: re.sub(r":(\w+):`", r"{py:\1}`", words).replace("|", r"\|") for name, words in words_of_fields(kind).items()}
    return inspect.getdoc(kind).partition("\nAttributes:\n")[0], said


def letter(symbol: str) -> str:
    """Return a letter of a paper, such as ``L_init`` or ``phi1``, as a formula."""
    name, index, prime = re.fullmatch(r"([A-Za-z]+?)_?(\d*|(?<=_)\w+)('?)", symbol).groups()
    return f"${LETTERS.get(symbol) or GREEK.get(name, name) + (f'_{{{index}}}' if index else '') + prime}$"


def letters_of(kind: type) -> str:
    """Return the table from a paper's symbols to the fields of the class, and of its strategy's widths."""
    said, rows = said_of_fields(kind)[1], list[str]()
    for given in parameters(kind):
        name, symbol = given.name, letter(given.symbol) if given.symbol and given.symbol != given.name else ""
        default = inspect.signature(kind).parameters[name].default
        shown = "" if default is inspect.Parameter.empty else f"`{default!r}`"
        rows.append(f"| {symbol} | `{name}` | {shown} | {said.get(name, '')} |")
        if isinstance(default, jb.estimators.Strategy):
            own = {field: inspect.signature(type(default)).parameters[field].default for field in WIDTHS}
            rows += [
                f"| ${WIDTHS[field]}$ | `estimator.{field}` | `{value!r}` | see {{py:mod}}`jaxbandit.widths` |"
                for field, value in own.items()
            ]
    return "\n".join(["| In the paper | In the code | Default | |", "| --- | --- | --- | --- |", *rows])


def algorithm_page(kind: type, beside: str) -> str:
    """Return the page of an algorithm, with the text beside the class."""
    name, text = kind.__name__, said_of_fields(kind)[0]
    problem = "{py:func}`~jaxbandit.problems.sine`"
    if issubclass(kind, Safe):
        problem = "functions of {py:func}`~jaxbandit.problems.gp_draws` (30 x 30 points, length-scale 0.25)"
    return f"""# {kind.title}

{{py:class}}`jb.{name} <jaxbandit.algorithms.{name}>`{": " * bool(kind.papers)}{papers_in_words(kind.papers)}

```{{eval-rst}}
.. currentmodule:: jaxbandit.algorithms

{text}
```

```{{figure}} {kind.name}.svg
:alt: average positive regret and violation over 200 rounds, beside random search
:width: 100%

Means of 30 trials on {problem} with 95% intervals, beside random search (`python notebooks/figures.py {name}`).
```

## From symbols to code

{letters_of(kind)}

{beside}

## Cite

{bibtex(kind.papers) if kind.papers else "There is no paper; "}`jb.cite("{kind.name}")` prints jaxbandit's own entry, too.
"""


def bibtex(keys: object) -> str:
    """Return the entries of some papers as a block."""
    return "```bibtex\n" + "\n\n".join(entries()[key] for key in keys) + "\n```\n\n"


def bibliography() -> str:
    """Return all papers in words, with the classes that go by them, and as BibTeX."""
    kinds, lines = [Role], list[str]()
    for kind in kinds:
        kinds += kind.__subclasses__()
    for key in sorted(entries().keys() - {"jaxbandit"}):
        users = sorted(
            {kind.__name__: kind for kind in kinds if key in vars(kind).get("papers", {})}.values(), key=lambda kind: kind.__name__
        )
        named = ", ".join(f"{{py:class}}`~{kind.__module__}.{kind.__name__}`" for kind in users)
        lines.append(f"- {papers_in_words({key: ''})}. {named}")
    return "\n".join(lines) + "\n\n## As BibTeX\n\n" + bibtex(entries())


def options_of(experiment: Experiment) -> str:
    """Return what makes the options that an experiment's figure of the page is made with."""
    return SHOWN.get(experiment.name, "EXPERIMENT.defaults")


def lines_of(experiment: Experiment) -> str:
    """Return the lines that make an experiment's figure of the page, by which ``gallery.py`` makes it."""
    options, plays = options_of(experiment), experiment.play is not None
    return "\n".join(
        [
            *["from dataclasses import replace"] * ("replace" in options),
            *["from pathlib import Path"] * plays,
            f"from {experiment.module} import EXPERIMENT",
            *["from jaxbandit.study import run_study"] * (not plays),
            "",
            *textwrap.wrap(f"options = {options}", 80, subsequent_indent="    ", break_on_hyphens=False),
            f"dataset = {'EXPERIMENT.play(options, Path())' if plays else 'run_study(EXPERIMENT.study(options))'}",
            'EXPERIMENT.draw(dataset).savefig("figure.png")',
            'print(*EXPERIMENT.notes(dataset), sep="\\n")',
        ]
    )


def size_of(options: Options) -> str:
    """Return the size of a study in words."""
    grid = f", {options.points_per_axis} points on an axis" if options.points_per_axis else ""
    return f"{options.trials:,} trials, {options.horizon:,} rounds{grid}"


def chosen(name: str, own: object, every: object) -> str:
    """Return what a study has of an option that it adds, beside all that there is."""
    return f"{len(own)}{f' of {len(every)}' if every else ''} {name}" if isinstance(own, tuple) else f"{name} {own}"


def package_of(experiment: Experiment) -> str:
    """Return the package of a paper's experiments, or ``others``."""
    package = experiment.module.rpartition(".")[0]
    return package.rpartition(".")[2] if re.search(r"\(\d{4}\)", inspect.getdoc(sys.modules[package]) or "") else "others"


def experiments(package: str) -> str:
    """Return the text, the figure and the lines of each experiment of a paper."""
    parts = list[str]()
    for experiment in find_experiments().values():
        if package_of(experiment) != package:
            continue
        first, _, rest = experiment.text.partition("\n")
        full, shown = experiment.defaults, eval(options_of(experiment), {"EXPERIMENT": experiment, "replace": dataclasses.replace})
        fewer = [chosen(name, shown.extra[name], every) for name, every in full.extra.items() if shown.extra[name] != every]
        said = "as in the study" if shown == full else f"where the study, of which the text speaks, has {size_of(full)}"
        parts.append(f"""## {experiment.title}

{first}

```{{figure}} ../../../{(FIGURES / experiment.name).relative_to(ROOT).as_posix()}.png
:alt: {experiment.title}
:width: 100%

{", ".join([*fewer, size_of(shown)])}, {said}: `python -m experiments {experiment.name}`
```

```python
{lines_of(experiment)}
```

{rest.strip()}
""")
    return "\n".join(parts)


def _compose(app: Sphinx, name: str, source: list[str]) -> None:
    """Put what is generated into a page."""
    folder, _, last = name.rpartition("/")
    if folder == "algorithms" and last in KINDS:
        source[0] = algorithm_page(KINDS[last], source[0])
    elif name == "algorithms/index":
        rows = [f"| [{kind.title}]({short}.md) | `{kind.__name__}` | {papers_in_words(kind.papers)} |" for short, kind in KINDS.items()]
        source[0] = source[0].replace("ALGORITHMS", "\n".join(["| Algorithm | Class | Paper |", "| --- | --- | --- |", *rows]))
    elif name == "bibliography":
        source[0] += "\n" + bibliography()
    elif folder == "pages/figures":
        source[0] += "\n" + experiments(last)


def _check_pages(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of algorithms and papers without a page, or whose page lacks a section."""
    for package in {*map(package_of, find_experiments().values())} - {name.rpartition("/")[2] for name in env.found_docs}:
        LOGGER.warning("notebooks/pages/figures/%s.md, the page of the experiments of a paper, is missing", package)
    for name, kind in KINDS.items():
        file = Path(env.srcdir, "algorithms", f"{name}.md")
        lacking = [words for words in SECTIONS if not file.exists() or words not in file.read_text(encoding="utf-8")]
        if lacking:
            LOGGER.warning("notebooks/algorithms/%s.md, the page of %s, lacks %s", name, kind.__name__, ", ".join(lacking))


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the pages with Sphinx."""
    app.connect("source-read", _compose)
    app.connect("env-check-consistency", _check_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
