"""If these fail, a memory knob changes what is learned that promises not to, or cannot be trained with."""

import copy

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from microbatch_cases import IMAGE, MIXED, VECTOR, difference, envs, policy_for, trained, with_micro_batch
from sb3_contrib import TQC, MaskablePPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from legroom.backends.sb3.applied_knobs import Checkpointed, checkpoint_activations, networks, turn_knobs
from legroom.backends.sb3.making import make_model
from legroom.errors import BadInput
from legroom.hollow.card_autocast import autocast_as_on_card
from legroom.model.run import EnvSpec, MemorySpec, PolicySpec, Run
from legroom_workloads.fire.nets import FireNet

FORCE = spaces.Box(-1, 1, (2,), np.float32)
ROLLOUT = dict(n_steps=16, batch_size=32, n_epochs=1)  # two envs: one update of one minibatch
REPLAY = dict(buffer_size=80, learning_starts=16, batch_size=32, train_freq=8, gradient_steps=1)
CASES = {
    "ppo": (PPO, IMAGE, None, ROLLOUT),
    "maskable": (MaskablePPO, IMAGE, None, ROLLOUT),
    "a2c": (A2C, MIXED, None, dict(n_steps=16)),
    "dqn": (DQN, IMAGE, None, REPLAY),
    "sac": (SAC, VECTOR, FORCE, REPLAY),
    "td3": (TD3, VECTOR, FORCE, REPLAY),
    "tqc": (TQC, VECTOR, FORCE, REPLAY),
}


def with_knobs(algorithm, **memory):
    def make(*args, **kwargs):
        model = algorithm(*args, **kwargs)
        turn_knobs(model, MemorySpec(**memory))
        return model

    return make


def pair(case, **memory):
    algorithm, observation, action, kwargs = CASES[case]
    kinds = (algorithm, with_knobs(algorithm, **memory))
    return (trained(kind, envs(observation, action), 32, **kwargs) for kind in kinds)


@pytest.mark.parametrize("case", CASES)
def test_checkpointing_activations_learns_the_same(case):
    plain, slim = pair(case, activation_checkpointing=True)
    assert any(isinstance(module, Checkpointed) for module in slim.policy.modules())
    assert difference(plain, slim) <= 1e-6  # seen: 0 to 2e-8
    assert list(plain.policy.state_dict()) == list(slim.policy.state_dict())


@pytest.mark.parametrize("case", CASES)
def test_bf16_learns_about_the_same_and_keeps_float32_parameters(case):
    plain, rough = pair(case, bf16=True)
    assert all(parameter.dtype == torch.float32 for parameter in rough.policy.parameters())
    assert 0 < difference(plain, rough) < 0.02
    assert list(plain.policy.state_dict()) == list(rough.policy.state_dict())


def test_bf16_works_in_micro_batches_and_checkpointed():
    both = with_knobs(with_micro_batch(PPO, 8), bf16=True, activation_checkpointing=True)
    one, other = (trained(kind, envs(IMAGE), 32, **ROLLOUT) for kind in (with_knobs(PPO, bf16=True), both))
    assert difference(one, other) < 5e-3


def test_networks_really_run_in_bf16_and_hand_out_float32():
    model = with_knobs(PPO, bf16=True)("CnnPolicy", envs(IMAGE), device="cpu", **ROLLOUT)
    inside = []
    model.policy.features_extractor.cnn[0].register_forward_hook(lambda *seen: inside.append(seen[2].dtype))
    values, log_prob, _ = model.policy.evaluate_actions(torch.zeros(4, 1, 36, 36), torch.zeros(4))
    assert inside == [torch.bfloat16]
    assert values.dtype == log_prob.dtype == torch.float32


def test_ppo_learns_cart_pole_in_bf16():
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 8)
    settings = {"n_steps": 32, "batch_size": 256, "n_epochs": 10, "gae_lambda": 0.8, "gamma": 0.98, "seed": 0,
                "learning_rate": 1e-3}  # fmt: skip
    model = make_model(Run(algo="PPO", env=EnvSpec(), hyperparams=settings, memory=MemorySpec(bf16=True)), env, "cpu")
    model.learn(5_000)
    lengths = []
    for seed in range(5):
        one = gymnasium.make("CartPole-v1")
        observation, _ = one.reset(seed=seed)
        over, steps = False, 0
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, ended, cut, _ = one.step(action.item())
            over, steps = ended or cut, steps + 1
        lengths.append(steps)
    assert np.mean(lengths) > 60  # a random policy lasts 22 steps


def test_nothing_to_checkpoint_is_said_in_one_line():
    knob, tiny = MemorySpec(activation_checkpointing=True), PolicySpec(kwargs={"net_arch": [8]})
    small = Run(algo="PPO", env=EnvSpec(), memory=knob, policy=tiny)
    with pytest.raises(BadInput, match=r"no nn\.Sequential of three or more layers"):
        make_model(small, envs(VECTOR), "cpu")


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.Dropout(0.5)], ids=["batch norm", "dropout"])
def test_containers_whose_second_pass_would_differ_are_left_alone(layer):
    holder = nn.ModuleDict({"net": nn.Sequential(nn.Linear(8, 8), layer, nn.ReLU(), nn.Linear(8, 8))})
    assert checkpoint_activations(holder) == []
    assert type(holder["net"]) is nn.Sequential


def test_layers_that_may_mix_samples_are_computed_again_in_segments_to_the_bit():
    torch.manual_seed(0)
    plain = FireNet(spaces.Box(0, 1, (3, 8, 8), np.float32))
    slim = copy.deepcopy(plain)
    assert checkpoint_activations(nn.ModuleDict({"net": slim})) == ["net.body"]
    seen = torch.rand(4, 3, 8, 8)
    for net in (plain, slim):
        net(seen).square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(plain.parameters(), slim.parameters(), strict=True))


LAYERS = {
    "linear": (nn.Linear(8, 8), (2, 8)),
    "conv2d": (nn.Conv2d(4, 4, 3), (2, 4, 8, 8)),
    "conv3d": (nn.Conv3d(4, 4, 3), (2, 4, 8, 8, 8)),
    "relu": (nn.ReLU(), (2, 8)),
    "tanh": (nn.Tanh(), (2, 8)),
    "layer norm": (nn.LayerNorm(8), (2, 8)),
    "group norm": (nn.GroupNorm(2, 4), (2, 4, 8, 8)),
    "softmax": (nn.Softmax(1), (2, 8)),
    "max pool": (nn.MaxPool2d(2), (2, 4, 8, 8)),
    "pool": (nn.AdaptiveAvgPool2d(2), (2, 4, 8, 8)),
    "pool 3d": (nn.AdaptiveAvgPool3d(2), (2, 4, 8, 8, 8)),
    "average 3d": (nn.AvgPool3d(2), (2, 4, 8, 8, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_trace_casts_what_this_torch_casts(name, dtype):
    layer, shape = LAYERS[name]
    layer = layer.train()
    meta = copy.deepcopy(layer).to("meta")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        real = layer(torch.zeros(shape, dtype=dtype)).dtype
    with autocast_as_on_card({}, "cpu"), torch.autocast("meta", dtype=torch.bfloat16):
        traced = meta(torch.zeros(shape, dtype=dtype, device="meta")).dtype
    assert traced == real


def test_all_networks_of_a_policy_are_found():
    policy = SAC(policy_for(VECTOR), envs(VECTOR, FORCE), buffer_size=10, device="cpu").policy
    found = {id(part) for network in networks(policy) for part in network.modules()}
    assert all(id(part) in found for part in policy.modules() if isinstance(part, nn.Linear))
