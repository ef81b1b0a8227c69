"""What users were told about their trainings, and what is true: the check must say the latter, with the numbers."""

from dataclasses import replace
from pathlib import Path

import pytest

from legroom.checking.check import check
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.predicting.predict import predict
from legroom.reading import read
from legroom.reading.reading_notes import collected_notes
from legroom.units import GIB

CONFIGS = Path(__file__).parent / "configs"
MACHINE = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={"stable-baselines3": "2.9.2"})
TRAIN = """\
import gymnasium as gym
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack
from constants import BATCH_SIZE, EP_LENGTH, FRAME_STACK_SIZE, N_EPOCHS, NUM_ENVS, SAVE_FREQ, SAVE_REPLAY_BUFFER


class Fighter(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (144, 160, 3), dtype=np.uint8)
    action_space = gym.spaces.Discrete(6)


env = VecFrameStack(SubprocVecEnv([lambda: Fighter() for _ in range(NUM_ENVS)]), FRAME_STACK_SIZE)
keep = CheckpointCallback(save_freq=%s, save_path="models", save_replay_buffer=SAVE_REPLAY_BUFFER)
model = PPO("CnnPolicy", env, n_steps=EP_LENGTH, batch_size=BATCH_SIZE, n_epochs=N_EPOCHS)
model.learn(10_000_000, callback=keep)
"""


def look(path, machine=MACHINE, **options):
    budget = Budget(32 * GIB, 16 * GIB, ram_origin="given", vram_origin="given")
    (checked,) = check([str(path)], machine=machine, budget=budget, **options)
    return checked


def by_name(checked):
    return {finding.name: finding for finding in checked.findings}


@pytest.fixture
def gameboy():
    return look(CONFIGS / "gameboy_constants.py", like="gameboy:default")


def test_the_batch_that_was_called_critical_is_fine(gameboy):
    fine = dict(gameboy.fine)["batch_size 2,048"]
    assert "16,384 samples" in fine and "8 minibatches per epoch" in fine and "80 updates per iteration" in fine
    assert not {"minibatch-exceeds-rollout", "minibatch-does-not-divide"} & set(by_name(gameboy))


def test_the_replay_buffer_of_ppo_is_no_memory_and_no_buffer(gameboy):
    found = by_name(gameboy)["no-effect"]
    assert (found.line, found.severity) == (10, "warning")
    assert "costs neither memory" in found.message
    assert found.fix is not None and found.fix["text"] == "False"


def test_checkpoints_come_every_10_iterations_not_5(gameboy):
    found = by_name(gameboy)["frequency-in-vec-steps"]
    assert found.line == 9
    assert "every 163,840 environment steps = every 10 iterations, not 5" in found.message


def test_611_iterations_run(gameboy):
    assert "610.35: SB3 runs 611 iterations, 10,010,624 steps" in by_name(gameboy)["timesteps-not-multiple"].message
    (totals,) = gameboy.totals
    assert (totals.iterations, totals.steps, totals.updates, totals.samples) == (611, 10_010_624, 80, 16_384)


def test_the_rollout_is_4_22_gib_stored_and_8_44_at_the_copy(gameboy):
    (totals,) = gameboy.totals
    observations = 8192 * 2 * 144 * 160 * 12
    assert totals.stored == observations + 8192 * 2 * (8 + 24)  # an int64 action and six float32 scalars per step
    assert totals.flattened == totals.stored + observations
    assert f"{totals.stored / GIB:.2f} {totals.flattened / GIB:.2f}" == "4.22 8.44"


def test_the_machine_is_under_used_and_nothing_is_said_about_unknown_episodes(gameboy):
    found = by_name(gameboy)
    assert found["under-used-machine"].severity == "info"
    assert "episode-shorter-than-rollout" not in found


def test_nothing_else_is_an_error_or_a_warning(gameboy):
    assert [f.name for f in gameboy.findings if f.severity != "info"] == ["no-effect"]


def test_an_old_sb3_makes_it_four_times_as_much(tmp_path):
    (tmp_path / "constants.py").write_text((CONFIGS / "gameboy_constants.py").read_text())
    old = replace(MACHINE, versions={"stable-baselines3": "2.3.2"})
    found = by_name(look(tmp_path / "constants.py", machine=old, like="gameboy:default"))
    assert "4.22 GiB → 16.88 GiB stored (4×), 33.75 GiB at the flatten copy" in found["float32-rollout"].message
    assert found["flatten-copy-exceeds-ram"].severity == "error"  # of 32 GiB


def test_mine_full_dies_and_says_of_what():
    found = by_name(look("mine:full"))["rollout-exceeds-ram"]
    assert found.severity == "error"
    assert "2,048 steps × 4 envs are 104.8 GiB" in found.message and "209.5 GiB when flattened" in found.message


def test_simulations_and_replay_do_not_touch_the_gpu():
    budget = Budget(32 * GIB, int(3.68 * GIB), ram_origin="given", vram_origin="given")
    (checked,) = check(["fire:original"], machine=MACHINE, budget=budget)
    told = [f for f in checked.findings if f.name == "no-effect"]
    assert "vram-exceeded" in by_name(checked)
    assert {f.message.partition(" ")[0] for f in told} == {"buffer_size", "sims"}
    assert {f.severity for f in told} == {"info"}


@pytest.mark.parametrize("section", ["ppo", "training"])
@pytest.mark.parametrize(
    ("envs", "batch", "minibatches", "breaks"),
    [(512, 128, 2, True), (1536, 384, 6, True), (1024, 128, 4, True), (1024, 256, 4, False), (2048, 512, 8, False)],
)
def test_tiers_that_break_the_rule_of_brax_are_named(tmp_path, section, envs, batch, minibatches, breaks):
    lines = [f"{section}:", f"  num_envs: {envs}", f"  batch_size: {batch}", "  unroll_length: 10"]
    file = tmp_path / "tier.yaml"
    file.write_text("\n".join([*lines, f"  num_minibatches: {minibatches}", ""]))
    # a section called training is anyone's: then it takes a run of brax to know that it is brax's
    checked = look(file, like="robot:default" if section == "training" else None)
    found = by_name(checked).get("brax-divisibility")
    assert (found is not None) is (batch * minibatches % envs != 0) is breaks
    if found is not None:
        assert found.severity == "error" and found.line == 5
        assert f"{batch} × {minibatches} = {batch * minibatches} is not a multiple of {envs}" in found.message


def test_a_program_of_its_own_that_runs_out_of_gpu_memory_is_told_what_does_not_help(tmp_path):
    file = tmp_path / "Train.py"
    file.write_text("import torch\nN_ENVS = 16\nBATCH_SIZE = 32\nBUFFER_CAP = 100_000\nSIMS = 25\n")
    budget = Budget(64 * GIB, 2 * GIB, ram_origin="given", vram_origin="given")
    (checked,) = check([str(file)], machine=MACHINE, budget=budget, like="fire:original")
    told = {f.line: f.message for f in checked.findings if f.name == "no-effect"}
    assert told[4].startswith("buffer_size does not touch GPU memory") and "host memory" in told[4]
    assert told[5].startswith("sims does not touch GPU memory") and "works on the host" in told[5]


DOCUMENTS = {
    "mine:full": (
        "train.yaml",
        "training:\n  algorithm: MaskablePPO\n  hyperparameters: {n_steps: 2048, batch_size: 64, n_epochs: 10}\n"
        "  feature_extractor: {type: CNN3D}\nlogging: {level: INFO}\n",
        {"n_steps": 2048, "batch_size": 64},
    ),
    "fire:low": ("Train.py", "import torch\nN_ENVS = 8\nBATCH_SIZE = 16\nSIMS = 15\n", {"batch_size": 16}),
    "gameboy:default": ("constants.py", (CONFIGS / "gameboy_constants.py").read_text(), {"n_steps": 8192}),
    "robot:default": (
        "default.yaml",
        "training: {num_envs: 1024, batch_size: 256, unroll_length: 10, num_minibatches: 4}\n",
        {"batch_size": 256, "unroll_length": 10},
    ),
}


@pytest.mark.parametrize("like", DOCUMENTS)
def test_files_of_the_documents_get_a_bill_and_say_what_was_filled(tmp_path, like):
    name, text, expected = DOCUMENTS[like]
    (tmp_path / name).write_text(text)
    with collected_notes() as notes:
        run = read(str(tmp_path / name), like=like)
    assert {key: run.hyperparams[key] for key in expected} == expected
    assert any(note.startswith(f"taken from {like}") and "the environment (" in note for note in notes)
    assert predict(run, MACHINE, mode="arithmetic", device="cpu").host.nbytes > 0
