"""The authors' roads in `examples/roads`: from the command that failed to an exported policy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from docs.blocks import ROOT

from legroom.cli.main import SUMMARIES as COMMANDS

ROADS = sorted((ROOT / "examples/roads").glob("*.sh"))
STATIONS = {"predict", "fit", "train", "export"}


@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.stem)
def test_a_road_has_at_most_ten_commands_from_the_diagnosis_to_the_export(road: Path) -> None:
    commands = re.findall(r"(?:^|\| )legroom (\w+)", road.read_text(), re.M)
    assert len(commands) <= 10 and set(commands) <= set(COMMANDS)
    assert set(commands) >= STATIONS and commands[0] in {"explain", "predict", "check", "profile"}
    assert commands[-1] == "export" and "--resume" in road.read_text()


def test_every_document_has_a_road() -> None:
    assert [road.stem for road in ROADS] == ["fire", "gameboy", "mine", "ninja", "robot"]


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.stem)
def test_a_road_leads_to_its_end(road: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", road, tmp_path], env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (exported,) = (path for path in tmp_path.iterdir() if path.suffix in (".zip", ".safetensors"))
    assert exported.stat().st_size > 10_000
