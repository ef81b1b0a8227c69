"""Ten kinds of leaks on the card are found with the line that holds them, and nothing else is called a leak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from leak_cases import HEAD, LEAKS, NO_LEAKS

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LEAKS, *NO_LEAKS])
def test_leaks_are_found_at_the_line_that_holds_them(tmp_path: Path, name: str) -> None:
    text = HEAD + {**LEAKS, **NO_LEAKS}[name]
    (tmp_path / "program.py").write_text(text)
    command = [sys.executable, "-m", "legroom.cli.main", "predict", "--json", "--vram", "8GiB", "--seconds", "120"]
    done = subprocess.run(
        [*command, "--", sys.executable, "program.py"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    (run,) = json.loads(done.stdout)["runs"]
    held = [number for number, line in enumerate(text.splitlines(), 1) if "# held" in line]
    assert [leak["line"] for leak in run["program"]["leaks"]] == held, done.stderr
