"""One run of a study: an algorithm with its model on one problem, under one delay, in all trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import check_fields
from jaxbandit.core.fields import Described, Words
from jaxbandit.core.showing import html_fields
from jaxbandit.delays import Delay
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.delayed import delay_in_force, policy_in_force
from jaxbandit.engine.inputs import Telling
from jaxbandit.feedback import Policy
from jaxbandit.problems import AbstractProblem
from jaxbandit.study.specify.parts import Origin
from jaxbandit.surrogates import Surrogate

LONGEST_LABEL = 1000  # characters


@dataclasses.dataclass(frozen=True, repr=False)
class Run(Described):
    """One algorithm on one problem: a row of the results, played in every trial of the study.

    Attributes:
      label: name of the run in tables and figures; distinct within a study.
      problem: problem or random family that it is played on.
      algorithm: algorithm that is played.
      model: GP model of the learner, built on the problem's points.
      delay: how late feedback comes, a model of :mod:`jaxbandit.delays`; ``None`` for the problem's own.
      feedback: what the learner does meanwhile, a policy of :mod:`jaxbandit.feedback`; ``None`` for the algorithm's own.
      informed: what the learner is told of each instance, as for :func:`~jaxbandit.simulate`.
      initial: points observed before round 1; all runs of a study count equally many of them in their metrics.
      swept: values of the hyper-parameters that a sweep varies, by their dotted paths.
      algorithm_label: name of the algorithm in results, without its swept values; ``None`` for ``label``.
      problem_label: name of the problem in results; ``None`` for the problem's own name, numbered where different problems share it.
      delay_label: name of the delay in results; ``None`` for its model in words, empty without delay.
      trace_name: name of the algorithm in audit traces, such as ``"cbo_ucb"``; ``None`` for the algorithm's own name.
      origin: how a grid made the run, which a table tells; ``None`` for a run written by hand.
    """

    described: ClassVar[str] = "a Run"
    label: str
    problem: AbstractProblem
    algorithm: Algorithm
    model: Surrogate
    delay: Delay | None = None
    feedback: Policy | None = None
    informed: Telling | None = None
    initial: InitialDesign = InitialDesign()
    swept: Annotated[Mapping[str, Any], Words("a mapping from fields to values")] = dataclasses.field(default_factory=dict)
    algorithm_label: str | None = None
    problem_label: str | None = None
    delay_label: str | None = None
    trace_name: str | None = None
    origin: Origin | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, "Run")
        for name in ("algorithm_label", "problem_label", "delay_label", "trace_name"):
            if getattr(self, name) is not None:
                check_label(f"Run.{name}", getattr(self, name), empty=True)
        check_label("Run.label", self.label)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in self._in_brief())})"

    def _repr_html_(self) -> str:
        """Return a table of what is played."""
        return html_fields(type(self).__name__, self._in_brief())

    def _in_brief(self) -> list[tuple[str, str]]:
        """Return the fields that are set as text; problem and model, which show themselves at length, by name and size."""
        problem, forms = self.problem, " and ".join(dict.fromkeys(form.name for form in self.model.forms))
        given: dict[str, str] = {
            "label": repr(self.label),
            "problem": f"{problem.name} on {problem.domain.size:,} points, {problem.outputs} outputs",
            "algorithm": repr(self.algorithm),
            "model": f"{type(self.model).__name__} of form {forms}",
        }
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_unset = value is None or (isinstance(value, Mapping) and not value) or (isinstance(value, InitialDesign) and not value.count)
            if field.repr and field.name not in given and not is_unset:
                given[field.name] = repr(value)
        return list(given.items())

    @property
    def is_as_made(self) -> bool:
        """Return whether a grid has made the run and nothing but labels of it was changed since."""
        return self.origin is not None and all(getattr(self, name) is value for name, value in self.origin.made.items())

    @property
    def delay_in_force(self) -> Delay:
        """Delay model that the run is played under: its own or the problem's."""
        return delay_in_force(self.problem, self.delay)

    @property
    def policy_in_force(self) -> Policy:
        """Feedback policy that the run is played under: its own or the algorithm's, which is to wait unless it says otherwise."""
        return policy_in_force(self.algorithm, self.feedback)

    @property
    def name_in_traces(self) -> str:
        """Name of the algorithm in audit traces."""
        return self.algorithm.name if self.trace_name is None else self.trace_name


def check_label(name: str, value: object, *, empty: bool = False) -> str:
    """Return a label; raise ``InvalidArgument`` unless it is text that files of results and terminals can hold.

    Args:
      name: what the label is of, for messages.
      value: the label.
      empty: whether it may be empty.
    """
    if not isinstance(value, str) or not (value.strip() or empty):
        raise InvalidArgument(f"{name}: expected text{'' if empty else ' that is not empty'}, got {short(value)}")
    if len(value) > LONGEST_LABEL:
        raise InvalidArgument(f"{name}: at most {LONGEST_LABEL} characters are allowed, got {len(value)}: {short(value)}")
    if any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 or 0xD800 <= ord(letter) < 0xE000 for letter in value):
        raise InvalidArgument(
            f"{name}: control characters, such as line ends and NUL, and halves of surrogate pairs are not allowed, got {short(value)}"
        )
    return value
