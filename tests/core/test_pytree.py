"""Pytrees: construction, replacement and sweeps over fields, and how objects show themselves."""

import base64
import dataclasses
import io
import itertools
import re
from html.parser import HTMLParser
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxbandit as jb
from jaxbandit import InvalidArgument, Sweep, canonicalise, delays, domains, estimators, kernels, pytree, replace, static, sweep, widths
from jaxbandit.core.pytree import float_dtype, set_field
from jaxbandit.core.sweep import gather_variants
from jaxbandit.core.text import aligned, html_fields, html_table
from jaxbandit.host.figures import thumbnail
from jaxbandit.session import Axis
from jaxbandit.study import Run, Study, make_plan


@pytree
class Inner:
    width: Any = 3.0
    label: str = static(default="inner")


@pytree
class Outer:
    inner: Inner = Inner()
    rate: Any = 1.0
    table: Any = None
    count: int = static(default=2)


def test_fields_are_leaves_unless_static():
    outer = Outer(inner=Inner(width=5.0), rate=2.0, count=9)
    assert jax.tree.leaves(outer) == [5.0, 2.0]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(outer)]
    assert paths == [".inner.width", ".rate"]
    assert jax.tree.structure(Outer(count=1)) != jax.tree.structure(Outer(count=2))
    assert jax.tree.structure(Outer(rate=1.0)) == jax.tree.structure(Outer(rate=2.0))


def test_frozen_and_keyword_only():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Inner().width = 4.0
    with pytest.raises(TypeError):
        Inner(4.0)


def test_construction_converts_and_checks_nothing():
    """JAX rebuilds objects with tracers, None and whatever ``tree.map`` returns."""
    rebuilt = jax.tree.map(lambda leaf: "anything", Outer())
    assert (rebuilt.inner.width, rebuilt.rate, rebuilt.count) == ("anything", "anything", 2)


def test_static_takes_field_arguments():
    @pytree
    class Listed:
        names: tuple[str, ...] = static(default_factory=lambda: ("a",))

    assert Listed().names == ("a",)
    assert jax.tree.leaves(Listed()) == []


def test_replace_copies_and_refuses_unknown_fields():
    outer = Outer()
    changed = replace(outer, rate=7.0)
    assert (outer.rate, changed.rate, changed.inner) == (1.0, 7.0, outer.inner)
    with pytest.raises(InvalidArgument, match=r"replace\.beta: unknown field"):
        replace(outer, beta=1.0)
    with pytest.raises(InvalidArgument, match="obj: must be an object of a pytree dataclass, got the class Outer"):
        replace(Outer, rate=1.0)


def test_grad_gives_the_same_class():
    gradient = jax.grad(lambda outer: outer.rate**2 * outer.inner.width)(Outer(rate=3.0, inner=Inner(width=2.0)))
    assert isinstance(gradient, Outer)
    assert (float(gradient.rate), float(gradient.inner.width), gradient.count) == (12.0, 9.0, 2)


# Canonical forms.

NUMBERS = {
    "int": 3,
    "float": 3.0,
    "numpy float64": np.float64(3),
    "numpy float32": np.float32(3),
    "numpy float16": np.float16(3),
    "numpy int64": np.int64(3),
    "numpy int32": np.int32(3),
    "0-d array": np.array(3.0),
    "jax float32": jnp.float32(3),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_becomes_the_engines_float(name, x64):
    with jax.enable_x64(x64):
        leaf = canonicalise(Inner(width=NUMBERS[name])).width
        kind = jax.typeof(leaf)
        assert kind.dtype == (np.float64 if x64 else np.float32) == float_dtype()
        assert kind.shape == () and not kind.weak_type and float(leaf) == 3


@pytest.mark.parametrize("x64", [False, True])
def test_arrays_keep_their_kind(x64):
    with jax.enable_x64(x64):
        wide = np.float64 if x64 else np.float32
        kinds = {
            "float64": (np.ones(2), wide),
            "float32": (np.ones(2, np.float32), wide),
            "int64": (np.arange(2), np.int32),
            "uint8": (np.arange(2, dtype=np.uint8), np.int32),
            "bool": (np.array([True, False]), np.bool_),
            "python bool": (True, np.bool_),
        }
        for name, (value, want) in kinds.items():
            got = canonicalise({"x": value})["x"]
            assert got.dtype == want, name
            np.testing.assert_array_equal(got, value)


def test_keys_pass_and_none_stays():
    key = jax.random.key(4)
    tree = canonicalise({"key": key, "keys": jax.random.split(key, 3), "nothing": None})
    assert tree["nothing"] is None
    assert tree["key"].dtype == key.dtype and tree["keys"].shape == (3,)
    np.testing.assert_array_equal(jax.random.key_data(tree["key"]), jax.random.key_data(key))


def test_canonicalise_reaches_nested_fields_and_leaves_statics():
    tree = canonicalise([(Outer(inner=Inner(width=1), table=np.arange(3), count=5),)])
    (outer,) = tree[0]
    assert outer.inner.width.dtype == np.float32 and outer.table.dtype == np.int32 and outer.rate.dtype == np.float32
    assert (outer.count, outer.inner.label) == (5, "inner")
    again = canonicalise(tree)
    assert jax.tree.map(lambda x: x.dtype, again) == jax.tree.map(lambda x: x.dtype, tree)


def test_equal_structures_share_one_trace():
    traces = []

    @jax.jit
    def use(outer):
        traces.append(1)
        return outer.rate * 2

    for number in NUMBERS.values():
        assert float(use(canonicalise(Outer(rate=number)))) == 6
    assert len(traces) == 1
    use(canonicalise(Outer(rate=3.0, count=3)))
    # A static field makes a new program, so the counter counts.
    assert len(traces) == 2


@pytest.mark.parametrize("algorithm", [jb.Rpol(), jb.Cbo(), jb.Config()], ids=lambda a: a.name)
def test_leaves_of_algorithms_are_numbers_that_can_be_swept(algorithm):
    for leaf in jax.tree.leaves(canonicalise(algorithm)):
        assert leaf.dtype == np.float32 and leaf.shape == ()


def test_the_text_of_an_object_is_short_and_says_what_matters():
    problem = jb.problems.sine(20)
    model = jb.surrogate(problem.domain, jb.kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05)
    assert len(repr(model)) < 900 and "points=float32[400, 2]" in repr(model) and "noise_variance=[0.05]" in repr(model)
    assert len(repr(problem)) < 300 and "means=float64[2, 400]" in repr(problem)
    assert repr(jb.delays.Poisson(mean=jax.numpy.float32(0.1))) == "Poisson(shared=False, mean=0.1)"
    assert repr(jb.InitialDesign(indices=[1, 2])) == "InitialDesign(indices=[1, 2], random=0, counted=False)"
    seen = []
    jax.jit(lambda design: seen.append(repr(design)))(jb.InitialDesign(indices=np.arange(3)))
    assert seen == ["InitialDesign(indices=traced int32[3], random=0, counted=False)"]


@pytree
class Keyed:
    key: Any = None


def rows(swept):
    """Width and rate of every variant."""
    return [(float(one.inner.width), float(one.rate)) for one in swept.unstack()]


# Variants and their order.


def test_one_field_gives_a_variant_for_each_value():
    swept = sweep(Outer(), {"rate": [1.0, 2.0, 3.0]})
    assert isinstance(swept, Sweep) and swept.size == 3
    assert rows(swept) == [(3.0, 1.0), (3.0, 2.0), (3.0, 3.0)]
    assert [one.count for one in swept.unstack()] == [2, 2, 2]


def test_every_combination_is_a_variant_and_the_last_field_varies_fastest():
    swept = sweep(Outer(), {"inner.width": [4, 5, 6], "rate": np.array([0.5, 0.25])})
    assert swept.size == 6
    assert rows(swept) == list(itertools.product([4.0, 5.0, 6.0], [0.5, 0.25]))
    other = sweep(Outer(), {"rate": [0.5, 0.25], "inner.width": [4, 5, 6]})
    assert rows(other) == [(w, r) for r, w in itertools.product([0.5, 0.25], [4.0, 5.0, 6.0])]


def test_zipped_fields_go_together():
    swept = sweep(Outer(), {"inner.width": [4, 5], "rate": np.array([0.5, 0.25])}, zipped=True)
    assert rows(swept) == [(4.0, 0.5), (5.0, 0.25)]
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(swept))


def test_whole_objects_and_vectors_are_swept():
    swept = sweep(Outer(), {"inner": [Inner(width=1.0), Inner(width=2.0)], "table": [np.zeros(3), np.ones(3)]}, zipped=True)
    assert [float(one.inner.width) for one in swept.unstack()] == [1.0, 2.0]
    np.testing.assert_array_equal([one.table for one in swept.unstack()], [np.zeros(3), np.ones(3)])


def test_a_field_of_an_object_that_is_swept_too():
    """The object comes before its field, as they were given."""
    swept = sweep(Outer(), {"inner": [Inner(width=1.0), Inner(width=2.0)], "inner.width": [7.0, 8.0]})
    assert [float(one.inner.width) for one in swept.unstack()] == [7.0, 8.0, 7.0, 8.0]


def test_integers_from_numpy_are_numbers():
    """``range(1, 4)`` and ``np.arange(1, 4)`` ask for the same."""
    for values in ([1, 2, 3], range(1, 4), np.arange(1, 4), np.arange(1.0, 4.0), jnp.arange(1.0, 4.0)):
        swept = sweep(Inner(), {"width": values})
        assert [one.width.dtype for one in swept.unstack()] == [np.float32] * 3, values
        assert [float(one.width) for one in swept.unstack()] == [1, 2, 3], values


def test_the_base_stays_as_it_is():
    base = Outer()
    sweep(base, {"rate": [5.0], "inner.width": [7.0]})
    assert base == Outer()


def test_variants_are_picked_by_a_number_that_may_be_traced():
    swept = sweep(Outer(), {"inner.width": [1.0, 2.0, 5.0], "rate": [3.0, 4.0, 6.0]}, zipped=True)
    expected = [float(one.rate) * float(one.inner.width) for one in swept.unstack()]

    def product(number):
        one = swept.pick(number)
        return one.rate * one.inner.width

    np.testing.assert_array_equal(jax.vmap(product)(jnp.arange(3)), expected)
    np.testing.assert_array_equal([jax.jit(product)(number) for number in range(3)], expected)
    as_argument = jax.jit(lambda given, number: given.pick(number).rate)
    assert [float(as_argument(swept, number)) for number in range(3)] == [3.0, 4.0, 6.0]


def test_gathering_undoes_unstacking():
    variants = [canonicalise(Outer(rate=r, inner=Inner(width=w))) for r, w in ((1.0, 2.0), (3.0, 4.0))]
    back = gather_variants(variants).unstack()
    for one, other in zip(variants, back, strict=True):
        assert jax.tree.structure(one) == jax.tree.structure(other)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert a.dtype == b.dtype and float(a) == float(b)


def test_a_sweep_is_a_pytree_of_static_size():
    swept = sweep(Outer(), {"rate": [1.0, 2.0]})
    assert jax.tree.map(lambda x: x, swept).size == 2
    assert sorted(np.shape(x) for x in jax.tree.leaves(swept)) == [(), (2,)]
    assert jax.tree.structure(swept) != jax.tree.structure(sweep(Outer(), {"rate": [1.0, 2.0, 3.0]}))


# Shared arrays.


def held(swept):
    """Return names of shared and differing leaves, in the object's order."""
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(swept.pick(0))]
    for one, many in zip(swept.shared, swept.differing, strict=True):
        assert (one is None) != (many is None), "a leaf is held once, or once for each variant"
    return [name for name, one in zip(names, swept.shared, strict=True) if one is not None]


def test_equal_leaves_are_held_once_and_others_once_for_each_variant():
    swept = sweep(Outer(table=np.arange(3.0)), {"rate": [1.0, 2.0]})
    assert held(swept) == [".inner.width", ".table"]
    assert [np.shape(many) for many in swept.differing if many is not None] == [(2,)]
    assert held(sweep(Outer(), {"rate": [2.0, 2.0]})) == [".inner.width", ".rate"], "compared by value"
    one = sweep(Outer(), {"rate": [5.0]})
    assert held(one) == [".inner.width", ".rate"] and float(one.pick(0).rate) == 5


def test_equal_arrays_of_different_objects_are_held_once():
    variants = [canonicalise(Outer(table=np.arange(4.0), rate=rate)) for rate in (1.0, 2.0)]
    assert variants[0].table is not variants[1].table
    assert held(gather_variants(variants)) == [".inner.width", ".table"]
    variants[1] = jb.replace(variants[1], table=np.array([0.0, 1.0, 2.0, 9.0], np.float32))
    assert held(gather_variants(variants)) == [".inner.width"]


def test_keys_are_compared_by_their_numbers():
    first, second = jax.random.key(1), jax.random.key(2)
    assert held(sweep(Keyed(), {"key": [first, jax.random.key(1)]})) == [".key"]
    swept = sweep(Keyed(), {"key": [first, second]})
    assert held(swept) == []
    for number, key in enumerate((first, second)):
        np.testing.assert_array_equal(jax.random.key_data(swept.pick(number).key), jax.random.key_data(key))


FORMS = {
    "features": kernels.SquaredExponential(length_scale=0.3),
    "product": kernels.SquaredExponential(length_scale=0.3),
    "rows": kernels.Matern52(length_scale=0.3),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_sweep_of_the_noise_variance_holds_the_features_once(form):
    """No array as large as the domain is copied."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 12)
    model = canonicalise(jb.surrogate(domain, FORMS[form], noise_variance=0.1, form=form))
    swept = sweep(model, {"noise_variance": [[0.01], [0.1], [1.0]]})
    assert [np.shape(many) for many in swept.differing if many is not None] == [(3, 1)]
    large = [leaf for leaf in jax.tree.leaves(model) if np.size(leaf) >= domain.size]
    assert large and {id(leaf) for leaf in large} <= {id(one) for one in swept.shared}
    assert len(held(swept)) == len(jax.tree.leaves(model)) - 1
    with pytest.raises(InvalidArgument, match=r"sweep\.kernels: kernels of Surrogate cannot be set: the features were made from it"):
        sweep(model, {"kernels": [(FORMS[form],)]})
    for number, variance in enumerate((0.01, 0.1, 1.0)):
        np.testing.assert_allclose(swept.pick(number).noise_variance, [variance], rtol=1e-6)


def test_what_a_compiled_run_is_given_holds_the_features_once(monkeypatch):
    """Models that are not swept are held once, too."""
    from jaxbandit.engine import simulation

    class CaughtError(Exception):
        """Carries the arguments of the compiled program."""

    def caught(cell, *args, **kwargs):
        raise CaughtError(cell)

    monkeypatch.setattr(simulation, "play_all", caught)
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 12)
    model = jb.surrogate(domain, FORMS["features"], noise_variance=0.1, form="features")
    problem = jb.problems.from_tables(domain, np.arange(144.0), np.arange(144.0) - 70)
    phi = np.shape(model.forms[0].phi)
    cases = {
        "a swept model": {"surrogate": sweep(model, {"noise_variance": [[0.01], [0.1], [1.0]]})},
        "a swept algorithm": {"algorithm": sweep(jb.Rpol(), {"initial_penalty": [1.0, 2.0, 3.0]})},
        "swept delays": {"delay": sweep(delays.Poisson(), {"mean": [1.0, 2.0, 3.0]})},
    }
    for name, given in cases.items():
        given = {"algorithm": jb.Rpol(), "surrogate": model} | given
        with pytest.raises(CaughtError) as error:
            jb.simulate(problem, given.pop("algorithm"), given.pop("surrogate"), horizon=4, key=jax.random.key(0), **given)
        variants = error.value.args[0].variants
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(variants)]
        assert shapes.count(phi) == 1, name
        assert [np.shape(many)[0] for many in variants.differing if many is not None] == [3], name
        assert max(np.size(many) for many in variants.differing if many is not None) == 3, name


# Sweeps of delays and widths.


def test_delays_are_swept():
    swept = sweep(delays.Lossy(delay=delays.Poisson()), {"delay.mean": [1.0, 5.0], "never": [0.0, 0.5]})
    assert [(float(one.delay.mean), float(one.never)) for one in swept.unstack()] == [(1.0, 0.0), (1.0, 0.5), (5.0, 0.0), (5.0, 0.5)]
    assert all(isinstance(one, delays.Lossy) and isinstance(one.delay, delays.Poisson) for one in swept.unstack())


def test_schedules_of_one_class_are_swept():
    swept = sweep(estimators.Bounds(), {"reward_width": [widths.SqrtLog(a=1.0), widths.SqrtLog(a=4.0)], "cost_width": [2.0, 3.0]})
    assert [(float(one.reward_width.a), float(one.cost_width)) for one in swept.unstack()] == [(1, 2), (1, 3), (4, 2), (4, 3)]


# Refusals.


def test_combinations_need_no_equal_numbers_of_values():
    """The same fields and values that are refused when zipped."""
    assert sweep(Outer(), {"rate": [1.0], "inner.width": [1.0, 2.0]}).size == 2


def test_a_path_reads_the_same_in_a_table_of_a_study_file():
    """Tables stand for objects that are not made yet."""
    table = {"name": "Bounds", "reward_width": {"name": "SqrtLog", "a": 1.0}}
    changed = set_field(table, "reward_width.a", 4.0, "study")
    assert changed == {"name": "Bounds", "reward_width": {"name": "SqrtLog", "a": 4.0}} and table["reward_width"]["a"] == 1.0
    assert set_field(table, "cost_width", 2.0, "study")["cost_width"] == 2.0
    with pytest.raises(InvalidArgument, match=r"^study: there is no such field"):
        set_field(table, "cost_width.a", 4.0, "study")


MALICIOUS = "<script>alert('a&b')</script>"


class Reader(HTMLParser):
    """Parser of tags and cells that complains of open tags."""

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
    # The least value has the darkest shade.
    assert np.abs(low_left - [0, 34, 78]).max() <= 1
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
