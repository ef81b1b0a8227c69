"""Answers about runs: predictions, plans, findings and files, all by arithmetic and all as plain data.

Nothing here builds or imports what a run names; that is what makes it quick enough to follow a slider, and safe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legroom.checking.check import look_at
from legroom.checking.subject_reader import subject_of_text
from legroom.errors import BadInput
from legroom.fitting.predictor import Predictor, priced
from legroom.fitting.search import fit
from legroom.model.evidence import Mode
from legroom.model.plan import PRICES, Prediction
from legroom.model.run import Run
from legroom.predicting.predict import gather
from legroom.rendering.console import JSON_VERSION
from legroom.rendering.page import parts_html
from legroom.rendering.plan_text import plan_data, plan_parts
from legroom.rendering.plan_text import verdict_line as plan_verdict
from legroom.rendering.prediction_text import peak_lines, prediction_json, verdict_line
from legroom.rendering.run_file import plan_file, run_file
from legroom.serving.drawing import drawings
from legroom.serving.questions import Place as Where
from legroom.serving.questions import plain_run

MOST_RUNS = 6  # side by side; more is no comparison
FILE_NAME = "run.yaml"


def predicted(run: Run, where: Where) -> Prediction:
    """Return the prediction by arithmetic, as `legroom predict --mode arithmetic` makes it."""
    run, evidence = gather(run, where.machine, mode="arithmetic", device=where.device)
    return priced(run, evidence, where.budget)


def predict_answer(run: Run, where: Where) -> str:
    """Return exactly what `legroom predict --mode arithmetic --json` prints."""
    return prediction_json([predicted(run, where)]) + "\n"


def plan_answer(runs: Sequence[Run], where: Where, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of the runs: drawings of them side by side, and a verdict in words for each.

    Args:
        asked: `active` is the run that is turned; `view` draws its phases instead of the runs' peaks, `bill` adds the
            table of all its items.

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
        **drawings(
            predictions, active, where, by_phase=asked.get("view") == "phases", with_bill=asked.get("bill") is True
        ),
    }


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


def fit_answer(run: Run, where: Where, asked: Mapping[str, Any], *, trust: bool = False) -> dict[str, Any]:
    """Return the plan that makes the run fit, knob by knob, the run that came out and its file.

    Args:
        trust: import the run's own code, and measure; otherwise by arithmetic.

    Raises:
        BadInput: a price that is none; a run that breaks a rule no knob mends; a card without a size.
    """
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


def check_answer(run: Run, where: Where) -> dict[str, Any]:
    """Return what `legroom check` finds in the run as it would be downloaded."""
    machine, budget = where.machine, where.budget
    subject = subject_of_text(run_file(run), FILE_NAME, machine=machine, budget=budget, device=where.device)
    checked = look_at(subject)
    findings = [finding.as_json() | {"path": None} for finding in checked.findings]
    return {"findings": findings, "fine": [{"what": what, "why": why} for what, why in checked.fine]}
