"""outcome.json: exactly the keys that programs rely on, written whole, and one line when it is something else."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from legroom.errors import BadInput
from legroom.model.files import seal
from legroom.model.outcome import Attempt, MeasuredItem, MeasuredPeak, MeasuredPeaks, Outcome

OUTCOME = Outcome(
    status="finished",
    timesteps=8192,
    parameters_sha256="ab" * 32,
    attempts=(Attempt("start", {"memory.rollout": "lean"}), Attempt("resume")),
    peaks=MeasuredPeaks(MeasuredPeak(700, 689), MeasuredPeak(None, 5)),
    resume="exact",
    score={"npv": 1.5},
    seconds=12.5,
    items=(MeasuredItem("rollout.observations", 300, 290), MeasuredItem("network", 12)),
    versions={"torch": "2.13.0"},
)
CONTRACT = {
    "legroom": 1,
    "status": "finished",
    "timesteps": 8192,
    "parameters_sha256": "ab" * 32,
    "attempts": [{"reason": "start", "knobs": {"memory.rollout": "lean"}}, {"reason": "resume", "knobs": {}}],
    "peaks": {"host": {"predicted": 700, "measured": 689}, "gpu": {"predicted": None, "measured": 5}},
    "resume": "exact",
    "score": {"npv": 1.5},
}


def test_the_contract_comes_first_and_to_the_letter():
    data = OUTCOME.to_json()
    assert list(data)[: len(CONTRACT)] == list(CONTRACT)
    assert {key: data[key] for key in CONTRACT} == CONTRACT
    assert data["items"][1] == {"name": "network", "predicted": 12, "measured": None}


def test_what_is_absent_is_null():
    data = Outcome("failed", 0, MeasuredPeaks(MeasuredPeak(None, 3)), error="killed").to_json()
    assert data["peaks"] == {"host": {"predicted": None, "measured": 3}, "gpu": None}
    assert (data["parameters_sha256"], data["resume"], data["attempts"], data["score"]) == (None, None, [], {})


def test_it_comes_back_from_its_file_as_it_was(tmp_path):
    path = tmp_path / "outcome.json"
    OUTCOME.write(path)
    assert Outcome.read(path) == OUTCOME
    assert [entry.name for entry in tmp_path.iterdir()] == ["outcome.json"]


def test_scores_of_numpy_and_without_a_value_become_plain_json(tmp_path):
    path = tmp_path / "outcome.json"
    score = {"a": np.float32(0.5), "b": math.nan, "c": [np.int64(3), math.inf], "d": {"e": None}}
    replace(OUTCOME, score=score).write(path)
    assert json.loads(path.read_text())["score"] == {"a": 0.5, "b": None, "c": [3, None], "d": {"e": None}}


def test_keys_of_a_later_release_are_skipped(tmp_path):
    path = tmp_path / "outcome.json"
    path.write_bytes(seal(CONTRACT | {"planets": 3, "peaks": CONTRACT["peaks"] | {"disk": {}}}))
    assert Outcome.read(path).timesteps == 8192


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ("\udcff", "JSON"),
        ("null", "object"),
        (CONTRACT | {"legroom": 2}, "legroom"),
        (CONTRACT | {"status": "done"}, "status"),
        (CONTRACT | {"timesteps": "8192"}, "timesteps"),
        (CONTRACT | {"timesteps": -1}, "timesteps"),
        (CONTRACT | {"peaks": {"host": None}}, "peaks.host"),
        (CONTRACT | {"attempts": [{"knobs": {}}]}, "attempts.0.reason"),
        ({"legroom": 1, "status": "finished"}, "timesteps"),
        (json.dumps(CONTRACT), "checksum"),
    ],
)
def test_anything_else_is_one_line_that_names_the_place(tmp_path, content, says):
    path = tmp_path / "outcome.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else seal(content))
    with pytest.raises(BadInput) as caught:
        Outcome.read(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_no_file_is_one_line_too(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(BadInput, match="cannot be read"):
            Outcome.read(path)


def test_a_failing_write_leaves_what_was_there(tmp_path):
    path = tmp_path / "outcome.json"
    OUTCOME.write(path)
    with pytest.raises(TypeError):
        replace(OUTCOME, score={"a": object()}).write(path)
    assert Outcome.read(path) == OUTCOME
    assert len(list(tmp_path.iterdir())) == 1
