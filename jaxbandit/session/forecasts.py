"""Forecasts of further evaluations, by algorithm and runs in flight."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, product
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms import Algorithm, Config, ConstrainedThompson, Rpol
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import few_words
from jaxbandit.core.declare import Array, Key, KeyOrSeed, Scalar, T, Table, checked
from jaxbandit.core.fields import Check, between, each, positive, scalar, unknown, whole
from jaxbandit.core.keys import typed
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.text import html_table
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.delays.models import Composed, QuantileLevel, SubExponential
from jaxbandit.domains import Box, Domain
from jaxbandit.engine import InitialDesign, simulate
from jaxbandit.feedback import Hallucinate
from jaxbandit.problems import AbstractProblem, Problem
from jaxbandit.problems.base import Family
from jaxbandit.problems.families import square_root
from jaxbandit.problems.noise import Gaussian, Noise
from jaxbandit.session.journal import SessionError
from jaxbandit.session.models import DEFAULT_ALGORITHM, default_model, draws, expanded, for_each, spread_out
from jaxbandit.session.quantities import Outputs, Standard, readable
from jaxbandit.session.session import Session
from jaxbandit.session.settled import likely_points
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import Surrogate

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd
    import xarray as xr


def listed(words: str, kind: type) -> Check:
    """Return the check of lists and mappings of one kind."""

    def holds(value: object) -> bool:
        items = value.values() if isinstance(value, Mapping) else value
        return isinstance(items, Iterable) and not isinstance(items, str) and all(isinstance(one, kind) for one in items)

    return Check(f"a list of {words}, or a mapping from names to {words}", holds)


@pytree
class Later(Composed):
    """Delay model and the number of rounds that a run takes longer."""

    in_files = False
    delay: Annotated[Delay, unknown] = NoDelay()
    rounds: Annotated[int, whole(0)] = static(default=0)

    @property
    def mean(self) -> Scalar:
        return self.delay.mean + self.rounds

    @property
    def sub_exponential(self) -> SubExponential:
        return self.delay.sub_exponential

    @property
    def joint(self) -> bool:
        return self.delay.joint

    def _draw(self, key: Key, outputs: int, draw: Callable[[Delay, Key, int], Array]) -> Array:
        return draw(self.delay, key, outputs) + self.rounds

    @checked
    def quantile(self, q: QuantileLevel) -> int:
        return self.delay.quantile(q) + self.rounds


@pytree
class Futures(Family):
    """A family of problems that were drawn beforehand.

    Attributes:
      tables: ``[N, 1 + m, M]`` mean reward and mean constraints of each problem.
      noises: ``[N, 1 + m]`` noise variances of each problem. Default ``None``: all have the noise of the family.
    """

    domain: Domain
    tables: Table = dataclasses.field(repr=False)
    noises: Table | None = dataclasses.field(default=None, repr=False)
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
        noise = self.noise if self.noises is None else Gaussian(variance=jnp.asarray(self.noises)[number])
        return Problem(domain=self.domain, means=means, noise=noise, delay=self.delay, name=self.name)

    @staticmethod
    def with_own_noise(instance: AbstractProblem, algorithm: Algorithm, surrogate: Surrogate) -> tuple[Algorithm, Surrogate]:
        """Return the model with a future's noise, as fits learn it."""
        first = np.asarray([surrogate.groups.index(group) for group in range(len(surrogate.forms))])
        assert isinstance(instance.noise, Gaussian)
        noise = jnp.asarray(instance.noise.variance, jnp.asarray(surrogate.noise_variance).dtype)
        return algorithm, replace(surrogate, noise_variance=noise[first])

    @classmethod
    def of_prior(cls, surrogate: Surrogate, trials: int) -> Futures:
        """Return problems drawn from the prior of a surrogate."""
        domain, generator = surrogate.domain, np.random.default_rng(0)
        if isinstance(domain, Box):
            raise InvalidArgument("of: forecasts need a grid; give every axis a number of points, got a box")
        # A joint draw at more points than this takes minutes.
        if domain.size > 10_000:
            raise InvalidArgument(f"of: forecasts need a grid of at most 10000 points, got {domain.size}")
        if not surrogate.kernels:
            raise InvalidArgument("of: a surrogate without its kernels has no prior to draw from; make it by jaxbandit.surrogate")
        roots = [square_root(kernel, domain) for kernel in surrogate.kernels]
        means = np.asarray(surrogate.prior_mean, np.float64)
        tables = [mean + generator.standard_normal((trials, root.shape[1])) @ root.T for mean, root in zip(means, roots, strict=True)]
        noise = np.asarray(surrogate.noise_variance, np.float64)
        each = noise[list(surrogate.groups)] if noise.ndim == 1 else noise.mean(axis=1)[list(surrogate.groups)]
        return cls(domain=domain, tables=np.stack(tables, axis=1).astype(np.float32), noise=Gaussian(variance=each))


@dataclasses.dataclass(frozen=True, repr=False)
class Forecast:
    """Outcome of further evaluations in futures drawn from a belief.

    It shows itself as a table.

    Attributes:
      dataset: three quantities over ``algorithm``, ``in_flight``, ``delay``, ``future`` and ``evaluation``, which is 0 for what is known
        now. They are ``best``, the objective's true value at the best allowed point measured, NaN while there is none; ``gap``, from there
        to the best allowed point of all; and ``violating``, the number of further evaluations that violate a constraint.
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

    @checked
    def until(self, within: Annotated[float, positive, scalar]) -> xr.DataArray:
        """Return the number of further evaluations until a point is good enough.

        Args:
          within: largest loss of the objective that does not matter, > 0, in the objective's units.

        Returns:
          Numbers over ``algorithm``, ``in_flight``, ``delay`` and ``future``: the first evaluation after which the best allowed point
          measured loses at most ``within`` against the best allowed point of all, infinity without such an evaluation.
        """
        good = self.dataset["gap"] <= within
        return good.argmax("evaluation").where(good.any("evaluation"), np.inf).rename("until")

    @property
    def recommended(self) -> tuple[str, int]:
        """Algorithm and runs in flight of the least final gap.

        The gap is the mean over delays and futures.
        """
        gap = self._gaps.mean(("delay", "future"))
        at = np.unravel_index(int(np.argmin(gap.values)), gap.shape)
        return str(gap["algorithm"].values[at[0]]), int(gap["in_flight"].values[at[1]])

    @property
    def table(self) -> pd.DataFrame:
        """Rows of algorithms, numbers in flight and delays, the recommended one first.

        The columns are the 10%, 50% and 90% quantiles of the best value after the last evaluation, the mean gap, how much larger it is than
        that of the recommended row of the same delay with the standard error of the difference, the mean number of violating evaluations,
        and the share of futures in which an allowed point is known.
        """
        import pandas as pd

        name, flight = self.recommended
        gaps, rows, several = self._gaps, list[dict[str, object]](), self.dataset.sizes["delay"] > 1
        for number, delay in enumerate(gaps["delay"].values):
            least = gaps.sel(algorithm=name, in_flight=flight, delay=delay).values
            part = list[dict[str, object]]()
            for run, held in self._runs(number):
                gap, best = gaps.sel(algorithm=run[0], in_flight=run[1], delay=delay).values, held["best"].isel(evaluation=-1).values
                known = best[np.isfinite(best)]
                quantiles = np.quantile(known, [0.1, 0.5, 0.9]) if known.size else [np.nan] * 3
                more = gap - least
                part.append(
                    {"algorithm": run[0], "in flight": run[1]}
                    | ({"delay": str(delay)} if several else {})
                    | {f"{self.objective} {share}": value for share, value in zip(("10%", "50%", "90%"), quantiles, strict=True)}
                    | {"gap": float(gap.mean()), "more gap": float(more.mean()), "+-": float(more.std() / np.sqrt(len(more)))}
                    | {"violating": float(held["violating"].isel(evaluation=-1).mean()), "allowed known": float(np.isfinite(best).mean())}
                )
            rows += sorted(part, key=lambda row: row["more gap"])  # type: ignore[arg-type, return-value]
        return pd.DataFrame(rows)

    @property
    def said(self) -> str:
        """Recommendation in a sentence, with its standard error."""
        (name, flight), last = self.recommended, int(self.dataset["evaluation"][-1])
        at_once = f" with {flight} in flight" if self.dataset.sizes["in_flight"] > 1 else ""
        gaps = self._gaps.mean("delay")
        least = gaps.sel(algorithm=name, in_flight=flight)
        words = f"{name}{at_once} is recommended: after {last} further evaluations its best allowed {self.objective} is"
        words += f" {float(least.mean()):.3g} from the best one in the mean of {least.size} futures"
        others = gaps.stack(run=("algorithm", "in_flight")).transpose("run", "future")
        more = others.values - least.values
        nearest = [at for at in np.argsort(more.mean(axis=1)) if tuple(others["run"].values[at]) != (name, flight)][:1]
        for at in nearest:
            other, number = others["run"].values[at]
            of = f"{other} with {number} in flight" if at_once else other
            error = float(more[at].std() / np.sqrt(least.size))
            words += f"; that of {of}, the next, is {float(more[at].mean()):.3g} +- {error:.2g} further"
        return words + "."

    @property
    def _gaps(self) -> xr.DataArray:
        """Last gaps ``[algorithm, in_flight, delay, future]``, the largest without a point."""
        gap = self.dataset["gap"].isel(evaluation=-1)
        return gap.fillna(float(self.dataset["gap"].max().fillna(0.0)))

    def _runs(self, delay: int, of: xr.Dataset | None = None) -> list[tuple[tuple[str, int], xr.Dataset]]:
        """Return each algorithm and number in flight, with its data."""
        held = (self.dataset if of is None else of).isel(delay=delay)
        runs = product(held["algorithm"].values.tolist(), held["in_flight"].values.tolist())
        return [((name, flight), held.sel(algorithm=name, in_flight=flight)) for name, flight in runs]

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
            # Colours are those of algorithms and numbers in flight, and dashes those of delays.
            for (delay, words), dash in zip(enumerate(bands["delay"].values), cycle(("-", "--", ":", "-.")), strict=False):
                for place, (run, held) in enumerate(self._runs(delay, bands)):
                    colour, is_recommended = COLOURS[place % len(COLOURS)], run == self.recommended
                    label = f"{run[0]}, {run[1]} in flight" if bands.sizes["in_flight"] > 1 else run[0]
                    label += f", {words}" if bands.sizes["delay"] > 1 else ""
                    for axis, name in zip(axes, ("best", "violating"), strict=True):
                        low, middle, high = (held[name].sel(bound=bound).values for bound in ("lower", "median", "upper"))
                        if is_recommended and not delay:
                            axis.fill_between(bands["evaluation"].values, low, high, color=colour, alpha=0.2, linewidth=0)
                        width = 2 if is_recommended else 1
                        axis.plot(bands["evaluation"].values, middle, color=colour, linestyle=dash, linewidth=width, label=label)
            axes[0].set(xlabel="further evaluations", ylabel=plain(f"best allowed {self.objective}"))
            axes[1].set(xlabel="further evaluations", ylabel="evaluations that violate")
            legend_below(figure)
        return figure

    def rows(self) -> list[list[str]]:
        """Return the table as texts, its head first."""
        table = self.table
        return [list(map(str, table.columns)), *([readable(cell) for cell in row] for row in table.itertuples(index=False))]

    def __repr__(self) -> str:
        from jaxbandit.core.text import aligned

        return aligned(self.rows(), width=120)

    def _repr_html_(self) -> str:
        return html_table(self.rows()[0], self.rows()[1:])


@dataclasses.dataclass(frozen=True)
class Start:
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
        model = self.model
        if model.form == "auto":
            # Features of algorithms that draw jointly leave out the noise's share of the prior variance, between these limits, because
            # their cost grows with their square.
            left_out = float(np.clip(np.min(model.noise_variance), 1e-3, 1e-2))
            tolerance = left_out if draws(algorithm) and model.tolerance is None else model.tolerance
            model = dataclasses.replace(model, form=default_model(domain, algorithm).form, tolerance=tolerance)
        return model.of(domain, self.problem.outputs, horizon + self.initial.count, "model")

    def in_units(self, values: np.ndarray) -> np.ndarray:
        """Return values of the modelled reward in the objective's units."""
        if self.outputs is None:
            return values
        shift, scale = self.outputs.units(self.standard)
        bent = values * scale[0] + shift[0]
        return self.outputs.objective.sign * (bent if self.standard is None else self.standard.straightened(bent))

    @classmethod
    def of_session(cls, session: Session, trials: int) -> Start:
        """Return the futures of a session, and all values that it knows."""
        parts, outputs = session.specification, session.specification.outputs
        with session._current() as state:
            measured = [(index, values) for index, values in state.told if {*outputs.names} <= values.keys()]
            if not measured:
                raise SessionError("forecast: all values of at least one point must be told first")
            shown, space = state.believed, state.space
            space.check_one_best("forecast", "nobody knows the contexts to come")
            standard, indices = state.standard if state.shown is None else shown.standard, [index for index, _ in measured]
            domain = space.domain
            # A box or a larger grid stands for the points that are likely to be the best, and for 256 points everywhere.
            if isinstance(domain, Box) or domain.size > 1280:
                best = session._best_known().index
                assert best is not None
                likely, numbers = likely_points(shown, space, best, state.unfit, 128)
                spread = np.random.default_rng(0).permutation(np.flatnonzero(~state.unfit[: domain.size]))[:256]
                kept = np.unique(np.concatenate([indices, numbers[numbers >= 0], spread]))
                domain = Domain(points=np.concatenate([space.modelled[kept], likely[numbers < 0]]))
                indices = np.searchsorted(kept, indices).tolist()
        count, fields = len(outputs.names), ("kernel", "prior_mean")
        # The forecast knows nothing of failures.
        own_model: dict[str, Any] = {}
        if shown.outputs != outputs:
            own_model = {name: for_each(name, shown.model, shown.outputs, standard)[:count] for name in fields}
        standard = standard and dataclasses.replace(standard, location=standard.location[:count], scale=standard.scale[:count])
        shift, scale = outputs.units(standard)
        # Futures are drawn of at most 8 hyper-parameters, because each costs a factorisation.
        places = np.asarray(domain.points, np.float64)
        drawn = [average.draws(places, trials, number, models=8) for number, average in enumerate(shown.averages)]
        tables = np.empty((trials, len(outputs.functions), domain.size), np.float32)
        noises = np.empty((trials, len(outputs.functions)))
        for row, (name, sign, bound) in enumerate(outputs.functions):
            number = outputs.names.index(name)
            place, unit = shown.standard.location[number], shown.standard.scale[number]
            tables[:, row] = (sign * (place + unit * drawn[number][0]) - bound - shift[row]) / scale[row]
            noises[:, row] = np.square(unit / scale[row]) * drawn[number][1]
        form = "auto" if parts.model is None else shown.model.form
        # Learners have the noise of their future, and features are made for the middle of all.
        middle = tuple(float(np.exp(np.mean(np.log(noise)))) for _, noise in drawn[:count])
        own_model |= {"form": form, "noise_variance": middle}
        model = expanded(dataclasses.replace(shown.model, **own_model), outputs, domain.size, standard)
        own = [[outputs.seen(standard, row, value) for row, value in outputs.inward(values).items()] for _, values in measured]
        return cls(
            problem=Futures(domain=domain, tables=tables, noises=noises),
            initial=InitialDesign(indices=np.asarray(indices), values=np.asarray(own)),
            model=model,
            algorithm=parts.algorithm,
            outputs=outputs,
            standard=standard,
        )

    @classmethod
    def of_problem(
        cls, problem: AbstractProblem | Surrogate, model: Model | Surrogate | None, initial: InitialDesign | None, trials: int, key: Key
    ) -> Start:
        """Return a problem, or the futures of a surrogate's prior."""
        initial = spread_out(problem.domain, key) if initial is None else initial
        if isinstance(problem, Surrogate):
            if model is not None:
                raise InvalidArgument("model: a surrogate is its own model; leave it out")
            return cls(problem=Futures.of_prior(problem, trials), initial=initial, model=problem, algorithm=DEFAULT_ALGORITHM)
        if model is None:
            if problem.drawn_from is None:
                raise InvalidArgument(
                    "model: must be given for a problem that is not drawn from a kernel, such as Model(kernel=...), got None"
                )
            noise = problem.noise.variances(problem.outputs)
            model = Model(kernel=problem.drawn_from, noise_variance=1e-4 if noise is None else np.maximum(noise, 1e-6).tolist())
        return cls(problem=problem, initial=initial, model=model, algorithm=DEFAULT_ALGORITHM)

    def run(self, algorithm: Algorithm, evaluations: int, in_flight: int, delay: Delay, trials: int, key: Key) -> dict[str, np.ndarray]:
        """Return the quantities ``[trials, evaluations + 1]`` of one run."""
        delay = Later(delay=delay, rounds=in_flight - 1) if in_flight > 1 else delay
        feedback = None if isinstance(delay, NoDelay) else Hallucinate()
        with warnings.catch_warnings():
            # Some futures have no allowed point, and the results say so.
            warnings.simplefilter("ignore", UserWarning)
            run = simulate(
                self.problem,
                algorithm,
                self.learner(algorithm, evaluations),
                horizon=evaluations,
                key=key,
                trials=trials,
                initial=replace(self.initial, counted=True),
                informed=Futures.with_own_noise if isinstance(self.problem, Futures) and self.problem.noises is not None else None,
                delay=delay,
                feedback=feedback,
            )
            dataset = run.to_xarray().isel(algorithm=0)
        after = dataset.sel(round=slice(0, None)) if self.initial.count else dataset.pad(round=(1, 0))
        best, violating = after["best_feasible_value"].values, after["violating_rounds"].values
        best = self.in_units(np.where(np.isfinite(best), best, np.nan).astype(np.float64))
        most = self.in_units(np.asarray(dataset["optimum"].values, np.float64))
        # Without a design the first column is padding, where nothing has been evaluated and nothing violates.
        return {
            "best": best,
            "gap": np.abs(most[:, None] - best),
            "violating": np.nan_to_num(violating - (violating[:, :1] if self.initial.count else 0)),
        }


@checked
def forecast(
    of: Annotated[
        Session | AbstractProblem | Surrogate,
        Check("a Session, a problem or a Surrogate", lambda value: isinstance(value, Session | AbstractProblem | Surrogate)),
    ],
    evaluations: Annotated[int, whole(1, 10_000)],
    algorithms: Annotated[Mapping[str, Algorithm] | Sequence[Algorithm], listed("algorithms", Algorithm)] | None = None,
    *,
    in_flight: Annotated[Sequence[int], each(whole(1, 1000))] = (1,),
    delays: Annotated[Mapping[str, Delay] | Sequence[Delay], listed("delays", Delay)] | None = None,
    trials: Annotated[int, whole(2, 10**6)] = 500,
    model: Model | Surrogate | None = None,
    initial: InitialDesign | None = None,
    key: KeyOrSeed = 0,
) -> Forecast:
    """Forecast the results of further evaluations.

    The forecast is by algorithm, number of runs in flight and delay.

    Of a session futures are drawn from its belief, with hyper-parameters drawn from theirs, and every algorithm goes on in each of them
    from the values that were really measured, with the model of the best fit. Of a problem, or of a surrogate's prior, it starts from an
    initial design. All algorithms meet the same futures, so that differences between them are paired. A forecast is right as far as the
    model is: it knows nothing of functions that are not like draws of its kernels, and nothing of runs that fail. A session's box, or its
    grid of more than 1,280 points, stands for some of its points: all that were measured, those that are most likely to be the best, and
    some everywhere.

    Args:
      of: a session that has been told some values, a problem or a family of problems, or a surrogate, whose prior is drawn from.
      evaluations: number of further evaluations.
      algorithms: by name, or a list; default the session's own, constrained Thompson sampling, CONFIG and RPOL.
      in_flight: numbers of runs under way at once, each of which is forecast; the values of a run arrive one round later for each
        further run.
      delays: by name, or a list, the delays that are forecast, as for :func:`~jaxbandit.simulate`, in rounds beside those of the runs in
        flight; default the problem's own, which a session does not have.
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
    begun = Start.of_session(of, trials) if isinstance(of, Session) else Start.of_problem(of, model, initial, trials, typed(key))
    own = {type(one).__name__: one for one in (begun.algorithm, ConstrainedThompson(), Config(), Rpol(), begun.algorithm)}

    def items_by_name(argument: str, items: Mapping[str, T] | Sequence[T], words: Callable[[T], str]) -> dict[str, T]:
        found = dict(items) if isinstance(items, Mapping) else {words(item): item for item in items}
        if len(found) < len(items):
            raise InvalidArgument(f"{argument}: two have one name; give a mapping from names to {argument}")
        return found

    named = items_by_name("algorithms", own if algorithms is None else algorithms, lambda one: type(one).__name__)
    given = [begun.problem.delay] if delays is None else delays
    late = items_by_name("delays", given, lambda delay: "none" if isinstance(delay, NoDelay) else few_words(delay))
    for name, several in (("algorithms", named), ("in_flight", in_flight), ("delays", late)):
        if not several:
            raise InvalidArgument(f"{name}: must hold at least one, got none")
    runs = [
        [[begun.run(algorithm, evaluations, number, delay, trials, typed(key)) for delay in late.values()] for number in in_flight]
        for algorithm in named.values()
    ]
    import xarray as xr

    dims = ("algorithm", "in_flight", "delay", "future", "evaluation")
    dataset = xr.Dataset(
        {name: (dims, np.asarray([[[run[name] for run in row] for row in each] for each in runs])) for name in runs[0][0][0]},
        coords={"algorithm": list(named), "in_flight": list(in_flight), "delay": list(late), "evaluation": np.arange(evaluations + 1)},
    )
    return Forecast(dataset, "reward" if begun.outputs is None else begun.outputs.label(begun.outputs.objective.name))
