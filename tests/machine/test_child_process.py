"""A task goes into a process of its own, lines and one answer come out, and how it ended is known."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from legroom.machine.child_process import ChildAnswer, ask_child

CHILD = """
import os, sys, time
from pathlib import Path
from legroom.machine.child_process import answer_task

def main():
    answer_task(answer)

def answer(task, say):
    say("a line")
    if task["what"] == "sleep":
        time.sleep(60)
    if task["what"] == "die":
        print("the pole has broken", file=sys.stderr)
        os._exit(3)
    time.sleep(0.7)  # until somebody has listened
    return {"doubled": 2 * task["number"], "there": Path(task["folder"]).is_dir(), "set": os.environ.get("SET_HERE")}
"""


def asked(folder: Path, what: str, timeout_s: float = 30.0, **more: Any) -> tuple[ChildAnswer, list[str]]:
    (folder / "a_child.py").write_text(CHILD)
    lines: list[str] = []
    found = ask_child(
        "a_child", {"what": what, **more}, kind="test", timeout_s=timeout_s, path=[*sys.path, str(folder)],
        environment={"SET_HERE": "yes"}, told=lines.append,
    )  # fmt: skip
    return found, lines


def test_an_answer_and_lines_before_it(tmp_path: Path) -> None:
    found, lines = asked(tmp_path, "double", number=21)
    assert found.data == {"doubled": 42, "there": True, "set": "yes"}
    assert lines == ["a line"]


@pytest.mark.parametrize(
    ("what", "timeout_s", "how"), [("die", 30.0, "(exit code 3): the pole has broken"), ("sleep", 2.0, "after 2 s")]
)
def test_without_an_answer_it_is_said_how_it_ended(tmp_path: Path, what: str, timeout_s: float, how: str) -> None:
    found, _ = asked(tmp_path, what, timeout_s)
    assert (found.data, found.how) == (None, how)


def test_a_task_is_plain_data(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        asked(tmp_path, "double", number=object())
