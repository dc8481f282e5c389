"""Posteriors by compiled programs; called by itself, each operation would compile one of its own."""

import jax

start = jax.jit(lambda model: model.init())
condition = jax.jit(lambda model, posterior, *seen: model.condition(posterior, *seen))
predict = jax.jit(lambda model, posterior: model.belief(posterior).prediction)
