"""Windows, pretended: what needs no process of its own works, the rest is refused in one line that says what does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRETENDING = [sys.executable, str(Path(__file__).with_name("without_unix.py"))]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PRETENDING, *words], capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("machine", 0, "available"),
        ("predict mine:small --mode arithmetic --ram 16GiB", 0, "Fits: needs up to"),
        ("fit mine:full --ram 8GiB --mode arithmetic", 0, "Fits 8.0 GiB of RAM"),
        ("check docs/files/train.py --ram 16GiB", 1, "minibatch"),
        ("explain docs/files/error.txt", 0, "start with: legroom fit RUN"),
    ],
)
def test_what_reads_and_computes_works(words, code, said):
    told = run(*words.split())
    assert told.returncode == code, told.stderr
    assert said in told.stdout


@pytest.mark.parametrize("words", ["watch -- echo a", "train docs/files/cartpole.yaml", "predict -- python train.py"])
def test_what_supervises_processes_is_refused_in_one_line(words):
    told = run(*words.split())
    assert (told.returncode, told.stderr.count("\n"), told.stdout) == (3, 1, "")
    assert "needs Linux or macOS" in told.stderr
    assert "work on every system" in told.stderr
