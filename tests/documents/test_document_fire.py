"""The wildfire's document, sentence by sentence, for its GPU of 3.68 GiB."""

from __future__ import annotations

import sys

import pytest
from tests.documents.asked import GIB, MIB, ROOM, bill, fitted, of_program, predicted, ran

import legroom
from legroom.reading import read
from legroom_workloads.fire import FireEnv

GPU = ("--vram", "3.68GiB")
TRACED = (*GPU, "--mode", "trace")
ERROR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 158.00 MiB. \n"
    "GPU 0 has a total capacity of 3.68 GiB of which 5.69 MiB is free.\n"
)
CONSTANTS = """\
BATCH_SIZE = 16          # Was 32
N_ENVS = 8               # Was 16
SIMS = 15                # Was 25
BUFFER_CAP = 50_000
"""
TRAIN = """\
import torch

print(f"Initial GPU memory: {torch.cuda.get_device_properties(0).total_memory / 2**30:.2f} GB")
net = torch.nn.Sequential(torch.nn.Linear(1000, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1000)).cuda()
adam = torch.optim.Adam(net.parameters())
print(f"GPU memory allocated: {torch.cuda.memory_allocated() / 1e6:.1f} MB")
for _ in range(3):
    loss = net(torch.rand(4096, 1000, device="cuda")).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
print(f"GPU memory before cleanup: {torch.cuda.memory_reserved() / 1e6:.0f}")
del loss
torch.cuda.empty_cache()
print(f"GPU memory after cleanup: {torch.cuda.memory_reserved() / 1e6:.0f}")
"""


def on_gpu(run, *asked):
    """The bytes of the GPU that depend on the run: not the context, nor what fragmentation leaves."""
    items = predicted(run, *GPU, *asked)["items"]
    aside = ("gpu.context", "gpu.fragmentation", "gpu.workspace")
    return sum(item["nbytes"] for item in items if item["place"] == "gpu" and item["name"] not in aside)


def activations(run, *asked):
    items = bill(run, *GPU, *asked)
    return items["gpu.activations"] + items["gpu.batch"]


# ---- the problem


def test_the_error_is_explained():
    """CUDA out of memory. Tried to allocate 158.00 MiB. GPU 0 has a total capacity of 3.68 GiB"""
    said = ran("explain", stdin=ERROR)
    assert "asked 158.0 MiB, capacity 3.7 GiB, free 5.7 MiB" in said and "memory.micro_batch" in said


def test_the_enhanced_model_does_not_fit_this_gpu():
    """Your GPU has ~3.7GB memory, but the enhanced model was trying to use more memory than available."""
    run = predicted("fire:original", *TRACED)
    assert run["fits"] is False and 3.68 < run["gpu"]["peak"] / GIB < 4.2


# ---- what was changed


def test_half_the_batch_is_half_the_activations():
    """Reduced batch size: 32 → 16 (saves ~50% memory)"""
    of_32, of_16 = (activations("fire:original", "--set", f"batch_size={size}") for size in (32, 16))
    assert of_16 == pytest.approx(of_32 / 2, rel=0.01)


@pytest.mark.document_error
def test_environments_are_not_on_the_gpu():
    """Fewer environments: 16 → 8 (saves ~50% memory)"""
    of_16, of_8 = (predicted("fire:original", *GPU, "--set", f"n_envs={n}") for n in (16, 8))
    assert of_16["gpu"]["peak"] == of_8["gpu"]["peak"]
    assert of_16["host"]["peak"] - of_8["host"]["peak"] > 8 * 150 * MIB  # eight processes that import torch


@pytest.mark.parametrize(
    ("says", "run", "mib"),
    [
        ("Lighter model: Enhanced model with attention disabled", "fire:medium", 2817),
        ("Disable attention/multi-scale for memory efficiency", "fire:medium", 2817),
        ("Use Basic QNet: Set `USE_ENHANCED_MODEL = False`", "fire:low", 103),
    ],
)
def test_a_lighter_network_needs_less(says, run, mib):
    """Model variants, with the original's batch: 11 % and 97 % less."""
    kwargs = read(run).policy.features_extractor_kwargs
    assert kwargs["attention"] is False and kwargs["multi_scale"] is False and kwargs["residual"] is (run != "fire:low")
    as_large = ("--set", "batch_size=64", "--set", "memory.micro_batch=null")
    assert round(bill(run, *GPU, *as_large)["gpu.activations"] / MIB) == mib
    assert round(bill("fire:original", *GPU)["gpu.activations"] / MIB) == 3169


@pytest.mark.parametrize(
    "says",
    [
        "Gradient accumulation: Simulate larger batches without memory cost",
        "Gradient accumulation to maintain training quality with smaller batches",
        "Gradient Accumulation: Process smaller batches, accumulate gradients",
    ],
)
def test_pieces_need_the_memory_of_a_small_batch(says):
    """Gradient accumulation."""
    pieces, small = (on_gpu("fire:original", "--set", each) for each in ("memory.micro_batch=16", "batch_size=16"))
    batch = 64 * 80_000 * 2  # which lies there whole: observations and next observations
    assert pieces == pytest.approx(small + batch, rel=0.02) and pieces < on_gpu("fire:original") / 3


def test_pieces_add_up_to_the_same_gradient():
    """Quality maintained through gradient accumulation"""
    import torch
    from gymnasium.spaces import Box

    from legroom_workloads.fire.nets import FireNet

    torch.manual_seed(0)
    net, batch = FireNet(Box(0, 1, (8, 10, 10))), torch.rand(8, 8, 10, 10)

    def gradient(pieces):
        net.zero_grad()
        for piece in batch.split(8 // pieces):
            (net(piece).square().mean() / pieces).backward()
        return torch.cat([each.grad.flatten() for each in net.parameters()])

    whole = gradient(1)
    assert (gradient(4) - whole).norm() < 1e-5 * whole.norm()


def test_pieces_are_slower():
    """Slightly slower due to smaller batches (but still effective)"""
    (knob,) = fitted("fire:original", *GPU, *ROOM)["knobs"]
    assert (knob["name"], knob["to"], knob["price"]) == ("memory.micro_batch", 32, "slower")


@pytest.mark.parametrize(
    "says",
    [
        "Environment variable for memory fragmentation: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`",
        "Option 2: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; python3 src/Train.py",
    ],
)
def test_growing_segments_waste_less(says):
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"""
    plain, growing = (
        predicted("fire:original", *TRACED, "--set", f"memory.expandable_segments={each}")["gpu"]["allocator"]
        for each in ("false", "true")
    )
    wasted = [each["peak_reserved"] - each["peak_allocated"] for each in (plain, growing)]
    assert 0 < wasted[1] < wasted[0] / 2


# ---- the quick solutions, and the script's constants


@pytest.mark.parametrize(
    "says",
    [
        "python3 train_memory_efficient.py: automatically detects your GPU memory and applies optimal settings",
        "`train_memory_efficient.py` - Auto-optimizing training script",
        "Training will complete without memory errors",
        "Your training should now work smoothly with your 3.7GB GPU!",
    ],
)
def test_one_command_makes_it_fit(says):
    """Option 1 (Recommended). The original's script edits a file that it does not run; `train fire --fit` trains."""
    plan = fitted("fire:original", *GPU, *ROOM)
    assert plan["fits"] is True and plan["after"]["gpu"]["band"][1] < 3.68 * GIB < plan["before"]["gpu"]["peak"]
    assert not any(knob["price"] == "changes-learning" for knob in plan["knobs"])


@pytest.mark.document_error
def test_simulations_are_processor_time(tmp_path, monkeypatch):
    """SIMS = 15 # Was 25 (reduces fire simulation memory)"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where one of the two may have been looked at before
    of_25, of_15 = (predicted("fire:original", *GPU, "--set", f"env.kwargs.sims={sims}") for sims in (25, 15))
    assert of_25["gpu"] == of_15["gpu"]
    assert of_25["host"]["peak"] == pytest.approx(of_15["host"]["peak"], rel=0.01)


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "line", "effect"),
    [
        ("Reduce fire simulations: Change `SIMS = 25` to `SIMS = 10`", 3, "an environment works on the host"),
        ("Smaller replay buffer: `BUFFER_CAP = 50_000`", 4, "the replay buffer is in host memory"),
    ],
)
def test_check_names_the_constants_that_are_not_on_the_gpu(says, line, effect, tmp_path):
    """If you still have memory issues, try"""
    (tmp_path / "Train.py").write_text(CONSTANTS)
    asked = ("check", "Train.py", "--like", "fire:original", "--vram", "1GiB", "--ram", "64GiB")
    said = " ".join(ran(*asked, code=1, cwd=tmp_path).split())
    assert f"line {line}, LR009 no-effect" in said and effect in said


@pytest.mark.document_error
def test_replay_is_host_memory_by_the_transition():
    """Smaller replay buffer: Change `BUFFER_CAP = 100_000` to `BUFFER_CAP = 50_000`"""
    halved = ("--set", "buffer_size=50000")
    assert predicted("fire:original", *GPU)["gpu"] == predicted("fire:original", *GPU, *halved)["gpu"]
    for asked, rows in (((), 3125), (halved, 1562)):  # of 32 environments; an observation has 8·50·50·4 = 80,000 B
        items = bill("fire:original", *GPU, *asked)
        assert items["replay.observations"] == items["replay.next_observations"] == rows * 32 * 80_000


@pytest.mark.parametrize(
    ("says", "key", "value"), [("BATCH_SIZE = 16", "batch_size", 16), ("BUFFER_CAP = 50_000", "buffer_size", 50_000)]
)
def test_constants_are_read(says, key, value, tmp_path):
    """Edit `src/Train.py` and change these lines"""
    (tmp_path / "Train.py").write_text(CONSTANTS)
    run = read(str(tmp_path / "Train.py"), like="fire:original")
    assert run.hyperparams[key] == value and run.env.n_envs == 8 and run.env.kwargs["sims"] == 15


# ---- the table, and where GPU memory goes


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "run", "batch", "envs", "least", "most"),
    [
        ("| Original | ~4.5GB | 64 | 32 | Full Enhanced |", "fire:original", 64, 32, 3.7, 4.2),
        ("| Medium Memory | ~2.8GB | 32 | 16 |", "fire:medium", 32, 16, 0.9, 1.4),
        ("| Low Memory | ~1.5GB | 16 | 8 | Basic QNet |", "fire:low", 16, 8, 0.3, 0.6),
    ],
)
def test_gpu_memory_of_the_configurations(says, run, batch, envs, least, most):
    """Memory Usage Comparison: batch and environments are these, the memory is less."""
    settings = read(run)
    assert (settings.hyperparams["batch_size"], settings.env.n_envs) == (batch, envs)
    low, high = predicted(run, *TRACED)["gpu"]["band"]
    assert least * GIB < low < high < most * GIB


@pytest.mark.document_error
def test_this_gpu_takes_the_original_in_pieces():
    """Your setup (3.7GB GPU) works best with **Medium Memory** configuration."""
    run = predicted("fire:original", *TRACED, "--set", "memory.micro_batch=32")
    assert run["fits"] is True and 2 < run["gpu"]["peak"] / GIB < 2.5


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "run", "mib"), [("~200MB (Enhanced)", "fire:original", 12.35), ("~50MB (Basic)", "fire:low", 0.22)]
)
def test_parameters_are_a_few_mib(says, run, mib):
    """Model parameters: ~200MB (Enhanced) vs ~50MB (Basic)"""
    weights = bill(run, *GPU)["gpu.weights"]
    assert round(weights / MIB, 2) == mib
    basic = (9 * 8 * 32 + 32) + (9 * 32 * 64 + 64) + (9 * 64 * 64 + 64) + (64 + 1)
    assert weights == {"fire:original": 3_238_098, "fire:low": basic}[run] * 4 and basic == 57_825


@pytest.mark.document_error
def test_the_batch_alone_makes_activations():
    """Batch processing: Batch_size × Environments × Image_size"""
    assert activations("fire:original", "--set", "n_envs=1") == activations("fire:original")
    per_sample = bill("fire:original", *GPU)["gpu.activations"] / 64 / MIB
    assert 45 < per_sample < 52


def test_gradients_are_as_large_as_parameters():
    """Gradient computation: Same as model parameters"""
    items = bill("fire:original", *GPU)
    assert items["gpu.gradients"] == items["gpu.weights"] and items["gpu.optimizer"] == 2 * items["gpu.weights"]


def test_cuda_itself_takes_some_hundred_mb():
    """CUDA overhead: ~200-500MB"""
    (context,) = (item for item in predicted("fire:original", *GPU)["items"] if item["name"] == "gpu.context")
    assert 200e6 < context["nbytes"] - context["error"] < context["nbytes"] + context["error"] <= 500e6


def test_500_landscapes_are_one_array_of_a_few_mb(tmp_path, monkeypatch):
    """All 500 rasters used efficiently"""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    env = FireEnv(rasters=500, grid=(10, 10), sims=1, budget=10, breaks_per_step=10)
    seen = {env.reset(seed=seed)[0].tobytes() for seed in range(40)}
    assert len(seen) == 40
    assert read("fire:learn").env.kwargs["rasters"] == 500


def test_it_also_trains_without_a_gpu():
    """CPU training: Remove `.to(DEVICE)` calls (much slower but works)"""
    run = predicted("fire:low", "--device", "cpu")
    assert run["device"] == "cpu" and run["fits"] is True


def test_configurations_are_shown():
    """python3 memory_config.py  # See configuration options"""
    said = ran("predict", "fire", *GPU, "--ram", "64GiB", "--mode", "arithmetic", code=1)
    assert [line.split()[0] for line in said.splitlines() if line.startswith("fire:")][:3] == [
        "fire:original", "fire:medium", "fire:low",
    ]  # fmt: skip


# ---- monitoring, on a simulated GPU


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fire")
    (folder / "Train.py").write_text(TRAIN)
    return of_program("predict", "--all", *GPU, "--ram", "16GiB", "--", sys.executable, "Train.py", cwd=folder, code=0)


@pytest.mark.needs_gpu
@pytest.mark.parametrize(
    ("says", "line"),
    [
        ("Initial GPU memory: 3.68 GB", "Initial GPU memory: 3.68 GB"),
        ("GPU memory allocated: 0.12 GB", "GPU memory allocated: 33.6 MB"),
    ],
)
def test_a_program_that_watches_its_gpu_prints_what_is_simulated(says, line, printed):
    """The training now shows memory usage"""
    assert line in printed
    # a matrix of 1,000·4,096·4 B takes the whole of its segment of 16 MiB, a bias the next multiple of 512 B
    assert 2 * 16 * 2**20 + 4096 * 4 + 4096 == 33_574_912


@pytest.mark.needs_gpu
@pytest.mark.parametrize(
    "says",
    [
        "Added memory clearing after checkpoints",
        "Periodic Cleanup: Clear CUDA cache",
        "GPU memory after cleanup: 2.15 GB",
    ],
)
def test_cleaning_up_returns_what_is_cached_and_leaves_the_peak(says, printed):
    """GPU memory after cleanup"""
    before, after = (int(printed.partition(f"{when} cleanup: ")[2].split()[0]) for when in ("before", "after"))
    assert 4 * 33 < after < before / 2  # weights, gradients and two moments stay
    assert round(float(printed.partition("MiB allocated, ")[2].split()[0]) * 1.048576) == pytest.approx(before, abs=1)


# ---- the switches of the original's script


@pytest.mark.parametrize(
    ("says", "constant"),
    [
        ("MEMORY_EFFICIENT = True  # Enables all optimizations", "MEMORY_EFFICIENT (line 5)"),
        ("Set `USE_ENHANCED_MODEL = False`", "USE_ENHANCED_MODEL (line 6)"),
        ("Gradient accumulation", "GRADIENT_ACCUMULATION_STEPS (line 7)"),
    ],
)
def test_switches_of_the_script_are_said_to_be_not_used(says, constant, tmp_path):
    """Their meaning is in the program: what was used of the file and what was not is listed"""
    switches = "MEMORY_EFFICIENT = True\nUSE_ENHANCED_MODEL = False\nGRADIENT_ACCUMULATION_STEPS = 2\n"
    (tmp_path / "Train.py").write_text(CONSTANTS + switches)
    said = ran("predict", "Train.py", "--like", "fire:original", *GPU, *ROOM, "--mode", "arithmetic", cwd=tmp_path)
    used, not_used = said.partition("read from Train.py: ")[2].split("\n")[0].split("; not used: ")
    assert constant in not_used and {"BATCH_SIZE", "N_ENVS", "SIMS", "BUFFER_CAP"} == set(used.split(", "))


SEARCHED = """\
import torch

BATCH_SIZE = 64

net = torch.nn.Sequential(*(torch.nn.Conv2d(8 if i == 0 else 128, 128, 3, padding=1) for i in range(16))).cuda()
adam = torch.optim.Adam(net.parameters())
for _ in range(3):
    loss = net(torch.rand(BATCH_SIZE, 8, 100, 100, device="cuda")).square().mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
"""


@pytest.mark.slow
def test_a_constant_of_a_program_without_arguments_is_searched(tmp_path):
    """Option 3: Edit `src/Train.py` and change these lines: BATCH_SIZE = 16 # Was 32"""
    (tmp_path / "Train.py").write_text(SEARCHED)
    asked = ("fit", *GPU, "--ram", "16GiB", "--param", "BATCH_SIZE=8..64")
    said = of_program(*asked, "--", sys.executable, "Train.py", cwd=tmp_path, code=0)
    found = int(said.partition("BATCH_SIZE=")[2].split()[0].strip(".,:"))
    assert 8 <= found < 64  # 16 layers keep 128·100·100·4 B of a sample: 78 MiB
    assert (tmp_path / "Train.py").read_text() == SEARCHED


@pytest.mark.slow
def test_what_fits_here_is_trained(tmp_path):
    """python3 train_memory_efficient.py  # Start optimized training"""
    said = ran("train", "fire", "--fit", *GPU, *ROOM, "--timesteps", "32", "--out", tmp_path / "run")
    assert "fire:original" in said and (tmp_path / "run/outcome.json").exists()
    if not legroom.probe().gpus:
        assert "--vram 3.68GiB is not used: no GPU found on this machine" in said
