"""The table of `docs/documents.md` is what the tests of this folder are."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

from docs.blocks import DOCS

DOCUMENTS = {
    "mine": "Memory Optimization Guide for MineRL-NPV",
    "fire": "Memory Optimization Fix for QAgent",
    "ninja": "Memory Optimization Guide for N++ RL Environment",
    "gameboy": "Memory & Training Configuration Analysis",
    "robot": "GPU Memory Configuration Guide (WildRobot)",
}


def kinds(workload: str) -> Counter[str]:
    """How many promises of a document are of which kind; a row of a parametrised test is a promise."""
    counted: Counter[str] = Counter()
    module = importlib.import_module(f"test_document_{workload}")
    for name, test in vars(module).items():
        if not name.startswith("test_"):
            continue
        assert test.__doc__, f"{module.__name__}.{name} quotes no promise"
        marks = {mark.name: mark for mark in getattr(test, "pytestmark", ())}
        rows = len(marks["parametrize"].args[1]) if "parametrize" in marks else 1
        counted[next((kind for kind in ("document_error", "needs_gpu") if kind in marks), "kept")] += rows
    return counted


def test_the_table_of_the_page_counts_the_tests() -> None:
    rows = []
    for workload, title in DOCUMENTS.items():
        found = kinds(workload)
        numbers = found.total(), found["kept"], found["document_error"], found["needs_gpu"]
        rows.append(f"| {title} | [{workload}](workloads/{workload}.md) | {' | '.join(map(str, numbers))} |")
    together = sum((kinds(workload) for workload in DOCUMENTS), Counter())
    numbers = together.total(), together["kept"], together["document_error"], together["needs_gpu"]
    rows.append(f"| together | | {' | '.join(map(str, numbers))} |")
    table = (DOCS / "documents.md").read_text().partition("|---|---|---|---|---|---|\n")[2].partition("\n\n")[0]
    assert table.splitlines() == rows, "docs/documents.md says otherwise; the rows are\n" + "\n".join(rows)


def test_every_document_has_its_file() -> None:
    files = {path.stem for path in Path(__file__).parent.glob("test_document_*.py")} - {Path(__file__).stem}
    assert files == {f"test_document_{workload}" for workload in DOCUMENTS}
