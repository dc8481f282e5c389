"""Whole runs compiled for an H100 and a TPU v5e.

No device is needed. 100 trials run side by side on 2,500 points.
"""

import functools
from typing import Any

import jax
import pytest

from tests.support.compiled import CHOSEN, FUSED, PROGRAMS, Program, compiled_in_a_process, in_body, is_installed, loops_of

INSTALL = "the compilers of {} are not here; pip install 'jaxbandit[accelerator-tests]' has them, with the JAX whose version they have"
on_gpu = pytest.mark.skipif(not is_installed("gpu"), reason=INSTALL.format("GPUs"))
on_tpu = pytest.mark.skipif(not is_installed("tpu"), reason=INSTALL.format("TPUs"))

# Kernels of a round on an H100, each a launch of about 2 microseconds, as jaxlib 0.10.2 has them. Scores that tie take two of them: they
# are written down, and their largest and least are found, before the first one near the largest is.
LAUNCHES = {
    Program("rpol"): 13,
    Program("cbo"): 14,
    Program("config"): 14,
    Program("epbo"): 13,
    Program("se3"): 17,
    Program("primal-dual"): 13,
    Program("cei"): 16,
    Program("constrained-thompson"): 19,
    # It examines its first block of candidates outright, and then a known number of blocks.
    Program("safeopt"): 53,
    Program("rpol", "features"): 14,
    # Rows in eight blocks had 46 and eight branches, and the host had to decide.
    Program("rpol", "rows"): 25,
    # Each step of the two outputs' loops of known lengths, which the host picks once a round, has 9 more.
    Program("rpol", "product", "wait"): 37,
    # The host picks the length of one loop over the covariances of pending points.
    Program("rpol", "product", "hallucinate"): 38,
    Program("rpol", "product", "censor"): 25,
}


@functools.cache
def process(kind: str) -> tuple[dict[Program, dict[str, Any]], list[tuple[str, str]]]:
    return compiled_in_a_process(kind)


def compiled(kind: str) -> dict[Program, dict[str, Any]]:
    return process(kind)[0]


@on_gpu
@pytest.mark.parametrize("program", PROGRAMS["gpu"], ids=str)
def test_a_gpus_compiler_takes_every_program(program: Program) -> None:
    assert "error" not in compiled("gpu")[program], compiled("gpu")[program]["error"]


@on_gpu
@pytest.mark.parametrize("program", LAUNCHES, ids=str)
def test_launches_of_a_round_on_a_gpu(program: Program) -> None:
    [launches] = compiled("gpu")[program]["launches"]
    assert launches <= LAUNCHES[program]


@on_gpu
def test_kernels_of_all_rounds_keep_to_the_registers_of_a_gpu() -> None:
    spilled = process("gpu")[1]
    assert len(spilled) >= len(FUSED) and set(spilled) == {("0", "0")}


@on_gpu
def test_a_round_with_rows_asks_the_host_nothing() -> None:
    assert not {"kConditional", "kWhile"} & set(compiled("gpu")[Program("rpol", "rows")]["in_body"])


@on_gpu
@pytest.mark.skipif(jax.__version_info__ < (0, 11), reason="JAX puts a whole loop body into one CUDA graph since 0.11")
@pytest.mark.parametrize("name", CHOSEN)
def test_a_round_on_a_gpu_is_one_graph(name: str) -> None:
    assert compiled("gpu")[Program(name)]["in_body"] == ["kCommandBuffer"]


@on_tpu
@pytest.mark.parametrize("program", PROGRAMS["tpu"], ids=str)
def test_a_tpus_compiler_takes_every_program(program: Program) -> None:
    assert "error" not in compiled("tpu")[program], compiled("tpu")[program]["error"]


@on_tpu
@pytest.mark.parametrize("program", [*map(Program, CHOSEN), *FUSED], ids=str)
def test_memory_of_a_run_on_a_tpu(program: Program) -> None:
    """A gather would read two rows into 128 lanes, in 130 MB."""
    assert compiled("tpu")[program]["temporary_bytes"] < 64e6


HLO = """
%body (x: (s32[], f32[2])) -> (s32[], f32[2]) {
  %x = (s32[], f32[2]{0}) parameter(0)
  %fusion = (s32[], /*index=1*/f32[2]{0}) fusion(%x), kind=kLoop, calls=%f
  %copy = f32[2]{0} copy(%x)
}

ENTRY %main (y: (s32[], f32[2])) -> (s32[], f32[2]) {
  %while.1 = (s32[], f32[2]{0}) while(%y), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"50"}}
  ROOT %while.2 = (s32[], f32[2]{0}) while(%while.1), condition=%c, body=%body
}
"""
STEPS = """000: kWhile [source | sink]
condition:
    001: kCustomKernel [source | sink] compare
  body:
    000: kCommandBuffer [source | sink]
        002: kCustomKernel [source | sink] add
    001: kGemm [source | sink]
003: kCopy [source | sink]
"""


def test_launches_are_counted() -> None:
    assert loops_of(HLO) == [(50, 2), (None, 2)]
    assert in_body(STEPS) == ["kCommandBuffer", "kGemm"]
