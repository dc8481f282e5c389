"""Replays under delayed feedback.

Written from the papers; every posterior is a fresh dense solve on the points that it is to hold. The value of
round ``s`` arrives at the end of round ``s + tau_s``, so that the choice of round ``t`` rests on what has ``s + tau_s <= t - 1``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.oracles.bandit import Record, Replay
from tests.oracles.gaussian_process import Matrix, information_gain, posterior
from tests.oracles.ucb_policies import ConfigReplay

# The arguments are round, gain [k] and summed deviations [k] at the last points, and the result is beta [k].
Width = Callable[[int, Matrix, Matrix], Matrix]


@dataclass(frozen=True)
class Model:
    """Prior beliefs of ``k`` functions on ``M`` points, and widths."""

    grams: Matrix  # [k, M, M]
    noise: Matrix  # [k], or [k, M] where it differs between points
    prior_mean: Matrix  # [k]
    width: Width

    def noise_at(self, output: int, points: Matrix) -> float | Matrix:
        return self.noise[output] if np.ndim(self.noise) == 1 else self.noise[output][points]


@dataclass(frozen=True)
class Policy:
    """Policy: ``wait``, ``hallucinate``, or ``censor`` with window and least values ``[k]``."""

    name: str
    window: int = 0
    minimum: float | Matrix = 0.0


@dataclass(frozen=True)
class Late:
    """Choices and observations of one trial, and their rounds."""

    record: Record
    arrivals: Matrix  # [T, k] round at whose end each value arrives


@dataclass(frozen=True)
class Belief:
    """Belief before a round of ``k`` functions on ``M`` points."""

    mean: Matrix  # [k, M]
    covariance: Matrix  # [k, M, M]
    gain: Matrix  # [k]
    recent: Matrix  # [k] deviations at the points chosen in the last ``window`` rounds, summed

    @property
    def sd(self) -> Matrix:
        """``[k, M]``."""
        return np.sqrt(np.maximum(np.stack([np.diag(c) for c in self.covariance]), 0))


def belief(model: Model, late: Late, policy: Policy, t: int, oldest: int = 1) -> Belief:
    """Return the belief before round ``t`` from rounds since ``oldest``.

    The initial design counts if ``oldest`` is 1.
    """
    rounds = np.arange(oldest, t)
    first = slice(None) if oldest == 1 else slice(0)
    before, values_before = late.record.initial_indices[first], late.record.initial_values[first]
    chosen, values = late.record.indices[rounds - 1], late.record.values[rounds - 1]
    minimum = np.broadcast_to(np.asarray(policy.minimum, float), len(model.grams))
    parts = []
    for j, gram in enumerate(model.grams):
        here = late.arrivals[rounds - 1, j] <= t - 1
        points, targets = np.r_[before, chosen[here]], np.r_[values_before[:, j], values[here, j]]
        mean, covariance = posterior(gram, points, targets, model.noise_at(j, points), model.prior_mean[j])
        if policy.name == "censor":
            used = here & (late.arrivals[rounds - 1, j] - rounds <= policy.window)
            points = np.r_[before, chosen]
            targets = np.r_[values_before[:, j], np.where(used, values[:, j], minimum[j])]
            mean, covariance = posterior(gram, points, targets, model.noise_at(j, points), model.prior_mean[j])
        elif policy.name == "hallucinate":
            points = np.r_[before, chosen]
            covariance = posterior(gram, points, np.zeros(len(points)), model.noise_at(j, points))[1]
        gain = information_gain(gram, points, model.noise_at(j, points)) if len(points) else 0.0
        last = chosen[rounds >= t - policy.window]
        parts.append((mean, covariance, gain, np.sqrt(np.diag(covariance))[last].sum()))
    return Belief(*(np.stack(part) for part in zip(*parts, strict=True)))


def beliefs(model: Model, late: Late, policy: Policy, oldest: Callable[[int], int] = lambda t: 1) -> Iterator[tuple[int, Belief, Matrix]]:
    """Round, belief and width for every round."""
    for t in range(1, len(late.record.indices) + 1):
        known = belief(model, late, policy, t, oldest(t))
        yield t, known, np.asarray(model.width(t, known.gain, known.recent))


def arriving(late: Late, t: int, output: int) -> Matrix:
    """Return an output's values that arrive at the end of round ``t``."""
    return late.record.values[late.arrivals[:, output] == t, output]


# Algorithms under confidence bounds.


def _bounds(known: Belief, beta: Matrix) -> tuple[Matrix, Matrix]:
    return known.mean[0] + beta[0] * known.sd[0], known.mean[1:] - beta[1:, None] * known.sd[1:]


def _gather(rounds: list[tuple[Matrix, Matrix, Matrix]], final: Matrix) -> Replay:
    scores, multipliers, widths = zip(*rounds, strict=True)
    return Replay(scores=np.stack(scores), multipliers=np.stack([*multipliers, final]), widths=np.stack(widths))


def unconstrained(model: Model, late: Late, policy: Policy) -> Replay:
    """The largest UCB of the reward."""
    nothing = np.zeros(len(model.grams) - 1)
    return _gather([(_bounds(known, beta)[0], nothing, beta) for _, known, beta in beliefs(model, late, policy)], nothing)


def rpol(model: Model, late: Late, policy: Policy) -> Replay:
    """RPOL: ``Q <- max(Q + sum of arriving c^+, sqrt(t))``."""
    outputs = range(1, len(model.grams))
    queue, rounds = np.ones(len(outputs)), []
    for t, known, beta in beliefs(model, late, policy):
        ucb, lcb = _bounds(known, beta)
        rounds.append((ucb - queue @ np.maximum(lcb, 0), queue, beta))
        arrived = np.array([np.maximum(arriving(late, t, j), 0).sum() for j in outputs])
        queue = np.maximum(queue + arrived, np.sqrt(t))
    return _gather(rounds, queue)


def epbo(model: Model, late: Late, policy: Policy, *, penalty: float) -> Replay:
    """EPBO: ``UCB_f - rho sum_j (LCB_gj)^+``."""
    nothing, rounds = np.zeros(len(model.grams) - 1), []
    for _, known, beta in beliefs(model, late, policy):
        ucb, lcb = _bounds(known, beta)
        rounds.append((ucb - penalty * np.maximum(lcb, 0).sum(0), nothing, beta))
    return _gather(rounds, nothing)


def config(model: Model, late: Late, policy: Policy) -> ConfigReplay:
    """CONFIG's bounds."""
    rounds = [(*_bounds(known, beta), beta) for _, known, beta in beliefs(model, late, policy)]
    return ConfigReplay(
        ucb=np.stack([ucb for ucb, _, _ in rounds]),
        lcb=np.stack([lcb for _, lcb, _ in rounds]),
        widths=np.stack([beta for _, _, beta in rounds]),
    )


def cbo(
    model: Model, late: Late, policy: Policy, *, reward_clip: float, cost_clip: float, dual_cap: float, doubling: bool = False
) -> Replay:
    """CBO, with ``doubling`` afresh in rounds 1, 2, 4, 8, ..."""
    total = len(late.record.indices)

    def start(t: int) -> int:
        return 2 ** int(np.log2(t)) if doubling else 1

    dual, rounds = np.zeros(len(model.grams) - 1), []
    local = Model(model.grams, model.noise, model.prior_mean, lambda t, gain, recent: model.width(t - start(t) + 1, gain, recent))
    for t, known, beta in beliefs(local, late, policy, start):
        length = start(t) if doubling else total
        ucb, lcb = _bounds(known, beta)
        cost = np.clip(lcb, -cost_clip, cost_clip)
        rounds.append((np.clip(ucb, -reward_clip, reward_clip) - dual @ cost, dual, beta))
        step = cost_clip * np.sqrt(length) / dual_cap
        dual = np.clip(dual + cost[:, late.record.indices[t - 1]] / step, 0, dual_cap)
        if doubling and start(t + 1) == t + 1:
            dual = np.zeros_like(dual)
    return _gather(rounds, dual)


def se3(model: Model, late: Late, policy: Policy, *, step: float, epoch: int, restart: bool) -> Replay:
    """Shi and Eryilmaz's Algorithm 3 with averages of arriving costs."""
    kappa, rounds, arrived = np.zeros(len(model.grams) - 1), [], []

    def oldest(t: int) -> int:
        return (t - 1) // epoch * epoch + 1 if restart else 1

    for t, known, beta in beliefs(model, late, policy, oldest):
        rounds.append((known.mean[0] - kappa @ known.mean[1:] + beta[0] * known.sd[0], kappa, beta))
        arrived.append([arriving(late, t, j) for j in range(1, len(model.grams))])
        if t % epoch == 0:
            costs = [np.concatenate(column) for column in zip(*arrived, strict=True)]
            kappa = np.maximum(kappa + step * np.array([c.mean() if len(c) else 0.0 for c in costs]), 0)
            arrived = []
    return _gather(rounds, kappa)


def se2(model: Model, late: Late, policy: Policy, *, c: float, epoch: int, restart: bool) -> Replay:
    """Algorithm 2 with ``psi(x) = exp(c x^+)`` of ``(r, psi(g_j) - 1)``."""
    record = late.record

    def psi(x: Matrix) -> Matrix:
        return np.exp(c * np.maximum(x, 0))

    def seen(values: Matrix) -> Matrix:
        return np.concatenate([values[:, :1], psi(values[:, 1:]) - 1], axis=1)

    mapped = Late(Record(record.indices, seen(record.values), record.initial_indices, seen(record.initial_values)), late.arrivals)
    kappa, rounds, arrived = np.ones(len(model.grams) - 1), [], []

    def oldest(t: int) -> int:
        return (t - 1) // epoch * epoch + 1 if restart else 1

    for t, known, beta in beliefs(model, mapped, policy, oldest):
        rounds.append((known.mean[0] - kappa @ known.mean[1:] + beta[0] * known.sd[0], kappa, beta))
        arrived.append([arriving(late, t, j) for j in range(1, len(model.grams))])
        if t % epoch == 0:
            costs = [np.concatenate(column) for column in zip(*arrived, strict=True)]
            kappa = kappa * psi(np.array([x.mean() if len(x) else 0.0 for x in costs]))
            arrived = []
    return _gather(rounds, kappa)


def whitened(model: Model, late: Late, policy: Policy, draws: Matrix, share: float = 1e-6) -> Matrix:
    """Return joint draws ``[T, k, M]`` as standard normals.

    They are ``(h - mu) / beta`` along the principal directions of the policy's covariance that have at least ``share`` of the largest
    variance.
    """
    numbers = []
    for t, known, beta in beliefs(model, late, policy):
        for j in range(len(model.grams)):
            variances, directions = np.linalg.eigh(known.covariance[j])
            kept = variances >= share * variances[-1]
            numbers.append(directions[:, kept].T @ (draws[t - 1, j] - known.mean[j]) / beta[j] / np.sqrt(variances[kept]))
    return np.concatenate(numbers)


def log_likelihood(model: Model, late: Late, policy: Policy, draws: Matrix, jitter: float = 1e-6) -> float:
    """Return the log-density of joint draws ``[T, k, M]``, up to constants."""
    total = 0.0
    for t, known, beta in beliefs(model, late, policy):
        for j in range(len(model.grams)):
            covariance = beta[j] ** 2 * (known.covariance[j] + jitter * np.eye(len(known.mean[j])))
            deviation = draws[t - 1, j] - known.mean[j]
            total -= 0.5 * (deviation @ np.linalg.solve(covariance, deviation) + np.linalg.slogdet(covariance)[1])
    return total
