"""The answers that are worked out from what was sent: each a function of a body and a query, in no hurry.

They run in a process of their own, one after the other: a line of JSON in, a line of JSON out. Its memory is bounded by
the system, readings in it also by the system's timer; whatever takes longer is killed by the page (`answering`), and
other requests go on.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from legroom import __version__
from legroom.errors import BadInput, LegroomError
from legroom.machine import probe
from legroom.machine.gpu_table import GPUS
from legroom.model.run import Run
from legroom.named_runs import run_names, workloads
from legroom.reading import read
from legroom.reading.reading_budget import MOST_BYTES, bounded_reading, end_by_timer
from legroom.rendering.explanation_text import explanation_document
from legroom.rendering.page import body as body_of
from legroom.rendering.run_file import run_file
from legroom.serving import planning
from legroom.serving.choices import choices, chosen_run, with_spaces
from legroom.serving.controls import controls_of, turned_settings
from legroom.serving.following import told_of
from legroom.serving.guard import Refused
from legroom.serving.questions import Here, parse_json, place_asked, place_options, plain_run, run_asked
from legroom.serving.recognising import command_in, recognise
from legroom.units import format_size

# Address space beyond what the imports took: what readings may hold, as much again for what is made of it, and
# libraries that are imported late.
MOST_ADDRESSES = 4 * MOST_BYTES
MOST_SECONDS = 8.0  # of processor time
LONGEST_NAME = 120
PLACE = ("ram", "vram", "gpu", "device", "reserve")
TRUSTING = ("--mode auto --trust traces it", "“Trust this code” traces it, in runs that legroom ui was started with")
JSON, YAML = "application/json", "application/yaml"
Query = Mapping[str, str]
Answer = Callable[[bytes, Query, Here], tuple[str, str]]
Own = Mapping[str, Any]  # what the page adds: runs that it was `started` with, by name, `folders`, `roots`; a `folder`
OwnAnswer = Callable[[bytes, Query, Here, Own], tuple[str, str]]


def shown(run: Run, unknown: Sequence[str] = ()) -> dict[str, Any]:
    """Return a run as the page keeps it, with its controls.

    `assumed` is what its observations are taken for where nothing tells them, `unknown` settings whose defaults are
    taken since its script does not tell them.
    """
    run, assumed = with_spaces(run)
    return {
        "name": run.name, "description": run.description, "recommended_for": run.recommended_for, "algo": run.algo,
        "backend": run.backend, "run": plain_run(run), "controls": controls_of(run), "assumed": assumed,
        "unknown": [key for key in unknown if not key.startswith("env.spaces")],
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
    """What was opened, dropped or pasted: `{"name": "ppo.yml", "text": …}`, without a name where it was pasted."""
    asked = mapping(body)
    if "run" in asked:  # one that a link has brought back
        return JSON, _text({"runs": [shown(run_asked(asked["run"]))]})
    name, text = asked.get("name", ""), asked.get("text")
    if not isinstance(name, str) or not isinstance(text, str) or len(name) > LONGEST_NAME:
        raise BadInput("a file has a name and a text", hint='{"name": "run.yaml", "text": "algo: PPO …"}')
    found = recognise(text, name.replace("\\", "/").rpartition("/")[2])
    if found.explanation is not None:
        return JSON, _text({"explanation": body_of(explanation_document(found.explanation), level=3)})
    if found.command:
        return JSON, _text({"command": shlex.join(found.command), "folder": str(Path.cwd())})
    return JSON, _text({"runs": [shown(run, unknown) for run, unknown in found.runs]})


def _choose(body: bytes, query: Query, here: Here) -> tuple[str, str]:
    """The run of an algorithm and an environment from the lists: `{"algo": "PPO", "env": "CartPole-v1"}`."""
    asked = mapping(body)
    return JSON, _text({"runs": [shown(chosen_run(asked.get("algo"), asked.get("env")))]})


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


def _start(body: bytes, query: Query, here: Here, own: Own) -> tuple[str, str]:
    """What the page begins with: this machine, the known cards, the named runs and those it was started with."""
    machine = here.machine()
    started = [run_asked(each) for each in list(own["started"].values())[: planning.MOST_RUNS]]
    plan = None
    with suppress(BadInput):  # there are none, or they cannot be predicted: said when they are asked about
        plan = planning.plan_answer(started, place_asked({}, machine), {})
    return JSON, _text({
        "version": __version__,
        "machine": {
            "ram": format_size(machine.ram), "available": format_size(machine.available),
            "gpus": [{"name": gpu.name, "free": format_size(gpu.free)} for gpu in machine.gpus],
        },
        "cards": [{"name": card.name, "gb": card.nominal_gb} for card in GPUS],
        "workloads": [
            {"name": each.name, "runs": [name for name in run_names() if name.startswith(f"{each.name}:")]}
            for each in workloads()
        ],
        "started": list(own["started"]),
        "shown": [shown(run) for run in started],
        "plan": plan,  # drawn without asking again
        "choices": choices(),
        "folders": own["folders"],
        "roots": own["roots"],
    })  # fmt: skip


def _named_run(body: bytes, query: Query, here: Here, own: Own) -> tuple[str, str]:
    """A named run, or one that the page was started with; never a path."""
    name = query.get("name", "")[:LONGEST_NAME]
    if name in own["started"]:
        return JSON, _text(shown(run_asked(own["started"][name])))
    if name not in run_names():
        raise Refused(404, f"no named run {name!r} (legroom workloads lists them)")
    return JSON, _text(shown(read(name)))


def _job(body: bytes, query: Query, here: Here, own: Own) -> tuple[str, str]:
    """The words of the command that answers: `{"command": …}`, or `{"name": …, "run": …}` of a run started with.

    `trust` imports its own code, `fit` fits it; otherwise it is traced.
    """
    asked = mapping(body)
    place_asked(asked, here.machine())
    place = {key: asked[key] for key in PLACE if asked.get(key) is not None}
    if "command" in asked:
        command = command_in(str(asked["command"]))
        if not command:
            raise BadInput("no command that starts a program", hint="python train.py")
        return JSON, _text({"words": ["predict", *place_options(place), "--", *command], "executes": True})
    name, trust = asked.get("name"), asked.get("trust") is True
    if not isinstance(name, str) or name not in own["started"]:
        raise Refused(403, "only runs that legroom ui was started with are built (legroom ui RUN)")
    run_asked(asked.get("run"))  # says what cannot be, before a child is started for it
    target, turned = own["targets"][name], list(turned_settings(run_asked(own["started"][name]), asked.get("run")))
    if trust and asked.get("fit") is True:
        prices = {"allow": asked["allow"]} if "allow" in asked else {}
        told = json.dumps({**place, **prices, "target": target, "turned": turned})
        return JSON, _text({"words": ["fit", told], "executes": True})
    settings = [word for key, value in turned for word in ("--set", f"{key}={value}")]
    words = ["predict", "--mode=trace", *(["--trust"] if trust else []), target, *place_options(place), *settings]
    return JSON, _text({"words": words, "executes": trust})


def fit_trusted() -> None:
    """Print what Fit answers for a run whose own code is imported: `{"target": …, "turned": […], …}`."""
    asked = json.loads(sys.argv[1])
    try:
        run = read(asked["target"], overrides=[(key, value) for key, value in asked["turned"]])
        answer = planning.fit_answer(run, place_asked(asked, probe()), asked, trust=True)
    except LegroomError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.write(f"\n{json.dumps(answer)}\n")  # the last line: the user's modules may print as well


def _follow(body: bytes, query: Query, here: Here, own: Own) -> tuple[str, str]:
    """What a followed folder says now."""
    return JSON, _text(told_of(own["name"], Path(own["folder"])))


ANSWERS: Mapping[str, Answer] = {
    "/api/read": _read,
    "/api/choose": _choose,
    "/api/predict": _predict,
    "/api/plan": _plan,
    "/api/fit": _fit,
    "/api/check": _check,
    "/api/file": _file,
}
OWN_ANSWERS: Mapping[str, OwnAnswer] = {
    "/api/start": _start,
    "/api/run": _named_run,
    "/api/job": _job,
    "/api/follow": _follow,
}


def main() -> None:
    """Answer until there are no more questions."""
    answers_to = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a module prints is not an answer
    end_by_timer()
    here = Here()
    _bound_memory()
    for line in sys.stdin:
        answers_to.write(json.dumps(_answer(json.loads(line), here)) + "\n")
        answers_to.flush()


def _answer(asked: dict[str, Any], here: Here) -> dict[str, Any]:
    try:
        with bounded_reading("the request", MOST_SECONDS):
            body = asked["body"].encode("utf-8", "surrogateescape")
            if "own" in asked:
                kind, text = OWN_ANSWERS[asked["path"]](body, asked["query"], here, asked["own"])
            else:
                kind, text = ANSWERS[asked["path"]](body, asked["query"], here)
    except Refused as refused:
        return {"status": refused.status, "text": str(refused)}
    except LegroomError as error:
        return {"status": 400, "text": str(error).removeprefix("the page: ").replace(*TRUSTING)}
    except Exception as error:  # said by the page, which goes on
        return {"status": 500, "text": f"{type(error).__name__}: {str(error)[:200]}"}
    if asked["path"] != "/api/predict":  # which answers as the command does
        text = text.replace(*TRUSTING)
    return {"status": 200, "kind": kind, "text": text}


def _bound_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system can say, or be told
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_ADDRESSES, resource.RLIM_INFINITY))
