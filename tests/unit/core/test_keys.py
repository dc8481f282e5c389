"""Streams of random keys."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import keys

# -- keys and flags ------------------------------------------------------------------------------------------------------------------


def data(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_keys_of_trials_streams_and_rounds_are_all_different_and_repeatable():
    root = jax.random.key(0)

    def all_keys():
        for trial in range(5):
            for stream in keys.Stream:
                for t in range(5):
                    yield data(keys.round_key(keys.stream_key(keys.trial_key(root, trial), stream), t))

    once = list(all_keys())
    assert len(set(once)) == len(once) == 25 * len(keys.Stream)
    assert once == list(all_keys())


def test_keys_do_not_depend_on_whether_the_number_is_traced():
    root = jax.random.key(1)
    batched = jax.vmap(lambda i: keys.trial_key(root, i))(jnp.arange(3))
    assert [data(k) for k in batched] == [data(keys.trial_key(root, i)) for i in range(3)]


def test_stream_numbers_are_part_of_the_results():
    """Renumbering a stream changes every stored study: these five are fixed, new ones are appended."""
    assert [(s.name, s.value) for s in keys.Stream][:5] == [("POLICY", 0), ("NOISE", 1), ("DELAY", 2), ("PROBLEM", 3), ("DESIGN", 4)]
