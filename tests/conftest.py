"""Strict numerics for every test: no implicit broadcasting between ranks, no implicit dtype promotion."""

from collections.abc import Iterator

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(scope="module", autouse=True)
def _programs_of_one_file_at_a_time() -> Iterator[None]:
    """Drop compiled programs after each file: every one holds memory maps, of which Linux allows a process 65,530."""
    yield
    jax.clear_caches()
