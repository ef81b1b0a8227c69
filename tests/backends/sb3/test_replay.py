"""If these fail, a replay buffer that fills up hours later takes its user by surprise."""

import subprocess
import sys

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.buffers import checkpoint_items, replay_items
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known, Phase
from legroom.model.machine import Machine
from legroom.model.run import Run

PIXELS = {"type": "box", "shape": [84, 84, 4], "dtype": "uint8"}
VECTOR = {"type": "box", "shape": [376]}
EVIDENCE = Evidence(
    Machine(ram=1, limit=None, available=1, swap=0, shm=0), "cpu", BaseFigures(0, 0, 0, {}, Known.DEFAULT)
)


def make(algo, observation, action, *, steps=None, memory=None, checkpoint=None, n_envs=1, **hyperparams):
    return Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": {"observation": observation, "action": action}, "n_envs": n_envs},
            "hyperparams": hyperparams,
            "total_timesteps": steps,
            "memory": memory or {},
            "checkpoint": checkpoint,
        }
    )


def items(*args, **kwargs):
    return {item.name: item for item in replay_items(make(*args, **kwargs), EVIDENCE)}


def test_atari_of_a_million_transitions():
    found = items("DQN", PIXELS, {"type": "discrete", "n": 6}, buffer_size=1_000_000)
    frame = 84 * 84 * 4
    assert found["replay.observations"].nbytes == found["replay.next_observations"].nbytes == 1_000_000 * frame
    assert found["replay.actions"].nbytes == 8_000_000  # int64
    assert [found[f"replay.{name}"].nbytes for name in ("rewards", "dones", "timeouts")] == [4_000_000] * 3
    assert "when full" in found["replay.observations"].why


def test_it_is_small_at_the_start():
    found = items("DQN", PIXELS, {"type": "discrete", "n": 6}, buffer_size=1_000_000, n_envs=2)
    first = found["replay.at start"]
    assert first.phases == (Phase.START,)
    assert first.nbytes == 2 * (2 * 84 * 84 * 4 + 8 + 3 * 4)
    assert Phase.START not in found["replay.observations"].phases


def test_rows_are_whole():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1_000_000, n_envs=3)
    assert found["replay.rewards"].nbytes == 999_999 * 4
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=10, n_envs=64)
    assert found["replay.rewards"].nbytes == 64 * 4


def test_a_run_that_ends_early_fills_only_a_part():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1_000_000, n_envs=3, steps=1_000)
    assert found["replay.observations"].nbytes == 334 * 3 * 376 * 4  # 1000 / 3 steps, rounded up
    assert "ends after 334 of 333,333 rows" in found["replay.observations"].why


def test_float64_actions_are_kept_as_float32():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6], "dtype": "float64"}, buffer_size=1000)
    assert found["replay.actions"].nbytes == 1000 * 6 * 4


def test_sharing_observations_halves_them():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1000, optimize_memory_usage=True)
    assert "replay.next_observations" not in found


def test_lean_replay_shares_the_next_observation():
    found = items("SAC", VECTOR, {"type": "box", "shape": [6]}, buffer_size=1000, memory={"replay": "lean"})
    assert "replay.next_observations" not in found
    # segments of 64 rows: one more than the ring needs, and 17 stores; each row with its number and version
    assert found["replay.observations"].nbytes == int(1064 * (376 * 4 * 1.03 + 16) + 376 * 4 + 17 * 8192)
    assert found["replay.actions"].nbytes == 1000 * 6 * 4
    assert [found[f"replay.{name}"].nbytes for name in ("rewards", "dones, timeouts")] == [4000, 1000]


def test_lean_replay_keeps_small_observations_plainly():
    vector = {"type": "box", "shape": [6]}  # 24 bytes
    found = items("SAC", vector, {"type": "box", "shape": [1]}, buffer_size=1000, memory={"replay": "lean"})
    assert found["replay.observations"].nbytes == found["replay.next_observations"].nbytes == 24_000


def test_pickling_a_replay_buffer_copies_nothing():
    run = make("DQN", PIXELS, {"type": "discrete", "n": 6}, steps=100, buffer_size=10_000,
               checkpoint={"replay_buffer": True})  # fmt: skip
    assert "checkpoint.replay buffer" not in {item.name for item in checkpoint_items(run, EVIDENCE)}


SAVING = """
import gymnasium, numpy, sys
from pathlib import Path
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.save_util import save_to_pkl

def peak():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) * 1024

space = gymnasium.spaces.Box(0, 255, (1_000_000,), numpy.uint8)
buffer = ReplayBuffer(64, space, gymnasium.spaces.Discrete(2), optimize_memory_usage=True,
                      handle_timeout_termination=False)
buffer.observations[:] = 1
before = peak()
save_to_pkl(sys.argv[1], buffer)
print(peak() - before)
"""


def test_sb3_itself_copies_nothing_when_it_saves_a_buffer(tmp_path):
    said = subprocess.run(
        [sys.executable, "-c", SAVING, tmp_path / "buffer.pkl"], capture_output=True, check=True, text=True
    )
    assert int(said.stdout) < 20_000_000  # of 64 MB
    assert (tmp_path / "buffer.pkl").stat().st_size > 64_000_000


GOALS = {"type": "dict", "spaces": {"observation": {"type": "box", "shape": [6]},
         "achieved_goal": {"type": "box", "shape": [3]}, "desired_goal": {"type": "box", "shape": [3]}}}  # fmt: skip


def test_hindsight_makes_a_dict_per_transition_before_anything_is_stored():
    found = items("SAC", GOALS, {"type": "box", "shape": [2]}, steps=1000, buffer_size=1_000_000,
                  replay_buffer_class="HerReplayBuffer")  # fmt: skip
    assert found["replay.infos (HER)"].nbytes == 1_000_000 * (64 + 8)
    assert Phase.START in found["replay.infos (HER)"].phases
    # a list of four places per row, of which later objects take 29 MB
    assert found["replay.gaps (HER)"].nbytes == 1_000_000 * (64 + 4 * 8) - 29_000_000
    four = items("SAC", GOALS, {"type": "box", "shape": [2]}, n_envs=4, buffer_size=1_000_000,
                 replay_buffer_class="HerReplayBuffer")  # fmt: skip
    assert four["replay.infos (HER)"].nbytes == 1_000_000 * (64 + 8)
    assert four["replay.gaps (HER)"].nbytes == 0  # 24 MB, all of it used again
    assert four["replay.gaps (HER)"].error == 12_000_000
    plain = items("SAC", GOALS, {"type": "box", "shape": [2]}, buffer_size=1_000_000)
    assert not [name for name in plain if "HER" in name]


def test_the_dicts_of_hindsight_take_what_the_bill_says():
    code = """
import numpy
from pathlib import Path
def now():  # what is not of files: pages of NumPy's libraries come when they come
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
numpy.array([[{}]])
before = now()
infos = numpy.array([[{} for _ in range(ENVS)] for _ in range(ROWS)])
print(now() - before)
"""
    for rows, envs, each in ((400_000, 1, 168), (100_000, 4, 96), (25_000, 16, 84)):
        text = code.replace("ENVS", str(envs)).replace("ROWS", str(rows))
        said = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True)
        assert abs(int(said.stdout) / (rows * envs * each) - 1) < 0.1  # Python asks for a MiB at a time


def test_a_pickler_remembers_the_dicts_of_hindsight():
    run = make("SAC", GOALS, {"type": "box", "shape": [2]}, buffer_size=1_000_000, checkpoint={"replay_buffer": True},
               replay_buffer_class="HerReplayBuffer")  # fmt: skip
    found = {item.name: item for item in checkpoint_items(run, EVIDENCE)}
    assert found["checkpoint.replay buffer"].nbytes == 64_000_000


def test_pickling_a_lean_replay_buffer_takes_what_it_stores_once_more():
    run = make("DQN", PIXELS, {"type": "discrete", "n": 6}, steps=100, buffer_size=10_000,
               checkpoint={"replay_buffer": True}, memory={"replay": "lean"})  # fmt: skip
    stored = {item.name: item for item in replay_items(run, EVIDENCE)}["replay.observations"].nbytes
    found = {item.name: item for item in checkpoint_items(run, EVIDENCE)}
    assert found["checkpoint.replay buffer"].nbytes == stored < 10_000 * 84 * 84 * 4
