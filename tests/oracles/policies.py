"""Replays of optimistic and penalty methods under several strategies.

Written from the papers. Epochs and stretches are runs of their own: each is cut out of the record and replayed by itself, and the penalised
rewards of Shi and Eryilmaz are regressed as the one scalar function that their inner learner sees.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.oracles import gaussian_process as gp
from tests.oracles.bandit import Model, Record, Replay
from tests.oracles.gaussian_process import Matrix, information_gain, mean_and_sd, posterior

Psi = Callable[[Matrix], Matrix]


@dataclass(frozen=True)
class Belief:
    """Belief before a round of ``k`` functions on ``M`` points."""

    mean: Matrix  # [k, M]
    sd: Matrix  # [k, M]
    width: Matrix  # [k]


def beliefs(model: Model, record: Record) -> Iterator[Belief]:
    """Return the belief before each round."""
    indices = np.concatenate([record.initial_indices, record.indices])
    values = np.concatenate([record.initial_values, record.values])
    start = len(record.initial_indices)
    for t in range(1, len(record.indices) + 1):
        end = start + t - 1
        mean, sd, gain = gp.beliefs(model.grams, indices[:end], values[:end], model.noise, model.prior_mean)
        yield Belief(mean=mean, sd=sd, width=np.array(model.width(t, gain)))


# Exploration strategies: (belief, what was drawn in the round) -> estimates [k, M], reward first.


def optimistic(belief: Belief, draw: None) -> Matrix:
    """GP-UCB: the UCB of the reward, the LCB of the constraints."""
    sign = np.where(np.arange(len(belief.mean)) == 0, 1.0, -1.0)
    return belief.mean + (sign * belief.width)[:, None] * belief.sd


def shared_scalar(belief: Belief, draw: Matrix) -> Matrix:
    """RandGP-UCB (Zhou and Ji 2022, Definition 2): one number for all points."""
    return np.stack([mean + z * sd for mean, sd, z in zip(belief.mean, belief.sd, draw, strict=True)])


def joint(belief: Belief, draw: Matrix) -> Matrix:
    """GP-TS: the drawn function itself, whatever its law."""
    return draw


STRATEGIES: dict[str, Callable[..., Matrix]] = {"bounds": optimistic, "randomised": shared_scalar, "thompson": joint}


def _gather(rounds: list[tuple[Matrix, Matrix, Matrix]], final: Matrix) -> Replay:
    """Return the replay of all rounds and the last multiplier."""
    scores, multipliers, widths = zip(*rounds, strict=True)
    return Replay(scores=np.stack(scores), multipliers=np.stack([*multipliers, final]), widths=np.stack(widths))


def _draw(draws: Matrix | None, t: int) -> Matrix | None:
    return None if draws is None else draws[t - 1]


def unconstrained(model: Model, record: Record, *, strategy: str, draws: Matrix | None = None) -> Replay:
    """IGP-UCB, GP-TS, RandGP-UCB: the best reward estimate, whatever the constraints say."""
    nothing = np.zeros(len(model.grams) - 1)
    rounds = [
        (STRATEGIES[strategy](belief, _draw(draws, t))[0], nothing, belief.width)
        for t, belief in enumerate(beliefs(model, record), start=1)
    ]
    return _gather(rounds, nothing)


def rpol(
    model: Model, record: Record, *, strategy: str, draws: Matrix | None = None, first: float | Matrix = 1.0, growth: float = 1.0
) -> Replay:
    """RPOL (Guo et al. 2022, sec. 3): ``f^ - sum_j Q_j (g~_j)^+``.

    Then ``Q <- max(Q + c^+, eta_t)``.
    """
    queue = np.full(len(model.grams) - 1, first)
    rounds = []
    for t, belief in enumerate(beliefs(model, record), start=1):
        f, *g = STRATEGIES[strategy](belief, _draw(draws, t))
        rounds.append((f - sum(q * g_j * (g_j > 0) for q, g_j in zip(queue, g, strict=True)), queue, belief.width))
        cost = record.values[t - 1, 1:]
        queue = np.maximum(queue + cost * (cost > 0), growth * np.sqrt(t))
    return _gather(rounds, queue)


def cbo(
    model: Model,
    record: Record,
    *,
    strategy: str,
    reward_bound: float,
    cost_bound: float | Matrix,
    cap: float,
    draws: Matrix | None = None,
    divisor: float | Matrix | None = None,
    horizon: int | None = None,
) -> Replay:
    """CBO (Zhou and Ji 2022, Algorithm 1) with any strategy.

    ``V = G sqrt(T) / rho``, with ``T`` the length of the record unless given.
    """
    length = len(record.indices) if horizon is None else horizon
    step = cost_bound * np.sqrt(length) / cap if divisor is None else divisor
    dual = np.zeros(len(model.grams) - 1)
    bounds = np.broadcast_to(cost_bound, dual.shape)
    rounds = []
    for t, belief in enumerate(beliefs(model, record), start=1):
        f, *g = STRATEGIES[strategy](belief, _draw(draws, t))
        truncated = [np.clip(g_j, -bound, bound) for g_j, bound in zip(g, bounds, strict=True)]
        lagrangian = np.clip(f, -reward_bound, reward_bound) - sum(phi * g_j for phi, g_j in zip(dual, truncated, strict=True))
        rounds.append((lagrangian, dual, belief.width))
        at_choice = np.array([g_j[record.indices[t - 1]] for g_j in truncated])
        dual = np.clip(dual + at_choice / step, 0, cap)
    return _gather(rounds, dual)


def epbo(model: Model, record: Record, *, strategy: str, penalty: Matrix, draws: Matrix | None = None) -> Replay:
    """EPBO (Lu and Paulson 2022): ``UCB_f - sum_j rho_j (LCB_gj)^+``."""
    nothing = np.zeros(len(model.grams) - 1)
    rounds = []
    for t, belief in enumerate(beliefs(model, record), start=1):
        f, *g = STRATEGIES[strategy](belief, _draw(draws, t))
        rounds.append((f - sum(rho * np.maximum(0, g_j) for rho, g_j in zip(penalty, g, strict=True)), nothing, belief.width))
    return _gather(rounds, nothing)


def scgp(
    model: Model, record: Record, *, strategy: str, samples: Matrix, bound: float, slater: float, schedule: int, draws: Matrix | None = None
) -> Replay:
    """SCGP-UCB (Zhou and Ji 2022, Algorithm 2) given ``samples [T, m, M]``."""
    queue = np.zeros(len(model.grams) - 1)
    rounds = []
    for t, belief in enumerate(beliefs(model, record), start=1):
        push = {1: 1 / np.sqrt(t), 2: slater / (2 * np.sqrt(t))}[schedule]
        scale = {1: slater * np.sqrt(t) / (8 * bound), 2: slater**2 * np.sqrt(t) / (16 * bound)}[schedule]
        f = np.clip(STRATEGIES[strategy](belief, _draw(draws, t))[0], -bound, bound)
        rounds.append((f - (queue[:, None] * samples[t - 1]).sum(0) / scale, queue, belief.width))
        queue = np.maximum(0, queue + samples[t - 1][:, record.indices[t - 1]] + push)
    return _gather(rounds, queue)


# Shi and Eryilmaz (2022): epochs of an unconstrained learner on one penalised reward.


def exponential(c: float) -> Psi:
    """``psi(x) = 1`` for ``x <= 0``, else ``exp(c x)``."""
    return lambda x: np.where(x <= 0, 1.0, np.exp(c * x))


def polynomial(c: float, n: float) -> Psi:
    """``psi(x) = 1`` for ``x <= 0``, else ``(c x + 1)^n``."""
    return lambda x: np.where(x <= 0, 1.0, np.abs(c * x + 1) ** n)


def _in_epochs(
    model: Model,
    record: Record,
    *,
    epoch: int,
    restart: bool,
    strategy: str,
    draws: Matrix | None,
    first: Matrix,
    penalty: Psi,
    raised: Callable[[Matrix, Matrix], Matrix],
    width: Callable[[Matrix, float], float],
) -> Replay:
    """The loop of Algorithms 2 and 3, with ``widths [T, 1]``.

    The learner sees ``r - sum_j kappa_j penalty(c_j)`` of the points of its epoch or, unless ``restart``, of all points so far under
    the epoch's ``kappa``. The initial design counts as seen before the first epoch.
    """
    gram, noise = model.grams[0], model.noise[0]
    indices, values = np.concatenate([record.initial_indices, record.indices]), np.concatenate([record.initial_values, record.values])
    offset, kappa = len(record.initial_indices), first
    rounds = []
    for begin in range(0, len(record.indices), epoch):
        target = values[:, 0] - penalty(values[:, 1:]) @ kappa
        prior_mean = model.prior_mean[0] - model.prior_mean[1:] @ kappa
        oldest = offset + begin if restart and begin > 0 else 0
        here = range(begin, min(begin + epoch, len(record.indices)))
        for s in here:
            seen = slice(oldest, offset + s)
            mean, sd = mean_and_sd(gram, indices[seen], target[seen], noise, prior_mean)
            beta = np.array([width(kappa, information_gain(gram, indices[seen], noise))])
            belief = Belief(mean=mean[None], sd=sd[None], width=beta)
            rounds.append((STRATEGIES[strategy](belief, _draw(draws, s + 1))[0], kappa, beta))
        if len(here) == epoch:
            kappa = raised(kappa, record.values[here, 1:].mean(0))
    return _gather(rounds, kappa)


def se2(
    model: Model,
    record: Record,
    *,
    psi: Psi,
    epoch: int,
    restart: bool,
    width: Callable[[float], float],
    strategy: str = "bounds",
    draws: Matrix | None = None,
    cap: float = np.inf,
) -> Replay:
    """Algorithm 2, ``f - sum_j kappa_j (psi(g_j) - 1)``, ``kappa_1 = 1``.

    Then ``kappa <- kappa psi(mean of g_j over the epoch)``.
    """

    def capped(x: Matrix) -> Matrix:
        return np.minimum(psi(x), cap)

    return _in_epochs(
        model,
        record,
        epoch=epoch,
        restart=restart,
        strategy=strategy,
        draws=draws,
        first=np.ones(len(model.grams) - 1),
        penalty=lambda cost: capped(cost) - 1,
        raised=lambda kappa, average: np.minimum(kappa * capped(average), cap),
        width=lambda kappa, gain: width(gain),
    )


def se3(
    model: Model,
    record: Record,
    *,
    step: float,
    epoch: int,
    restart: bool,
    width: Callable[[float, float], float],
    strategy: str = "bounds",
    draws: Matrix | None = None,
) -> Replay:
    """Algorithm 3: ``f - sum_j kappa_j g_j`` with ``kappa_1 = 0``.

    Then ``kappa <- (kappa + mu mean of c_j over the epoch)^+``. ``width(gain, factor)`` is for noise ``factor = sqrt(1 + sum_j
    kappa_j^2)`` times the functions' own.
    """
    return _in_epochs(
        model,
        record,
        epoch=epoch,
        restart=restart,
        strategy=strategy,
        draws=draws,
        first=np.zeros(len(model.grams) - 1),
        penalty=lambda cost: cost,
        raised=lambda kappa, average: np.maximum(0, kappa + step * average),
        width=lambda kappa, gain: width(gain, np.sqrt(1 + np.sum(kappa**2))),
    )


def anytime(inner: Callable[..., Replay], model: Model, record: Record, *, keep_data: bool, draws: Matrix | None = None) -> Replay:
    """The doubling trick: ``inner`` afresh on rounds ``2^i .. 2^(i+1) - 1``.

    ``multipliers`` are those in force, so that they start again with every stretch.
    """
    parts, begin, total = [], 0, len(record.indices)
    while begin < total:
        # The stretches are rounds 1; 2, 3; 4, ..., 7.
        length = begin + 1
        here = slice(begin, min(begin + length, total))
        seen_indices = np.concatenate([record.initial_indices, record.indices[:begin]])
        seen_values = np.concatenate([record.initial_values, record.values[:begin]])
        kept = len(seen_indices) if keep_data or begin == 0 else 0
        stretch = Record(
            indices=record.indices[here], values=record.values[here], initial_indices=seen_indices[:kept], initial_values=seen_values[:kept]
        )
        parts.append(inner(model, stretch, draws=None if draws is None else draws[here], horizon=length))
        begin += length
    return Replay(
        scores=np.concatenate([part.scores for part in parts]),
        multipliers=np.concatenate([*(part.multipliers[:-1] for part in parts), parts[-1].multipliers[-1:]]),
        widths=np.concatenate([part.widths for part in parts]),
    )


def stretch_starts(horizon: int) -> Matrix:
    """Return rounds (from 1) when the doubling trick starts again."""
    return 2 ** np.arange(int(np.log2(horizon)) + 1)


# Laws of draws.


def whitened(model: Model, record: Record, draws: Matrix, share: float = 1e-6) -> list[Matrix]:
    """Return Thompson draws ``[T, k, M]`` as standard normals.

    One array per round and output: ``(h - mu) / beta`` in the principal directions of the dense posterior covariance that have at least
    ``share`` of the largest variance.
    """
    indices = np.concatenate([record.initial_indices, record.indices])
    values = np.concatenate([record.initial_values, record.values])
    start, numbers = len(record.initial_indices), []
    for t in range(1, len(record.indices) + 1):
        seen, observed = indices[: start + t - 1], values[: start + t - 1]
        gain = np.array([information_gain(g, seen, lam) for g, lam in zip(model.grams, model.noise, strict=True)])
        beta = model.width(t, gain)
        for j, gram in enumerate(model.grams):
            mean, covariance = posterior(gram, seen, observed[:, j], model.noise[j], model.prior_mean[j])
            if j == 0 or not (np.array_equal(gram, model.grams[j - 1]) and model.noise[j] == model.noise[j - 1]):
                # The covariance does not depend on the values.
                variances, directions = np.linalg.eigh(covariance)
            kept = variances >= share * variances[-1]
            deviation = (draws[t - 1, j] - mean) / beta[j]
            numbers.append((directions[:, kept].T @ deviation) / np.sqrt(variances[kept]))
    return numbers


def primal_dual(model: Model, record: Record, *, first: Matrix, step: float) -> Replay:
    """Primal-dual scores of bounds and observed costs.

    ``UCB_f - phi . LCB_g``, then ``phi <- (phi + eta c_t)^+`` without a cap.
    """
    phi = np.array(first, float)
    scores, multipliers, widths = [], [phi], []
    for t, b in enumerate(beliefs(model, record), start=1):
        lower = b.mean - b.width[:, None] * b.sd
        scores.append(b.mean[0] + b.width[0] * b.sd[0] - phi @ lower[1:])
        phi = np.maximum(0, phi + step * record.values[t - 1, 1:])
        multipliers.append(phi)
        widths.append(b.width)
    return Replay(scores=np.stack(scores), multipliers=np.stack(multipliers), widths=np.stack(widths))


def constrained_thompson(draws: Matrix) -> Matrix:
    """Scores ``[T, M]`` of constrained Thompson sampling from drawn functions.

    The best drawn reward where every drawn constraint holds, else the least total violation.
    """
    scores = []
    for f, *g in draws:
        excess = sum(np.maximum(g_j, 0) for g_j in g)
        scores.append(np.where(excess == 0, f, -1e9) if np.any(excess == 0) else -excess)
    return np.stack(scores)
