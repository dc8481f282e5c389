"""Declared fields: every check, every field of every declared class, paths, tracers, letters and what a study file can set."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import jaxbandit
from jaxbandit import (
    InvalidArgument,
    consensus,
    delays,
    estimators,
    feedback,
    gradients,
    informed,
    kernels,
    penalties,
    problems,
    safety,
    widths,
)
from jaxbandit.algorithms import Elimination, Scbo
from jaxbandit.core import checks, fields
from jaxbandit.core.codec import makers
from jaxbandit.core.declare import Declared, parameters, symbols
from jaxbandit.core.pytree import static
from jaxbandit.session.specification import UnknownDelay
from jaxbandit.surrogates import LogNormal, Prior
from tests.support.unchecked import unchecked

OUTPUTS = 3  # reward and two constraints
SETTINGS = settings(max_examples=15, derandomize=True, database=None)
INFINITY = float("inf")


# -- what each field may hold, said a second time and generated ----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Number:
    """Numbers of an interval, alone or (``lengths``) one for each of some functions."""

    low: float = -INFINITY
    high: float = INFINITY
    open_low: bool = True
    open_high: bool = True
    lengths: tuple[int, ...] = ()
    alone: bool = True
    optional: bool = False

    def good(self) -> st.SearchStrategy:
        one = self._inside()
        options = [one, one.map(np.float32), one.map(np.asarray)] if self.alone else []
        for length in self.lengths:
            lists = st.lists(one, min_size=length, max_size=length)
            options += [lists, lists.map(tuple), lists.map(np.asarray)]
        return st.one_of(*options, *([st.none()] if self.optional else []))

    def bad(self) -> st.SearchStrategy:
        inside = self._inside()
        outside = [st.sampled_from([np.nan, INFINITY, -INFINITY, np.float32("nan")])]
        if self.low > -INFINITY:
            outside.append(st.floats(max_value=self.low, exclude_max=not self.open_low, allow_nan=False))
        if self.high < INFINITY:
            outside.append(st.floats(min_value=self.high, exclude_min=not self.open_high, allow_nan=False))
        if not self.alone:
            outside = [values.map(lambda value: [value]) for values in outside]
        sizes = [size for size in (1, 2, 3, 5) if size not in self.lengths]
        shapes = [st.lists(inside, min_size=size, max_size=size) for size in sizes] if self.alone else [inside]
        lists = st.lists(inside, min_size=2, max_size=3)
        shapes += [st.just([]), st.just(np.zeros((0,))), inside.map(lambda x: [[x]]), lists.map(lambda x: [x, x[:1]])]
        return st.one_of(*outside, *shapes, _no_numbers(optional=self.optional))

    def _inside(self) -> st.SearchStrategy:
        largest = float(np.finfo(np.float32).max)  # without ends hypothesis draws numbers beyond it, and drops the whole example
        return st.floats(
            min_value=max(self.low, -largest),
            max_value=min(self.high, largest),
            exclude_min=abs(self.low) < INFINITY and self.open_low,
            exclude_max=abs(self.high) < INFINITY and self.open_high,
            allow_subnormal=False,
            width=32,
        )


@dataclasses.dataclass(frozen=True)
class Rounds(Number):
    """Whole numbers of rounds."""

    low: float = 0
    high: float = delays.LONGEST_DELAY
    open_low: bool = False
    open_high: bool = False

    def _inside(self) -> st.SearchStrategy:
        return st.integers(0, 2**24) | st.integers(0, 2**24).map(float)

    def bad(self) -> st.SearchStrategy:
        halves = st.integers(0, 1000).map(lambda n: n + 0.5)
        return super().bad() | (halves if self.alone else halves.map(lambda value: [value]))


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Finite numbers ``[n, p]``."""

    def good(self) -> st.SearchStrategy:
        return st.tuples(st.integers(1, 3), st.integers(1, 3)).map(np.ones)

    def bad(self) -> st.SearchStrategy:
        shapes = st.sampled_from([(), (2,), (0, 3), (3, 0), (1, 2, 3)]).map(np.ones)
        return shapes | st.sampled_from([np.full((2, 2), np.nan), [[1.0, INFINITY]], [["a", "b"]], [[1.0], [1.0, 2.0]]]) | _no_numbers()


@dataclasses.dataclass(frozen=True)
class OverPoints:
    """Numbers >= 0, ``[M]`` or ``[k, M]``."""

    def good(self) -> st.SearchStrategy:
        return st.sampled_from([(1,), (4,), (OUTPUTS, 4), (OUTPUTS, 1)]).map(np.ones) | st.sampled_from(
            [[0.0, 1.0], (0.5,), [[0, 1]] * OUTPUTS]
        )

    def bad(self) -> st.SearchStrategy:
        shapes = st.sampled_from([(), (0,), (OUTPUTS, 0), (OUTPUTS + 1, 4), (1, 2, 3)]).map(np.ones)
        return shapes | st.sampled_from([[np.nan], [-1.0], [1.0, INFINITY], [[1.0], [1.0, 2.0]]]) | _no_numbers()


@dataclasses.dataclass(frozen=True)
class Covariance:
    """A symmetric positive semi-definite matrix."""

    def good(self) -> st.SearchStrategy:
        return st.sampled_from([np.eye(1), np.eye(4), np.ones((2, 2)), [[2.0, 1.0], [1.0, 2.0]], np.zeros((2, 2))])

    def bad(self) -> st.SearchStrategy:
        shapes = st.sampled_from([(), (2,), (0, 0), (3, 2), (1, 2, 3)]).map(np.ones)
        wrong = st.sampled_from([np.full((2, 2), np.nan), -np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]]), np.triu(np.ones((2, 2)))])
        return shapes | wrong | _no_numbers()


@dataclasses.dataclass(frozen=True)
class Whole:
    """A static whole number."""

    least: int
    most: int
    optional: bool = False

    def good(self) -> st.SearchStrategy:
        numbers = st.integers(self.least, self.most)
        return st.one_of(numbers, numbers.map(np.int64), *([st.none()] if self.optional else []))

    def bad(self) -> st.SearchStrategy:
        outside = st.integers(max_value=self.least - 1) | st.integers(min_value=self.most + 1)
        return st.one_of(outside, st.floats(), _no_numbers(optional=self.optional))


@dataclasses.dataclass(frozen=True)
class Boolean:
    """True or false."""

    def good(self) -> st.SearchStrategy:
        return st.booleans() | st.booleans().map(np.bool_)

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from(["no", "yes", "", "true", 0, 1, 1.0, None, [], [True], np.array([True]), object()])


@dataclasses.dataclass(frozen=True)
class Function:
    """A function."""

    def good(self) -> st.SearchStrategy:
        return st.sampled_from([lambda t, gain: gain, lambda t, gain: 1 + gain, lambda *given: jnp.float32(2.0)])

    def bad(self) -> st.SearchStrategy:
        wrong_arity = [lambda: 1.0, lambda t: 1.0, lambda t, gain, more: gain]
        others = [None, 3.0, "sqrt", [max], {"type": "SqrtLog"}, float]
        return st.sampled_from([*wrong_arity, *others])


@dataclasses.dataclass(frozen=True)
class LossFunction:
    """A loss of one trial."""

    def good(self) -> st.SearchStrategy:
        return st.sampled_from([gradients.regret, lambda curves: curves.regret[-1]])

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from([lambda: 1.0, lambda curves, more: 1.0, None, 3.0, "regret", [gradients.regret], {"type": "regret"}])


@dataclasses.dataclass(frozen=True)
class Doubled:
    """Different numbers of outputs, a tuple; one of the three outputs is the copy."""

    def good(self) -> st.SearchStrategy:
        return st.sampled_from([(), (0,), (1,)])

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from([(2,), (-1,), (0, 0), (1.0,), ("1",), (True,), (None,), [1], {1}, "1", 1, None, np.array([1])])


@dataclasses.dataclass(frozen=True)
class Axes:
    """Different numbers of axes, a tuple that is not empty."""

    def good(self) -> st.SearchStrategy:
        return st.sampled_from([(0,), (1,), (2, 0)])

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from([(), (-1,), (0, 0), (1.0,), ("1",), (True,), (None,), [1], {1}, "1", 1, None, np.array([1])])


@dataclasses.dataclass(frozen=True)
class Points:
    """Numbers of points, ``[n]``, or ``None``."""

    empty: bool = False  # whether ``n`` may be 0

    def good(self) -> st.SearchStrategy:
        lists = st.lists(st.integers(0, 2**31 - 1), min_size=0 if self.empty else 1, max_size=4)
        return (
            st.none()
            | lists
            | lists.map(tuple)
            | lists.map(lambda x: np.asarray(x, np.int32))
            | lists.map(lambda x: jnp.asarray(x, jnp.int32))
        )

    def bad(self) -> st.SearchStrategy:
        wrong = [3, -1, [-1], [0, -5], np.array([1, -1]), [0.5], [1.0], np.array([[0, 1]]), np.int64(3), np.array([True, False])]
        return st.sampled_from([*wrong, *([] if self.empty else [[], (), np.zeros(0, np.int32)]), *NO_NUMBERS])


@dataclasses.dataclass(frozen=True)
class Mask:
    """Booleans ``[M]``, or ``None``."""

    def good(self) -> st.SearchStrategy:
        lists = st.lists(st.booleans(), min_size=1, max_size=4)
        return st.none() | lists | lists.map(np.asarray) | lists.map(jnp.asarray)

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from(
            [True, np.True_, 1, 0.5, [1, 0], [0.5], np.ones(3), np.ones((2, 2), bool), ["True"], "yes", b"1", [None], object(), {}]
        )


@dataclasses.dataclass(frozen=True)
class Point(Number):
    """The number of a point."""

    low: float = 0.0
    open_low: bool = False

    def _inside(self) -> st.SearchStrategy:
        return st.integers(0, 2**24) | st.integers(0, 2**24).map(float)

    def bad(self) -> st.SearchStrategy:
        return super().bad() | st.integers(0, 1000).map(lambda n: n + 0.5)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a few names or numbers."""

    values: tuple[Any, ...]

    def good(self) -> st.SearchStrategy:
        return st.sampled_from(self.values)

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from([None, "", "papers", 0, 3, 1.0, 2.0, True, ["paper"], ("mean",), object(), {}, b"paper"])


@dataclasses.dataclass(frozen=True)
class Budget:
    """Two whole numbers, a tuple."""

    def good(self) -> st.SearchStrategy:
        return st.tuples(st.integers(1, 10**6), st.integers(1, 10**6))

    def bad(self) -> st.SearchStrategy:
        return st.sampled_from(
            [3, None, "ab", (), (1,), (1, 2, 3), [1, 2], (0, 1), (1, -1), (1.0, 2), ("1", 2), (True, 2), (1, None), np.ones(2)]
        )


OBJECTS = [
    delays.Poisson(),
    widths.SqrtLog(),
    estimators.Bounds(),
    estimators.Gaussian(),
    problems.Gaussian(),
    penalties.Exponential(),
    consensus.Agreement(),
    jaxbandit.kernels.Matern12(),
]


@dataclasses.dataclass(frozen=True)
class Role:
    """An object of a role; ``valid`` and ``invalid`` ones of it."""

    base: type
    valid: tuple[Any, ...]
    invalid: tuple[Any, ...]
    number: Number | None = None  # a number may stand in its place
    optional: bool = False

    def good(self) -> st.SearchStrategy:
        return st.sampled_from((*self.valid, *([None] if self.optional else []))) | (
            st.nothing() if self.number is None else self.number.good()
        )

    def bad(self) -> st.SearchStrategy:
        others = [item for item in OBJECTS if not isinstance(item, self.base)] + [type(item) for item in self.valid]
        wrong = st.sampled_from([*others, *self.invalid, len, {"type": "Poisson"}])
        numbers = (
            st.sampled_from([3.0, [1.0], np.ones(2)]) | _no_numbers(optional=self.optional) if self.number is None else self.number.bad()
        )
        return wrong | numbers


@dataclasses.dataclass(frozen=True)
class Roles:
    """A tuple or list of objects, one for each output."""

    role: Role

    def good(self) -> st.SearchStrategy:
        several = st.lists(st.sampled_from(self.role.valid), min_size=OUTPUTS, max_size=OUTPUTS)
        return several | several.map(tuple)

    def bad(self) -> st.SearchStrategy:
        one = self.role.valid[0]
        spoiled = self.role.bad().map(lambda item: (one, item, one))
        return st.sampled_from([(), (one,), (one,) * 4, one, None, 3, "ab", {0: one}]) | spoiled


def _no_numbers(*, optional: bool = False) -> st.SearchStrategy:
    """Values that are no numbers, most of which look like some."""
    # Of a few characters: hypothesis takes seconds to list those of Unicode.
    return st.sampled_from([*NO_NUMBERS, *([] if optional else [None])]) | st.text("a0.- \né", max_size=5)


def _collected() -> list[Any]:
    plain = ["3.0", "3", "", "nan", b"3", True, np.True_, 1j, np.complex64(1), object(), {}, {"a": 1.0}, {1.0}, float, max, 10**400]
    arrays = [["1.0"], [None], [True], (False, 1.0), np.array("3"), np.array([1j]), np.array([None]), np.array([True, False]), ["1", 2.0]]
    dates = [np.datetime64("2020-01-01"), np.array(["2020-01-01"], "datetime64[D]"), jnp.asarray([True])]
    return [*plain, *arrays, *dates]


NO_NUMBERS = _collected()


POSITIVE, NONNEGATIVE = Number(low=0.0), Number(low=0.0, open_low=False)
EACH = {"lengths": (OUTPUTS,)}
POSITIVE_EACH, NONNEGATIVE_EACH = Number(low=0.0, **EACH), Number(low=0.0, open_low=False, **EACH)
WIDTH = Role(
    widths.Width,
    (widths.SqrtLog(), unchecked(widths.Custom, function=lambda t, gain: gain)),
    (unchecked(widths.SqrtLog, b=1.0), unchecked(widths.ImprovedGPUCB, delta=2.0)),
)
REWARD_WIDTH = dataclasses.replace(WIDTH, number=Number(low=0.0, lengths=(1,)))
COST_WIDTH = dataclasses.replace(WIDTH, number=Number(low=0.0, lengths=(OUTPUTS - 1,)))
DELAY = Role(
    delays.Delay,
    (delays.NoDelay(), unchecked(delays.Poisson, mean=3.0)),
    (unchecked(delays.Poisson, mean=-1.0), unchecked(delays.PerOutput, delays=())),
)
NOISE = Role(
    problems.Noise,
    (problems.Noiseless(), problems.Gaussian()),
    (unchecked(problems.Gaussian, variance=-1.0), unchecked(problems.PerOutput, models=())),
)
DISTRIBUTION = Role(
    estimators.Distribution,
    (estimators.Gaussian(), estimators.DiscreteUniform()),
    (unchecked(estimators.DiscreteUniform, points=1), unchecked(estimators.DiscreteGaussian, low=3.0)),
)
MODEL = {
    "shared": Boolean(),
    "maximum": Whole(0, delays.LONGEST_DELAY, optional=True),
    "xi": dataclasses.replace(NONNEGATIVE, optional=True),
    "b": dataclasses.replace(NONNEGATIVE, optional=True),
}
TOGETHER = {"xi": {"b": 1.0}, "b": {"xi": 1.0}}  # fields that are given with others only

POSITIVE_COSTS = Number(low=0.0, lengths=(OUTPUTS - 1,))
NONNEGATIVE_COSTS = Number(low=0.0, open_low=False, lengths=(OUTPUTS - 1,))
STRATEGY = Role(
    estimators.Strategy,
    (estimators.Bounds(), estimators.Thompson(), estimators.Randomised()),
    (unchecked(estimators.Bounds, reward_width=-1.0), unchecked(estimators.Bounds, cost_width=[1.0] * OUTPUTS)),
)
BOUNDS = Role(estimators.Bounds, (estimators.Bounds(),), (unchecked(estimators.Bounds, reward_width=0.0), estimators.Thompson()))
PENALTY = Role(penalties.Penalty, (penalties.Exponential(), penalties.Polynomial()), (unchecked(penalties.Polynomial, n=0.5),))
AGREEMENT = Role(consensus.Agreement, (consensus.Agreement(),), (unchecked(consensus.Agreement, absolute=0.0),))
ELIMINATION = Role(Elimination, (Elimination(),), (unchecked(Elimination, delta=1.0),), number=POSITIVE)
ALGORITHM = Role(
    jaxbandit.Algorithm,
    (jaxbandit.Rpol(), unchecked(jaxbandit.Anytime, algorithm=jaxbandit.Config())),
    (unchecked(jaxbandit.Rpol, initial_penalty=0.0), unchecked(jaxbandit.Anytime, algorithm=unchecked(jaxbandit.Bpe, ties="last"))),
)
LOG_NORMAL = Role(LogNormal, (LogNormal(),), (unchecked(LogNormal, spread=0.0),), optional=True)
PRIOR = Role(Prior, (Prior(),), (unchecked(Prior, scale=-1.0),))
PROBABILITY = Number(0.0, 1.0)
SEEDS = {"estimator": BOUNDS, "seeds": Points(), "count": Whole(1, 2**31 - 1, optional=True), "allowed": Mask()}
EPOCHS = {"estimator": STRATEGY, "epoch": Whole(1, 2**31 - 1), "restart": Boolean()}
LIPSCHITZ = {"lipschitz": dataclasses.replace(POSITIVE_COSTS, optional=True), "together": Boolean()}

PER_AXIS = Number(low=0.0, lengths=(1, 2, 3, 5))
KERNEL = Role(
    kernels.Kernel,
    (kernels.SquaredExponential(), kernels.White()),
    (unchecked(kernels.Matern12, length_scale=-1.0), kernels.SquaredExponential),
)
DECLARED: dict[type, dict[str, Any]] = {
    LogNormal: {"median": POSITIVE, "spread": POSITIVE, "apart": dataclasses.replace(POSITIVE, optional=True)},
    Prior: {
        **{name: LOG_NORMAL for name in ("length_scale", "variance", "noise_variance")},
        "extent": dataclasses.replace(PER_AXIS, optional=True),
        "scale": dataclasses.replace(POSITIVE, optional=True),
    },
    jaxbandit.Admmbo: {
        **{name: POSITIVE for name in ("penalty", "weight", "side")},
        "agreement": AGREEMENT,
        "feasibility_tolerance": NONNEGATIVE,
        "reward_budget": Budget(),
        "cost_budget": Budget(),
        "outer_iterations": Whole(1, 2**24),
    },
    jaxbandit.Anytime: {"algorithm": ALGORITHM, "keep_data": Boolean()},
    jaxbandit.Bpe: {
        "width": ELIMINATION,
        **{name: dataclasses.replace(NONNEGATIVE, optional=True) for name in ("mean_delay", "xi", "b")},
        "delta": PROBABILITY,
        "aware": Boolean(),
        "lengths": Choice(("paper", "code")),
        "ties": Choice(("first", "random")),
    },
    jaxbandit.Cbo: {
        "estimator": STRATEGY,
        "reward_clip": POSITIVE,
        "cost_clip": POSITIVE_COSTS,
        "dual_cap": POSITIVE_COSTS,
        "step_divisor": dataclasses.replace(POSITIVE_COSTS, optional=True),
    },
    jaxbandit.Cei: {"improvement": NONNEGATIVE, "incumbent": Choice(("mean", "observed")), "augmented": Boolean()},
    jaxbandit.Config: {"estimator": STRATEGY},
    jaxbandit.ConstrainedThompson: {"estimator": STRATEGY},
    jaxbandit.Epbo: {"estimator": STRATEGY, "penalty": NONNEGATIVE_COSTS},
    jaxbandit.InitialDesign: {"indices": Points(empty=True), "random": Whole(0, 2**31 - 1), "counted": Boolean(), "repeated": Boolean()},
    jaxbandit.Oco: {
        "step": POSITIVE,
        "regulariser": NONNEGATIVE,
        "perturbation": Number(0.0, 0.5, optional=True),
        "shrink": Number(0.0, 1.0, open_low=False, optional=True),
        "start": Number(0.0, 1.0, open_low=False, open_high=False, lengths=(1, 2, 3, 5), alone=False, optional=True),
    },
    jaxbandit.Oracle: {"index": Point(optional=True)},
    jaxbandit.PrimalDual: {"estimator": STRATEGY, "initial_multiplier": NONNEGATIVE_COSTS, "step": POSITIVE_COSTS},
    jaxbandit.RandomSearch: {"allowed": Mask()},
    jaxbandit.Refitted: {
        "algorithm": ALGORITHM,
        "prior": PRIOR,
        "span": Number(low=1.0),
        "every": Whole(1, 2**24, optional=True),
        "first": Whole(1, 2**24),
        **{name: Whole(1, 10_000) for name in ("points", "steps")},
        "fit_noise": Boolean(),
        "at_start": Boolean(),
    },
    jaxbandit.Rpol: {"estimator": STRATEGY, "initial_penalty": POSITIVE_COSTS, "penalty_growth": POSITIVE},
    jaxbandit.SafeOpt: SEEDS | LIPSCHITZ | {"threshold": NONNEGATIVE},
    jaxbandit.Scbo: {
        "estimator": STRATEGY,
        **{name: POSITIVE for name in ("length", "longest", "shortest")},
        "successes": Whole(1, 2**31 - 1),
        "failures": Whole(1, 2**31 - 1, optional=True),
    },
    jaxbandit.Scgp: {
        "estimator": STRATEGY,
        "reward_clip": POSITIVE,
        "slater": Number(0.0, 1.0, open_high=False),
        "schedule": Choice((1, 2)),
    },
    jaxbandit.Se2: EPOCHS | {"psi": PENALTY, "penalty_cap": Number(low=1.0)},
    jaxbandit.Se3: EPOCHS | {"step": POSITIVE},
    jaxbandit.SgpUcb: SEEDS | {"warm_up": NONNEGATIVE},
    jaxbandit.StageOpt: SEEDS | LIPSCHITZ | {"exploration": NONNEGATIVE},
    jaxbandit.Unconstrained: {"estimator": STRATEGY},
    kernels.Constant: {"variance": POSITIVE},
    kernels.Categorical: {"length_scale": PER_AXIS},
    kernels.Gram: {"matrix": Covariance()},
    kernels.Linear: {"length_scale": PER_AXIS, "bias": NONNEGATIVE},
    kernels.Matern12: {"length_scale": PER_AXIS},
    kernels.Matern32: {"length_scale": PER_AXIS},
    kernels.Matern52: {"length_scale": PER_AXIS},
    kernels.Periodic: {"length_scale": PER_AXIS, "period": PER_AXIS},
    kernels.OnAxes: {"kernel": KERNEL, "axes": Axes()},
    kernels.Product: {"left": KERNEL, "right": KERNEL},
    kernels.RationalQuadratic: {"length_scale": PER_AXIS, "alpha": POSITIVE},
    kernels.Scale: {"kernel": KERNEL, "variance": POSITIVE},
    kernels.SquaredExponential: {"length_scale": PER_AXIS},
    kernels.Sum: {"left": KERNEL, "right": KERNEL},
    kernels.White: {"variance": POSITIVE},
    Elimination: {"norm_bound": POSITIVE, "noise_scale": POSITIVE, "delta": PROBABILITY, "continuous": Boolean()},
    feedback.Wait: {},
    feedback.Hallucinate: {},
    feedback.Censor: {"window": Whole(0, 2**24), "minimum": Number(**EACH)},
    informed.BestPoint: {},
    informed.FeasiblePoints: {},
    informed.SafestSeeds: {"count": Whole(1, 2**31 - 1)},
    safety.Expansion: LIPSCHITZ | {"often": Whole(1, 2**31 - 1)},
    consensus.Agreement: {"absolute": POSITIVE, "relative": POSITIVE, "relaxation": POSITIVE},
    delays.NoDelay: {},
    UnknownDelay: {},
    delays.Constant: MODEL | {"rounds": Rounds()},
    delays.Poisson: MODEL | {"mean": Number(0.0, delays.LONGEST_DELAY / 2, open_low=False, open_high=False)},
    delays.Geometric: MODEL | {"mean": Number(0.0, delays.LONGEST_DELAY, open_low=False, open_high=False)},
    delays.Uniform: MODEL | {"low": Rounds(), "high": Rounds()},
    delays.LogNormal: MODEL | {"median": POSITIVE, "sigma": POSITIVE},
    delays.Pareto: MODEL | {"shape": POSITIVE, "scale": POSITIVE},
    delays.Empirical: MODEL | {"values": Rounds(lengths=(1, 2, 3, 5), alone=False)},
    delays.Lossy: {"delay": DELAY, "never": Number(0.0, 1.0, open_low=False, open_high=False), "shared": Boolean()},
    delays.Mirrored: {"delay": DELAY, "doubled": Doubled()},
    delays.PerOutput: {"delays": Roles(DELAY)},
    estimators.Bounds: {"reward_width": REWARD_WIDTH, "cost_width": COST_WIDTH},
    estimators.Thompson: {"reward_width": REWARD_WIDTH, "cost_width": COST_WIDTH},
    estimators.Randomised: {"reward_width": REWARD_WIDTH, "cost_width": COST_WIDTH, "distribution": DISTRIBUTION},
    estimators.Gaussian: {},
    estimators.DiscreteUniform: {"points": Whole(2, 10**6)},
    estimators.DiscreteGaussian: {"low": Number(), "high": POSITIVE, "sd": POSITIVE, "points": Whole(2, 10**6)},
    penalties.Exponential: {"c": POSITIVE},
    penalties.Polynomial: {"c": POSITIVE, "n": Number(low=1.0, open_low=False)},
    problems.Gaussian: {"variance": NONNEGATIVE_EACH},
    problems.Noiseless: {},
    problems.noise.Uniform: {"half_width": NONNEGATIVE_EACH},
    problems.StudentT: {"df": POSITIVE_EACH, "scale": NONNEGATIVE_EACH},
    problems.CentredPoisson: {"rate": Number(0.0, 1e9, open_low=False, open_high=False, **EACH)},
    problems.Heteroscedastic: {"variance": OverPoints(), "model": NOISE},
    problems.Residuals: {"table": Matrix(), "weights": Number(**EACH)},
    problems.PerOutput: {"models": Roles(NOISE)},
    problems.PerPoint: {"model": NOISE},
    problems.Mirrored: {"model": NOISE, "doubled": Doubled()},
    widths.ImprovedGPUCB: {
        "norm_bound": POSITIVE_EACH,
        "noise_scale": POSITIVE_EACH,
        "delta": Number(0.0, 1.0, **EACH),
        "union": POSITIVE_EACH,
    },
    widths.SqrtLog: {"a": POSITIVE_EACH, "b": Number(low=1.0, **EACH)},
    gradients.SubjectTo: {"multiplier": NONNEGATIVE, "budget": Number(), "objective": LossFunction(), "violation": LossFunction()},
    widths.Custom: {"function": Function(), "scale": POSITIVE_EACH},
    widths.Censored: {"base": dataclasses.replace(WIDTH, number=POSITIVE_EACH), "feedback_bound": POSITIVE_EACH, "scale": NONNEGATIVE_EACH},
}
REQUIRED = {
    kernels.Gram: {"matrix": np.eye(3)},
    kernels.OnAxes: {"kernel": kernels.White()},
    kernels.Product: {"left": kernels.White(), "right": kernels.White()},
    kernels.Scale: {"kernel": kernels.White()},
    kernels.Sum: {"left": kernels.White(), "right": kernels.White()},
    jaxbandit.Anytime: {"algorithm": jaxbandit.Rpol()},
    jaxbandit.Refitted: {"algorithm": jaxbandit.Rpol()},
    delays.Empirical: {"values": [0, 2]},
    delays.PerOutput: {"delays": (delays.NoDelay(),) * OUTPUTS},
    problems.Heteroscedastic: {"variance": np.ones(4)},
    problems.Residuals: {"table": np.ones((2, 3))},
    problems.PerOutput: {"models": (problems.Noiseless(),) * OUTPUTS},
    widths.Custom: {"function": lambda t, gain: gain},
}
every_class = pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")


def declared_classes(kind: type = Declared) -> Iterator[type]:
    for own in kind.__subclasses__():
        if own.__module__.startswith("jaxbandit.") and not inspect.isabstract(own):
            yield own
        yield from declared_classes(own)


def make(kind: type, **values: Any) -> Any:
    return unchecked(kind, **REQUIRED.get(kind, {}) | values)


def partners(kind: type, name: str) -> dict[str, Any]:
    """Return values of the fields without which a field cannot be given."""
    if kind is jaxbandit.Bpe:
        return {"mean_delay": {"xi": 1.0, "b": 1.0}, **TOGETHER}.get(name, {})
    return TOGETHER.get(name, {}) if issubclass(kind, delays.Model) else {}


def refusal(item: Declared, **where: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        item.validate(**where)
    return str(caught.value)


def test_every_declared_class_and_field_is_tested_here() -> None:
    assert set(DECLARED) == set(declared_classes()) - {problems.Zone}  # whose hours depend on each other; see its own tests
    for kind, own in DECLARED.items():
        found = {parameter.name: parameter.allowed for parameter in parameters(kind)}
        assert set(own) == set(found), kind
        assert "anything" not in found.values(), kind  # every field has a check


@every_class
def test_the_class_alone_is_valid(kind: type) -> None:
    for outputs in (None, OUTPUTS):
        make(kind).validate(outputs=outputs)


@functools.cache
def good_and_bad(kind: type, name: str) -> tuple[st.SearchStrategy, st.SearchStrategy]:
    """Strategies of what a field may hold, and of what not; made once, for making a strategy takes longer than drawing from it."""
    return DECLARED[kind][name].good(), DECLARED[kind][name].bad()


# One run of hypothesis draws values of all fields of all classes of a module: starting one takes as long as twenty examples of a class.
every_module = pytest.mark.parametrize("module", sorted({kind.__module__ for kind in DECLARED}))


def fields_of(module: str) -> list[tuple[type, str]]:
    return [(kind, name) for kind in DECLARED if kind.__module__ == module for name in DECLARED[kind]]


@every_module
@SETTINGS
@given(data=st.data())
def test_what_a_field_may_hold_passes(module: str, data: st.DataObject) -> None:
    for kind, name in fields_of(module):
        value = data.draw(good_and_bad(kind, name)[0], label=f"{kind.__name__}.{name}")
        beside = partners(kind, name) if value is not None else {}
        if kind is delays.Uniform and name == "low":
            beside = beside | {"high": delays.LONGEST_DELAY}
        if kind is Scbo and name in ("shortest", "length", "longest"):
            beside = dict.fromkeys(("shortest", "length", "longest"), value) | {name: value}
            del beside[name]
        if kind is estimators.DiscreteGaussian and name == "low":
            assume(value < 3e38)
            beside = {"high": float(np.finfo(np.float32).max) if value > 0 else 2.0}
        if kind is estimators.DiscreteGaussian and name == "high":
            beside = {"low": -1.0}
        make(kind, **beside, **{name: value}).validate(outputs=OUTPUTS)


@every_module
@SETTINGS
@given(data=st.data())
def test_anything_else_is_refused_by_the_fields_path_and_by_the_constructor(module: str, data: st.DataObject) -> None:
    for kind, name in fields_of(module):
        value = data.draw(good_and_bad(kind, name)[1], label=f"{kind.__name__}.{name}")
        message = refusal(make(kind, **partners(kind, name), **{name: value}), name="study.item", outputs=OUTPUTS)
        assert message.startswith(f"study.item.{name}"), message
        assert len(message) < 500
        values = REQUIRED.get(kind, {}) | partners(kind, name) | {name: value}
        try:
            unchecked(kind, **values).validate()
        except InvalidArgument as error:
            with pytest.raises(InvalidArgument) as caught:
                kind(**values)
            assert str(caught.value) == str(error)
        else:  # only the number of outputs shows that it is bad
            kind(**values)


@every_class
def test_text_none_and_booleans_are_named_as_they_were_given(kind: type) -> None:
    for name, field in DECLARED[kind].items():
        if isinstance(field, Number | Whole):
            for value in ("3.0", True, 1j, 10**5000, *([] if field.optional else [None])):
                message = refusal(make(kind, **partners(kind, name), **{name: value}), outputs=OUTPUTS)
                assert message.startswith(f"{kind.__name__}.{name}: must be ") and f"got {checks.short(value)}" in message, message


@every_class
def test_the_ends_of_a_range_are_allowed_or_refused(kind: type) -> None:
    for name, field in DECLARED[kind].items():
        if isinstance(field, Whole):
            ends = [(field.least, False, field.least - 1), (field.most, False, field.most + 1)]
        elif isinstance(field, Number):
            ends = [(field.low, field.open_low, field.low - 1e-3), (field.high, field.open_high, field.high * (1 + 1e-6))]
        else:
            continue
        for end, is_open, beyond in ends:
            if np.isfinite(end):
                wrap = (lambda value: value) if isinstance(field, Whole) or field.alone else (lambda value: [value])
                beside = partners(kind, name) | ({"high": delays.LONGEST_DELAY} if kind is delays.Uniform and name == "low" else {})
                refused = [beyond, end] if is_open else [beyond]
                for value in refused:
                    assert refusal(make(kind, **beside, **{name: wrap(value)}), outputs=OUTPUTS).startswith(f"{kind.__name__}.{name}: ")
                if not is_open:
                    make(kind, **beside, **{name: wrap(end)}).validate(outputs=OUTPUTS)


@every_class
def test_nothing_is_checked_where_jax_rebuilds_with_anything(kind: type) -> None:
    item = make(kind)
    for filling in (None, "3.0", object()):
        jax.tree.map(lambda _, filling=filling: filling, item)


# -- shapes, paths and tracers -------------------------------------------------------------------------------------------------------


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
    unchecked(problems.Gaussian, variance=[1.0, 2.0]).validate()  # for how many outputs is not known
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


# -- a user's own classes ------------------------------------------------------------------------------------------------------------


@jaxbandit.pytree
class Late(delays.Delay):
    """A user's own model, declared."""

    wait: Annotated[Any, fields.nonnegative, fields.Letter("w")] = 2.0
    kind: Annotated[Literal["slow", "fast"], fields.Letter("kind")] = static(default="slow")
    inner: Any = delays.NoDelay()  # not declared
    free: Any = None  # not declared either

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
    assert refusal(unchecked(Late, inner=unchecked(delays.Poisson, mean=-1.0))).startswith(
        "Late.inner.mean: must lie in"
    )  # found although not declared
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


# -- letters, and what a study file can set ------------------------------------------------------------------------------------------


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
        name: getattr(delays, name) for name in delays.__all__ if name not in ("LONGEST_DELAY", "NEVER", "POISSON_MEAN", "Delay")
    }  # neither the abstract bases nor a user's class
    assert set(makers(widths.Width, estimators.Distribution)) == {
        *("Censored", "Custom", "ImprovedGPUCB", "SqrtLog"),
        *("DiscreteGaussian", "DiscreteUniform", "Gaussian"),
    }
    assert makers(Declared, Learner).keys() & {"Late", "Learner"} == set()  # a role of its own has not opted in


# -- the checks by themselves --------------------------------------------------------------------------------------------------------

Positive = Annotated[int, fields.whole(1)]


def said(hint: Any) -> fields.Check:
    """The check that an annotation says."""

    def function(argument: Any) -> None: ...

    function.__annotations__ = {"argument": hint}
    (parameter,) = parameters(function)
    assert parameter.check is not fields.anything
    return parameter.check


CHECKS: list[tuple[fields.Check, list[Any], list[Any]]] = [
    (fields.text, ["", "a"], [3, None, b"a", ["a"]]),
    (fields.choice("a", "b"), ["a", np.str_("b")], ["c", "A", 1, None, ["a"], np.array(["a", "b"])]),
    (fields.choice(1, 2), [1, np.int64(2)], [3, True, 1.0, "1", None, np.array([1, 2])]),
    (fields.whole(1), [1, np.int32(5), 2**31 - 1], [0, 2**31, 10**400, 1.0, True, "1", None, [1]]),
    (fields.whole(0, 3), [0, 3], [4, -1]),
    (fields.boolean, [True, np.False_], [0, 1, "no", None]),
    (fields.finite, [0, -1e30, np.float16(2)], [np.nan, -np.inf, "0", None, 1j, [1.0]]),
    (fields.between(0, 1), [1, 0.5], [0, 1.1, "1"]),
    (fields.between(0, 1, open_low=False, open_high=True), [0, 0.5], [1, -0.1]),
    (fields.whole_numbers(0, 9, "rounds"), [0, 9, 3.0], [0.5, 10, -1, "3"]),
    (fields.positive | fields.nothing, [None, 1.0], [0.0, "1", False]),
    (fields.positive | fields.choice("auto"), [1.0, "auto"], [0.0, "automatic", "1.0", None]),
    (fields.each(fields.text), [("a",), ["a", "b"], ()], ["a", (1,), None]),
    (fields.function("(x)"), [max, lambda x: x], [None, 3]),
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
        check("field", value)
    for value in bad:
        with pytest.raises(InvalidArgument, match=r"^field"):
            check("field", value)


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
