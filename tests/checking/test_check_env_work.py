"""If this fails, people whose GPU is full are not told that an environment's simulations are not what fills it."""

from __future__ import annotations

from pathlib import Path

from legroom.checking.check import check
from legroom.model.machine import Machine
from legroom.model.verdict import Budget
from legroom.units import GIB

MACHINE = Machine(64 * GIB, None, 64 * GIB, 0, GIB, cores=8, versions={"stable-baselines3": "2.9.2"})
ORIGINAL = Path(__file__).parents[2] / "src/legroom_workloads/fire/runs/original.yaml"


def told(tmp_path, vram):
    file = tmp_path / "run.yaml"
    file.write_text(ORIGINAL.read_text().replace("sims: 25", "num_scenarios: 25, lanes: 3"))
    budget = Budget(64 * GIB, vram, ram_origin="given", vram_origin="given")
    (checked,) = check([str(file)], machine=MACHINE, budget=budget)
    return [finding for finding in checked.findings if finding.name == "no-effect"]


def test_whatever_says_how_much_an_env_works_is_not_on_the_card(tmp_path):
    found = told(tmp_path, 2 * GIB)
    assert {finding.message.partition(" ")[0] for finding in found} == {"buffer_size", "num_scenarios"}
    assert all("does not touch GPU memory" in finding.message and finding.severity == "info" for finding in found)


def test_a_card_with_room_is_no_reason_to_mention_it(tmp_path):
    assert told(tmp_path, 24 * GIB) == []
