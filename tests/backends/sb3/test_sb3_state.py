"""Training that was interrupted and gone on with ends with the bits of training that was not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit
from resume_envs import CASES, Remembered, Walk, envs
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnvWrapper, VecNormalize

from legroom.backends.sb3 import segments
from legroom.backends.sb3.state import capture, continue_learning, policy_arrays, restore
from legroom.backends.sb3.state_envs import describe_space, make_space
from legroom.backends.sb3.state_torch import to_array, to_tensor
from legroom.errors import BadInput
from legroom.sharing.env_state import EpisodeStatistics
from legroom.training.checkpoint import Checkpoint, Checkpoints, parameters_sha256

HERE = Path(__file__).parent
# Each goes on from its case's last checkpoint; with replay, another one is written on the way and gone on from as well.
GO_ON = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import test_sb3_state as tests
print(json.dumps({name: tests.go_on(name, Path(sys.argv[2], name)) for name in sys.argv[3:]}))
"""


def at_boundary(model: Any, what: Any) -> None:
    """Have `what()` called between iterations."""
    collect = model.collect_rollouts

    def collect_rollouts(*args: Any, **kwargs: Any) -> Any:
        what()
        return collect(*args, **kwargs)

    model.collect_rollouts = collect_rollouts


def write(model: Any, checkpoints: Checkpoints) -> Path:
    state = capture(model, {"seen": model.num_timesteps}, previous=checkpoints.newest)
    assert state.exact, state.why_not_exact
    return checkpoints.write(model.num_timesteps, state.tensors, state.data, link=state.link, files=state.files)


def write_once(model: Any, checkpoints: Checkpoints, *steps: int) -> None:
    """Write a checkpoint at the first boundary from each of these steps on."""
    left = list(steps)

    def look() -> None:
        if left and model.num_timesteps >= left[0]:
            del left[0]
            write(model, checkpoints)

    at_boundary(model, look)


def digest(model: Any) -> str:
    return parameters_sha256(policy_arrays(model))


def go_on(name: str, folder: Path) -> list[str]:
    make, total, cut = CASES[name]
    segments.WORTH_LINKING = 0
    ends = []
    for times in range(2 if name.startswith("dqn") else 1):
        model, checkpoints = make(), Checkpoints(folder)
        checkpoint = checkpoints.latest()
        assert restore(model, checkpoint) == ""
        assert checkpoint.data["callbacks"] == {"seen": checkpoint.step}
        if times == 0:
            write_once(model, checkpoints, (cut + total) // 2)
        continue_learning(model, total)
        ends.append(f"{checkpoint.step} {digest(model)}")
    return ends


def test_an_interrupted_run_ends_with_the_same_parameters(tmp_path: Path, monkeypatch) -> None:
    """All algorithms and wrappers at once, so that the fresh process starts once: importing takes longer than all."""
    monkeypatch.setattr(segments, "WORTH_LINKING", 0)
    torch.set_num_threads(1)
    ends = {}
    for name, (make, total, cut) in CASES.items():
        model = make()
        write_once(model, Checkpoints(tmp_path / name), cut // 2, cut)
        continue_learning(model, total)
        ends[name] = digest(model)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GO_ON, str(HERE), str(tmp_path), *CASES],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    resumed = json.loads(done.stdout)
    assert list(resumed) == list(CASES)
    for name, reached in resumed.items():
        for step, end in (each.split() for each in reached):
            assert int(step) >= CASES[name][2]
            assert end == ends[name], f"{name} gone on from step {step}"


def test_writing_checkpoints_changes_nothing(tmp_path: Path) -> None:
    for name in ("ppo_wrapped", "dqn_lean", "td3"):
        make, total, cut = CASES[name]
        plain = make()  # one after the other: both draw from the global generators
        continue_learning(plain, total)
        watched = make()
        write_once(watched, Checkpoints(tmp_path / name), *range(0, total, cut // 3))
        continue_learning(watched, total)
        assert digest(watched) == digest(plain), name


def test_going_on_to_a_total_that_is_reached_does_nothing() -> None:
    model = CASES["a2c"][0]()
    continue_learning(model, 100)
    before = digest(model)
    continue_learning(model, 100)
    assert (digest(model), model.num_timesteps) == (before, 100)


def wrapped() -> Any:
    return Monitor(TimeLimit(EpisodeStatistics(Remembered(limit=1000)), 9))


def test_time_limit_and_monitor_around_an_environment_go_on_too(tmp_path: Path) -> None:
    def make() -> Any:
        return A2C("MlpPolicy", DummyVecEnv([wrapped, wrapped]), seed=1, device="cpu", policy_kwargs={"net_arch": [8]})

    model = make()
    continue_learning(model, 120)
    elapsed = model.env.envs[0].env._elapsed_steps
    assert elapsed > 0  # in the middle of an episode
    write(model, Checkpoints(tmp_path))
    continue_learning(model, 200)
    again = make()
    assert restore(again, Checkpoints(tmp_path).latest()) == ""
    assert again.env.envs[0].env._elapsed_steps == elapsed
    continue_learning(again, 200)
    assert digest(again) == digest(model)
    assert [info["l"] for info in again.ep_info_buffer] == [info["l"] for info in model.ep_info_buffer]


def counted() -> Any:
    return EpisodeStatistics(Remembered())


def test_environments_in_other_processes_go_on_too(tmp_path: Path) -> None:
    def make() -> Any:
        env = SubprocVecEnv([counted, counted], start_method="fork")
        return A2C("MlpPolicy", env, seed=1, device="cpu", policy_kwargs={"net_arch": [8]})

    model = make()
    write_once(model, Checkpoints(tmp_path), 60)
    continue_learning(model, 120)
    model.env.close()
    again = make()
    assert restore(again, Checkpoints(tmp_path).latest()) == ""
    continue_learning(again, 120)
    again.env.close()
    assert digest(again) == digest(model)


class Secretive(VecEnvWrapper):
    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        return self.venv.step_wait()


@pytest.mark.parametrize(
    ("env", "why"),
    [
        (lambda: DummyVecEnv([Walk, Walk]), "Walk cannot save its state"),
        (lambda: SubprocVecEnv([Remembered, Remembered], start_method="fork"), "EpisodeStatistics"),
        (lambda: Secretive(envs()), "Secretive"),
    ],
)
def test_what_cannot_be_captured_is_named_and_training_goes_on_approximately(tmp_path: Path, env, why) -> None:
    def make() -> Any:
        return A2C("MlpPolicy", VecNormalize(env()), seed=1, device="cpu", policy_kwargs={"net_arch": [8]})

    model = make()
    continue_learning(model, 60)
    state = capture(model)
    assert not state.exact and why in state.why_not_exact
    path = Checkpoints(tmp_path).write(60, state.tensors, state.data)
    again = make()
    assert bool(restore(again, Checkpoint(path))) == (why != "Secretive")
    assert digest(again) == digest(model)
    np.testing.assert_array_equal(again.env.obs_rms.mean, model.env.obs_rms.mean)
    continue_learning(again, 80)
    assert again.num_timesteps == 80
    for each in (model, again):
        each.env.close()


@pytest.fixture(scope="module")
def ppo_checkpoint(tmp_path_factory) -> Checkpoint:
    model = CASES["ppo"][0]()
    continue_learning(model, 64)
    return Checkpoint(write(model, Checkpoints(tmp_path_factory.mktemp("ppo"))))


@pytest.mark.parametrize(
    ("make", "difference"),
    [
        (lambda: CASES["a2c"][0](), "it is of PPO, and this is A2C"),
        (lambda: PPO("MlpPolicy", envs(discrete=False), device="cpu"), r"action space is Discrete\(4\)"),
        (lambda: PPO("MultiInputPolicy", envs(part=True), device="cpu"), "its observation space is Box"),
        (
            lambda: PPO("MlpPolicy", envs(), device="cpu", policy_kwargs={"net_arch": [32]}),
            r"policy\.mlp_extractor\.policy_net\.0\.weight is 16×4 float32 in it, and 32×4 float32 here",
        ),
        (
            lambda: PPO("MlpPolicy", envs(), device="cpu", policy_kwargs={"net_arch": [16, 16]}),
            r"policy_net\.2\.weight is missing in it",
        ),
        (
            lambda: PPO(
                "MlpPolicy", envs(), device="cpu",
                policy_kwargs={"net_arch": [16], "optimizer_class": torch.optim.SGD},
            ),
            r"policy\.optimizer is Adam in it, and SGD here",
        ),
        (
            lambda: PPO("MlpPolicy", VecNormalize(envs()), device="cpu", policy_kwargs={"net_arch": [16]}),
            "wrapped in nothing, here in VecNormalize",
        ),
    ],
)  # fmt: skip
def test_a_checkpoint_of_something_else_names_the_first_difference(ppo_checkpoint, make, difference) -> None:
    model = make()
    before = digest(model)
    with pytest.raises(BadInput, match=difference) as error:
        restore(model, ppo_checkpoint)
    assert "\n" not in str(error.value)
    assert digest(model) == before and model.num_timesteps == 0


def test_another_number_of_environments_goes_on_approximately(ppo_checkpoint) -> None:
    model = PPO("MlpPolicy", envs(3), n_steps=8, batch_size=8, device="cpu", policy_kwargs={"net_arch": [16]})
    assert "2 environments were trained on, and 3 are here" in restore(model, ppo_checkpoint)
    continue_learning(model, 100)
    assert model.num_timesteps >= 100


def test_what_an_update_logged_is_written_by_the_iteration_after_the_resume(tmp_path: Path) -> None:
    from stable_baselines3.common.logger import Logger

    from legroom.backends.sb3.state import restore_log

    model = CASES["ppo"][0]()
    continue_learning(model, 64)
    path = write(model, Checkpoints(tmp_path))
    again = CASES["ppo"][0]()
    restore(again, Checkpoint(path))
    again.set_logger(Logger(None, []))
    restore_log(again, Checkpoint(path))
    assert "train/loss" in again.logger.name_to_value
    assert dict(again.logger.name_to_value) == dict(model.logger.name_to_value)


def test_tensors_numpy_has_no_dtype_for_come_back_bit_for_bit() -> None:
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float16, torch.int64, torch.bool):
        tensor = torch.arange(12).reshape(3, 4).to(dtype)
        back = to_tensor(to_array(tensor))
        assert back.dtype == dtype and back.shape == tensor.shape
        assert torch.equal(back.view(torch.uint8), tensor.view(torch.uint8))
        assert parameters_sha256({"a": tensor}) == parameters_sha256({"a": to_array(tensor)})
    scalar = torch.tensor(1.5, dtype=torch.bfloat16)
    assert to_tensor(to_array(scalar)).item() == 1.5


def test_a_bfloat16_policy_with_its_float32_moments_goes_on(tmp_path: Path) -> None:
    def make() -> Any:
        model = CASES["dqn"][0]()
        model.policy.to(torch.bfloat16)
        return model

    model = make()
    (parameter, *_) = model.policy.optimizer.param_groups[0]["params"]
    model.policy.optimizer.state[parameter] = {"step": torch.tensor(3.0), "exp_avg": torch.full((16, 4), 1 / 3)}
    again = make()
    restore(again, Checkpoint(write(model, Checkpoints(tmp_path))))
    (parameter, *_) = again.policy.optimizer.param_groups[0]["params"]
    moment = again.policy.optimizer.state[parameter]["exp_avg"]
    assert moment.dtype == torch.float32 and torch.equal(moment, torch.full((16, 4), 1 / 3))
    assert digest(again) == digest(model)


def test_spaces_come_back_with_every_bound() -> None:
    from gymnasium import spaces

    for space in (
        spaces.Box(0, 255, (2, 3), np.uint8),
        spaces.Box(np.array([-1, -np.inf], np.float32), np.array([1, 2], np.float32)),
        spaces.Discrete(5, start=-2),
        spaces.MultiDiscrete([3, 4]),
        spaces.MultiBinary([2, 3]),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (1,))}),
    ):
        back = make_space(describe_space(space))
        assert back == space and str(back) == str(space)
    assert np.ndim(describe_space(spaces.Box(0, 1, (100, 100)))["low"]) == 0  # one number, not ten thousand


@pytest.mark.parametrize("size", [500, 100])
def test_a_replay_buffer_of_another_size_goes_on_with_the_newest_rows_and_says_so(tmp_path: Path, size: int) -> None:
    model, rows = CASES["dqn"][0](), size // 2
    continue_learning(model, 440)  # 220 rows of two environments: the ring of 150 has gone round
    path = write(model, Checkpoints(tmp_path))
    other = DQN("MlpPolicy", envs(), buffer_size=size, device="cpu", policy_kwargs={"net_arch": [16]})
    assert restore(other, Checkpoint(path)) == f"the replay buffer had 150 rows, and has {rows}"
    kept = min(rows, 150)
    newest = np.arange(220 - kept, 220) % 150
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        theirs, ours = (getattr(each.replay_buffer, name) for each in (model, other))
        assert np.array_equal(ours[:kept], theirs[newest]), name
    assert (other.replay_buffer.pos, other.replay_buffer.full) == (kept % rows, kept == rows)
    continue_learning(other, 500)
    assert other.num_timesteps >= 500
