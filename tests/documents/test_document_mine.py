"""The mine's document, sentence by sentence: what it promises works here, and what it has wrong is shown right."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
from tests.documents.asked import GIB, MIB, bill, fitted, gib, of_program, predicted, ran

from legroom.reading import read
from legroom_workloads.mine.layers import SIZES

FULL, CHANNELS = 49 * 71 * 58, 17
REFUSED = "Unable to allocate 105. GiB for an array with shape (2048, 4, 17, 49, 71, 58) and data type float32"
ROWS = ("mine:full", "mine:memory_optimized", "mine:ultra_light", "mine:small")
HEADER = "x,y,z,cu,mo,as,clays,bwi,rec,ton,chalcocite,bornite,chalcopyrite,tennantite,molibdenite,pyrite"


@pytest.fixture(scope="session")
def sample_model(tmp_path_factory):
    """A block model of the size of the document's: 49×71×58 blocks of 20×20×15 m."""
    file = tmp_path_factory.mktemp("mine") / "sample_model.csv"
    centres = np.indices((49, 71, 58)).reshape(3, -1).T * (20, 20, 15) + (10, 10, 7.5)
    rest = ",0.5,0.01,0,1,12,85,15000,1,1,1,0,0,2\n"
    file.write_text(HEADER + "\n" + "".join(f"{x},{y},{z}{rest}" for x, y, z in centres.tolist()))
    return file


def stored(*words):
    return bill(*words)["rollout.observations"]


# ---- the problem


def test_the_error_is_explained():
    """Training failed with error: Unable to allocate 105. GiB for an array with shape (2048, 4, 17, 49, 71, 58)"""
    said = ran("explain", stdin=f"❌ Training failed with error: {REFUSED}\n")
    assert "one array of 105.0 GiB" in said and "memory.rollout=lean" in said
    assert stored("mine:full") == 2048 * 4 * CHANNELS * FULL * 4 == 112_403_873_792 and gib(112_403_873_792) == 104.68


def test_the_program_that_catches_its_error_does_not_fit(tmp_path):
    """❌ Training failed with error: Unable to allocate 105. GiB"""
    (tmp_path / "train_model.py").write_text(
        "import sys\nimport numpy as np\ntry:\n    np.zeros((2048, 4, 17, 49, 71, 58), 'f4')\n"
        "except Exception as error:\n    print('Training failed with error:', error)\n    sys.exit(1)\n"
    )
    said = of_program("predict", "--ram", "16GiB", "--", sys.executable, "train_model.py", cwd=tmp_path, code=1)
    assert "Does not fit" in said and "train_model.py:4" in said and "104.7 GiB" in said


@pytest.mark.document_error
def test_the_default_needs_twice_its_rollout():
    """**Memory**: ~80-230 GB RAM"""
    items = bill("mine:full")
    assert items["rollout.flatten copy"] == pytest.approx(items["rollout.observations"], rel=0.01)  # SB3 copies it
    assert 209 < predicted("mine:full")["host"]["peak"] / GIB < 213


@pytest.mark.document_error
def test_2048_are_the_steps_and_the_batch_is_64():
    """**Batch size**: 2048 steps × 4 environments × 17 channels × 49×71×58 spatial dimensions"""
    run = read("mine:full")
    assert run.env.spaces.observation.shape == (17, 49, 71, 58) and run.env.n_envs == 4
    assert (run.hyperparams["n_steps"], run.hyperparams["batch_size"]) == (2048, 64)


def test_the_full_network_is_the_documents():
    """**Model complexity**: Large 3D CNN with 128+ channels"""
    assert read("mine:full").policy.features_extractor_kwargs == {"size": "full"}
    assert max(layer[0] for layer in SIZES["full"].layers) == 128


# ---- the configurations: memory, whom they are for, what they change


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "run", "wide", "with_the_data", "with_its_grid"),
    [
        ("Memory Optimized (4.3 GB)", "mine:memory_optimized", (512, 2, 50 * 50 * 30), 13.09, 4.86),
        ("Ultra Light (0.02 GB)", "mine:ultra_light", (128, 1, 20 * 20 * 10), 1.64, 0.03),
        ("Small (Testing - 0.01 GB)", "mine:small", (128, 2, 10 * 10 * 5), 3.27, 0.01),
        ("| Full | 228.88 | 100×100×50 |", "mine:full", (2048, 4, 100 * 100 * 50), 104.68, 104.68),
        ("| Memory Opt. | 4.29 | 50×50×30 |", "mine:memory_optimized", (512, 2, 50 * 50 * 30), 13.09, 4.86),
        ("| Ultra Light | 0.02 | 20×20×10 |", "mine:ultra_light", (128, 1, 20 * 20 * 10), 1.64, 0.03),
        ("| Small | 0.01 | 10×10×5 |", "mine:small", (128, 2, 10 * 10 * 5), 3.27, 0.01),
    ],
)
def test_the_data_decides_the_grid_and_17_channels_count(says, run, wide, with_the_data, with_its_grid, sample_model):
    """A configuration's grid is ignored where a CSV is loaded, and the figures count 15 of 17 channels."""
    steps, envs, cells = wide
    asked = ("--data", str(sample_model), "--set", "env.grid=data")
    assert gib(stored(run, *asked)) == gib(steps * envs * CHANNELS * FULL * 4) == with_the_data
    assert gib(stored(run)) == with_its_grid
    if run != "mine:full":  # whose own grid is the data's: 100×100×50 would be 259.40 GiB, 228.88 with 15 channels
        assert stored(run) == steps * envs * CHANNELS * cells * 4
    assert gib(2048 * 4 * 15 * 500_000 * 4) == 228.88 and gib(2048 * 4 * 17 * 500_000 * 4) == 259.4
    # none of it is what the process needs, which also has its libraries, the copy, the network and its update
    assert predicted(run)["host"]["peak"] > 2 * stored(run)


@pytest.mark.parametrize(
    ("says", "run", "asked"),
    [
        ("Recommended for: Mid-range GPUs with 8-16GB VRAM", "mine:memory_optimized", ("--gpu", "RTX 4060")),
        ("Recommended for: CPU training", "mine:ultra_light", ("--cpu-only", "--ram", "4GiB")),
        ("Recommended for: ... GPUs with <8GB VRAM", "mine:ultra_light", ("--vram", "2GiB")),
        ("Recommended for: Quick testing and development", "mine:small", ("--cpu-only", "--ram", "4GiB")),
        ("For 4GB systems or CPU-only: train_ultra_light.yaml", "mine:ultra_light", ("--ram", "4GiB", "--cpu-only")),
        ("Start small: Always test with ultra_light first", "mine:ultra_light", ("--ram", "1GiB", "--cpu-only")),
    ],
)
def test_the_recommended_machine_is_enough(says, run, asked):
    """A configuration runs on what it is recommended for."""
    assert predicted(run, *asked)["fits"] is True


@pytest.mark.document_error
def test_8_gb_are_not_enough_for_memory_optimized_as_it_is():
    """# For 8GB+ systems: train_memory_optimized.yaml"""
    run = predicted("mine:memory_optimized", "--ram", "8GiB")
    assert run["fits"] is False and run["host"]["peak"] > 2 * stored("mine:memory_optimized") > 9.7 * GIB
    assert run["with_lean_storage"]["host"]["band"][1] < 8 * GIB  # with legroom it does


@pytest.mark.parametrize(
    ("says", "run", "key", "value"),
    [
        ("Reduced batch size: 512 steps (4x smaller)", "mine:memory_optimized", "n_steps", 2048 // 4),
        ("Fewer environments: 2 parallel envs (2x smaller)", "mine:memory_optimized", "n_envs", 4 // 2),
        ("Smaller CNN: 16→32→64 channels", "mine:memory_optimized", "channels", [16, 32, 64]),
        ("Smaller networks: 128×128 instead of 256×256", "mine:memory_optimized", "net_arch", [128, 128]),
        ("Smaller grid: 50×50×30", "mine:memory_optimized", "grid", (50, 50, 30)),
        ("Minimal batch size: 128 steps (16x smaller)", "mine:ultra_light", "n_steps", 2048 // 16),
        ("Single environment: 1 env only", "mine:ultra_light", "n_envs", 1),
        ("Tiny CNN: CNN3DTiny with 8→16 channels", "mine:ultra_light", "channels", [8, 16]),
        ("Small networks: 64×64", "mine:ultra_light", "net_arch", [64, 64]),
        ("Very small grid: 20×20×10", "mine:ultra_light", "grid", (20, 20, 10)),
        ("CNN3DFeatureExtractor: Full 3D CNN (32→64→128 channels)", "mine:full", "channels", [32, 64, 128]),
        ("CNN3DFeatureExtractorSmall: (16→32→64 channels)", "mine:small", "channels", [16, 32, 64]),
        ("CNN3DFeatureExtractorTiny: (8→16 channels)", "mine:ultra_light", "channels", [8, 16]),
        ("Full: Uses real block model dimensions (49×71×58)", "mine:full", "grid", "data"),
        ("Small: Minimal synthetic grid (10×10×5)", "mine:small", "grid", (10, 10, 5)),
    ],
)
def test_the_named_runs_have_the_documents_settings(says, run, key, value):
    """The optimizations of a configuration, and the variants of network and grid."""
    read_run = read(run)
    grid = read_run.env.grid
    assert value == {
        **read_run.hyperparams,
        "n_envs": read_run.env.n_envs,
        "channels": [layer[0] for layer in SIZES[read_run.policy.features_extractor_kwargs["size"]].layers],
        "net_arch": list(read_run.policy.kwargs["net_arch"]),
        "grid": grid if isinstance(grid, str) else tuple(grid),
    }.get(key)


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "run", "by_the_documents_grids", "with_the_data"),
    [
        ("Memory Opt.: 53x", "mine:memory_optimized", 53, 8),  # 2,048·4·500,000 / (512·2·75,000); steps and envs alone
        ("Ultra Light: 4163x", "mine:ultra_light", 8000, 64),  # its 0.02 GB would be 11,444x
        ("Small: 6000x+", "mine:small", 32000, 32),
        ("reduce memory usage by 18-4000x", "mine:memory_optimized", 53, 8),
    ],
)
def test_reductions_follow_from_steps_envs_and_grid(says, run, by_the_documents_grids, with_the_data, sample_model):
    """Reduction, against the full configuration."""
    steps, envs = read(run).hyperparams["n_steps"], read(run).env.n_envs
    cells = int(np.prod(read(run).env.grid))
    assert round(2048 * 4 * 500_000 / (steps * envs * cells)) == by_the_documents_grids
    asked = ("--data", str(sample_model), "--set", "env.grid=data")
    assert stored("mine:full") / stored(run, *asked) == with_the_data
    assert predicted("mine:full")["host"]["peak"] / predicted(run)["host"]["peak"] < 1000  # of what a process takes


# ---- the helper, and what to do when memory runs out


def test_all_configurations_are_compared():
    """python3 memory_helper.py --compare"""
    said = ran("predict", "mine", "--mode", "arithmetic", "--ram", "16GiB", code=1)  # not all fit
    assert said.startswith("3 of 4 runs fit: mine:memory_optimized, mine:ultra_light, mine:small.")
    order = [line.split()[0] for line in said.splitlines() if line.startswith("mine:")]
    assert order[:4] == list(ROWS)


@pytest.mark.parametrize(
    ("says", "as_they_are"),
    [
        ("--memory 8", ["mine:ultra_light", "mine:small"]),
        ("--memory 16", ["mine:memory_optimized", "mine:ultra_light", "mine:small"]),
        ("--memory 32", ["mine:memory_optimized", "mine:ultra_light", "mine:small"]),
    ],
)
def test_one_run_is_recommended_for_a_memory(says, as_they_are):
    """python3 memory_helper.py --memory 8"""
    ram = f"{says.split()[1]}GiB"
    said = ran("fit", "mine", "--ram", ram, "--mode", "arithmetic")
    assert said.startswith(f"Recommended: legroom train mine:full --fit --ram {ram} (same results, slower)")
    assert [
        line.split()[0] for line in said.splitlines() if line.startswith("mine:") and "  yes  " in line
    ] == as_they_are
    assert "memory.rollout" in said  # by which the full run trains in the same memory
    plan = fitted("mine:full", "--ram", ram)
    assert plan["fits"] is True and not any(knob["price"] == "changes-learning" for knob in plan["knobs"])


def test_the_machines_memory_is_shown():
    """free -h  # Linux"""
    machine = json.loads(ran("machine", "--json"))
    assert machine["ram"] == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.document_error
@pytest.mark.parametrize("says", ["--timesteps 1000", "Reduce timesteps for testing: --timesteps 100"])
def test_fewer_timesteps_need_the_same_memory(says):
    """If you still get memory errors: reduce timesteps"""
    for run in ("mine:small", "mine:ultra_light"):
        shorter = ("--set", f"total_timesteps={says.split()[-1]}")
        assert stored(run, *shorter) == stored(run)
        assert predicted(run, *shorter)["host"]["peak"] == pytest.approx(predicted(run)["host"]["peak"], rel=0.03)


def test_a_run_can_be_kept_on_the_cpu():
    """Force CPU usage: --device cpu"""
    run = predicted("mine:ultra_light", "--device", "cpu")
    assert run["device"] == "cpu" and run["gpu"] is None and run["fits"] is True


@pytest.mark.needs_gpu
def test_the_same_on_a_gpu():
    """Use GPU when available: Add `--device cuda`"""
    run = predicted("mine:memory_optimized", "--gpu", "RTX 4060")
    assert run["device"] == "cuda" and 1 * GIB < run["gpu"]["peak"] < 2 * GIB
    said = ran("train", "mine:ultra_light", "--device", "cuda", code=2)
    assert "no GPU found on this machine" in said


def test_memory_is_monitored_by_one_command(tmp_path):
    """Monitor memory usage: Use `htop` or `nvidia-smi` to monitor resource usage"""
    code = "import time; held = bytearray(200 << 20); time.sleep(1)"
    ran("watch", "--out", str(tmp_path), "--", sys.executable, "-c", code)
    assert 200 * MIB < json.loads((tmp_path / "watch.json").read_text())["peak"]["host"] < 300 * MIB


def test_the_failing_command_is_refused_before_it_starts(sample_model):
    """Original failing command: train_model.py --config .../train.yaml --data .../sample_model.csv --visualization"""
    said = ran("predict", "mine:full", "--data", sample_model, "--mode", "arithmetic", "--ram", "16GiB", code=1)
    assert said.startswith("Does not fit: needs up to 211.3 GiB of RAM, 16.0 GiB given.")


def test_a_larger_run_learns_from_more():
    """Performance vs Memory Trade-offs: Full ... highest memory; Small: Testing only"""
    peaks = [predicted(run)["host"]["peak"] for run in ROWS]
    assert peaks[0] > peaks[1] > max(peaks[2:])
    samples = [read(run).hyperparams["n_steps"] * read(run).env.n_envs for run in ROWS]
    assert samples == [8192, 1024, 128, 256]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("says", "asked"),
    [
        ("--config .../train_memory_optimized.yaml --data ... --visualization",
         ("mine:memory_optimized", "--timesteps", "16", "--set", "n_steps=8", "--set", "batch_size=8")),
        ("--config .../train_ultra_light.yaml --data ... --visualization", ("mine:ultra_light", "--timesteps", "128")),
        ("--config examples/train_small.yaml --data ... --visualization", ("mine:small", "--timesteps", "1000")),
    ],
)  # fmt: skip
def test_the_configuration_trains(says, asked, sample_model, tmp_path):
    """python3 train_model.py --config ... --data mine_rl_npv/data/sample_model.csv --visualization"""
    out = tmp_path / "run"
    ran("train", *asked, "--data", sample_model, "--visualization", "--out", out, "--set", "n_epochs=1")
    outcome = json.loads((out / "outcome.json").read_text())
    assert outcome["status"] == "finished"
    if asked[0] == "mine:small":  # whose 500 blocks are an episode that ends
        assert outcome["timesteps"] == 1024 and (out / "pictures/final.png").exists()
        assert outcome["score"]["pit_value_usd"] > 0


def test_a_grid_of_its_own_makes_the_observation():
    """Smaller grid: 50×50×30 instead of 100×100×50 - where no CSV brings its own"""
    larger = ("--set", "env.grid=[100,100,50]")
    assert gib(stored("mine:full", *larger)) == 259.4
    assert predicted("mine:small", *larger, "--ram", "2GiB")["fits"] is False  # 128 × 2 × 34 MB, and the copy


AUTHORS = """\
training:
  algorithm: MaskablePPO
  hyperparameters: {n_steps: 128, batch_size: 16, n_epochs: 10}
  policy: {net_arch: {pi: [64, 64], vf: [64, 64]}}
  feature_extractor: {type: CNN3DTiny}
environment: {n_envs: 1}
"""


@pytest.mark.parametrize("says", ["--config mine_rl_npv/configs/train_ultra_light.yaml", "Tiny CNN: CNN3DTiny"])
def test_a_configuration_of_that_kind_is_read(says, tmp_path):
    """python3 train_model.py --config ...: network by its name, the grid from the environment's file beside it"""
    (tmp_path / "train_ultra_light.yaml").write_text(AUTHORS)
    (tmp_path / "env_ultra_light.yaml").write_text("environment: {grid_size: {nx: 20, ny: 20, nz: 10}}\n")
    run = read(str(tmp_path / "train_ultra_light.yaml"), like="mine:full")
    assert list(run.env.grid) == [20, 20, 10] and run.policy.features_extractor_kwargs == {"size": "tiny"}
    own = bill(str(tmp_path / "train_ultra_light.yaml"), "--like", "mine:full", "--set", "n_envs=1")
    assert own["rollout.observations"] == stored("mine:ultra_light")


def test_memories_side_by_side():
    """python3 memory_helper.py --memory 8, --memory 16, --memory 32"""
    said = ran("fit", "mine", "--ram", "8GiB,16GiB,32GiB", "--mode", "arithmetic")
    rows = [line.split()[:3] for line in said.splitlines() if " GiB  mine:" in line]
    assert rows == [[size, "GiB", "mine:full"] for size in ("8.0", "16.0", "32.0")]
