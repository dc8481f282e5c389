"""Runs and grids of runs."""

import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, kernels, problems
from jaxbandit.core.pytree import remember, set_field, signature
from jaxbandit.delays import Poisson
from jaxbandit.feedback import Hallucinate, Wait
from jaxbandit.rules.estimators import Bounds
from jaxbandit.study import Keep, Model, Run, Study, from_table, grid, make_plan

SINE = {"type": "sine", "points_per_axis": 5}
KERNEL = kernels.Matern32(length_scale=0.8)
ROW = {"label": "a", "problem": "sine", "algorithm": "rpol", "delay": "none"}
RPOL = jaxbandit.Rpol(estimator=Bounds(reward_width=3.0))


def small(**changes: Any) -> list[Run]:
    return grid(**{"problems": {"sine": SINE}, "algorithms": {"rpol": RPOL}, "horizon": 9} | changes)


def model(kernel: Any, **changes: Any) -> jaxbandit.Surrogate:
    return jaxbandit.surrogate(problems.sine(5).domain, kernel, noise_variance=0.05, form="features", **changes)


# Paths.


def test_a_field_is_set_at_its_path() -> None:
    changed = set_field(jaxbandit.Anytime(algorithm=RPOL), "algorithm.estimator.reward_width", 2.0, "here")
    assert changed.algorithm.estimator.reward_width == 2.0 and RPOL.estimator.reward_width == 3.0
    assert set_field({"kernel": {"type": "Linear"}}, "kernel.variance", 1, "here") == {"kernel": {"type": "Linear", "variance": 1}}


# Kernels of a model.


def test_a_model_remembers_its_kernels_as_they_were_given() -> None:
    one, other = kernels.SquaredExponential(length_scale=0.7), 1.5 * kernels.Matern52(length_scale=np.float64(0.35))
    shared, apart = model(one), model([one, other])
    assert shared.kernels == (one, one) and apart.kernels[1] is other and type(apart.kernels[0].length_scale) is float
    assert shared.separate().kernels == shared.kernels


def test_kernels_make_no_programs_of_their_own() -> None:
    """Neither another length-scale nor another class, where the features have equal shapes."""
    problem = problems.sine(5)
    models = [model(kernel) for kernel in (kernels.Matern32(length_scale=1.0), kernels.Matern32(length_scale=0.9), kernels.Matern12())]
    assert len({m.forms[0].phi.shape for m in models}) == 1
    runs = [Run(str(number), problem, RPOL, own) for number, own in enumerate(models)]
    cells = [signature(make_plan(Study("kernels", runs=[run], trials=2, horizon=9)).cells[0].cell) for run in runs]
    assert cells[0] == cells[1] == cells[2]


# Runs in force.


def test_what_is_in_force() -> None:
    """A run's own delay and policy come before its problem's."""
    late = problems.sine_delayed(5, mean_delay=3.0)
    run = Run("bpe", late, jaxbandit.Bpe(), model(kernels.Matern52(length_scale=1.0)))
    assert run.delay_in_force is late.delay and isinstance(run.policy_in_force, Hallucinate) and run.name_in_traces == "bpe"
    own = dataclasses.replace(run, delay=problems.sine(5).delay, feedback=Wait(), trace_name="mine")
    assert own.delay_in_force is own.delay and own.policy_in_force is own.feedback and own.name_in_traces == "mine"


# Grids and their tables.


def test_every_combination_or_first_with_first() -> None:
    sweep = {"estimator.reward_width": [1.0, 2.0], "model.noise_variance": [0.1, 0.2]}
    runs = small(sweeps={"rpol": sweep})
    values = [(run.algorithm.estimator.reward_width, float(run.model.noise_variance[0])) for run in runs]
    assert values == [(w, pytest.approx(n)) for w in (1.0, 2.0) for n in (0.1, 0.2)]
    assert [dict(run.swept) for run in small(sweeps={"rpol": sweep}, zipped=["rpol"])] == [
        {"estimator.reward_width": 1.0, "model.noise_variance": 0.1},
        {"estimator.reward_width": 2.0, "model.noise_variance": 0.2},
    ]
    near = small(sweeps={"rpol": {"estimator.reward_width": [1.0, 1.0 + 1e-9]}})
    assert [run.label for run in near] == ["rpol reward_width=1", "rpol reward_width=1 #2"]


def test_a_grid_of_tables_is_made_again_from_its_table() -> None:
    runs = small(
        algorithms={"rpol": {"type": "Rpol"}, "scgp": jaxbandit.Scgp(), "safe": jaxbandit.SafeOpt()},
        sweeps={"rpol": {"estimator.reward_width": [1, 2.5], "model.kernel.length_scale": [1.0, 1.5]}},
        zipped=["rpol"],
        models={"scgp": Model(kernel=kernels.Matern52(length_scale=1.0), noise_variance=0.1)},
        feedback={"rpol": {"type": "Hallucinate"}},
        informed={"safe": jaxbandit.informed.SafestSeeds(count=2)},
        delays={"none": {"type": "NoDelay"}, "late": {"type": "Poisson", "mean": 2}},
        initial=jaxbandit.InitialDesign(indices=np.asarray([3, 1]), counted=True),
    )
    study = Study("tables", runs=runs, horizon=9, keep=Keep(every=2), parameters={"set": "any"})
    again = from_table(study.table())
    assert again.fingerprint() == study.fingerprint() and again.table() == study.table()
    assert [run.label for run in again.runs] == [run.label for run in runs] and len(runs) == 8
    assert isinstance(again.runs[4].problem, problems.FullInformation) and again.recorded == {"set": "any"}


def test_a_problem_has_a_model_of_its_own() -> None:
    """The model is that of ``problem.model()``."""
    drawn = problems.gp_draws(domain=jaxbandit.domains.grid([0.0], [1.0], 5), kernel=KERNEL)
    both = {"problems": {"sine": SINE, "drawn": drawn}, "algorithms": {"rpol": RPOL, "scgp": jaxbandit.Scgp()}}
    runs = small(**both, models={"drawn": drawn.model(), "scgp": Model(noise_variance=0.2)}, model=Model(noise_variance=0.1))
    assert [np.max(run.model.noise_variance) for run in runs] == pytest.approx([0.1, 0.2, 0.05**2, 0.2])
    assert [type(run.model.kernels[0]).__name__ for run in runs] == ["SquaredExponential"] * 2 + ["Matern32", "SquaredExponential"]
    study = Study("models", runs=runs, horizon=9)
    table = json.loads(json.dumps(study.table()))
    assert set(table["problem"]["drawn"]) >= {"type", "model"} and "model" not in table["problem"]["sine"] and "run" not in table
    again = from_table(table)
    assert again.fingerprint() == study.fingerprint() and again.table() == study.table()
    table["problem"]["drawn"]["model"]["length_scale"] = 1.0
    with pytest.raises(InvalidArgument, match=r"^problem\.drawn\.model\.length_scale: needs"):
        from_table(table)
    with pytest.raises(InvalidArgument, match="models: 'drawn' is a problem and an algorithm"):
        small(problems={"drawn": drawn}, algorithms={"drawn": RPOL}, models={"drawn": Model()})


def test_any_list_of_the_runs_of_grids_has_a_table() -> None:
    """Runs that form no grid are named one by one."""
    sweep = {"rpol": {"estimator.reward_width": [1.0, 2.0], "initial_penalty": np.asarray([[0.5], [1.5]])}}
    widths = [jaxbandit.widths.SqrtLog(a=2.0), 3.0]
    first = small(sweeps=sweep, delays={"none": {"type": "NoDelay"}, "late": {"type": "Poisson", "mean": 2}})
    other = small(problems={"fine": SINE | {"points_per_axis": 6}}, algorithms={"cbo": jaxbandit.Cbo()}, model=Model(noise_variance=0.1))
    widest = small(algorithms={"scgp": jaxbandit.Scgp()}, sweeps={"scgp": {"estimator.cost_width": widths, "model.kernel": [KERNEL]}})
    renamed = dataclasses.replace(first[0], label="another", algorithm_label="mine")
    for runs in (first, first[1:3], [*first, *other], [*reversed(first)], [other[0], renamed], widest):
        study = Study("lists", runs=runs, horizon=9)
        again = from_table(json.loads(json.dumps(study.table())))
        assert again.fingerprint() == study.fingerprint() and again.table() == study.table()
        assert [run.label for run in again.runs] == [run.label for run in runs]
        assert ("run" in study.table()) == (runs is not first)


def by_hand(label: str, **changes: Any) -> Run:
    problem = problems.sine(5, noise_variance=0.1)
    return Run(
        **{"label": label, "problem": problem, "algorithm": RPOL, "model": model(KERNEL, prior_mean=(0.5, 0.0)), "problem_label": "noisy"}
        | changes
    )


def test_runs_written_by_hand_have_tables_as_those_of_grids() -> None:
    late = by_hand("late", delay=Poisson(mean=2.0), feedback=Hallucinate(), trace_name="mine", swept={"estimator.reward_width": 3.0})
    full = by_hand("full", problem=problems.full_information(problems.sine(5)), algorithm=jaxbandit.Scgp(), problem_label="shown")
    domain = jaxbandit.domains.grid([0.0, 0.0], [1.0, 1.0], 4)
    drawn = problems.gp_draws(domain=domain, kernel=KERNEL)
    narrow = jaxbandit.ranged(
        domain, kernels.SquaredExponential(length_scale=0.5), low=0.4, high=0.8, noise_variance=0.1, outputs=drawn.outputs
    )
    changed = dataclasses.replace(small()[0], label="changed", algorithm=jaxbandit.Cbo(), algorithm_label="cbo")
    for runs in (
        [by_hand("a")],
        [*small(), by_hand("a"), late, changed],
        [full, by_hand("drawn", problem=drawn, model=narrow, problem_label="drawn")],
    ):
        study = Study("by hand", runs=runs, horizon=9)
        again = from_table(json.loads(json.dumps(study.table())))
        assert again.fingerprint() == study.fingerprint() and again.table() == study.table()
        assert [(run.label, run.name_in_traces) for run in again.runs] == [(run.label, run.name_in_traces) for run in runs]


def test_what_has_no_table() -> None:
    plain = by_hand("a")
    table = problems.from_tables(plain.problem.domain, np.zeros(25), np.zeros((1, 25)))
    for words, run in {
        r"problem\.noisy: a Problem cannot be written as a table": by_hand("a", problem=table),
        r"algorithm\.a\.estimator\.reward_width\.function: a function cannot be": by_hand(
            "a", algorithm=jaxbandit.Rpol(estimator=Bounds(reward_width=jaxbandit.widths.Custom(function=lambda *_: 1.0)))
        ),
        "model: a surrogate that was changed since it was built": by_hand("a", model=jaxbandit.replace(plain.model, refresh=5)),
        r"run 'a'\.sweep\.w: unknown field": by_hand("a", swept={"w": 1.0}),
    }.items():
        with pytest.raises(InvalidArgument, match=words):
            Study("by hand", runs=[run], horizon=9).table()
    runs = small()
    others: dict[str, dict[str, Any]] = {
        "algorithm 'rpol' is not the same in all of them": {"algorithms": {"rpol": jaxbandit.Cbo()}},
        "one initial design for all of them": {"initial": jaxbandit.InitialDesign(random=2)},
    }
    for words, changes in others.items():
        (other,) = small(**changes)
        with pytest.raises(InvalidArgument, match=words):
            Study("grid", runs=[*runs, dataclasses.replace(other, label="other")], horizon=9).table()
    with pytest.raises(InvalidArgument, match="made for 9 rounds, not for 10"):
        Study("grid", runs=runs, horizon=10).table()


# Fingerprints.


def test_a_fingerprint_does_not_depend_on_the_bits_of_features_and_tables() -> None:
    """Signs of eigenvectors and last digits depend on the machine."""
    problem = problems.sine(5)
    run = Run("rpol", problem, RPOL, model(kernels.Matern52(length_scale=1.0)))
    study = Study("bits", runs=[run])
    (form,) = run.model.forms
    turned = jaxbandit.replace(run.model, forms=(jaxbandit.replace(form, phi=-jnp.asarray(form.phi)),))
    assert Study("bits", runs=[dataclasses.replace(run, model=turned)]).fingerprint() == study.fingerprint()
    other = dataclasses.replace(run, model=model(kernels.Matern52(length_scale=1.1)))
    assert Study("bits", runs=[other]).fingerprint() != study.fingerprint()
    runs = small()
    (run,) = runs
    near = remember(jaxbandit.replace(run.problem, means=np.asarray(run.problem.means) * (1 + 1e-15)), made_from=SINE)
    assert Study("bits", runs=[dataclasses.replace(run, problem=near)]).fingerprint() == Study("bits", runs=runs).fingerprint()
    assert (
        Study("bits", runs=small(problems={"sine": SINE | {"points_per_axis": 6}})).fingerprint() != Study("bits", runs=runs).fingerprint()
    )
