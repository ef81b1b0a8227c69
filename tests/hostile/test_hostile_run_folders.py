"""If these fail, a run folder that somebody sent hangs a command, takes all memory, or ends it with a traceback.

Who sends a folder can compute its checksums: these are whole, and say what no training says.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from legroom.cli.main import main
from legroom.errors import BadInput
from legroom.model.files import LARGEST_DOCUMENT, seal
from legroom.sweeping.sweep_folder import SweepFolder
from legroom.training.checkpoint import Checkpoint, Checkpoints, checkpoint_paths, newest_checkpoint
from legroom.training.progress_log import read_progress
from legroom.training.run_folder import RunFolder, backend_name_in

RUN = {"algo": "PPO", "env": {"id": "CartPole-v1"}, "total_timesteps": 100, "seed": 3}
DOCUMENTS = ("run.json", "outcome.json", "prediction.json", "progress.csv")
FILES = ("manifest.json", "state.json", "policy.safetensors", "arrays.bin")
Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "run"
    folder.mkdir()
    (folder / "run.json").write_bytes(seal(RUN))
    tensors = {"policy/weights": np.ones(3, np.float32), "envs/0": np.arange(4)}
    Checkpoints(folder).write(5, tensors, {"n_envs": 1})
    return folder


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "run"))


def sealed_again(checkpoint: Path) -> None:
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    for name in manifest["files"]:
        content = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (checkpoint / "manifest.json").write_bytes(seal(manifest))


def everything_is_read(folder: Path) -> None:
    """Read what the commands read of a folder, whatever of it can be; only `BadInput` may come of it."""
    run_folder = RunFolder(folder)

    def of_checkpoint() -> None:
        checkpoint = newest_checkpoint(folder)
        for group in ("policy", "envs") if checkpoint is not None else ():
            assert checkpoint is not None and checkpoint.data is not None
            checkpoint.tensors(group)

    of_documents = (run_folder.run, run_folder.asked, run_folder.outcome, run_folder.predicted, run_folder.mend)
    others = (of_checkpoint, lambda: read_progress(folder / "progress.csv"), lambda: backend_name_in(folder))
    for reading in (*of_documents, *others):
        try:
            reading()
        except BadInput:
            continue


def as_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_endless(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def as_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def as_deep(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def as_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(LARGEST_DOCUMENT + 1 if path.suffix == ".json" else 1 << 20)


@pytest.mark.parametrize("name", [*DOCUMENTS, *FILES])
@pytest.mark.parametrize("change", [as_pipe, as_endless, as_folder, as_deep, as_sparse])
def test_what_is_no_file_of_ours_is_not_waited_for(folder: Path, name: str, change: Change) -> None:
    change(folder / name if name in DOCUMENTS else checkpoint_paths(folder)[-1] / name)
    everything_is_read(folder)


@pytest.mark.parametrize(
    "entry",
    [{"shape": [10**13]}, {"shape": [-5]}, {"shape": [1] * 70}, {"shape": [2**40, 2**40]}, {"shape": "abc"},
     {"shape": [1.5]}, {"dtype": "S2000000000", "shape": [10**6]}, {"dtype": "O"}, {"dtype": "f4,f4"},
     {"dtype": "x; y"}, {"dtype": ["a"]}, {"dtype": None}, {"at": -1}, {"at": 10**30}, {"at": "x"}],
    ids=str,
)  # fmt: skip
def test_an_array_that_cannot_be_is_one_line(folder: Path, entry: dict[str, Any]) -> None:
    path = checkpoint_paths(folder)[-1]
    state = json.loads((path / "state.json").read_bytes())
    state["arrays"]["envs/0"] |= entry
    (path / "state.json").write_text(json.dumps(state))
    sealed_again(path)
    with pytest.raises(BadInput):
        Checkpoint(path).tensors("envs")


def safetensors_of(header: dict[str, Any] | bytes, content: bytes = bytes(8), length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + content


TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "content",
    [b"abc", bytes(8), safetensors_of(b"{}", length=2**63 - 1), safetensors_of(b"[" * 100_000),
     safetensors_of({"a": TENSOR, "b": TENSOR}), safetensors_of({"a": TENSOR | {"shape": [2**40, 2**40]}}),
     safetensors_of({"a": TENSOR | {"dtype": "F4"}}), safetensors_of({"a": TENSOR | {"data_offsets": [8, 0]}})],
    ids=lambda content: str(content[:40]),
)  # fmt: skip
def test_tensors_that_cannot_be_are_one_line(folder: Path, content: bytes) -> None:
    path = checkpoint_paths(folder)[-1]
    (path / "policy.safetensors").write_bytes(content)
    sealed_again(path)
    with pytest.raises(BadInput):
        Checkpoint(path).tensors("policy")


@pytest.mark.parametrize(
    "files",
    [{"../../etc/passwd": {"bytes": 1, "sha256": "x"}}, {"/etc/passwd": {"bytes": 1, "sha256": "x"}},
     {"..": {"bytes": 1, "sha256": "x"}}, {"": {"bytes": 1, "sha256": "x"}}, {"a\0b": {"bytes": 1, "sha256": "x"}},
     {"a" * 300: {"bytes": 1, "sha256": "x"}}, {"state.json": {"bytes": "1", "sha256": 5}}, {"state.json": 5},
     [], None],
    ids=lambda files: str(files)[:30],
)  # fmt: skip
def test_a_manifest_that_lies_is_one_line(folder: Path, files: Any) -> None:
    path = checkpoint_paths(folder)[-1]
    manifest = json.loads((path / "manifest.json").read_bytes())
    manifest["files"] = manifest["files"] | files if isinstance(files, dict) else files
    (path / "manifest.json").write_bytes(seal(manifest))
    with pytest.raises(BadInput):
        Checkpoint(path).verify()
    everything_is_read(folder)


@pytest.mark.parametrize(
    "data", [{}, [], None, {"spaces": {"$scalar": ["\x1b[31m", 1]}}, {"spaces": {"$array": "x"}}, 5]
)
def test_a_checkpoint_without_what_a_training_keeps_is_not_exported(
    folder: Path, data: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkpoint_paths(folder)[-1]
    (path / "state.json").write_text(json.dumps({"legroom": 1, "step": 5, "data": data, "arrays": {}}))
    sealed_again(path)
    with pytest.raises(SystemExit) as ended:
        main(["export", str(folder), str(folder / "model.zip")])
    err = capsys.readouterr().err
    assert ended.value.code == 2 and err.startswith("legroom: ") and err.count("\n") == 1
    assert "\x1b" not in err and not (folder / "model.zip").exists()


@pytest.mark.parametrize(
    "plan", ["[]", '{"sweep": {}}', '{"sweep": 5, "trials": []}', '{"sweep": {}, "trials": {"a": 1}}']
)
def test_a_plan_of_a_sweep_that_cannot_be_is_one_line(tmp_path: Path, plan: str) -> None:
    (tmp_path / "sweep.json").write_text(plan)
    with pytest.raises(BadInput):
        SweepFolder(tmp_path).identity()
