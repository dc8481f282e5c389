"""Programs compiled for GPUs and TPUs without a device.

``python -m tests.support.compiled gpu`` prints a line of JSON for each of ``PROGRAMS["gpu"]``. It is a process of its own because the
compilers are told by the environment that there is no device.
"""

import contextlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

# The grid has so many points on each of two axes.
TRIALS, ROUNDS, POINTS = 100, 50, 50


class Program(NamedTuple):
    """A run of ``TRIALS`` trials side by side on 2,500 points."""

    algorithm: str
    form: str = "product"
    policy: str = "none"
    fused: bool = False


CHOSEN = ("rpol", "cbo", "config")
OTHERS = ("epbo", "se3", "primal-dual", "cei", "constrained-thompson", "safeopt")
SCORED = (*CHOSEN, "epbo", "primal-dual", "unconstrained", "se2", "se3-no-restart")
FUSED = [*(Program(name, fused=True) for name in SCORED), Program("rpol", "features", fused=True)]
PROGRAMS = {
    "gpu": [
        *map(Program, (*CHOSEN, *OTHERS)),
        *(Program("rpol", form) for form in ("features", "rows")),
        *(Program("rpol", "product", policy) for policy in ("wait", "hallucinate", "censor")),
        *FUSED,
    ],
    "tpu": [*map(Program, CHOSEN), Program("rpol", "features"), *FUSED],
}

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    # NVIDIA's assembler then reports on each kernel.
    "MOSAIC_GPU_DUMP_PTXAS": "1",
}
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84929347584 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""
PLATFORM = {"gpu": "cuda", "tpu": "tpu"}
FREE = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "after-all", "opt-barrier", "partition-id"}


def is_installed(kind: str) -> bool:
    """Return whether the compilers for a kind of device are installed.

    They are XLA's plugin with NVIDIA's assembler, or libtpu.
    """

    def there(module: str) -> bool:
        try:
            return importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            return False

    return there("libtpu") if kind == "tpu" else there("jax_plugins.xla_cuda12") and there("nvidia.cuda_nvcc")


def compiled_in_a_process(kind: str) -> tuple[dict[Program, dict[str, Any]], list[tuple[str, str]]]:
    """Return the facts of each program of ``PROGRAMS[kind]``, or its ``error``.

    The second result has for each kernel written in Pallas for a GPU the bytes of registers that it stores to memory and loads again.
    """
    command = [sys.executable, "-m", "tests.support.compiled", kind]
    root = Path(__file__).parents[2]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | ENVIRONMENT | {"PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == len(PROGRAMS[kind]), f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", done.stdout + done.stderr)
    return {Program(**line.pop("program")): line for line in lines}, spilled


def report(kind: str) -> Iterator[dict[str, Any]]:
    """Compile the programs of a kind of device, and yield their facts."""
    device = device_of(kind)
    for program in PROGRAMS[kind]:
        try:
            found = facts(program, kind, device)
        except Exception as error:
            # A compiler's error has words of its own.
            found = {"error": f"{type(error).__name__}: {str(error)[:2000]}"}
        yield {"program": program._asdict()} | found


def device_of(kind: str) -> Any:
    """Return a device that programs can be compiled for, and nothing else."""
    from jax._src import xla_bridge
    from jax.experimental import topologies

    if kind == "tpu":
        return topologies.get_topology_desc(topology_name="v5e:2x2", platform="tpu").devices[0]
    xla_bridge._discover_and_register_pjrt_plugins()
    return topologies.get_topology_desc(platform="cuda", topology_name="H100", target_config=H100, topology="1x1x1").devices[0]


def facts(program: Program, kind: str, device: Any) -> dict[str, Any]:
    """Return operations of a round, and memory beside arguments and results."""
    with tempfile.TemporaryDirectory() as place:
        dumped = {"xla_dump_to": place, "xla_dump_hlo_module_re": ".*play_all.*"} if kind == "gpu" else None
        compiled = lowered(program, kind, device).compile(compiler_options=dumped)
        sequences = [path.read_text() for path in Path(place).glob("*thunk_sequence_after*")]
    loops = loops_of(compiled.as_text())
    return {
        "temporary_bytes": compiled.memory_analysis().temp_size_in_bytes,
        "launches": [launches for trips, launches in loops if trips == ROUNDS],
        "loops_of_unknown_length": [launches for trips, launches in loops if trips is None],
        "in_body": in_body(sequences[0]) if sequences else [],
    }


def lowered(program: Program, kind: str, device: Any = None) -> Any:
    """Return ``simulate``'s program, lowered for a kind of device."""
    import jax
    import jax.numpy as jnp

    import jaxbandit
    from jaxbandit.engine import programs

    (cell, key, pairs), options = arguments(program)
    cell = cell.in_one_block()
    if program.fused:
        cell = jaxbandit.replace(cell, kernel=cell.kernel._replace(platform=kind, interpret=False))
    place = None if device is None else jax.sharding.SingleDeviceSharding(device)
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype if isinstance(x, jax.Array) else jnp.asarray(x).dtype, sharding=place),
        (cell, key, pairs),
    )
    return programs.play_all.trace(*shapes, **options).lower(lowering_platforms=(PLATFORM[kind],))


def arguments(program: Program) -> tuple[tuple[Any, Any, Any], dict[str, Any]]:
    """Return what ``simulate`` gives the compiled program."""
    from unittest import mock

    import jax

    import jaxbandit
    from jaxbandit import delays, feedback, kernels, problems
    from jaxbandit.engine import simulation
    from tests.support.algorithms import ALGORITHMS

    problem, rows = problems.sine(POINTS), program.form == "rows"
    kernel = kernels.Matern52(length_scale=1.0) if rows else kernels.SquaredExponential(length_scale=1.0)
    model = jaxbandit.surrogate(
        problem.domain, kernel, noise_variance=0.05, outputs=problem.outputs, form=program.form, horizon=ROUNDS if rows else None
    )
    policies = {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor(window=3, minimum=-1.0)}
    late = {} if program.policy == "none" else {"delay": delays.Poisson(mean=2.0), "feedback": policies[program.policy]}
    given: list[Any] = []

    def take(*args: Any, **options: Any) -> Any:
        given.extend((args, options))
        raise InterruptedError

    # Once it has the arguments, ``take`` ends the simulation before anything compiles.
    with mock.patch.object(simulation, "play_all", take), contextlib.suppress(InterruptedError):
        jaxbandit.simulate(
            problem,
            ALGORITHMS[program.algorithm](),
            model,
            horizon=ROUNDS,
            trials=TRIALS,
            key=jax.random.key(0),
            block=TRIALS,
            record="indices",
            fused=program.fused,
            **late,
        )
    return given[0], given[1]


def loops_of(text: str) -> list[tuple[int | None, int]]:
    """Return each loop's number of turns and the launches of a turn.

    The number is ``None`` where it is not known.
    """
    parts: dict[str, list[str]] = {}
    name = None
    for line in text.splitlines():
        start = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$", line)
        if start:
            name = start[1]
            parts[name] = []
        elif line.startswith("}"):
            name = None
        elif name and " = " in line:
            parts[name].append(line.strip())
    loops = []
    for line in (line for lines in parts.values() for line in lines if operation(line) == "while"):
        body, trips = re.search(r"body=%?([\w.\-]+)", line), re.search(r'known_trip_count":\{"n":"(\d+)"', line)
        assert body is not None
        loops.append((int(trips[1]) if trips else None, sum(operation(inner) not in FREE for inner in parts[body[1]])))
    return loops


def operation(line: str) -> str:
    """Return the operation of a line of HLO, ``name = type operation(...)``."""
    rest = line.split(" = ", 1)[1]
    # A type of several parts has brackets of its own.
    if rest.startswith("("):
        depth = 0
        for place, letter in enumerate(rest):
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                rest = "_ " + rest[place + 1 :].strip()
                break
    found = re.match(r"\S+ ([\w\-]+)\(", rest)
    assert found is not None, line
    return found[1]


def in_body(sequence: str) -> list[str]:
    """Return the runtime's steps in a turn of the largest loop.

    A CUDA graph is one step.
    """
    bodies: list[tuple[int, list[str]]] = []
    inside = None
    for line in sequence.splitlines():
        depth = len(line) - len(line.lstrip())
        if inside is not None and depth <= inside:
            inside = None
        if line.strip() == "body:" and inside is None:
            inside = depth
            bodies.append((0, []))
        elif inside is not None:
            lines, steps = bodies[-1]
            step = re.match(r"\s+\d+: (\w+)", line)
            bodies[-1] = lines + 1, [*steps, step[1]] if step and depth == inside + 2 else steps
    return max(bodies)[1] if bodies else []


if __name__ == "__main__":
    for found in report(sys.argv[1]):
        print(json.dumps(found), flush=True)
