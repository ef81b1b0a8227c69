"""The robot's document, sentence by sentence: brax's rule of divisibility, and what a GPU really needs."""

from __future__ import annotations

import json

import pytest
from tests.documents.asked import GIB, MIB, bill, fitted, predicted, ran
from tests.machine.test_gpu_meter import Driver

from legroom.machine.gpus import GpuMeter
from legroom.reading import read

FILES = {
    "gpu_8gb.yaml": (512, 32, 128, 5, 2), "default.yaml": (1024, 64, 256, 10, 4),
    "gpu_16gb.yaml": (1536, 96, 384, 10, 6), "production.yaml": (2048, 128, 512, 10, 8),
}  # fmt: skip
KEYS = ("num_envs", "num_eval_envs", "batch_size", "unroll_length", "num_minibatches")
SMALL_NETWORKS = "network:\n  policy_hidden_layers: [128, 128]\n  value_hidden_layers: [128, 128]\n"
ON_GPU = ("--gpu", "RTX 4070")


def written(folder, name):
    """The document's file of that name, as it stands there."""
    settings = "".join(f"  {key}: {value}\n" for key, value in zip(KEYS, FILES[name], strict=True))
    (folder / name).write_text("ppo:\n" + settings + (SMALL_NETWORKS if name == "gpu_8gb.yaml" else ""))
    return name


def ppo(folder, name, **settings):
    (folder / name).write_text("ppo:\n" + "".join(f"  {key}: {value}\n" for key, value in settings.items()))
    return name


def mib(nbytes):
    return round(nbytes / MIB, 1)


# ---- the table, and what memory depends on


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "run", "envs", "batch", "claimed_gb"),
    [
        ("| 8GB (RTX 3060 Ti) | Create custom | 512 | 128 | ~6GB |", "robot:gpu_8gb", 512, 128, 6),
        ("| 12GB (RTX 4070/5070) | `default.yaml` | 1024 | 256 | ~9GB |", "robot:default", 1024, 256, 9),
        ("| 16GB (RTX 4080) | Create custom | 1536 | 384 | ~12GB |", "robot:gpu_16gb", 1536, 384, 12),
        ("| 24GB (RTX 4090/A5000) | `production.yaml` | 2048 | 512 | ~15GB |", "robot:production", 2048, 512, 15),
    ],
)
def test_usage_was_computed_not_measured(says, run, envs, batch, claimed_gb):
    """Quick Reference: the settings are these; the usage is 3 + 3 × num_envs / 512 GB, whatever the network."""
    settings = read(run)
    assert (settings.env.n_envs, settings.hyperparams["batch_size"]) == (envs, batch)
    assert claimed_gb == 3 + 3 * envs / 512
    assert predicted(run, *ON_GPU)["gpu"]["band"][1] < 0.8 * GIB


@pytest.mark.document_error
def test_states_and_observations_are_the_smallest_part():
    """memory ≈ num_envs × (state_size + observation_size + action_size) × precision"""
    items = bill("robot:default", *ON_GPU)
    assert mib(items["envs.states"]) == 1.0 and 0.6 * MIB > 1024 * (63 + 58 + 11) * 4
    assert items["network.activations"] > 10 * items["envs.states"]  # and the context is 450 MiB


def test_more_environments_need_more():
    """**num_envs** - Most important! Linear scaling"""
    states = [bill(run, *ON_GPU)["envs.states"] for run in ("robot:default", "robot:production")]
    assert states[1] == 2 * states[0]
    peaks = [predicted(f"robot:{run}", *ON_GPU)["gpu"]["peak"] for run in ("quick", "default", "production")]
    assert peaks == sorted(peaks)


def test_the_rollout_grows_with_its_length():
    """**unroll_length** - Temporal rollout buffer"""
    of_10, of_20 = (bill("robot:default", *ON_GPU, "--set", f"unroll_length={n}")["rollout"] for n in (10, 20))
    assert of_20 == 2 * of_10 and 6e6 < of_10 < 8e6


def test_the_networks_are_counted():
    """**network_size** - Policy/value network parameters"""
    policy = (58 * 256 + 256) + (256 * 256 + 256) + (256 * 128 + 128) + (128 * 22 + 22)
    value = (58 * 256 + 256) + (256 * 256 + 256) + (256 * 128 + 128) + (128 + 1)
    items = bill("robot:default", *ON_GPU)
    assert items["network.weights"] == (policy + value) * 4
    assert items["optimizer.state"] == pytest.approx(2 * items["network.weights"], abs=16)  # Adam's, and its count


@pytest.mark.document_error
@pytest.mark.parametrize("says", ["**batch_size** - Should equal `num_envs` or divide evenly"])
def test_the_batch_times_the_minibatches_must_be_a_multiple(says):
    """128 divides 512, and 128 × 2 is refused"""
    assert 512 % 128 == 0 and predicted("robot:gpu_8gb")["findings"][0]["code"] == "LR002"


# ---- the files


@pytest.mark.parametrize("name", ["default.yaml", "production.yaml"])
def test_the_documents_file_is_read(name, tmp_path):
    """12GB: Use `default.yaml`; 24GB: Use `production.yaml`"""
    run = read(str(tmp_path / written(tmp_path, name)), like="robot:default")
    found = {**run.hyperparams, "num_envs": run.env.n_envs, "num_eval_envs": run.eval.n_envs}
    assert tuple(found[key] for key in KEYS) == FILES[name]
    said = ran("check", name, "--like", "robot:default", "--vram", "12GiB", cwd=tmp_path)
    assert "0 errors" in said


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("name", "sum_", "repaired"),
    [
        ("gpu_8gb.yaml", "128 × 2 = 256 is not a multiple of 512", "num_minibatches: 4"),
        ("gpu_16gb.yaml", "384 × 6 = 2304 is not a multiple of 1536", "num_minibatches: 8"),
    ],
)
def test_brax_refuses_the_documents_file(name, sum_, repaired, tmp_path):
    """Create `gpu_8gb.yaml`; Create `gpu_16gb.yaml`"""
    asked = ("check", written(tmp_path, name))
    assert f"LR002 brax-divisibility brax PPO asserts batch_size × num_minibatches % num_envs == 0; here {sum_}" in (
        " ".join(ran(*asked, code=1, cwd=tmp_path).split())
    )
    ran(*asked, "--fix", code=0, cwd=tmp_path)
    assert repaired in (tmp_path / name).read_text()


# ---- out of memory


def test_the_error_is_explained():
    """Error: "Out of memory while trying to allocate X.XXGiB\""""
    said = ran("explain", stdin="RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.50GiB.\n")
    assert "2.5 GiB was requested" in said and "env.n_envs" in said and "memory.xla_preallocate=false" in said


@pytest.mark.parametrize(
    "says",
    [
        "Solution 1: Reduce num_envs: train.py --config default.yaml --num_envs 512",
        "Step 3: --config default.yaml --num_envs 512 --batch_size 128",
    ],
)
def test_fewer_environments_are_valid_and_need_less(says, tmp_path):
    """If OOM, reduce environments"""
    batch = ("--batch-size", "128") if "batch" in says else ()
    asked = (written(tmp_path, "default.yaml"), "--like", "robot:default", "--num-envs", "512", *batch)
    room = ("--vram", "8GiB", "--ram", "16GiB")
    assert " 512 envs" in ran("predict", *asked, *room, "--mode", "arithmetic", cwd=tmp_path)
    assert "0 errors" in ran("check", *asked, *room, cwd=tmp_path)


@pytest.mark.document_error
def test_a_smaller_batch_alone_is_refused(tmp_path):
    """Solution 2: train.py --config default.yaml --batch_size 128"""
    name = written(tmp_path, "default.yaml")
    said = ran("check", name, "--like", "robot:default", "--batch-size", "128", code=1, cwd=tmp_path)
    assert "128 × 4 = 512 is not a multiple of 1024" in " ".join(said.split())


def test_a_smaller_network_needs_less():
    """Solution 3: policy_hidden_layers: [128, 128]  # Instead of [256, 256, 128]"""
    smaller = ("--set", "policy_hidden_layer_sizes=[128,128]", "--set", "value_hidden_layer_sizes=[128,128]")
    before, after = bill("robot:default", *ON_GPU), bill("robot:default", *ON_GPU, *smaller)
    assert after["network.weights"] < before["network.weights"] / 3
    assert after["network.activations"] < before["network.activations"]


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "gpu_gb", "used_gb"), [("8GB: ~6GB", 8, 6), ("12GB: ~9GB", 12, 9), ("16GB: ~12GB", 16, 12)]
)
def test_what_is_seen_used_is_preallocated(says, gpu_gb, used_gb):
    """Solution 4: os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" - three quarters, needed or not"""
    assert used_gb == 0.75 * gpu_gb
    plain, without = (
        predicted("robot:default", *ON_GPU, "--set", f"memory.xla_preallocate={each}")["gpu"]["peak"]
        for each in ("true", "false")
    )
    assert without <= plain


@pytest.mark.needs_gpu
@pytest.mark.parametrize("says", ["nvidia-smi", "watch -n 1 nvidia-smi", "jax.local_devices()[0].memory_stats()"])
def test_gpu_memory_is_followed_by_process(says):
    """Monitoring GPU Memory: of the training's processes alone, through NVML, with a driver that is played"""
    driver = Driver()
    meter = GpuMeter(driver)
    driver.running = {0: [(10, GIB), (99, 7 * GIB)], 1: []}
    assert meter({10}) == GIB  # nvidia-smi's total would also have the other's 7


# ---- the constraint


def test_the_rule_is_braxs():
    """Brax PPO requires: batch_size * num_minibatches % num_envs == 0"""
    for envs, batch, minibatches in ((256, 128, 4), (768, 256, 3), (768, 256, 4), (1000, 250, 2)):
        settings = (f"n_envs={envs}", f"batch_size={batch}", f"num_minibatches={minibatches}")
        findings = predicted("robot:default", *(word for each in settings for word in ("--set", each)))["findings"]
        refused = "LR002" in {finding["code"] for finding in findings if finding["severity"] == "error"}
        assert refused is (batch * minibatches % envs != 0)


@pytest.mark.parametrize(
    ("says", "settings", "code"),
    [
        ("| 1024 | 256 | 4 | ✅ (256×4=1024) |", (1024, 256, 4), 0),
        ("| 1024 | 512 | 2 | ✅ (512×2=1024) |", (1024, 512, 2), 0),
        ("| 1024 | 256 | 2 | ❌ (256×2=512) |", (1024, 256, 2), 1),
        ("| 512 | 128 | 2 | (128×2=256... wait, this fails!) |", (512, 128, 2), 1),
        ("Fix for 512 envs: 128×4=512 ✅", (512, 128, 4), 0),
    ],
)
def test_combinations_are_judged(says, settings, code, tmp_path):
    """Valid combinations"""
    name = ppo(tmp_path, "pair.yaml", **dict(zip(("num_envs", "batch_size", "num_minibatches"), settings, strict=True)))
    said = ran("check", name, "--like", "robot:default", code=code, cwd=tmp_path)
    assert ("LR002" in said) is bool(code)


# ---- trade-offs, recommended settings, the workflow


@pytest.mark.parametrize(
    "says", ["More Environments: Higher GPU memory usage", "Fewer: Fits in smaller GPUs, lower footprint"]
)
def test_environments_are_traded_for_memory(says):
    """Performance vs Memory Trade-offs"""
    few, many = (predicted("robot:default", *ON_GPU, "--set", f"n_envs={n}")["gpu"]["peak"] for n in (512, 1024))
    assert few < many


@pytest.mark.parametrize(
    ("says", "run", "envs", "batch", "steps"),
    [
        ("For Learning/Debugging: quick.yaml", "robot:quick", 256, 128, 512_000),
        ("For 12GB GPU (Balanced): default.yaml", "robot:default", 1024, 256, 30_000_000),
        ("For Production: production.yaml", "robot:production", 2048, 512, 50_000_000),
    ],
)
def test_recommended_settings_are_named_runs(says, run, envs, batch, steps):
    """Recommended Settings; quick.yaml's 100,000 steps are 20 updates and learn nothing: `robot:quick` has 512,000"""
    settings = read(run)
    assert (settings.env.n_envs, settings.hyperparams["batch_size"], settings.total_timesteps) == (envs, batch, steps)
    assert "LR002" not in {finding["code"] for finding in predicted(run)["findings"]}


@pytest.mark.document_error
def test_100_000_steps_are_20_updates(tmp_path):
    """quick.yaml: num_timesteps: 100000"""
    name = ppo(tmp_path, "quick.yaml", num_envs=256, batch_size=128, num_timesteps=100_000)
    said = " ".join(ran("check", name, "--like", "robot:default", cwd=tmp_path).split())
    assert "100,000 steps / 5,120 per iteration = 19.53: brax runs 20 iterations, 102,400 steps" in said


@pytest.mark.parametrize(
    ("says", "run", "gpu"),
    [
        ("Step 1: Test with quick.yaml (always works)", "robot:quick", "RTX 3060 Ti"),
        ("Step 2: Try default.yaml (optimized for 12GB)", "robot:default", "RTX 4070"),
        ("For NVIDIA RTX 5070 (12GB): Use `default.yaml`", "robot:default", "RTX 5070"),
        ("24GB GPU (RTX 4090): Use `production.yaml`", "robot:production", "RTX 4090"),
    ],
)
def test_the_recommended_gpu_is_enough(says, run, gpu):
    """Example Workflow, Summary"""
    assert predicted(run, "--gpu", gpu)["fits"] is True


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "run", "claimed"),
    [
        ("num_envs: 2048 # Requires 24GB GPU", "robot:production", 24),
        ("Don't use `production.yaml`: ~15GB GPU usage - OOM on 12GB!", "robot:production", 15),
        ("`default.yaml` - num_envs: 1024 # ~9GB GPU usage", "robot:default", 9),
    ],
)
def test_a_12_gb_gpu_takes_all_of_them(says, run, claimed):
    """Summary: For NVIDIA RTX 5070 (12GB)"""
    answer = predicted(run, "--gpu", "RTX 5070")
    assert answer["fits"] is True and answer["gpu"]["band"][1] < claimed * GIB / 9


def test_fit_finds_the_valid_neighbour():
    """**Fix for 512 envs:** num_minibatches: 4"""
    (knob,) = fitted("robot:gpu_8gb", "--vram", "8GB", "--ram", "64GiB")["knobs"]
    assert (knob["name"], knob["from"], knob["to"]) == ("hyperparams.num_minibatches", 2, 4)


@pytest.mark.slow
def test_quick_trains(tmp_path):
    """uv run train.py --config quick.yaml"""
    out = tmp_path / "walk"
    asked = ("--timesteps", "5120", "--set", "num_evals=1", "--set", "num_updates_per_batch=1")
    ran("train", "robot:quick", *asked, "--out", out)
    assert json.loads((out / "outcome.json").read_text())["timesteps"] == 5120


@pytest.mark.parametrize(
    ("says", "settings", "code"),
    [
        ("| 1024 | 256 | 2 | ❌ (256×2=512) |", (1024, 256, 2), 1),
        ("Fix for 512 envs", (512, 128, 4), 0),
    ],
)
def test_combinations_are_judged_by_themselves(says, settings, code, tmp_path):
    """ppo: num_envs, batch_size, num_minibatches - three keys are enough to know brax's PPO"""
    name = ppo(tmp_path, "pair.yaml", **dict(zip(("num_envs", "batch_size", "num_minibatches"), settings, strict=True)))
    said = ran("check", name, code=code, cwd=tmp_path)
    assert ("LR002" in said) is bool(code) and "PPO on brax" in said


def test_quick_yaml_is_understood(tmp_path):
    """# quick.yaml: num_envs: 256, batch_size: 128, num_timesteps: 100000"""
    name = ppo(tmp_path, "quick.yaml", num_envs=256, batch_size=128, num_timesteps=100_000)
    assert "quick: PPO on brax, 256 envs" in ran("check", name, cwd=tmp_path)


def test_the_environments_own_settings_are_left_out_by_name(tmp_path):
    """uv run train.py --config default.yaml --num_envs 512"""
    name = written(tmp_path, "default.yaml")
    (tmp_path / name).write_text("env:\n  ctrl_dt: 0.02\n  sim_dt: 0.002\n" + (tmp_path / name).read_text())
    asked = ("--like", "robot:default", "--num-envs", "512", *ON_GPU, "--ram", "16GiB", "--mode", "arithmetic")
    said = ran("predict", name, *asked, cwd=tmp_path)
    assert "Fits" in said and " 512 envs" in said and "ctrl_dt, sim_dt" in said


@pytest.mark.document_error
def test_a_run_that_brax_refuses_does_not_begin_with_fits():
    """| 8GB (RTX 3060 Ti) | Create custom | 512 | 128 |"""
    said = ran("predict", "robot:gpu_8gb", "--gpu", "RTX 3060 Ti", "--mode", "arithmetic", code=1)
    assert not said.startswith("Fits") and "invalid" in said.splitlines()[0].lower()
