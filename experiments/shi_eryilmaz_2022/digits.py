"""A small network on handwritten digits.

Its accuracy and cost of training depend on three hyper-parameters and on chance.

The data are those that scikit-learn ships (1,797 images of 8 x 8 pixels). A network with one hidden layer is trained by AdamW until its
accuracy on a validation set has not risen for some epochs. Cost is counted work, the examples seen times the number of parameters, so
that a run repeats on every machine.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxbandit import InvalidArgument

PIXELS, CLASSES, LARGEST_WIDTH = 64, 10, 128
# Number of examples. The others are for the test.
TRAINING, VALIDATION, BATCH = 640, 400, 64
MOST_EPOCHS, PATIENCE = 40, 3
# A unit of work is this number of examples times parameters.
UNIT = 1e7


class Trained(NamedTuple):
    """A network after its training."""

    # The accuracy is on the validation set.
    accuracy: float
    test_accuracy: float
    # Work is in units of UNIT.
    work: float
    epochs: int


class Data(NamedTuple):
    """Images scaled to ``[0, 1]`` and their digits, in three parts."""

    training: tuple[Any, Any]
    validation: tuple[Any, Any]
    test: tuple[Any, Any]


@functools.cache
def load() -> Data:
    """Return the digits, in an order that is always the same."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InvalidArgument(f'scikit-learn: it ships the data and is missing ({error}); pip install "jaxbandit[tuning]"') from error
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, digits = (images / 16)[order].astype(np.float32), digits[order].astype(np.int32)
    cuts = (TRAINING, TRAINING + VALIDATION)
    parts = [(jnp.asarray(x), jnp.asarray(y)) for x, y in zip(np.split(images, cuts), np.split(digits, cuts), strict=True)]
    return Data(*parts)


def train(learning_rate: float, weight_decay: float, width: int, seed: int) -> Trained:
    """Return the trained network of ``width`` hidden units."""
    numbers = (jnp.float32(learning_rate), jnp.float32(weight_decay), jnp.int32(width))
    accuracy, test_accuracy, epochs = (np.asarray(part).item() for part in _train(load(), *numbers, jax.random.key(seed)))
    parameters = (PIXELS + 1) * width + (width + 1) * CLASSES
    return Trained(accuracy, test_accuracy, epochs * TRAINING * parameters / UNIT, epochs)


@jax.jit
def _train(data: Data, learning_rate: Any, weight_decay: Any, width: Any, key: Any) -> tuple[Any, Any, Any]:
    """Return accuracies and the number of epochs."""
    first, second, order = jax.random.split(key, 3)
    used = (jnp.arange(LARGEST_WIDTH) < width).astype(jnp.float32)
    weights = {
        "hidden": jax.random.normal(first, (PIXELS, LARGEST_WIDTH)) * (2 / PIXELS) ** 0.5,
        "hidden_bias": jnp.zeros((LARGEST_WIDTH,)),
        "output": jax.random.normal(second, (LARGEST_WIDTH, CLASSES)) * jnp.sqrt(1 / width.astype(jnp.float32)),
        "output_bias": jnp.zeros((CLASSES,)),
    }
    optimiser = optax.adamw(learning_rate, weight_decay=weight_decay)

    def scores(weights: Any, images: Any) -> Any:
        hidden = jax.nn.relu(images @ weights["hidden"] + weights["hidden_bias"][None]) * used[None]
        return hidden @ weights["output"] + weights["output_bias"][None]

    def loss(weights: Any, images: Any, digits: Any) -> Any:
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores(weights, images), digits))

    def accuracy(weights: Any, part: tuple[Any, Any]) -> Any:
        return jnp.mean((jnp.argmax(scores(weights, part[0]), axis=1) == part[1]).astype(jnp.float32))

    def step(carry: Any, batch: Any) -> tuple[Any, None]:
        weights, state = carry
        updates, state = optimiser.update(jax.grad(loss)(weights, *batch), state, weights)
        return (optax.apply_updates(weights, updates), state), None

    def epoch(carry: Any) -> Any:
        weights, state, best, test, since, number = carry
        shuffled = jax.random.permutation(jax.random.fold_in(order, number), TRAINING).reshape(-1, BATCH)
        (weights, state), _ = jax.lax.scan(step, (weights, state), (data.training[0][shuffled], data.training[1][shuffled]))
        now = accuracy(weights, data.validation)
        better = now > best
        test = jnp.where(better, accuracy(weights, data.test), test)
        return weights, state, jnp.maximum(now, best), test, jnp.where(better, 0, since + 1), number + 1

    def goes_on(carry: Any) -> Any:
        return (carry[4] < PATIENCE) & (carry[5] < MOST_EPOCHS)

    start = (weights, optimiser.init(weights), jnp.float32(-1), jnp.float32(0), jnp.int32(0), jnp.int32(0))
    _, _, best, test, _, epochs = jax.lax.while_loop(goes_on, epoch, start)
    return best, test, epochs
