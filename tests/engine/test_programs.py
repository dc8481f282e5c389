"""Numbers of programs that users' first lines compile."""

import json
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

MOST = 3
# They are made on the host.
NONE = ("sine", "sweep")

# Each line is run with no program compiled before it, and its programs are counted.
LINES = """
import json, sys
import jax
import numpy as np
import jaxbandit as jb
from tests.support.counted import COMPILED, Counted

SE, MATERN = jb.kernels.SquaredExponential(length_scale=1.0), jb.kernels.Matern52(length_scale=1.0)
LINE, key = jb.domains.grid([0.0], [6.0], 9), jax.random.key(0)


@jb.pytree
class Own(jb.kernels.Kernel):
    def __call__(self, x, y):
        return jax.numpy.exp(-jax.numpy.sum(jax.numpy.abs(x[:, None] - y[None]), axis=-1))


rpol = jb.Rpol()
made, counts = {}, {}
for name, line in {
    "sine": lambda: jb.problems.sine(5),
    "from_functions": lambda: jb.problems.from_functions(LINE, lambda x: jax.numpy.sin(x[0]), [lambda x: x[0] - 1], noise_variance=0.05),
    "rkhs_2d": lambda: jb.problems.rkhs_2d(points_per_axis=6, centres=9),
    "surrogate": lambda: jb.surrogate(made["sine"].domain, SE, noise_variance=0.05),
    "rough": lambda: jb.surrogate(made["sine"].domain, [SE, 2.0 * MATERN], noise_variance=[0.05, 0.1], form="features"),
    "rows": lambda: jb.surrogate(made["sine"].domain, MATERN, noise_variance=0.05, form="rows"),
    "oblong": lambda: jb.surrogate(jb.domains.grid([0.0] * 3, [1.0] * 3, [3, 4, 5]), SE, noise_variance=0.05),
    "own": lambda: jb.surrogate(LINE, Own(), noise_variance=0.05),
    "ranged": lambda: jb.ranged(made["sine"].domain, SE, low=0.8, high=1.2, noise_variance=0.05),
    "sweep": lambda: jb.sweep(rpol, {"penalty_growth": [0.5, 1.0]}),
    "simulate": lambda: jb.simulate(made["sine"], rpol, made["surrogate"], horizon=4, trials=2, key=key),
    "swept": lambda: jb.simulate(made["sine"], made["sweep"], made["surrogate"], horizon=4, trials=1, key=key),
    "curves": lambda: jb.metrics.curves(made["sine"], np.asarray(made["simulate"].indices)),
    "summary": lambda: made["simulate"].summary(made["sine"]),
    "to_dataframe": lambda: made["swept"].to_dataframe(made["sine"]),
}.items():
    jax.clear_caches()
    with Counted() as events:
        made[name] = line()
    counts[name] = events[COMPILED]
print(json.dumps(counts))
"""


@pytest.mark.full
def test_first_lines_compile_few_programs():
    pytest.importorskip("pandas")
    done = subprocess.run([sys.executable, "-c", LINES], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert {name: count for name, count in counts.items() if count > (0 if name in NONE else MOST)} == {}
    assert counts["sine"] + counts["surrogate"] + counts["simulate"] <= MOST, "a first cell"
    assert counts["simulate"] == counts["summary"] == 1 and counts["surrogate"] > 0, "they are counted"
