"""Strict numerics for every test: no implicit broadcasting between ranks, no implicit dtype promotion."""

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")
