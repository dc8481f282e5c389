"""A user's program whose types a type checker knows."""

from pathlib import Path

import jax
import numpy as np

import jaxbandit as jb
from jaxbandit.gradients import SmoothedLoss, descend, logarithms
from jaxbandit.report import plots, tables
from jaxbandit.session import Axis, Model
from jaxbandit.study import Keep, Run, Study, grid, run_study

KEY = jax.random.key(0)
VALUES = [0.5, 1.0, 2.0, 3.0, 4.0]
WIDTHS = {"estimator.reward_width": VALUES, "estimator.cost_width": VALUES}


def simulated(problem: jb.problems.Problem, model: jb.Surrogate) -> None:
    """Run an algorithm at some widths."""
    run = jb.simulate(problem, jb.sweep(jb.Rpol(), WIDTHS, zipped=True), model, horizon=8, trials=20, key=KEY)
    curves = jb.metrics.curves(problem, run.indices)
    print(curves.hard_violation[:, :, -1].mean(axis=1) / 8, np.asarray(run.status).max(), run.summary(problem, swept=WIDTHS))
    print(run.to_dataframe(problem, label="RPOL").shape, plots.curves({"first": run.variant(0)}, problem)[0].get_ylabel())


def studied(problem: jb.problems.Problem, model: jb.Surrogate, directory: Path) -> None:
    """Run a study, draw it, tabulate it and make its page."""
    widths = {"estimator.reward_width": VALUES[1:]}
    runs = grid(problems={"sine": problem}, algorithms={"rpol": jb.Rpol()}, sweeps={"rpol": widths}, horizon=8)
    study = Study("widths", runs=[*runs, Run("RPOL", problem, jb.Rpol(), model)], trials=20, horizon=8, keep=Keep(every=4))
    dataset = run_study(study, directory / "study", results=directory / "study" / "results.nc")
    print(float(dataset.regret.sel(algorithm="RPOL")[:, -1].mean()), dataset.sizes["trial"], jb.study.to_dataframe(dataset).shape)
    print(tables.text_table(dataset), tables.latex_table(dataset, label="tab:widths").splitlines()[0])
    print(jb.report.html.write_report(directory / "study").name)


def experimented(directory: Path) -> None:
    """Ask and tell, and open the session again."""
    axes = [Axis.between("dose", 0.1, 1.0, 5), Axis("time", (1, 2, 4, 8), "logarithmic")]
    model = Model(kernel=0.5 * jb.kernels.SquaredExponential(length_scale=0.5), noise_variance=0.01)
    goals = "maximise gain", ["heat <= 1"]
    with jb.Session.create(directory / "own", axes, jb.Rpol(), model, key=KEY, objective=goals[0], constraints=goals[1]) as session:
        ticket = session.ask()
        session.tell(ticket, {"gain": float(ticket.point["dose"]), "heat": 0.5})
        print(session.observe({"dose": 0.1, "time": 2}, {"gain": 0.2}).distance)
        print([other.number for other in session.tell_all({"dose": [0.2], "time": [4], "gain": [0.3]}, off_grid="round")])
    with jb.Session.open(directory / "own", read_only=True) as session:
        best = session.recommend(0.9)
        print(best.index, best.point["dose"], best.mean["gain"], session.pending, session.history().to_dataframe().shape)


def differentiated(problem: jb.problems.Problem, model: jb.Surrogate) -> None:
    """Estimate a gradient and descend along it."""
    params, build = logarithms(jb.Rpol(), model, "estimator.reward_width", "estimator.cost_width", "penalty_growth")
    loss = SmoothedLoss(problem, build, horizon=8, pairs=16, initial=jb.InitialDesign(random=5))
    print(loss.estimate(params, KEY).gradient["penalty_growth"])
    found = descend(loss, params, KEY, steps=2, every=1, validate=16)
    print(found.best["penalty_growth"], found.improvement, found.interval[0], found.candidates[0].loss)


def main(directory: str) -> None:
    """Do all of that, with files in a directory."""
    problem = jb.problems.sine(9)
    model = jb.surrogate(problem.domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    simulated(problem, model)
    studied(problem, model, Path(directory))
    experimented(Path(directory))
    differentiated(problem, model)
