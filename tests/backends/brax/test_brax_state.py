"""What a brax training carries, through a checkpoint and back: every bit, and nothing that does not fit."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax.training.types import UInt64
from flax import struct

from legroom.backends.brax.state import Carry, capture, parameters_sha256, restore, without_weak_types
from legroom.errors import BadInput
from legroom.training.checkpoint import Checkpoints


@struct.dataclass
class State:
    """With the fields of brax's own."""

    optimizer_state: Any
    params: Any
    normalizer_params: Any
    env_steps: Any


def carry(width=3, envs=4, steps=(1 << 32) + 7):
    kernel = jnp.arange(2 * width, dtype=jnp.float32).reshape(1, 2, width)
    params = {"value": {"b": jnp.ones((1, 2))}, "policy": {"kernel": kernel, "half": kernel.astype(jnp.bfloat16)}}
    state = State(
        optimizer_state=(jnp.zeros((1,), jnp.int32), {"mu": kernel / 3}),
        params=params,
        normalizer_params={"mean": jnp.full((1, 2), -0.0), "count": jnp.full((1,), jnp.nan)},
        env_steps=UInt64(hi=jnp.array([steps >> 32]), lo=jnp.array([steps & 0xFFFFFFFF], jnp.uint32)),
    )
    env_state = {"at": jnp.linspace(0, 1, envs)[None], "rng": jax.random.split(jax.random.key(3), envs)[None]}
    keys = {"step": jax.random.PRNGKey(5)[None], "resets": jax.random.split(jax.random.PRNGKey(6), envs)[None]}
    return Carry(state, env_state, keys)


def shapes(of):
    parts = (of.training_state, of.env_state)
    return Carry(*jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), parts), of.keys)


def saved(folder, one):
    arrays, data = capture(one, "cpu")
    checkpoints = Checkpoints(folder)
    checkpoints.write(one.step, arrays, data)
    return checkpoints.newest  # the normaliser holds NaN, which a resume would pass over


def bits(tree):
    leaves = jax.tree.leaves(tree)
    keys = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    return [
        np.asarray(jax.random.key_data(leaf) if key else leaf).tobytes() for leaf, key in zip(leaves, keys, strict=True)
    ]


def test_every_leaf_comes_back_to_the_bit(tmp_path):
    one = carry()
    found = restore(saved(tmp_path, one), shapes(one), "cpu")
    assert found.why_not_exact == ""
    for before, after in ((one.training_state, found.training_state), (one.env_state, found.env_state)):
        assert jax.tree.structure(before) == jax.tree.structure(after)
        assert bits(before) == bits(after)
    assert bits(found.keys) == bits(one.keys)
    assert Carry(found.training_state, found.env_state, found.keys).step == (1 << 32) + 7


def test_the_policy_is_a_file_that_others_read(tmp_path):
    checkpoint = saved(tmp_path, carry())
    policy = checkpoint.tensors("policy")
    assert sorted(policy) == [
        "normalizer/count", "normalizer/mean", "params/policy/half", "params/policy/kernel", "params/value/b",
    ]  # fmt: skip
    assert policy["params/policy/kernel"].tolist() == [[0, 1, 2], [3, 4, 5]]  # one copy, without the device axis


def test_the_hash_is_over_the_parameters_in_tree_order():
    import hashlib

    one = carry()
    policy = one.training_state.params["policy"]
    blobs = [np.asarray(policy["half"]).tobytes(), np.asarray(policy["kernel"]).tobytes(), np.ones(2, "<f4").tobytes()]
    assert parameters_sha256(one.training_state) == hashlib.sha256(b"".join(blobs)).hexdigest()


def test_another_network_is_refused_by_name(tmp_path):
    checkpoint = saved(tmp_path, carry(width=3))
    with pytest.raises(BadInput, match=r"params/policy/half is bfloat16\[2, 3\] there.*\[2, 5\] here"):
        restore(checkpoint, shapes(carry(width=5)), "cpu")


def test_other_environments_begin_anew_and_say_so(tmp_path):
    found = restore(saved(tmp_path, carry(envs=4)), shapes(carry(envs=2)), "cpu")
    assert found.env_state is None
    assert "environments start over" in found.why_not_exact
    assert bits(found.training_state) == bits(carry().training_state)
    assert bits(found.keys) == bits(carry(envs=2).keys)


def test_another_device_is_not_exact(tmp_path):
    one = carry()
    assert restore(saved(tmp_path, one), shapes(one), "gpu H100").why_not_exact == "it ran on cpu, now on gpu H100"


def test_weak_types_go_and_values_stay():
    tree = without_weak_types({"a": jnp.asarray(1.5), "k": jax.random.key(1)})
    assert not tree["a"].weak_type
    assert float(tree["a"]) == 1.5
