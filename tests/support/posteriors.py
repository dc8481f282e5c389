"""Posteriors by compiled programs, because single operations are programs, too."""

import jax

start = jax.jit(lambda model: model.init())
condition = jax.jit(lambda model, posterior, *seen: model.condition(posterior, *seen))
predict = jax.jit(lambda model, posterior: model.belief(posterior).prediction)
