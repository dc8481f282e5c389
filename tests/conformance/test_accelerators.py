"""Programs for accelerators, lowered on a CPU."""

import functools
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

import jaxbandit
from jaxbandit import delays, domains, feedback, kernels, problems
from jaxbandit.engine.cell import Cell
from tests.support import panel
from tests.support.algorithms import ALGORITHMS, DEFAULTS, ON_RANGED_MODELS, REGISTERED, SEPARATE, TABLES

PLATFORMS = ("cuda", "tpu")
POLICIES = {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor(window=3, minimum=-1.0)}
FORMS = {
    "features": kernels.SquaredExponential(length_scale=0.3),
    "product": kernels.SquaredExponential(length_scale=0.3),
    "rows": kernels.Matern52(length_scale=0.3),
}

# Work that an accelerator hands back to the host, or does in a library that cannot be part of one program.
HOST = {"pure_callback", "io_callback", "debug_callback", "infeed", "outfeed", "ffi_call", "custom_call"}
LIBRARIES = {"eigh", "eig", "cholesky", "triangular_solve", "lu", "qr", "svd", "householder_product", "schur", "tridiagonal_solve"}

# Loops of unknown length within a round, each turn of which the host of a GPU waits for.
# A fit searches until it has converged and then goes through the points visited; fits come in few of the rounds.
LOOPS_OF_FITS = dict.fromkeys(ON_RANGED_MODELS, 2)

# Strategies change what is scored, not how, so of the variants two are enough.
# The others are parts of one program.
ALONE = [(name,) for name in ("rpol", *REGISTERED, *SEPARATE, *ON_RANGED_MODELS)]
LOWERED = [*ALONE, tuple(DEFAULTS), (*TABLES["baselines"], "bpe", "cbo-uniform")]


@functools.cache
def study() -> tuple[problems.Problem, problems.FullInformation]:
    rng = np.random.default_rng(0)
    domain = domains.product([np.sort(rng.random(4)), np.sort(rng.random(3))])
    tables = rng.standard_normal((3, domain.size))
    problem = problems.from_tables(domain, tables[0], tables[1:] - 0.3, noise=problems.Gaussian(variance=0.05))
    return problem, problems.full_information(problem)


@functools.cache
def ranged(double: bool) -> jaxbandit.Surrogate:
    return jaxbandit.ranged(study()[0].domain, FORMS["product"], low=0.2, high=0.6, noise_variance=0.05, outputs=3)


@functools.cache
def surrogate(form: str, double: bool) -> jaxbandit.Surrogate:
    horizon = 4 if form == "rows" else None
    domain = study()[0].domain
    return jaxbandit.surrogate(domain, FORMS[form], noise_variance=0.05, outputs=3, form=form, horizon=horizon)


def traced(names: tuple[str, ...], form: str, policy: str | None = None) -> Any:
    """Return an accelerator's program of three trials of four rounds."""
    algorithms = tuple(ALGORITHMS[name]() for name in names)
    algorithm = algorithms[0] if len(names) == 1 else panel.OneOf(algorithms=algorithms)
    late = {} if policy is None else {"delay": delays.Poisson(mean=2.0), "feedback": POLICIES[policy]}

    problem, double = study()[algorithm.traits.sees_constraints], jax.config.read("jax_enable_x64")
    model = ranged(double) if names[0] in ON_RANGED_MODELS else surrogate(form, double)

    def run(key: jax.Array) -> jaxbandit.Trajectory:
        return jaxbandit.simulate(problem, algorithm, model, horizon=4, trials=3, key=key, block=3, **late)

    with mock.patch.object(Cell, "on", lambda cell, *_: cell.in_one_block()):
        return jax.jit(run).trace(jax.random.key(0))


def equations(jaxpr: Jaxpr, rounds: int = 0) -> Iterator[tuple[JaxprEqn, int]]:
    """Return every equation for accelerators, with the number of scans around it.

    Blocks are one scan, and rounds the second.
    """
    for equation in jaxpr.eqns:
        yield equation, rounds
        platforms = equation.params.get("branches_platforms")
        for name, value in equation.params.items():
            if name == "branches" and platforms is not None:
                value = [branch for branch, where in zip(value, platforms, strict=True) if where != ("cpu",)]
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = part.jaxpr if isinstance(part, ClosedJaxpr) else part
                if isinstance(inner, Jaxpr):
                    yield from equations(inner, rounds + (equation.primitive.name == "scan"))


def faults(jaxpr: Jaxpr, *, loops: int = 0) -> list[str]:
    """Return faults of a program on an accelerator.

    A round may have so many ``loops`` of unknown length.
    """
    found = []
    for equation, depth in equations(jaxpr):
        name = equation.primitive.name
        if name in HOST | LIBRARIES:
            found.append(name)
        if name == "dot_general" and "HIGHEST" not in str(equation.params["precision"]):
            found.append(f"a product in precision {equation.params['precision']}")
        if any(var.aval.dtype in (np.float64, np.complex64, np.complex128) for var in equation.outvars if hasattr(var.aval, "dtype")):
            found.append(f"{name} in more than float32")
        if name == "while" and depth >= 2:
            loops -= 1
    return found + (["a loop of unknown length in every round"] if loops < 0 else [])


def lowered(program: Any) -> str:
    """The program for GPU and TPU, as one module."""
    return program.lower(lowering_platforms=PLATFORMS).as_text()


def loops_of(names: tuple[str, ...]) -> int:
    return sum(LOOPS_OF_FITS.get(name, 0) for name in names)


def labels(names: tuple[str, ...]) -> str:
    return names[0].replace("-", " ") if len(names) == 1 else f"{names[0]} and others"


@pytest.mark.full(but=("rpol",))
@pytest.mark.parametrize("names", LOWERED, ids=labels)
def test_every_algorithm_lowers_for_accelerators(names: tuple[str, ...]) -> None:
    program = traced(names, "product")
    assert faults(program.jaxpr.jaxpr, loops=loops_of(names)) == []
    text = lowered(program)
    assert not re.search(r"custom_call @(?!Sharding|annotate)", text)
    assert "f64" not in text
    assert all("HIGHEST" in line for line in re.findall(r"dot_general[^\n]*", text))


@pytest.mark.full
@pytest.mark.parametrize("form", ["features", "rows"])
def test_other_forms_lower_for_accelerators(form: str) -> None:
    program = traced(("rpol", "cbo", "cei", "bpe", "se3"), form)
    assert faults(program.jaxpr.jaxpr) == []
    assert not re.search(r"custom_call @(?!Sharding|annotate)", lowered(program))


@pytest.mark.full
@pytest.mark.parametrize(("policy", "form"), [*((policy, "product") for policy in POLICIES), ("hallucinate", "rows")])
def test_every_policy_is_fit_for_accelerators(policy: str, form: str) -> None:
    names = ("rpol", "cbo-randomised", "config", "se2", "cei", "stageopt", "anytime-cbo")
    assert faults(traced(names, form, policy).jaxpr.jaxpr) == []


@pytest.mark.full
@pytest.mark.parametrize(("form", "policy"), [("features", "wait"), ("product", "hallucinate"), ("product", "censor"), ("rows", "wait")])
def test_policies_lower_for_accelerators(form: str, policy: str) -> None:
    assert not re.search(r"custom_call @(?!Sharding|annotate)", lowered(traced(("rpol",), form, policy)))


@pytest.mark.full
def test_double_precision_lowers_for_gpus() -> None:
    with jax.enable_x64(True):
        text = traced(("rpol",), "product").lower(lowering_platforms=("cuda",)).as_text()
    assert "f64" in text and "f32" not in text and not re.search(r"custom_call @(?!Sharding|annotate)", text)


def test_the_linter_finds_faults() -> None:
    """The checks around this one can fail."""

    def faulty(x: jax.Array) -> jax.Array:
        def round_of_trial(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
            carry = jax.lax.while_loop(lambda y: y[0, 0] < 1, lambda y: y + 1, carry)
            return jax.numpy.linalg.cholesky(carry @ carry), None

        return jax.lax.map(lambda y: jax.lax.scan(round_of_trial, y, None, length=2)[0], x)

    found = faults(jax.jit(faulty).trace(np.ones((2, 3, 3), np.float32)).jaxpr.jaxpr)
    assert found == ["a product in precision None", "cholesky", "a loop of unknown length in every round"]
    with jax.enable_x64(True):
        assert faults(jax.jit(lambda x: x + 1).trace(np.ones(3)).jaxpr.jaxpr) == ["add in more than float32"]
