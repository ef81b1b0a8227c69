"""Shipped runs are valid, and loading them without validation gives the same run."""

from pathlib import Path

import pytest
import yaml

from legroom.model.run import Run, run_from_trusted

RUNS = sorted((Path(__file__).parents[2] / "src/legroom_workloads").glob("*/runs/*.yaml"))


@pytest.mark.parametrize("path", RUNS, ids=lambda p: f"{p.parts[-3]}:{p.stem}")
def test_a_shipped_run_is_valid_and_loads_the_same_without_validation(path: Path) -> None:
    data = yaml.safe_load(path.read_text())
    assert run_from_trusted(data) == Run.model_validate(data)


@pytest.mark.parametrize("path", RUNS, ids=lambda p: f"{p.parts[-3]}:{p.stem}")
def test_a_run_survives_the_round_trip_to_plain_data(path: Path) -> None:
    run = Run.model_validate(yaml.safe_load(path.read_text()))
    assert Run.model_validate(run.model_dump(exclude_defaults=True)) == run


def test_all_workloads_have_their_runs() -> None:
    names = {f"{path.parts[-3]}:{path.stem}" for path in RUNS}
    robots = {"quick", "default", "production", "gpu_8gb", "gpu_12gb", "gpu_16gb", "gpu_24gb"}
    assert names == {
        *("mine:full", "mine:memory_optimized", "mine:ultra_light", "mine:small"),
        *("fire:original", "fire:medium", "fire:low", "fire:learn"),
        *("gameboy:default", "gameboy:fitted", "gameboy:learn"),
        *("ninja:default", "ninja:parallel", "ninja:learn"),
        *(f"robot:{name}" for name in robots),
    }
