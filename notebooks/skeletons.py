"""Skeletons of scripts for every combination of five choices, and the page that shows one of them."""

from __future__ import annotations

import html
import itertools
import json
import textwrap
from collections.abc import Iterator

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

CHOICES = {
    "values": ("Who gives the values?", {"function": "a Python function", "hand": "somebody, days later"}),
    "inputs": ("What may be set?", {"ranges": "ranges of numbers", "steps": "numbers in steps", "parts": "parts of a mixture"}),
    "limit": ("Is there a limit on an output?", {"yes": "yes", "no": "no"}),
    "fails": ("May a run fail?", {"no": "no", "yes": "yes"}),
    "flight": ("How many runs at a time?", {"one": "one", "four": "four"}),
}
# Parameters, axes, outputs, known constraints, and the values of the first parameter at which the limit and the failures begin.
INPUTS = {
    "ranges": ("x, y", 'axes = {"x": (0.0, 10.0), "y": jb.domains.log(1e-4, 1e-1)}', '{"reward": -((x - 3) ** 2) - y}', "", ("5", "8")),
    "steps": (
        "x, y",
        'axes = [\n    Axis.between("x", 0, 10, 21),\n    Axis.of_categories("y", ["red", "green", "blue"]),\n]',
        '{"reward": -((x - 3) ** 2) + (y == "red")}',
        "",
        ("5", "8"),
    ),
    "parts": (
        "a, b, c",
        'axes = {"a": (0.0, 1.0), "b": (0.0, 1.0), "c": (0.0, 1.0)}',
        '{"reward": a + 2 * b - 3 * a * b}',
        'such_that = ["a + b + c = 1"]',
        ("0.5", "0.8"),
    ),
}


def skeleton(values: str, inputs: str, limit: str, fails: str, flight: str) -> str:
    """Return the script for a choice of each of ``CHOICES``."""
    names, axes, outcome, known, (most, failing_from) = INPUTS[inputs]
    first = names[0]
    by_function, pooled, failing = values == "function", flight == "four", fails == "yes"
    goals = ['"objective": "maximise reward"']
    if limit == "yes":
        outcome = outcome.replace("}", f', "cost": {first}}}')
        goals.append(f'"constraints": ["cost <= {most}"]')
    if known:
        goals.append('"such_that": such_that')
    lines = ["from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait", ""] if by_function and pooled else []
    lines += ["import jaxbandit as jb", *(["from jaxbandit.session import Axis"] if inputs == "steps" else []), ""]
    if by_function:
        lines += ["", f"def run({names}):", '    """Put your experiment here."""']
        if failing:
            lines += [f"    if {first} > {failing_from}:", '        raise RuntimeError("failed")']
        lines += [f"    return {outcome}", "", ""]
    lines += [axes, *([known] if known else []), f"goals = {{{', '.join(goals)}}}"]
    if by_function and not pooled:
        caught = ", catch=RuntimeError" if failing else ""
        lines += [f'found = jb.optimise(run, axes, evaluations=40{caught}, directory="runs", **goals)', "print(found)"]
    elif by_function:
        lines += ['with jb.Session.create("runs", axes, key=0, **goals) as session, ThreadPoolExecutor(4) as pool:']
        told = "session.tell(ticket, future.result())"
        tell = [told] if not failing else ["try:", f"    {told}", "except RuntimeError:", "    session.tell(ticket, failed=True)"]
        body = f"""\
jobs = {{pool.submit(run, **ticket.point): ticket for ticket in session.ask(4)}}
left = 36  # runs beside the first four
while jobs:
    for future in wait(jobs, return_when=FIRST_COMPLETED).done:
        ticket = jobs.pop(future)
{textwrap.indent(chr(10).join(tell), "        ")}
        if left > 0:
            left, ticket = left - 1, session.ask()
            jobs[pool.submit(run, **ticket.point)] = ticket
print(session.recommend())"""
        lines += [textwrap.indent(body, "    ")]
    else:
        asked = "session.ask(4)" if pooled else "[session.ask()]"
        lines += ['with jb.Session.create("runs", axes, key=0, **goals) as session:']
        lines += [f"    for ticket in {asked}:", "        print(ticket)", ""]
        told = '{"reward": 1.2, "cost": 3.4}' if limit == "yes" else '{"reward": 1.2}'
        lines += ["# Days later, by the number of the ticket, and then ask again:", 'with jb.Session.open("runs") as session:']
        lines += [f"    session.tell(1, {told})"]
        if failing and pooled:
            lines += ["    session.tell(2, failed=True)"]
        elif failing:
            lines += ["    print(session.ask())", "    session.tell(2, failed=True)"]
        lines += ["    print(session.ask())", "    print(session.recommend())"]
    return "\n".join(lines) + "\n"


def skeletons() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each combination of choices with its script."""
    for chosen in itertools.product(*(options for _, options in CHOICES.values())):
        yield chosen, skeleton(*chosen)


class Skeletons(SphinxDirective):
    """Show the choices, and the script of those made. A browser without scripts shows the first."""

    def run(self) -> list[nodes.Node]:
        texts = {" ".join(chosen): script for chosen, script in skeletons()}
        rows = []
        for name, (question, options) in CHOICES.items():
            each = "".join(f'<option value="{value}">{html.escape(words)}</option>' for value, words in options.items())
            rows.append(f'<p><label>{html.escape(question)} <select name="{name}">{each}</select></label></p>')
        first = html.escape(next(iter(texts.values())))
        data = json.dumps(texts).replace("<", "\\u003c")
        script = (
            f"const scripts = {data}, form = document.getElementById('skeleton');"
            "const show = () => { document.getElementById('script').textContent ="
            " scripts[[...form.elements].map(one => one.value).join(' ')]; };"
            "form.addEventListener('change', show); show();"
        )
        shown = f'<div class="highlight"><pre id="script">{first}</pre></div>'
        text = f'<form id="skeleton">{"".join(rows)}</form>{shown}<script>{script}</script>'
        return [nodes.raw("", text, format="html")]
