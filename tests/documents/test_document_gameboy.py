"""The Game Boy's document, sentence by sentence, for 32 GB of RAM and a GPU with 16 GB."""

from __future__ import annotations

import json
import sys

import pytest
from tests.cli.in_process import legroom
from tests.documents.asked import GIB, MIB, ROOM, bill, fitted, gib, predicted, ran

from legroom.reading import read

HARDWARE = ("--ram", "32GB", "--vram", "16GB")
ON_GPU = ("gameboy:default", *HARDWARE, "--mode", "trace")
FRAME = 144 * 160 * 3
CONSTANTS = """\
NUM_ENVS = 2
EP_LENGTH = 8192
FRAME_STACK_SIZE = 4
BATCH_SIZE = 2048
N_EPOCHS = 10
TOTAL_TIMESTEPS = 10_000_000
SAVE_FREQ = EP_LENGTH * 10
SAVE_REPLAY_BUFFER = True
"""
TRAIN = """\
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CallbackList, CheckpointCallback, EvalCallback
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack
from legroom_workloads.gameboy import GameBoyEnv

if __name__ == "__main__":
    env = VecFrameStack(SubprocVecEnv([GameBoyEnv] * 2), 4)
    checkpoint_callback = CheckpointCallback(save_freq=8192 * 10, save_path="models")
    eval_callback = EvalCallback(env, eval_freq=10_000)
    callback_list = CallbackList([checkpoint_callback])
    model = PPO("CnnPolicy", env, n_steps=8192, batch_size=2048, n_epochs=10)
    model.learn(10_000_000, callback=callback_list)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """What `legroom check` says of the document's constants, line breaks aside."""
    folder = tmp_path_factory.mktemp("gameboy")
    (folder / "constants.py").write_text(CONSTANTS)
    said = ran("check", "constants.py", "--like", "gameboy:default", *HARDWARE, "--all", code=1, cwd=folder)
    return " ".join(said.split())


@pytest.fixture(scope="module")
def checked_script(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gameboy")
    (folder / "train.py").write_text(TRAIN)
    return " ".join(ran("check", "train.py", *HARDWARE, code=1, cwd=folder).split())


# ---- the configuration


@pytest.mark.parametrize(
    ("says", "key", "value"),
    [
        ("NUM_ENVS = 2", "n_envs", 2),
        ("EP_LENGTH = 8192", "n_steps", 8192),
        ("FRAME_STACK_SIZE = 4", "frame_stack", 4),
        ("BATCH_SIZE = 2048", "batch_size", 2048),
        ("N_EPOCHS = 10", "n_epochs", 10),
        ("TOTAL_TIMESTEPS = 10_000_000", "total_timesteps", 10_000_000),
    ],
)
def test_constants_are_a_run(says, key, value, tmp_path):
    """Current Values"""
    (tmp_path / "constants.py").write_text(CONSTANTS)
    run = read(str(tmp_path / "constants.py"), like="gameboy:default")
    settings = {"n_envs": run.env.n_envs, "frame_stack": run.env.frame_stack, "total_timesteps": run.total_timesteps}
    assert (settings | run.hyperparams)[key] == value


# ---- host memory


@pytest.mark.parametrize(
    ("says", "nbytes", "shown"),
    [
        ("(144, 160, 3) = 69,120 bytes ≈ 67.5 KB per frame", FRAME, 67.5 * 1024),
        ("4 frames: 270 KB per observation", 4 * FRAME, 270 * 1024),
        ("Per environment buffer: ~2.2 GB per env", 8192 * 4 * FRAME, 2.11 * GIB),
        ("2 × 2.2 GB = ~4.4 GB RAM for observations", 2 * 8192 * 4 * FRAME, 4.22 * GIB),
        ("16,384 × 270 KB ≈ ~4.4 GB RAM", 16_384 * 276_480, 4.22 * GIB),
    ],
)
def test_observations_are_counted_right(says, nbytes, shown):
    """Observation Memory (RAM)"""
    assert nbytes == pytest.approx(shown, rel=0.002)
    assert bill(*ON_GPU)["rollout.observations"] == 16_384 * 4 * FRAME == 4_529_848_320


@pytest.mark.document_error
@pytest.mark.parametrize(
    "says", ["Observations: 4.4 GB + PPO Buffer: 4.4 GB", "4 frames × 270 KB = large observations"]
)
def test_the_buffer_is_the_observations_and_is_copied(says):
    """They are one array, stored once; what doubles it is the copy that SB3 makes for an update."""
    items = bill(*ON_GPU)
    assert gib(items["rollout.observations"] + items["rollout.flatten copy"]) == pytest.approx(8.44, abs=0.02)


@pytest.mark.document_error
def test_a_step_also_stores_advantage_return_and_start():
    """Per step stores: obs (270 KB), action (4B), reward (4B), value (4B), log_prob (4B)"""
    items = bill(*ON_GPU)
    assert items["rollout.actions"] == 16_384 * 8  # int64
    assert items["rollout.scalars"] == 16_384 * 6 * 4  # rewards, values, log-probabilities, returns, advantages, starts


@pytest.mark.parametrize("says", ["Python interpreter per subprocess: ~200-500 MB"])
def test_an_interpreter_that_imports_torch(says):
    """Environment Subprocess Memory (RAM)"""
    assert 200 < bill(*ON_GPU)["runtime.worker imports"] / 2 / 1e6 < 500


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "most_mb", "names"),
    [
        ("Each PyBoy instance: ~50-100 MB", 30, ("env.instance", "env.imports")),
        ("Per subprocess total: ~500 MB", 350, ("env.instance", "env.imports", "runtime.worker imports")),
    ],
)
def test_a_worker_is_lighter(says, most_mb, names):
    """Environment Subprocess Memory: per subprocess; NUM_ENVS = 2: ~1 GB"""
    assert 15 < sum(bill(*ON_GPU)[name] for name in names) / 2 / 1e6 < most_mb


@pytest.mark.document_error
def test_two_workers_are_not_a_gb():
    """NUM_ENVS = 2: 2 × 500 MB = ~1 GB RAM"""
    items = predicted(*ON_GPU)["items"]
    assert 0.5e9 < sum(item["count"] * item["nbytes"] for item in items if item["place"] == "worker") < 0.7e9


@pytest.mark.document_error
@pytest.mark.parametrize("says", ["PyTorch base: ~1-2 GB RAM", "Python/PyTorch: 1.5 GB (Python overhead: ~500 MB)"])
def test_the_libraries_take_half_a_gb(says):
    """Python/PyTorch Overhead"""
    assert 0.4e9 < bill(*ON_GPU)["runtime.base"] < 0.7e9


@pytest.mark.document_error
def test_the_total_is_one_buffer_less_and_one_copy_more():
    """TOTAL: ~11.3 GB RAM"""
    low, high = predicted(*ON_GPU)["host"]["band"]
    assert 9.2 * GIB < low < high < 10 * GIB


@pytest.mark.parametrize("says", ["~11.3 GB RAM (Well within 32GB)", "~2-3 GB VRAM (Well within 16GB)"])
def test_it_fits_the_documents_hardware(says):
    """Hardware: 32GB RAM, 16GB VRAM"""
    assert predicted(*ON_GPU)["fits"] is True


# ---- GPU memory


def test_a_batch_is_540_mb():
    """Batch size 2048: Each batch = 2048 × 270 KB = ~540 MB per batch"""
    assert bill(*ON_GPU)["gpu.batch"] == pytest.approx(2048 * 4 * FRAME, rel=0.002) and 2048 * 270 / 1024 == 540


@pytest.mark.document_error
def test_the_model_is_28_mib():
    """Model weights (CNN): ~5-10 MB"""
    features = 64 * 14 * 16  # 144×160 through kernels 8, 4, 3 and strides 4, 2, 1
    convolutions = (12 * 32 * 64 + 32) + (32 * 64 * 16 + 64) + (64 * 64 * 9 + 64)
    parameters = convolutions + (features * 512 + 512) + (512 * 6 + 6) + (512 + 1)
    rounded = 384 + 256 + 256 + 488 + 508  # biases of 32, 64, 64, 6 and 1 numbers take 512 B each
    assert bill(*ON_GPU)["gpu.weights"] == parameters * 4 + rounded and round(parameters * 4 / MIB, 1) == 28.4


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "least", "most"),
    [("With gradients: ~1-1.5 GB per batch", 4.5, 5.5), ("Model + batch + gradients = ~2-3 GB VRAM", 7, 8)],
)
def test_the_update_takes_three_times_that(says, least, most):
    """VRAM Usage (GPU): allocated by tensors, and in all with cache and context"""
    gpu = predicted(*ON_GPU)["gpu"]
    assert gpu["allocator"]["peak_allocated"] == 5_232_927_232  # as recorded on the real allocator
    assert least * GIB < (gpu["peak"] if most == 8 else gpu["allocator"]["peak_allocated"]) < most * GIB


# ---- issues


@pytest.mark.document_error
def test_the_batch_is_smaller_than_the_buffer(checked):
    """CRITICAL: BATCH_SIZE > BUFFER SIZE"""
    assert "batch_size 2,048: at most the 16,384 samples of a rollout" in checked and "0 errors" in checked


@pytest.mark.parametrize(
    ("says", "what"),
    [
        ("Collected: EP_LENGTH × NUM_ENVS = 8192 × 2 = 16,384 samples", "samples per iteration 16,384"),
        ("Batches per update: 16,384 / 2048 = 8 batches", "8 minibatches per epoch"),
        ("Total updates per PPO step: 10 × 8 = 80 batch updates", "80 updates per iteration"),
        ("Timesteps per iteration: EP_LENGTH × NUM_ENVS = 16,384", "10,000,000 steps / 16,384 per iteration"),
        ("Frame Stacking Memory: could be reduced if needed", "4.22 GiB, of which 1.05 GiB are different frames"),
        ("WARNING: NUM_ENVS Too Low for Hardware", "LR024 under-used-machine"),
        ("Adjust N_EPOCHS (10 may be high)", "n_epochs 10: costs time, not memory"),
    ],
)
def test_check_says_the_same(says, what, checked):
    """Issues Found, Logic Checks"""
    assert what in checked


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "what"),
    [
        ("Total iterations: 10,000,000 / 16,384 ≈ 610 iterations", "SB3 runs 611 iterations, 10,010,624 steps"),
        ("SAVE_FREQ: Saves every ~5 iterations", "163,840 environment steps = every 10 iterations, not 5"),
        ("SAVE_REPLAY_BUFFER = True keeps buffer in memory longer", "save_replay_buffer has no effect with PPO"),
        ("Adds ~4.4 GB memory overhead: set to False", "it costs neither memory nor time"),
        ("Current usage: 35% RAM utilization", "32% of 29.8 GiB of RAM (given)"),
    ],
)
def test_check_says_what_is_right(says, what, checked):
    """Issues Found, Logic Checks"""
    assert what in checked


@pytest.mark.parametrize("says", ["`EvalCallback` is created but NOT added to callback_list!", "Add EvalCallback"])
def test_the_unused_callback_is_found(says, checked_script):
    """Priority 1: Add EvalCallback to callback list (currently missing!)"""
    assert "LR050 callback-not-used eval_callback (EvalCallback) is created but never passed" in checked_script


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "envs", "fits"),
    [
        ("could easily handle 4-8 environments", 8, False),
        ("Increase to 4-6 environments for better parallelization", 6, True),
    ],
)
def test_each_environment_adds_its_rollout_and_its_copy(says, envs, fits):
    """With 32GB RAM"""
    more = predicted("gameboy:default", *HARDWARE, "--set", f"n_envs={envs}")
    two = predicted("gameboy:default", *HARDWARE)
    assert more["fits"] is fits
    each = (more["host"]["peak"] - two["host"]["peak"]) / (envs - 2)
    assert each == pytest.approx(2 * 8192 * 4 * FRAME + 0.3 * GIB, rel=0.05)  # 4.5 GiB, a process with torch among it


# ---- recommendations


@pytest.mark.parametrize(
    ("says", "setting", "name", "factor"),
    [
        ("Reduce EP_LENGTH to match actual episode length (~1000-2000)", "n_steps=2048", "rollout.observations", 1 / 4),
        ("Consider reducing BATCH_SIZE to 1024 if memory issues occur", "batch_size=1024", "gpu.activations", 1 / 2),
    ],
)
def test_what_is_recommended_saves(says, setting, name, factor):
    """Priority 2: Optimize Configuration"""
    before, after = bill("gameboy:default", *HARDWARE), bill("gameboy:default", *HARDWARE, "--set", setting)
    assert after[name] == pytest.approx(before[name] * factor, rel=0.01)


def test_gradients_can_be_accumulated():
    """Consider gradient accumulation if batch size is too small"""
    plan = fitted("gameboy:default", "--vram", "4GiB", *ROOM)
    assert plan["fits"] is True and "memory.micro_batch" in {knob["name"] for knob in plan["knobs"]}


def test_actual_memory_is_monitored(tmp_path):
    """Monitor actual memory usage during training"""
    ran("watch", "--out", tmp_path, "--", sys.executable, "-c", "import time; time.sleep(0.5)")
    assert json.loads((tmp_path / "watch.json").read_text())["peak"]["host"] > 0


LOOP = """\
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack
from legroom_workloads.gameboy import GameBoyEnv

EP_LENGTH, NUM_ENVS, TOTAL_TIMESTEPS = 8192, 2, 10_000_000

if __name__ == "__main__":
    env = VecFrameStack(SubprocVecEnv([GameBoyEnv] * NUM_ENVS), 4)
    model = PPO("CnnPolicy", env, n_steps=EP_LENGTH, batch_size=2048, n_epochs=10)
    for _ in range(TOTAL_TIMESTEPS // (EP_LENGTH * NUM_ENVS)):
        env.reset()
        model.learn(EP_LENGTH * NUM_ENVS, reset_num_timesteps=False)
"""


@pytest.mark.document_error
def test_a_reset_between_calls_of_learn_is_not_seen_by_sb3(tmp_path):
    """Reset happens correctly: `env.reset()` called each iteration ✅"""
    (tmp_path / "train.py").write_text(LOOP)
    said = " ".join(legroom("check", "train.py", *HARDWARE, cwd=tmp_path).stdout.split())
    assert "LR102 reset-not-seen" in said and "SB3 goes on from the observation that it kept (_last_obs)" in said


def test_iterations_of_a_loop_are_counted(tmp_path):
    """Total iterations: 10,000,000 / 16,384"""
    (tmp_path / "train.py").write_text(LOOP)
    said = " ".join(legroom("check", "train.py", *HARDWARE, "--all", cwd=tmp_path).stdout.split())
    assert "iterations 610" in said  # 610 × 16,384 = 9,994,240


@pytest.mark.document_error
def test_a_rollout_need_not_end_with_an_episode():
    """EP_LENGTH Mismatch with Episode Length: 8192 steps ≈ 16-80 fights per episode"""
    assert (8192 // 500, 8192 // 100) == (16, 81)
    asked = ("predict", "gameboy:default", *HARDWARE, "--mode", "trace")
    assert "a rollout of 8,192 steps holds several episodes" in " ".join(ran(*asked).split())
