"""Where warnings are said to come from: the line of the user's code, however deep in the library they are raised."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import kernels, problems
from jaxbandit.core.doors import warn
from jaxbandit.session import Axis, Model, Session
from jaxbandit.study import Run, Study, make_plan

KERNEL = kernels.SquaredExponential()
NOISY = problems.sine(4, noise_variance=1.0)
MODEL = jaxbandit.surrogate(NOISY.domain, KERNEL, noise_variance=1e-3)


def study() -> Study:
    return Study("noisy", [Run("rpol", NOISY, jaxbandit.Rpol(), MODEL)], trials=1, horizon=3)


def told() -> None:
    model = Model(kernel=KERNEL, noise_variance=0.1)
    with Session.create(None, [Axis.between("x", 0, 1, 5)], jaxbandit.Rpol(), model, key=0, standardise=False) as session:
        session.tell(session.ask(), {"reward": 1e3})


CALLS: dict[str, Callable[[], Any]] = {
    "simulate": lambda: jaxbandit.simulate(NOISY, jaxbandit.Rpol(), MODEL, horizon=3, key=0),
    "make_plan": lambda: make_plan(study()),
    "told": told,
    "traced": lambda: jax.eval_shape(lambda: warn("from a trace") or np.zeros(1)),
    "by other functions": lambda: list(map(warn, ["words"])),
}


@pytest.mark.parametrize("name", CALLS)
def test_warnings_are_of_the_line_of_the_user(name: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        CALLS[name]()
    assert said and {warning.filename for warning in said} == {__file__}
