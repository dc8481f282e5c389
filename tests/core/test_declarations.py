"""Declared fields."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, consensus, delays, estimators, feedback, gradients, informed, kernels, penalties, problems, widths
from jaxbandit.algorithms import Elimination
from jaxbandit.core import checks, fields
from jaxbandit.core.codec import makers
from jaxbandit.core.declare import Declared, parameters, symbols
from jaxbandit.core.pytree import static
from jaxbandit.engine import InitialDesign
from jaxbandit.surrogates import LogNormal, Prior
from tests.support.declared import CLASSES, declared_fields, required
from tests.support.unchecked import unchecked

OUTPUTS = 3


def refusal(item: Declared, **where: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        item.validate(**where)
    return str(caught.value)


# Fields of all declared classes.


def test_golden_declarations(golden: Any) -> None:
    found = declared_fields()
    # Every field has a check.
    assert "anything" not in {field["allowed"] for field in found.values()}
    golden("declared").check_whole(found)


@pytest.mark.parametrize("name", CLASSES)
def test_nothing_is_checked_where_jax_rebuilds_with_anything(name: str) -> None:
    item = unchecked(CLASSES[name], **required(CLASSES[name]))
    for filling in (None, "3.0", object()):
        jax.tree.map(lambda _, filling=filling: filling, item)


# Shapes, paths and tracers.


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (unchecked(estimators.Bounds, reward_width=unchecked(widths.SqrtLog, a=-1.0)), "Rpol.estimator.reward_width.a: must be > 0"),
        (
            unchecked(estimators.Bounds, cost_width=unchecked(widths.Censored, base=unchecked(widths.SqrtLog, b=0.5))),
            "Rpol.estimator.cost_width.base.b: must lie in (1, inf)",
        ),
        (
            unchecked(estimators.Randomised, distribution=unchecked(estimators.DiscreteUniform, points=1)),
            "Rpol.estimator.distribution.points: must be a whole",
        ),
        (
            unchecked(delays.Lossy, delay=unchecked(delays.Mirrored, delay=unchecked(delays.Poisson, mean="a"))),
            "Rpol.estimator.delay.delay.mean: must be a number in",
        ),
        (
            unchecked(delays.PerOutput, delays=[delays.NoDelay(), unchecked(delays.Poisson, xi=1.0)]),
            "Rpol.estimator.delays[1].xi, Rpol.estimator.delays[1].b: give",
        ),
        (
            unchecked(problems.PerPoint, model=unchecked(problems.PerOutput, models=(problems.Noiseless(),))),
            "Rpol.estimator.model.models: must hold 2 models, one per output, got 1",
        ),
    ],
)
def test_messages_name_the_whole_path(item: Declared, path: str) -> None:
    assert refusal(item, name="Rpol.estimator", outputs=2).startswith(path)


def test_a_width_has_a_number_for_each_function_it_serves() -> None:
    two = unchecked(widths.ImprovedGPUCB, norm_bound=[1.0, 2.0])
    unchecked(estimators.Bounds, cost_width=two).validate(outputs=3)
    assert refusal(unchecked(estimators.Bounds, cost_width=two), outputs=2).startswith(
        "Bounds.cost_width.norm_bound: expected one number, or one for each of the 1 functions, got shape [2]"
    )
    assert refusal(unchecked(estimators.Bounds, reward_width=two), outputs=3).startswith(
        "Bounds.reward_width.norm_bound: expected one number"
    )
    assert refusal(unchecked(problems.Gaussian, variance=[1.0, 2.0]), outputs=3).endswith("one for each of the 3 outputs, got shape [2]")
    # The number of outputs is unknown.
    unchecked(problems.Gaussian, variance=[1.0, 2.0]).validate()
    assert "one for each of the outputs" in refusal(unchecked(problems.Gaussian, variance=[[1.0, 2.0]]))


@pytest.mark.parametrize("value", [-1.0, 0.0, np.nan, np.inf])
def test_tracers_are_passed_over(value: float) -> None:
    @jax.jit
    def traced(x: jax.Array) -> jax.Array:
        unchecked(penalties.Exponential, c=x).validate()
        unchecked(estimators.Bounds, reward_width=x, cost_width=unchecked(widths.ImprovedGPUCB, delta=x)).validate(outputs=OUTPUTS)
        unchecked(delays.Uniform, low=x, high=0).validate()
        unchecked(estimators.DiscreteGaussian, low=x).validate()
        unchecked(problems.PerPoint, model=unchecked(problems.Gaussian, variance=x)).validate(outputs=OUTPUTS)
        return x

    traced(value)
    jax.vmap(traced)(jnp.full((2,), value))


def test_the_shape_and_the_neighbours_of_a_tracer_are_checked() -> None:
    def bad_shape(x: jax.Array) -> jax.Array:
        unchecked(penalties.Exponential, c=x).validate()
        return x

    with pytest.raises(InvalidArgument, match=r"Exponential.c: expected one number, got shape \[2\]"):
        jax.jit(bad_shape)(jnp.ones(2))

    def bad_neighbour(x: jax.Array) -> jax.Array:
        unchecked(penalties.Polynomial, c=x, n=0.5).validate()
        return x

    with pytest.raises(InvalidArgument, match=r"Polynomial\.n: must lie in"):
        jax.jit(bad_neighbour)(1.0)


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (unchecked(penalties.Exponential, c=1e300), "c in float32: 1 of 1 values are NaN or infinite, got inf"),
        (unchecked(penalties.Exponential, c=1e-300), "c in float32: must be > 0, got 0.0"),
        (unchecked(penalties.Exponential, c=1e-44), "c in float32: must be > 0, got 0.0"),
        (unchecked(widths.ImprovedGPUCB, delta=1 - 1e-12), "delta in float32: must lie in (0, 1), got 1.0"),
        (unchecked(widths.SqrtLog, b=1 + 1e-12), "b in float32: must lie in (1, inf), got 1.0"),
        (unchecked(estimators.DiscreteGaussian, low=2.0, high=2 + 1e-12), "high - low: must be > 0"),
        (unchecked(estimators.DiscreteGaussian, low=-3e38, high=3e38), "high - low: 1 of 1 values are NaN or infinite"),
    ],
)
def test_numbers_that_the_engines_type_cannot_hold_are_refused(item: Declared, words: str) -> None:
    assert words in refusal(item)
    with jax.enable_x64(True):
        item.validate()


def test_a_variance_that_rounds_to_zero_is_zero() -> None:
    unchecked(problems.Gaussian, variance=1e-60).validate(outputs=2)


def test_a_class_in_place_of_an_instance_is_recognised() -> None:
    message = refusal(unchecked(estimators.Randomised, distribution=estimators.Gaussian))
    assert message.endswith("got the class Gaussian; make an instance, Gaussian(...)")


def test_a_width_that_censors_holds_no_other() -> None:
    assert refusal(unchecked(widths.Censored, base=widths.Censored())).startswith("Censored.base: must be a number or another schedule")


def test_lists_and_tuples_of_numbers_serve_as_arrays_in_the_engine() -> None:
    for variance in ([1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0])):
        noise = unchecked(problems.Gaussian, variance=variance)
        noise.validate(outputs=2)
        engine = jaxbandit.canonicalise(noise)
        assert engine.variance.shape == (2,) and jax.tree.structure(engine) == jax.tree.structure(problems.Gaussian())


# Users' own classes.


@jaxbandit.pytree
class Late(delays.Delay):
    """A user's own model, declared."""

    wait: Annotated[Any, fields.nonnegative, fields.Letter("w")] = 2.0
    kind: Annotated[Literal["slow", "fast"], fields.Letter("kind")] = static(default="slow")
    # This field is not declared.
    inner: Any = delays.NoDelay()
    # Neither is this one.
    free: Any = None

    @property
    def mean(self) -> Any:
        return self.wait

    def draw(self, key: jax.Array, outputs: int) -> jax.Array:
        return jnp.zeros((outputs,), jnp.int32)

    def quantile(self, q: float) -> int:
        return 0

    def _check(self, name: str, outputs: int | None) -> None:
        if outputs == 7:
            raise InvalidArgument(f"{name}: no seven outputs")


def test_a_users_class_is_checked_like_the_packages_own() -> None:
    Late().validate()
    Late(free="anything").validate()
    assert refusal(unchecked(Late, wait=-1.0)).startswith("Late.wait: must be >= 0")
    assert refusal(unchecked(Late, kind="slwo")) == "Late.kind: must be one of slow, fast; got 'slwo'"
    assert refusal(unchecked(Late, kind=3)) == "Late.kind: must be one of 'slow', 'fast', got 3"
    assert refusal(unchecked(Late, inner=unchecked(delays.Poisson, mean=-1.0))).startswith("Late.inner.mean: must lie in")
    # The field is found although it is not declared.
    assert refusal(unchecked(delays.Lossy, delay=Late()), outputs=7) == "Lossy.delay: no seven outputs"


def test_a_class_that_is_no_pytree_is_told_so() -> None:
    class Bare(widths.Width):
        def __call__(self, t: jax.Array, gain: jax.Array) -> jax.Array:
            return gain

    assert refusal(unchecked(estimators.Bounds, reward_width=Bare())) == (
        "Bounds.reward_width: the class Bare is not a pytree; decorate it with jaxbandit.pytree"
    )


@pytest.mark.parametrize(
    "base",
    [
        delays.Delay,
        widths.Width,
        estimators.Strategy,
        estimators.Distribution,
        problems.Noise,
        penalties.Penalty,
        jaxbandit.Algorithm,
        feedback.Policy,
        informed.Rule,
    ],
)
def test_bases_are_abstract(base: type) -> None:
    assert inspect.isabstract(base)
    with pytest.raises(TypeError, match="abstract"):
        base()


# Letters, and fields of study files.


def test_symbols_are_the_declared_letters_with_plain_values() -> None:
    assert symbols(unchecked(penalties.Polynomial, c=np.float32(0.5), n=jnp.asarray(3))) == {"c": 0.5, "n": 3}
    assert symbols(consensus.Agreement()) == {"eps_abs": 0.05, "eps_rel": 0.05, "relaxation": 1.5}
    assert symbols(estimators.Bounds()) == {}
    assert symbols(unchecked(Late, wait=np.array([1.0, 2.0]))) == {"w": [1.0, 2.0], "kind": "slow"}


@jaxbandit.pytree
class Learner(Declared):
    """Objects within an object."""

    psi: Annotated[penalties.Penalty, fields.Letter("psi")] = unchecked(penalties.Polynomial, n=3.0)
    agreement: consensus.Agreement = consensus.Agreement()
    epoch: Annotated[int, fields.whole(1), fields.Letter("S")] = static(default=20)
    cap: Annotated[Any, fields.positive | fields.nothing, fields.Letter("cap")] = None


def test_symbols_of_an_objects_parts_stand_beside_its_own() -> None:
    expected = {"psi": "polynomial", "c": 1.0, "n": 3.0, "eps_abs": 0.05, "eps_rel": 0.05, "relaxation": 1.5, "S": 20, "cap": None}
    assert symbols(Learner()) == expected


def test_parameters_say_what_can_be_set() -> None:
    poisson = {parameter.name: parameter for parameter in parameters(delays.Poisson)}
    assert list(poisson) == ["shared", "maximum", "xi", "b", "mean"]
    assert (poisson["mean"].static, poisson["mean"].check.classes) == (False, ())
    assert poisson["shared"].static and poisson["shared"].allowed == "true or false"
    assert poisson["xi"].allowed == "a number >= 0 or None"
    cost = parameters(estimators.Bounds)[1]
    assert cost.check.classes == (widths.Width,) and cost.allowed.endswith("; one number, or one for each of the constraints")
    assert parameters(delays.PerOutput)[0].check.classes == (delays.Delay,)
    assert [parameter.symbol for parameter in parameters(Learner)] == ["psi", None, "S", "cap"]
    assert parameters(delays.NoDelay) == ()


def test_study_files_can_name_the_packages_classes_of_a_role_that_opted_in() -> None:
    assert list(makers(penalties.Penalty)) == ["Exponential", "Polynomial"]
    assert makers(delays.Delay) == {
        name: getattr(delays, name) for name in delays.__all__ if name not in ("LONGEST_DELAY", "NEVER", "POISSON_MEAN", "Delay", "Failing")
    }
    # Abstract bases and users' classes are left out.
    assert set(makers(widths.Width, estimators.Distribution)) == {
        *("Censored", "Custom", "ImprovedGPUCB", "RealBeta", "SqrtLog"),
        *("DiscreteGaussian", "DiscreteUniform", "Gaussian"),
    }
    # A new role is not in files by itself.
    assert makers(Declared, Learner).keys() & {"Late", "Learner"} == set()


# Checks by themselves.

Positive = Annotated[int, fields.whole(1)]


def said(hint: Any) -> fields.Check:
    """The check that an annotation says."""

    def function(argument: Any) -> None: ...

    function.__annotations__ = {"argument": hint}
    (parameter,) = parameters(function)
    assert parameter.check is not fields.anything
    return parameter.check


# A value that no kind of number is; ``True`` and text are among them.
NO_NUMBERS: list[Any] = ["3.0", "", "nan", b"3", True, np.True_, 1j, object(), {}, {"a": 1.0}, float, max, ["1.0"], [True], np.array("3")]
NO_NUMBERS += [np.datetime64("2020-01-01"), np.array([None]), np.array([1j]), [[1.0], [1, 2]], 10**400, np.nan, -np.inf, np.float32("nan")]
# The place has three outputs, points and axes.
THREE = fields.Place(None, 3, 3, 3)

CHECKS: list[tuple[fields.Check, list[Any], list[Any]]] = [
    (fields.text, ["", "a"], [3, None, b"a", ["a"]]),
    (fields.choice("a", "b"), ["a", np.str_("b")], ["c", "A", 1, None, ["a"], np.array(["a", "b"])]),
    (fields.choice(1, 2), [1, np.int64(2)], [3, True, 1.0, "1", None, np.array([1, 2])]),
    (fields.whole(1), [1, np.int32(5), 2**31 - 1], [0, 2**31, 1.0, None, *NO_NUMBERS]),
    (fields.whole(0, 3), [0, 3], [4, -1]),
    (fields.boolean, [True, np.False_], [0, 1, "no", None]),
    (fields.finite, [0, -1e30, np.float16(2), jnp.float32(1)], [None, [1.0], *NO_NUMBERS]),
    (fields.positive, [1e-30, 1, np.asarray(2.0)], [0, -1.0, 1e-44, None, [1.0], *NO_NUMBERS]),
    (fields.nonnegative, [0, 1e-44, 2.5], [-1e-9, None, [1.0], *NO_NUMBERS]),
    (fields.between(0, 1), [1, 0.5], [0, 1.1, None, [0.5], *NO_NUMBERS]),
    (fields.between(0, 1, open_low=False, open_high=True), [0, 0.5], [1, -0.1, 1 - 1e-12]),
    (fields.between(0, 1, open_high=True, host=True), [1 - 1e-12], [1, 0]),
    (fields.whole_numbers(0, 9, "rounds"), [0, 9, 3.0], [0.5, 10, -1, None, *NO_NUMBERS]),
    (fields.point, [0, 2.0, np.int64(1)], [0.5, -1, 3, None, *NO_NUMBERS]),
    (fields.index, [0, np.int32(2), [0, 2]], [3, -1, 1.0, None, *NO_NUMBERS]),
    (fields.points, [[], [0, 2], (1,), range(2), np.array([2])], [3, [-1], [3], [0.5], [1.0], [[0, 1]], None, [True], *NO_NUMBERS]),
    (
        fields.mask,
        [[True, False, True], jnp.ones(3, bool)],
        [[True], [], [1, 0, 1], True, np.ones(3), np.ones((3, 3), bool), ["True"], None],
    ),
    (fields.how_many_points(), [1, 3], [0, 4, 1.0, None, *NO_NUMBERS]),
    (fields.numbers, [3, [1.0, np.nan], np.ones((2, 2))], ["3", None, True, b"3"]),
    (fields.positive | fields.nothing, [None, 1.0], [0.0, "1", False]),
    (fields.positive | fields.choice("auto"), [1.0, "auto"], [0.0, "automatic", "1.0", None]),
    (fields.each(fields.text), [("a",), ["a", "b"], ()], ["a", (1,), None]),
    (fields.each(fields.whole(0), types=(tuple,)), [(), (0, 3)], [[1], (-1,), (1.0,), (True,), ("1",), {1}, 1, np.array([1])]),
    (fields.function("(x)"), [max, lambda x: x], [None, 3, lambda: 1, lambda x, y: 1, float, "max", [max]]),
    (fields.of_class(delays.Delay), [delays.NoDelay()], [delays.NoDelay, "NoDelay", None, problems.Noiseless(), {"type": "NoDelay"}]),
    (said(bool), [True, np.False_], [0, 1, "no", None]),
    (said(int | None), [1, -3, None], [1.0, True, "1"]),
    (said(Literal["a", 1]), ["a", 1], ["b", 2, True, None]),
    (said(tuple[Positive, Positive]), [(1, 2)], [(1,), (1, 2, 3), (0, 1), (1, "2"), (1, True), 1]),
    (said(Annotated[Sequence[str], fields.AtLeast(1)]), [["a"], ("a", "b")], [(), "a", [1]]),
    (said(Annotated[Mapping[str, int], fields.Words("counts")]), [{"a": 1}], [{"a": "1"}, {1: 1}, [("a", 1)]]),
    (said(Annotated[float, fields.positive] | delays.Delay), [1.0, delays.NoDelay()], [0.0, delays.NoDelay, problems.Noiseless(), None]),
]


@pytest.mark.parametrize(("check", "good", "bad"), CHECKS, ids=[case[0].allowed for case in CHECKS])
def test_a_check_passes_the_good_and_refuses_the_bad_by_name(check: fields.Check, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check("field", value, THREE)
    for value in bad:
        with pytest.raises(InvalidArgument, match=r"^field"):
            check("field", value, THREE)


ONE, TWO, THREE_EACH, MANY = (), (2,), (3,), (5,)
# The shapes are for three outputs, points and axes.
SHAPES: list[tuple[str | fields.Shape, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    ("scalar", [ONE], [(1,), THREE_EACH]),
    ("unknown", [ONE], [(1,), THREE_EACH]),
    ("one_function", [ONE, (1,)], [TWO, THREE_EACH, (1, 1)]),
    ("per_function", [ONE, THREE_EACH], [(0,), (1,), TWO, MANY, (3, 1)]),
    ("per_constraint", [ONE, TWO], [(0,), (1,), THREE_EACH, (2, 1)]),
    ("per_output", [ONE, THREE_EACH], [(0,), TWO, (3, 1)]),
    ("per_output_of_two", [ONE, TWO], [THREE_EACH]),
    ("per_axis", [ONE, THREE_EACH], [(0,), TWO, (3, 1)]),
    ("each_output", [THREE_EACH], [ONE, TWO]),
    ("each_axis", [THREE_EACH], [ONE, TWO, (0,)]),
    ("of_points", [(3,), (0, 3), (5, 3)], [ONE, TWO, (3, 2)]),
    ("table_of_points", [(5, 3)], [ONE, (3,), (3, 2), (1, 5, 3)]),
    (fields.vector("numbers"), [(1,), MANY], [ONE, (0,), (1, 1)]),
    (fields.matrix("numbers"), [(1, 1), (2, 5)], [ONE, TWO, (0, 3), (3, 0), (1, 2, 3)]),
    (fields.exactly(None, 2), [(1, 2), (0, 2)], [ONE, TWO, (2, 3), (1, 1, 2)]),
    (fields.leading("n"), [(0,), TWO, (2, 2)], [ONE]),
]


@pytest.mark.parametrize(("shape", "good", "bad"), SHAPES, ids=lambda case: case if isinstance(case, str) else "")
def test_a_shape_fits_the_number_of_outputs_or_axes(shape: Any, good: list[tuple[int, ...]], bad: list[tuple[int, ...]]) -> None:
    shape = getattr(fields, shape) if isinstance(shape, str) else shape
    for size in good:
        shape.check("field", np.ones(size), THREE)
    for size in bad:
        with pytest.raises(InvalidArgument, match=r"^field: expected .*, got shape"):
            shape.check("field", np.ones(size), THREE)


# Fields whose class looks at them itself, after what their annotation says.
CHECKED_BY_CLASS: list[tuple[type, str, list[Any], list[Any]]] = [
    (
        kernels.Gram,
        "matrix",
        [np.eye(1), np.ones((2, 2)), np.zeros((2, 2)), [[2.0, 1.0], [1.0, 2.0]]],
        [-np.eye(2), np.triu(np.ones((2, 2)))],
    ),
    (kernels.OnAxes, "axes", [(0,), (2, 0)], [(), (0, 0)]),
    (delays.Mirrored, "doubled", [(), (0,), (1,)], [(2,), (0, 0)]),
    (problems.Mirrored, "doubled", [(), (0,), (1,)], [(2,), (0, 0)]),
    (delays.PerOutput, "delays", [(delays.NoDelay(),) * 3], [(), (delays.NoDelay(),), (delays.NoDelay(),) * 4]),
    (problems.PerOutput, "models", [(problems.Noiseless(),) * 3], [(), (problems.Noiseless(),), (problems.Noiseless(),) * 4]),
    (
        problems.Heteroscedastic,
        "variance",
        [np.ones(4), np.ones((3, 4)), [[0, 1]] * 3],
        [np.ones(()), np.ones((3, 0)), np.ones((4, 4)), [-1.0]],
    ),
    (problems.Residuals, "weights", [1.0, [1.0, 0.5, 2.0]], [[1.0, 2.0]]),
    (widths.Custom, "function", [lambda *given: jnp.float32(2.0)], [lambda t: 1.0]),
    (gradients.SubjectTo, "objective", [gradients.regret, lambda curves: curves.regret[-1]], [lambda: 1.0, None]),
    (InitialDesign, "indices", [None, [], [0, 3], jnp.asarray([2])], [[-1], [0.5], 3, np.zeros((1, 2), int)]),
    (Elimination, "delta", [0.5], [1.0]),
    (jaxbandit.SafeOpt, "seeds", [None, [0, 3], (1,)], [[], [-1]]),
]


@pytest.mark.parametrize(("kind", "field", "good", "bad"), CHECKED_BY_CLASS, ids=lambda case: case if isinstance(case, str | type) else "")
def test_a_class_looks_at_a_field_itself(kind: type, field: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        unchecked(kind, **required(kind) | {field: value}).validate(outputs=OUTPUTS)
    for value in bad:
        assert refusal(unchecked(kind, **required(kind) | {field: value}), name="item", outputs=OUTPUTS).startswith(f"item.{field}"), value


# Fields that hold objects: an object that is not valid is refused by the path of its own field.
HELD: list[tuple[type, str, Any, str]] = [
    (estimators.Bounds, "reward_width", unchecked(widths.SqrtLog, b=1.0), ".b"),
    (estimators.Bounds, "cost_width", unchecked(widths.ImprovedGPUCB, delta=2.0), ".delta"),
    (estimators.Randomised, "distribution", unchecked(estimators.DiscreteUniform, points=1), ".points"),
    (delays.Lossy, "delay", unchecked(delays.Poisson, mean=-1.0), ".mean"),
    (problems.PerPoint, "model", unchecked(problems.Gaussian, variance=-1.0), ".variance"),
    (kernels.Scale, "kernel", unchecked(kernels.Matern12, length_scale=-1.0), ".length_scale"),
    (jaxbandit.Se2, "psi", unchecked(penalties.Polynomial, n=0.5), ".n"),
    (jaxbandit.Admmbo, "agreement", unchecked(consensus.Agreement, absolute=0.0), ".absolute"),
    (jaxbandit.Rpol, "estimator", unchecked(estimators.Bounds, cost_width=[1.0] * OUTPUTS), ".cost_width"),
    (jaxbandit.Bpe, "width", unchecked(Elimination, delta=1.0), ".delta"),
    (jaxbandit.Anytime, "algorithm", unchecked(jaxbandit.Bpe, ties="last"), ".ties"),
    (jaxbandit.Refitted, "prior", unchecked(Prior, scale=-1.0), ".scale"),
    (Prior, "variance", unchecked(LogNormal, spread=0.0), ".spread"),
]


@pytest.mark.parametrize(("kind", "field", "value", "path"), HELD, ids=lambda case: case if isinstance(case, str | type) else "")
def test_an_object_that_a_field_holds_is_checked(kind: type, field: str, value: Any, path: str) -> None:
    held = unchecked(kind, **required(kind) | {field: value})
    assert refusal(held, name="item", outputs=OUTPUTS).startswith(f"item.{field}{path}: ")
    # RPOL's widths show their number of outputs only where it is known.
    if kind is not jaxbandit.Rpol:
        with pytest.raises(InvalidArgument, match=rf"^{kind.__name__}\.{field}\{path}: "):
            kind(**required(kind) | {field: value})


@pytest.mark.parametrize("check", [checks.finite, checks.positive, checks.nonnegative, checks.Interval(0, 9).check])
@pytest.mark.parametrize(
    "value", ["3.0", ["1.0"], np.array(["2.0"]), True, [True, 2.0], None, 1j, b"3", object(), [[1.0], [1.0, 2.0]], 10**400]
)
def test_primitive_checks_take_nothing_else_for_numbers(check: Callable[[str, Any], None], value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^lambda: expected numbers, got "):
        check("lambda", value)


@pytest.mark.parametrize("shape", [lambda n, v: fields.scalar.check(n, v, None), lambda n, v: checks.shape(n, v, (None,))])
def test_shapes_of_ragged_lists_are_refused_by_name(shape: Callable[[str, Any], None]) -> None:
    with pytest.raises(InvalidArgument, match=r"^table: expected an array"):
        shape("table", [[1.0], [1.0, 2.0]])


def test_long_values_are_cut() -> None:
    assert len(checks.short(np.arange(10**5).tolist())) == 120
    assert checks.short(10**5000) == "<int that cannot be printed>"
