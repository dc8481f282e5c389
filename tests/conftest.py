"""Strict numerics for every test: no implicit broadcasting between ranks, no implicit dtype promotion. Compiled programs are kept."""

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

pytest.register_assert_rewrite("tests.support")  # before its modules are imported, so that their failures show values too

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# What takes the time is compilation, of the same programs in every worker, file and child process: each is done once.
CACHE = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # workers and child processes inherit what the first process sets
        directory = config.cache.mkdir("compiled") if getattr(config, "cache", None) else None
        if directory is not None:
            os.environ |= {"JAX_COMPILATION_CACHE_DIR": str(directory)} | {name.upper(): str(value) for name, value in CACHE.items()}
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        for name, value in CACHE.items():
            jax.config.update(name, value)


# Files whose programs are compiled as users' are. Compilation is most of the time of the others, and what they check holds up to
# rounding: they go without most of XLA's passes, which change the order of sums and nothing else.
OPTIMISED = {
    "experiments/test_command_line.py",
    "repository/test_documents.py",
    "statistical/test_exploration_strategies.py",
    "statistical/test_safety.py",
    "unit/surrogates/test_posteriors.py",
}


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_file_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drop compiled programs after each file: every one holds memory maps, of which Linux allows a process 65,530."""
    quick = request.path.relative_to(Path(__file__).parent).as_posix() not in OPTIMISED
    jax.config.update("jax_disable_most_optimizations", quick)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quick))  # for child processes, whose results are compared with this one's
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    os.environ.pop("JAX_DISABLE_MOST_OPTIMIZATIONS")
    jax.clear_caches()
