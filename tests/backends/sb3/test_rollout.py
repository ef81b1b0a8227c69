"""If these fail, `legroom predict` gives the wrong size of an on-policy run's largest block."""

import pytest

from legroom.backends.sb3.base_figures import BaseFigures
from legroom.backends.sb3.bill.buffers import rollout_items
from legroom.model.evidence import Evidence
from legroom.model.footprint import Known, Phase
from legroom.model.machine import Machine
from legroom.model.run import Run

GIB = 1 << 30
MINE = {"type": "box", "shape": [17, 49, 71, 58], "dtype": "float32"}
SCREEN = {"type": "box", "shape": [144, 160, 3], "dtype": "uint8"}


def evidence(sb3="2.9.2"):
    base = BaseFigures(0, 0, 0, {"trainer": 0}, Known.DEFAULT)
    machine = Machine(ram=1, limit=None, available=1, swap=0, shm=0)
    return Evidence(machine, "cpu", base, library_versions={"stable-baselines3": sb3})


def items(algo, observation, action, *, sb3="2.9.2", policy=None, memory=None, n_steps=2048, **env):
    run = Run.model_validate(
        {
            "algo": algo,
            "env": {"spaces": {"observation": observation, "action": action}, **env},
            "policy": policy or {},
            "hyperparams": {"n_steps": n_steps},
            "memory": memory or {},
        }
    )
    return {item.name: item for item in rollout_items(run, evidence(sb3))}


def test_the_mine_stores_105_GiB_and_needs_them_twice():
    found = items("MaskablePPO", MINE, {"type": "discrete", "n": 3479}, n_envs=4)
    stored = 2048 * 4 * 17 * 49 * 71 * 58 * 4  # 112,402,882,…: 104.68 GiB
    assert found["rollout.observations"].nbytes == stored
    assert stored / GIB == pytest.approx(104.68, abs=0.01)
    assert found["rollout.flatten copy"].nbytes == stored
    assert found["rollout.action masks"].nbytes == 2048 * 4 * 3479 * 4  # 114 MB of float32
    assert found["rollout.scalars"].nbytes == 2048 * 4 * 6 * 4


def test_pixels_are_stored_as_uint8_since_SB3_2_7_1_and_as_float32_before():
    new = items("PPO", SCREEN, {"type": "discrete", "n": 6}, n_steps=8192, n_envs=2, frame_stack=4)
    old = items("PPO", SCREEN, {"type": "discrete", "n": 6}, n_steps=8192, n_envs=2, frame_stack=4, sb3="2.7.0")
    assert new["rollout.observations"].nbytes == 8192 * 2 * 12 * 144 * 160  # 4.22 GiB
    assert new["rollout.observations"].nbytes / GIB == pytest.approx(4.22, abs=0.01)
    assert old["rollout.observations"].nbytes == 4 * new["rollout.observations"].nbytes  # 16.9 GiB
    assert new["rollout.actions"].nbytes == 8192 * 2 * 8  # int64
    assert old["rollout.actions"].nbytes == 8192 * 2 * 4


def test_one_environment_is_flattened_without_a_copy():
    assert "rollout.flatten copy" not in items("PPO", MINE, {"type": "discrete", "n": 4}, n_envs=1)
    assert "rollout.flatten copy" not in items("A2C", MINE, {"type": "discrete", "n": 4}, n_envs=4, n_steps=1)


def test_a_dict_is_copied_key_by_key():
    both = {"type": "dict", "spaces": {"image": SCREEN, "vector": {"type": "box", "shape": [10]}}}
    found = items("PPO", both, {"type": "discrete", "n": 4}, n_envs=2, n_steps=100)
    assert found["rollout.observations[image]"].nbytes == 100 * 2 * 3 * 144 * 160
    assert found["rollout.observations[vector]"].nbytes == 100 * 2 * 40
    assert found["rollout.flatten copy"].nbytes == 100 * 2 * 3 * 144 * 160  # the largest key only


def test_the_copy_is_over_before_the_first_minibatch():
    found = items("PPO", MINE, {"type": "discrete", "n": 4}, n_envs=4)
    assert found["rollout.flatten copy"].phases == (Phase.COLLECT,)
    assert Phase.START not in found["rollout.observations"].phases  # np.zeros pages are not resident yet


def test_recurrent_runs_keep_four_lstm_states_per_step():
    vector = {"type": "box", "shape": [10]}
    found = items("RecurrentPPO", vector, {"type": "discrete", "n": 4}, n_envs=4, n_steps=128,
                  policy={"name": "MlpLstmPolicy", "kwargs": {"lstm_hidden_size": 64, "n_lstm_layers": 2}})  # fmt: skip
    assert found["rollout.lstm states"].nbytes == 128 * 4 * 4 * 2 * 64 * 4


def test_normalized_pixels_become_float32():
    found = items("PPO", SCREEN, {"type": "discrete", "n": 4}, n_envs=2, n_steps=10, normalize=True)
    assert found["rollout.observations"].nbytes == 10 * 2 * 3 * 144 * 160 * 4


def test_lean_storage_needs_no_copy_and_each_frame_once():
    lean = items("PPO", SCREEN, {"type": "discrete", "n": 6}, n_steps=100, n_envs=2, frame_stack=4,
                 memory={"rollout": "lean"})  # fmt: skip
    frame = 144 * 160 * 3
    # a number of 4 bytes and a version of up to 12 per row; the last observation and frame of each env; an empty store,
    # and up to a huge page of 2 MiB that is not full
    at_most = 100 * 2 * (frame * 1.03 + 4 + 12) + 2 * (4 * frame + frame) + 8192 + (2 << 20)
    assert lean["rollout.observations"].nbytes == int(at_most)
    assert lean["rollout.observations"].why.startswith("at most")
    assert lean["rollout.flatten copy"].nbytes == 100 * 2 * 8  # of the actions: the largest of what is left


def test_lean_storage_keeps_small_observations_plainly_and_masks_as_bits():
    vector = {"type": "box", "shape": [128]}  # 512 bytes
    found = items("MaskablePPO", vector, {"type": "discrete", "n": 3479}, n_envs=4, memory={"rollout": "lean"})
    assert found["rollout.observations"].nbytes == 2048 * 4 * 512
    assert found["rollout.flatten copy"].nbytes == 2048 * 4 * 512  # which SB3 still copies
    assert found["rollout.action masks"].nbytes == 2048 * 4 * 435  # 3479 bits in 435 bytes
    larger = {"type": "box", "shape": [129]}
    found = items("MaskablePPO", larger, {"type": "discrete", "n": 3479}, n_envs=4, memory={"rollout": "lean"})
    assert found["rollout.observations"].why.startswith("at most")


def test_other_families_have_no_rollout():
    run = Run.model_validate(
        {"algo": "DQN", "env": {"spaces": {"observation": SCREEN, "action": {"type": "discrete", "n": 2}}}}
    )
    assert not list(rollout_items(run, evidence()))
