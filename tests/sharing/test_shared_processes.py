"""One copy for all processes of a run, however they are started; nothing is left of it, however they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from shared_builds import Sharing
from worker_envs import Walk

import legroom
from legroom.machine.tree import process_memory
from legroom.sharing import shared, shared_folder

SUM = 499_999_500_000.0
HERE = str(Path(__file__).parent)


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A temporary folder of one's own, and no run yet in this process."""
    tmp_path_factory.getbasetemp()  # pytest's own is not in it
    folder = Path(tempfile.mkdtemp(prefix="lr-"))  # short: a fork server has a socket in it, with a name of 108 bytes
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv(shared_folder.VARIABLE, raising=False)
    monkeypatch.setattr(shared, "_folder", None)
    monkeypatch.setattr(shared, "_known", {})
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def script(text: str, **keywords: Any) -> subprocess.Popen[str]:
    lines = f"import os, sys, time; sys.path.insert(0, {HERE!r})\nfrom shared_builds import *\n{text}"
    return subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE, text=True, **keywords)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def folders(place: Path) -> list[Path]:
    return list(place.glob("legroom-shared-*"))


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("parent", ["parent first", "children alone"])
def test_processes_of_every_kind_build_once(method: str, parent: str, outside: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    hold_s = 2.0 if parent == "children alone" else 0.2  # long enough for all of them to be there together
    process = script(f"""
import multiprocessing
context = multiprocessing.get_context({method!r})
queue = context.Queue()
if {parent == "parent first"}:
    use({log!r})
children = [context.Process(target=use_and_put, args=(queue, {log!r}, {hold_s})) for _ in range(3)]
for child in children: child.start()
answers = [queue.get(timeout=30) for _ in children]
for child in children: child.join()
answers.append(use({log!r}))
print(answers)
""")
    answers = eval(said(process))
    assert process.wait(30) == 0
    assert {answer[0] for answer in answers} == {SUM}
    assert len({answer[1] for answer in answers}) == 1
    assert all(answer[2] for answer in answers)
    # children that end before the parent has shared anything take their folder along; then it builds its own
    builders = Path(log).read_text().split()
    assert len(builders) == 1 if parent == "parent first" else len(builders) <= 2
    assert not folders(outside)


def test_light_workers_share_and_the_last_file_goes_with_the_trainer(outside: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    process = script(f"""
env = legroom.LeanVecEnv([lambda: Sharing({log!r})] * 3)
print(env.env_method("using"), flush=True)
raise SystemExit(5)
""")
    answers = eval(said(process))
    assert process.wait(30) == 5
    assert {(answer[0], answer[2]) for answer in answers} == {(SUM, True)}
    assert len({answer[1] for answer in answers}) == 1
    assert len(Path(log).read_text().split()) == 1
    assert not folders(outside)


def test_a_builder_that_is_killed_lets_the_next_one_build(outside: Path, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    environment = {**os.environ, shared_folder.VARIABLE: str(outside / "legroom-shared-run")}
    first = script(f"use({log!r}, 60)", env=environment)
    assert wait_until(lambda: Path(log).exists(), 20)
    second = script(f"print(use({log!r})[0])", env=environment)
    time.sleep(0.3)
    assert len(Path(log).read_text().split()) == 1  # the second one waits
    first.kill()
    first.wait()
    assert float(said(second)) == SUM
    assert second.wait(10) == 0
    assert len(Path(log).read_text().split()) == 2
    assert not folders(outside)  # the last one that used it takes it away


OWNER = """
use({log!r})
child = os.fork()
if not child:
    numbers = legroom.share("numbers", None)["numbers"]
    time.sleep(0.1)
    while not os.path.exists({go!r}): time.sleep(0.02)
    with open({go!r} + ".answer", "w") as file: file.write(str(numbers.sum()))
    raise SystemExit  # runs what the owner registered to run at its end
print(child, flush=True)
time.sleep(60)
"""


def test_a_killed_owner_takes_nothing_from_its_children_and_the_next_run_cleans_up(
    outside: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    owner = script(OWNER.format(log=str(tmp_path / "log"), go=str(go)))
    child = int(said(owner))
    (folder,) = folders(outside)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    next_run = script(f"print(use({str(tmp_path / 'other log')!r})[0])")
    assert next_run.wait(20) == 0
    assert folders(outside) == [folder]  # the forked child still uses it
    go.touch()
    assert wait_until((tmp_path / "go.answer").exists)
    assert wait_until(lambda: (tmp_path / "go.answer").read_text() == str(SUM))
    assert wait_until(lambda: not Path(f"/proc/{child}/maps").exists() or not Path(f"/proc/{child}/maps").read_text())
    assert folders(outside) == [folder]  # and it is not the child's to remove
    assert script(f"use({str(tmp_path / 'another log')!r})").wait(20) == 0
    assert folders(outside) == []


def test_an_owner_that_ends_first_does_not_stop_the_others(outside: Path, tmp_path: Path) -> None:
    process = script(f"""
import subprocess
use({str(tmp_path / "log")!r})
late = "import sys, time; sys.path.insert(0, {HERE!r}); from shared_builds import *; sys.stdin.read();" \\
    "print(use({str(tmp_path / "log")!r}), flush=True)"
subprocess.Popen([sys.executable, "-c", late], stdin=open({str(fifo(tmp_path))!r}))
""")
    with (tmp_path / "fifo").open("w"):  # the other one waits until this is closed
        assert wait_until(lambda: process.poll() is not None, 20)
        assert not folders(outside)
    total, _, mapped = eval(said(process))
    assert (total, mapped) == (SUM, True)  # built again, in a folder of its own
    assert wait_until(lambda: not folders(outside))


def fifo(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "fifo")
    return tmp_path / "fifo"


def test_folders_of_others_and_files_of_others_stay(outside: Path, tmp_path: Path) -> None:
    (outside / "legroom-shared-link").symlink_to(tmp_path)
    (outside / "legroom-shared-file").write_text("mine")
    (outside / "legroom-shared-full").mkdir()
    (outside / "legroom-shared-full" / "notes.txt").write_text("mine")
    (outside / "legroom-shared-old").mkdir()
    (outside / "legroom-shared-old" / "abc.arrays").write_text("")
    assert script(f"use({str(tmp_path / 'log')!r})").wait(20) == 0
    assert sorted(path.name for path in outside.iterdir()) == [
        "legroom-shared-file", "legroom-shared-full", "legroom-shared-link",
    ]  # fmt: skip
    assert (outside / "legroom-shared-full" / "notes.txt").exists()


def test_memory_is_there_once(outside: Path, tmp_path: Path) -> None:
    env = legroom.LeanVecEnv([lambda: Sharing(str(tmp_path / "log"))] * 2)
    plain = legroom.LeanVecEnv([Walk] * 2)
    env.env_method("using")
    private = [
        sum(process_memory(worker.pid).uss for worker in each._crew.workers)  # type: ignore[union-attr]
        for each in (env, plain)
    ]
    env.close()
    plain.close()
    assert private[0] - private[1] < 4_000_000  # of 8 MB of numbers in each


@pytest.mark.usefixtures("outside")
def test_the_next_vector_environment_finds_what_the_last_one_built(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        legroom.LeanVecEnv([lambda: Sharing(str(log))] * 2).close()
    assert len(log.read_text().split()) == 1
