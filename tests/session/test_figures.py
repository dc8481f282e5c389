"""Figures of sessions: ticks that can be read, units, and which measurements are shown in a slice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import delays, domains, kernels
from jaxbandit.host.figures import Ground, figure_of, logarithmic_ticks
from jaxbandit.session import Axis, Model, Session
from jaxbandit.session.axes import Space
from jaxbandit.session.figures import NEAR, SLICE, nearness

SCALES = {
    "powers of two": (np.asarray([16.0, 32, 64, 128, 256, 512]), [16, 32, 64, 128, 256, 512]),
    "between 20 and 900": (np.geomspace(20, 900, 30), [20, 50, 100, 200, 500]),
    "less than a decade": (np.linspace(40, 55, 31), [40, 45, 50, 55]),
    "three decades": (np.geomspace(1e-4, 1e-1, 40), [1e-4, 1e-3, 1e-2, 1e-1]),
    "twelve decades": (np.geomspace(1e-6, 1e6, 40), [1e-6, 1e-3, 1, 1e3, 1e6]),
    "two values": (np.asarray([1.0, 10.0]), [1, 10]),
}


@pytest.mark.parametrize("case", SCALES)
def test_ticks_of_logarithmic_axes_can_be_read(case: str) -> None:
    """Their labels do not meet in the smallest panel, and nothing is written between them."""
    values, ticks = SCALES[case]
    np.testing.assert_allclose(logarithmic_ticks(values), ticks)
    space = Space.of([Axis("rate", tuple(values.tolist()), "logarithmic")])
    figure, [[axis]] = figure_of(1, 1, SLICE)
    axis.plot(values, values)
    Ground(space.domain, values[:, None], ("rate",), (0,)).dress(axis, 0)
    figure.draw_without_rendering()
    low, high = axis.get_xlim()
    labels = [label.get_window_extent() for label in axis.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert len(labels) == len(ticks) and all(one.x1 + 2 < other.x0 for one, other in itertools.pairwise(labels))
    assert not any(label.get_text() for label in axis.get_xticklabels(minor=True))


@pytest.mark.parametrize(
    "axes",
    [
        [Axis.between("x", 1e-6, 1, 7, "logarithmic"), Axis("y", (0, 1))],
        [Axis.between("x", 1e-6, 1, scale="logarithmic")],
        {"x": domains.log(1e-6, 1.0)},
        {"y": (0.0, 1.0), "x": domains.log(1e-6, 1.0)},
    ],
    ids=["grid", "continuous", "box", "plane"],
)
def test_logarithmic_axes_are_drawn_so(axes: Any) -> None:
    model = Model(noise_variance=0.1)
    with Session.create(None, axes, jaxbandit.RandomSearch(), model, key=0, delay=delays.NoDelay()) as session:
        session.tell(session.ask(), reward=1.0)
        scales = {(axis.get_xlabel(), axis.get_xscale()) for axis in session.plot().axes if axis.get_xlabel()}
        scales |= {(axis.get_ylabel(), axis.get_yscale()) for axis in session.plot().axes if axis.get_ylabel() in ("x", "y")}
    assert ("x", "log") in scales and scales <= {("x", "log"), ("y", "linear")}


def test_slices_show_what_was_measured_near_them(tmp_path: Path) -> None:
    """Points whose other coordinates are within a fifth of the axes' ranges, on the model's scales, and of the same category."""
    axes = [Axis.between("heat", 0, 100, 21, unit="K"), Axis.between("rate", 0.01, 1.0, 21, "logarithmic")]
    axes += [Axis.of_categories("metal", ["Pd", "Ni"])]
    options: Any = {"key": jax.random.key(0), "objective": "maximise yield", "units": {"yield": "%"}}
    numbers = kernels.OnAxes(kernel=kernels.SquaredExponential(), axes=(0, 1))
    model = Model(kernel=numbers * kernels.OnAxes(kernel=kernels.Categorical(), axes=(2,)))
    options["initial"] = jaxbandit.InitialDesign(random=20)
    with Session.create(tmp_path, axes, jaxbandit.RandomSearch(), model, **options) as session:
        points = np.stack([session.specification.space.domain.points[session.ask().index] for _ in range(20)])
        for number in range(20):
            session.tell(number + 1, {"yield": float(number)})
        space, figure = session.specification.space, session.plot()
        best = space.domain.points[session.recommend().index]
    near = np.abs(points - best) < [NEAR + 1e-9, NEAR + 1e-9, 0.5]
    assert figure.get_suptitle().startswith("Slices through heat (K) = ")
    assert [axis.get_xlabel() for axis in figure.axes] == ["heat (K)", "rate", "metal"] and figure.axes[0].get_ylabel() == "yield (%)"
    for number, axis in enumerate(figure.axes):
        [dots] = [line for line in axis.lines if line.get_label() == nearness(space)]
        wanted = np.flatnonzero(np.delete(near, number, axis=1).all(axis=1))
        assert sorted(np.asarray(dots.get_ydata()).tolist()) == wanted.tolist()
    assert 0 < max(len(np.asarray(axis.lines[1].get_xdata())) for axis in figure.axes) < 10
