"""If this fails, an environment that hangs or crashes stops a training for ever, without a word, deaf to Ctrl-C."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from legroom.machine.tree import session_members
from legroom.model.outcome import Outcome
from legroom.model.run import EnvSpec, Run
from legroom.reading import run_from_dict
from legroom.training.events import EnvCalls, new_file
from legroom.training.hanging import HangWatch
from legroom.training.request import Training
from legroom.training.supervise import ChildRecord
from legroom.training.train import train

HERE = Path(__file__).parent


class Display:
    def __init__(self):
        self.said = []

    def progress(self, progress):
        pass

    def memory(self, sample):
        pass

    def say(self, line):
        self.said.append(line)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(str(HERE))


def trained(folder: Path, workers: str, env: dict, total: int = 256, **kwargs) -> tuple[Outcome, ChildRecord, str]:
    spec = {"id": "hang_env:Hangs", "n_envs": 2, "workers": workers, "kwargs": {"mark": str(folder / "mark"), **kwargs}}
    run = Run.model_validate({
        "algo": "PPO", "env": spec | env, "hyperparams": {"n_steps": 32, "batch_size": 16, "n_epochs": 1},
        "total_timesteps": total, "seed": 7,
    })  # fmt: skip
    display = Display()
    outcome, record = train(Training(run, str(folder / "out"), asked=run, checkpoint_every=64, retries=3), display)
    return outcome, record, "\n".join(display.said)


@pytest.mark.parametrize("workers", ["light", pytest.param("subproc", marks=pytest.mark.slow)])
def test_what_hangs_is_named_with_its_stack_and_goes_on_from_the_last_checkpoint(tmp_path, workers):
    outcome, _, said = trained(
        tmp_path, workers, {"timeout": 8 if workers == "subproc" else 3}, how="hold_gil", once=True
    )
    assert outcome.status == "finished" and outcome.resume == "exact"
    assert len(outcome.retreats) == 1
    assert_names_what_hangs(outcome, said, "the worker of env ")


def assert_names_what_hangs(outcome, said, who):
    assert f"an environment hangs: {who}" in said and "s in step (" in said
    assert 'hang_env.py"' in said and " in hold_gil" in said
    assert "resumed unchanged" in outcome.retreats[0].what
    assert "resuming from step 192 (exact)" in said


@pytest.mark.slow
def test_what_hangs_and_then_crashes_in_the_training_process_goes_on_each_time(tmp_path):
    """It hangs in the fourth iteration, and crashes in the second one after that."""
    outcome, _, said = trained(tmp_path, "dummy", {"timeout": 3}, 320, how="hold_gil", once=True, crash_at=40)
    assert outcome.status == "finished" and outcome.resume == "exact"
    assert_names_what_hangs(outcome, said, "the training process")
    assert len(outcome.retreats) == 2
    assert outcome.retreats[1].why.startswith("it crashed by SIGSEGV")
    assert "resuming from step 256 (exact)" in said


@pytest.mark.slow
def test_what_hangs_ends_where_the_run_says_so(tmp_path):
    outcome, record, _ = trained(tmp_path, "light", {"timeout": 3, "on_timeout": "end"})
    assert (outcome.exit_code, outcome.status, outcome.resume) == (4, "failed", "exact")
    assert "an environment hangs: the worker of env" in outcome.error
    assert "in sleep\n" in record.end["traceback"] and "in come_to" in record.end["traceback"]


@pytest.mark.slow
def test_an_environment_that_cannot_be_built_hangs_twice_and_ends(tmp_path):
    outcome, _, _ = trained(tmp_path, "light", {"timeout": 0.5}, how="loop", where="build")
    assert outcome.exit_code == 4 and "an environment being built hangs: a worker, pid" in outcome.error
    assert [each.what for each in outcome.retreats] == [
        "resumed unchanged", "given up: it happened twice without a new checkpoint in between"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_training_whose_environment_hangs_in_close_has_finished(tmp_path):
    outcome, _, said = trained(tmp_path, "dummy", {"timeout": 3}, how="hold_gil", where="close")
    assert (outcome.exit_code, outcome.status) == (0, "finished") and "in close" in said


@pytest.mark.slow
def test_a_crash_that_repeats_ends_with_its_story(tmp_path):
    outcome, _, _ = trained(tmp_path, "dummy", {}, how="crash", where="reset")
    assert outcome.exit_code == 4 and "was killed by SIGSEGV" in outcome.error
    assert outcome.retreats[-1].what == "given up: it happened twice without a new checkpoint in between"


@pytest.mark.parametrize(("workers", "how", "where"), [
    pytest.param("dummy", "loop", "reset", marks=pytest.mark.slow),
    ("dummy", "hold_gil", "step"),
    pytest.param("light", "sleep", "step", marks=pytest.mark.slow),  # test_train.py stops slow light workers
    pytest.param("subproc", "loop", "build", marks=pytest.mark.slow),
])  # fmt: skip
def test_ctrl_c_ends_within_ten_seconds_whatever_the_environment_does(tmp_path, workers, how, where):
    asked: list[float] = []
    started: set[int] = set()

    def ask():
        deadline = time.monotonic() + 120
        while not (tmp_path / "mark").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        started.update(_descendants_sessions())
        asked.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)  # does what Ctrl-C does; that is ignored where the tests run with nohup

    threading.Thread(target=ask, daemon=True).start()
    outcome, _, _ = trained(tmp_path, workers, {"timeout": 0}, how=how, where=where)
    busy = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)
    assert time.monotonic() - asked[0] < (60 if busy else 10)
    assert (outcome.exit_code, outcome.status) == (130, "stopped")
    assert outcome.resume == ("exact" if where == "step" else None)
    assert started and not [pid for leader in started for pid in session_members(leader)]


def _descendants_sessions() -> set[int]:
    """Return the sessions that this process's children lead."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in children if os.getsid(int(pid)) == int(pid)}


@pytest.mark.parametrize(("timeout", "call", "allowed"), [
    (None, "build", 600), (None, "step", 600), (None, "close", 30), (0, "step", None), (5, "step", 5), (5, "build", 50),
])  # fmt: skip
def test_what_is_allowed_is_what_the_run_says_or_ten_minutes(timeout, call, allowed):
    watch = HangWatch(EnvSpec(timeout=timeout), EnvCalls(-1), os.getpid(), Path(os.devnull), {})
    assert watch.allowed_s(call) == allowed


def test_a_machine_that_slept_is_not_an_environment_that_hangs(monkeypatch):
    calls = EnvCalls(new_file())
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    watch = HangWatch(EnvSpec(timeout=5), calls, os.getpid(), Path(os.devnull), {})
    with calls.calling("step"):
        watch.look()
        clock[0] += 3600
        assert watch.look() is None


@pytest.mark.parametrize("bad", [-1, True, "soon", float("nan"), float("inf"), 1e300])
def test_a_bad_timeout_is_refused(bad):
    from legroom.errors import BadInput

    with pytest.raises(BadInput, match=r"env\.timeout"):
        run_from_dict({"legroom": 1, "algo": "PPO", "env": {"id": "CartPole-v1", "timeout": bad}})
