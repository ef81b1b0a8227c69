"""Predicted against real: the band of a probed prediction contains what the buffer then occupies.

Real SB3 models collect a real rollout, or fill a real ring and go on for a third of it, in environments that are not
the probe's: other seeds, other actions.
"""

import probe_envs
import pytest
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from torch import nn

import legroom
from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.buffers import replay_items, rollout_items
from legroom.backends.sb3.stored import env_task
from legroom.environments.env_look import look_at_env
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known
from legroom.model.machine import Machine
from legroom.model.run import EnvSpec, MemorySpec, Run

MACHINE = Machine(ram=1, limit=None, available=1, swap=0, shm=0)
BASE = BaseFigures(0, 0, 0, {}, Known.DEFAULT)


class Glance(BaseFeaturesExtractor):
    """The smallest network there is: these tests are not about learning."""

    def __init__(self, space):
        super().__init__(space, 2)
        self.layer = nn.Linear(1, 2)

    def forward(self, observations):
        part = observations["vector"] if isinstance(observations, dict) else observations
        return self.layer(part.flatten(1)[:, :1].float())


def predicted(algo, name, hyperparams, max_bytes=None, **env):
    """Return the items of the run's buffer, as the probe predicts them."""
    memory = MemorySpec(rollout="lean", replay="lean", max_bytes=max_bytes)
    run = Run(algo=algo, env=EnvSpec(id=f"probe_envs:{name}", **env), hyperparams=hyperparams, memory=memory)
    look = look_at_env(run, env_task(run), trust=True)
    assert not look.not_probed
    run = run.replace(env=run.env.model_copy(update={"spaces": look.spaces}))
    evidence = Evidence(MACHINE, "cpu", BASE, lean=look.probe)
    items = [*rollout_items(run, evidence), *replay_items(run, evidence)]
    return [item for item in items if item.name not in ("rollout.flatten copy", "replay.at start")]


def make_envs(name, n_envs=1, kwargs=None, frame_stack=None, normalize=False):
    vec_env = DummyVecEnv([lambda: getattr(probe_envs, name)(**(kwargs or {}))] * n_envs)
    if normalize:
        vec_env = VecNormalize(vec_env, norm_reward=False)
    return VecFrameStack(vec_env, frame_stack) if frame_stack else vec_env


def check(items, nbytes):
    middle, error = sum(item.nbytes for item in items), sum(item.error for item in items)
    assert middle - error <= nbytes <= middle + error, f"{middle:,} ± {error:,}, but really {nbytes:,}"
    assert any(item.known is Known.MEASURED for item in items)


def without_queue(buffer):
    """Return its bytes but for the queue that a store has while encoding in a thread pays: not on a busy machine."""
    columns = buffer.observations.values() if isinstance(buffer.observations, dict) else [buffer.observations]
    return buffer.nbytes - sum(shelf.store.nbytes()["queue"] for column in columns for shelf in column.shelves)


@pytest.mark.parametrize(
    ("name", "env"),
    [
        ("NewPictures", {"kwargs": {"length": 2000}}),
        ("Noise", {"n_envs": 2}),
        ("Sprite", {"n_envs": 3, "frame_stack": 4}),
        ("Sprite", {"normalize": True}),
        ("Mixed", {"n_envs": 2}),
    ],
)
def test_a_rollout(name, env):
    steps = 300
    items = predicted("PPO", name, {"n_steps": steps}, **env)
    policy = "MultiInputPolicy" if name == "Mixed" else "MlpPolicy"
    model = PPO(
        policy, make_envs(name, **env), n_steps=steps, batch_size=steps, n_epochs=1, device="cpu", seed=5,
        policy_kwargs={"features_extractor_class": Glance}, rollout_buffer_class=legroom.LeanRolloutBuffer,
    )  # fmt: skip
    _, callback = model._setup_learn(1_000_000)
    for _ in range(2):  # the second one begins in the midst of episodes
        model.collect_rollouts(model.env, callback, model.rollout_buffer, steps)
        check(items, without_queue(model.rollout_buffer))


@pytest.mark.parametrize("share", [0.5, 1.02])
def test_a_limit_with_room_for_it_decodes_the_rollout_once(share):
    """A limit above the rollout was billed 0.9 MiB, and 136 were taken: the copy that later epochs read."""
    steps, n_envs = 200, 2
    plain = steps * n_envs * probe_envs.PICTURE_NBYTES
    limit = int(share * plain)
    items = predicted("PPO", "Pictures", {"n_steps": steps}, limit, n_envs=n_envs)
    (copies,) = [[item for item in items if item.name == "rollout.decoded copy"]]
    model = PPO(
        "MlpPolicy", make_envs("Pictures", n_envs), n_steps=steps, batch_size=steps, n_epochs=1, device="cpu", seed=5,
        policy_kwargs={"features_extractor_class": Glance}, rollout_buffer_class=legroom.LeanRolloutBuffer,
        rollout_buffer_kwargs={"max_bytes": limit},
    )  # fmt: skip
    _, callback = model._setup_learn(1_000_000)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, steps)
    next(iter(model.rollout_buffer.get(steps)))
    decoded = model.rollout_buffer.breakdown().get("decoded", 0)
    assert decoded == (plain if share > 1 else 0)
    low, high = (sum(item.nbytes + sign * item.error for item in copies) for sign in (-1, 1))
    assert low <= decoded <= high
    assert (high == 0) is (share < 1)


@pytest.mark.parametrize(
    ("algo", "name", "env"),
    [
        ("DQN", "NewPictures", {"n_envs": 2}),
        ("DQN", "Sprite", {"n_envs": 2, "frame_stack": 4}),
        ("SAC", "Mixed", {"n_envs": 2}),
    ],
)
def test_a_full_ring(algo, name, env):
    size = 2000
    items = predicted(algo, name, {"buffer_size": size}, **env)
    policy = "MultiInputPolicy" if name == "Mixed" else "MlpPolicy"
    model = {"DQN": DQN, "SAC": SAC}[algo](
        policy, make_envs(name, **env), buffer_size=size, learning_starts=10**9, device="cpu", seed=5,
        policy_kwargs={"features_extractor_class": Glance}, replay_buffer_class=legroom.LeanReplayBuffer,
    )  # fmt: skip
    model.learn(size)
    check(items, model.replay_buffer.nbytes)
    model.learn(size // 3, reset_num_timesteps=False)  # older segments are dropped now, whole ones
    check(items, model.replay_buffer.nbytes)
