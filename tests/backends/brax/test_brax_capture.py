"""brax's own epoch, captured: it is brax's to the bit, nothing runs when it is taken abstractly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("brax")

from legroom.backends.brax.capture import capture, policy_params, unreplicated  # noqa: E402
from legroom.backends.brax.state import without_weak_types  # noqa: E402
from legroom.errors import BadInput  # noqa: E402
from legroom.model.run import Run  # noqa: E402


def make_run(**changes: Any) -> Run:
    data: dict[str, Any] = {
        "algo": "PPO",
        "backend": "brax",
        "env": {"id": "fast", "n_envs": 4},
        "hyperparams": {
            "batch_size": 2, "num_minibatches": 2, "unroll_length": 3, "num_updates_per_batch": 1,
            "episode_length": 6, "num_evals": 3,
        },
        "policy": {"kwargs": {"policy_hidden_layer_sizes": [4], "value_hidden_layer_sizes": [4]}},
        "eval": {"n_envs": 2},
        "total_timesteps": 48,
        "seed": 7,
    }  # fmt: skip
    return Run.model_validate({**data, **changes})


@pytest.fixture
def compiled_once(tmp_path: Path) -> Iterator[None]:
    """brax's own training compiles the same programs as ours: the second time they come from jax's cache."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], str(tmp_path))
    jax.config.update(names[1], 0)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.usefixtures("compiled_once")
def test_captured_epochs_end_where_brax_itself_ends() -> None:
    from brax import envs
    from brax.training.agents.ppo import networks, train

    run = make_run()
    captured = capture(run, real=True)
    assert (captured.training_steps, captured.env_steps_each) == (2, 12)  # 48 steps in two epochs, 2 × 2 × 3 each
    state, env_state, keys = captured.arguments
    local_key = captured.local_key
    for epoch in range(2):
        if epoch:
            epoch_key, local_key = jax.random.split(local_key)
            keys = jax.random.split(epoch_key, captured.devices)
        state, env_state, _ = without_weak_types(captured.epoch(state, env_state, keys))
    ours = unreplicated(policy_params(state))

    _, theirs, _ = train.train(
        environment=envs.get_environment("fast"), num_timesteps=48, num_envs=4, num_eval_envs=2, seed=7, num_evals=3,
        batch_size=2, num_minibatches=2, unroll_length=3, num_updates_per_batch=1, episode_length=6, run_evals=False,
        network_factory=lambda *a, **k: networks.make_ppo_networks(
            *a, **k, policy_hidden_layer_sizes=(4,), value_hidden_layer_sizes=(4,)
        ),
    )  # fmt: skip
    equal = jax.tree_util.tree_map(lambda a, b: bool((a == b).all()), ours, theirs)
    assert all(jax.tree_util.tree_leaves(equal))


def test_nothing_is_allocated_when_captured_abstractly() -> None:
    many = make_run(
        env={"id": "fast", "n_envs": 2**20}, hyperparams={**make_run().hyperparams, "batch_size": 2**19}
    )  # a million environments
    before = len(jax.live_arrays())
    captured = capture(many)
    leaves = jax.tree_util.tree_leaves((captured.arguments, captured.evaluation_arguments))
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert captured.arguments[1].obs.shape == (1, 2**20, 2)
    assert len(jax.live_arrays()) <= before + 8  # constants of brax's own, not a million of anything
    captured.epoch.lower(*captured.arguments)  # and it can be lowered as it is


def test_sac_is_captured_with_its_replay_buffer() -> None:
    run = make_run(
        algo="SAC", hyperparams={"episode_length": 6, "batch_size": 4, "min_replay_size": 8},
        policy={"kwargs": {"hidden_layer_sizes": [4]}}, total_timesteps=1000,
    )  # fmt: skip
    captured = capture(run)
    _, env_state, buffer, _ = captured.arguments
    assert env_state.obs.shape == (1, 4, 2)
    # two observations of 2, one action, reward, discount and truncation: 8 numbers; num_timesteps of them by default
    assert buffer.data.shape == (1, 1000, 8)
    assert captured.training_steps == (1000 - 8) // 4


def no_environment() -> dict:
    return {}


def test_what_brax_refuses_is_one_sentence() -> None:
    with pytest.raises(BadInput, match="not a multiple of 3"):
        capture(make_run(env={"id": "fast", "n_envs": 3}))
    with pytest.raises(BadInput, match="did you mean 'fast'"):
        capture(make_run(env={"id": "fsat", "n_envs": 4}))
    with pytest.raises(BadInput, match="TypeError"):
        capture(make_run(env={"id": "brax_toys:Point", "n_envs": 4, "kwargs": {"wrong": 1}}))
    with pytest.raises(BadInput, match="which is not called"):
        capture(make_run(env={"id": "builtins:dict", "n_envs": 4}))
    with pytest.raises(BadInput, match="of type dict, which is no brax environment"):
        capture(make_run(env={"id": f"{__name__}:no_environment", "n_envs": 4}))
