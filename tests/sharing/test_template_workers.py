"""Workers forked from a template: small, as well guarded as fresh ones, and not forked where that would be unsafe."""

from __future__ import annotations

import importlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worker_envs import Global, Sleepy, Telling, Walk, close_kindly, is_running, pids, wait_until

from legroom import LeanVecEnv
from legroom.machine.tree import process_memory
from legroom.sharing.messages import WorkerDied

NOTHING = np.zeros(3, int)


def test_a_forked_worker_has_a_third_of_a_fresh_ones_memory(begun: Any) -> None:
    private = {}
    for forked in (False, True):
        env = begun([Telling] * 3, forked=forked)
        env.step(NOTHING)
        assert bool(env._crew.template) == forked
        private[forked] = np.median([process_memory(pid).uss for pid in pids(env)])  # type: ignore[union-attr]
    assert private[True] < private[False] / 3
    assert private[True] < 8e6
    assert "torch" not in env.env_method("loaded")[0]


def test_workers_have_groups_of_their_own_in_the_trainers_session(begun: Any) -> None:
    env = begun([Walk] * 3)
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


def test_a_killed_template_takes_its_workers_along(begun: Any) -> None:
    env = begun([Sleepy] * 3)
    env.step_async(np.array([3, 3, 0]))
    workers = pids(env)
    os.kill(env._crew.template.pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
        env.step_wait()
    assert wait_until(lambda: not any(map(is_running, workers)), 20)
    close_kindly(env)
    assert time.monotonic() - began < 25
    assert not is_running(env._crew.template.pid)


def test_generators_that_a_process_shares_differ_between_workers(begun: Any) -> None:
    draws = begun([Global] * 3).env_method("draw")
    assert len({python for python, _ in draws}) == len({numpy for _, numpy in draws}) == 3


UNSUITABLE = {
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n",
    "open": "FILE = open(__file__)\n",
    "random generator": "import numpy\nRNG = numpy.random.default_rng()\n",
    "raised": "import sys\nif 'pytest' not in sys.modules: raise RuntimeError('no')\n",
}


@pytest.mark.parametrize("why", UNSUITABLE)
def test_what_cannot_be_forked_gets_fresh_interpreters(
    why: str, begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"unsuitable_{why.replace(' ', '_')}"
    (tmp_path / f"{name}.py").write_text(UNSUITABLE[why] + "from worker_envs import Walk\nclass Env(Walk): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    if why == "raised":  # then a fresh one says so, with its own traceback
        with pytest.raises(RuntimeError, match="no"):
            begun([module.Env] * 2)
        return
    env = begun([module.Env] * 2)
    assert why in env._crew.why_fresh
    assert env._crew.template is None
    env.step(NOTHING[:2])


def test_modules_are_imported_once_and_what_they_print_is_printed_once(
    begun: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talking.py").write_text("print('hello from talking')\nfrom worker_envs import Walk as Env\n")
    (tmp_path / "named.py").write_text("print('hello from named')\n")
    monkeypatch.syspath_prepend(tmp_path)

    def make() -> Any:
        return importlib.import_module("talking").Env()

    begun([make] * 3, preload=["talking", "named", "not_there"]).close()
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
    assert wait_until(lambda: not is_running(int(note.read_text())), 2)
