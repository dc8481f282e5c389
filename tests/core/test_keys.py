"""Streams of random keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import InvalidArgument, delays, domains, problems
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


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_counts_are_drawn_under_every_generator(generator):
    """Poisson numbers of JAX know one generator; a key of another is turned into one of it, each into one of its own."""
    root = jax.random.key(3, impl=generator)
    same = keys.round_key(root, 1) if generator == "threefry2x32" else jax.random.fold_in(jax.random.key(3), 1)
    made = [keys.threefry(keys.round_key(root, t)) for t in (1, 2)]
    assert data(made[0]) != data(made[1]) and (generator == "unsafe_rbg" or data(made[0]) == data(same))
    for model in (delays.Poisson(mean=4.0), problems.CentredPoisson(rate=4.0)):
        drawn = [
            model.draw(jax.random.fold_in(root, t), 3, *([np.float32] if isinstance(model, problems.Noise) else [])) for t in range(30)
        ]
        assert len(np.unique(drawn)) > 5 and np.std(drawn) < 4


def test_a_seed_is_a_key_wherever_users_give_one():
    family = problems.gp_draws(domain=domains.grid([0.0], [1.0], 3))
    for seed in (5, np.int64(5)):
        assert data(keys.typed(seed)) == data(jax.random.key(5))
        np.testing.assert_array_equal(family.sample(seed).means, family.sample(key=jax.random.key(5)).means)
    for wrong in (-1, 2**32, True, 5.0):
        with pytest.raises(InvalidArgument, match=r"^key: must be"):
            family.sample(wrong)


def test_keys_do_not_depend_on_whether_the_number_is_traced():
    root = jax.random.key(1)
    batched = jax.vmap(lambda i: keys.trial_key(root, i))(jnp.arange(3))
    assert [data(k) for k in batched] == [data(keys.trial_key(root, i)) for i in range(3)]


def test_stream_numbers_are_part_of_the_results():
    """Renumbering a stream changes every stored study: these five are fixed, new ones are appended."""
    assert [(s.name, s.value) for s in keys.Stream][:5] == [("POLICY", 0), ("NOISE", 1), ("DELAY", 2), ("PROBLEM", 3), ("DESIGN", 4)]
