"""Training with lean buffers gives the parameters, to the bit, that it gives with SB3's own buffers.

One row of the table is one training, done twice with the same seeds: once as SB3 does it, once with our class in SB3's
official hook. A SHA-256 over all parameters decides, and so does the state of every random generator: a buffer that
drew one number too many would only show in the next training.
"""

import copy
import hashlib
from dataclasses import dataclass, field
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from toy_envs import GRID, IMAGE, MIXED, VECTOR, Wander

import legroom

pytestmark = [
    pytest.mark.filterwarnings("ignore:You have specified a mini-batch size"),  # meant: see PPO_KW
    pytest.mark.filterwarnings("ignore:`n_steps=3` is ignored"),  # SB3 says so of any class; ours is told by its kwargs
]


@pytest.fixture(autouse=True)
def one_thread():
    """Sums of several threads may differ in their last bit from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# The environments


def vec(make, n_envs=1):
    return DummyVecEnv([make] * n_envs)


def cartpole(n_envs=1, max_episode_steps=500):
    return vec(partial(gymnasium.make, "CartPole-v1", max_episode_steps=max_episode_steps), n_envs)


def pendulum(n_envs=1):
    return vec(partial(gymnasium.make, "Pendulum-v1", max_episode_steps=20), n_envs)


def wander(observation, action=None, n_envs=1, **kwargs):
    return vec(partial(Wander, observation, action, **kwargs), n_envs)


def stacked(observation, order, n_envs=1, **kwargs):
    return VecFrameStack(wander(observation, n_envs=n_envs, **kwargs), 4, channels_order=order)


def normalized(vec_env, **kwargs):
    return VecNormalize(vec_env, **kwargs)


# The trainings


SEED = 5
TINY = {
    "MlpPolicy": dict(net_arch=[16]),
    "CnnPolicy": dict(net_arch=[16], features_extractor_kwargs=dict(features_dim=16)),
    "MultiInputPolicy": dict(net_arch=[16], features_extractor_kwargs=dict(cnn_output_dim=16)),
}
PPO_KW = dict(n_steps=32, batch_size=24, n_epochs=2)  # 24 does not divide 32 or 96: the last minibatch is short
DQN_KW = dict(buffer_size=60, learning_starts=20, batch_size=16, train_freq=2, target_update_interval=30)
SAC_KW = dict(buffer_size=60, learning_starts=20, batch_size=16)


@dataclass(frozen=True)
class Training:
    """One training: `lean` names our class, `hook` the keyword arguments that only our side is given."""

    name: str
    algorithm: type
    lean: str
    env: object
    steps: int
    policy: str = "MlpPolicy"
    kwargs: dict = field(default_factory=dict)
    hook: dict = field(default_factory=dict)
    learn: dict = field(default_factory=dict)


def ppo(name, env, policy="MlpPolicy", steps=128, lean="LeanRolloutBuffer", **kwargs):
    return Training(f"PPO {name}", PPO, lean, env, steps, policy, PPO_KW | kwargs)


def maskable(name, env, policy="MlpPolicy", steps=128, lean="LeanMaskableRolloutBuffer", learn=None, **kwargs):
    return Training(f"MaskablePPO {name}", MaskablePPO, lean, env, steps, policy, PPO_KW | kwargs, learn=learn or {})


def a2c(name, env, policy="MlpPolicy", steps=120, lean="LeanRolloutBuffer", **kwargs):
    return Training(f"A2C {name}", A2C, lean, env, steps, policy, dict(n_steps=5) | kwargs)


def dqn(name, env, policy="MlpPolicy", steps=150, lean="LeanReplayBuffer", hook=None, **kwargs):
    return Training(f"DQN {name}", DQN, lean, env, steps, policy, DQN_KW | kwargs, hook or {})


def continuous(name, algorithm, env, policy="MlpPolicy", steps=80, lean="LeanReplayBuffer", **kwargs):
    return Training(name, algorithm, lean, env, steps, policy, SAC_KW | kwargs)


SMALL_DICT = spaces.Dict(a=VECTOR, b=spaces.Discrete(3))
SWING = spaces.Box(-1, 1, (2,))
NOISE = NormalActionNoise(np.zeros(1), np.full(1, 0.1))

TRAININGS = [
    ppo("CartPole", cartpole),
    ppo("CartPole, 3 envs, update cut short by target_kl", partial(cartpole, 3), target_kl=1e-6, steps=384),
    ppo("Pendulum with time limit, 3 envs, VecNormalize", lambda: normalized(pendulum(3)), steps=288),
    ppo("image stack, transposed", partial(stacked, IMAGE, "last"), "CnnPolicy", n_epochs=1),
    ppo("Dict", partial(wander, MIXED, n_envs=3), "MultiInputPolicy", lean="LeanDictRolloutBuffer", n_epochs=1),
    ppo("MultiDiscrete both ways", partial(wander, spaces.MultiDiscrete([3, 5]), spaces.MultiDiscrete([2, 4]))),
    maskable("masked, 3 envs", partial(wander, GRID, spaces.MultiDiscrete([3, 6]), n_envs=3), steps=288),
    maskable("Dict space, plain class", partial(wander, MIXED), "MultiInputPolicy", n_epochs=1, steps=64),
    a2c("CartPole", partial(cartpole, 3)),
    a2c("Dict", partial(wander, MIXED, n_envs=3), "MultiInputPolicy", lean="LeanDictRolloutBuffer", steps=60),
    dqn("CartPole, ring runs over five times", cartpole, steps=320),
    dqn("CartPole with time limit, 3 envs", partial(cartpole, 3, 12), steps=240, train_freq=1),
    dqn("VecNormalize", lambda: normalized(cartpole(1, 12))),
    dqn("image stack, transposed", partial(stacked, IMAGE, "last"), "CnnPolicy", steps=60, batch_size=8, train_freq=4),
    dqn("Dict", partial(wander, MIXED), "MultiInputPolicy", steps=70, lean="LeanDictReplayBuffer", batch_size=8),
    dqn("n_steps 3", partial(cartpole, 1, 12), n_steps=3, gamma=0.9, hook=dict(n_steps=3, gamma=0.9)),
    dqn(
        "n_steps 3, 3 envs, VecNormalize",
        lambda: normalized(wander(VECTOR, n_envs=3)),
        steps=240,
        train_freq=1,
        n_steps=3,
        hook=dict(n_steps=3, gamma=0.99),
    ),
    continuous("SAC Pendulum", SAC, pendulum),
    continuous("SAC Dict", SAC, partial(wander, SMALL_DICT, SWING), "MultiInputPolicy", lean="LeanDictReplayBuffer"),
    continuous("TD3 Pendulum, 3 envs", TD3, partial(pendulum, 3), steps=150, action_noise=NOISE),
]


def build(training, buffer_class, **kwargs):
    """Return the algorithm as SB3 builds it, with `buffer_class` (None: SB3's own) in its hook."""
    kind = "replay" if "Replay" in training.lean else "rollout"
    hook = {f"{kind}_buffer_class": buffer_class, f"{kind}_buffer_kwargs": dict(training.hook)} if buffer_class else {}
    return training.algorithm(training.policy, training.env(), **common(training), **hook, **kwargs)


def common(training):
    """Return the arguments of both sides, fresh: SB3's policies write into theirs."""
    return copy.deepcopy(dict(seed=SEED, device="cpu", policy_kwargs=TINY[training.policy]) | training.kwargs)


def trained(model, steps, **learn):
    """Return what the training left behind: SHA-256 over all parameters, and the random generators' states."""
    model.set_random_seed(SEED)  # the generators are global: another model may have drawn from them since
    model.learn(steps, **learn)
    _, numbers, *rest = np.random.get_state()
    return fingerprint(model), (hashed(numbers), rest), hashed(torch.get_rng_state().numpy())


def fingerprint(model):
    """Return the SHA-256 over all parameters, by name, targets and optimizer-trained coefficients included."""
    digest = hashlib.sha256()
    parameters = model.get_parameters()
    for name in sorted(parameters):
        digest.update(name.encode())
        digest.update(repr(flattened(parameters[name])).encode())
    return digest.hexdigest()


def flattened(value):
    """Return nested dicts and lists with every tensor replaced by its bytes' SHA-256."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), hashed(value.detach().contiguous().numpy()))
    if isinstance(value, dict):
        return [(key, flattened(part)) for key, part in value.items()]
    if isinstance(value, list):
        return [flattened(part) for part in value]
    return value


def hashed(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("training", TRAININGS, ids=lambda training: training.name)
def test_parameters_have_the_same_sha256(training):
    expected = trained(build(training, None), training.steps, **training.learn)
    lean_model = build(training, getattr(legroom, training.lean))
    untrained = fingerprint(lean_model)
    assert trained(lean_model, training.steps, **training.learn) == expected
    assert expected[0] != untrained  # something was learned, or the test would say nothing


PREFETCHING = [each for each in TRAININGS if each.name in ("PPO CartPole", "MaskablePPO masked, 3 envs")]


@pytest.mark.parametrize("extras", [dict(prefetch=False), dict(codec="none"), dict(max_bytes=1)], ids=str)
@pytest.mark.parametrize("training", PREFETCHING, ids=lambda training: training.name)
def test_no_switch_changes_what_is_learned(training, extras):
    kind = "replay" if "Replay" in training.lean else "rollout"
    if kind == "replay":
        extras = {key: value for key, value in extras.items() if key != "prefetch"}  # of rollouts
    hook = {f"{kind}_buffer_class": getattr(legroom, training.lean), f"{kind}_buffer_kwargs": extras}
    model = training.algorithm(training.policy, training.env(), **common(training), **hook)
    expected = trained(build(training, None), training.steps)
    assert trained(model, training.steps) == expected


def named(name):
    return next(training for training in TRAININGS if training.name == name)


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("PPO CartPole", "LeanRolloutBuffer"),
        ("PPO Dict", "LeanDictRolloutBuffer"),
        ("A2C CartPole", "LeanRolloutBuffer"),
        ("MaskablePPO masked, 3 envs", "LeanMaskableRolloutBuffer"),
        ("MaskablePPO Dict space, plain class", "LeanMaskableDictRolloutBuffer"),
        ("DQN CartPole, ring runs over five times", "LeanReplayBuffer"),
        ("DQN Dict", "LeanDictReplayBuffer"),
        ("DQN n_steps 3", "LeanReplayBuffer"),
        ("SAC Pendulum", "LeanReplayBuffer"),
    ],
)
def test_lean_builds_the_algorithm_with_the_right_class(name, chosen):
    training = named(name)
    model = legroom.lean(training.algorithm, training.policy, training.env(), **common(training))
    buffer = model.rollout_buffer if hasattr(model, "rollout_buffer") else model.replay_buffer
    assert type(model) is training.algorithm
    assert isinstance(buffer, getattr(legroom, chosen))
    expected = trained(build(training, None), training.steps)
    assert trained(model, training.steps) == expected


@pytest.mark.parametrize("name", ["DQN CartPole with time limit, 3 envs", "DQN n_steps 3", "DQN Dict"])
def test_replay_saved_and_loaded_by_sb3_goes_on_the_same(name, tmp_path):
    training = named(name)
    left_behind = []
    for side, buffer_class in enumerate((None, getattr(legroom, training.lean))):
        path = tmp_path / f"replay_{side}.pkl"
        first = build(training, buffer_class)
        trained(first, training.steps)
        first.save_replay_buffer(path)
        second = build(training, buffer_class)
        second.load_replay_buffer(path)
        assert second.replay_buffer.size() == first.replay_buffer.size() > 0
        left_behind.append(trained(second, training.steps))
    assert left_behind[0] == left_behind[1]
