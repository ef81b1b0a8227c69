"""Figures on the workloads' pages are those that a command prints: `predict`, `check`, or a page's bench."""

from __future__ import annotations

import json
import re

import pytest
from bench.results import read_sections
from docs.blocks import DOCS, ROOT

from cli.in_process import legroom

PAGES = {
    name: ROOT / f"src/legroom_workloads/{name}/README.md" for name in ("fire", "gameboy", "mine", "ninja", "robot")
}
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?")
# page, the beginning of the rows that show it, and the section of the results that the page's bench writes
MEASURED = [
    ("fire", "| `fire:", "Wildfire: the document's configurations"),
    ("fire", "| seed ", "Fire: fire:learn learns"),
    ("ninja", "| float16", "Parallel: what each optimisation saves"),
    ("ninja", "| no animation", "Parallel: what each optimisation saves"),
    ("ninja", "| array views", "Parallel: what each optimisation saves"),
    ("ninja", "| buffer reuse", "Parallel: what each optimisation saves"),
    ("ninja", "| shared data", "Parallel: what each optimisation saves"),
    ("ninja", "| sparse entities", "Parallel: what each optimisation saves"),
    ("ninja", "| workers prepared", "Parallel: what each optimisation saves"),
    ("ninja", "| light workers", "Parallel: what each optimisation saves"),
    ("gameboy", "| seed ", "Game Boy: gameboy:learn learns"),
    ("robot", "| seed ", "Robot: robot:quick learns"),
]


def numbers(text: str) -> list[str]:
    return [found.replace(",", "").replace("−", "-") for found in NUMBER.findall(text)]


@pytest.mark.parametrize(("page", "begins", "section"), MEASURED)
def test_what_a_page_says_was_measured_stands_in_the_results(page: str, begins: str, section: str) -> None:
    rows = [line for line in PAGES[page].read_text().splitlines() if line.startswith(begins)]
    assert rows
    table = read_sections()[section]
    there = [float(number) for row in (table.columns, *table.rows) for number in numbers(" | ".join(row))]
    for row in rows:
        for number in numbers(row.split("|", 2)[2].replace("%", "")):
            digits = len(number.partition(".")[2])
            assert any(round(each, digits) == float(number) for each in there), (row, number)


GAMEBOY = re.compile(
    r"\| `(gameboy:\w+)` .*\| host ([\d.]+) GiB(?: / host ([\d.]+) GiB and GPU ([\d.]+) GiB)? \|$", re.M
)


@pytest.mark.slow  # traced on a GPU: half a minute each
@pytest.mark.parametrize(("name", "on_cpu", "host", "gpu"), GAMEBOY.findall(PAGES["gameboy"].read_text()))
def test_the_game_boys_table_is_what_predict_says(name: str, on_cpu: str, host: str, gpu: str) -> None:
    for device, said in (("cpu", {"host": on_cpu}), ("cuda", {"host": host, "gpu": gpu})):
        if not all(said.values()):
            continue
        budget = ["--ram", "64GiB", *(("--vram", "16GiB") if device == "cuda" else ())]
        (found,) = json.loads(legroom("predict", name, "--device", device, *budget, "--json").stdout)["runs"]
        for place, figure in said.items():
            low, high = (nbytes / 2**30 for nbytes in found[place]["band"])
            assert low - 0.05 <= float(figure) <= high + 0.05, (device, place)


def test_the_index_counts_refused_tiers_and_says_the_gpus_figure() -> None:
    index = (DOCS / "workloads/index.md").read_text()
    tiers = ("quick", "default", "production", "gpu_8gb", "gpu_12gb", "gpu_16gb", "gpu_24gb")
    codes = {name: {f["code"] for f in findings(f"robot:{name}")} for name in tiers}
    refused = [name for name in tiers if "LR002" in codes[name]]
    assert refused == ["gpu_8gb", "gpu_16gb"]
    assert f"{('no', 'one', 'two', 'three')[len(refused)]} of its tiers" in index
    (gpu,) = re.findall(r"the GPU needs ([\d.]+) GiB", index)
    assert gpu == GAMEBOY.findall(PAGES["gameboy"].read_text())[0][3]


def findings(name: str) -> list[dict[str, str]]:
    return json.loads(legroom("check", name, "--json").stdout)["findings"]
