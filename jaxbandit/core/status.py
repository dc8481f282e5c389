"""Status flags of a trial, bits that neither stop nor change trials."""

from __future__ import annotations

import enum
from typing import overload

import numpy as np

from jaxbandit.core.declare import Array
from jaxbandit.core.fields import integers_from, whole

__all__ = ["FAILED", "MESSAGES", "REMEDIES", "Status", "explain", "healthy"]
__dir__ = __all__.copy


class Status(enum.IntFlag):
    """Flags of a trial.

    ``OK`` is 0. With any bit of ``FAILED`` the results of a trial are meaningless from its failed round on.
    """

    OK = 0
    NONFINITE_FEEDBACK = 1
    NONFINITE_SCORE = 2
    DECLARED_INFEASIBLE = 4
    NO_FEASIBLE_POINT = 8
    PENALTY_CAPPED = 16
    ALL_CLIPPED = 32
    SAFE_SET_EMPTIED = 64
    STOPPED = 128
    FEEDBACK_LOST = 256
    NONFINITE_TRUTH = 512
    NEGATIVE_DELAY = 1024
    NO_SUCH_POINT = 2048
    NEGATIVE_WIDTH = 4096
    SEEDS_UNCERTAIN = 8192
    FIT_AT_BOUND = 16384
    FAR_FROM_PRIOR = 32768
    NONFINITE_STATE = 65536
    OUT_OF_RANGE = 131072
    SAFE_SET_STILL = 262144
    SEED_UNSAFE = 524288
    NO_SAFE_POINT = 1048576


#: Each of these bits alone means that a trial has failed, so that averages leave it out.
FAILED = Status.NONFINITE_FEEDBACK | Status.NONFINITE_SCORE | Status.NONFINITE_TRUTH | Status.NONFINITE_STATE
FAILED |= Status.NEGATIVE_DELAY | Status.NEGATIVE_WIDTH | Status.NO_SUCH_POINT | Status.OUT_OF_RANGE

#: Messages of the flags.
MESSAGES = {
    Status.NONFINITE_FEEDBACK: "the problem returned NaN or infinity",
    Status.NONFINITE_SCORE: "the acquisition score was NaN",
    Status.DECLARED_INFEASIBLE: "the algorithm declared the problem infeasible",
    Status.NO_FEASIBLE_POINT: "the problem has no feasible point, so regret is undefined",
    Status.PENALTY_CAPPED: "a penalty factor reached its cap instead of overflowing",
    Status.NONFINITE_TRUTH: "the mean reward or a mean constraint of the instance is NaN or infinite at some point",
    Status.NEGATIVE_DELAY: "the delay model drew a negative delay",
    Status.NO_SUCH_POINT: "the algorithm chose a point that the domain does not have",
    Status.NEGATIVE_WIDTH: "a confidence width was negative or NaN",
    Status.FEEDBACK_LOST: "delayed feedback found no place in the buffer and was lost",
    Status.ALL_CLIPPED: "in some round the reward's clip B cut the estimate of every point, which leaves nothing to choose by",
    Status.SAFE_SET_EMPTIED: "no point was certified safe any more, after some had been; the algorithm fell back to its seed set",
    Status.STOPPED: "the algorithm stopped by itself before the horizon; later rounds repeat its answer",
    Status.SEEDS_UNCERTAIN: "the algorithm began at seeds that the model did not certify as safe",
    Status.FIT_AT_BOUND: "a fit of hyper-parameters ended at an end of their range",
    Status.FAR_FROM_PRIOR: "observed values lay so far from the prior mean that the model calls them impossible",
    Status.NONFINITE_STATE: "a number in the state of the algorithm became NaN or infinite",
    Status.OUT_OF_RANGE: "a user's function gave the algorithm a hyper-parameter outside its range",
    Status.SAFE_SET_STILL: "the safe set stood still: nothing beyond its seeds was certified, nor was likely to be by measuring them",
    Status.SEED_UNSAFE: "values showed with certainty that a constraint does not hold at a seed, which was no longer taken for safe",
    Status.NO_SAFE_POINT: "no point was certified safe and no seed was left that could be; the algorithm went on at its seeds",
}

#: Remedies for the flags.
REMEDIES = {
    Status.NONFINITE_FEEDBACK: "look at the problem's tables and noise; failed_round is the round of each trial",
    Status.NONFINITE_SCORE: "look at the model and the algorithm's parameters; float64 helps where float32 resolves too little",
    Status.DECLARED_INFEASIBLE: "declared_round is the round; wider cost_width or weaker constraints declare less",
    Status.NO_FEASIBLE_POINT: "change the constraints, or compare violation instead of regret",
    Status.PENALTY_CAPPED: "give slower growth of the penalty, fewer rounds, or float64 for precision",
    Status.NONFINITE_TRUTH: "look at the instances that the problem samples",
    Status.NEGATIVE_DELAY: "look at the delay model's draw",
    Status.NO_SUCH_POINT: "look at the algorithm's select, which must return 0 to M - 1",
    Status.NEGATIVE_WIDTH: "look at the estimator's widths",
    Status.FEEDBACK_LOST: "raise capacity",
    Status.ALL_CLIPPED: "raise reward_clip above the largest reward, or scale the rewards",
    Status.SAFE_SET_EMPTIED: "give narrower confidence bounds, or a model that fits the data",
    Status.STOPPED: "evaluations is the number of rounds that it used; nothing is wrong",
    Status.SEEDS_UNCERTAIN: "give seeds that are known to be safe, or let the rule SafestSeeds inform it of such",
    Status.FIT_AT_BOUND: "widen the range of the model's length-scale, or Refitted's span; of an axis without effect it is the longest",
    Status.FAR_FROM_PRIOR: "give prior_mean and the kernel's variance in the units of the values, or standardise the values",
    Status.NONFINITE_STATE: "look at the algorithm's select and update",
    Status.OUT_OF_RANGE: "look at what informed, or the build of a smoothed loss, makes of the instance or the parameters",
    Status.SAFE_SET_STILL: "give a smaller cost_width, a longer length-scale or a smaller variance of the constraints, a prior mean of them"
    " below 0, a finer grid, or more seeds",
    Status.SEED_UNSAFE: "look at the seeds' numbers, and at the prior mean and the noise variance of the constraints",
    Status.NO_SAFE_POINT: "give seeds that are known to be safe",
}


status_numbers = integers_from(0, 2 * max(Status) - 1)


@overload
def healthy(status: np.ndarray) -> np.ndarray: ...
@overload
def healthy(status: Array) -> Array: ...
def healthy(status: np.ndarray | Array) -> np.ndarray | Array:
    """Return booleans ``[...]``, false for failed but not for infeasible trials."""
    status_numbers("status", status)
    if isinstance(status, list | tuple) or not np.size(status):
        status = np.asarray(status, np.int64)
    return (status & int(FAILED)) == 0


def explain(bits: int) -> str:
    """Return the messages of a trial's flags, or ``"ok"`` without flags."""
    whole(0, 2 * max(Status) - 1)("bits", bits)
    return "; ".join(text for flag, text in MESSAGES.items() if bits & flag) or "ok"


def status_in_words(status: np.ndarray | Array) -> list[str]:
    """Return a line per flag with its count, message and remedy."""
    status_numbers("status", status)
    bits = np.asarray(status, np.int64)
    counts = {flag: int(np.count_nonzero(bits & int(flag))) for flag in MESSAGES}
    trials = f"{bits.size:,} trial{'s' if bits.size > 1 else ''}"
    return [f"{count:,} of {trials}: {MESSAGES[flag]} ({REMEDIES[flag]})" for flag, count in counts.items() if count]
