"""Strict numerics for every test: no implicit broadcasting between ranks, no implicit dtype promotion. Compiled programs are kept."""

import functools
import gc
import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small, and threads that wait for each other take the workers' time

import jax
import pytest

pytest.register_assert_rewrite("tests.support")  # before its modules are imported, so that their failures show values too

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Programs without the Python lines that each operation comes from, a twelfth of the time to lower and to compile; child processes, too.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
jax.config.update("jax_traceback_in_locations_limit", int(os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"]))

# JAX loads MLIR's dialects for every program that it lowers, 7 ms each time, half of what a small program takes that has been compiled
# before. Here all programs of a process are lowered in one context. Of JAX's inside, so only for the versions for which this was tried.
if jax.__version_info__[:2] == (0, 10):
    from jax._src.interpreters import mlir

    mlir.make_ir_context = functools.cache(mlir.make_ir_context)

# Compilation takes most of the time, of the same programs in every worker and child process: each is compiled once.
CACHE = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}

# XLA compiles for a CPU in a quarter of the time without the passes that emit fused loops and in one piece instead of 32, and large
# programs in two thirds of that by its preset for quick compilation. Read once, when JAX starts its backend; XLA ends a process that gives
# it a flag which it does not know, so only versions that know them get them.
USERS_FLAGS = os.environ.get("XLA_FLAGS", "")
QUICK_FLAGS = " ".join(
    [
        "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)
if jax.__version_info__[:2] == (0, 10) and QUICK_FLAGS not in USERS_FLAGS:
    os.environ["XLA_FLAGS"] = f"{USERS_FLAGS} {QUICK_FLAGS}".strip()

# Files whose programs are compiled with all of XLA's passes, and whose child processes compile as users' do. The others go without most
# passes, which change the order of sums and nothing else: what they check holds up to rounding.
OPTIMISED = {"experiments/test_command_line.py"}  # 1,000 rounds on 2,500 points

# The order of files by CPU time; all others follow. Those of one way of compiling stand together, for a change drops programs.
LONGEST_FIRST = (
    "experiments/test_command_line.py",
    "repository/test_documents.py",
    "session/test_same_as_simulation.py",
    "study/test_study.py",
    "conformance/test_baseline_methods.py",
    "engine/test_policies.py",
    "study/test_interruptions.py",
    "conformance/test_fused.py",
    "unit/algorithms/test_bpe.py",
    "engine/test_delayed_policies.py",
    "unit/gradients/test_smoothed_loss.py",
    "engine/test_ucb_policies.py",
    "unit/gradients/test_replay.py",
    "unit/surrogates/test_posteriors.py",
    "conformance/test_accelerators.py",
    "experiments/test_benchmark.py",
    "study/test_audit.py",
    "unit/algorithms/test_anytime.py",
    "conformance/test_strategies_and_settings.py",
    "study/test_comparison.py",
    "unit/report/test_report.py",
    "engine/test_delayed_feedback.py",
    "unit/problems/test_random_families.py",
    "unit/surrogates/test_evidence.py",
    "engine/test_safe_sets_and_expected_improvement.py",
    "conformance/test_algorithms.py",
    "unit/algorithms/test_admmbo_and_oco.py",
    "unit/surrogates/test_precision.py",
    "study/test_audit_of_baseline_methods.py",
    "session/test_session.py",
    "experiments/test_papers_and_shootout.py",
    "engine/test_users_models.py",
    "statistical/test_exploration_strategies.py",
    "unit/report/test_runs_at_hand.py",
    "unit/surrogates/test_ranged.py",
    "unit/gradients/test_descend.py",
    "unit/gradients/test_length_scales.py",
    "statistical/test_safety.py",
    "unit/kernels/test_kernels.py",
    "unit/delays/test_delay_models.py",
    "unit/problems/test_fixed_problems.py",
    "conformance/test_several_devices.py",
    "session/test_kills.py",
    "study/test_hostile_study_files.py",
    "engine/test_failed_trials.py",
    "unit/surrogates/test_covariances_and_partial_outputs.py",
    "unit/algorithms/test_penalties_clips_and_epochs.py",
    "unit/metrics/test_metrics.py",
    "experiments/test_delay_sweep.py",
    "study/test_second_runs.py",
)

MAPS = Path("/proc/self/maps")  # of Linux, which allows a process 65,530; every compiled program holds some
MANY = 30_000


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(50_000, 20, 50)  # tracing makes many objects and few cycles
    if not hasattr(config, "workerinput"):  # workers and child processes inherit what the first process sets
        directory = config.cache.mkdir("compiled") if getattr(config, "cache", None) else None
        if directory is not None:
            os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(directory)} | {name.upper(): str(value) for name, value in CACHE.items()}
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        for name, value in CACHE.items():
            jax.config.update(name, value)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, so that workers, which take a file at a time, end together."""
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.relative_to(Path(__file__).parent).as_posix(), len(place)))


@pytest.fixture(scope="module", autouse=True)
def _compilation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile as a file needs it, and drop programs when the mode changes or when they hold too many memory maps."""
    quick = request.path.relative_to(Path(__file__).parent).as_posix() not in OPTIMISED
    many = MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY
    if many or quick != jax.config.read("jax_disable_most_optimizations"):
        jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", quick)
    with pytest.MonkeyPatch.context() as patch:  # for child processes, whose results are compared with this one's
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(quick)))
        patch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", "") if quick else USERS_FLAGS)
        yield
    gc.freeze()  # programs and their traces stay: nobody need look through them again and again


@pytest.fixture
def optimised() -> Iterator[None]:
    """Compile what a test jits for itself with all of XLA's passes, in a file that goes without."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
