"""The report at the end: predicted against measured, and commands that can be copied."""

from dataclasses import replace
from pathlib import Path

from legroom.model.outcome import Attempt, MeasuredItem, MeasuredPeak, MeasuredPeaks, Outcome, Progress
from legroom.rendering.layout import draw
from legroom.rendering.outcome_text import TrainingReport, outcome_document

MIB = 1 << 20
OUTCOME = Outcome(
    "finished",
    8192,
    MeasuredPeaks(MeasuredPeak(1000 * MIB, 900 * MIB), MeasuredPeak(None, 50 * MIB)),
    attempts=(Attempt("start", {"memory.rollout": "lean", "memory.micro_batch": 8}),),
    resume="exact",
    score={"npv_usd": 1234.5, "beats_greedy": True, "bound": None},
    seconds=4800,
    items=(MeasuredItem("network", 10 * MIB, 15 * MIB), MeasuredItem("rollout", 500 * MIB, 500 * MIB),
           MeasuredItem("optimizer", 20 * MIB)),
)  # fmt: skip


def report(outcome=OUTCOME, directory=Path("runs/a"), *, run="runs/a", progress=(), again=""):
    export = ("with SB3", "legroom export runs/a model.zip")
    whole = TrainingReport(run, outcome, progress)
    return draw(outcome_document(whole, directory, again=again, export=export), width=100, colour=False)


def test_the_whole_report():
    rewards = [None, -1.0, 2.0]
    progress = [Progress(100 * i, 300, i, "collect", 1.0, r, None, float(i)) for i, r in enumerate(rewards)]
    assert (
        report(run="mine:small", progress=progress)
        == """\
Finished after 8,192 steps in 1 h 20 min.
mine:small

peak memory                     predicted   measured  difference
host (libraries counted once)  1000.0 MiB  900.0 MiB      -10.0%
GPU                                     –   50.0 MiB           –

item     predicted   measured  difference
rollout  500.0 MiB  500.0 MiB        0.0%
network   10.0 MiB   15.0 MiB      +50.0%
1 further item cannot be measured separately

start (memory.rollout: lean, memory.micro_batch: 8)

reward before  -1.00  mean of the episodes at step 100
reward after    2.00  at step 200
npv usd        1,234
beats greedy     yes
bound              –

to use the policy with SB3:
  legroom export runs/a model.zip
"""
    )


def test_what_did_not_finish_says_why_and_how_to_go_on():
    failed = replace(OUTCOME, status="failed", error="at step 8,192: ValueError: no such block", resume="approximate")
    text = report(failed, Path("my runs/a"), run="run.yaml", again="legroom train run.yaml --timesteps 9000 --resume")
    assert "at step 8,192: ValueError: no such block" in text
    assert "not bit-exact" in text
    assert "  legroom train run.yaml --timesteps 9000 --resume\n" in text
    assert "no checkpoint to continue from" in report(replace(failed, resume=None))


def test_every_attempt_has_its_line():
    text = report(replace(OUTCOME, attempts=(Attempt("start"), Attempt("out of memory", {"memory.micro_batch": 4}))))
    assert "attempt 1: start\nattempt 2: out of memory (memory.micro_batch: 4)\n" in text


def test_it_lists_what_the_folder_holds(tmp_path):
    (tmp_path / "progress.csv").touch()
    text = report(directory=tmp_path)
    assert f"{tmp_path / 'progress.csv'}" in text
    assert "tensorboard" not in text
