"""If this fails, a forked process damages what its parent has stored, steals its answers, or waits for ever."""

import errno
import os
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from legroom.storing.budget import Options, enforce
from legroom.storing.outputs import Outputs
from legroom.storing.ring import Ring
from legroom.training.background import BackgroundThread
from legroom.training.events import EnvCalls, EventPipe, new_file
from legroom.training.progress_log import Board, ProgressLog
from legroom.training.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
FORKS = hasattr(os, "fork")
pytestmark = pytest.mark.skipif(not FORKS, reason="no fork here")


def in_fork(function) -> str:
    """Return what a function returns, or raises, in a process forked from this one."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(function())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read().decode()
    os.waitpid(pid, 0)
    return said


def spilled(rows: int) -> tuple[Ring, np.ndarray]:
    """Return a ring most of which is on disk, and what is in it."""
    ring = Ring(rows, 1, (4096,), np.dtype("uint8"), Options(max_bytes=1 << 20), Outputs(4))
    frames = np.random.default_rng(0).integers(0, 256, (rows + 1, 1, 4096), dtype=np.uint8)
    fill(ring, frames, range(rows))
    return ring, frames


def fill(ring: Ring, frames: np.ndarray, rows) -> None:
    for row in rows:
        ring.begin(row % ring.rows, frames[row % len(frames)])
        ring.finish(row % ring.rows, frames[(row + 1) % len(frames)])
        enforce(ring.options, ring.shelves)


def test_a_buffer_that_spilled_is_refused_in_a_forked_process_and_stays_whole_in_its_own():
    ring, frames = spilled(3000)
    everything = np.arange(3000)
    other = np.zeros_like(frames)

    def write():
        fill(ring, other + np.random.default_rng(1).integers(0, 256, other.shape, dtype=np.uint8), range(3000, 6000))

    def read():
        ring.read(everything, np.zeros(3000, int), 0)

    for use in (write, read):
        said = in_fork(use)
        assert said.startswith("OSError:") and "belongs to the parent process" in said and "spawn or forkserver" in said
    assert np.array_equal(ring.read(everything, np.zeros(3000, int), 0).reshape(3000, 4096), frames[:3000, 0])


def test_a_buffer_that_fits_into_memory_is_a_copy_in_a_forked_process():
    ring = Ring(50, 1, (64,), np.dtype("uint8"), Options(), Outputs(4))
    frames = np.random.default_rng(0).integers(0, 256, (51, 1, 64), dtype=np.uint8)
    fill(ring, frames, range(50))
    assert in_fork(lambda: int(ring.read(np.arange(50), np.zeros(50, int), 0).sum())) == str(frames[:50].sum())


def test_logs_and_events_of_a_forked_process_reach_nobody(tmp_path):
    reading, writing = os.pipe()
    board, log = Board(tmp_path / "board"), ProgressLog(tmp_path / "progress.csv")
    log.append({"time/total_timesteps": 1, "reward": 2.0})
    (file,) = (tmp_path / "board").iterdir()
    before = file.read_bytes(), (tmp_path / "progress.csv").read_text()
    with EventPipe(writing) as events:

        def tell():
            events.send("say", text="from the fork")
            board.write(1, {"reward": 9.0})
            log.append({"time/total_timesteps": 2, "reward": 9.0, "another": 1.0})
            board.close(), log.close()
            return "told"

        assert in_fork(tell) == "told"
        assert (file.read_bytes(), (tmp_path / "progress.csv").read_text()) == before
        events.send("say", text="from the parent")
        assert os.read(reading, 1000) == b'{"event": "say", "text": "from the parent"}\n'
    os.close(reading)
    board.close()
    log.close()


@contextmanager
def living_fork():
    """A process forked from this one that lives as long as the block."""
    ready, began = os.pipe()
    hold, release = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(release)
        os.write(began, b".")
        os.read(hold, 1)
        os._exit(0)
    os.read(ready, 1)
    yield
    for each in (hold, release, ready, began):
        os.close(each)
    os.waitpid(pid, 0)


def test_a_forked_process_does_not_keep_the_supervisor_waiting():
    reading, writing = os.pipe()
    events = EventPipe(writing)
    with living_fork():
        events.__exit__()
        ended = threading.Thread(target=os.read, args=(reading, 1), daemon=True)
        ended.start()
        ended.join(5)
        assert not ended.is_alive()
    os.close(reading)


def test_a_forked_process_does_not_keep_a_run_folder_in_use(tmp_path):
    with ExitStack() as stack:
        with RunFolder(tmp_path / "out").locked():
            stack.enter_context(living_fork())
        with RunFolder(tmp_path / "out").locked():
            pass


def test_a_thread_is_not_waited_for_where_it_is_not():
    thread = BackgroundThread([])
    assert thread.run(lambda: 1, needed=True) == 1
    assert "belongs to the parent process" in in_fork(lambda: thread.run(lambda: 1, needed=True, within_s=5))


def test_calls_of_a_forked_process_are_not_the_trainings():
    calls = EnvCalls(new_file())
    with calls.calling("step"):
        in_fork(lambda: calls.calling("reset").__enter__())
        assert calls.under_way() == (1, "step")


def test_workers_answer_the_process_that_started_them_alone():
    gym = pytest.importorskip("gymnasium")
    from legroom.backends.sb3.lean_vec_env import LeanVecEnv

    env = LeanVecEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
    try:
        env.seed(1)
        first = env.reset().copy()
        for use in (env.reset, lambda: env.step(np.array([1, 1])), lambda: env.get_attr("spec")):
            said = in_fork(use)
            assert said.startswith("BadInput") and f"belong to process {os.getpid()}" in said
        in_fork(env.close)
        env.step_async(np.array([0, 0]))
        assert "belong to process" in in_fork(env.step_wait)
        now, rewards, _, _ = env.step_wait()
        assert now.shape == first.shape and rewards.tolist() == [1.0, 1.0]
    finally:
        env.close()


def test_forks_are_handled_in_one_place():
    calls = [path for path in (ROOT / "src/legroom").rglob("*.py") if "register_at_fork(" in path.read_text()]
    calls = [path for path in calls if path.parent.name != "hollow"]  # a user's process, which has nothing of legroom
    assert [path.name for path in calls] == ["forks.py"]


def test_an_error_of_the_disk_is_still_its_own():
    from legroom.storing.budget import explained

    error = OSError(errno.EIO, "the disk is broken")
    assert explained(error) is error
