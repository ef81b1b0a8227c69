"""`legroom sweep` as people use it: a small grid trained for real, stopped by Ctrl-C in the middle and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from legroom.cli.main import main
from legroom.model.files import seal

pytest.importorskip("ray")
pytest.importorskip("stable_baselines3")

RUN = """
algo: PPO
name: cart
env: {id: CartPole-v1}
hyperparams: {n_steps: 128, batch_size: 64, n_epochs: 2}
total_timesteps: 4096
device: cpu
checkpoint: {every: 128}
"""
GRID = ["--param", "hyperparams.learning_rate=1e-3,3e-4", "--param", "seed=0..1"]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    path = tmp_path / "cart.yaml"
    path.write_text(RUN)
    return path


def _start(*arguments: object) -> subprocess.Popen[str]:
    # Its own group, so that Ctrl-C reaches it as it does on a terminal, with whatever it has started.
    return subprocess.Popen(
        [sys.executable, "-m", "legroom.cli.main", "sweep", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=_heeds_interrupts,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def _heeds_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ignored, and inherited so, where the tests run with nohup


@pytest.mark.slow
def test_a_sweep_is_stopped_and_resumed(run_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    first = _start(run_file, *GRID, "--out", out, "--json", "--ram", "1100MiB")  # room for two
    until = time.monotonic() + 240
    half_done = out / "trials" / "000" / "checkpoints"
    while time.monotonic() < until and first.poll() is None and not (half_done.exists() and any(half_done.iterdir())):
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGINT)
    text, errors = first.communicate(timeout=240)
    assert first.returncode == 130, errors
    assert "--resume" in errors
    stopped = json.loads(text)
    assert [trial["params"]["seed"] for trial in stopped["trials"]] == [0, 1, 0, 1]
    assert stopped["trials"][3]["status"] == "failed"
    assert stopped["trials"][3]["reason"] == "stopped before it began"
    reached = json.loads((out / "trials" / "000" / "outcome.json").read_text())
    assert reached["status"] == "stopped" and 0 < reached["timesteps"] < 4096

    second = _start(run_file, *GRID, "--out", out, "--resume", "--json", "--ram", "1100MiB")
    text, errors = second.communicate(timeout=600)
    assert second.returncode == 0, errors
    sweep = json.loads(text)
    assert sweep["legroom"] == 1
    assert len(sweep["trials"]) == 4
    for trial in sweep["trials"]:
        assert trial["status"] == "finished"
        assert 0 < trial["peak"] < trial["requested"] < 1100 << 20
        assert trial["metric"] > 0
    best = sweep["trials"][sweep["best"]]
    assert best["metric"] == max(trial["metric"] for trial in sweep["trials"])
    assert sweep["most_at_once"] <= 2
    # It went on from where it was: two starts, and the steps of the first are not done again.
    outcome = json.loads((out / "trials" / "000" / "outcome.json").read_text())
    assert [attempt["reason"] for attempt in outcome["attempts"]] == ["start", "resume"]

    third = _start(run_file, *GRID, "--out", out, "--resume", "--json")  # nothing is left to do
    again = json.loads(third.communicate(timeout=240)[0])
    assert [trial["metric"] for trial in again["trials"]] == [trial["metric"] for trial in sweep["trials"]]
    assert again["most_at_once"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--param", "seed=3..0"], 2, "empty range"),
        (["--param", "hyperparams.learning_rat=1"], 2, "did you mean"),
        (["--param", "seed=0..1", "--mode", "best"], 2, "neither max nor min"),
        ([], 2, "something to vary"),
        (["--param", "seed=0..1", "--cluster", "127.0.0.1:1"], 2, "no Ray cluster at 127.0.0.1:1"),
        pytest.param(
            ["--param", "n_steps=128,4194304", "--batch-size", "64", "--ram", "500MiB"],
            1,
            r"trial 001 .*needs .*MiB",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_swept_is_one_line(
    arguments: list[str], code: int, said: str, run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sweep", str(run_file), "--out", str(tmp_path / "out"), "--json", *arguments])
    assert ended.value.code == code
    errors = capsys.readouterr().err
    assert re.search(said, errors), errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()  # else the corrected command is told that it is not empty


def test_another_sweep_in_the_folder_is_refused(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    held = {"run": str(run_file), "params": {"seed": ["0", "1"]}, "settings": []}
    (out / "sweep.json").write_bytes(seal({"legroom": 1, "sweep": held, "trials": []}))
    for resume, said in (([], "is not empty"), (["--resume"], "holds another sweep")):
        with pytest.raises(SystemExit) as ended:
            main(["sweep", str(run_file), "--param", "seed=0..2", "--out", str(out), *resume])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
