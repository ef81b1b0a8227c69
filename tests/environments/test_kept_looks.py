"""A look at an environment is used again only while what it read is as it was."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from legroom.backends.base import backend_of
from legroom.environments.env_look import kept_look, look_at_env
from legroom.environments.look_sources import ALL, is_same, state
from legroom.reading import read

ENV = """
import json, os
import gymnasium as gym, numpy as np

def size():
    {size}

class Sized(gym.Env):
    def __init__(self):
        self.observation_space = gym.spaces.Box(0, 1, (size(),), np.float32)
        self.action_space = gym.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(self.observation_space.shape, np.float32), {{}}
    def step(self, action):
        return self.reset()[0], 0.0, False, False, {{}}
"""
WAYS = {
    "a file": "return json.load(open('size.json'))['n']",
    "a file that may be there": "return 200 if os.path.exists('big.flag') else 3",
    "a folder": "return len([name for name in os.listdir('data')]) + 3",
    "a link's target": "return len(os.readlink('link'))",
    "a permission": "return 200 if os.access('big.flag', os.R_OK) else 3",
    "a variable": "return int(os.environ.get('SIZE_OF_ENV', 3))",
}


@pytest.mark.parametrize("what", WAYS)
def test_what_it_read_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sized.py").write_text(ENV.format(size=WAYS[what]))
    (tmp_path / "run.yaml").write_text('algo: DQN\nenv: {id: "sized:Sized"}\n')
    (tmp_path / "size.json").write_text('{"n": 3}')
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("abc")
    run = read(str(tmp_path / "run.yaml"))
    how: Any = backend_of(run).predictor.env_task(run)

    assert look_at_env(run, how, trust=True).spaces.observation.shape == (3,)
    kept = kept_look(run, how)
    assert kept is not None and kept.spaces.observation.shape == (3,)
    (tmp_path / "size.json").write_text('{"n": 200}')
    (tmp_path / "big.flag").write_text("")
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("a" * 200)
    for number in range(197):
        (tmp_path / "data" / str(number)).write_text("")
    monkeypatch.setenv("SIZE_OF_ENV", "200")
    assert kept_look(run, how) is None
    assert look_at_env(run, how, trust=True).spaces.observation.shape == (200,)


def test_only_what_was_read_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("1")
    told = {"paths": [str(file), str(tmp_path / "missing")], "folders": [str(tmp_path)], "variables": ["SIZE"]}
    kept = state(told, {"SIZE": "3"})
    assert is_same(kept, {"SIZE": "3", "OTHER": "4"})
    assert not is_same(kept, {"SIZE": "4"})
    assert not is_same(kept, {})
    about = file.stat()
    file.write_text("2")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))  # the same size and time
    assert not is_same(kept, {"SIZE": "3"})


def test_who_reads_all_variables_depends_on_all() -> None:
    kept = state({"paths": [], "folders": [], "variables": [ALL]}, {"SIZE": "3", "PWD": "/a"})
    assert is_same(kept, {"SIZE": "3", "PWD": "/b"})
    assert not is_same(kept, {"SIZE": "3", "PWD": "/a", "MORE": "1"})
    assert not is_same({"paths": {}}, {})


@pytest.mark.parametrize(
    "how",
    [
        "import pyarrow.parquet; return pyarrow.parquet.read_table('size.parquet')['n'][0].as_py()",
        "import torch; return torch.from_file('size.parquet', size=3, dtype=torch.uint8).numel()",
        "import ctypes; return int(ctypes.CDLL(None).getenv(b'SIZE_OF_ENV') or 3) and 3",
    ],
    ids=["a compiled library reads a file", "torch maps a file", "C reads a variable"],
)
def test_a_look_that_nobody_can_follow_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sized.py").write_text(ENV.format(size=how))
    (tmp_path / "run.yaml").write_text('algo: DQN\nenv: {id: "sized:Sized"}\n')
    pyarrow.parquet.write_table(pyarrow.table({"n": [3]}), "size.parquet")
    run = read(str(tmp_path / "run.yaml"))
    task: Any = backend_of(run).predictor.env_task(run)

    assert look_at_env(run, task, trust=True).spaces.observation.shape == (3,)
    assert kept_look(run, task) is None
