"""The answers that are worked out from what was sent: each a function of a question, in no hurry.

They run in a process of their own, one after the other: a line of JSON in, a line of JSON out. Its memory is bounded by
the system, readings in it also by the system's timer; whatever takes longer is killed by the page (`answering`), and
other requests go on. All is arithmetic: nothing builds or imports what a run names.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legroom import __version__
from legroom.checking.check import look_at
from legroom.checking.subject_reader import subject_of_text
from legroom.errors import BadInput, LegroomError
from legroom.fitting.predictor import Predictor, priced
from legroom.fitting.search import fit
from legroom.machine import probe
from legroom.machine.gpu_table import GPUS
from legroom.model.evidence import Mode
from legroom.model.plan import PRICES, Prediction
from legroom.model.run import Run
from legroom.named_runs import run_names, workloads
from legroom.predicting.predict import gather
from legroom.reading import read
from legroom.reading.reading_budget import MOST_BYTES, bounded_reading, end_by_timer
from legroom.rendering.console import JSON_VERSION
from legroom.rendering.document import Bars
from legroom.rendering.explanation_text import explanation_document
from legroom.rendering.item_text import WHERES, Where, bar_of, item_table, memory_limits
from legroom.rendering.page import body, parts_html
from legroom.rendering.plan_text import plan_data, plan_parts
from legroom.rendering.plan_text import verdict_line as plan_verdict
from legroom.rendering.prediction_text import peak_lines, prediction_json, verdict_line
from legroom.rendering.run_file import plan_file, run_file
from legroom.serving.asked import (
    LocalMachine,
    TargetMachine,
    command_in,
    parse_json,
    place_asked,
    place_options,
    plain_run,
    recognise,
    run_asked,
    with_spaces,
)  # fmt: skip
from legroom.serving.controls import controls_of, turned_settings
from legroom.serving.following import told_of
from legroom.serving.guard import RequestRefused
from legroom.units import format_size

# Address space beyond what the imports took: what readings may hold, as much again for what is made of it, and
# libraries that are imported late.
MOST_ADDRESSES = 4 * MOST_BYTES
MOST_SECONDS = 8.0  # of processor time
MOST_RUNS = 6  # side by side; more is no comparison
LONGEST_NAME = 120
PLACE = ("ram", "vram", "gpu", "device", "reserve")
TRUSTING = ("--mode auto --trust traces it", "“Trust this code” traces it, in runs that legroom ui was started with")
JSON, YAML = "application/json", "application/yaml"


@dataclass(frozen=True)
class Question:
    """A request."""

    body: bytes
    query: Mapping[str, str]
    here: LocalMachine
    # what the page adds: runs that it was `started` with, by name, `folders`, `roots`; a `folder`
    own: Mapping[str, Any]

    @property
    def asked(self) -> dict[str, Any]:
        """The mapping that the body holds.

        Raises:
            BadInput: it holds something else.
        """
        value = parse_json(self.body)
        if not isinstance(value, dict):
            raise BadInput("the request must be a mapping", hint='{"run": {…}}')
        return value

    def place(self, asked: Mapping[str, Any]) -> TargetMachine:
        return place_asked(asked, self.here.machine())


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


def _read(question: Question) -> dict[str, Any]:
    """What was opened, dropped or pasted: `{"name": "ppo.yml", "text": …}`, without a name where it was pasted."""
    asked = question.asked
    if "run" in asked:  # one that a link has brought back
        return {"runs": [shown(run_asked(asked["run"]))]}
    name, text = asked.get("name", ""), asked.get("text")
    if not isinstance(name, str) or not isinstance(text, str) or len(name) > LONGEST_NAME:
        raise BadInput("a file has a name and a text", hint='{"name": "run.yaml", "text": "algo: PPO …"}')
    found = recognise(text, name.replace("\\", "/").rpartition("/")[2])
    if found.explanation is not None:
        return {"explanation": body(explanation_document(found.explanation), level=3)}
    if found.command:
        return {"command": shlex.join(found.command), "folder": str(Path.cwd())}
    return {"runs": [shown(run, unknown) for run, unknown in found.runs]}


def _predict(question: Question) -> str:
    """The contract: a run in, exactly what `legroom predict --mode arithmetic --json` prints out."""
    run = run_asked(parse_json(question.body))
    return prediction_json([predicted(run, question.place(question.query))]) + "\n"


def predicted(run: Run, where: TargetMachine) -> Prediction:
    """Return the prediction by arithmetic, as `legroom predict --mode arithmetic` makes it."""
    run, evidence = gather(run, where.machine, mode="arithmetic", device=where.device)
    return priced(run, evidence, where.budget)


def _plan(question: Question) -> dict[str, Any]:
    asked = question.asked
    runs = asked.get("runs")
    if not isinstance(runs, list) or len(runs) > MOST_RUNS:
        raise BadInput("runs must be a list of runs", hint=f"at most {MOST_RUNS}")
    where = question.place(asked)
    return plan_answer([run_asked(each) for each in runs], where, asked)


def plan_answer(runs: Sequence[Run], where: TargetMachine, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of the runs: drawings of them side by side, and a verdict in words for each.

    Args:
        asked: `active` is the run that is turned, `bill` adds the table of all its items.

    Raises:
        BadInput: there are none, or too many.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise BadInput(f"{len(runs)} runs cannot be compared", hint=f"1 to {MOST_RUNS}")
    active = asked.get("active", 0)
    if not isinstance(active, int) or not 0 <= active < len(runs):
        raise BadInput("active must be the number of a run", hint="0 is the first")
    predictions = [predicted(run, where) for run in runs]
    return {
        "runs": [_told(each) for each in predictions],
        **{place: _bars(predictions, active, where, place) for place in WHERES},
        "bill": parts_html([item_table(predictions[active].footprint)]) if asked.get("bill") is True else None,
    }


def _bars(predictions: Sequence[Prediction], active: int, where: TargetMachine, place: Where) -> str | None:
    """The peaks of all runs, the active one first, under its scale; None where no run uses a GPU."""
    first = predictions[active]
    ordered = [first, *(each for each in predictions if each is not first)]
    found = [(each, bar) for each in ordered if (bar := bar_of(each.footprint, place)) is not None]
    own = 0 if found and found[0][0] is first else None
    name = "GPU memory" if place == "gpu" else "Host memory"
    return parts_html([Bars(name, [bar for _, bar in found], memory_limits(where.budget, place), own)]) or None


def _told(prediction: Prediction) -> dict[str, Any]:
    footprint = prediction.footprint
    return {
        "name": footprint.name,
        "device": footprint.device,
        "verdict": {"fits": prediction.fits, "words": verdict_line(prediction, ask="choose a GPU").text},
        "drawn": parts_html(peak_lines(prediction)),
        "findings": [finding.as_json() for finding in footprint.findings],
        "notes": list(footprint.notes),
    }


def fit_answer(run: Run, where: TargetMachine, asked: Mapping[str, Any], *, trust: bool = False) -> dict[str, Any]:
    """Return the plan that makes the run fit, and its file; with `trust` its own code is imported and measured."""
    allow = asked.get("allow", list(PRICES))
    if not isinstance(allow, list) or not all(isinstance(price, str) and price in PRICES for price in allow):
        raise BadInput("allow must be a list of prices", hint=", ".join(PRICES))
    mode: Mode = "auto" if trust else "arithmetic"
    predictor = Predictor(run, where.machine, mode=mode, device=where.device, trust=trust)
    plan = fit(predictor.run, where.budget, predictor, allow=allow)
    return plan_data(plan) | {
        "legroom": JSON_VERSION,
        "run": plain_run(plan.run),
        "drawn": parts_html([plan_verdict(plan), *plan_parts(plan)], level=3),
        "file": plan_file(plan, "legroom ui"),
    }


def _check(question: Question) -> dict[str, Any]:
    """What `legroom check` finds in the run as it would be downloaded."""
    asked = question.asked
    run, where = run_asked(asked.get("run")), question.place(asked)
    machine, budget = where.machine, where.budget
    checked = look_at(subject_of_text(run_file(run), "run.yaml", machine=machine, budget=budget, device=where.device))
    findings = [finding.as_json() | {"path": None} for finding in checked.findings]
    return {"findings": findings, "fine": [{"what": what, "why": why} for what, why in checked.fine]}


def _file(question: Question) -> str:
    run = run_asked(question.asked.get("run"))
    return run_file(run, head=[f"{run.name}, as planned with legroom ui"])


def _start(question: Question) -> dict[str, Any]:
    """What the page begins with: this machine, the known cards, the named runs and those it was started with."""
    machine, own = question.here.machine(), question.own
    started = [run_asked(each) for each in list(own["started"].values())[:MOST_RUNS]]
    plan = None  # of runs that cannot be predicted, which is said when they are asked about
    with suppress(BadInput):
        plan = plan_answer(started, question.place({}), {}) if started else None  # drawn without asking again
    return {
        "version": __version__,
        "machine": {
            "ram": format_size(machine.ram),
            "available": format_size(machine.available),
            "gpus": [{"name": gpu.name, "free": format_size(gpu.free)} for gpu in machine.gpus],
        },
        "cards": [{"name": card.name, "gb": card.nominal_gb} for card in GPUS],
        "workloads": [
            {"name": each.name, "runs": [name for name in run_names() if name.startswith(f"{each.name}:")]}
            for each in workloads()
        ],
        "started": list(own["started"]),
        "shown": [shown(run) for run in started],
        "plan": plan,
        "examples": [
            {"name": run.name, "algo": run.algo, "about": run.description or ""}
            for run in (read(f"{each.name}:{each.first_shown or each.default}") for each in workloads())
        ],
        "folders": own["folders"],
        "roots": own["roots"],
    }


def _named_run(question: Question) -> dict[str, Any]:
    """A named run, or one that the page was started with; never a path."""
    name, started = question.query.get("name", "")[:LONGEST_NAME], question.own["started"]
    if name in started:
        return shown(run_asked(started[name]))
    if name not in run_names():
        raise RequestRefused(404, f"no named run {name!r} (legroom workloads lists them)")
    return shown(read(name))


def _job(question: Question) -> dict[str, Any]:
    """The words of the command that answers: `{"command": …}`, or `{"name": …, "run": …}` of a run started with.

    `trust` imports its own code, `fit` fits it; otherwise it is traced.
    """
    asked, started = question.asked, question.own["started"]
    question.place(asked)
    place = {key: asked[key] for key in PLACE if asked.get(key) is not None}
    if "command" in asked:
        command = command_in(str(asked["command"]))
        if not command:
            raise BadInput("no command that starts a program", hint="python train.py")
        return {"words": ["predict", *place_options(place), "--", *command], "executes": True}
    name, trust = asked.get("name"), asked.get("trust") is True
    if not isinstance(name, str) or name not in started:
        raise RequestRefused(403, "only runs that legroom ui was started with are built (legroom ui RUN)")
    run_asked(asked.get("run"))  # says what cannot be, before a child is started for it
    target, turned = question.own["targets"][name], list(turned_settings(run_asked(started[name]), asked.get("run")))
    if trust and asked.get("fit") is True:
        prices = {"allow": asked["allow"]} if "allow" in asked else {}
        return {"words": ["fit", json.dumps({**place, **prices, "target": target, "turned": turned})], "executes": True}
    settings = [word for key, value in turned for word in ("--set", f"{key}={value}")]
    words = ["predict", "--mode=trace", *(["--trust"] if trust else []), target, *place_options(place), *settings]
    return {"words": words, "executes": trust}


def fit_trusted() -> None:
    """Print what Fit answers for a run whose own code is imported: `{"target": …, "turned": […], …}`."""
    asked = json.loads(sys.argv[1])
    try:
        run = read(asked["target"], overrides=[(key, value) for key, value in asked["turned"]])
        found = fit_answer(run, place_asked(asked, probe()), asked, trust=True)
    except LegroomError as error:
        raise SystemExit(str(error)) from None
    sys.stdout.write(f"\n{json.dumps(found)}\n")  # the last line: the user's modules may print as well


def _follow(question: Question) -> dict[str, str]:
    """What a followed folder says now."""
    return told_of(question.own["name"], Path(question.own["folder"]))


ANSWERS: Mapping[str, Callable[[Question], Mapping[str, Any] | str]] = {
    "/api/read": _read,
    "/api/predict": _predict,
    "/api/plan": _plan,
    "/api/fit": lambda one: fit_answer(run_asked(one.asked.get("run")), one.place(one.asked), one.asked),
    "/api/check": _check,
    "/api/file": _file,
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
    here = LocalMachine()
    _bound_memory()
    for line in sys.stdin:
        answers_to.write(json.dumps(answer(json.loads(line), here)) + "\n")
        answers_to.flush()


def answer(asked: dict[str, Any], here: LocalMachine) -> dict[str, Any]:
    try:
        with bounded_reading("the request", MOST_SECONDS):
            sent = asked["body"].encode("utf-8", "surrogateescape")
            found = ANSWERS[asked["path"]](Question(sent, asked["query"], here, asked.get("own", {})))
            text = found
            if not isinstance(text, str):
                text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except RequestRefused as refused:
        return {"status": refused.status, "text": str(refused)}
    except LegroomError as error:
        return {"status": 400, "text": str(error).removeprefix("the page: ").replace(*TRUSTING)}
    except Exception as error:  # said by the page, which goes on
        return {"status": 500, "text": f"{type(error).__name__}: {str(error)[:200]}"}
    if asked["path"] != "/api/predict":  # which answers as the command does
        text = text.replace(*TRUSTING)
    return {"status": 200, "kind": YAML if asked["path"] == "/api/file" else JSON, "text": text}


def _bound_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # not every system can say, or be told
        import resource

        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + MOST_ADDRESSES, resource.RLIM_INFINITY))
