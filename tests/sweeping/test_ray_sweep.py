"""Which trial runs next, and with how much memory: the book that a sweep keeps, without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")

from legroom.model.footprint import Peak
from legroom.model.outcome import MemorySample
from legroom.reading import run_from_dict
from legroom.sweeping.ray_sweep import MOST_RUNS, Book, _TrialWatch
from legroom.sweeping.sweep_folder import Live, SweepFolder
from legroom.sweeping.trial import WORKER_NBYTES, Trial
from legroom.training.run_folder import Predicted

MIB = 1 << 20
MOST = 4096 * MIB


def _trials(count: int) -> list[Trial]:
    run = run_from_dict({"algo": "PPO", "env": {"id": "CartPole-v1"}, "total_timesteps": 100})
    peak = Peak(200 * MIB, 180 * MIB, 240 * MIB, "update")
    predicted = Predicted(peak, None, (), ())
    return [
        Trial(number, {"seed": number}, run, run, "cpu", predicted, 240 * MIB + WORKER_NBYTES)
        for number in range(count)
    ]


def _end(status: str, peak: int, *, exceeded: bool = False) -> dict[str, object]:
    return {"status": status, "peak": peak, "exceeded": exceeded, "reason": "took more than it had requested"}


def test_a_trial_that_took_more_runs_again_with_what_was_measured_and_so_do_its_like(tmp_path: Path) -> None:
    book = Book(_trials(2), SweepFolder(tmp_path), MOST)
    first = book.take()
    assert first is not None and first["requested"] == 240 * MIB + WORKER_NBYTES
    book.ended(0, _end("stopped", 300 * MIB, exceeded=True))
    second, again = book.take(), book.take()
    assert second is not None and again is not None
    assert (second["number"], again["number"]) == (1, 0)
    assert second["requested"] == again["requested"] == 330 * MIB + WORKER_NBYTES  # 300 x 1.1
    assert (second["runs"], again["runs"]) == (1, 2)
    book.ended(1, _end("finished", 310 * MIB))
    book.ended(0, _end("finished", 310 * MIB))
    assert [result.status for result in book.results()] == ["finished", "finished"]
    assert book.take() is None


def test_a_failure_that_is_none_of_memory_is_not_repeated(tmp_path: Path) -> None:
    book = Book(_trials(2), SweepFolder(tmp_path), MOST)
    book.take()
    book.ended(0, _end("failed", 100 * MIB))
    assert book.numbers("failed") == {0}
    following = book.take()
    assert following is not None and following["number"] == 1


def test_a_trial_that_never_fits_is_given_up(tmp_path: Path) -> None:
    book = Book(_trials(1), SweepFolder(tmp_path), MOST)
    for _ in range(MOST_RUNS):
        assert book.take() is not None
        book.ended(0, None)  # its worker was killed
    assert book.take() is None
    assert book.numbers("failed") == {0}
    (result,) = book.results()
    assert (result.status, result.reason, result.runs) == ("failed", "its Ray worker was killed", MOST_RUNS)


def test_a_whole_node_is_the_most(tmp_path: Path) -> None:
    book = Book(_trials(1), SweepFolder(tmp_path), 500 * MIB)
    book.take()
    book.ended(0, _end("stopped", 480 * MIB, exceeded=True))
    task = book.take()
    assert task is not None and task["requested"] == 500 * MIB
    book.ended(0, _end("stopped", 490 * MIB, exceeded=True))
    assert book.numbers("failed") == {0}


def test_memory_of_a_trial_is_counted_as_it_was_requested(tmp_path: Path) -> None:
    """A trial that runs alone has all pages of the libraries for itself, and is not stopped for them."""
    sweep = SweepFolder(tmp_path)
    folder = sweep.trial(0)
    folder.path.mkdir(parents=True)
    sample = MemorySample(1.0, 300 * MIB, None, "update", mapped_nbytes=90 * MIB)
    requested = 240 * MIB + WORKER_NBYTES
    watch = _TrialWatch(sweep, folder, requested=requested, runs=1, without_libraries=True)
    watch.memory(sample)
    assert (watch.peak, watch.exceeded) == (210 * MIB, False)
    watch = _TrialWatch(sweep, folder, requested=requested, runs=1, without_libraries=False)
    with pytest.raises(KeyboardInterrupt):
        watch.memory(sample)
    assert (watch.peak, watch.exceeded) == (300 * MIB, True)


def test_a_resumed_sweep_remembers_what_was_measured(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.trial(0).path.mkdir(parents=True)
    Live(nbytes=0, peak=300 * MIB, requested=240 * MIB + WORKER_NBYTES, runs=1).write(folder.trial(0))
    first, second = (each.requested for each in Book(_trials(2), folder, MOST).asking.values())
    assert first == 330 * MIB + WORKER_NBYTES
    assert second == 240 * MIB + WORKER_NBYTES
