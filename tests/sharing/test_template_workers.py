"""Workers forked from a template: small, as well guarded as fresh ones, and not forked where that would be unsafe."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_envs import Fragile, Global, Sleepy, Telling, Walk, close_kindly

from legroom import LeanVecEnv
from legroom.machine.tree import process_memory
from legroom.sharing.messages import WorkerDied

NOTHING = np.zeros(3, int)


@pytest.fixture
def opened() -> Iterator[Callable[..., LeanVecEnv]]:
    envs: list[LeanVecEnv] = []

    def start(*arguments: Any, **keywords: Any) -> LeanVecEnv:
        envs.append(LeanVecEnv(*arguments, **keywords))
        envs[-1].reset()
        return envs[-1]

    yield start
    for env in envs:
        env.close()


def pids(env: LeanVecEnv) -> list[int]:
    return [worker.pid for worker in env._crew.workers]


def exists(pid: int) -> bool:
    """Return whether there is such a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_a_forked_worker_has_a_third_of_a_fresh_ones_memory(opened: Any) -> None:
    private = {}
    for forked in (False, True):
        env = opened([Telling] * 3, forked=forked)
        env.step(NOTHING)
        assert bool(env._crew.template) == forked
        private[forked] = np.median([process_memory(pid).uss for pid in pids(env)])  # type: ignore[union-attr]
    assert private[True] < private[False] / 3
    assert private[True] < 8e6
    assert "torch" not in env.env_method("loaded")[0]


def test_workers_have_groups_of_their_own_in_the_trainers_session(opened: Any) -> None:
    env = opened([Walk] * 3)
    template = env._crew.template.pid
    assert env._crew.why_fresh == ""
    for pid in pids(env):
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(0)
        assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == template
        os.kill(pid, signal.SIGINT)  # Ctrl-C is for the trainer
    os.kill(template, signal.SIGINT)
    assert os.getpgid(template) == template
    env.step(NOTHING)


def test_one_worker_needs_no_template(opened: Any) -> None:
    env = opened([Walk] * 2, envs_per_worker=2)
    assert env._crew.template is None


def test_steps_are_those_of_fresh_workers(opened: Any) -> None:
    seen = []
    for forked in (False, True):
        env = opened([Walk] * 4, envs_per_worker=2, forked=forked)
        env.seed(7)
        seen.append([env.reset().copy()])
        for step in range(30):
            observations, rewards, dones, infos = env.step(np.full(4, step % 4))
            seen[-1] += [observations.copy(), rewards, dones, [len(info) for info in infos]]
    for fresh, forked_one in zip(*seen, strict=True):
        np.testing.assert_array_equal(fresh, forked_one)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_named_at_once_and_leaves_no_zombie(opened: Any, number: signal.Signals) -> None:
    env = opened([Sleepy] * 3)
    env.step_async(np.array([3, 3, 3]))
    victim = pids(env)[0]
    os.kill(victim, number)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match=rf"env 0, pid {victim}, was killed by {number.name}"):
        env.step_wait()
    assert time.monotonic() - began < 15  # the others sleep for 30
    assert not exists(victim)


def test_exit_codes_last_words_and_native_crashes(opened: Any) -> None:
    env = opened([Global] * 3)
    with pytest.raises(WorkerDied, match=r"(?s)env 1, pid \d+, ended with exit code 5.*about to leave") as told:
        env.env_method("leave", 5, indices=1)
    assert told.value.code == 5
    with pytest.raises(WorkerDied, match=r"(?s)env 2.*SIGSEGV.*in crash"):
        env.env_method("crash", indices=2)
    assert env.env_method("add", 1, 2, indices=0) == [3]  # the others are there as before
    env = opened([Walk, partial(Fragile, "own")])
    with pytest.raises(Exception, match="the fifth step"):
        for _ in range(9):
            env.step(NOTHING[:2])


def test_a_killed_template_takes_its_workers_along(opened: Any) -> None:
    env = opened([Sleepy] * 3)
    env.step_async(np.array([3, 3, 0]))
    workers = pids(env)
    os.kill(env._crew.template.pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
        env.step_wait()
    assert wait_until(lambda: not any(map(exists, workers)), 20)
    close_kindly(env)
    assert time.monotonic() - began < 25
    assert not exists(env._crew.template.pid)


def test_closing_leaves_nothing(opened: Any) -> None:
    opened([Walk] * 2).close()
    gc.collect()  # what other tests of this process left to the collector must not be counted, now or later
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    env = opened([Walk] * 3)
    everyone = [env._crew.template.pid, *pids(env)]
    close_kindly(env)
    assert not any(map(exists, everyone))
    del env._slots
    assert len(os.listdir("/proc/self/fd")) <= before  # noqa: PTH208


def test_workers_that_hang_are_killed_when_closed(opened: Any) -> None:
    env = opened([Sleepy] * 3)
    everyone = [env._crew.template.pid, *pids(env)]
    env.step_async(np.array([3, 0, 3]))
    with pytest.warns(UserWarning, match="env 0, env 2 did not close within 2 s"):
        env.close()
    assert wait_until(lambda: not any(map(exists, everyone)), 20)


TRAINER = """
import os, sys, threading, time
import legroom, numpy as np
sys.path.insert(0, {tests!r})
from worker_envs import Sleepy

def start():
    env = legroom.LeanVecEnv([Sleepy] * 2)
    env.reset()
    env.step_async(np.array([0, 3]))  # one worker waits, the other one is in a step
    kept.append(env)

kept = []
if {thread}:
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
crew = kept[0]._crew
print(crew.template.pid, *(worker.pid for worker in crew.workers), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("thread", [False, True], ids=["main thread", "a thread that has ended"])
def test_template_and_workers_die_with_a_killed_trainer(thread: bool) -> None:
    script = TRAINER.format(tests=str(Path(__file__).parent), thread=thread)
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert trainer.stdout is not None
        everyone = [int(pid) for pid in trainer.stdout.readline().split()]
        assert len(everyone) == 3
        time.sleep(0.2)
        assert all(map(exists, everyone))
    finally:
        trainer.kill()
        trainer.wait()

    def running(pid: int) -> bool:  # orphans' zombies are up to init
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    assert wait_until(lambda: not any(map(running, everyone)), 2)


def test_generators_that_a_process_shares_differ_between_workers(opened: Any) -> None:
    draws = opened([Global] * 3).env_method("draw")
    assert len({python for python, _ in draws}) == len({numpy for _, numpy in draws}) == 3


UNSUITABLE = {
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "open": "FILE = open(__file__)\n",
    "random generator": "import numpy\nRNG = numpy.random.default_rng()\n",
    "raised": "import sys\nif 'pytest' not in sys.modules: raise RuntimeError('no')\n",
}


@pytest.mark.parametrize("why", UNSUITABLE)
def test_what_cannot_be_forked_gets_fresh_interpreters(
    why: str, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"unsuitable_{why.replace(' ', '_')}"
    (tmp_path / f"{name}.py").write_text(UNSUITABLE[why] + "from worker_envs import Walk\nclass Env(Walk): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    if why == "raised":  # then a fresh one says so, with its own traceback
        with pytest.raises(RuntimeError, match="no"):
            opened([module.Env] * 2)
        return
    env = opened([module.Env] * 2)
    assert why in env._crew.why_fresh
    assert env._crew.template is None
    env.step(NOTHING[:2])


def test_modules_are_imported_once_and_what_they_print_is_printed_once(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talking.py").write_text("print('hello from talking')\nfrom worker_envs import Walk as Env\n")
    (tmp_path / "named.py").write_text("print('hello from named')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def make() -> Any:
        return importlib.import_module("talking").Env()

    opened([make] * 3, preload=["talking", "named", "not_there"]).close()
    said = capfd.readouterr().out
    assert said.count("hello from talking") == said.count("hello from named") == 1


def test_an_interruption_while_the_template_imports_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "pid"
    (tmp_path / "slow_import.py").write_text(
        f"import os, time\nopen({str(note)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def interrupt(*_: Any) -> None:
        if note.exists() and note.read_text():  # it imports, however long that took to begin
            signal.setitimer(signal.ITIMER_REAL, 0)  # once: the next would come while it is being ended
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
            LeanVecEnv([Walk] * 2, preload=["slow_import"])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert wait_until(lambda: not exists(int(note.read_text())), 2)


def test_functions_with_much_data_go_to_fresh_interpreters(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legroom.sharing.process.FUNCTIONS_NBYTES", 1_000_000)
    table = np.ones(100_000)  # 800,000 bytes

    class Carrying(Walk):
        def __init__(self, table: np.ndarray) -> None:
            super().__init__()
            self.total = table.sum()

    assert opened([partial(Carrying, table)] * 3)._crew.why_fresh == ""  # carried once
    env = opened([partial(Carrying, table.copy()) for _ in range(3)])
    assert "carry more than" in env._crew.why_fresh
    assert env.get_attr("total") == [100_000.0] * 3
