"""Undeclared values of public arguments are refused by name, before compiling.

The cases are made from the declarations beside fields and arguments, so that a new algorithm, problem, delay model or measure is tried
without a line here. A public function without declarations has to be listed, with the reason.
"""

import datetime
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, kernels, problems, simulate
from jaxbandit.core import fields
from jaxbandit.core.declare import parameters
from jaxbandit.core.fields import trial_numbers
from jaxbandit.host import figures
from jaxbandit.session.axes import Axis
from jaxbandit.session.views import Reading
from tests.support.declared import CLASSES, required
from tests.support.refusals import refused

MODULES = [
    *(
        "numerics",
        "rules.consensus",
        "delays",
        "domains",
        "rules.estimators",
        "feedback",
        "fused",
        "gradients",
        "engine.informed",
        "kernels",
        "core.keys",
        "results.metrics",
        "rules.penalties",
    ),
    *(
        "problems",
        "rules.safety",
        "surrogates",
        "surrogates.evidence",
        "rules.widths",
        "algorithms",
        "core.status",
        "engine",
        "report.plots",
        "report.statistics",
        "session",
        "study",
    ),
]

# Public functions that declare nothing, and why.
UNDECLARED = {
    **dict.fromkeys(("intervals", "maximisers"), "parts of algorithms, which call them with traced arrays"),
    "with_noise": "a part of strategies, which call it with widths that have been checked",
    **dict.fromkeys(("canonicalise", "replace", "sweep"), "check what they are given themselves, for it depends on the object"),
    **dict.fromkeys(("pytree", "static"), "declare fields and classes"),
    **dict.fromkeys(("explain", "healthy", "nameable"), "check their only argument themselves"),
    **dict.fromkeys(("from_table", "write_whole", "ended", "interrupted"), "of the command line and of study files"),
    "figures.plain": "turns any label into text",
    "arithmetic": "checks its only argument itself, once its context is entered",
}
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


class Unmade:
    """An object whose conversion to an array fails."""

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise RuntimeError("no array")


NEVER_ALLOWED = {
    "an object": object(),
    "a complex number": 1j,
    "bytes": b"3",
    "a class": int,
    "a date": datetime.datetime(2020, 1, 1),
    "a NumPy date": np.datetime64("2020-01-01"),
    "a generator": (n for n in range(3)),
    "complex numbers": np.array([1j]),
    "text in a list": ["3.0"],
    "text in an array": np.array(["3.0"]),
    "None in an array": np.array([None]),
    "ragged rows": [[1.0], [1.0, 2.0]],
    "a list in itself": ENDLESS,
    "an array that cannot be made": Unmade(),
    "keys": jax.random.split(jax.random.key(0)),
}
NO_NUMBER = {"text": "3.0", "true": True, "nothing": "", "an endless integer": 10**400, "NaN": float("nan"), "infinity": -float("inf")}


def declared_functions() -> Iterator[tuple[str, Any]]:
    """Return public functions and methods with declared arguments, by name."""
    seen = set()
    for module in ["", *MODULES]:
        namespace = importlib.import_module(f"jaxbandit.{module}".rstrip("."))
        for name in getattr(namespace, "__all__", dir(namespace)):
            item = getattr(namespace, name, None)
            home = f"jaxbandit.{module}" if not hasattr(namespace, "__all__") else "jaxbandit."
            if name.startswith("_") or not getattr(item, "__module__", "").startswith(home) or id(item) in seen:
                continue
            seen.add(id(item))
            if inspect.isfunction(item):
                # Curves are measures, too.
                yield f"{item.__module__.rpartition('.')[2]}.{name}" if module == "report.plots" else name, item
            elif inspect.isclass(item):
                # The base is part of a public class and not public itself.
                own_parts = (item, *(base for base in item.__bases__ if base is Reading))
                methods = [(own, getattr(item, own)) for kind in own_parts for own in vars(kind) if not own.startswith("_")]
                yield from ((f"{name}.{own}", method) for own, method in methods if hasattr(method, "is_checked"))


FUNCTIONS = dict(declared_functions())
DECLARING = {name: function for name, function in FUNCTIONS.items() if hasattr(function, "is_checked")}


def wrong_values(check: fields.Check) -> dict[str, Any]:
    """Values that the check's own words rule out."""
    words = check.allowed
    wrong = dict(NEVER_ALLOWED)
    if "draw(" in words:
        del wrong["keys"]
    if "text" in words or "one of '" in words:
        wrong |= {"a number": 3.5}
        if "one item" in words or "each item text" in words:
            del wrong["text in a list"], wrong["text in an array"]
    else:
        wrong |= {name: NO_NUMBER[name] for name in ("text", "nothing")}
    if "number" in words and "mapping" not in words and "function" not in words:
        fine = {"true"} if "true" in words else {"text", "nothing"} if "text" in words else set()
        wrong |= {name: value for name, value in NO_NUMBER.items() if name not in fine}
        # Measures may be NaN.
        if words == "numbers":
            wrong = {name: value for name, value in wrong.items() if name not in ("NaN", "infinity", "ragged rows")}
    return wrong


@pytest.fixture(autouse=True)
def _no_trial_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any, **options: Any) -> None:
        raise AssertionError("nothing may compile")

    monkeypatch.setattr("jaxbandit.engine.simulation.play_all", stop)


def words_of(make: Any) -> str:
    """The message of a refusal."""
    with pytest.raises(InvalidArgument) as refusal:
        make()
    return str(refusal.value)


def checks_of(maker: Any) -> dict[str, fields.Check]:
    """Return the declared check of each field or argument."""
    return {parameter.name: parameter.check for parameter in parameters(maker) if parameter.check is not fields.anything}


def test_golden_messages(golden: Any) -> None:
    found = {}
    for name, kind in CLASSES.items():
        for field in parameters(kind):
            found[f"{name}.{field.name}"] = words_of(lambda kind=kind, given=required(kind) | {field.name: 1j}: kind(**given))
    for name, function in DECLARING.items():
        for argument in checks_of(function):
            found[f"{name}({argument})"] = words_of(lambda function=function, argument=argument: function(**{argument: 1j}))
    golden("messages").check_all(found)


@pytest.mark.parametrize("name", CLASSES)
def test_a_constructor_refuses_what_a_field_does_not_allow(name: str) -> None:
    kind = CLASSES[name]
    kind(**required(kind)).validate()
    found = [
        refused(name, field, what, lambda field=field, value=value: kind(**required(kind) | {field: value}))
        for field, check in checks_of(kind).items()
        for what, value in wrong_values(check).items()
    ]
    assert [words for words in found if words] == []


@pytest.mark.parametrize("name", DECLARING)
def test_a_function_refuses_what_an_argument_does_not_allow(name: str) -> None:
    function = DECLARING[name]
    found = [
        refused(name, argument, what, lambda argument=argument, value=value: function(**{argument: value}))
        for argument, check in checks_of(function).items()
        for what, value in wrong_values(check).items()
    ]
    assert [words for words in found if words] == []


def test_public_functions_declare_their_arguments_or_say_why_not() -> None:
    silent = {name for name, function in FUNCTIONS.items() if name not in DECLARING and inspect.signature(function).parameters}
    ours = {name for name in silent if FUNCTIONS[name].__module__.partition(".")[0] == "jaxbandit"}
    assert ours - set(UNDECLARED) == set(), "check them by jaxbandit.core.declare.checked"
    assert set(UNDECLARED) - ours == set(), "these declare their arguments, or are gone"
    assert len(DECLARING) > 60 and {"simulate", "sine", "curves", "Gaussian.from_sd", "fit"} <= set(DECLARING)


def test_a_number_that_is_to_be_above_another_is_refused_by_both_names() -> None:
    pairs = [
        (name, parameter.name, str(other)) for name, kind in CLASSES.items() for parameter in parameters(kind) for other in parameter.above
    ]
    assert {name.partition(".")[2] for name, *_ in pairs} >= {"algorithms.Scbo", "delays.Uniform", "problems.Zone"}
    for name, high, low in pairs:
        with pytest.raises(InvalidArgument, match=rf"{CLASSES[name].__name__}\.{high}: must be >=? {low}, got 2 and {low} = 4"):
            CLASSES[name](**{low: 4, high: 2})


ARMS = jaxbandit.domains.arms(3)
MODEL = jaxbandit.surrogate(ARMS, kernels.White(), noise_variance=0.1)
POSTERIOR = MODEL.init()
BELIEF = MODEL.belief(POSTERIOR)
PROBLEM = problems.from_tables(ARMS, [0.0, 1.0, 2.0], [0.0, 0.0, 0.0])
# An array or a loop would be as long as the named argument.
COUNTS: dict[str, tuple[Any, str]] = {
    "a policy's buffer": (lambda n: jaxbandit.feedback.Wait().bind(MODEL, separate_outputs=False, capacity=n, axis=None), "capacity"),
    "censored rounds": (lambda n: jaxbandit.feedback.Censor(window=n), "window"),
    "kernels of axes": (lambda n: kernels.Constant().along_axes(n), "dimension"),
    "kernels of some axes": (lambda n: kernels.OnAxes(kernel=kernels.White()).along_axes(n), "dimension"),
    "axes to check": (lambda n: kernels.Matern12().check_axes(n), "dimension"),
    "random points": (lambda n: jaxbandit.InitialDesign(random=n).points(jax.random.key(0), 5), "random"),
    "points to draw from": (lambda n: jaxbandit.InitialDesign(random=2).points(jax.random.key(0), n), "size"),
    "rounds kept": (lambda n: jaxbandit.study.Keep(every=1).rounds(n), "horizon"),
    "resamples": (lambda n: jaxbandit.report.statistics.resampling(n, 10**6, 0), "count"),
    "panels": (lambda n: figures.figure_of(n, 1), "rows"),
    "panels of a user": (lambda n: figures.grid_of_axes(None, 1, n), "columns"),
    "points in a range": (lambda n: jaxbandit.domains.points(range(n)), "coordinates"),
    "an axis in a range": (lambda n: jaxbandit.domains.product([range(n)]), "axes[0]"),
    "a named axis in a range": (lambda n: jaxbandit.domains.mixed({"a": range(n)}), "axes['a']"),
    "an axis of a session": (lambda n: Axis(name="a", values=range(n)), "Axis.values"),
    "a design in a range": (lambda n: jaxbandit.InitialDesign(indices=range(n)), "InitialDesign.indices"),
    "a sweep over a range": (lambda n: jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": range(1, n)}), "sweep.initial_penalty"),
    "trials in a range": (
        lambda n: simulate(PROBLEM, jaxbandit.Rpol(), MODEL, horizon=1000, key=jax.random.key(0), trials=range(n)),
        "trials",
    ),
}


@pytest.mark.parametrize("what", COUNTS)
def test_a_count_that_no_memory_holds_is_refused_at_once(what: str) -> None:
    made, argument = COUNTS[what]
    assert [words for n in (10**9, 10**400) if (words := refused(what, argument, str(n), lambda n=n: made(n)))] == []


def test_short_ranges_are_lists() -> None:
    assert jaxbandit.InitialDesign(indices=range(3)).count == 3
    assert jaxbandit.domains.product([range(3)]).size == 3 and np.shape(Axis(name="a", values=range(3)).values) == (3,)
    trial_numbers("trials", range(5, 2, -1))
    with pytest.raises(InvalidArgument, match=r"^trials: .* is empty"):
        trial_numbers("trials", range(0))


def test_checks_pass_over_tracers() -> None:
    """A constructor and a function of arrays stay usable inside compiled programs."""

    @jax.jit
    def traced(x: jax.Array) -> jax.Array:
        rpol = jaxbandit.Rpol(initial_penalty=x, estimator=jaxbandit.estimators.Bounds(reward_width=x))
        problem = problems.from_tables(jaxbandit.domains.arms(2), [0.0, 1.0], [0.0, 0.0])
        moved = jaxbandit.replace(problem, means=jnp.broadcast_to(x, (2, 2)))
        regret = jaxbandit.metrics.curves(moved, jnp.asarray([0, 1])).regret[-1]
        return jnp.stack([rpol.initial_penalty, regret, jaxbandit.acquisition.pick(jnp.stack([x, x])).astype(x.dtype)])

    np.testing.assert_array_equal(traced(jnp.float32(-1.0)), [-1.0, 0.0, 0.0])
