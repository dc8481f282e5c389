"""Probability of unsafe choices under right and wrong models."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.checks import InvalidArgument, one_of
from jaxbandit.core.declare import KeyOrSeed, checked
from jaxbandit.core.fields import Described, Rounds, Trials, of_class
from jaxbandit.core.pytree import replace
from jaxbandit.core.status import Status, healthy
from jaxbandit.core.text import aligned, html_table
from jaxbandit.delays import Poisson
from jaxbandit.engine.arguments import Telling
from jaxbandit.engine.informed import SafestSeeds
from jaxbandit.engine.simulation import simulate
from jaxbandit.kernels import Kernel
from jaxbandit.kernels.base import parts
from jaxbandit.problems import AbstractProblem, Heteroscedastic, StudentT
from jaxbandit.results.summary import measured
from jaxbandit.surrogates import Surrogate, surrogate
from jaxbandit.surrogates.evidence.ranges import length_scales

if TYPE_CHECKING:
    import pandas as pd


# The conditions that differ from the model, each with a function of the family, the model and the rounds to the arguments of ``simulate``.
Condition = Callable[[AbstractProblem, Surrogate, int], dict[str, Any]]


@dataclasses.dataclass(frozen=True, repr=False)
class SafetyTable(Described):
    """Probabilities of any violation by condition, shown as text or HTML.

    Attributes:
      rows: for each condition ``condition``, ``trials`` (those that count), ``violated`` (with some unsafe point), ``probability`` with
        ``low`` and ``high`` (the exact 95% interval), and ``largest_share`` (of unsafe rounds in one trial).
    """

    described: ClassVar[str] = "a table of jaxbandit.certify(...)"
    rows: tuple[dict[str, Any], ...]

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a table, one for each condition."""
        # Tables alone need pandas.
        import pandas as pd

        return pd.DataFrame(self.rows)

    def _cells(self) -> list[list[str]]:
        head = ["condition", "trials", "violated", "probability", "95% interval", "largest share"]
        return [head] + [
            [
                row["condition"],
                f"{row['trials']:,}",
                f"{row['violated']:,}",
                f"{row['probability']:.4f}",
                f"[{row['low']:.4f}, {row['high']:.4f}]",
                f"{row['largest_share']:.3f}",
            ]
            for row in self.rows
        ]

    def __repr__(self) -> str:
        return aligned(self._cells())

    def _repr_html_(self) -> str:
        head, *body = self._cells()
        legend = "probability: their share with the 95% interval of Clopper and Pearson; largest share: of unsafe rounds in one trial."
        return html_table(head, body, caption=f"violated: trials with an unsafe point; {legend}")


def _stretched(kernel: Kernel, factor: float) -> Kernel:
    """Return the kernel with its length-scales times ``factor``, in its parts too."""
    changed: dict[str, Any] = {name: _stretched(part, factor) for name, part in parts(kernel).items()}
    for scale in length_scales(kernel, inner=False):
        changed["length_scale"] = np.asarray(scale, np.float64) * factor
    return replace(kernel, **changed)


def _with_length_scales(factor: float) -> Condition:
    def built(family: AbstractProblem, model: Surrogate, horizon: int) -> dict[str, Any]:
        if not any(length_scales(kernel) for kernel in model.kernels):
            words = "has no kernel with a length-scale to change; name other conditions, such as 'noise x 3'"
            raise InvalidArgument(f"conditions: the model {words}")
        kernels = [_stretched(kernel, factor) for kernel in model.kernels]
        noise, mean = np.asarray(model.noise_variance)[np.asarray(model.groups)], np.asarray(model.prior_mean).tolist()
        given = {"noise_variance": noise, "prior_mean": mean, "outputs": model.outputs, "horizon": horizon, "precision": model.precision}
        return {"surrogate": surrogate(model.domain, kernels, **given)}

    return built


def _louder(family: AbstractProblem, model: Surrogate, horizon: int) -> dict[str, Any]:
    return {"problem": _with_noise(family, Heteroscedastic(variance=np.full(family.domain.size, 9.0), model=family.noise))}


def _heavy(family: AbstractProblem, model: Surrogate, horizon: int) -> dict[str, Any]:
    variances = family.noise.variances(family.outputs)
    if variances is None or not np.all(np.isfinite(variances)):
        raise InvalidArgument("conditions: the family's noise has no known variance, which 'heavy tails' needs; name other conditions")
    freedom = 3.0
    scale = np.sqrt(np.asarray(variances) * (freedom - 2) / freedom)
    return {"problem": _with_noise(family, StudentT(df=freedom, scale=scale))}


def _with_noise(family: AbstractProblem, noise: object) -> AbstractProblem:
    if "noise" not in {field.name for field in dataclasses.fields(family)}:  # type: ignore[arg-type]  # problems are dataclasses
        raise InvalidArgument(f"conditions: {type(family).__name__} has no field noise to change; name other conditions")
    return replace(family, noise=noise)


CONDITIONS: dict[str, Condition] = {
    "as modelled": lambda family, model, horizon: {},
    "length-scale x 0.5": _with_length_scales(0.5),
    "length-scale x 2": _with_length_scales(2.0),
    "noise x 3": _louder,
    "heavy tails": _heavy,
    "late values": lambda family, model, horizon: {"delay": Poisson(mean=5.0)},
}


@checked
def certify(
    algorithm: Annotated[Algorithm, of_class(Algorithm)],
    family: AbstractProblem,
    model: Surrogate | None = None,
    *,
    horizon: Rounds = 50,
    trials: Trials = 10_000,
    key: KeyOrSeed = 0,
    informed: Telling | None = None,
    conditions: Sequence[str] = tuple(CONDITIONS),
) -> SafetyTable:
    """Estimate the probability that a trial chooses any unsafe point.

    A point is unsafe where the mean of some constraint is above 0. Trials without a safe point, and trials that fail, do not count. Every
    condition is one compiled program. Beside ``"as modelled"`` they are: the model's length-scales are half (``"length-scale x 0.5"``) or
    twice (``"length-scale x 2"``) of those given; the deviation of the noise is three times that of the family (``"noise x 3"``); the noise
    is Student's t with three degrees of freedom and the same variance (``"heavy tails"``); and values arrive by Poisson delays with a mean
    of five rounds (``"late values"``).

    Args:
      algorithm: the algorithm, such as ``SafeOpt()``.
      family: the problem or the family of problems, whose instances have the probability in question.
      model: the model; default ``family.model()``.
      horizon: rounds of a trial.
      trials: number of trials of each condition, or their numbers.
      key: PRNG key or seed.
      informed: facts that the learner is told, as for :func:`~jaxbandit.simulate`; by default an algorithm without seeds begins at the
        safest point of each instance.
      conditions: names of the conditions, in the order of the rows.

    Raises:
      InvalidArgument: for a problem without constraints, an unknown condition, or one that the family or the model has no fact for.
    """
    if family.constraints == 0:
        raise InvalidArgument(f"family: must have constraints, or every point is safe, got {family.name!r} without any")
    for number, name in enumerate(conditions):
        one_of(f"conditions[{number}]", name, tuple(CONDITIONS))
    if model is None:
        model = family.model(horizon=horizon)
    if informed is None and algorithm.traits.lacks:
        informed = SafestSeeds()
    given: dict[str, Any] = {"problem": family, "surrogate": model, "horizon": horizon, "trials": trials, "key": key, "informed": informed}
    rows = []
    for name in conditions:
        changed = given | CONDITIONS[name](family, model, horizon)
        run = simulate(algorithm=algorithm, record="indices", **changed)
        made = run.played().made
        assert made is not None
        unsafe = measured(run.played(), changed["problem"], made.trials, None)["violating_rounds"][:, -1]
        status = np.asarray(run.status)
        rows.append(_row(name, unsafe[healthy(status) & (status & int(Status.NO_FEASIBLE_POINT) == 0)] / horizon))
    return SafetyTable(tuple(rows))


def _row(condition: str, shares: np.ndarray) -> dict[str, Any]:
    """Return a condition's row from the trials' shares of unsafe rounds."""
    # SciPy comes with JAX. It is imported here because start-up should not pay for it.
    from scipy.stats import binomtest

    violated, trials = int(np.sum(shares > 0)), len(shares)
    interval = binomtest(violated, trials).proportion_ci(0.95, method="exact") if trials else None
    return {
        "condition": condition,
        "trials": trials,
        "violated": violated,
        "probability": violated / trials if trials else float("nan"),
        "low": float(interval.low) if interval else 0.0,
        "high": float(interval.high) if interval else 1.0,
        "largest_share": float(np.max(shares, initial=0.0)),
    }
