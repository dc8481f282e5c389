"""The audit trace: one trial as plain arrays, enough for anybody to recompute every decision elsewhere."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import canonicalise
from jaxbandit.delays import NEVER
from jaxbandit.feedback import Censor
from jaxbandit.simulate import Trajectory
from jaxbandit.simulate.delayed import plan
from jaxbandit.study.comparison import Comparison
from jaxbandit.study.describe import describe, kernel_record
from jaxbandit.study.lines import Entry


def audit(comparison: Comparison, entry: Entry, trial: int) -> dict[str, np.ndarray]:
    """One trial of an entry, as the comparison runs it.

    Returns arrays ``domain [M, d]``, ``means [1 + m, M]``, ``indices [T]``, ``rewards [T]``, ``costs [T, m]``,
    ``multipliers [T + 1, m]`` (in force at rounds 1..T+1), ``arr_r [T]`` and ``arr_c [T]`` (``[T, m]`` unless ``m = 1``; the round,
    counted from 1, at whose end a value arrives: beyond ``T`` it does not within the run, ``delays.NEVER = 2^30`` stands for never),
    ``beta_f_t [T]``, ``beta_g_t [T]`` (``[T, m]`` unless ``m = 1``), ``initial_indices [n]``, ``initial_values [n, 1 + m]``,
    ``declared_round``, ``status``, and ``meta``, a JSON string with the algorithm and its parameters: among them ``delay``, the model
    of the delays, and ``feedback``, the policy: ``wait``, ``hallucinate``, or ``censor`` with its window ``m`` and the value ``min``
    that stands for what has not arrived. A randomised rule adds what it drew: ``draw_f [T]`` and ``draw_g [T]`` (``[T, m]`` unless
    ``m = 1``) as multiples of ``sigma`` (the estimate is ``mu + draw sigma``), or ``draw_f [T, M]`` and ``draw_g [T, M]``
    (``[T, m, M]``) as whole functions for Thompson sampling.

    Raises:
      InvalidArgument: when there is no such trial.
    """
    checks.integer("trial", trial, least=0)
    if trial >= comparison.trials:
        raise checks.InvalidArgument(f"trial: must be < {comparison.trials}, the number of trials, got {trial}; raise --trials")
    run = jax.tree.map(lambda x: np.asarray(x)[0], comparison.trajectory(entry, trials=[trial], record="audit"))
    arrivals = _arrivals(run)
    arrays = {
        "domain": np.asarray(comparison.problem_of(entry).domain.points),
        "means": np.asarray(comparison.instance(trial, entry).means),
        "indices": run.indices,
        "rewards": run.values[:, 0],
        "costs": run.values[:, 1:],
        "multipliers": run.multipliers,
        "arr_r": arrivals[:, 0],
        "arr_c": _single(arrivals[:, 1:]),
        "beta_f_t": run.widths[:, 0],
        "beta_g_t": _single(run.widths[:, 1:]),
        "initial_indices": run.initial_indices,
        "initial_values": run.initial_values,
        "declared_round": run.declared_round,
        "status": run.status,
        "meta": np.asarray(json.dumps(_meta(comparison, entry, trial))),
    }
    if run.draws is not None:
        arrays["draw_f"] = run.draws[:, 0]
        if run.draws.shape[1] > 1:  # a rule that draws one combined function has no draw of its own for the constraints
            arrays["draw_g"] = _single(run.draws[:, 1:])
    return arrays


def _arrivals(run: Trajectory) -> np.ndarray:
    """The round at whose end each value arrives, ``[T, k]``: its own when there is no delay, ``NEVER`` for what never will."""
    if run.arrivals is not None:
        return np.minimum(run.arrivals, NEVER)
    return np.broadcast_to(np.arange(1, len(run.values) + 1, dtype=np.int32)[:, None], run.values.shape)


def _single(per_constraint: np.ndarray) -> np.ndarray:
    """``[T, m, ...]`` without its second axis when there is one constraint."""
    return per_constraint[:, 0] if per_constraint.shape[1] == 1 else per_constraint


def _meta(comparison: Comparison, entry: Entry, trial: int) -> dict[str, Any]:
    """The algorithm, its parameters under the papers' letters, and where the trace comes from."""
    records = [kernel_record(k) for k in entry.kernels]
    delay, policy = comparison.delay_of(entry), comparison.policy_of(entry)
    # What the run told it of its delays is part of its parameters.
    _, algorithm = plan(entry.surrogate.outputs, entry.algorithm, delay, entry.feedback, None, comparison.horizon)
    algorithm, surrogate = _informed(comparison, entry, trial, algorithm)
    noise = np.asarray(surrogate.noise_variance)[list(surrogate.groups)]
    params = {
        "kernel": records[0],
        "kernel_g": _one_or_list(records[1:]),
        "lam": float(noise[0]),
        "lam_g": _one_or_list([float(v) for v in noise[1:]]),
        "prior_mean": np.asarray(surrogate.prior_mean).tolist(),
        "T": comparison.horizon,
        "delay": describe(delay),
        **_policy_record(policy),
        **getattr(algorithm, "audit_parameters", lambda horizon: {})(comparison.horizon),
    }
    return {
        "alg": entry.alg,
        "params": params,
        "algorithm": describe(algorithm),
        "study": comparison.name,
        "seed": comparison.seed,
        "trial": trial,
    }


def _informed(comparison: Comparison, entry: Entry, trial: int, algorithm: Any) -> tuple[Any, Any]:
    """The algorithm and the surrogate with what the study told the learner of the trial's instance."""
    if entry.informed is None:
        return algorithm, entry.surrogate
    return entry.informed(comparison.instance(trial, entry), *canonicalise((algorithm, entry.surrogate)))


def _policy_record(policy: Any) -> dict[str, Any]:
    """What the learner does while feedback is on its way; the numbers of censoring under the papers' letters."""
    record = {"feedback": policy.name}
    return record | ({"m": policy.window, "min": np.asarray(policy.minimum).tolist()} if isinstance(policy, Censor) else {})


def _one_or_list(values: list[Any]) -> Any:
    """A single value when all constraints share it, else one per constraint; ``None`` without constraints."""
    return (values[0] if all(v == values[0] for v in values) else values) if values else None
