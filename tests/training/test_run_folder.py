"""A run folder after damage: what is wrong is noticed, kept aside and derived anew; what differs is said or refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from legroom.errors import BadInput
from legroom.model.files import Damaged, Newer, seal, unseal
from legroom.model.footprint import Peak, Phase
from legroom.model.outcome import MeasuredPeak, MeasuredPeaks, Outcome
from legroom.model.run import Run
from legroom.reading import read
from legroom.training import durable
from legroom.training.checkpoint import MOST_DAMAGED, Checkpoints
from legroom.training.request import Training
from legroom.training.run_folder import Predicted, RunFolder
from legroom.training.supervise import ChildRecord
from legroom.training.train import Starts, _newest, _outcome

RUN = Run.model_validate(
    {
        "algo": "PPO", "env": {"id": "CartPole-v1", "kwargs": {"size": 5}}, "total_timesteps": 100,
        "hyperparams": {"n_steps": 32}, "seed": 3,
    }
)  # fmt: skip
PREDICTED = Predicted(Peak(100, 90, 110, Phase.COLLECT), None, (("runtime", 100),), (("runtime", 100),))
OUTCOME = Outcome("stopped", 40, MeasuredPeaks(MeasuredPeak(1, 2)), parameters_sha256="ab" * 32)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.keep(RUN.replace(total_timesteps=100), PREDICTED, asked=RUN)
    OUTCOME.write(folder.path / "outcome.json")
    return folder


def with_bit_flipped(content: bytes, bit: int) -> bytes:
    return content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]


@pytest.mark.parametrize("name", ["run.json", "outcome.json", "prediction.json"])
def test_no_flipped_bit_changes_what_a_document_says(folder: RunFolder, name: str) -> None:
    content = (folder.path / name).read_bytes()
    said = unseal(content, name)
    for bit in range(8 * len(content)):
        try:
            found = unseal(with_bit_flipped(content, bit), name)
        except Damaged:
            continue
        assert found == said, f"bit {bit}"  # of a space between two values


def test_a_prediction_is_read_as_it_was_kept(folder: RunFolder) -> None:
    assert folder.predicted() == PREDICTED and folder.predicted().host.phase is Phase.COLLECT


def test_damaged_documents_are_kept_aside_and_derived_anew(folder: RunFolder) -> None:
    for name in ("prediction.json", "outcome.json", "progress.csv"):
        (folder.path / name).write_text('{"host": 1')
    assert folder.predicted() is None and folder.outcome() is None and folder.run() == RUN
    said = folder.mend()
    assert [line.split()[0] for line in said] == ["prediction.json", "outcome.json", "progress.csv"]
    kept = sorted(path.name for path in folder.path.glob("damaged-*"))
    assert kept == ["damaged-outcome.json", "damaged-prediction.json", "damaged-progress.csv"]
    assert folder.mend() == []


def test_a_damaged_run_comes_back_from_a_checkpoint_and_is_refused_without_one(folder: RunFolder) -> None:
    good = (folder.path / "run.json").read_bytes()
    (folder.path / "run.json").write_bytes(good.replace(b"CartPole", b"CartPolf"))
    with pytest.raises(BadInput, match="does not match its checksum"):
        folder.run()
    Checkpoints(folder.path).write(10, {}, {}, files={"run.json": lambda path: path.write_bytes(good)})
    assert folder.run() == RUN and folder.asked() == RUN
    assert "run.json is damaged" in folder.mend()[0]


def test_a_folder_of_a_later_release_is_refused(folder: RunFolder) -> None:
    (folder.path / "run.json").write_bytes(seal(RUN.model_dump() | {"legroom": 99}))
    with pytest.raises(Newer, match="format 99, this one reads 1"):
        folder.run()


def test_a_document_without_its_checksum_is_damaged(folder: RunFolder) -> None:
    (folder.path / "run.json").write_text(json.dumps(RUN.model_dump()))
    with pytest.raises(BadInput, match="does not match its checksum"):
        folder.run()


def test_a_checkpoint_of_a_later_release_is_refused_and_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {}, {})
    path = checkpoints.write(2, {}, {})
    manifest = unseal((path / "manifest.json").read_bytes(), path)
    (path / "manifest.json").write_bytes(seal(manifest | {"legroom": 99}))
    with pytest.raises(Newer, match="newer legroom"):
        Checkpoints(tmp_path).latest()


def test_damaged_checkpoints_are_kept_aside_and_only_so_many(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=9)
    for step in range(1, MOST_DAMAGED + 4):
        path = checkpoints.write(step, {}, {})
        if step > 1:
            state = (path / "state.json").read_bytes()
            (path / "state.json").write_bytes(state.replace(b"arrays", b"Arrays"))
    again = Checkpoints(tmp_path)
    assert again.latest().step == 1
    said = again.set_damaged_aside()
    assert sum("moved to damaged-step-" in line for line in said) == MOST_DAMAGED + 2
    assert sum("is deleted" in line for line in said) == 2
    kept = sorted(path.name for path in (tmp_path / "checkpoints").glob("damaged-*"))
    assert kept == [f"damaged-step-{step:012d}" for step in range(4, MOST_DAMAGED + 4)]


def test_a_checkpoint_that_cannot_be_deleted_is_a_warning(tmp_path: Path, monkeypatch) -> None:
    def refuse(path: Path, parent: Path) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.write(1, {}, {})
    monkeypatch.setattr("legroom.training.checkpoint.delete", refuse)
    checkpoints.write(2, {}, {})
    assert "cannot be deleted: Operation not permitted" in checkpoints.warning
    assert [each.step for each in checkpoints.all()] == [1, 2]


def test_files_that_stay_after_a_deletion_are_noticed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "old").mkdir()
    monkeypatch.setattr(durable.shutil, "rmtree", lambda path, ignore_errors: None)
    with pytest.raises(OSError, match="cannot be deleted"):
        durable.delete(tmp_path / "old", tmp_path)


def request(folder: RunFolder, asked: Run, **options: bool) -> Training:
    return Training(asked, str(folder.path), asked=asked, resume=True, **options)


def with_env(**changes: object) -> Run:
    return RUN.replace(env=RUN.env.model_copy(update=changes))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (with_env(kwargs={"size": 6}), "another env: env.kwargs.size 5, not 6"),
        (with_env(kwargs={}), "another env: env.kwargs.size 5, not not set"),
        (with_env(id="Acrobot-v1"), "env.id CartPole-v1, not Acrobot-v1"),
        (with_env(n_envs=2), "env.n_envs 1, not 2"),
        (RUN.replace(hyperparams={"n_steps": 64}), "another hyperparams: hyperparams.n_steps 32, not 64"),
        (RUN.replace(seed=4), "seed 3, not 4"),
    ],
)
def test_what_changes_learning_is_refused_unless_allowed(folder: RunFolder, asked: Run, words: str) -> None:
    with pytest.raises(BadInput, match="was started with") as refused:
        request(folder, asked).resumed_run(RUN)
    assert words in str(refused.value)
    if asked.seed == RUN.seed:
        run, found = request(folder, asked, allow_changes=True).resumed_run(RUN)
        assert (run.env, run.hyperparams) == (asked.env, asked.hyperparams) and found


def test_knobs_that_legroom_turned_are_no_difference_and_memory_stays_as_it_was(folder: RunFolder) -> None:
    turned = RUN.replace(hyperparams={"n_steps": 16}, env=RUN.env.model_copy(update={"workers": "light"}))
    folder.keep(turned, PREDICTED, asked=RUN)
    run, found = request(folder, RUN.replace(total_timesteps=200)).resumed_run(turned)
    assert not found and run == turned.replace(total_timesteps=200)
    run, found = request(folder, with_env(workers="subproc")).resumed_run(turned)
    assert list(found) == [("env", "workers")] and run.env.workers == "light"


def test_a_stop_at_the_start_of_a_resume_erases_nothing(folder: RunFolder) -> None:
    Checkpoints(folder.path).write(40, {}, {"legroom": {"why_not_exact": ""}})
    starts = Starts(Training(RUN, str(folder.path), asked=RUN, predicted=PREDICTED, resume=True), OUTCOME)
    starts.record = ChildRecord(interrupted=True, exit_code=-2)
    starts.ended()
    outcome = _outcome(starts, OUTCOME, _newest(folder.path))
    assert (outcome.status, outcome.timesteps, outcome.resume) == ("stopped", 40, "exact")
    assert outcome.parameters_sha256 == OUTCOME.parameters_sha256


def test_what_a_killed_process_left_is_cleared_by_the_next_start(folder: RunFolder) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (folder.path / f".tmp-{dead.pid}-1-0").mkdir()
    (folder.path / f".tmp-{dead.pid}-1-1.json").write_text("{")
    mine = folder.path / f".tmp-{os.getpid()}-0-1.json"
    mine.write_text("{")
    with folder.locked():
        assert [path.name for path in folder.path.glob(".tmp-*")] == [mine.name]


def test_run_json_is_a_run_file_as_before(folder: RunFolder) -> None:
    run = read(str(folder.path / "run.json"))
    assert (run.env.kwargs, run.hyperparams, run.seed) == ({"size": 5}, {"n_steps": 32}, 3)


def test_there_is_nothing_to_resume_where_nothing_was_begun(tmp_path: Path, folder: RunFolder) -> None:
    """If this fails, a mistyped --out with --resume begins a training anew, and says nothing."""
    folder.check(resume=True)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/one.png").touch()
    for name, why in (("typo", "does not exist"), ("photos", "holds no training")):
        with pytest.raises(BadInput, match=f"{why}: nothing to resume"):
            RunFolder(tmp_path / name).check(resume=True)
    with RunFolder(tmp_path / "killed").locked():
        (tmp_path / "killed/train.log").touch()
    RunFolder(tmp_path / "killed").check(resume=True)  # by its lock: killed before its run was written


def test_a_command_that_failed_at_once_leaves_no_folder_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    for name in ("made", "new"):
        with pytest.raises(BadInput), RunFolder(tmp_path / name).locked():
            raise BadInput("corrected by the next command")
        RunFolder(tmp_path / name).check(resume=False)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["made"]
