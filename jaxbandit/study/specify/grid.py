"""Runs of every combination of problems, algorithms, hyper-parameters and delays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, TypeAlias

from jaxbandit.algorithms import Algorithm
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import Table, digest, exact, from_plain, from_value, to_fields
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Words
from jaxbandit.core.paths import set_field
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.inputs import Rounds, Telling
from jaxbandit.informed import Rule
from jaxbandit.problems import AbstractProblem, full_information
from jaxbandit.study.specify.model import Model
from jaxbandit.study.specify.parts import Learner, Origin, Parts, Row
from jaxbandit.study.specify.run import Policy, Run
from jaxbandit.surrogates import Surrogate

MODEL = "model."  # what the path of a swept field of the model begins with
Facts: TypeAlias = Telling | None
GridModel: TypeAlias = Annotated[Model, Words("the models of a grid, Model(...)")]


@checked
def grid(
    *,
    problems: Mapping[str, AbstractProblem | Table],
    algorithms: Mapping[str, Algorithm | Table],
    horizon: Rounds,
    delays: Mapping[str, Delay | Table] | None = None,
    model: GridModel = Model(),
    sweeps: Mapping[str, Annotated[Mapping[str, Sequence[Any]], Words("a mapping from fields to values")]] | None = None,
    zipped: Sequence[str] | Annotated[Set[str], Words("a set of labels")] = (),
    models: Mapping[str, GridModel] | None = None,
    feedback: Mapping[str, Policy | Table] | None = None,
    informed: Mapping[str, Facts | Table] | None = None,
    initial: InitialDesign = InitialDesign(),
) -> list[Run]:
    """Return the runs of all problems x algorithms x delays x hyper-parameters, as a list that :class:`Study` takes.

    Problems, algorithms, delays and the like are given as objects, or as tables ``{"type": "sine", "points_per_axis": 50}`` of what
    makes them, as in a study file. A study of tables, or of objects that can be written as tables, can be played again from its results
    alone; problems are written only as the tables that they were given as. Lists of several grids are joined by ``[*one, *other]``.

    Args:
      problems: problems or families by label. An algorithm that sees constraint functions is given the problem with
        :func:`~jaxbandit.problems.full_information`.
      algorithms: algorithms by label.
      horizon: rounds of the study, ``T``, for which models are made.
      delays: delay models by label; default no delay, whatever the problems' own.
      model: GP model of all learners that have none of their own.
      sweeps: by the label of an algorithm, the values to try of hyper-parameters named by dotted paths
        (``{"rpol": {"estimator.reward_width": [1.0, 2.0], "model.noise_variance": [0.05, 0.1]}}``); every combination is a run.
      zipped: labels of the algorithms whose swept values go together instead, first with first.
      models: own models, by the label of an algorithm.
      feedback: own feedback policies, by the label of an algorithm; default what each algorithm says.
      informed: what learners are told of each instance, by the label of an algorithm.
      initial: points observed before round 1.

    Raises:
      InvalidArgument: on unknown names and fields, static fields that are swept, and parts that do not fit each other.
    """
    own: dict[str, Any] = {"sweep": sweeps, "model": models, "feedback": feedback, "informed": informed}
    for name, labels in {"sweeps": sweeps, "zipped": zipped, "models": models, "feedback": feedback, "informed": informed}.items():
        for label in labels or ():
            checks.one_of(name, label, tuple(algorithms))
    learners = {
        label: Learner(item, zipped=label in zipped, **{name: items[label] for name, items in own.items() if label in (items or {})})
        for label, item in algorithms.items()
    }
    return runs_of(Parts(problems, {"none": NoDelay()} if delays is None else delays, learners, model, initial, horizon))


def runs_of(parts: Parts, rows: Sequence[Row] | None = None) -> list[Run]:
    """Return the runs of a grid, or of some ``rows`` of it; raises ``InvalidArgument`` on parts that are missing or do not fit."""
    known = {"problem": parts.problem, "algorithm": parts.algorithm, "delay": parts.delay}
    for name, items in known.items():
        if not items:
            raise InvalidArgument(f"{name}s: there is none, got {{}}; give at least one by a label")
        for row in rows or ():
            checks.one_of(f"run.{name}", getattr(row, name), tuple(items))
    return list(_made(parts, parts.rows() if rows is None else rows))


def _made(parts: Parts, rows: Sequence[Row]) -> Iterator[Run]:
    """Return the runs of some rows of a grid; equal models on one problem are made once."""
    problems = {label: from_plain(AbstractProblem, item, f"problem.{label}") for label, item in parts.problem.items()}
    delays = {label: from_plain(Delay, item, f"delay.{label}") for label, item in parts.delay.items()}
    algorithms = {label: from_plain(Algorithm, learner.algorithm, f"algorithm.{label}") for label, learner in parts.algorithm.items()}
    parts.model.validate("model")
    revealed: dict[str, AbstractProblem] = {}
    surrogates: dict[tuple[str, bool, str], Surrogate] = {}
    for row in rows:
        where, algorithm, learner = f"algorithm.{row.algorithm}", algorithms[row.algorithm], parts.algorithm[row.algorithm]
        problem = problems[row.problem]
        if algorithm.traits.sees_constraints and not problem.reveals_constraints:
            problem = revealed.setdefault(row.problem, full_information(problem))
        model = given = learner.model or parts.model
        swept = {path: from_value(value, f"{where}.sweep.{path}") for path, value in row.sweep.items()}
        for path, value in swept.items():
            if path.startswith(MODEL):
                model = set_field(model, path.removeprefix(MODEL), value, f"{where}.sweep.{path}")
            else:
                algorithm = set_field(algorithm, path, value, f"{where}.sweep.{path}")
        where_model = f"{where}.model" if learner.model or model is not given else "model"
        model.validate(where_model)
        of = (row.problem, problem is problems[row.problem])
        key, common = ((*of, digest(exact(each))) for each in (model, model.at_middle()))
        if common not in surrogates:
            surrogates[common] = model.at_middle().of(problem.domain, problem.outputs, parts.horizon + parts.initial.count, where_model)
        if key not in surrogates:
            surrogates[key] = set_field(surrogates[common], "length_scale", model.length_scale, f"{where_model}.length_scale")
        made: dict[str, Any] = {
            "problem": problem,
            "algorithm": algorithm,
            "model": surrogates[key],
            "delay": delays[row.delay],
            "feedback": from_plain(Policy, learner.feedback, f"{where}.feedback"),
            "informed": from_plain(Rule, learner.informed, f"{where}.informed"),
            "initial": parts.initial,
            "swept": swept,
        }
        yield Run(
            row.label,
            **made,
            algorithm_label=row.algorithm,
            problem_label=row.problem,
            delay_label=row.delay,
            origin=Origin(parts, row, made),
        )


def table_of(runs: Sequence[Run], horizon: int) -> dict[str, Any]:
    """Return runs of one or several grids, all of whose labels are known, as a study file has them.

    The file names runs one by one where they are not all combinations of their parts.

    Raises:
      InvalidArgument: on runs that no grid made, or that were changed since in more than their labels, on parts that cannot be written as
        tables, and on different parts under one label.
    """
    sections: dict[str, dict[str, Any]] = {"problem": {}, "delay": {}, "algorithm": {}}  # as a file has them
    origins = [run.origin for run in runs if run.origin is not None and run.is_as_made]
    if len(origins) < len(runs):
        raise InvalidArgument("runs: written by hand, they cannot be written as a table; make them by grid from tables")
    first = origins[0].parts
    rows = [Row(run.label, str(run.problem_label), str(run.algorithm_label), str(run.delay_label), run.swept) for run in runs]
    given: dict[tuple[int, str, str, str], Parts] = {}  # in the order of the runs, of equal ones the first
    for row, origin in zip(rows, origins, strict=True):
        if origin.parts.horizon != horizon:
            raise InvalidArgument(f"runs: the grid was made for {origin.parts.horizon} rounds, not for {horizon}")
        for kind in sections:
            given.setdefault((id(origin.parts), kind, getattr(origin.row, kind), getattr(row, kind)), origin.parts)
    for (_, kind, own, label), parts in given.items():
        table = parts.table(kind, own, f"{kind}.{label}", first.model)
        if sections[kind].setdefault(label, table) != table:
            raise InvalidArgument(f"runs: {kind} {label!r} is not the same in all of them; give each a {kind}_label of its own")
    initial = to_fields(first.initial, "initial")
    if any(to_fields(origin.parts.initial, "initial") != initial for origin in origins):
        raise InvalidArgument("runs: a table has one initial design for all of them, and they have several")
    every = Parts(
        sections["problem"],
        sections["delay"],
        {label: Learner(None, table.get("sweep"), table.get("zipped", False)) for label, table in sections["algorithm"].items()},
    ).rows()
    written, combined = ([to_fields(row, "run") for row in each] for each in (rows, every))
    return {"initial": initial, "model": first.model.table(), **sections} | ({"run": written} if written != combined else {})
