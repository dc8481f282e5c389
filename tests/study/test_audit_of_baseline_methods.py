"""Audit traces of the baselines: every choice follows from the arrays of the file alone, by the references."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxbandit import (
    Admmbo,
    Cei,
    ConstrainedThompson,
    InitialDesign,
    Oco,
    Oracle,
    PrimalDual,
    RandomSearch,
    SafeOpt,
    SgpUcb,
    StageOpt,
    consensus,
    informed,
)
from jaxbandit.study import audit
from tests.oracles import alternating_directions, bandit, boxes, convex_optimisation, expected_improvement, policies, safe_sets
from tests.support import audit_traces as traces

pytestmark = pytest.mark.full  # whole runs of every algorithm

SEEDS = [24, 17]
ALGORITHMS: dict[str, Any] = {
    "primal_dual": PrimalDual(estimator=traces.BOUNDS, step=0.5, initial_multiplier=[0.5, 2.0]),
    "cei": Cei(improvement=0.05),
    "cei_observed": Cei(incumbent="observed"),
    "constrained_ts": ConstrainedThompson(estimator=traces.THOMPSON),
    "safeopt": SafeOpt(estimator=traces.BOUNDS, seeds=SEEDS),
    "safeopt_lipschitz": SafeOpt(estimator=traces.BOUNDS, seeds=SEEDS, lipschitz=[3.0, 4.0]),
    "stageopt": StageOpt(estimator=traces.BOUNDS, count=2, exploration=11.0, together=False),
    "sgp_ucb": SgpUcb(estimator=traces.BOUNDS, seeds=SEEDS, warm_up=5.0),
    "admmbo": Admmbo(
        penalty=0.5, agreement=consensus.Agreement(absolute=0.1), reward_budget=(4, 2), cost_budget=(4, 2), outer_iterations=3
    ),
    "oco": Oco(step=0.5, perturbation=0.2),
}


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, algorithm in ALGORITHMS.items():
        monkeypatch.setitem(traces.ALGORITHMS, name, algorithm)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_golden_traces(name: str, golden: Any) -> None:
    traces.check_golden_trace(golden("traces"), name)


DESIGNED = ("stageopt", "cei_observed")  # whose choices are looked at after an initial design


def listed(value: Any) -> np.ndarray | None:
    return None if value is None else np.asarray(value)


def fits(arrays: dict[str, np.ndarray]) -> bool:
    """Whether every choice follows from the arrays."""
    meta = json.loads(str(arrays["meta"]))
    params, kind = meta["params"], meta["algorithm"]["type"]
    model, record = traces.model_and_record(arrays)
    points, chosen = arrays["domain"].astype(np.float64), arrays["indices"]
    near = {"rtol": traces.TOLERANCE, "atol": traces.TOLERANCE}

    def best(scores: np.ndarray) -> bool:
        return bool(bandit.score_gaps(scores, chosen).max() <= traces.TOLERANCE)

    if kind == "PrimalDual":
        replay = policies.primal_dual(model, record, first=np.broadcast_to(params["phi1"], 2), step=params["eta"])
        return best(replay.scores) and np.allclose(arrays["multipliers"], replay.multipliers, **near)
    if kind == "Cei":
        return best(expected_improvement.cei(model, record, incumbent=params["incumbent"], improvement=params["xi"]).scores)
    if kind == "ConstrainedThompson":
        draws = np.concatenate([arrays["draw_f"][:, None], arrays["draw_g"]], axis=1).astype(np.float64)
        return best(policies.constrained_thompson(draws))
    if kind in ("SafeOpt", "StageOpt", "SgpUcb"):
        rule = {"SafeOpt": "safeopt", "StageOpt": "stageopt", "SgpUcb": "sgp_ucb"}[kind]
        given = {"seeds": listed(params["seeds"]), "count": params["count"], "stage": params.get("T0", params.get("T'", 0))}
        given |= {"lipschitz": listed(params.get("L")), "together": params.get("together", True)}
        return safe_sets.safe_faults(model, record, points=points, rule=rule, margin=traces.TOLERANCE, **given) == []
    if kind == "Admmbo":
        replay = alternating_directions.admmbo(
            model,
            record,
            points,
            rho=params["rho"],
            weight=params["M"],
            side=params["side"],
            absolute=params["eps_abs"],
            relative=params["eps_rel"],
            relaxation=params["relaxation"],
            tolerance=params["feasibility_tolerance"],
            budgets=(tuple(params["budget_f"]), tuple(params["budget_g"])),
            outer_iterations=params["outer"],
        )
        shown = np.concatenate([arrays["beta_f_t"][:, None], arrays["beta_g_t"]], axis=1)
        return best(replay.scores) and np.array_equal(shown, np.arange(3)[None] == replay.evaluated[:, None])
    assert kind == "Oco"
    least = 1 / (traces.SIDE - 1)
    delta = max(params["delta"] or 0, least)
    shrink = 2 * delta if params["zeta"] is None else params["zeta"]
    directions, centres = arrays["draw_f"].astype(np.float64), arrays["draw_g"].astype(np.float64)
    replay = convex_optimisation.oco(record, directions, centres[0], eta=params["eta"], kappa=params["kappa"], delta=delta, shrink=shrink)
    far = np.sqrt(((boxes.box(points)[None] - replay.targets[:, None]) ** 2).sum(-1))
    nearest = np.all(far[np.arange(len(chosen)), chosen] <= far.min(1) + traces.TOLERANCE)
    return bool(nearest) and np.allclose(centres, replay.centres, **near) and np.allclose(arrays["multipliers"], replay.multipliers, **near)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_choice_follows_from_the_arrays(name: str, tmp_path: Path) -> None:
    trace = traces.traced(name)
    if name in DESIGNED:
        study, run = traces.comparison(name, initial=InitialDesign(random=3))
        trace = audit(traces.sharing(study, traces.played(DESIGNED, design=3)), run, trial=1)
    arrays = traces.through_a_file(trace, tmp_path)
    assert json.loads(str(arrays["meta"]))["alg"] == name
    assert fits(arrays)
    if name == "constrained_ts":
        return  # its draws are the functions themselves, so the data do not enter
    forged = arrays["rewards"].copy(), arrays["costs"].copy()
    forged[0][1:9] += 2 * (-1.0) ** np.arange(8)
    forged[1][1:9] -= 2 * (-1.0) ** np.arange(8)[:, None]
    assert not fits({**arrays, "rewards": forged[0], "costs": forged[1]}), "and not from just any arrays"


def test_what_a_study_tells_of_an_instance_is_in_the_trace() -> None:
    """Seeds, points and bounds that only the trial knows, by the hook that told them."""
    study, run = traces.comparison("sgp_ucb")
    told = dataclasses.replace(run, algorithm=SgpUcb(estimator=traces.BOUNDS, warm_up=50.0), informed=informed.SafestSeeds(count=3))
    arrays = audit(dataclasses.replace(study, runs=(told,)), told, trial=2)
    params = json.loads(str(arrays["meta"]))["params"]
    assert sorted(params["seeds"]) == sorted(np.argsort(arrays["means"][1:].max(0))[:3].tolist())
    assert set(arrays["indices"]) == set(params["seeds"])


@pytest.mark.parametrize(("algorithm", "hook"), [(RandomSearch(), informed.FeasiblePoints()), (Oracle(), informed.BestPoint())])
def test_the_floor_and_the_ceiling_can_be_traced(algorithm: Any, hook: Any) -> None:
    study, run = traces.comparison("cei")
    told = dataclasses.replace(run, algorithm=algorithm, informed=hook)
    arrays = audit(dataclasses.replace(study, runs=(told,)), told, trial=0)
    feasible = np.all(arrays["means"][1:] <= 0, axis=0)
    assert np.all(feasible[arrays["indices"]])
    assert np.all(arrays["beta_f_t"] == 0) and "draw_f" not in arrays
