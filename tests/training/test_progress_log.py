"""progress.csv: new columns join, resumes leave no rows twice, crashes cost at most the row they cut."""

import csv
import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom.training.progress_log import STEP, ProgressLog, read_progress


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_figure_that_comes_later_gets_its_column(tmp_path):
    path = tmp_path / "progress.csv"
    with ProgressLog(path) as log:
        log.append({STEP: 10, "rollout/ep_rew_mean": 1.5})
        log.append({STEP: 20, "train/loss": np.float32(0.25), "rollout/ep_rew_mean": math.nan, "picture": object()})
        log.append({"train/loss": None, STEP: 30})
    assert path.read_text() == "time/total_timesteps,rollout/ep_rew_mean,train/loss\n10,1.5,\n20,,0.25\n30,,\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_every_row_is_there_for_others_at_once(tmp_path):
    log = ProgressLog(tmp_path / "progress.csv")
    log.append({STEP: 10, "a": 1})
    assert rows(tmp_path / "progress.csv") == [{STEP: "10", "a": "1"}]
    log.close()


def test_a_resume_goes_on_where_the_checkpoint_was(tmp_path):
    path = tmp_path / "progress.csv"
    with ProgressLog(path) as log:
        for step in (10, 20, 30, 40):
            log.append({STEP: step, "a": step})
    with ProgressLog(path, resumed_from=25) as log:
        log.append({STEP: 30, "a": 31, "b": 1})
    assert [(row[STEP], row["a"]) for row in rows(path)] == [("10", "10"), ("20", "20"), ("30", "31")]


def test_a_new_training_begins_a_new_file(tmp_path):
    path = tmp_path / "progress.csv"
    for value in (1, 2):
        with ProgressLog(path) as log:
            log.append({STEP: 10, "a": value})
    assert rows(path) == [{STEP: "10", "a": "2"}]


@pytest.mark.parametrize("torn", ["40,", "40", "4", "40,1", "x,1\n", "40,1,1\n", "\0\0\0\n", '40,"'])
def test_a_row_that_a_crash_cut_off_is_left_out(tmp_path, torn):
    path = tmp_path / "progress.csv"
    with ProgressLog(path) as log:
        log.append({STEP: 10, "a": 1})
    with path.open("a") as file:
        file.write(torn)
    with ProgressLog(path, resumed_from=100) as log:
        log.append({STEP: 50, "a": 5})
    assert [row[STEP] for row in rows(path)] == ["10", "50"]


@pytest.mark.parametrize("content", ["", "hello\n", "step,a\n1,2\n", f"{STEP},a,a\n"])
def test_something_else_in_its_place_is_one_line(tmp_path, content):
    path = tmp_path / "progress.csv"
    path.write_text(content)
    with pytest.raises(BadInput, match="is not a log of a training"):
        ProgressLog(path, resumed_from=10)
    assert path.read_text() == content


def test_killed_at_any_moment_it_can_be_gone_on_with(tmp_path):
    path = tmp_path / "progress.csv"
    code = (
        "import sys; from legroom.training.progress_log import ProgressLog, STEP\n"
        "log = ProgressLog(sys.argv[1])\n"
        "for i in range(1, 10**6):\n"
        "    log.append({STEP: i, **{f'c{j}': i for j in range(min(i // 50, 30))}})\n"
        "    if i == 20: print(flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
    with ProgressLog(path, resumed_from=15) as log:
        log.append({STEP: 16})
    assert [row[STEP] for row in rows(path)] == [str(i) for i in range(1, 17)]


def test_rewards_of_all_sessions_can_be_read_back(tmp_path):
    path = tmp_path / "progress.csv"
    with ProgressLog(path) as log:
        log.append({STEP: 10, "time/fps": 50, "time/iterations": 1})
        log.append({STEP: 20, "time/fps": 50, "time/iterations": 2, "rollout/ep_rew_mean": -1.5})
    first, second = read_progress(path)
    assert (first.timesteps, first.reward_mean, first.steps_per_s) == (10, None, 50.0)
    assert (second.timesteps, second.reward_mean, second.iteration) == (20, -1.5, 2)
