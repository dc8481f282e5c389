"""Results of ``simulate`` are shown as a study's are."""

import dataclasses
import functools
import inspect
import pickle

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest
import xarray as xr
from matplotlib.contour import QuadContourSet
from PIL import Image

import jaxbandit as jb
from jaxbandit import InvalidArgument, testing
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.report import plots, statistics, tables
from jaxbandit.study import Run, Study, run_study, to_dataframe

PROBLEM = jb.problems.sine(9)
MODEL = jb.surrogate(PROBLEM.domain, jb.kernels.SquaredExponential(length_scale=1.5), noise_variance=0.05)
LATE = jb.delays.Poisson(mean=2.0)
DESIGN = jb.InitialDesign(random=2, counted=True)
WIDTHS = {"estimator.reward_width": [1.0, 4.0]}
LINE = jb.problems.from_tables(jb.domains.grid([0.0], [1.0], 9), np.linspace(0, 1, 9), [np.linspace(-1, 1, 9)])


@functools.cache
def swept():
    """A sweep of two widths, three trials of seven rounds."""
    sweep = jb.sweep(jb.Rpol(), WIDTHS)
    return jb.simulate(PROBLEM, sweep, MODEL, horizon=7, trials=3, key=jax.random.key(0), initial=DESIGN, delay=LATE)


@functools.cache
def studied():
    """The same as a study."""
    runs = [
        Run(
            f"RPOL reward_width={w:g}",
            PROBLEM,
            variant,
            MODEL,
            initial=DESIGN,
            delay=LATE,
            swept={"estimator.reward_width": w},
            algorithm_label="RPOL",
        )
        for w, variant in zip(WIDTHS["estimator.reward_width"], jb.sweep(jb.Rpol(), WIDTHS).unstack(), strict=True)
    ]
    return run_study(Study("twin", runs, trials=3, horizon=7, trajectories=True, metrics=METRICS))


METRICS = tuple(f.name for f in dataclasses.fields(jb.metrics.Curves) if f.name != "strong_regret")
LABELLED = {"label": "RPOL", "delay": LATE, "swept": WIDTHS}


@functools.cache
def labelled():
    return swept().to_xarray(PROBLEM, **LABELLED)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def lines(axis):
    return [line for line in axis.get_lines() if len(line.get_xdata()) > 1]


@pytest.mark.full
def test_a_run_is_labelled_as_the_study_of_it_is():
    got, want = labelled(), studied().drop_vars(["run_seconds", "playing_seconds"])
    assert set(got.variables) == set(want.variables)
    for name in want.variables:
        assert got[name].dtype == want[name].dtype, name
        xr.testing.assert_identical(got[name], want[name])
    shared = ("horizon", "trials", "swept", "counted_before", "problems", "delays", "precision", "versions")
    assert {name: got.attrs[name] for name in shared} == {name: want.attrs[name] for name in shared}


@pytest.mark.full
def test_summaries_and_tables_are_those_of_the_study():
    rows, want = swept().summary(PROBLEM, label="RPOL", swept=WIDTHS).rows, tables.summary_rows(studied())
    for row, expected in zip(rows, want, strict=True):
        assert row.keys() < expected.keys()
        np.testing.assert_equal(row, {name: expected[name] for name in row})
    summary = swept().summary(PROBLEM, label="RPOL", swept=WIDTHS)
    given = [(summary,), (want,), (studied(),), (labelled(),), ({"RPOL": swept()}, PROBLEM)]
    texts = [tables.text_table(*each).replace("RPOL reward_width=1", "1") for each in given]
    assert repr(summary) == tables.text_table(want) and len(set(texts)) == 1 and "RPOL variant" not in texts[4]
    assert "±" in summary._repr_html_() and summary._repr_html_().count("<tr>") == 3


@pytest.mark.full
def test_the_tidy_table_has_a_row_for_each_round_and_columns_for_what_was_run():
    frame, dataset = swept().to_dataframe(PROBLEM, **LABELLED), studied()
    assert len(frame) == 2 * 3 * 9 and list(frame.columns[:7]) == [
        "algorithm",
        "base",
        "problem",
        "delay",
        "estimator.reward_width",
        "trial",
        "round",
    ]
    row = frame[(frame["estimator.reward_width"] == 4.0) & (frame["trial"] == 1) & (frame["round"] == 5)].iloc[0]
    at = dataset.sel(algorithm="RPOL reward_width=4", trial=1, round=5)
    assert row["delay"] == "Poisson(mean 2)" and row["problem"] == "sine" and row["base"] == "RPOL"
    for name in (*METRICS, "optimum", "status", "index"):
        np.testing.assert_equal(row[name], at[name].item(), err_msg=name)
    assert len(to_dataframe(dataset, last=True)) == 6 and set(to_dataframe(dataset, last=True)["round"]) == {7}


def test_a_run_knows_what_simulate_was_given():
    run, other = swept(), swept().variant(1)
    rows = run.summary().rows
    assert [row["algorithm"] for row in rows] == ["rpol reward_width=1", "rpol reward_width=4"]
    np.testing.assert_equal(other.summary().rows, rows[1:])
    assert jb.cite(other).count("\n@") == 1 and "{guo2022," in jb.cite(other)
    dataset = run.to_xarray()
    assert dataset["estimator.reward_width"].values.tolist() == [1.0, 4.0] and set(dataset.delay.values) == {"Poisson(mean 2)"}
    assert other.trial(2).to_xarray().trial.values.tolist() == [2]
    # Files and JAX make such copies.
    forgotten = pickle.loads(pickle.dumps(other))
    for copy in (forgotten, jax.jit(lambda x: x)(other)):
        assert copy.label == "run" and copy.made is None
        with pytest.raises(InvalidArgument, match="problem: give the problem that was run"):
            copy.summary()


def test_a_comparison_is_a_table_differences_and_a_figure():
    found = jb.compare({"mine": swept().variant(0), "other": swept().variant(1)})
    (regret, *_), pairs = (
        found.differences.to_dict("records"),
        statistics.paired_differences(found.results, "regret", seed=0, averaged=True),
    )
    want = pairs.sel(algorithm="other", versus="mine")
    for name in ("mean", "low", "high", "p", "count"):
        np.testing.assert_equal(regret[name], want[name].item())
    assert (regret["algorithm"], regret["versus"], regret["holm"]) == ("other", "mine", regret["p"])
    assert repr(found).startswith(repr(found.table)) and "other - mine" in repr(found) and "Holm" in repr(found)
    assert len(found.plot().axes) == len(found.measures) == len(found.differences) == 3
    assert found._repr_html_().count("<table>") == 2 and "data:image/png" in found._repr_html_()
    three = jb.compare(xr.concat([found.results, found.results.sel(algorithm=["mine"]).assign_coords(algorithm=["x"])], "algorithm"))
    p = three.differences.query("measure == 'regret'")
    assert p.holm.tolist() == statistics.holm(p.p).tolist() and [*zip(p.algorithm, p.versus, strict=True)][2] == ("x", "other")
    with pytest.raises(InvalidArgument, match=r"measures\[0\]: must be one of"):
        jb.compare(found.results, measures=["regrets"])
    other = dataclasses.replace(swept().variant(1))
    object.__setattr__(other, "made", dataclasses.replace(swept().variant(1).made, trials=[4, 5, 6]))
    with pytest.raises(InvalidArgument, match="runs: all must be of the same trials"):
        jb.compare({"a": swept().variant(0), "b": other})


def test_latex_needs_no_package_and_escapes_labels():
    rows = [dict(row, algorithm="50%_a&b~c") for row in swept().summary(PROBLEM).rows[:1]]
    text = tables.latex_table(rows, caption="All.", label="tab:a")
    head, *_, end = text.splitlines()
    assert (
        (head, end) == (r"\begin{table}", r"\end{table}")
        and r"50\%\_a\&b\textasciitilde c & $" in text
        and r" \pm " in text
        and r"\label{tab:a}" in text
    )
    columns = text.split(r"\begin{tabular}{")[1].split("}")[0]
    (line,) = [line for line in text.splitlines() if line.startswith("50")]
    assert tables.latex_table(studied()) == tables.latex_table(tables.summary_rows(studied()))
    for wrong in (5, [], [{"algorithm": "RPOL"}], studied().drop_vars("status")):
        with pytest.raises(InvalidArgument, match="results"):
            tables.text_table(wrong)
    with pytest.raises(InvalidArgument, match="problem: give the problem"):
        tables.latex_table(dataclasses.replace(swept()))
    assert len(columns) == line.count(" & ") + 1 and tables.latex_table(rows).startswith(r"\begin{tabular}")


def test_one_trial_of_many():
    run = swept()
    trial = run.trial(2, variant=1)
    np.testing.assert_array_equal(trial.values, run.values[1, 2])
    np.testing.assert_array_equal(run.variant(0).indices, run.indices[0])
    assert trial.to_xarray(PROBLEM).sizes["trial"] == 1
    for wrong, words in (
        (lambda: run.trial(0), "variant: the run has 2 variants"),
        (lambda: run.trial(3, variant=0), "trials 0 to 2, got 3"),
        (lambda: trial.trial(0), "the run is one trial"),
        (lambda: run.variant(0).variant(0), "no sweep"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            wrong()


@jax.jit
def measured(family, key, number, chosen):
    instance = family.sample(stream_key(trial_key(key, number), Stream.PROBLEM))
    return jb.metrics.curves(instance, chosen).regret, jb.problems.optimum(instance).value


@pytest.mark.full
def test_a_random_family_is_measured_on_the_instances_of_the_key():
    family, key = jb.problems.rkhs_1d(6), jax.random.key(3)
    empty = np.zeros((2,), np.int32)
    run = jb.Trajectory(
        indices=np.asarray([[0, 3, 5], [1, 4, 2]], np.int32),
        status=empty,
        failed_round=empty,
        declared_round=empty,
        information_gain=np.zeros((2, 1)),
        initial_indices=np.zeros((2, 0), np.int32),
        initial_values=np.zeros((2, 0, 2), np.float32),
    )
    found = run.to_xarray(family, key=key, trials=[4, 7])
    assert found.trial.values.tolist() == [4, 7] and "index" not in found
    for place, number in enumerate((4, 7)):
        regret, best = measured(jb.canonicalise(family), key, np.int32(number), run.indices[place])
        np.testing.assert_allclose(found.regret.values[0, place], regret, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.optimum.values[0, place], best, rtol=1e-6)
    with pytest.raises(InvalidArgument, match="give the key that simulate was given"):
        run.to_xarray(family)


def test_what_does_not_fit_the_run_is_named():
    run = swept()
    for wrong, words in (
        (lambda: run.to_xarray(LINE), "has 9 points, but run 'rpol' chose"),
        (lambda: run.to_xarray(PROBLEM, trials=[1]), "has 3 trials, got numbers of 1"),
        (lambda: run.to_xarray(PROBLEM, swept={"a": [1.0, 2.0, 3.0]}), "has 2 variants, got values of 3"),
        (lambda: run.to_xarray("sine"), "problem"),
        (lambda: plots.curves(dataclasses.replace(run)), "problem: give the problem that was run"),
        (lambda: plots.curves({"a": 3}, PROBLEM), "results: a mapping must have labels"),
        (lambda: plots.curves(3.0), "results"),
        (lambda: plots.curves(labelled(), axes=plt.subplots(1, 2)[1]), "axes: must be 3 Axes"),
        (lambda: plots.cumulative(labelled(), "regret", ax="left"), "ax: must be matplotlib's Axes"),
        (lambda: plots.posterior_curves(MODEL, run.trial(0, variant=0), [1]), "one-dimensional"),
        (lambda: plots.multiplier_paths(run), r"run\.variant"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            wrong()


def test_every_plot_takes_a_run_runs_by_name_and_results_alike():
    one, many = swept().variant(0), {"a": swept().variant(0), "b": swept().variant(1)}
    assert [line.get_label() for line in lines(plots.curves(many, PROBLEM)[1])] == ["a", "b"]
    dataset = labelled()
    for given, problem, count in ((one, PROBLEM, 1), (many, PROBLEM, 2), (dataset, None, 2), (dataset.isel(algorithm=0), None, 1)):
        drawn = lines(plots.cumulative(given, "hard_violation", problem=problem))
        np.testing.assert_allclose(drawn[0].get_ydata(), dataset.hard_violation.values[0].mean(axis=0), rtol=1e-6)
        row = plots.curves(given, problem)
        assert row.shape == (3,) and row[1].get_xlabel() and row[1].get_ylabel() and len(row[2].get_legend().get_texts()) == count
        assert plots.distribution(given, "violating_rounds", problem=problem).get_ylabel() == "violating rounds $N$"
        assert plots.delay_histogram(given, problem).get_xlabel() == "delay in rounds"
        plt.close("all")
    plots.trade_off(many, problem=PROBLEM), plots.rounds_of_declaration(many, problem=PROBLEM)
    assert len(lines(plots.multiplier_paths(many))) == 2 and len(lines(plots.multiplier_paths(one.trial(0)))) == 1


# These plots need more than results. Any other plot function of results is tried without a line here.
GIVEN = {
    "cumulative": lambda: (labelled(), "regret"),
    "distribution": lambda: (labelled(), "regret"),
    "boxes_over_time": lambda: (labelled().isel(algorithm=0), "regret"),
    "multiplier_paths": lambda: (swept().variant(0),),
    "problem_maps": lambda: (PROBLEM,),
    "win_map": lambda: (statistics.win_matrix(labelled(), "regret"),),
    "posterior_maps": lambda: (MODEL, swept().variant(0).trial(0), [3]),
}
PLOTS = [
    name for name in plots.__all__ if inspect.isfunction(make := getattr(plots, name)) and make.__module__.startswith("jaxbandit.report")
]
# The first three return no figure; the others are drawn in tests of beliefs and of sweeps.
NO_PLOTS = {"penalised_bounds", "posterior_after", "posterior_animation", "posterior_curves", "safe_set", "rounds_of_declaration"}


@pytest.mark.parametrize("name", sorted({*PLOTS} - NO_PLOTS))
def test_every_plot_labels_its_axes_and_writes_nothing(name):
    options = {"every": 3} if name == "boxes_over_time" else {}
    testing.check_plot(getattr(plots, name), *GIVEN.get(name, lambda: (labelled(),))(), **options)


def test_plots_draw_on_the_axes_that_they_are_given():
    figure, axes = plt.subplots(2, 3)
    shown = plots.curves(labelled(), axes=axes[0])
    assert [axis.figure for axis in shown] == [figure] * 3 and shown.tolist() == axes[0].tolist()
    assert plots.cumulative(labelled(), "regret", ax=axes[1, 0]) is axes[1, 0]
    assert plots.sweep(labelled(), measures=[("regret", "")], axes=axes[1, 1]).tolist() == [[axes[1, 1]]]
    assert plt.get_fignums() == [figure.number]


def test_axes_have_the_names_of_the_domain_and_categories_edges_between_cells():
    named = jb.domains.mixed({"dose, mg": [0.0, 1.0, 3.0], "catalyst": ["Pd", "Ni"]})
    # Dose 0 is feasible with both, and dose 1 with Ni.
    excess = np.asarray([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
    reward, _ = plots.problem_maps(jb.problems.from_tables(named, np.arange(6.0), [excess]))
    assert (reward.get_xlabel(), reward.get_ylabel()) == ("dose, mg", "catalyst")
    assert [label.get_text() for label in reward.get_yticklabels()] == ["Pd", "Ni"]
    (edges,) = (found for found in reward.collections if isinstance(found, QuadContourSet))
    (path,) = edges.get_paths()
    corners = {tuple(corner) for corner in np.round(path.vertices, 6).tolist()}
    assert corners <= {(0.5, -0.5), (0.5, 0.5), (2.0, 0.5), (2.0, 1.5)} and len(corners) == 4


def test_many_labels_stand_below_the_panels_of_a_figure_of_ones_own():
    run = swept().variant(0)
    many = plots.curves({f"an algorithm of a long name {n}": run for n in range(4)}, PROBLEM)
    assert len(many[0].figure.legends) == 1 and many[-1].get_legend() is None
    few = plots.curves(run, PROBLEM)
    assert few[0].figure.legends == [] and few[-1].get_legend() is not None


@pytest.mark.full
def test_problems_and_beliefs_on_a_line_and_a_plane(tmp_path):
    left, right = plots.problem_maps(PROBLEM)
    assert (left.get_title(), right.get_title()) == ("reward", "constraint 1") and left.get_xlabel() == "$x_1$"
    flat = plots.problem_maps(LINE)
    np.testing.assert_allclose(lines(flat[0])[0].get_ydata(), LINE.means[0])
    model = jb.surrogate(LINE.domain, jb.kernels.SquaredExponential(length_scale=0.3), noise_variance=0.01)
    empty = np.zeros((), np.int32)
    trial = jb.Trajectory(
        indices=np.asarray([0, 8, 4], np.int32),
        status=empty,
        failed_round=empty,
        declared_round=empty,
        information_gain=np.zeros(1),
        initial_indices=np.zeros(0, np.int32),
        initial_values=np.zeros((0, 2)),
        values=LINE.means[:, [0, 8, 4]].T,
        multipliers=np.ones((4, 1)),
    )
    words = {"problem": LINE, "score": plots.penalised_bounds(2.0, 2.0), "width": 1.5}
    axes = plots.posterior_curves(model, trial, [2, 3], **words)
    assert axes.shape == (2, 3) and [axis.get_title() for axis in axes[0]] == ["reward", "constraint 1", "acquisition"]
    belief = plots.posterior_after(model, trial, [2])
    np.testing.assert_allclose(lines(axes[0, 0])[0].get_ydata(), belief.mean[0, 0], rtol=1e-5)
    band = axes[0, 0].collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(band[:, 1].max(), (belief.mean[0, 0] + 1.5 * belief.sd[0, 0]).max(), rtol=1e-5)
    chosen = [line for line in axes[0, 1].get_lines() if line.get_label() == "chosen next"]
    assert chosen[0].get_xdata()[0] == 0.5 and not [line for line in axes[1, 1].get_lines() if line.get_label() == "chosen next"]
    plots.posterior_animation(model, trial, [1, 2], title="t", **words).save(tmp_path / "line.gif", writer="pillow", dpi=30)
    with Image.open(tmp_path / "line.gif") as image:
        assert image.n_frames == 2


@pytest.mark.full
def test_beliefs_on_a_box_are_drawn_on_a_line_and_on_a_plane_alone() -> None:
    from tests.support import box_runs

    problem, model = box_runs.valley(), box_runs.model()
    points = np.asarray([[0.3, 0.02], [1.7, 0.9], [1.0, 0.1], [0.6, 0.5], [1.9, 0.05]], np.float32)
    values, empty = box_runs.values(points).T.astype(np.float32) + np.float32(0.1), np.zeros((), np.int32)
    run = jb.Trajectory(
        indices=np.arange(34, 37, dtype=np.int32),
        status=empty,
        failed_round=empty,
        declared_round=empty,
        information_gain=np.zeros(2),
        initial_indices=np.arange(32, 34, dtype=np.int32),
        initial_values=values[:2],
        values=values[2:],
        initial_points=points[:2],
        points=points[2:],
    )
    axes = plots.posterior_maps(model, run, [0, 3], problem=problem)
    assert axes.shape == (2, 4) and axes[1, 0].get_xlabel() == "dose" and axes[0, 0].get_yscale() == "log"
    drawn = {line.get_label(): line.get_xydata() for line in axes[1, 0].lines}
    np.testing.assert_allclose(drawn["optimum"], [problem.best.point])
    tried = np.concatenate([run.initial_points, run.points])
    np.testing.assert_allclose(np.concatenate([drawn["tried"], drawn["latest"]]), tried, rtol=1e-6)
    belief = plots.posterior_after(model, run, [3])
    # The noise has deviation 0.1.
    np.testing.assert_allclose(belief.mean[0][:, 32:].T, np.concatenate([run.initial_values, run.values]), atol=0.3)
    assert plots.problem_maps(problem).shape == (2,)
    cube = jb.domains.box({name: (0.0, 1.0) for name in "abc"}, candidates=8)
    with pytest.raises(jb.InvalidArgument, match="problem: maps need a box of two dimensions, not of 3"):
        plots.problem_maps(jb.problems.on_box(cube, lambda x: x[0], [], noise_variance=0.1, best=(1.0, (1.0, 0.0, 0.0))))


def test_a_row_whose_interval_and_p_value_disagree_is_marked(monkeypatch: pytest.MonkeyPatch):
    found = jb.compare({"mine": swept().variant(0), "other": swept().variant(1)})
    # An interval is of one pair, and p is of several.
    rows = [
        {"low": 0.1, "high": 2.0, "holm": 0.2},
        {"low": -0.1, "high": 2.0, "holm": 0.01},
        {"low": 0.1, "high": 2.0, "holm": 0.01},
        {"low": -0.1, "high": 2.0, "holm": 0.2},
        {"low": 0.0, "high": 0.0, "holm": float("nan")},
    ]
    shared = {"measure": "regret", "algorithm": "a", "versus": "b", "mean": 1.0}
    monkeypatch.setitem(vars(found), "differences", pandas.DataFrame([shared | row for row in rows]))
    assert [cells[-1] for cells in found._cells()[1:]] == ["0.2!", "0.01*!", "0.01*", "0.2", "undefined"]
    assert "is of one pair alone" in repr(found).replace("\n", " ")
