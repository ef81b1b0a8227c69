"""The answers that are worked out from what somebody sent: each a function of a body and a query, in no hurry.

They run in a process of their own (`answering_child`), where they may take long, or die, without anybody else noticing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.reading import read_given
from legroom.reading.user_files import decode
from legroom.rendering.run_file import run_file
from legroom.serving import planning
from legroom.serving.controls import controls_of
from legroom.serving.plain_json import parse_json
from legroom.serving.questions import Here, place_asked, plain_run, run_asked

LONGEST_NAME = 120
JSON, YAML = "application/json", "application/yaml"
Query = Mapping[str, str]
Answer = Callable[[bytes, Query, Here], tuple[str, str]]


def shown(run: Run) -> dict[str, Any]:
    """Return a run as the page keeps it, with its controls."""
    return {
        "name": run.name, "description": run.description, "recommended_for": run.recommended_for, "algo": run.algo,
        "backend": run.backend, "run": plain_run(run), "controls": controls_of(run),
    }  # fmt: skip


def _text(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def mapping(body: bytes) -> dict[str, Any]:
    """Return the mapping that a body holds.

    Raises:
        BadInput: it holds something else.
    """
    value = parse_json(body)
    if not isinstance(value, dict):
        raise BadInput("the request must be a mapping", hint='{"run": {…}}')
    return value


def _read(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    """The runs in a file that was opened or dropped: `{"name": "ppo.yml", "text": …}`."""
    asked = mapping(body)
    if "run" in asked:  # one that a link has brought back
        return JSON, _text({"runs": [shown(run_asked(asked["run"]))]})
    name, text = asked.get("name"), asked.get("text")
    if not isinstance(name, str) or not isinstance(text, str) or not 0 < len(name) <= LONGEST_NAME:
        raise BadInput("a file has a name and a text", hint='{"name": "run.yaml", "text": "algo: PPO …"}')
    plain = name.replace("\\", "/").rpartition("/")[2] or "run.yaml"
    found = read_given(decode(text.encode("utf-8", "replace"), plain), plain)
    return JSON, _text({"runs": [shown(run) for run in found]})


def _predict(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    """The contract: a run in, the text of `legroom predict --mode arithmetic --json` out."""
    run = run_asked(parse_json(body))
    return JSON, planning.predict_answer(run, place_asked(query, here.machine()))


def _plan(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    asked = mapping(body)
    runs = asked.get("runs")
    if not isinstance(runs, list) or len(runs) > planning.MOST_RUNS:
        raise BadInput("runs must be a list of runs", hint=f"at most {planning.MOST_RUNS}")
    where = place_asked(asked, here.machine())
    return JSON, _text(planning.plan_answer([run_asked(each) for each in runs], where, asked))


def _fit(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    asked = mapping(body)
    run = run_asked(asked.get("run"))
    return JSON, _text(planning.fit_answer(run, place_asked(asked, here.machine()), asked))


def _check(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    asked = mapping(body)
    run = run_asked(asked.get("run"))
    return JSON, _text(planning.check_answer(run, place_asked(asked, here.machine())))


def _file(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    """The run as YAML, to be kept."""
    run = run_asked(mapping(body).get("run"))
    return YAML, run_file(run, head=[f"{run.name}, as planned with legroom ui"])


ANSWERS: Mapping[str, Answer] = {
    "/api/read": _read,
    "/api/predict": _predict,
    "/api/plan": _plan,
    "/api/fit": _fit,
    "/api/check": _check,
    "/api/file": _file,
}
