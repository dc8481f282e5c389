"""Reports and figures."""

import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from PIL import Image

import jaxbandit as jb
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.status import Status
from jaxbandit.host import figures
from jaxbandit.report import plots, sweeps, tables
from jaxbandit.report.html import StudyPage, figure_parts, write_report
from jaxbandit.report.plots import penalised_bounds, posterior_after, posterior_animation, posterior_maps
from jaxbandit.report.statistics import over_trials, paired_differences, win_matrix
from jaxbandit.results.files import save
from tests.support.synthetic_results import LABELS, results, swept

MALICIOUS = '<script>alert("x")</script>&amp;$\\frac$'
VOID = {"meta", "img"}
SECTIONS = ["summary", "flags", "curves", "boxes", "sweep", "delays", "differences", "wins", "growth", "parameters"]


class Reader(html.parser.HTMLParser):
    """Collects what a document holds, and checks that its elements nest."""

    def __init__(self):
        super().__init__()
        self.open, self.sections, self.links, self.tags, self.text = [], [], [], set(), []
        self.figures = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.sections.append(attributes["id"])
        if tag == "img":
            self.figures.append(attributes["alt"])
        self.links += [value for name, value in attributes.items() if name in ("href", "src", "action", "data", "poster", "srcset")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    text = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader, text


def saved(dataset, directory):
    directory.mkdir(exist_ok=True)
    save(dataset, directory / "results.nc")
    return directory


@pytest.fixture(scope="module")
def full_report(tmp_path_factory):
    """Return a report with failures, late feedback and a hostile label."""
    dataset = swept(bases=("RPOL-UCB",), widths=(1.0, 2.0), plain=(MALICIOUS,))
    dataset = dataset.drop_vars("positive_regret").isel(round=slice(4, None, 5))
    late = results(0, labels=[str(v) for v in dataset.algorithm.values], trials=6, rounds=30, late=True)
    dataset = dataset.assign(arrival=late.arrival).assign_coords(played=late.played, output=late.output)
    dataset.status.values[1, 2] = int(Status.NONFINITE_SCORE)
    dataset.status.values[0, 4] = int(Status.DECLARED_INFEASIBLE)
    dataset.attrs["command"] = "python -m jaxbandit run 'a & b' <study.json>"
    folder = saved(dataset, tmp_path_factory.mktemp("report"))
    with pytest.MonkeyPatch.context() as patch:
        # One figure of boxes of three algorithms takes more.
        patch.setattr("jaxbandit.report.html.MAX_SVG_BYTES", 120_000)
        path = write_report(folder)
    assert path == folder / "report.html" and not [file for file in folder.iterdir() if file.name.startswith(".")]
    return dataset, *read(path)


def test_a_report_has_every_section_and_needs_nothing_else(full_report):
    _, reader, text = full_report
    assert reader.sections == SECTIONS
    pictures = [link.partition(",")[0] for link in reader.links if not link.startswith("#")]
    assert sorted(set(pictures)) == ["data:image/png;base64", "data:image/svg+xml;base64"], "that large one as pixels"
    assert {link[1:] for link in reader.links if link.startswith("#")} == set(SECTIONS)
    assert not re.search(r"https?://|url\((?!#)|@import", text) and not {"script", "link", "iframe", "object"} & reader.tags
    assert len(reader.figures) == 6 and len(text) < 600_000
    assert re.search(r"@media screen and \(prefers-color-scheme: dark\) {\s+:root { --ink: #e4e4e4; --page: #17191c;", text)


def test_a_report_says_what_was_run_and_what_failed(full_report):
    _, reader, _ = full_report
    words = " ".join(" ".join(reader.text).split())
    for phrase in (
        "synthetic",
        "python -m jaxbandit run 'a & b' <study.json>",
        "5 of 6",
        "RPOL-UCB w=1 c=0.5: 1 of 6 trials: the algorithm declared",
        "RPOL-UCB w=1 c=1: 1 of 6 trials: the acquisition score was NaN",
        "'beta': 3.0",
        "'jaxbandit': '0.1'",
        "TFRT_CPU_0",
        "row minus column",
        "2,000 resamples, seed 0",
        "CSV to copy algorithm,trials,failed,R/t,R/t +-",
        r"LaTeX to copy \begin{tabular}{lrrrrrr}",
    ):
        assert phrase in words, phrase


def test_labels_are_text_and_nothing_else(full_report):
    _, reader, text = full_report
    assert MALICIOUS in reader.text and "<script" not in text and "&lt;script&gt;" in text


def test_numbers_of_a_report_are_those_of_the_statistics(full_report):
    dataset, reader, _ = full_report
    words = " ".join(" ".join(reader.text).split())
    number = r"(-?\d+\.?\d*)"
    last = over_trials(dataset, "hard_violation", averaged=True).isel(round=-1, algorithm=0)
    expected = [float(last["mean"]), float(last.high - last["mean"])]
    shown = np.asarray(re.findall(f"{number} ± {number}", words), float)
    assert np.isclose(shown, expected, atol=0.05 * expected[1]).all(axis=1).any()
    pair = paired_differences(dataset, "regret", seed=0, averaged=True).isel(algorithm=0, versus=1)
    expected = [float(pair[name]) for name in ("mean", "low", "high")]
    shown = np.asarray(re.findall(rf"{number} \[{number}, {number}\]", words), float)
    assert np.isclose(shown, expected, atol=0.05 * (expected[2] - expected[1])).all(axis=1).any()


def test_a_report_of_little_leaves_out_what_it_cannot_say(tmp_path):
    dataset = results(1, labels=["alone"], trials=1, rounds=2).drop_vars(["regret", "soft_violation"])
    reader, _ = read(write_report(dataset, tmp_path / "new" / "page.html"))
    assert reader.sections == ["summary", "flags", "curves", "boxes", "growth", "parameters"]
    assert (tmp_path / "new" / "page.html").is_file()


def test_reports_of_nothing_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match="is no directory"):
        write_report(tmp_path / "missing")
    with pytest.raises(InvalidArgument, match=r"holds no results\.nc"):
        write_report(tmp_path)
    (tmp_path / "results.nc").write_bytes(b"not NetCDF")
    with pytest.raises(InvalidArgument, match="cannot read"):
        write_report(tmp_path)
    save(xr.Dataset({"x": ("y", [1.0])}), tmp_path / "results.nc")
    with pytest.raises(InvalidArgument, match="algorithm, trial, round, status, declared_round missing"):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_every_section_without_complaint(full_report, tmp_path):
    _, _, text = full_report
    page = tmp_path / "report.html"
    page.write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    options += ["--disable-sync", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    shown = subprocess.run(["chromium", *options, page.as_uri()], capture_output=True, text=True, timeout=120)
    assert shown.returncode == 0 and all(f'id="{name}"' in shown.stdout for name in SECTIONS)
    assert "CONSOLE" not in shown.stderr


def test_many_algorithms_get_few_figures():
    dataset = results(0, labels=[f"a{n}" for n in range(50)], trials=2, rounds=4)
    *_, last = StudyPage(dataset).curves()
    # Four of 8 parts are shown.
    assert last.caption.endswith(f"; {50 - (7 + 7 + 6 + 6)} more runs are in the tables only.")
    assert figure_parts([([1, 2, 3], ", one"), ([4], ", two")], 2) == [([1, 3], ", one"), ([4], ", two"), ([2], ", one")]
    few = results(0, labels=[f"a{n}" for n in range(8)], trials=2, rounds=4)
    assert len(StudyPage(few).curves()) == 2 and "more runs" not in StudyPage(few).curves()[-1].caption


def drawn(draw):
    """Draw on a fresh axis and return it."""
    figure, axis = plt.subplots()
    assert draw(axis) is axis
    figure.savefig(io.BytesIO())
    plt.close(figure)
    return axis


def lines(axis):
    return [line for line in axis.get_lines() if len(line.get_xdata()) > 1]


def test_curves_stand_at_the_rounds_that_were_kept():
    whole, thinned = results(2), results(2).isel(round=slice(9, None, 10))
    line = {"RPOL": "RPOL-UCB"}
    few, many = (drawn(lambda axis, d=d: plots.cumulative(d, "regret", line, heading="", ylabel="", ax=axis)) for d in (thinned, whole))
    np.testing.assert_array_equal(lines(few)[0].get_xdata(), np.arange(10, 61, 10))
    np.testing.assert_allclose(lines(few)[0].get_ydata(), lines(many)[0].get_ydata()[9::10])
    boxes = {"heading": "", "ylabel": "", "every": 20}
    few, many = (
        drawn(lambda axis, d=d: plots.boxes_over_time(d.sel(algorithm="CONFIG"), "regret", **boxes, ax=axis)) for d in (thinned, whole)
    )
    np.testing.assert_array_equal(lines(few)[-1].get_xdata(), [20, 40, 60])
    np.testing.assert_allclose(lines(few)[-1].get_ydata(), lines(many)[-1].get_ydata())
    few, many = (
        drawn(lambda axis, d=d: plots.trade_off(d, ("regret", ""), ("hard_violation", ""), heading="", ax=axis)) for d in (thinned, whole)
    )
    np.testing.assert_allclose(few.dataLim.get_points(), many.dataLim.get_points())


def test_failed_trials_are_in_no_figure():
    bad = results(4, failed=[(0, 2), (0, 5)])
    good = bad.isel(trial=[n for n in range(12) if n not in (2, 5)])
    line = {"x": "RPOL-UCB"}
    shown, expected = (drawn(lambda axis, d=d: plots.cumulative(d, "regret", line, heading="", ylabel="", ax=axis)) for d in (bad, good))
    np.testing.assert_allclose(lines(shown)[0].get_ydata(), lines(expected)[0].get_ydata())
    multipliers = np.random.default_rng(0).random((3, 8, 2))
    axis = drawn(lambda axis: plots.multiplier_paths(multipliers, ax=axis))
    np.testing.assert_allclose(lines(axis)[1].get_ydata(), multipliers[..., 1].mean(axis=0))
    assert tables.summary_rows(bad)[0]["failed"] == 2 and "RPOL-UCB (2 failed)" in tables.text_table(tables.summary_rows(bad))


def test_average_curves_take_odd_labels(tmp_path):
    dataset = results(5, labels=["$a^", "all failed"], failed=[(1, n) for n in range(12)])
    figure, axes = plots.figure_of(1, 3, (4.2, 3.6), title="t")
    assert plots.curves(dataset, axes=axes).tolist() == axes[0].tolist()
    figure.savefig(tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").size[0] > 1000
    assert axes[0, -1].get_legend_handles_labels()[1] == [r"\$a^", "all failed (undefined)"]


def drawn_sweep(dataset, *parameters):
    """The panel of regret."""
    return drawn(lambda axis: sweeps.sweep(dataset, measures=[("regret", "")], parameters=parameters, axes=axis)[0, 0])


def test_one_swept_parameter_gives_a_line_for_each_family():
    dataset = swept(bases=("RPOL-UCB", "CBO-UCB"), costs=(1.0,))
    axis = drawn_sweep(dataset, "estimator.reward_width")
    assert axis.get_legend_handles_labels()[1] == ["RPOL-UCB", "CBO-UCB"]
    last = over_trials(dataset, "regret", averaged=True)["mean"].values[:, -1]
    for container, expected in zip(axis.containers, (last[:3], last[3:6]), strict=True):
        line = container.lines[0]
        np.testing.assert_allclose(line.get_ydata(), expected)
        np.testing.assert_array_equal(line.get_xdata(), [1.0, 2.0, 4.0])
    axis = drawn_sweep(swept(costs=(0.5, 1.0)), "estimator.reward_width")
    assert axis.get_legend_handles_labels()[1] == ["RPOL-UCB, estimator.cost_width = 0.5", "RPOL-UCB, estimator.cost_width = 1"]


def test_two_swept_parameters_give_a_map_with_their_means():
    dataset = swept().isel(algorithm=slice(1, None))
    names = ("estimator.reward_width", "estimator.cost_width")
    ((label, part),) = sweeps.families(dataset, *names)
    assert label == "RPOL-UCB" and part.sizes["algorithm"] == 5
    table = drawn_sweep(dataset, *names).collections[0].get_array()
    last = over_trials(part, "regret", averaged=True)["mean"].values[:, -1]
    far = part.assign_coords(algorithm=[f"far {n}" for n in range(5)])
    far = xr.concat([part, far.assign(regret=1e4 * far.regret)], "algorithm")
    far = far.assign_coords(base=("algorithm", ["near"] * 5 + ["far"] * 5))
    maps = sweeps.sweep(far, measures=[("regret", "")], parameters=names, axes=plots.figure_of(2, 1)[1])
    [axis] = [axis for axis in maps.flat if axis.get_title() == "near"]
    assert sorted(cell.get_text() for cell in axis.texts) == sorted(f"{value:.3g}" for value in last), "in digits of their own"
    assert table.mask[0, 0] and table.mask.sum() == 1
    np.testing.assert_allclose(table[1], last[[0, 2, 4]])
    np.testing.assert_allclose(table[0, 1:], last[[1, 3]])
    assert sweeps.sweep(dataset).shape == (1, 2)
    plt.close()
    with pytest.raises(InvalidArgument, match="several algorithms share"):
        twice = part.assign_coords(algorithm=[f"{label} again" for label in part.algorithm.values])
        sweeps.sweep(xr.concat([part, twice], "algorithm"))
    with pytest.raises(InvalidArgument, match="no hyper-parameter was swept"):
        sweeps.sweep(results())


def test_parameters_swept_together_are_a_line_not_a_plane():
    # The pairs are (1, 0.5), (2, 1) and CONFIG.
    dataset = swept(widths=(1.0, 2.0, 4.0), costs=(0.5, 1.0)).isel(algorithm=[0, 3, 6])
    width, cost = "estimator.reward_width", "estimator.cost_width"
    assert sweeps.swept_together(dataset, width) == [cost] and sweeps.swept_together(swept(), width) == []
    assert [parameters for parameters, _ in sweeps.sweeps_of(dataset)] == [[width]]
    axis = drawn_sweep(dataset, width)
    (container,) = axis.containers
    np.testing.assert_array_equal(container.lines[0].get_xdata(), [1.0, 2.0])
    assert axis.get_xlabel() == f"{width} and {cost}"


def test_algorithms_with_other_parameters_are_other_sweeps():
    dataset = swept(plain=("CONFIG low", "CONFIG high"))
    step = np.where(np.arange(8) < 6, np.nan, np.arange(8) - 5.0)
    dataset = dataset.assign_coords(step=("algorithm", step))
    names = ["estimator.reward_width", "estimator.cost_width"]
    dataset.attrs["swept"] = json.dumps([*names, "step"])
    found = sweeps.sweeps_of(dataset)
    assert [(parameters, part.sizes["algorithm"]) for parameters, part in found] == [(names, 6), (["step"], 2)]
    with pytest.raises(InvalidArgument, match="no algorithm has both"):
        sweeps.sweep(dataset, parameters=[names[0], "step"])


def test_the_win_map_shows_the_matrix():
    wins = win_matrix(results(6), "regret")
    axis = drawn(lambda axis: sweeps.win_map(wins, ax=axis))
    np.testing.assert_allclose(axis.collections[0].get_array(), wins.values[::-1])
    assert [tick.get_text() for tick in axis.get_xticklabels()] == list(LABELS)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == list(LABELS)[::-1]


def test_delays_are_those_of_the_arrivals():
    dataset = results(7, late=True)
    dataset.arrival.values[:, 0, 0] = jb.delays.NEVER
    axis = drawn(lambda axis: plots.delay_histogram(dataset, ax=axis))
    reward = axis.get_legend_handles_labels()[1][0]
    delays = dataset.arrival.values[0, :, :, 0] - np.arange(1, 61)
    inside = dataset.arrival.values[0, :, :, 0] <= 60
    assert reward.startswith(f"Poisson(mean 7), reward: mean {delays[inside].mean():.1f}, {(~inside).mean():.1%} pending")
    assert "0.1% never arrive" in reward
    shares = axis.patches[0].get_data()
    np.testing.assert_allclose(shares.values, np.bincount(delays[inside], minlength=len(shares.values)) / inside.sum())
    with pytest.raises(InvalidArgument, match="no feedback of this study was late"):
        plots.delay_histogram(results(), ax=axis)


@pytest.fixture(scope="module")
def late_run():
    """Return a trial of RPOL with rewards and costs late."""
    problem = jb.problems.sine(8)
    kernel = jb.kernels.SquaredExponential(length_scale=1.5)
    model = jb.surrogate(problem.domain, kernel, noise_variance=0.05, tolerance=1e-6)
    options = {"horizon": 12, "trials": 2, "key": jax.random.key(0), "initial": jb.InitialDesign(random=3)}
    run = jb.simulate(problem, jb.Rpol(), model, delay=jb.delays.Poisson(mean=3.0), **options)
    return problem, kernel, model, jax.tree.map(np.asarray, run)


def dense_posterior(points, kernel, indices, values, noise):
    """Return mean and deviation of one output by a dense solve."""
    gram = np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=-1) / (2 * kernel.length_scale**2))
    seen = gram[np.ix_(indices, indices)] + noise * np.eye(len(indices))
    weights = np.linalg.solve(seen, gram[indices])
    return weights.T @ values, np.sqrt(np.maximum(1 - (gram[indices] * weights).sum(axis=0), 0))


@pytest.mark.full
@pytest.mark.parametrize("delayed", [True, False])
def test_the_replayed_posterior_is_the_dense_one(late_run, delayed):
    problem, kernel, model, run = late_run
    trial = jax.tree.map(lambda x: x[1], run)
    trial = trial if delayed else jb.replace(trial, arrivals=None)
    rounds = [0, 5, 12]
    belief = posterior_after(model, trial, rounds)
    assert belief.mean.shape == belief.sd.shape == (3, 2, 64)
    indices = np.concatenate([trial.initial_indices, trial.indices])
    values = np.concatenate([trial.initial_values, trial.values]).astype(float)
    arrivals = np.asarray(trial.arrivals) if delayed else np.tile(np.arange(1, 13)[:, None], 2)
    due = np.concatenate([np.zeros((3, 2), int), arrivals])
    assert not delayed or ((due[:, 0] != due[:, 1]).any() and (due > 12).any())
    for place, t in enumerate(rounds):
        for j in range(2):
            come = due[:, j] <= t
            mean, sd = dense_posterior(np.asarray(problem.domain.points), kernel, indices[come], values[come, j], 0.05)
            np.testing.assert_allclose(belief.mean[place, j], mean, atol=2e-3)
            np.testing.assert_allclose(belief.sd[place, j], sd, atol=2e-3)


@pytest.mark.full
def test_posterior_maps_and_their_animation_are_written(late_run, tmp_path):
    problem, _, model, run = late_run
    trial = jax.tree.map(lambda x: x[0], run)
    words = {"problem": problem, "score": penalised_bounds(3.0, 3.0)}
    axes = posterior_maps(model, trial, [3, 12], **words)
    axes[0, 0].figure.savefig(tmp_path / "maps.png", dpi=30)
    plt.close()
    with Image.open(tmp_path / "maps.png") as image:
        assert np.asarray(image.convert("L")).std() > 10
    posterior_animation(model, trial, [1, 12], title="one trial", **words).save(tmp_path / "maps.gif", writer="pillow", dpi=30)
    with Image.open(tmp_path / "maps.gif") as image:
        assert image.n_frames == 2 and image.info["duration"] == 500


@pytest.mark.full
def test_the_mapped_score_is_the_one_that_rpol_maximises(late_run):
    _, _, model, run = late_run
    trial = jax.tree.map(lambda x: x[0], run)
    rounds = list(range(12))
    beliefs = jax.tree.map(np.asarray, posterior_after(model, trial, rounds))
    for t in rounds:
        score = penalised_bounds(3.0, 3.0)(jax.tree.map(lambda x, t=t: x[t], beliefs), np.asarray(trial.multipliers)[t], t + 1)
        assert float(score[int(trial.indices[t])]) == pytest.approx(float(score.max()), abs=1e-3)


@pytest.mark.full
def test_maps_say_what_they_need(late_run):
    problem, kernel, model, run = late_run
    trial = jax.tree.map(lambda x: x[0], run)
    with pytest.raises(InvalidArgument, match="of many trials"):
        posterior_after(model, run, [1])
    with pytest.raises(InvalidArgument, match="no values"):
        posterior_after(model, jb.replace(trial, values=None), [1])
    with pytest.raises(InvalidArgument, match=r"rounds: must be at most 12, the last round, got \[13\]"):
        posterior_after(model, trial, [13])
    with pytest.raises(InvalidArgument, match=r"rounds: expected shape \[n\] with n >= 1"):
        posterior_after(model, trial, [])
    bare = jb.surrogate(jb.domains.points(problem.domain.points), kernel, noise_variance=0.05)
    with pytest.raises(InvalidArgument, match="product grid"):
        posterior_maps(bare, trial, [1])


@pytest.mark.full(but=("True",))
@pytest.mark.parametrize("plane", [False, True])
def test_a_safe_set_is_drawn_as_it_was_certified(plane):
    domain = jb.domains.grid([0.0, 0.0], [1.0, 1.0], 6) if plane else jb.domains.grid([0.0], [1.0], 24)
    points, kernel, place = np.asarray(domain.points), jb.kernels.SquaredExponential(length_scale=0.8), 14
    cost = 3 * np.sum((points - points[place]) ** 2, axis=1) - 0.9
    problem = jb.problems.from_tables(domain, points[:, 0], [cost], noise_variance=1e-4)
    model = jb.surrogate(domain, kernel, noise_variance=1e-4)
    trial = jb.simulate(problem, jb.SafeOpt(seeds=[place]), model, horizon=12, trials=1, key=0, record="all").trial(0)
    belief = posterior_after(model, trial, list(range(13)))
    certified = np.asarray(belief.mean + 3 * belief.sd)[:, 1] <= 0
    assert not certified[0].any() and 2 < certified[-1].sum() < domain.size
    axis = plots.safe_set(model, trial, problem=problem)
    shown = axis.collections[0].get_array()
    if plane:
        first = np.where(certified.any(axis=0), certified.argmax(axis=0), -1).reshape(6, 6).T
        np.testing.assert_array_equal(np.ma.filled(shown, -1).reshape(6, 6), first)
    else:
        np.testing.assert_array_equal(~np.ma.getmaskarray(shown).reshape(13, 24), certified)
    with pytest.raises(InvalidArgument, match="surrogate: must model constraints, for without any every point is safe"):
        plots.safe_set(jb.surrogate(domain, kernel, noise_variance=1e-4, outputs=1), trial)
    with pytest.raises(InvalidArgument, match="maps need a two-dimensional product grid"):
        plots.safe_set(jb.surrogate(jb.domains.grid([0.0] * 3, [1.0] * 3, 3), kernel, noise_variance=1e-4), trial)
    plt.close("all")


@pytest.mark.full
def test_the_backend_is_the_users():
    """Importing the functions does not load pyplot."""
    program = (
        "import sys, matplotlib, jaxbandit.report.plots as plots\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "axis = plots.multiplier_paths([[1.0], [2.0]])\n"
        "print(matplotlib.get_backend(), type(axis.figure.canvas).__name__)"
    )
    result = subprocess.run([sys.executable, "-c", program], env={**os.environ, "MPLBACKEND": "svg"}, capture_output=True, text=True)
    assert result.stdout.split() == ["svg", "FigureCanvasSVG"], result.stderr
    for path in [*Path(plots.__file__).parent.glob("**/*.py"), Path(figures.__file__)]:
        text = path.read_text(encoding="utf-8")
        assert "matplotlib.use" not in text and ("pyplot" not in text or path.name == Path(figures.__file__).name), path.name
