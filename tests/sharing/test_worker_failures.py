"""Workers and environments that go wrong: said at once, completely, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from worker_envs import Fragile, Global, OwnError, Sleepy, Walk, close_kindly, is_running, pids, wait_until

from legroom import LeanVecEnv
from legroom.errors import BadInput
from legroom.sharing.messages import EnvFailed, WorkerDied

NOTHING = np.zeros(3, int)


def test_a_killed_worker_is_named_at_the_next_step(begun: Any) -> None:
    env = begun([Walk] * 3)
    victim = pids(env)[1]
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerDied, match=rf"worker of env 1, pid {victim}, was killed by SIGKILL") as told:
        for _ in range(3):
            env.step(NOTHING)
    assert told.value.envs == (1,)
    assert (told.value.pid, told.value.signal_name, told.value.code) == (victim, "SIGKILL", None)
    assert "OOM" not in str(told.value)
    close_kindly(env)


def test_a_worker_killed_while_others_are_waited_for_is_named_before_they_are_ready(begun: Any) -> None:
    env = begun([Sleepy] * 3)
    env.step_async(np.array([3, 3, 3]))
    victim = pids(env)[2]
    os.kill(victim, signal.SIGTERM)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match=rf"env 2, pid {victim}, was killed by SIGTERM"):
        env.step_wait()
    with pytest.warns(UserWarning, match="env 0, env 1 did not close within 2 s"):
        env.close()  # two workers sleep on
    assert time.monotonic() - began < 15  # they sleep for 30
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids(env))  # not even as a zombie


def test_the_OOM_killer_is_suspected_only_when_its_counter_rose(begun: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for rises, suspected in ((0, False), (1, True)):
        monkeypatch.setattr("legroom.sharing.process.oom_kills", lambda: 4)
        env = begun([Walk])
        monkeypatch.setattr("legroom.sharing.process.oom_kills", lambda rises=rises: 4 + rises)
        os.kill(pids(env)[0], signal.SIGKILL)
        with pytest.raises(WorkerDied) as told:
            env.step(NOTHING[:1])
        assert ("probably the OOM killer" in str(told.value)) == suspected == told.value.oom_killed


@pytest.mark.parametrize("forked", [True, False])
def test_exit_codes_last_words_and_native_crashes(begun: Any, forked: bool) -> None:
    env = begun([Global] * 3, forked=forked)
    with pytest.raises(WorkerDied, match=r"(?s)env 1, pid \d+, ended with exit code 5.*about to leave") as told:
        env.env_method("leave", 5, indices=1)
    assert told.value.code == 5
    with pytest.raises(WorkerDied, match=r"(?s)env 2.*SIGSEGV.*in crash"):
        env.env_method("crash", indices=2)
    assert env.env_method("add", 1, 2, indices=0) == [3]  # the others are there as before


def test_an_exception_arrives_as_itself_with_place_and_traceback(begun: Any) -> None:
    env = begun([Walk, Walk, partial(Fragile, "own")], envs_per_worker=2)
    with pytest.raises(OwnError) as told:
        for _ in range(9):
            env.step(NOTHING)
    assert told.value.args == ("the fifth step", 5)
    cause = told.value.__cause__
    assert isinstance(cause, EnvFailed)
    assert (cause.env, cause.step) == (2, 5)
    printed = "".join(traceback.format_exception(told.value))
    assert "worker_envs.py" in printed
    assert 'raise OwnError("the fifth step", 5)' in printed
    env.reset()  # the workers are still there
    env.step(NOTHING)


def test_an_exception_that_cannot_travel_is_told_all_the_same(begun: Any) -> None:
    env = begun([partial(Fragile, "unpicklable")])
    with pytest.raises(EnvFailed, match=r"(?s)env 0 at its step 5.*Unpicklable: the fifth step"):
        for _ in range(9):
            env.step(NOTHING[:1])
    env = begun([partial(Fragile, "info")])
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        for _ in range(9):
            env.step(NOTHING[:1])


def test_exceptions_of_methods_and_of_making(begun: Any) -> None:
    env = begun([Walk] * 2, envs_per_worker=2)
    with pytest.raises(OwnError) as told:
        env.env_method("fail", "as asked", indices=1)
    assert told.value.__cause__.env == 1  # type: ignore[union-attr]
    env.step(NOTHING[:2])
    with pytest.raises(ZeroDivisionError):
        LeanVecEnv([lambda: 1 / 0])  # type: ignore[list-item, return-value]


def test_an_interrupted_wait_leaves_a_usable_environment(begun: Any) -> None:
    env = begun([partial(Fragile, "never")] * 2)
    env.step_async(NOTHING[:2])  # and the trainer is interrupted before it waits
    env.step(NOTHING[:2])
    assert env.get_attr("time") == [2, 2]
    env.step_async(NOTHING[:2])  # or asks for something in between
    assert env.get_attr("time") == [3, 3]
    assert [info.get("time") for info in env.step_wait()[3]] == [3, 3]
    with pytest.raises(BadInput, match="without step_async"):
        env.step_wait()


def test_interruptions_at_any_moment_leave_a_usable_environment(begun: Any) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    env = begun([partial(Fragile, "never")] * 2)
    before = signal.signal(signal.SIGALRM, interrupt)
    rng = np.random.default_rng(0)
    interrupted = 0
    gc.disable()  # Python drops what is raised in a callback of the collector, such as Hypothesis and JAX install
    try:
        for _ in range(150):
            until = time.monotonic() + 20
            try:
                signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 2e-3)))
                while time.monotonic() < until:
                    env.step(NOTHING[:2])
                    env.env_method("add", 1, 2)
            except Interrupted:
                interrupted += 1
            assert env.env_method("add", 3, 4) == [7, 7]
    finally:
        gc.enable()
        signal.signal(signal.SIGALRM, before)
    assert interrupted == 150
    seen = env.reset()
    states = env.env_method("get_state")
    np.testing.assert_array_equal(seen, [state["links"][1]["state"]["position"].astype("float32") for state in states])


TRAINER = """
import sys, threading, time
import legroom, numpy as np
sys.path.insert(0, {tests!r})
from worker_envs import Sleepy

envs = []

def start():
    envs.append(legroom.LeanVecEnv([Sleepy] * 2))
    envs[-1].reset()
    envs[-1].step_async(np.array([0, 3]))  # one worker waits, the other one is in a step

start()
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(*(worker.pid for env in envs for worker in (env._crew.template, *env._crew.workers)), flush=True)
time.sleep(60)
"""


def test_neither_template_nor_worker_outlives_a_killed_trainer() -> None:
    script = TRAINER.format(tests=str(Path(__file__).parent))
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert trainer.stdout is not None
        workers = [int(pid) for pid in trainer.stdout.readline().split()]
        assert len(workers) == 6
        time.sleep(0.2)
        assert all(map(is_running, workers))  # also those whose starting thread has ended
    finally:
        trainer.kill()
        trainer.wait()
    assert wait_until(lambda: not any(map(is_running, workers)), 2)


def test_a_forgotten_environment_takes_its_workers_along() -> None:
    env = LeanVecEnv([Walk] * 2)
    workers = pids(env)
    del env
    assert wait_until(lambda: not any(map(is_running, workers)), 3)
    env = LeanVecEnv([Walk] * 2)
    workers = pids(env)
    env.myself = env  # type: ignore[attr-defined]  # a cycle, as a model and its callbacks make one
    del env
    gc.collect()
    assert wait_until(lambda: not any(map(is_running, workers)), 3)


def test_environments_close_themselves(tmp_path: Path) -> None:
    class Closing(Walk):
        def close(self) -> None:
            (tmp_path / "closed").write_text("yes")

    env = LeanVecEnv([lambda: gym.wrappers.TimeLimit(Closing(), 5)])
    env.close()
    assert (tmp_path / "closed").read_text() == "yes"


def test_nothing_is_left_open_or_in_shared_memory() -> None:
    def state() -> tuple[int, set[str]]:
        gc.collect()  # environments that earlier tests' tracebacks refer to
        names = {path.name for path in Path("/dev/shm").iterdir()} if Path("/dev/shm").exists() else set()
        return len(os.listdir("/proc/self/fd")), names  # noqa: PTH208

    LeanVecEnv([Walk]).close()
    before = state()
    env = LeanVecEnv([Walk] * 2)
    env.reset()
    env.close()
    del env  # the memory is there as long as somebody may hold an observation
    assert state()[0] == before[0]
    assert state()[1] <= before[1]
