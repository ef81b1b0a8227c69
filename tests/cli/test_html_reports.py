"""`--html FILE` of every command: one page each, from real runs, whole, self-contained, with the figures that count.

The page of `train` is in training/test_train.py, which has a training to show.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli import in_process
from tests.cli.html_page import page_of

LEGROOM = str(Path(sys.executable).parent / "legroom")


def legroom(*arguments: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    if arguments[0] == "watch":  # in a process of its own, whose streams the command has
        done = subprocess.run([LEGROOM, *arguments], capture_output=True, text=True, cwd=cwd, check=False, timeout=240)
    else:
        done = in_process.legroom(*arguments, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done


def test_predict_of_one_run(tmp_path: Path) -> None:
    done = legroom("predict", "mine:full", "--mode", "arithmetic", "--ram", "64GiB", "--cpu-only", "--html", "p.html",
                   "--json", cwd=tmp_path, code=1)  # fmt: skip
    said = json.loads(done.stdout)["runs"][0]
    page = page_of(tmp_path / "p.html")
    assert "Does not fit" in page.text and "RAM given: 64.0 GiB" in page.text
    assert f"{said['host']['peak'] / 2**30:.1f} GiB" in page.text
    assert all(item["name"] in page.text for item in said["items"])
    bars = [int(n) for n in re.findall(r'<svg role="group"[^>]* data-nbytes="(\d+)"', page.source)]
    assert bars[:2] == [said["host"]["peak"], said["with_free_savings"]["host"]["peak"]]


def test_predict_of_several_runs_is_side_by_side(tmp_path: Path) -> None:
    runs = ("mine:full", "mine:small", "gameboy:default")
    done = legroom(
        "predict", *runs, "--mode", "arithmetic", "--gpu", "RTX 4070", "--html", "p.html", cwd=tmp_path, code=1
    )
    assert "written: p.html" in done.stdout
    page = page_of(tmp_path / "p.html")
    assert all(page.text.count(name) >= 3 for name in runs)  # in the table and as a bar of host and of GPU
    assert "Host memory at its peak" in page.text and "GPU memory at its peak" in page.text


def test_fit_shows_every_knob_before_and_after_with_its_price(tmp_path: Path) -> None:
    asked = ("fit", "mine:full", "--ram", "2GiB", "--cpu-only", "--mode", "arithmetic")
    done = legroom(*asked, "--html", "f.html", "--json", cwd=tmp_path)
    plan = json.loads(done.stdout)
    page = page_of(tmp_path / "f.html")
    for knob in plan["knobs"]:
        assert f"{knob['name']} ({knob['price']})" in page.text and knob["say"] in page.text
    bars = [int(n) for n in re.findall(r'<svg role="group"[^>]* data-nbytes="(\d+)"', page.source)]
    assert bars[0] == plan["before"]["host"]["peak"] and bars[-1] == plan["after"]["host"]["peak"]
    assert len(bars) == 1 + len(plan["knobs"])


@pytest.mark.parametrize("what", [("mine", "--ram", "8GiB"), ("gameboy:default", "--tiers", "4,8", "--ram", "32GiB")])
def test_fit_of_a_workload_and_by_cards_have_pages_too(tmp_path: Path, what: tuple[str, ...]) -> None:
    done = legroom("fit", *what, "--mode", "arithmetic", "--html", "f.html", cwd=tmp_path)
    page = page_of(tmp_path / "f.html")
    assert "written: f.html" in done.stdout and 'class="bars"' in page.source
    assert ("mine:ultra_light" if what[0] == "mine" else "by GPU memory") in page.text


def test_watch_and_profile_take_the_same_option(tmp_path: Path) -> None:
    code = "import time; a = bytearray(64 << 20); time.sleep(1.5)"
    legroom("watch", "--html", "w.html", "--interval", "0.1", "--", sys.executable, "-c", code, cwd=tmp_path)
    page = page_of(tmp_path / "w.html")
    assert "exit code 0" in page.text and page.source.count('class="chart"') == 1 and "peak host" in page.text
    legroom("profile", "CartPole-v1", "--frames", "300", "--envs", "0", "--html", "e.html", cwd=tmp_path)
    assert "300 steps, " in page_of(tmp_path / "e.html").text


@pytest.mark.parametrize("command", [
    ("predict", "mine:small"), ("fit", "mine:small"), ("train", "mine:small"), ("watch",), ("profile", "CartPole-v1"),
])  # fmt: skip
@pytest.mark.parametrize(("file", "says"), [("nowhere/p.html", "there is no directory"), (".", "is a directory")])
def test_a_page_that_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, command: tuple[str, ...], file: str, says: str
) -> None:
    rest = ("--", "true") if command[0] == "watch" else ()
    done = legroom(*command, "--html", file, *rest, cwd=tmp_path, code=2)
    assert len(done.stderr.splitlines()) == 1 and says in done.stderr and "--html" in done.stderr
    assert list(tmp_path.iterdir()) == []
