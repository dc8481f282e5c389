"""Growth rates of regret and violation that the papers prove, for comparison with measured growth exponents."""

from __future__ import annotations

import dataclasses
import json

import xarray as xr

__all__ = ["PAPER_RATES", "Rate", "rate_of"]
__dir__ = __all__.copy  # what completion shows


@dataclasses.dataclass(frozen=True)
class Rate:
    """A paper's upper bound on one measure.

    Attributes:
      name: name of the algorithm in the paper.
      types: names of the classes of :mod:`jaxbandit.algorithms` to which it applies.
      measures: variables of a dataset that it bounds.
      bound: formula, with ``gamma`` the maximum information gain, ``polylog(T)`` for smooth kernels such as the squared exponential.
      exponent: exponent of ``T`` in the bound for such kernels, up to logarithms.
      source: paper and theorem.
      censored: true if it is for feedback censored by a window.
    """

    name: str
    types: tuple[str, ...]
    measures: tuple[str, ...]
    bound: str
    exponent: float
    source: str
    censored: bool = False


RPOL = "Guo, Zhu, Liu (2022)"
CBO = "Zhou, Ji (2022)"
CONFIG = "Xu et al. (2023)"
EPOCHS = "Shi, Eryilmaz (2022)"
DELAY = "Vakili et al. (2023)"

# A bound on hard violation holds for soft violation too; one on strong regret for regret; one on positive regret for regret.
REGRET, POSITIVE, STRONG = ("regret",), ("positive_regret", "regret"), ("strong_regret", "regret")
SOFT, HARD = ("soft_violation",), ("hard_violation", "soft_violation")
ROOT, CENSORED = "O(gamma sqrt(T))", "O(gamma (sqrt(T) + m) / rho_m{}), window m"

PAPER_RATES = (
    Rate("RPOL-UCB", ("Rpol",), REGRET + HARD, ROOT, 0.5, f"{RPOL}, Theorem 5"),
    Rate("RPOL-CensoredUCB", ("Rpol",), REGRET + HARD, CENSORED.format(" + m gamma"), 0.5, f"{RPOL}, Theorem 6", censored=True),
    Rate("CBO", ("Cbo",), STRONG + SOFT, "O(gamma sqrt(T) + rho G sqrt(T))", 0.5, f"{CBO}, Theorems 1 and 2"),
    Rate("SCGP-UCB", ("Scgp",), STRONG, f"{ROOT}, in expectation", 0.5, f"{CBO}, Theorem 3"),
    Rate("SCGP-UCB", ("Scgp",), SOFT, "O(1), in expectation, then 0", 0.0, f"{CBO}, Theorem 3"),
    Rate("CONFIG", ("Config",), POSITIVE + HARD, ROOT, 0.5, f"{CONFIG}, Theorem 4.3"),
    Rate("GP-UCB, noiseless constraints", ("Se2",), REGRET, "O~(T^(3/4)), epochs L = S", 0.75, f"{EPOCHS}, Theorem 1"),
    Rate("GP-UCB, noiseless constraints", ("Se2",), SOFT, "O~(sqrt(T)), epochs L = S, exponential penalty", 0.5, f"{EPOCHS}, Theorem 1"),
    Rate("GP-UCB, noisy constraints", ("Se3",), REGRET + SOFT, "O~(T^(3/4)), epochs L = S", 0.75, f"{EPOCHS}, Theorem 2"),
    Rate("BPE-Delay", ("Bpe",), POSITIVE[::-1], "O~(sqrt(gamma T) + E[tau])", 0.5, f"{DELAY}, Theorems 6.1 and 6.2"),
    Rate("IGP-UCB, GP-TS", ("Unconstrained",), POSITIVE[::-1], "O~(gamma sqrt(T))", 0.5, f"Chowdhury, Gopalan (2017), by {DELAY}"),
    Rate("GP-UCB-SDF, GP-TS-SDF", ("Unconstrained",), POSITIVE[::-1], CENSORED.format(""), 0.5, f"Verma, Dai, Low (2022), by {RPOL}", True),
)


def rate_of(dataset: xr.Dataset, label: str, measure: str) -> Rate | None:
    """Return the bound of a paper for one algorithm of a dataset, found by the dataset's attributes; ``None`` if there is none."""
    described = json.loads(dataset.attrs.get("algorithms", "{}")).get(label, {})
    while isinstance(described.get("algorithm"), dict):  # a wrapper has the rate of the algorithm inside
        described = described["algorithm"]
    policy = json.loads(dataset.attrs.get("feedback", "{}")).get(label, {})
    censored = isinstance(policy, dict) and policy.get("type") == "Censor"
    for rate in PAPER_RATES:
        if described.get("type") in rate.types and measure in rate.measures and rate.censored == censored:
            return rate
    return None
