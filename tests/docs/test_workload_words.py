"""What `legroom workloads` says that a run is for is what `legroom predict` says at exactly that budget."""

from __future__ import annotations

import json
import re

import pytest

from cli.in_process import legroom
from legroom.named_runs import workloads
from legroom.reading import read

RAM, GPU, OVER = re.compile(r"(\d+) GB of RAM"), re.compile(r"GPU with (\d+) GB"), re.compile(r"over (\d+) GiB")
PLENTY = {"ram": "1TiB", "vram": "94GiB"}
RUNS = [f"{workload.name}:{run}" for workload in workloads() for run in workload.run_files()]
SIZED = [name for name in RUNS if re.search(r"\d+ Gi?B", read(name).recommended_for)]


def predicted(name: str, device: str, *settings: str) -> dict[str, int]:
    """The most that a run takes, by place; also where brax refuses its numbers."""
    budget = ["--ram", PLENTY["ram"], *(("--vram", PLENTY["vram"]) if device == "cuda" else ())]
    done = legroom("predict", name, "--device", device, *budget, "--json", *settings)
    (found,) = json.loads(done.stdout)["runs"]
    return {place: found[place]["band"][1] for place in ("host", "gpu") if found[place]}


def test_most_runs_say_a_size() -> None:
    assert len(SIZED) >= 14


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_a_run_fits_where_it_is_said_to_and_not_in_half_of_it(name: str) -> None:
    for clause in read(name).recommended_for.split("; with "):
        light = ("--set", "env.workers=light") if clause.startswith("light workers") else ()
        on = {device: predicted(name, device, *light) for device in ("cuda", "cpu")}
        most = max(peaks["host"] for peaks in on.values())
        for size in map(int, RAM.findall(clause)):
            assert size * 10**9 / 2 < most <= size * 10**9, clause
        for size in map(int, GPU.findall(clause)):
            assert size * 10**9 / 2 < on["cuda"]["gpu"] <= size * 10**9, clause
        for size in map(int, OVER.findall(clause)):
            assert min(peaks["host"] for peaks in on.values()) > size * 2**30, clause


def test_the_words_are_a_budget_that_predict_accepts() -> None:
    for name, ram, vram in (("fire:medium", "24GB", "2GB"),):
        assert f"{ram[:-2]} GB of RAM" in read(name).recommended_for and f"{vram[:-2]} GB" in read(name).recommended_for
        assert legroom("predict", name, "--ram", ram, "--vram", vram).returncode == 0
        assert legroom("predict", name, "--ram", ram, "--vram", f"{int(vram[:-2]) / 2}GB").returncode == 1
