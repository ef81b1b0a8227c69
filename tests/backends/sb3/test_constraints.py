"""The libraries' own rules: broken ones are named with the way out, valid runs are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legroom.backends.brax.constraints import nearest_minibatches
from legroom.model.run import Run
from legroom.predicting.constraints import broken_rules

BOX8 = {"type": "box", "shape": [8], "dtype": "float32"}
IMAGE = {"type": "box", "shape": [84, 84, 1], "dtype": "uint8"}
FOUR = {"type": "discrete", "n": 4}
TORQUES = {"type": "box", "shape": [2], "dtype": "float32"}


def sb3(algo="PPO", observation=BOX8, action=FOUR, n_envs=1, policy="MlpPolicy", **hyperparams):
    spaces = {"observation": observation, "action": action}
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": spaces, "n_envs": n_envs},
            "policy": {"name": policy},
            "hyperparams": hyperparams,
        }
    )


def brax(n_envs, batch_size, num_minibatches):
    return Run.model_validate(
        {
            "backend": "brax", "algo": "PPO",
            "env": {"n_envs": n_envs, "spaces": {"observation": BOX8, "action": TORQUES}},
            "hyperparams": {"batch_size": batch_size, "num_minibatches": num_minibatches},
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("envs", "batch", "minibatches", "fixed"), [(512, 128, 2, 4), (1536, 384, 6, 8), (1024, 128, 4, 8)]
)
def test_brax_settings_that_its_assertion_refuses_come_with_the_nearest_valid_ones(envs, batch, minibatches, fixed):
    (finding,) = broken_rules(brax(envs, batch, minibatches))
    assert finding.name == "brax-divisibility"
    assert finding.fix == {"hyperparams.num_minibatches": fixed}
    assert batch * fixed % envs == 0


@pytest.mark.parametrize(("envs", "batch", "minibatches"), [(1024, 256, 4), (2048, 512, 8), (256, 128, 4), (1, 7, 3)])
def test_brax_settings_that_are_valid_are_left_alone(envs, batch, minibatches):
    assert broken_rules(brax(envs, batch, minibatches)) == []


@given(st.integers(1, 4096), st.integers(1, 64), st.integers(1, 8192))
def test_the_proposed_minibatches_always_satisfy_brax(batch, minibatches, envs):
    assert batch * nearest_minibatches(batch, minibatches, envs) % envs == 0


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (sb3(n_steps=2048, batch_size=64), []),
        (sb3(n_envs=2, n_steps=8192, batch_size=2048), []),  # 2048 < 16,384: it only looks too large
        (sb3(n_envs=2, n_steps=8, batch_size=64), ["minibatch-exceeds-rollout"]),
        (sb3(n_steps=100, batch_size=64), ["minibatch-does-not-divide"]),
        (sb3(n_steps=1), ["rollout-too-small"]),
        (sb3("A2C"), []),
        (sb3("DQN", action=TORQUES), ["unsupported-actions"]),
        (sb3("SAC"), ["unsupported-actions"]),
        (sb3("SAC", action=TORQUES), []),
        (sb3(policy="CnnPolicy"), ["policy-does-not-match"]),
        (sb3(policy="CnnPolicy", observation=IMAGE), []),
        (sb3(observation={"type": "dict", "spaces": {"a": BOX8}}), ["policy-does-not-match"]),
        (sb3(observation={"type": "box", "shape": []}), ["policy-does-not-match"]),
        (sb3("DQN", optimize_memory_usage=True), ["optimize-memory-refused"]),
        (sb3("DQN", optimize_memory_usage=True, replay_buffer_kwargs={"handle_timeout_termination": False}), []),
        (sb3(buffer_size=1000), ["no-effect"]),
        (sb3("DQN", n_epochs=10), ["no-effect"]),
    ],
)
def test_what_sb3_would_refuse_or_ignore(run, names):
    assert [finding.name for finding in broken_rules(run)] == names


def test_an_environment_that_shows_a_number_without_a_dimension_is_refused_in_one_line():
    import gymnasium as gym
    from stable_baselines3.common.vec_env import DummyVecEnv

    from legroom.backends.sb3.making import make_model
    from legroom.errors import BadInput

    class Scalar(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, ()), gym.spaces.Discrete(2)

    run = sb3()
    with pytest.raises(BadInput, match=r"shape \(\).*give the Box the shape \(1,\)"):
        make_model(run, DummyVecEnv([Scalar]), "cpu")
