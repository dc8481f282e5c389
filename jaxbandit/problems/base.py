"""Problems on finite domains: maximise ``f`` subject to ``g_j <= 0``."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Concatenate, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, Key, Numbers, OnDomain, P, PerOutput, Scalar, T, Table, check_fields, checked, parameters
from jaxbandit.core.fields import Check, Place, exactly, finite, finite_numbers, label, nonnegative, nothing, of_class, per_output, whole
from jaxbandit.core.pytree import as_argument, float_dtype, pytree, replace, static
from jaxbandit.core.text import fields_in_brief, html_fields
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box, Contextual, Domain
from jaxbandit.domains.finite import in_words, tables
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import covariance_matrices
from jaxbandit.problems.noise import Drawn, Gaussian, Index, Noise, drawn_arrays, is_number_or_key
from jaxbandit.surrogates import Surrogate, surrogate

__all__ = ["AbstractProblem", "Family", "Optimum", "Problem", "best_mixed_policy", "from_functions", "from_tables", "optimum"]


class AbstractProblem(OnDomain):
    """Abstract base of problems that :func:`~jaxbandit.simulate` runs.

    :class:`Problem`, :class:`Family` and the wrappers around them subclass it. A problem of your own is a :func:`jaxbandit.pytree` that
    subclasses this class or :class:`Family`. Each trial calls :meth:`sample` once and runs on the instance that it returns: :meth:`draw`
    returns the randomness of a round, before a point is chosen, then :meth:`observe` returns the values at the chosen point; by default
    they add noise to means. These methods are pure, because compiled programs call them.

    Attributes (fields or properties of the subclass):
      domain: the ``M`` points.
      noise: a noise model, see ``jaxbandit.problems.noise``.
      delay: a delay model, see :mod:`jaxbandit.delays`; feedback arrives after it unless a run has its own. Default: no delay.
      name: label of the problem in tables, figures and files. Compiled programs do not depend on it, so problems of equal shape share them.
      means: ``[1 + m, M]`` mean reward, then mean constraints, of an instance; a random family has no means.
      norm: ``[]`` RKHS norm of an instance's reward; ``None`` (the default) if it is unknown.
      is_random: whether each trial has its own instance; default: no.
      has_means: whether ``means`` are known, as for an instance; default: yes.
      reveals_constraints: whether :meth:`constraint_sample` shows each round's noisy constraint functions before the choice; default: no.
      drawn_from: kernel of the functions that a random family draws, ``None`` (the default) without a kernel; see :meth:`model`.
      on_boxes: whether :meth:`observe` takes a point of the unit cube, and the domain is a box; default: no.
    """

    described: ClassVar[str] = "a problem of jaxbandit.problems, such as sine()"
    called: ClassVar[str] = "problem"
    is_random: ClassVar[bool] = False
    has_means: ClassVar[bool] = True
    reveals_constraints: ClassVar[bool] = False
    drawn_from: ClassVar[Kernel | None] = None
    on_boxes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.validate()

    # These are read-only. At run time a property here would keep subclasses from declaring a field.
    if TYPE_CHECKING:

        @property
        def domain(self) -> Domain: ...
        @property
        def noise(self) -> Noise: ...
        @property
        def delay(self) -> Delay: ...
        @property
        def name(self) -> str: ...
        @property
        def means(self) -> Table: ...
        @property
        def norm(self) -> Scalar | None: ...
    else:
        delay = NoDelay()
        norm = None

    @property
    def constraints(self) -> int:
        """Number of constraints, ``m >= 0``, by default of the means."""
        return int(np.shape(self.means)[0]) - 1

    @property
    def outputs(self) -> int:
        """Number of outputs, ``k = 1 + m``: reward, then constraints."""
        return 1 + self.constraints

    @checked
    def sample(self, key: Key) -> AbstractProblem:
        """Return the instance of a trial, by default the problem itself."""
        return self

    @checked
    def draw(self, key: Key) -> Drawn:
        """Return the randomness of one round, any pytree of arrays.

        It cannot depend on the point, because the point is not chosen yet.
        """
        where = f"noise: {type(self.noise).__name__}.draw"
        with checks.blaming(f"{where} must return arrays for (key, outputs, dtype), and JAX must be able to trace it"):
            drawn = self.noise.draw(key, self.outputs, jnp.asarray(self.means).dtype)
        drawn_arrays(where, drawn)
        return drawn

    @checked
    def observe(self, index: Index, drawn: Drawn) -> Array:
        """Return the noisy values ``[1 + m]`` at grid point ``index []``.

        ``drawn`` is the round's randomness from :meth:`draw`.
        """
        where = f"noise: {type(self.noise).__name__}.apply must return a real number for each of the {self.outputs} outputs"
        with checks.blaming(f"{where}, and JAX must be able to trace it"):
            noise = jnp.asarray(self.noise.apply(drawn, index))
        if noise.shape != (self.outputs,) or not is_number_or_key(noise.dtype):
            raise checks.InvalidArgument(f"{where}, got {noise.dtype} {list(noise.shape)}")
        return jnp.asarray(self.means)[:, index] + noise

    @checked
    def model(self, kernel: Kernel | Sequence[Kernel] | None = None, **options: Any) -> Surrogate:
        """Return the GP model with the problem's own kernel and noise variance.

        The kernel is that with which a random family draws its functions.

        Args:
          kernel: another kernel, or a kernel for each output; needed if functions come from no kernel, as in ``sine``.
          **options: further arguments of :func:`jaxbandit.surrogate`, in place of the problem's facts. Without noise the variance is a
            millionth of the prior's, because a model needs some.

        Raises:
          InvalidArgument: if neither the problem nor the arguments have a kernel, or a known variance of the noise.
        """
        kernel = self.drawn_from if kernel is None else kernel
        if kernel is None:
            ways = "give one, problem.model(kernels.Matern52()), or fit one: surrogates.fit, study.Model(fit_to=...) or jaxbandit.Refitted"
            raise checks.InvalidArgument(f"kernel: {self.name!r} has none; {ways}")
        if options.get("noise_variance") is None:
            variances = self.noise.variances(self.outputs)
            if variances is None or not np.all(np.isfinite(variances)):
                raise checks.InvalidArgument(f"noise_variance: must be given, for {checks.short(self.noise)} has none that is known")
            if not np.all(variances):
                each_kernel = [kernel] if isinstance(kernel, Kernel) else list(kernel)
                first = [self.domain.points[:1]] * len(each_kernel)
                priors = np.reshape(covariance_matrices(each_kernel, first, first), -1)
                variances = np.maximum(variances, 1e-6 * priors)
            each = np.asarray(variances).tolist()
            options["noise_variance"] = each[0] if len(set(each)) == 1 else each
        return surrogate(self.domain, kernel, **{"outputs": self.outputs, **options})

    def optimum(self) -> Optimum:
        """Return the best feasible point of an instance, see :func:`optimum`."""
        if isinstance(self.domain, Contextual):
            return _optima(as_argument(self.means), self.domain.contexts)
        return _optimum(as_argument(self.means))

    def has_feasible_point(self) -> Array:
        """Return whether an instance has a feasible point, ``[]``.

        With contexts each of them needs such a point.
        """
        feasible = jnp.all(jnp.asarray(self.means)[1:] <= 0, axis=0)
        if isinstance(self.domain, Contextual):
            return jnp.all(jnp.any(feasible.reshape(self.domain.contexts, -1), axis=1) | (self.domain.shares == 0))
        return jnp.any(feasible)

    def means_of(self, chosen: Array) -> Array:
        """Return mean values ``[1 + m, ..., T]`` at ``chosen [..., T]``."""
        return jnp.asarray(self.means)[:, chosen]

    def constraint_sample(self, drawn: Drawn) -> Array:
        """Return the round's noisy constraints ``[m, M]`` at all points.

        Costs at the chosen point agree with :meth:`observe`.

        Raises:
          InvalidArgument: by default; only problems with ``reveals_constraints`` have such samples.
        """
        raise checks.InvalidArgument(
            f"problem: {self.name!r} does not show its constraint functions before the choice; wrap it by problems.full_information"
        )

    def validate(self) -> None:
        """Check domain, noise and delay.

        Subclasses check their own parameters and call this.

        Raises:
          InvalidArgument: on a parameter of the wrong class or shape, or outside its range.
        """
        check_fields(self, type(self).__name__)
        if not (self.is_random or "means" in dir(self)):
            words = (
                "must be the table [1 + m, M] of mean values, by which a simulation measures regret and violations; where nobody knows"
                " them, jaxbandit.optimise or a Session asks for points"
            )
            raise checks.InvalidArgument(f"{type(self).__name__}.means: {words}")
        parts = {"domain": of_class(Domain), "noise": of_class(Noise), "delay": of_class(Delay), "name": label, "norm": finite | nothing}
        # Subclasses have fields or properties of these names.
        for name, check in parts.items():
            check(f"{type(self).__name__}.{name}", getattr(self, name))
        if isinstance(self.domain, Box) and not self.on_boxes:
            raise checks.InvalidArgument(
                f"{type(self).__name__}.domain: must have points that tables can be of, which a box has not; use problems.on_box, or points"
                f" in it, such as domains.sobol, got {checks.short(self.domain)}"
            )
        self.noise.validate(outputs=self.outputs, points=self.domain.size)
        self.delay.validate(outputs=self.outputs)


Seed: TypeAlias = Annotated[int, whole(0, 2**63 - 1)]
"""Seed of NumPy's generator."""

SomeProblem = TypeVar("SomeProblem", bound=AbstractProblem)


def without_name(problem: SomeProblem) -> SomeProblem:
    """Return a problem, and problems within, with the label of programs."""
    held = {parameter.name: getattr(problem, parameter.name) for parameter in parameters(type(problem))}
    inside = {name: without_name(value) for name, value in held.items() if isinstance(value, AbstractProblem)}
    return replace(problem, **inside, **({"name": "problem"} if "name" in held else {}))


class Family(AbstractProblem):
    """Abstract base of random families, with an instance for every trial.

    A subclass is a final pytree dataclass with the fields ``domain``, ``noise`` and ``name``, and defines :meth:`sample`; under ``vmap``
    over keys that method returns distinct instances of one structure. One constraint is the default.
    """

    is_random: ClassVar[bool] = True
    has_means: ClassVar[bool] = False

    @property
    def constraints(self) -> int:
        return 1

    @checked
    def sample(self, key: Key) -> AbstractProblem:
        """Return the instance of ``key``, distinct under ``vmap`` over keys."""
        raise TypeError(f"{type(self).__name__} must define sample(key)")

    def draw(self, key: Key) -> Drawn:
        """Raise ``InvalidArgument``, because only instances can be observed."""
        raise checks.InvalidArgument(f"{self.name}: a random family cannot be observed; observe an instance, family.sample(key)")

    def observe(self, index: Index, drawn: Drawn) -> Array:
        """Raise ``InvalidArgument``, as :meth:`draw` does."""
        return self.draw(drawn)


@pytree
class Problem(AbstractProblem):
    """Problem of tables of mean values, plus noise.

    Make it with :func:`from_tables` or :func:`from_functions`.

    Attributes:
      domain: the ``M`` points.
      means: ``[1 + m, M]`` mean reward, then mean constraints (``<= 0`` is feasible).
      noise: a noise model, see ``jaxbandit.problems.noise``.
      delay: a delay model, see :mod:`jaxbandit.delays`; feedback arrives after it unless a run has its own.
      norm: ``[]`` RKHS norm of the reward before any shift, under the kernel of its construction; ``None`` if it is unknown.
      name: label of the problem in tables, figures and files.
    """

    domain: Domain
    means: Table
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    norm: Scalar | None = None
    name: str = static(default="user")

    def __post_init__(self) -> None:
        # A family draws an instance with a table of JAX, and its trial raises a flag instead.
        if not isinstance(self.means, jax.Array):
            self.validate()

    def _repr_html_(self) -> str:
        """Return a table of facts, with a picture of two-dimensional grids."""
        title, brief = f"{type(self).__name__} {self.name}", fields_in_brief(self)
        if checks.is_traced((self.means, self.domain.points)):
            return html_fields(title, brief)
        means, points, shape, best = np.asarray(self.means), np.asarray(self.domain.points), self.domain.grid_shape, optimum(self)
        feasible, index = np.all(means[1:] <= 0, axis=0), int(np.ravel(best.index)[0])
        place = f"({', '.join(f'{x:.4g}' for x in points[index])})"
        words = f"{float(np.ravel(best.value)[0]):.4g} at {place}" if feasible.any() else "none: no point is feasible"
        if isinstance(self.domain, Contextual):
            words = f"{float(self.domain.mean(best.value)):.4g} on average over {self.domain.contexts} contexts"
        facts = [("points", in_words(self.domain)), ("constraints", str(self.constraints)), ("best feasible reward", words)]
        facts += [("feasible points", f"{feasible.mean():.2%}")] if self.constraints else []
        facts += [(name, text) for name, text in brief if name not in ("domain", "means", "name")]
        if len(shape) != 2 or isinstance(self.domain, Contextual) or importlib.util.find_spec("matplotlib") is None:
            return html_fields(title, facts)
        # The import needs matplotlib, an extra.
        from jaxbandit.host.figures import thumbnail

        across_up = divmod(index, shape[1]) if feasible.any() else None
        picture = thumbnail(means[0].reshape(shape), feasible.reshape(shape), across_up)
        said = f"reward, yellow is large; infeasible points are pale; the cross is the best feasible point: {words}"
        return html_fields(title, facts, picture=picture, said=said)

    def validate(self) -> None:
        of_class(Domain)("Problem.domain", self.domain)
        rows = exactly(None, self.domain.size, words="one row per function, one column per point")
        finite_numbers("problem.means", self.means, Place(rows))
        most = np.finfo(float_dtype()).max
        if not checks.is_traced(self.means) and np.any(np.abs(self.means) > most):
            large = checks.short(np.asarray(self.means)[np.abs(self.means) > most])
            raise checks.InvalidArgument(
                f"problem.means: must be finite in float32, got {large}; turn on jax_enable_x64, or change the unit"
            )
        if self.constraints < 0:
            raise checks.InvalidArgument(f"problem.means: needs at least the reward's row, got shape {list(np.shape(self.means))}")
        super().validate()


Instance: TypeAlias = Annotated[
    AbstractProblem,
    Check(
        "one instance of a problem, which has tables of means; of a random family it is family.sample(key)",
        lambda value: isinstance(value, AbstractProblem) and value.has_means and "means" in dir(value),
        classes=(AbstractProblem,),
    ),
]
"""Problem with tables of means."""


def as_exact_as_tables(function: Callable[Concatenate[AbstractProblem, P], T]) -> Callable[Concatenate[AbstractProblem, P], T]:
    """Let a function compute in float64 if an instance's tables are."""

    @functools.wraps(function)
    def computed(problem: AbstractProblem, *args: P.args, **kwargs: P.kwargs) -> T:
        exact = isinstance(problem.means, np.ndarray) and problem.means.dtype == np.float64
        # JAX traces the number 0 inside of jit.
        if not exact or float_dtype() == np.float64 or checks.is_traced((args, kwargs, jnp.asarray(np.int32(0)))):
            return function(problem, *args, **kwargs)
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, function(problem, *args, **kwargs))

    return computed


@pytree
class Optimum:
    """Best feasible point of a problem, and measures of its constraints.

    On a domain with contexts every field is ``[Z]``, of the points of each context.

    Attributes:
      value: ``[]`` ``f(x*)``, NaN if no point is feasible.
      index: ``[]`` int32 number of the point.
      feasible_fraction: ``[]`` share of points with all ``g_j <= 0``.
      slater_slack: ``[]`` ``max_x min_j -g_j(x)``, the largest margin to the constraints; negative if no point is feasible.
      unconstrained_value: ``[]`` ``max f``.
    """

    value: Array
    index: Array
    feasible_fraction: Array
    slater_slack: Array
    unconstrained_value: Array


@checked
@as_exact_as_tables
def optimum(problem: Instance) -> Optimum:
    """Find the best feasible point of an instance by enumeration.

    Its value is NaN if no point is feasible. On a domain with contexts it finds the best point of each context. The function is pure, so it
    works on sampled instances under ``vmap``.
    """
    return problem.optimum()


@one_program
def _optimum(means: Array) -> Optimum:
    reward = means[0]
    feasible = jnp.all(means[1:] <= 0, axis=0)
    index = jnp.argmax(jnp.where(feasible, reward, -jnp.inf)).astype(jnp.int32)
    slack = jnp.max(jnp.min(-means[1:], axis=0)) if len(means) > 1 else jnp.asarray(jnp.inf, means.dtype)
    return Optimum(
        value=jnp.where(jnp.any(feasible), reward[index], jnp.nan),
        index=index,
        feasible_fraction=jnp.mean(feasible.astype(means.dtype)),
        slater_slack=slack,
        unconstrained_value=jnp.max(reward),
    )


@partial(jax.jit, inline=True, static_argnums=1)
def _optima(means: Array, contexts: int) -> Optimum:
    actions = means.shape[1] // contexts
    found = jax.vmap(_optimum, 1)(means.reshape(len(means), contexts, actions))
    return replace(found, index=found.index + actions * jnp.arange(contexts, dtype=jnp.int32))


@checked
def best_mixed_policy(problem: Instance) -> tuple[float, np.ndarray]:
    """Find the best distribution over points, feasible *in expectation*.

    Solves ``max_pi E f  s.t.  E g_j <= 0`` on the grid by linear programming, on the host (the benchmark of strong regret; Zhou and
    Ji 2022, sec. 2). Returns the mean reward and ``pi [M]``, or NaN and zeros if no distribution is feasible. On a domain with contexts it
    finds the best stationary policy ``pi(a | z)`` whose constraints hold on average over contexts; ``pi [M]`` is then the probability of
    context and action together. Raises ``InvalidArgument`` on a box.
    """
    # Import SciPy here, because start-up should not pay for it.
    from scipy.optimize import linprog

    if isinstance(problem.domain, Box):
        raise checks.InvalidArgument(
            f"problem: {problem.name!r} is on a box, where no table gives its best mixed policy; use one on points"
        )
    means = np.asarray(problem.means, np.float64)
    size, limits = means.shape[1], np.zeros(len(means) - 1)
    shares = np.asarray(problem.domain.shares, np.float64) if isinstance(problem.domain, Contextual) else np.ones(1)
    # The probabilities of the actions of a context add up to that of the context.
    sums = np.kron(np.eye(len(shares)), np.ones(size // len(shares)))
    solution = linprog(-means[0], means[1:], limits, sums, shares, bounds=(0, None), method="highs")
    if solution.status == 2:
        # The programme is infeasible.
        return float("nan"), np.zeros(size)
    if not solution.success:
        raise RuntimeError(f"best_mixed_policy: the linear programme failed: {solution.message}")
    return float(-solution.fun), np.asarray(solution.x)


@checked
def from_tables(
    domain: Domain,
    reward: Numbers,
    constraints: Numbers,
    *,
    noise_variance: Annotated[PerOutput, nonnegative] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "user",
) -> Problem:
    """Make a problem from tables of mean values.

    Args:
      domain: the ``M`` points.
      reward: ``[M]`` mean reward.
      constraints: ``[m, M]`` mean constraints, or ``[M]`` for one, or ``[]`` for none.
      noise_variance: Gaussian noise variance of all outputs, or ``[1 + m]``, ``>= 0``; default 1 without ``noise``.
      noise: a noise model, instead of ``noise_variance``.
      delay: a delay model; ``None`` for no delay.
      name: label of the problem in tables, figures and files.

    Raises:
      InvalidArgument: on tables of the wrong shape or with NaN or infinite values, or on an invalid noise or delay model.
    """
    finite_numbers("reward", reward, Place(exactly(domain.size, words="one value per point of the domain")))
    finite_numbers("constraints", constraints)
    costs = np.asarray(constraints, np.float64)
    if costs.ndim == 1:
        costs = costs[None] if costs.size else np.zeros((0, domain.size))
    exactly(None, domain.size, words="one row per constraint").check("constraints", costs)
    own = noise_of(1.0 if noise_variance is None and noise is None else noise_variance, noise, 1 + len(costs))
    means, delay = np.concatenate([np.asarray(reward, np.float64)[None, :], costs]), NoDelay() if delay is None else delay
    return Problem(domain=domain, means=means, noise=own, delay=delay, name=name)


def noise_of(noise_variance: PerOutput | None, noise: Noise | None, outputs: int) -> Noise:
    """Return the noise model of either argument, or raise ``InvalidArgument``."""
    if noise is not None and noise_variance is not None:
        given = f"{checks.short(noise_variance)} and {checks.short(noise)}"
        raise checks.InvalidArgument(f"noise_variance: give either it or noise, got {given}")
    if noise is not None:
        noise.validate("noise", outputs)
        return noise
    if noise_variance is None:
        words = "must be given, a number >= 0, or noise, a noise model; observations without noise have 0"
        raise checks.InvalidArgument(f"noise_variance: {words}; got neither")
    per_output.check("noise_variance", noise_variance, Place(outputs=outputs))
    return Gaussian(variance=noise_variance)


@checked
def from_functions(
    domain: Domain,
    reward: Callable[[Array], Array | float],
    constraints: Sequence[Callable[[Array], Array | float]],
    *,
    noise_variance: Annotated[PerOutput, nonnegative] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    name: str = "user",
) -> Problem:
    """Make a problem from functions of a point ``x [d]``.

    They are tabulated on the domain in float64: functions of ``jax.numpy`` by one program, and functions that JAX cannot trace, such as
    functions of NumPy or with branches on ``x``, point by point; both tables are equally exact. Arguments are as for :func:`from_tables`,
    but either ``noise_variance`` or ``noise`` is required.

    Raises:
      InvalidArgument: when a function does not return one finite number per point, on an invalid noise or delay model, or without noise.
    """
    if isinstance(constraints, str | Mapping | np.ndarray | jax.Array) or not isinstance(constraints, Iterable):
        raise checks.InvalidArgument(f"constraints: must be a list of functions of one point x [d], got {checks.short(constraints)}")
    rows, *costs = tables({"reward": reward} | {f"constraints[{number}]": each for number, each in enumerate(constraints)}, domain)
    own = noise_of(noise_variance, noise, 1 + len(costs))
    return from_tables(domain, rows, costs, noise=own, delay=delay, name=name)
