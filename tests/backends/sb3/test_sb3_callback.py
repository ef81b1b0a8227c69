"""MemoryCallback: measured and predicted memory in the logger, at no risk for the training it watches."""

import time
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from legroom.backends.sb3.memory_callback import MemoryCallback
from legroom.machine.tree import tree_memory
from legroom.model.footprint import Footprint, Item, Phase, Place


class Heavy(gymnasium.Env):
    """Keeps some megabytes and shows large observations."""

    def __init__(self, megabytes=0, numbers=4):
        self.observation_space = spaces.Box(-1, 1, (numbers,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.data = np.ones(megabytes * 1_000_000, np.uint8)
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(self.observation_space.shape, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(self.observation_space.shape, np.float32), 1.0, self.steps >= 10, False, {}


class Kept(KVWriter):
    """Keeps what SB3's logger writes, dump by dump."""

    def __init__(self):
        self.dumps = []

    def write(self, key_values, key_excluded, step=0):
        self.dumps.append({key: value for key, value in key_values.items() if key.startswith("memory/")})

    def close(self):
        pass


def footprint(model):
    items = (
        Item("all", 123_400_000, Place.HOST, "for this test"),
        Item("update", 1_000_000, Place.HOST, "", (Phase.UPDATE,)),
    )
    return Footprint("test", items, "cpu")


def train(model, callback, steps):
    writer = Kept()
    model.set_logger(Logger(None, [writer]))
    model.learn(steps, callback=callback, log_interval=1)
    return writer.dumps


def ppo(vec_env, **kwargs):
    return PPO("MlpPolicy", vec_env, **({"n_steps": 16, "batch_size": 16, "n_epochs": 1, "device": "cpu"} | kwargs))


def test_measured_and_predicted_stand_in_the_logger():
    callback = MemoryCallback(predict=footprint)
    dumps = train(ppo(DummyVecEnv([Heavy])), callback, 48)
    assert len(dumps) == 3
    for dump in dumps:
        assert dump["memory/predicted_host_mb"] == 124.4  # 123.4 + 1.0 in the update, MB of 10**6
        assert 50 < dump["memory/host_mb"] <= dump["memory/host_peak_mb"]
    assert callback.prediction.host.nbytes == 124_400_000
    assert dumps[-1].keys() == {"memory/predicted_host_mb", "memory/host_mb", "memory/host_peak_mb"}


def test_worker_processes_are_counted():
    vec_env = SubprocVecEnv([lambda: Heavy(megabytes=150)] * 2, start_method="fork")
    try:
        model = ppo(vec_env, n_steps=8)
        alone = tree_memory(vec_env.processes[0].pid).pss
        callback = MemoryCallback(every_s=0, predict=footprint)
        train(model, callback, 32)
        assert alone > 150_000_000
        assert callback.host_nbytes > tree_memory(vec_env.processes[0].pid).pss + 150_000_000
    finally:
        vec_env.close()


def test_the_peak_inside_the_update_is_seen():
    # rollout: 256 x 250,000 numbers x 4 B = 256 MB, and its copy at flatten; the callback is not called in between
    callback = MemoryCallback(every_s=0, predict=footprint)
    policy_kwargs = {"net_arch": [4]}
    train(ppo(DummyVecEnv([lambda: Heavy(numbers=250_000)]), n_steps=256, policy_kwargs=policy_kwargs), callback, 256)
    assert callback.host_peak_nbytes > 256_000_000 * 2


def test_an_earlier_peak_is_not_blamed_on_training():
    big = np.ones(600_000_000, np.uint8)
    del big
    callback = MemoryCallback(every_s=0, predict=footprint)
    train(ppo(DummyVecEnv([Heavy])), callback, 32)
    assert callback.host_peak_nbytes < callback.host_nbytes + 200_000_000


def test_a_prediction_that_fails_is_one_warning_and_training_goes_on():
    def fail(model):
        raise RuntimeError("no idea")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dumps = train(ppo(DummyVecEnv([Heavy])), MemoryCallback(predict=fail), 48)
    said = [str(w.message) for w in caught if "legroom" in str(w.message)]
    assert said == ["legroom: no memory prediction: RuntimeError: no idea"]
    assert len(dumps) == 3
    assert all("memory/host_mb" in dump and "memory/predicted_host_mb" not in dump for dump in dumps)


def test_off_policy_measures_seldom_but_logs_every_time(monkeypatch):
    callback = MemoryCallback(every_s=1000, predict=footprint)
    taken = []
    measure = callback._measure
    monkeypatch.setattr(callback, "_measure", lambda: taken.append(time.monotonic()) or measure())
    model = DQN("MlpPolicy", DummyVecEnv([Heavy]), buffer_size=100, learning_starts=10, train_freq=1, device="cpu")
    dumps = train(model, callback, 100)
    assert len(taken) == 2  # at the start and at the end, not after each of 100 steps
    assert dumps and all("memory/host_mb" in dump for dump in dumps)


@pytest.mark.slow
def test_the_real_prediction_is_used_by_default():
    callback = MemoryCallback()
    dumps = train(ppo(DummyVecEnv([Heavy])), callback, 32)
    assert callback.prediction is not None
    assert dumps[0]["memory/predicted_host_mb"] == round(callback.prediction.host.nbytes / 1e6, 1)
