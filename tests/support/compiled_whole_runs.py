"""Compile whole runs for a device that is not there, and say what the compilers said: ``python -m tests.support.compiled_whole_runs gpu``.

A process of its own, started with :data:`tests.support.compiled.ENVIRONMENT`, which the compilers read when JAX starts. Prints one line of
JSON for every program.
"""

from __future__ import annotations

import json
import sys

import jax
import numpy as np
from jax.sharding import SingleDeviceSharding

import jaxbandit
from jaxbandit import fused, kernels, problems
from tests.support.algorithms import ALGORITHMS
from tests.support.compiled import device_of


def main(platform: str) -> None:
    """Compile 1,000 rounds of 128 trials on 2,500 points, the README's problem, by three algorithms."""
    problem = problems.sine(50)
    kernel = kernels.SquaredExponential(length_scale=1.0)
    sharding = SingleDeviceSharding(device_of(platform))
    noise = jax.ShapeDtypeStruct((1000, problem.outputs, 128), np.float32, sharding=sharding)
    for name, form in (("rpol", "product"), ("cbo", "product"), ("config", "product"), ("rpol", "features")):
        model = jaxbandit.surrogate(problem.domain, kernel, noise_variance=0.05, outputs=problem.outputs, form=form)
        means = np.asarray(problem.means, np.float32)
        run = jax.jit(
            lambda noise, name=name, model=model, means=means: fused.whole_run(ALGORITHMS[name](), model, means, noise, platform=platform)
        )
        lowered = run.trace(noise).lower(lowering_platforms=({"gpu": "cuda"}.get(platform, platform),))
        memory = lowered.compile().memory_analysis()
        said = {"name": name, "form": form, "rank": model.forms[0].rank, "temporary": memory.temp_size_in_bytes}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
