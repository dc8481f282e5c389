"""Forecasts of further evaluations, by algorithm and runs in flight."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms import Algorithm, Config, ConstrainedThompson, Rpol
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Array, Key, KeyOrSeed, Table, checked
from jaxbandit.core.fields import Check, between, each, whole
from jaxbandit.core.keys import typed
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.text import html_table
from jaxbandit.delays import Constant, Delay, NoDelay
from jaxbandit.domains import Box, Domain
from jaxbandit.engine import InitialDesign, simulate
from jaxbandit.feedback import Hallucinate
from jaxbandit.problems import AbstractProblem, Problem
from jaxbandit.problems.base import Family
from jaxbandit.problems.families import square_root
from jaxbandit.problems.noise import Gaussian, Noise
from jaxbandit.session.journal import SessionError
from jaxbandit.session.models import DEFAULT_ALGORITHM, default_model, expanded, spread_out
from jaxbandit.session.quantities import Outputs, Standard, readable
from jaxbandit.session.session import Session
from jaxbandit.session.settled import likely_points
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import Surrogate

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd
    import xarray as xr

# Futures are drawn of this number of hyper-parameters at most, because each costs a factorisation.
MODELS = 8
# A joint draw at more points than this takes minutes.
MOST_POINTS = 10_000
# On a box this number of points lie everywhere, beside those that are likely to be the best.
SPREAD = 512
OF = Check("a Session, a problem or a Surrogate", lambda value: isinstance(value, Session | AbstractProblem | Surrogate))
ALGORITHMS = Check(
    "a list of algorithms, or a mapping from names to algorithms",
    lambda value: (
        isinstance(value, Mapping | list | tuple)
        and all(isinstance(one, Algorithm) for one in (value.values() if isinstance(value, Mapping) else value))
    ),
)
Algorithms: TypeAlias = Mapping[str, Algorithm] | Sequence[Algorithm]


@pytree
class Futures(Family):
    """A family of problems that were drawn beforehand.

    Attributes:
      tables: ``[N, 1 + m, M]`` mean reward and mean constraints of each problem.
    """

    domain: Domain
    tables: Table = dataclasses.field(repr=False)
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="futures")

    @property
    def constraints(self) -> int:
        return int(np.shape(self.tables)[1]) - 1

    @checked
    def sample(self, key: Key) -> Problem:
        number = jax.random.randint(key, (), 0, np.shape(self.tables)[0])
        means: Array = jnp.asarray(self.tables)[number]
        return Problem(domain=self.domain, means=means, noise=self.noise, delay=self.delay, name=self.name)


@dataclasses.dataclass(frozen=True, repr=False)
class Forecast:
    """Outcome of further evaluations in futures drawn from a belief.

    It shows itself as a table.

    Attributes:
      dataset: three quantities over ``algorithm``, ``in_flight``, ``future`` and ``evaluation``, which is 0 for what is known now. They are
        ``best``, the objective's true value at the best allowed point measured, NaN while there is none; ``gap``, from there to the best
        allowed point of all; and ``violating``, the number of further evaluations that violate a constraint.
      objective: name of the objective.
    """

    dataset: xr.Dataset
    objective: str

    def bands(self, share: Annotated[float, between(0, 1, host=True)] = 0.8) -> xr.Dataset:
        """Return each quantity's central band over futures, and median.

        Args:
          share: probability of the band, in (0, 1).

        Returns:
          A dataset with the dimension ``bound``: ``"lower"``, ``"median"`` and ``"upper"``.
        """
        found = self.dataset.quantile([(1 - share) / 2, 0.5, (1 + share) / 2], "future")
        return found.rename(quantile="bound").assign_coords(bound=["lower", "median", "upper"])

    @property
    def recommended(self) -> tuple[str, int]:
        """Algorithm and runs in flight of the least final gap.

        The gap is the mean over the futures.
        """
        gap = self._gaps.mean("future")
        at = np.unravel_index(int(np.argmin(gap.values)), gap.shape)
        return str(gap["algorithm"].values[at[0]]), int(gap["in_flight"].values[at[1]])

    @property
    def table(self) -> pd.DataFrame:
        """Rows of algorithms and numbers in flight, the recommended one first.

        The columns are the 10%, 50% and 90% quantiles of the best value after the last evaluation, the mean gap, how much larger it is than
        that of the recommended row with the standard error of the difference, the mean number of violating evaluations, and the share of
        futures in which an allowed point is known.
        """
        import pandas as pd

        name, flight = self.recommended
        gaps = self._gaps
        least, rows = gaps.sel(algorithm=name, in_flight=flight).values, list[dict[str, object]]()
        for algorithm, number in ((a, q) for a in gaps["algorithm"].values for q in gaps["in_flight"].values):
            held = self.dataset.sel(algorithm=algorithm, in_flight=number).isel(evaluation=-1)
            gap, best = gaps.sel(algorithm=algorithm, in_flight=number).values, held["best"].values
            known = best[np.isfinite(best)]
            quantiles = np.quantile(known, [0.1, 0.5, 0.9]) if known.size else [np.nan] * 3
            more = gap - least
            rows.append(
                {"algorithm": str(algorithm), "in flight": int(number)}
                | {f"{self.objective} {share}": value for share, value in zip(("10%", "50%", "90%"), quantiles, strict=True)}
                | {"gap": float(gap.mean()), "more gap": float(more.mean()), "+-": float(more.std() / np.sqrt(len(more)))}
                | {"violating": float(held["violating"].mean()), "allowed known": float(np.isfinite(best).mean())}
            )
        return pd.DataFrame(sorted(rows, key=lambda row: row["more gap"]))  # type: ignore[arg-type, return-value]

    @property
    def _gaps(self) -> xr.DataArray:
        """Gaps ``[algorithm, in_flight, future]`` at the end.

        Where no allowed point is known the gap is the largest of all.
        """
        gap = self.dataset["gap"].isel(evaluation=-1)
        return gap.fillna(float(self.dataset["gap"].max().fillna(0.0)))

    def plot(self, share: Annotated[float, between(0, 1, host=True)] = 0.8) -> matplotlib.figure.Figure:
        """Draw all medians over evaluations, and the recommended run's bands.

        Args:
          share: probability of the bands, in (0, 1).
        """
        from jaxbandit.host.figures import COLOURS, figure_of, legend_below, plain, styled

        bands, count = self.bands(share), self.dataset.sizes["future"]
        with styled():
            figure, [axes] = figure_of(
                1, 2, (3.6, 2.8), title=f"Medians of {count} futures, and the {share:.0%} band of {self.recommended[0]}"
            )
            chosen = self.recommended
            runs = [(a, q) for a in bands["algorithm"].values for q in bands["in_flight"].values]
            for number, (algorithm, flight) in enumerate(runs):
                held, colour = bands.sel(algorithm=algorithm, in_flight=flight), COLOURS[number % len(COLOURS)]
                label = f"{algorithm}, {flight} in flight" if bands.sizes["in_flight"] > 1 else str(algorithm)
                for axis, name in zip(axes, ("best", "violating"), strict=True):
                    low, middle, high = (held[name].sel(bound=bound).values for bound in ("lower", "median", "upper"))
                    is_recommended = (algorithm, flight) == chosen
                    if is_recommended:
                        axis.fill_between(bands["evaluation"].values, low, high, color=colour, alpha=0.2, linewidth=0)
                    axis.plot(bands["evaluation"].values, middle, color=colour, linewidth=2 if is_recommended else 1, label=label)
            axes[0].set(xlabel="further evaluations", ylabel=plain(f"best allowed {self.objective}"))
            axes[1].set(xlabel="further evaluations", ylabel="evaluations that violate")
            legend_below(figure)
        return figure

    def _rows(self) -> list[list[str]]:
        table = self.table
        return [list(map(str, table.columns)), *([readable(cell) for cell in row] for row in table.itertuples(index=False))]

    def __repr__(self) -> str:
        from jaxbandit.core.text import aligned

        return aligned(self._rows(), width=120)

    def _repr_html_(self) -> str:
        return html_table(self._rows()[0], self._rows()[1:])


@dataclasses.dataclass(frozen=True)
class _Start:
    """Start of a forecast: problems, known values and their model."""

    problem: AbstractProblem
    initial: InitialDesign
    model: Model | Surrogate
    algorithm: Algorithm
    outputs: Outputs | None = None
    standard: Standard | None = None

    def learner(self, algorithm: Algorithm, horizon: int) -> Surrogate:
        """Return the surrogate of a learning algorithm."""
        if isinstance(self.model, Surrogate):
            return self.model
        domain = self.problem.domain
        chosen = self.model.form != "auto"
        model = self.model if chosen else dataclasses.replace(self.model, form=default_model(domain, algorithm).form)
        return model.of(domain, self.problem.outputs, horizon + self.initial.count, "model")

    def in_units(self, values: np.ndarray) -> np.ndarray:
        """Return values of the modelled reward in the objective's units."""
        if self.outputs is None:
            return values
        shift, scale = self.outputs.units(self.standard)
        bent = values * scale[0] + shift[0]
        return self.outputs.objective.sign * (bent if self.standard is None else self.standard.straightened(bent))


@checked
def forecast(
    of: Annotated[Session | AbstractProblem | Surrogate, OF],
    evaluations: Annotated[int, whole(1, 10_000)],
    algorithms: Annotated[Algorithms, ALGORITHMS] | None = None,
    *,
    in_flight: Annotated[Sequence[int], each(whole(1, 1000))] = (1,),
    trials: Annotated[int, whole(2, 10**6)] = 500,
    model: Model | Surrogate | None = None,
    initial: InitialDesign | None = None,
    key: KeyOrSeed = 0,
) -> Forecast:
    """Forecast the results of further evaluations.

    The forecast is by algorithm and number of runs in flight.

    Of a session futures are drawn from its belief, with hyper-parameters drawn from theirs, and every algorithm goes on in each of them
    from the values that were really measured, with the model of the best fit. Of a problem, or of a surrogate's prior, it starts from an
    initial design. All algorithms meet the same futures, so that differences between them are paired. A forecast is right as far as the
    model is: it knows nothing of functions that are not like draws of its kernels. A box stands for some of its points: all that were
    measured, those that are most likely to be the best, and some everywhere.

    Args:
      of: a session that has been told some values, a problem or a family of problems, or a surrogate, whose prior is drawn from.
      evaluations: number of further evaluations.
      algorithms: by name, or a list; default the session's own, constrained Thompson sampling, CONFIG and RPOL.
      in_flight: numbers of runs under way at once, each of which is forecast; the values of a run arrive that many runs later.
      trials: number of futures.
      model: the model by which algorithms learn about a problem; default the kernel that its functions are drawn from.
      initial: the initial design on a problem or of a surrogate; default that of sessions.
      key: a JAX PRNG key, or its seed.

    Returns:
      The :class:`Forecast`.

    Raises:
      InvalidArgument: on any argument out of range or two that do not fit each other.
      SessionError: when a session has not been told all values of any point.
    """
    if isinstance(of, Session) and (model is not None or initial is not None):
        name = "model" if model is not None else "initial"
        raise InvalidArgument(f"{name}: a session has its own, and forecasts begin with what it was told; leave it out")
    begun = _of_session(of, trials) if isinstance(of, Session) else _of_problem(of, model, initial, trials, typed(key))
    named = _named(algorithms, begun.algorithm)
    if not named or not in_flight:
        raise InvalidArgument(
            f"{'in_flight' if named else 'algorithms'}: must hold at least one, got {short(in_flight if named else algorithms)}"
        )
    columns = [[_one(begun, algorithm, evaluations, number, trials, typed(key)) for number in in_flight] for algorithm in named.values()]
    import xarray as xr

    dims, first = ("algorithm", "in_flight", "future", "evaluation"), columns[0][0]
    dataset = xr.Dataset(
        {name: (dims, np.asarray([[column[name] for column in row] for row in columns])) for name in first},
        coords={"algorithm": list(named), "in_flight": list(in_flight), "evaluation": np.arange(evaluations + 1)},
    )
    return Forecast(dataset, "reward" if begun.outputs is None else begun.outputs.label(begun.outputs.objective.name))


def _named(algorithms: Algorithms | None, own: Algorithm) -> dict[str, Algorithm]:
    """Return algorithms by name."""
    if isinstance(algorithms, Mapping):
        return dict(algorithms)
    listed = [own, ConstrainedThompson(), Config(), Rpol()] if algorithms is None else list(algorithms)
    named = {type(one).__name__: one for one in reversed(listed)}
    if algorithms is not None and len(named) < len(listed):
        raise InvalidArgument("algorithms: two are of one class; give a mapping from names to algorithms")
    return dict(reversed(named.items()))


def _one(begun: _Start, algorithm: Algorithm, evaluations: int, in_flight: int, trials: int, key: Key) -> dict[str, np.ndarray]:
    """Return the quantities ``[trials, evaluations + 1]`` of one run."""
    late = {"delay": Constant(rounds=in_flight - 1), "feedback": Hallucinate()} if in_flight > 1 else {"delay": NoDelay()}
    with warnings.catch_warnings():
        # Some futures have no allowed point, and the results say so.
        warnings.simplefilter("ignore", UserWarning)
        run = simulate(
            begun.problem,
            algorithm,
            begun.learner(algorithm, evaluations),
            horizon=evaluations,
            key=key,
            trials=trials,
            initial=replace(begun.initial, counted=True),
            **late,
        )
        dataset = run.to_xarray().isel(algorithm=0)
    after = dataset.sel(round=slice(0, None)) if begun.initial.count else dataset.pad(round=(1, 0))
    best, violating = after["best_feasible_value"].values, after["violating_rounds"].values
    best = begun.in_units(np.where(np.isfinite(best), best, np.nan).astype(np.float64))
    most = begun.in_units(np.asarray(dataset["optimum"].values, np.float64))
    return {
        "best": best,
        "gap": np.abs(most[:, None] - best),
        "violating": np.nan_to_num(violating - (violating[:, :1] if begun.initial.count else 0)),
    }


def _of_session(session: Session, trials: int) -> _Start:
    """Return the futures of a session, and all values that it knows."""
    parts, outputs = session.specification, session.specification.outputs
    with session._current() as state:
        measured = [(index, values) for index, values in state.told if len(values) == len(outputs.names)]
        if not measured:
            raise SessionError("forecast: all values of at least one point must be told first")
        shown, space = state.believed, state.space
        standard, indices = state.standard if state.shown is None else shown.standard, [index for index, _ in measured]
        domain = space.domain
        if isinstance(domain, Box):
            best = session._best_known().index
            assert best is not None
            likely, _ = likely_points(shown, space, best, state.unfit, 128)
            spread = space.modelled[: min(SPREAD, domain.size)]
            domain = Domain(points=np.concatenate([space.modelled[indices], likely, spread]))
            indices = [*range(len(indices))]
    domain = _drawable(domain)
    shift, scale = outputs.units(standard)
    drawn = [
        average.draws(np.asarray(domain.points, np.float64), trials, number, models=MODELS) for number, average in enumerate(shown.averages)
    ]
    tables = np.empty((trials, len(outputs.functions), domain.size), np.float32)
    for row, (name, sign, bound) in enumerate(outputs.functions):
        number = outputs.names.index(name)
        values = sign * (shown.standard.location[number] + shown.standard.scale[number] * drawn[number]) - bound
        tables[:, row] = (values - shift[row]) / scale[row]
    form = "auto" if parts.model is None else shown.model.form
    model = expanded(dataclasses.replace(shown.model, form=form), outputs, domain.size, standard)
    noise = np.asarray(model.noise_variance, np.float64)
    own = [[outputs.seen(standard, row, value) for row, value in outputs.inward(values).items()] for _, values in measured]
    return _Start(
        problem=Futures(
            domain=domain, tables=tables, noise=Gaussian(variance=float(np.mean(noise)) if noise.shape == (domain.size,) else noise)
        ),
        initial=InitialDesign(indices=np.asarray(indices), values=np.asarray(own)),
        model=model,
        algorithm=parts.algorithm,
        outputs=outputs,
        standard=standard,
    )


def _of_problem(
    problem: AbstractProblem | Surrogate, model: Model | Surrogate | None, initial: InitialDesign | None, trials: int, key: Key
) -> _Start:
    """Return a problem, or the futures of a surrogate's prior."""
    initial = spread_out(problem.domain, key) if initial is None else initial
    if isinstance(problem, Surrogate):
        if model is not None:
            raise InvalidArgument("model: a surrogate is its own model; leave it out")
        return _Start(problem=_prior_futures(problem, trials), initial=initial, model=problem, algorithm=DEFAULT_ALGORITHM)
    if model is None:
        if problem.drawn_from is None:
            raise InvalidArgument("model: must be given for a problem that is not drawn from a kernel, such as Model(kernel=...), got None")
        noise = problem.noise.variances(problem.outputs)
        model = Model(kernel=problem.drawn_from, noise_variance=1e-4 if noise is None else np.maximum(noise, 1e-6).tolist())
    return _Start(problem=problem, initial=initial, model=model, algorithm=DEFAULT_ALGORITHM)


def _prior_futures(surrogate: Surrogate, trials: int) -> Futures:
    """Return problems drawn from the prior of a surrogate."""
    domain, generator = _drawable(surrogate.domain), np.random.default_rng(0)
    if not surrogate.kernels:
        raise InvalidArgument("of: a surrogate without its kernels has no prior to draw from; make it by jaxbandit.surrogate")
    roots = [square_root(kernel, domain) for kernel in surrogate.kernels]
    means = np.asarray(surrogate.prior_mean, np.float64)
    tables = [mean + generator.standard_normal((trials, root.shape[1])) @ root.T for mean, root in zip(means, roots, strict=True)]
    noise = np.asarray(surrogate.noise_variance, np.float64)
    each = noise[list(surrogate.groups)] if noise.ndim == 1 else noise.mean(axis=1)[list(surrogate.groups)]
    return Futures(domain=domain, tables=np.stack(tables, axis=1).astype(np.float32), noise=Gaussian(variance=each))


def _drawable(domain: Domain) -> Domain:
    """Return a finite domain that is small enough for joint draws."""
    if isinstance(domain, Box):
        raise InvalidArgument("of: forecasts need a grid; give every axis a number of points, got a box")
    if domain.size > MOST_POINTS:
        raise InvalidArgument(f"of: forecasts need a grid of at most {MOST_POINTS} points, got {domain.size}")
    return domain
