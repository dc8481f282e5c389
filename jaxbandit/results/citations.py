"""Papers behind algorithms, runs and studies, as BibTeX and in words.

Each class names its papers itself, as ``papers = {"guo2022": "sec. 3-4"}``, by their keys in ``references.bib``.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jaxbandit._version import __version__
from jaxbandit.algorithms.registry import ALGORITHMS
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Role
from jaxbandit.core.sweep import Sweep
from jaxbandit.results.trajectory import Trajectory


@functools.cache
def entries() -> Mapping[str, str]:
    """Return all BibTeX entries by their keys, after the entry of jaxbandit."""
    text = (Path(__file__).parent / "references.bib").read_text(encoding="utf-8").replace("VERSION", __version__)
    return {re.split("[{,]", entry)[1]: entry.strip() for entry in re.split(r"\n(?=@)", text)}


def papers_in_words(papers: Mapping[str, str]) -> str:
    """Return papers in words, ``"Lu, Paulson (2022), *No-regret ...*"``, with their parts."""
    words = []
    for key, part in papers.items():
        fields = dict(re.findall(r"^  (\w+) = {+(.*?)}+,$", entries()[key], re.MULTILINE))
        families = [author.partition(",")[0] for author in fields["author"].split(" and ")]
        authors = ", ".join(families) if len(families) < 5 else f"{families[0]} et al."
        words.append(f"{authors} ({fields['year']}), *{fields['title']}*{part and ', ' + part}")
    return "; ".join(words)


def cite(used: object) -> str:
    """Return BibTeX of jaxbandit and of the papers of all parts used.

    Args:
      used: an algorithm, its class or its name, such as ``"rpol"``; a run of :func:`jaxbandit.simulate`; a run of a study, a study, or
        several of these. Algorithms inside others, strategies, widths and feedback policies count, too.

    Raises:
      InvalidArgument: on anything else.
    """
    kinds = list(_kinds(ALGORITHMS[used] if isinstance(used, str) else used))
    if not kinds:
        raise InvalidArgument(f"used: must be an algorithm, a run, a study or several of these, got {short(used)}")
    keys = {"jaxbandit": "", **{key: "" for kind in kinds for key in kind.papers}}
    return "\n\n".join(entries()[key] for key in keys)


def _kinds(part: object) -> Iterator[type[Role]]:
    """Yield the class of every part that has a role."""
    if isinstance(part, type) and issubclass(part, Role):
        yield part
    elif isinstance(part, Sweep | Trajectory):
        yield from _kinds(part.pick(0) if isinstance(part, Sweep) else part.made)
    elif isinstance(part, Mapping | Sequence) and not isinstance(part, str):
        for item in part.values() if isinstance(part, Mapping) else part:
            yield from _kinds(item)
    elif dataclasses.is_dataclass(part):
        if isinstance(part, Role):
            yield type(part)
        for field in dataclasses.fields(part):
            yield from _kinds(getattr(part, field.name))
