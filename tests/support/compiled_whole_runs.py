"""Compile whole runs for a device that is not there, and say what the compilers said: ``python -m tests.support.compiled_whole_runs gpu``.

A process of its own: the compilers read their settings from the environment when JAX starts. Prints one line of JSON for every program.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import jaxbandit
from jaxbandit import fused, kernels, problems
from tests.support.algorithms import ALGORITHMS

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": "",  # libtpu ends a process that has flags of XLA for CPUs
    "MOSAIC_GPU_DUMP_PTXAS": "1",  # registers and spills, on the standard output
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
}
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 84929347584
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 } registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def device(platform: str) -> Any:
    """Return a device that programs can be compiled for and nothing else."""
    if platform == "tpu":
        return topologies.get_topology_desc(topology_name="v5e:2x2", platform="tpu").devices[0]
    from jax._src import xla_bridge  # a platform that is not among JAX_PLATFORMS has to be made known

    xla_bridge._discover_and_register_pjrt_plugins()
    return topologies.get_topology_desc(platform="cuda", topology_name="H100", target_config=H100, topology="1x1x1").devices[0]


def main(platform: str) -> None:
    """Compile 1,000 rounds of 128 trials on 2,500 points, the README's problem, by three algorithms."""
    problem = problems.sine(50)
    kernel = kernels.SquaredExponential(length_scale=1.0)
    sharding = SingleDeviceSharding(device(platform))
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
