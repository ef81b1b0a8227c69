"""The ninja's document, sentence by sentence: its profiler, its optimisations, and what they save here."""

from __future__ import annotations

import json
import pstats
import subprocess
import sys

import numpy as np
import pytest
from bench.results import read_sections
from tests.documents.asked import GIB, predicted, ran

from legroom.watching.measuring import DROPPED_SHARE, FLOOR
from legroom.watching.trend import judge
from legroom_workloads.ninja import EnvironmentConfig, NinjaEnv, RenderConfig, create_environment
from legroom_workloads.ninja.game import Game
from legroom_workloads.ninja.generator import generate
from legroom_workloads.ninja.reachability import Reachability

SMALL = {"level_size": "small", "levels": 2}
MEASURED = {row[0]: row for row in read_sections()["Parallel: what each optimisation saves"].rows}
MB = {"B": 1e-6, "KB": 1e-3, "MB": 1.0}


def saved(optimisation):
    """What a bench measured per environment, in MB."""
    number, unit, *_ = MEASURED[optimisation][2].split()
    return float(number) * MB[unit]


def shapes(**kwargs):
    space = NinjaEnv(**SMALL, **kwargs).observation_space
    return {key: (box.shape, str(box.dtype)) for key, box in space.spaces.items()}


# ---- the profiler


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ninja")
    asked = ("--frames", "1000", "--snapshot-interval", "100", "--envs", "0")
    files = ("--report", "memory_profiling_report.txt", "--cprofile", "profiling_stats.txt", "--save", "baseline.json")
    said = ran("profile", "ninja:default", *asked, *files, cwd=folder)
    return folder, said


@pytest.mark.parametrize(
    ("says", "what"),
    [
        ("--headless --profile-memory --profile-frames 1000 --memory-snapshot-interval 100", "No leak"),
        ("Generate a detailed memory profiling report", "ninja:default: "),
        ("Always use numpy views / observation sizes: `player_frame`", "player_frame  128×128×1 uint8  16.0 KiB"),
    ],
)
def test_one_command_profiles_the_environment(says, what, profiled):
    """python nclone/test_environment.py --headless --profile-memory --profile-frames 1000"""
    assert what in profiled[1]


def test_it_runs_as_many_frames_or_more(profiled):
    """Run for 1000 frames total; take memory snapshots every 100 frames"""
    assert json.loads((profiled[0] / "baseline.json").read_text())["steps"] >= 1000


def test_the_report_is_a_file(profiled):
    """`memory_profiling_report.txt`: Detailed memory analysis including leak detection"""
    assert (profiled[0] / "memory_profiling_report.txt").read_text().startswith("No leak: memory does not grow.")


def test_cprofile_writes_its_statistics(profiled):
    """`profiling_stats.txt`: Standard cProfile performance data"""
    assert pstats.Stats(str(profiled[0] / "profiling_stats.txt")).total_calls > 1000


def test_a_change_is_compared_with_the_baseline(profiled):
    """# Compare memory_profiling_report.txt with baseline"""
    asked = ("--frames", "500", "--envs", "0", "--baseline", profiled[0] / "baseline.json")
    said = ran("profile", "ninja:default", *asked, "--set", "env.kwargs.game_state=float16")
    assert "changed beyond noise" in said and "memory in use" in said and "30 float16" in said


@pytest.mark.document_error
def test_a_last_figure_above_the_first_is_no_leak():
    """Monitor memory leaks: Compare first and last snapshots in profiling report"""
    steps = np.arange(0, 5000, 50)
    filled = 50e6 + 2e6 * (1 - np.exp(-steps / 400))  # a cache that fills, and is full
    assert filled[-1] > filled[0] + 1.9e6
    assert judge(steps, filled, FLOOR, begin=DROPPED_SHARE * steps[-1]).verdict == "ok"
    assert judge(steps, 50e6 + 64.0 * steps, FLOOR, begin=DROPPED_SHARE * steps[-1]).verdict == "leak"


@pytest.mark.document_error
def test_kept_snapshots_are_a_finding(tmp_path):
    """Take memory snapshots every 100 frames"""
    (tmp_path / "profiler.py").write_text(
        "import tracemalloc\nimport gymnasium as gym\nenv, taken = gym.make('CartPole-v1'), []\n"
        "for step in range(1000):\n    env.step(env.action_space.sample())\n"
        "    taken.append(tracemalloc.take_snapshot())\n"
    )
    assert "LR058 snapshots-kept" in ran("check", "profiler.py", cwd=tmp_path, code=1)


def test_copies_side_by_side_are_measured():
    """Multi-Environment Test: envs = [create_visual_testing_env() for _ in range(10)]"""
    said = ran("profile", "ninja:parallel", "--frames", "100", "--envs", "1,2")
    assert "one more env takes" in said and " fit into " in said


# ---- observations


@pytest.mark.parametrize(
    ("says", "key", "shape", "dtype", "nbytes"),
    [
        ("`player_frame`: (128, 128, 1) uint8 = ~16 KB", "player_frame", (128, 128, 1), "uint8", 16_384),
        ("`global_view`: (128, 256, 1) uint8 = ~32 KB", "global_view", (128, 256, 1), "uint8", 32_768),
        ("`game_state`: (30,) float32 = ~120 bytes", "game_state", (30,), "float32", 120),
        ("769 elements for 128 mines × 6 attributes", "entity_states", (1 + 128 * 6,), "float32", 3_076),
    ],
)
def test_observations_have_the_documents_sizes(says, key, shape, dtype, nbytes):
    """Each environment observation contains multiple large numpy arrays"""
    assert shapes(entity_states="full")[key] == (shape, dtype)
    assert int(np.prod(shape)) * np.dtype(dtype).itemsize == nbytes


def test_a_hundred_observations_are_almost_5_mb():
    """When running 100 parallel environments, this adds up to ~4.8 MB per observation step."""
    assert 100 * (16_384 + 32_768 + 120) == 4_927_200  # 4.70 MiB; processes are 1,893 MB


@pytest.mark.document_error
def test_a_view_that_is_handed_out_changes_with_the_next_step():
    """Always use `numpy` views when possible: `array[:]` instead of `array.copy()`"""
    env = NinjaEnv(**SMALL, copy=False)
    first, _ = env.reset(seed=1)
    then = first["game_state"].copy()
    for _ in range(20):
        env.step(2)
    assert not np.array_equal(first["game_state"], then)  # and SB3 stores an observation after the step that follows it
    said = " ".join(
        ran("profile", "ninja:default", "--frames", "100", "--envs", "0", "--set", "env.kwargs.copy=false").split()
    )
    assert "game_state is a view of the environment's memory" in said and "return a copy" in said


@pytest.mark.parametrize(
    "says", ["Reuse Buffers: pre-allocate buffers and reuse them", "ObservationProcessor now reuses buffers"]
)
def test_buffers_are_reused_on_request(says):
    """Pre-allocated observation buffers"""
    env = NinjaEnv(**SMALL, copy=False)
    first, _ = env.reset(seed=1)
    assert all(np.shares_memory(first[key], env.step(2)[0][key]) for key in first)


@pytest.mark.parametrize(
    "says",
    ["Use float16 where 16-bit precision is sufficient: reduces memory by 50%", "| float16 game_state | ~60 bytes |"],
)
def test_float16_halves_120_bytes(says):
    """game_state.astype(np.float16): 60 B of 49,272 that an observation has"""
    assert shapes(game_state="float16")["game_state"] == ((30,), "float16") and 30 * 4 - 30 * 2 == 60


@pytest.mark.parametrize(
    ("says", "kind", "numbers"),
    [
        ("Slice Entity States Early: entity_states_full[:4]", "counts", 4),
        ("Use Sparse Representation for Inactive Entities", "compact", 1 + 16 * 3),
        ("Optimize entity state representation with sparse arrays", "compact", 49),
    ],
)
def test_entity_states_can_be_small(says, kind, numbers):
    """Entity State Arrays"""
    assert shapes(entity_states=kind)["entity_states"] == ((numbers,), "float32")


# ---- what is not allocated


LOADED = (
    "import sys; from legroom_workloads.ninja import NinjaEnv; env = NinjaEnv(levels=1, level_size='small'); "
    "env.reset(seed=0); env.step(0); print(*sorted(sys.modules))"
)


@pytest.fixture(scope="module")
def loaded():
    """The modules of a process with an environment, as training makes it."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("says", "module"),
    [
        ("Lazy Load Graph Structures: Don't allocate if not used", "legroom_workloads.ninja.reachability"),
        ("Implement lazy loading for optional features (graphs, reachability)", "legroom_workloads.ninja.reachability"),
        ("Use Smaller Render Buffers in Headless Mode", "legroom_workloads.ninja.pictures"),
        ("multiple conversions between pygame.Surface and numpy arrays create temporary copies", "pygame"),
        ("cv2.cvtColor is 2-3x faster", "cv2"),
        ("Disable Animation in Training: enable_animation=False", "legroom_workloads.ninja.animation"),
    ],
)
def test_what_is_off_is_not_there(says, module, loaded):
    """Frames are drawn in grey where they are needed: no surface, no conversion, no graph."""
    assert "legroom_workloads.ninja.frames" in loaded and module not in loaded


@pytest.mark.parametrize(
    "says", ["Cache Stabilized Frames", "Call stabilize_frame ONCE per observation", "Array views in processor"]
)
def test_what_does_not_move_is_drawn_once_and_shared(says):
    """Frame Processing Pipeline: the layer of a level is one read-only array for all environments."""
    ones = [create_environment(EnvironmentConfig(**SMALL)) for _ in range(2)]
    for env in ones:
        env.reset(seed=0, options={"level_seed": 0})
    layers = [env._observer._frames.layer.canvas for env in ones]
    assert np.shares_memory(*layers) and not layers[0].flags.writeable


@pytest.mark.document_error
@pytest.mark.parametrize(
    "says", ["LevelDataCache: _cache = {} ... Shared reference", "Share level data (requires global cache)"]
)
def test_a_cache_of_a_class_is_one_per_process(says, tmp_path):
    """Share Read-Only Level Data Across Environments"""
    (tmp_path / "cached.py").write_text(
        "import multiprocessing as m\nclass Cache:\n    levels = {}\ndef tell(q): q.put(len(Cache.levels))\n"
        "if __name__ == '__main__':\n    c = m.get_context('forkserver')\n    q = c.Queue()\n"
        "    Cache.levels[1] = b'level'\n"
        "    c.Process(target=tell, args=(q,)).start()\n    print(len(Cache.levels), q.get())\n"
    )
    done = subprocess.run([sys.executable, tmp_path / "cached.py"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "0"]
    # what `legroom.share` saves per process, where a class's dict saves nothing
    assert saved("shared data, against the level being played") > 20 * 0.2


def test_reachability_keeps_eight_levels():
    """Add LRU cache for computed reachability features"""
    assert shapes(reachability=True)["reachability"] == ((8,), "float32")
    reach = Reachability()
    for seed in range(10):
        reach.features(Game(generate(seed, "small", 0.0)))
    assert len(reach) == 8


# ---- the configuration for a hundred


@pytest.mark.parametrize(
    "says",
    [
        "config = EnvironmentConfig.for_parallel_training(); env = create_environment(config)",
        "Memory-optimized configuration - Added `EnvironmentConfig.for_parallel_training()` with optimal settings",
    ],
)
def test_the_quick_start_works(says):
    """Quick Start: Using Memory-Optimized Configuration"""
    config = EnvironmentConfig.for_parallel_training(**SMALL)
    env = create_environment(config)
    assert env.reset(seed=0)[0]["game_state"].dtype == np.float16 and config.share
    assert not config.render.enable_animation and config.entity_states is None and not config.reachability


def test_the_documents_render_config_is_accepted():
    """RenderConfig(render_mode="rgb_array", enable_animation=False)"""
    env = create_environment(EnvironmentConfig(**SMALL, render=RenderConfig("rgb_array", enable_animation=False)))
    env.reset(seed=0)
    assert env.render().shape == (600, 1056, 3)


def test_a_hundred_environments_fit_with_light_workers():
    """Safe for 100+ parallel environments"""
    asked = ("ninja:parallel", "--mode", "arithmetic", "--ram", "4GiB", "--json")
    (plain,) = json.loads(ran("predict", *asked, code=1))["runs"]
    (light,) = json.loads(ran("predict", *asked, "--set", "env.workers=light"))["runs"]
    assert plain["host"]["peak"] > 16 * GIB and light["host"]["peak"] < 3 * GIB


@pytest.mark.document_error
@pytest.mark.parametrize(
    ("says", "optimisation", "document_mb", "least", "most"),
    [
        ("| Disable animation | ~500 KB | ~50 MB |", "no animation", 0.5, 1.5, 3),
        ("| Array views in processor | ~100 KB |", "array views: slots written in place", 0.1, 0.12, 0.2),
        ("| Shared level data | ~200 KB | 95% saving |", "shared data, against the level being played", 0.2, 4, 5),
        ("| Buffer reuse | ~50 KB |", "buffer reuse", 0.05, -0.2, 0.02),
    ],
)
def test_what_an_optimisation_saves_was_measured(says, optimisation, document_mb, least, most):
    """Expected Memory Savings"""
    assert least < saved(optimisation) < most and not 0.8 < saved(optimisation) / document_mb < 1.25


@pytest.mark.document_error
@pytest.mark.parametrize("says", ["| **TOTAL** | **~850 KB** | **~85 MB** |", "~850 KB per environment instance"])
def test_the_total_is_small_beside_what_a_worker_is(says):
    """Memory savings: ~850 KB per environment instance"""
    assert pytest.approx(0.85, abs=0.001) == 60e-6 + 0.5 + 0.1 + 0.2 + 0.05
    assert saved("light workers, against SubprocVecEnv") > 150  # a hundred workers that import torch: 16 GB


def test_profiling_comes_first():
    """Profile before optimizing; Test parallel scenarios: Memory issues often only appear with multiple envs"""
    (workers,) = (each for each in predicted("ninja:parallel")["items"] if each["name"] == "runtime.worker imports")
    assert workers["count"] == 100 and 100e6 < workers["nbytes"] < 300e6
