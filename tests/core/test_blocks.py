"""Functions that some platforms compute in another way."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.blocks import by_platform

scaled = by_platform(lambda x: jnp.sin(x) * 2.0, cuda=lambda x: jnp.cos(x) * 2.0)


def test_each_platform_has_its_own() -> None:
    x = np.float32([0.5, 1.0])
    np.testing.assert_allclose(scaled(x), 2 * (np.cos(x) if jax.default_backend() == "gpu" else np.sin(x)), rtol=1e-6)
    program = jax.jit(jax.vmap(scaled)).trace(x)
    texts = {platform: program.lower(lowering_platforms=(platform,)).as_text() for platform in ("cpu", "cuda")}
    assert "sine" in texts["cpu"] and "cosine" not in texts["cpu"]
    assert "cosine" in texts["cuda"] and "stablehlo.sine" not in texts["cuda"]


def test_the_derivative_is_that_of_the_default() -> None:
    found = jax.jacrev(scaled)(np.float32([0.5, 1.0]))
    np.testing.assert_allclose(found, np.diag(2 * np.cos([0.5, 1.0])), rtol=1e-6)
    text = jax.jit(jax.grad(lambda x: jnp.sum(scaled(x)))).trace(np.ones(2, np.float32)).lower(lowering_platforms=("cuda",)).as_text()
    assert "stablehlo.cosine" in text and "stablehlo.sine" not in text and "stablehlo.case" not in text
