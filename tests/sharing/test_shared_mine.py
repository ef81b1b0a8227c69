"""The mine's geology is in memory once for all workers of a run, unless the run says otherwise."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legroom import LeanVecEnv
from legroom.backends.sb3.making import make_vec_env
from legroom.model.run import Run
from legroom.sharing import shared, shared_folder
from legroom_workloads.mine import prepared
from legroom_workloads.mine.env import MineEnv

GRID = [20, 20, 20]  # 8,000 blocks of 65 bytes


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(shared_folder.VARIABLE, str(tmp_path / "run"))
    monkeypatch.setattr(shared, "_folder", None)
    monkeypatch.setattr(shared, "_known", {})
    prepared._get.cache_clear()


def maps_of(env: Any) -> list[set[str]]:
    """Return per worker which files of shared arrays, and of the mine's cache, it has mapped."""
    return [
        {
            line.split()[5]
            for line in Path(f"/proc/{worker.pid}/maps").read_text().splitlines()
            if line.endswith((".arrays", ".npy"))
        }
        for worker in env._crew.workers
    ]


def test_workers_map_one_file_and_see_what_is_seen_without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    makers = [partial(MineEnv, grid=GRID)] * 2
    seen = []
    for switch in ("shared", "off"):
        if switch == "off":
            monkeypatch.setenv(shared_folder.VARIABLE, "off")
        env = LeanVecEnv(makers)
        seen.append([np.array(env.reset())])
        for _ in range(20):
            actions = [int(np.flatnonzero(mask)[0]) for mask in env.env_method("action_masks")]
            observations, rewards, *_ = env.step(np.array(actions))
            seen[-1] += [np.array(observations), rewards]
        first, second = maps_of(env)
        assert first == second
        assert [file.rpartition(".")[2] for file in first] == (["arrays"] if switch == "shared" else [])
        env.close()
    for shared_one, own in zip(*seen, strict=True):
        np.testing.assert_array_equal(shared_one, own)


@pytest.mark.parametrize(("said", "mapped"), [(None, 1), (True, 1), (False, 0)])
def test_a_run_file_says_whether_data_is_shared(said: bool | None, mapped: int) -> None:
    spec = {"id": "legroom_workloads.mine:MineEnv", "grid": GRID, "n_envs": 2, "workers": "light"}
    run = Run.model_validate({"algo": "PPO", "env": spec, "memory": {"shared_data": said}})
    env = make_vec_env(run)
    assert [len(files) for files in maps_of(env)] == [mapped] * 2
    env.close()
