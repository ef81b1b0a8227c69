"""A Run from a constructor's arguments or a live model: right in every size, and nothing is built for it."""

import resource
import subprocess
import sys
import tracemalloc

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import ARS, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from legroom.backends.base import all_algorithms, hyper
from legroom.backends.sb3.constructor_calls import run_from_call, run_from_model
from legroom.backends.sb3.stored import stored_observation
from legroom.environments.objects import resolve_object
from legroom.errors import BadInput
from legroom.model.run import Run, Spaces
from legroom.model.spaces import BoxSpace, DictSpace, DiscreteSpace


class ToyEnv(gymnasium.Env):
    """Does nothing, with any spaces."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = action or spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


class Extractor(BaseFeaturesExtractor):
    def __init__(self, observation_space, width=32):
        super().__init__(observation_space, width)
        self.net = torch.nn.Linear(4, width)

    def forward(self, x):
        return self.net(x)


class OwnPolicy(ActorCriticPolicy):
    pass


class OwnPPO(PPO):
    """A user's subclass with an argument of its own."""

    def __init__(self, *args, own_weight=1.0, **kwargs):
        super().__init__(*args, **kwargs)


def image_env():
    return ToyEnv(spaces.Box(0, 255, (84, 84, 1), np.uint8))


def box_env():
    return ToyEnv(action=spaces.Box(-1, 1, (2,), np.float32))


def as_stored(vec_env):
    """Return the observation space as SB3's own buffer would get it."""
    wrapped = PPO._wrap_env(vec_env)
    observation = wrapped.observation_space
    if isinstance(observation, spaces.Dict):
        return {key: (sub.shape, sub.dtype.name) for key, sub in observation.spaces.items()}
    return observation.shape, observation.dtype.name


def stored(run):
    observation = stored_observation(run)
    if isinstance(observation, DictSpace):
        return {key: (sub.shape, sub.dtype) for key, sub in observation.spaces.items()}
    return observation.shape, observation.dtype


def test_a_plain_call():
    run = run_from_call(PPO, "MlpPolicy", gymnasium.make("CartPole-v1"), n_steps=128, batch_size=32, seed=7, verbose=1)
    assert (run.name, run.algo, run.backend) == ("PPO CartPole-v1", "PPO", "sb3")
    assert run.hyperparams == {"n_steps": 128, "batch_size": 32}
    assert (run.env.n_envs, run.env.workers, run.seed, run.device) == (1, "dummy", 7, "auto")
    assert run.env.spaces == Spaces(BoxSpace((4,)), DiscreteSpace(2))


def test_arguments_by_position_and_by_keyword_are_the_same():
    by_position = run_from_call(PPO, "MlpPolicy", ToyEnv(), 1e-3, 512)
    by_keyword = run_from_call(PPO, policy="MlpPolicy", env=ToyEnv(), learning_rate=1e-3, n_steps=512)
    assert by_position == by_keyword
    assert by_position.hyperparams == {"learning_rate": 1e-3, "n_steps": 512}


def test_an_id_is_left_to_be_built_elsewhere():
    run = run_from_call(SAC, "MlpPolicy", "Pendulum-v1", buffer_size=1000)
    assert (run.env.id, run.env.spaces, run.name) == ("Pendulum-v1", None, "SAC Pendulum-v1")


def test_a_100_gib_rollout_builds_nothing():
    # 2048 * 4 * 17*49*71*58 * 4 B = 112,403,873,792 B = 104.7 GiB
    mine = spaces.Box(-1, 1, (17, 49, 71, 58), np.float32)
    vec_env = DummyVecEnv([lambda: ToyEnv(mine, spaces.Discrete(49 * 71))] * 4)
    run_from_call(PPO, "CnnPolicy", vec_env)  # whatever the first call imports
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tracemalloc.start()
    run = run_from_call(MaskablePPO, "CnnPolicy", vec_env, n_steps=2048, batch_size=64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 20_000_000
    assert hyper(run, "n_steps") * run.env.n_envs * stored_observation(run).nbytes == 112_403_873_792


@pytest.mark.parametrize(
    ("make", "frame_stack"),
    [
        (lambda: DummyVecEnv([image_env] * 2), None),
        (lambda: VecTransposeImage(DummyVecEnv([image_env])), None),
        (lambda: VecFrameStack(DummyVecEnv([image_env]), 4), 4),
        (lambda: VecMonitor(VecTransposeImage(VecMonitor(VecFrameStack(DummyVecEnv([image_env]), 4)))), 4),
        (lambda: VecFrameStack(VecTransposeImage(DummyVecEnv([image_env])), 4), 4),
        (lambda: VecFrameStack(DummyVecEnv([ToyEnv]), 3), 3),
        (lambda: VecFrameStack(DummyVecEnv([image_env]), 4, channels_order="first"), None),
        (lambda: VecNormalize(DummyVecEnv([ToyEnv])), None),
        (lambda: VecNormalize(VecFrameStack(DummyVecEnv([image_env]), 4)), None),
        (lambda: VecFrameStack(VecNormalize(DummyVecEnv([ToyEnv])), 2), 2),
        (
            lambda: VecFrameStack(
                DummyVecEnv(
                    [
                        lambda: ToyEnv(
                            spaces.Dict({"a": spaces.Box(0, 255, (36, 40, 3), np.uint8), "b": spaces.Box(-1, 1, (5,))})
                        )
                    ]
                ),
                4,
            ),
            4,
        ),
    ],
)
def test_wrapped_envs_are_stored_as_sb3_stores_them(make, frame_stack):
    vec_env = make()
    run = run_from_call(PPO, "MultiInputPolicy", vec_env)
    assert stored(run) == as_stored(vec_env)
    assert run.env.frame_stack == frame_stack
    assert run.env.n_envs == vec_env.num_envs
    assert bool(run.env.normalize) == isinstance(vec_env, VecNormalize) or frame_stack == 2


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes(method):
    vec_env = VecMonitor(SubprocVecEnv([ToyEnv], start_method=method))
    try:
        run = run_from_call(A2C, "MlpPolicy", vec_env)
    finally:
        vec_env.close()
    assert (run.env.n_envs, run.env.workers, run.env.start_method) == (1, "subproc", method)


def test_policies_and_networks_by_name():
    run = run_from_call(
        PPO,
        ActorCriticCnnPolicy,
        image_env(),
        policy_kwargs={
            "features_extractor_class": Extractor,
            "features_extractor_kwargs": {"width": np.int64(16)},
            "net_arch": {"pi": [64, 64], "vf": (32,)},
            "activation_fn": torch.nn.ReLU,
            "optimizer_class": torch.optim.SGD,
            "optimizer_kwargs": {"momentum": 0.9},
        },
    )
    assert run.policy.name == "CnnPolicy"
    assert run.policy.features_extractor == f"{__name__}:Extractor"
    assert run.policy.features_extractor_kwargs == {"width": 16}
    assert run.policy.kwargs == {
        "net_arch": {"pi": [64, 64], "vf": [32]},
        "activation_fn": "torch.nn.ReLU",
        "optimizer_class": "torch.optim.SGD",
        "optimizer_kwargs": {"momentum": 0.9},
    }
    assert run_from_call(PPO, OwnPolicy, ToyEnv()).policy.name == f"{__name__}:OwnPolicy"


def test_a_class_that_cannot_be_imported_can_still_be_found_here():
    class Local(Extractor):
        pass

    def activation():
        return torch.nn.ReLU(inplace=True)

    kwargs = {"features_extractor_class": Local, "activation_fn": activation}
    run = run_from_call(PPO, "MlpPolicy", ToyEnv(), policy_kwargs=kwargs)
    assert resolve_object(run.policy.features_extractor) is Local
    assert resolve_object(run.policy.kwargs["activation_fn"]) is activation


def test_what_has_no_plain_form_and_no_bearing_is_left_out():
    run = run_from_call(
        TD3,
        "MlpPolicy",
        box_env(),
        learning_rate=lambda progress: progress * 1e-3,
        action_noise=NormalActionNoise(np.zeros(2), np.ones(2)),
        buffer_size=np.int64(5000),
        train_freq=(1, "episode"),
        device=torch.device("cuda:1"),
    )
    assert run.hyperparams == {"buffer_size": 5000, "train_freq": [1, "episode"]}
    assert type(run.hyperparams["buffer_size"]) is int
    assert run.device == "cuda"


def test_buffer_classes_that_matter_are_kept():
    kwargs = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    run = run_from_call(SAC, "MlpPolicy", box_env(), replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=kwargs)
    assert resolve_object(run.hyperparams["replay_buffer_class"]) is HerReplayBuffer
    assert run.hyperparams["replay_buffer_kwargs"] == kwargs


def test_a_subclass_is_its_algorithm():
    run = run_from_call(OwnPPO, "MlpPolicy", ToyEnv(), own_weight=3.0, n_steps=64)
    assert (run.algo, run.hyperparams) == ("PPO", {"n_steps": 64})


def test_the_run_is_plain_data():
    run = run_from_call(DQN, "MlpPolicy", ToyEnv(), policy_kwargs={"net_arch": [8]}, buffer_size=100)
    assert Run.model_validate(run.model_dump()) == run


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: run_from_call(ToyEnv, "MlpPolicy", ToyEnv()), "unknown algorithm ToyEnv (a class of PPO, A2C"),
        (lambda: run_from_call("PPO", "MlpPolicy", ToyEnv()), "unknown algorithm 'PPO'"),
        (lambda: run_from_call(PPO, "MlpPolicy", ToyEnv(), n_step=5), "'n_step' (did you mean 'n_steps'?)"),
        (lambda: run_from_call(PPO, "MlpPolicy"), "missing a required argument: 'env'"),
        (lambda: run_from_call(PPO, "MlpPolicy", None, 1e-3), "the environment is missing"),
        (lambda: run_from_call(PPO, "CnPolicy", ToyEnv()), "unknown policy 'CnPolicy' (did you mean 'CnnPolicy'?)"),
        (lambda: run_from_call(PPO, "MlpPolicy", 3), "env: an object of type int is not an environment"),
        (lambda: run_from_call(PPO, "MlpPolicy", ToyEnv(), n_steps=0), "n_steps=0 must be positive and below 2**63"),
        (lambda: run_from_call(PPO, "MlpPolicy", ToyEnv(), n_steps=2**64), "must be positive and below 2**63"),
        (
            lambda: run_from_call(PPO, "MlpPolicy", ToyEnv(), batch_size=1.5),
            "batch_size must be a whole number, not 1.5",
        ),
        (lambda: run_from_call(PPO, "MlpPolicy", ToyEnv(spaces.Text(3))), "a Text space is not supported"),
    ],
)
def test_bad_input_is_one_line(call, says):
    with pytest.raises(BadInput) as refused:
        call()
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


MODELS = [
    (PPO, ToyEnv, {"n_steps": 16, "batch_size": 8, "use_sde": False}),
    (A2C, ToyEnv, {"n_steps": 7}),
    (A2C, ToyEnv, {"use_rms_prop": False}),
    (DQN, ToyEnv, {"buffer_size": 64, "n_steps": 3, "train_freq": 8}),
    (SAC, box_env, {"buffer_size": 64, "train_freq": (2, "episode"), "use_sde": True}),
    (TD3, box_env, {"buffer_size": 64, "policy_delay": 3}),
    (DDPG, box_env, {"buffer_size": 64}),
    (TQC, box_env, {"buffer_size": 64}),
    (CrossQ, box_env, {"buffer_size": 64}),
    (MaskablePPO, ToyEnv, {"n_steps": 16, "batch_size": 8}),
    (TRPO, ToyEnv, {"n_steps": 16}),
    (ARS, ToyEnv, {"n_delta": 4}),
]


@pytest.mark.parametrize(("algo", "make_env", "kwargs"), MODELS)
def test_a_live_model_says_the_same_as_its_constructor_call(algo, make_env, kwargs):
    called = run_from_call(algo, "MlpPolicy", DummyVecEnv([make_env]), device="cpu", seed=3, **kwargs)
    lived = run_from_model(algo("MlpPolicy", DummyVecEnv([make_env]), device="cpu", seed=3, **kwargs))
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in kwargs.items()}
    assert {key: lived.hyperparams[key] for key in kwargs} == plain
    # the rest are the defaults, apart from what SB3 resolves while it builds
    resolved = {"target_entropy", "n_top"}
    for key, value in lived.hyperparams.items():
        assert value == hyper(called, key) or key in resolved or value == plain[key], key
    assert (lived.env, lived.policy.name, lived.device, lived.seed) == (called.env, called.policy.name, "cpu", 3)


def test_a_live_models_plan_can_be_constructed_again():
    # what a tracer does: resolve the names and call the constructor
    for algo, make_env, kwargs in MODELS:
        run = run_from_model(algo("MlpPolicy", DummyVecEnv([make_env]), device="cpu", **kwargs))
        policy_kwargs = {k: resolve_object(v) if k.endswith("_class") else v for k, v in run.policy.kwargs.items()}
        hyperparams = {k: tuple(v) if isinstance(v, list) else v for k, v in run.hyperparams.items()}
        again = algo(run.policy.name, DummyVecEnv([make_env]), policy_kwargs=policy_kwargs, device="cpu", **hyperparams)
        assert run_from_model(again) == run


def test_a_live_model_with_images_and_recurrence():
    vec_env = VecFrameStack(DummyVecEnv([image_env] * 2), 4)
    model = RecurrentPPO("CnnLstmPolicy", vec_env, n_steps=8, policy_kwargs={"lstm_hidden_size": 16}, device="cpu")
    run = run_from_model(model)
    assert (run.algo, run.policy.name, run.policy.kwargs) == ("RecurrentPPO", "CnnLstmPolicy", {"lstm_hidden_size": 16})
    assert stored(run) == (model.observation_space.shape, "uint8") == ((4, 84, 84), "uint8")
    assert (run.env.frame_stack, run.env.n_envs) == (4, 2)


def test_a_model_loaded_without_env(tmp_path):
    PPO("MlpPolicy", DummyVecEnv([ToyEnv] * 3), n_steps=8, batch_size=8, device="cpu").save(tmp_path / "model")
    run = run_from_model(PPO.load(tmp_path / "model", device="cpu"))
    assert (run.env.n_envs, run.env.spaces.observation.shape, run.hyperparams["n_steps"]) == (3, (4,), 8)


def test_every_sb3_algorithm_of_the_table_is_recognised():
    for algorithm in (a for a in all_algorithms() if a.backend == "sb3"):
        module = __import__(algorithm.package)
        policy = "MlpLstmPolicy" if algorithm.recurrent else "MlpPolicy"
        assert run_from_call(getattr(module, algorithm.name), policy, "CartPole-v1").algo == algorithm.name


def test_a_class_of_a_script_is_found_in_that_script():
    code = (
        "from stable_baselines3 import PPO\n"
        "from stable_baselines3.common.torch_layers import FlattenExtractor\n"
        "from legroom.backends.sb3.constructor_calls import run_from_call\n"
        "from legroom.environments.objects import resolve_object\n"
        "class Mine(FlattenExtractor): pass\n"
        "run = run_from_call(PPO, 'MlpPolicy', 'CartPole-v1', policy_kwargs={'features_extractor_class': Mine})\n"
        "assert resolve_object(run.policy.features_extractor) is Mine\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
