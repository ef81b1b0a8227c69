"""If these fail, a prediction by arithmetic counts other networks than the library builds."""

import gymnasium
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.bill.net_arithmetic import count_parameters, estimate_net
from legroom.environments.gym_spaces import to_gymnasium
from legroom.model.footprint import Phase
from legroom.model.run import Run


def box(*shape, dtype="float32"):
    return {"type": "box", "shape": list(shape), "dtype": dtype}


def discrete(n):
    return {"type": "discrete", "n": n}


IMAGE = box(84, 84, 4, dtype="uint8")
TWO_CHOICES = {"type": "multidiscrete", "nvec": [3, 4]}
MIXED = {"type": "dict", "spaces": {"image": box(64, 64, 3, dtype="uint8"), "vector": box(7), "kind": discrete(5)}}


def make(algo, observation, action, policy="MlpPolicy", kwargs=None, hyperparams=None, **rest):
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": {"observation": observation, "action": action}},
            "policy": {"name": policy, "kwargs": kwargs or {}, **rest},
            "hyperparams": hyperparams or {},
        }
    )


def test_nature_cnn_by_hand():
    # 4·32·8²+32, 32·64·4²+64, 64·64·3²+64; 84 → 20 → 9 → 7; 64·7·7·512+512; actions 512·6+6, value 512+1
    by_hand = 8_224 + 32_832 + 36_928 + 1_606_144 + 3_078 + 513
    run = make("PPO", IMAGE, discrete(6), "CnnPolicy", hyperparams={"batch_size": 256, "n_steps": 512})
    assert count_parameters(run) == by_hand == 1_687_719
    net = estimate_net(run, "cpu")
    assert (net.weights, net.gradients, net.optimizer) == (4 * by_hand, 4 * by_hand, 8 * by_hand)
    # kept per sample: the image as float32, three convolutions, 512 features, 6 logits and a value
    kept = 28_224 + 32 * 20 * 20 + 64 * 9 * 9 + 64 * 7 * 7 + 512 + 6 + 1
    assert net.transient[Phase.UPDATE]["activations"] == 256 * 4 * kept


def test_the_mine_extractor_is_known_without_importing_it():
    run = make("MaskablePPO", box(17, 49, 71, 58), discrete(3479), "CnnPolicy",
               features_extractor="legroom_workloads.mine:Cnn3d",
               features_extractor_kwargs={"size": "tiny"})  # fmt: skip
    conv = 17 * 8 * 125 + 8 + 8 * 16 * 125 + 16 + 16 * 64 + 64
    towers = 2 * (64 * 64 + 64 + 64 * 64 + 64)
    assert count_parameters(run) == conv + towers + 64 * 3479 + 3479 + 65
    assert not estimate_net(run, "cpu").note


def test_an_unknown_extractor_is_said_to_be_missing():
    run = make("PPO", box(17), discrete(3), features_extractor="somewhere.else:Transformer")
    net = estimate_net(run, "cpu")
    assert "somewhere.else:Transformer" in net.note
    assert net.error > estimate_net(make("PPO", box(17), discrete(3)), "cpu").error


CASES = [
    ("PPO", box(4), discrete(3), "MlpPolicy", {}, {}),
    ("PPO", MIXED, box(3), "MultiInputPolicy", {}, {}),
    ("PPO", box(8), box(2), "MlpPolicy", {}, {"use_sde": True}),
    ("PPO", box(8), TWO_CHOICES, "MlpPolicy", {"net_arch": {"pi": [32], "vf": [128, 16]}}, {}),
    ("PPO", IMAGE, {"type": "multibinary", "n": 4}, "CnnPolicy", {"share_features_extractor": False}, {}),
    ("PPO", TWO_CHOICES, discrete(2), "MlpPolicy", {}, {}),
    ("A2C", discrete(9), discrete(2), "MlpPolicy", {}, {}),
    ("TRPO", {"type": "multibinary", "n": 7}, discrete(2), "MlpPolicy", {}, {}),
    ("MaskablePPO", IMAGE, discrete(6), "CnnPolicy", {}, {}),
    ("RecurrentPPO", box(4), discrete(3), "MlpLstmPolicy", {}, {}),
    ("RecurrentPPO", box(4), discrete(3), "MlpLstmPolicy", {"enable_critic_lstm": False, "n_lstm_layers": 2}, {}),
    ("DQN", box(4), discrete(3), "MlpPolicy", {}, {}),
    ("DQN", IMAGE, discrete(6), "CnnPolicy", {}, {}),
    ("QRDQN", MIXED, discrete(3), "MultiInputPolicy", {}, {}),
    ("SAC", box(17), box(6), "MlpPolicy", {"n_critics": 3, "net_arch": {"pi": [32], "qf": [64, 64]}}, {}),
    ("SAC", box(17), box(6), "MlpPolicy", {}, {"use_sde": True}),
    ("SAC", box(32, 32, 3, dtype="uint8"), box(2), "MlpPolicy", {}, {}),
    ("SAC", MIXED, box(2), "MultiInputPolicy", {"share_features_extractor": True}, {}),
    ("TD3", IMAGE, box(2), "CnnPolicy", {}, {}),
    ("DDPG", box(17), box(6), "MlpPolicy", {}, {}),
    ("TQC", box(17), box(6), "MlpPolicy", {}, {}),
    ("CrossQ", box(17), box(6), "MlpPolicy", {}, {}),
    ("ARS", box(4), discrete(2), "LinearPolicy", {}, {}),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("algo", "observation", "action", "policy", "kwargs", "hyperparams"), CASES)
def test_parameters_are_those_the_library_builds(algo, observation, action, policy, kwargs, hyperparams):
    run = make(algo, observation, action, policy, kwargs, hyperparams)

    class Env(gymnasium.Env):
        observation_space = to_gymnasium(run.env.spaces.observation)
        action_space = to_gymnasium(run.env.spaces.action)

        def action_masks(self):
            return np.ones(6)

    small = {"buffer_size": 10} if "buffer_size" in algorithm_of(run).defaults else {}
    algorithm = getattr(stable_baselines3, algo, None) or getattr(sb3_contrib, algo)
    model = algorithm(policy, Env(), device="cpu", policy_kwargs=dict(kwargs), **small, **hyperparams)
    assert count_parameters(run) == sum(parameter.numel() for parameter in model.policy.parameters())
