"""Draw the figures of the algorithms' pages: ``python notebooks/figures.py [NAME ...]``, all without names; they are the same each time."""

import io
import re
import sys
from pathlib import Path

import matplotlib
import xarray as xr

import jaxbandit as jb
from jaxbandit import report
from jaxbandit.algorithms.safe_sets import Safe

PANELS = [("positive_regret", "average positive regret"), ("hard_violation", "average violation")]
FIELDS = {
    "Cbo": {"reward_clip": 7.0, "cost_clip": 2.0},
    "Scgp": {"reward_clip": 7.0},
    "Anytime": {"algorithm": jb.Cbo(reward_clip=7.0, cost_clip=2.0)},
    "Refitted": {"algorithm": jb.Rpol()},
}

matplotlib.use("svg")
matplotlib.rcParams |= {"svg.hashsalt": "jaxbandit", "svg.fonttype": "none"}
problem = jb.problems.sine(30)
kernel = jb.kernels.SquaredExponential(length_scale=1.0)
model = jb.surrogate(problem.domain, kernel, noise_variance=0.05)
fitted = jb.ranged(problem.domain, kernel, noise_variance=0.05, low=0.2, high=10.0)
setting = {"horizon": 200, "trials": 30, "key": 0}
# Under the model of the sine, methods with a safe set certify nothing beyond a seed: they have functions that a model describes.
smooth = jb.kernels.SquaredExponential(length_scale=0.25)
drawn = jb.problems.gp_draws(domain=jb.domains.grid([0.0, 0.0], [1.0, 1.0], 30), kernel=smooth, noise=jb.problems.Gaussian(variance=1e-4))
described = jb.surrogate(drawn.domain, smooth, noise_variance=1e-4)
for name in sys.argv[1:] or jb.ALGORITHMS:
    kind = jb.ALGORITHMS[name]
    is_safe = issubclass(kind, Safe)
    played = jb.problems.full_information(problem) if kind is jb.Scgp else drawn if is_safe else problem
    known = fitted if kind is jb.Refitted else described if is_safe else model
    informed = jb.informed.SafestSeeds(count=1) if is_safe else jb.informed.BestPoint() if kind is jb.Oracle else None
    floor = jb.simulate(drawn if is_safe else problem, jb.RandomSearch(), described if is_safe else model, **setting)
    run = jb.simulate(played, kind(**FIELDS.get(kind.__name__, {})), known, **setting, informed=informed)
    own = run.to_xarray(played, label=kind.title)
    runs = (
        own
        if kind is jb.RandomSearch
        else xr.concat(
            [own, floor.to_xarray(drawn if is_safe else problem, label="random search")],
            "algorithm",
            join="inner",
            compat="override",
            coords="minimal",
        )
    )
    with report.style("screen"):
        figure = report.plots.curves(runs.isel(round=slice(4, None, 5)), measures=PANELS)[0].figure
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None}, bbox_inches="tight")
    file = Path(__file__).parent / "algorithms" / f"{kind.name}.svg"
    # A tenth of a point is fine enough, but for what is written: 0.05 beside an axis stays that.
    small = re.sub(r"(>[^<]*<)|(\.\d)\d+", lambda found: found[1] or found[2], written.getvalue())
    file.write_text(small, encoding="utf-8")
