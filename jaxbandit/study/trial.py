"""One trial of a study: reruns from results, and audit traces.

An audit trace has plain arrays, enough to recompute every decision elsewhere.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import jax
import numpy as np

import jaxbandit
from jaxbandit import kernels
from jaxbandit.core.checks import InvalidArgument, one_of, short
from jaxbandit.core.codec import readable_plain
from jaxbandit.core.declare import checked, symbols
from jaxbandit.core.fields import whole
from jaxbandit.core.pytree import canonicalise
from jaxbandit.delays import NEVER
from jaxbandit.domains import Box, Contextual
from jaxbandit.engine.arguments import at_once
from jaxbandit.results.dataset import Results, assembled, header
from jaxbandit.study.plan import Batch, Limits, make_plan
from jaxbandit.study.play import Player
from jaxbandit.study.run import attributes, contents_of
from jaxbandit.study.runs import Run
from jaxbandit.study.study import Keep, Study, from_table, in_its_arithmetic

if TYPE_CHECKING:
    import xarray as xr


def _of_another_version(dataset: xr.Dataset) -> str:
    """Return a remark on results of another version, or empty text."""
    try:
        version = json.loads(dataset.attrs["versions"])["jaxbandit"]
    except (KeyError, TypeError, ValueError, RecursionError):
        version = "an unknown one"
    own = jaxbandit.__version__
    return "" if version == own else f"; they were written by another version of jaxbandit ({version}, this is {own})"


def _parsed(dataset: xr.Dataset, name: str) -> Any:
    """Return a JSON attribute of results, or raise ``InvalidArgument``."""
    try:
        return json.loads(dataset.attrs[name])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"results: their attribute {name!r} is missing or broken{_of_another_version(dataset)}") from error


@checked
def rerun(dataset: Results, trial: Annotated[int, whole(0)], *, label: str | None = None, study: Study | None = None) -> xr.Dataset:
    """Run one trial again, and return its rounds, points and values exactly.

    Args:
      dataset: results of a study.
      trial: number of the trial, from 0.
      label: label of the run, along ``algorithm``; default the first.
      study: the study, for results without it, such as results on problems that no table describes.

    Raises:
      InvalidArgument: when there is no such run or trial, or when the results have no study and the argument is missing or another study.
    """
    return _again(study_of(dataset) if study is None else study, dataset, trial, label)


def study_of(dataset: xr.Dataset) -> Study:
    """Return the study of results, or raise ``InvalidArgument``."""
    if not str(dataset.attrs.get("table", "")):
        raise InvalidArgument(
            "results: they do not hold the study, for no table describes its runs; build the study in Python as it was, and"
            " give it to jaxbandit.study.rerun"
        )
    try:
        return from_table(_parsed(dataset, "table"))
    except InvalidArgument as error:
        raise InvalidArgument(f"results: the study that they hold cannot be made here: {error}{_of_another_version(dataset)}") from error


@in_its_arithmetic
def _again(study: Study, dataset: xr.Dataset, trial: int, label: str | None) -> xr.Dataset:
    if study.fingerprint() != str(dataset.attrs.get("fingerprint")):
        raise InvalidArgument(f"study: it is not the one that these results are of{_of_another_version(dataset)}")
    if trial >= study.trials:
        raise InvalidArgument(f"trial: the study has trials 0 to {study.trials - 1}, got {trial}")
    labels = [run.label for run in study.runs]
    if "algorithm" not in dataset.coords or [str(name) for name in np.atleast_1d(dataset.algorithm.values)] != labels:
        raise InvalidArgument(f"results: their runs are not those of the study, {short(labels)}{_of_another_version(dataset)}")
    label = labels[0] if label is None else label
    one_of("run", label, labels)
    everything = dataclasses.replace(study, keep=Keep(every=1), trajectories=True)
    plan, layout = make_plan(everything, memory=Limits.allowed_bytes, devices=jax.local_devices()[:1]), _parsed(dataset, "batches")
    try:
        plan = plan.with_layout(layout)
        fits = plan.layout == layout and all(1 <= row[3] <= row[0] and row[2] <= study.horizon for row in layout)
    except (TypeError, ValueError, ArithmeticError):
        fits = False
    if not fits:
        raise InvalidArgument(f"results: their batches, {short(layout)}, are none of this study")
    # The trial runs in a block of copies of itself, as large as before and in the same parts: only then rounding is equal.
    number = labels.index(label)
    cell = next(cell for cell in plan.cells if number in cell.runs)
    block = cell.cell.block
    batch = Batch(cell.cut(block, cell.rounds, block), 0, list(cell.runs).index(number) * study.trials + trial, 1)
    arrays, _ = Player(plan, left=lambda: [batch]).play(batch)
    contents = contents_of(plan)
    rows = [row for row in contents.rows if row.label == label]
    single = dataclasses.replace(contents, rows=rows, trials=[trial], problems=[cell.cell.problem])
    variables = single.variables([arrays])
    head = header(single, attributes(dataclasses.replace(plan, runs=(plan.runs[number],))), variables)
    return assembled(head, variables, single.pieces(variables, 0, arrays, np.zeros((1, 2), int)))


@checked
@in_its_arithmetic
def audit(study: Study, run: Run, trial: Annotated[int, whole(0)]) -> dict[str, np.ndarray]:
    """Return the audit trace of one trial of a run.

    Its arrays are ``domain [M, d]``, ``means [1 + m, M]``, ``indices [T]``, ``rewards [T]``, ``costs [T, m]``, ``multipliers [T + 1, m]``
    (at rounds 1..T+1), ``arr_r [T]`` and ``arr_c [T]`` (``[T, m]`` unless ``m = 1``; the round, counted from 1, at whose end a value
    arrives: a round beyond ``T`` is after the run, ``delays.NEVER = 2^30`` means never), ``beta_f_t [T]``, ``beta_g_t [T]`` (``[T, m]``
    unless ``m = 1``), ``initial_indices [n]``, ``initial_values [n, 1 + m]``, ``declared_round``, ``status``, and ``meta``, a JSON string
    with the algorithm and its parameters. Among these are ``delay``, the model of the delays, and ``feedback``, the policy: ``wait``,
    ``hallucinate``, or ``censor`` with its window ``m`` and the value ``min`` for values that have not arrived. A randomised rule adds its
    draws: ``draw_f [T]`` and ``draw_g [T]`` (``[T, m]`` unless ``m = 1``) as multiples of ``sigma`` (the estimate is ``mu + draw sigma``),
    or ``draw_f [T, M]`` and ``draw_g [T, M]`` (``[T, m, M]``) as whole functions for Thompson sampling. A refitted model adds
    ``length_scales [T, G, a]`` at rounds 1..T, of each group ``G`` of outputs, on each axis or on all.

    On a domain with contexts the trace adds ``contexts [T]``, the numbers of the rounds' contexts, and the ``meta`` has ``contexts``: the
    names of their axes, and their probabilities ``[Z]``. Point ``z A + a`` has context ``z``.

    On a box ``domain [C, d]`` has the candidates and ``means`` their values, and the trace adds ``initial_points [n, d]`` and
    ``points [T, d]``, in the units of the axes. Indices number the rows of these three tables, one below the other, and the ``meta`` of the
    algorithm has a ``box``: the names, scales and ends of its sides, and parameters of the search.

    Raises:
      InvalidArgument: when there is no such trial.
    """
    if trial >= study.trials:
        raise InvalidArgument(f"trial: must be < {study.trials}, the number of trials, got {trial}; raise --trials")
    played = jax.tree.map(lambda x: np.asarray(x)[0], study.trajectory(run, trials=[trial], record="audit"))
    at_once = np.arange(1, study.horizon + 1, dtype=np.int32)[:, None]
    arrivals = np.broadcast_to(at_once, played.values.shape) if played.arrivals is None else np.minimum(played.arrivals, NEVER)
    arrays = {
        "domain": np.asarray(run.problem.domain.points),
        "means": np.asarray(study.instance(run.problem, trial).means),
        "indices": played.indices,
        "rewards": played.values[:, 0],
        "costs": played.values[:, 1:],
        "multipliers": played.multipliers,
        "arr_r": arrivals[:, 0],
        "arr_c": _single(arrivals[:, 1:]),
        "beta_f_t": played.widths[:, 0],
        "beta_g_t": _single(played.widths[:, 1:]),
        "initial_indices": played.initial_indices,
        "initial_values": played.initial_values,
        "declared_round": played.declared_round,
        "status": played.status,
        "meta": np.asarray(json.dumps(_meta(study, run, trial))),
    }
    if isinstance(domain := run.problem.domain, Contextual):
        arrays["contexts"] = played.indices // domain.actions
    if played.points is not None:
        arrays |= {"initial_points": played.initial_points, "points": played.points}
    if played.length_scales is not None:
        arrays["length_scales"] = played.length_scales
    if played.draws is not None:
        arrays["draw_f"] = played.draws[:, 0]
        # A rule that draws one combined function has no draws of the constraints.
        if played.draws.shape[1] > 1:
            arrays["draw_g"] = _single(played.draws[:, 1:])
    return arrays


def _single(per_constraint: np.ndarray) -> np.ndarray:
    """Return ``[T, m, ...]`` without its second axis if ``m = 1``."""
    return per_constraint[:, 0] if per_constraint.shape[1] == 1 else per_constraint


def _meta(study: Study, run: Run, trial: int) -> dict[str, object]:
    """Return the algorithm, its parameters by the papers' letters, and origin."""
    records = [kernel_record(kernel) for kernel in run.model.kernels_in_force]
    delay, policy = run.delay_in_force, run.policy_in_force
    # The parameters include facts of the delays and of the trial's instance.
    algorithm, model = run.algorithm if at_once([delay]) else run.algorithm.with_delays(delay, policy), run.model
    if run.informed is not None:
        algorithm, model = run.informed(study.instance(run.problem, trial), *canonicalise((algorithm, model)))
    noise = np.asarray(model.noise_variance)[list(model.groups)]
    params = {
        "kernel": records[0],
        "kernel_g": _one_or_list(records[1:]),
        "lam": noise[0].tolist(),
        "lam_g": _one_or_list(noise[1:].tolist()),
        "prior_mean": np.asarray(model.prior_mean).tolist(),
        "T": study.horizon,
        "delay": readable_plain(delay),
        "feedback": policy.name,
        **symbols(policy),
        **algorithm.symbols_in_force(study.horizon),
    }
    named = {"alg": run.name_in_traces, "params": params, "algorithm": readable_plain(algorithm)}
    if isinstance(box := run.problem.domain, Box):
        sides = {name: readable_plain(side) for name, side in zip(box.names, box.sides, strict=True)}
        named |= {"box": {"sides": sides, "starts": box.starts, "steps": box.steps}}
    if isinstance(domain := run.problem.domain, Contextual):
        named |= {"contexts": {"axes": list(domain.names[: domain.context_axes]), "probabilities": np.asarray(domain.shares).tolist()}}
    return {**named, "study": study.name, "seed": study.seed, "trial": trial}


def kernel_record(kernel: kernels.Kernel) -> dict[str, object]:
    """Return the record of a kernel in a trace.

    It is ``{"name": "se", "u": length-scale, "var": variance, ...}``, with ``u`` as in ``exp(-|x - y|^2 / (2 u^2))`` or in the Matern
    distance. Sums and products are nested. The name is the ``short_name`` of the kernel's class.
    """
    if isinstance(kernel, kernels.Scale):
        inner = kernel_record(kernel.kernel)
        return inner | {"var": float(np.asarray(kernel.variance)) * np.asarray(inner["var"]).item()}
    if isinstance(kernel, kernels.OnAxes):
        return kernel_record(kernel.kernel) | {"axes": list(kernel.axes)}
    record: dict[str, object] = {"name": kernel.short_name, "var": 1.0}
    if isinstance(kernel, kernels.Sum | kernels.Product):
        return record | {"parts": [kernel_record(kernel.left), kernel_record(kernel.right)]}
    letters = {"length_scale": "u", "variance": "var"}
    fields = ((field.name, getattr(kernel, field.name)) for field in dataclasses.fields(kernel))  # type: ignore[arg-type]
    return record | {letters.get(name, name): _recorded(value) for name, value in fields}


def _recorded(value: object) -> object:
    """Return a kernel's field as plain values, arrays in full."""
    if isinstance(value, list | tuple):
        return [_recorded(part) for part in value]
    if isinstance(value, np.ndarray | jax.Array):
        return np.asarray(value).tolist()
    return kernel_record(value) if isinstance(value, kernels.Kernel) else readable_plain(value)


def _one_or_list(values: Sequence[object]) -> object:
    """Return the shared value of all constraints, or their list, or ``None``."""
    return None if not values else values[0] if all(value == values[0] for value in values) else values
