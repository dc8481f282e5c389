"""Objects that show themselves: short text, tables in HTML with everything escaped, and a picture of a problem on a plane."""

import base64
import io
import re
from html.parser import HTMLParser

import jax
import numpy as np
import pytest
from PIL import Image

import jaxbandit as jb
from jaxbandit.core.text import aligned, html_fields, html_table
from jaxbandit.host.figures import thumbnail
from jaxbandit.session import Axis
from jaxbandit.study import Run, Study, make_plan

MALICIOUS = "<script>alert('a&b')</script>"


class Reader(HTMLParser):
    """Collects tags, and text by cells; complains of tags left open."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.cells = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("img", "br"):
            self.open.append(tag)
        if tag in ("th", "td", "caption"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells[-1] += data


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def pixels(data):
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


PROBLEM = jb.problems.sine(12)
MODEL = jb.surrogate(PROBLEM.domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
INDICES = np.arange(12).reshape(2, 6)
OBJECTS = [
    PROBLEM,
    MODEL,
    jb.Rpol(),
    jb.Refitted(algorithm=jb.Cbo()),
    jb.delays.Poisson(mean=3.0),
    jb.metrics.curves(PROBLEM, INDICES),
    jb.kernels.Matern52(length_scale=[1.0, 2.0]),
    jb.InitialDesign(random=3),
    jb.sweep(jb.Rpol(), {"estimator.reward_width": [1.0, 2.0]}),
]


def test_the_text_of_objects_says_what_they_are_about():
    assert repr(OBJECTS[-1]) == "Sweep(2 variants of Rpol: estimator.reward_width=[1., 2.])"
    run = Run("RPOL", PROBLEM, jb.Rpol(), MODEL)
    assert re.fullmatch(r"Run\('RPOL': Rpol\(.*\) on sine\)", repr(run))
    plan = make_plan(Study("small", [run], trials=3, horizon=2))
    assert re.fullmatch(r"Plan\(Study\('small'.*\); cells: 1, batches: 1, results: \d.*, devices: \d+\)", repr(plan))
    assert repr(jb.domains.sobol([0.0], [1.0], 64, 0)) == "Domain(points=float64[64, 1])"
    assert repr(Axis.between("dose", 1.0, 10.0, 40)) == "Axis('dose': 40 values from 1 to 10; linear)"


@pytest.mark.parametrize("item", OBJECTS, ids=lambda item: type(item).__name__)
def test_objects_are_shown_in_little_text_and_in_a_table(item):
    assert len(repr(item)) < 1000
    reader, text = read(item._repr_html_()), item._repr_html_()
    assert reader.tags[0][0] in ("table", "div") and type(item).__name__ in reader.cells[0]
    assert len(re.sub(r"base64,[^\"]*", "", text)) < 4000


def test_a_problem_shows_its_best_point_and_how_much_is_feasible():
    cells = read(PROBLEM._repr_html_()).cells
    facts = dict(zip(cells[1::2], cells[2::2], strict=True))
    best = jb.problems.optimum(PROBLEM)
    assert facts["best feasible reward"].startswith(f"{float(best.value):.4g} at (")
    assert facts["feasible points"] == f"{float(best.feasible_fraction):.2%}" and facts["points"].startswith("144 (12 x 12 grid)")
    (image,) = [attributes for tag, attributes in read(PROBLEM._repr_html_()).tags if tag == "img"]
    drawn = pixels(base64.b64decode(image["src"].removeprefix("data:image/png;base64,")))
    assert drawn.shape[0] == drawn.shape[1] >= 160 and "infeasible" in image["alt"]


def test_a_model_says_what_it_is_of_and_how_it_computes_without_the_names_of_its_parts():
    kernels = [jb.kernels.SquaredExponential(length_scale=1.0), jb.kernels.Matern52(length_scale=0.5)]
    differing = jb.surrogate(PROBLEM.domain, kernels, noise_variance=[0.05, 0.1], prior_mean=[0.0, 1.0])
    on_box = jb.surrogate(jb.domains.box({"rate": (0, 1), "share": (0, 2)}), kernels[0], noise_variance=0.01)
    for model, points, kernel, noise, mean in (
        (MODEL, "144 (12 x 12 grid) in [0, 6] x [0, 6]", repr(kernels[0]), "0.05", "0"),
        (
            differing,
            "144 (12 x 12 grid) in [0, 6] x [0, 6]",
            "reward: SquaredExponential(length_scale=1.0)constraint 1: Matern52(length_scale=0.5)",
            "reward: 0.05constraint 1: 0.1",
            "reward: 0constraint 1: 1",
        ),
        (on_box, "rate, share: any point of the box", repr(kernels[0]), "0.01", "0"),
    ):
        cells = read(model._repr_html_()).cells
        said = model.describe().replace("\n", "")
        facts = {"points": points, "kernel": kernel, "noise variance": noise, "prior mean": mean, "computation": said}
        assert dict(zip(cells[1::2], cells[2::2], strict=True)) == facts


def test_a_problem_without_a_feasible_point_or_a_plane_is_shown():
    domain = jb.domains.grid([0.0], [1.0], 5)
    infeasible = jb.problems.from_tables(domain, np.zeros(5), [np.ones(5)], name=MALICIOUS)
    text = infeasible._repr_html_()
    assert "no point is feasible" in text and "<script" not in text and "&lt;script" in text and "<img" not in text


def test_what_is_traced_is_shown_by_its_shapes():
    seen = []

    @jax.jit
    def look(model, problem):
        seen.extend([model._repr_html_(), problem._repr_html_()])
        return 0

    look(jb.canonicalise(MODEL), jb.canonicalise(PROBLEM))
    assert len(seen) == 2 and all(text.count("<table") == 1 for text in seen)


def test_a_thumbnail_is_upright_with_pale_infeasible_cells_and_a_cross():
    values = np.asarray([[0.0, 1.0], [2.0, 3.0]])  # [across, up]
    drawn = pixels(thumbnail(values, np.asarray([[True, True], [True, False]]), None))
    low_left, low_right, up_left, up_right = drawn[-1, 0], drawn[-1, -1], drawn[0, 0], drawn[0, -1]
    assert np.abs(low_left - [0, 34, 78]).max() <= 1  # the least value, in the darkest shade
    assert low_left.sum() < up_left.sum() < low_right.sum()
    assert np.abs(up_right - (0.35 * np.asarray([254, 232, 56]) + 0.65 * 255)).max() <= 1
    marked = pixels(thumbnail(values, np.ones((2, 2), bool), (1, 0)))
    side = len(marked)
    assert (
        marked[3 * side // 4, 3 * side // 4].tolist() == [213, 94, 0]
        and marked[0, 0].tolist() == pixels(thumbnail(values, np.ones((2, 2), bool), None))[0, 0].tolist()
    )
    assert max(pixels(thumbnail(np.zeros((2000, 3)), np.ones((2000, 3), bool), None)).shape) <= 512


def test_tables_escape_everything():
    for text in (
        html_table([MALICIOUS, "b"], [[MALICIOUS, MALICIOUS]], caption=MALICIOUS),
        html_fields(MALICIOUS, [(MALICIOUS, MALICIOUS)], picture=b"x", said=f'" {MALICIOUS}'),
    ):
        assert "<script" not in text
        reader = read(text)
        assert reader.cells.count(MALICIOUS) >= 3
    assert aligned([["a", "bb"], ["ccc", "d"]]) == "a    bb\n-------\nccc   d"


def test_blocks_of_a_wide_table_tell_their_lines_apart():
    lines = [["problem", "rule", "regret" * 3, "violation" * 2], ["sine", "cei", "1", "2"], ["sine", "rpol", "3", "4"]]
    assert [line.split() for line in aligned(lines, width=40).split("\n\n")[1].splitlines()[2:]] == [
        ["sine", "cei", "2"],
        ["sine", "rpol", "4"],
    ]
