"""A rehearsal's document is drawn again as it was, and nothing that it names is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from legroom.backends.program.program_bill import predicted
from legroom.errors import BadInput
from legroom.model.rehearsal import CardSeen, HostSeen, ProgramPrediction, Rehearsal, SourceLine
from legroom.model.verdict import Budget
from legroom.rendering.page import body as body_of
from legroom.rendering.program_document import is_rehearsal, prediction_from
from legroom.rendering.program_text import by_line, program_document, program_json, source_of, verdict_line
from legroom.units import GIB, MIB


def prediction(source: str) -> ProgramPrediction:
    lines = (
        SourceLine(source, 2, 300 * MIB, "forward", "Net.fc", "activations"),
        SourceLine(source, 1, 200 * MIB, "main", "", "weights"),
    )
    roles = (("weights", 200 * MIB), ("activations", 300 * MIB))
    card = CardSeen(0, 1, 500 * MIB, 512 * MIB, roles, lines, lines[0], "backward", 1)
    points = tuple((at / 100, at * MIB // 10, 512 * MIB) for at in range(5_000))
    seen = Rehearsal(
        ("python", "train.py"), None, "repeats", 9, 3, 12.3, HostSeen(GIB, GIB, 0, 1), card, True, torch="2.6.0",
        points=points, step_times=tuple(float(at) for at in range(50)),
    )  # fmt: skip
    return predicted(seen, Budget(16 * GIB, 8 * GIB, 0.0, "given", "given"))


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    source = tmp_path / "train.py"
    source.write_text("net = Net().cuda()\nloss = net(x)\n")
    found: dict[str, Any] = json.loads(program_json(prediction(str(source))))
    source.unlink()
    return found


def test_it_comes_back_as_it_was(document: dict[str, Any]) -> None:
    assert is_rehearsal(document) and not is_rehearsal({"runs": [{"name": "x"}]}) and not is_rehearsal([])
    again = prediction_from(document)
    first = prediction("train.py")
    assert again.fits is True and verdict_line(again) == verdict_line(first)
    assert again.footprint.gpu == first.footprint.gpu and again.footprint.host == first.footprint.host
    assert [source_of(line) for line in by_line(again.rehearsal)] == ["loss = net(x)", "net = Net().cuda()"]
    assert len(again.rehearsal.points) <= 600 and max(row[1] for row in again.rehearsal.points) == 4_999 * MIB // 10
    body = body_of(program_document(again, everything=True), level=3)
    assert "<svg" in body and "What holds GPU memory at the peak" in body and "<h1" not in body
    assert len(json.dumps(document)) < 150_000  # the page takes files of up to 200 kB


def test_no_file_that_it_names_is_read_and_nothing_becomes_markup(document: dict[str, Any], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password\n")
    for line in document["runs"][0]["program"]["areas"]:
        line.update(file=str(secret), line=1, source="<img src=x onerror=boom()>")
    document["runs"][0]["name"] = "<script>boom()</script>"
    body = body_of(program_document(prediction_from(document), everything=True), level=3)
    assert "password" not in body and "<script" not in body and "<img" not in body and "&lt;img" in body


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("items", [{"name": 3}]), ("items", None), ("name", 7), ("program", None), ("program", {}), ("notes", "text"),
        ("findings", [{"severity": "<b>"}]),
    ],
)  # fmt: skip
def test_what_predict_does_not_write_is_refused_in_one_line(document: dict[str, Any], key: str, value: Any) -> None:
    document["runs"][0][key] = value
    with pytest.raises(BadInput, match="not the result of a rehearsal"):
        prediction_from(document)


def test_numbers_are_sizes(document: dict[str, Any]) -> None:
    for wrong in (-1, 1.5, True, "9", 1 << 70):
        changed = copy.deepcopy(document)
        changed["runs"][0]["program"]["areas"][0]["nbytes"] = wrong
        with pytest.raises(BadInput):
            prediction_from(changed)
