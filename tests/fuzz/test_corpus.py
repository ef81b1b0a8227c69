"""Inputs that once crashed, hung or filled memory, and one of each target's own: none of them does."""

from __future__ import annotations

import pytest
from tests.fuzz.fuzz import tried
from tests.fuzz.targets import CORPUS, TARGETS

KEPT = sorted(path.relative_to(CORPUS).as_posix() for path in CORPUS.glob("*/*"))


@pytest.mark.parametrize("name", KEPT)
def test_what_once_failed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legroom.reading.reading_budget.MOST_SECONDS", 0.5)
    target = TARGETS[name.partition("/")[0]]
    target.run(b"")  # imports are no growth
    tried(target, (CORPUS / name).read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_can_be_made(name: str) -> None:
    TARGETS[name].inputs().validate()
