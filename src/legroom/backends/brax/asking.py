"""XLA asked about a brax run: what its temporaries take on the CPU and on GPUs, and what compiling takes on the host.

A process that has compiled a training step holds a gigabyte for it, so every question has a process of its own, which
begins here (`main`) and imports jax once its flags are set (`compiling.py`). What it says it is doing is handed on,
with how long it will take, since a compilation takes minutes. What XLA answers is kept at once (`calibration.py`): who
interrupts loses one answer.
"""

import time
from collections.abc import Callable
from dataclasses import fields, replace
from importlib import import_module
from typing import Any, Literal

from legroom.backends.brax.calibration import (
    LIBRARIES,
    Calibration,
    find_calibration,
    find_relative,
    known_of,
    library_versions,
    save_calibration,
)
from legroom.backends.brax.facts import eval_envs_of
from legroom.backends.brax.plans import XlaPlan, asked_key, asked_sizes, sizes_of, solved, with_sizes
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, MissingExtra
from legroom.machine.child_process import answer_task, ask_child, import_path
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.versions import is_installed, read_versions
from legroom.model.evidence import DeviceName, Mode
from legroom.model.machine import Machine
from legroom.model.run import Run, Spaces
from legroom.model.spaces import BoxSpace, DictSpace, Space
from legroom.predicting.constraints import broken_rules
from legroom.xla.target import ENVIRONMENT, FLAGS, PACKAGES, add_flags, known_card, plugin_missing, target_text

TIMEOUT_S = 3600.0
EPOCH_MODULE, EVALUATION_MODULE = "jit__fun", "jit_generate_eval_unroll"  # as jax names what it compiles
EVAL_ENVS = 1024  # that XLA is asked to evaluate with: enough that what all of them share is nothing
# Of what compiling takes: XLA generates code with as many threads as find a core (12 % more with two than with one).
HOST_SPREAD = 0.12
Progress = Callable[[str], None]
Question = Literal["shapes", "compile", "plan"]


def calibrate(run: Run, *, progress: Progress = lambda _: None) -> Calibration:
    """Return what is known of the run, compiling it for the CPU where nothing is kept.

    Raises:
        BadInput: brax refuses the run.
        MissingExtra: jax or brax is not installed.
    """
    known = find_calibration(run)
    if known is not None and not known.made_elsewhere:
        return known
    progress("asking XLA about this environment, once: one to five minutes")
    found = ask_compiler("compile", run, progress=progress)
    asked = {asked_key(None, sizes_of(run)): found["temporaries"]}
    evaluated = found["evaluation_temporaries"] / eval_envs_of(run)
    growth = found["all_compiled_nbytes"] - found["imported_nbytes"]
    known = Calibration(**{each.name: found[each.name] for each in fields(Calibration) if each.name in found} | {
        "versions": dict(library_versions()),
        "policy": run.policy.model_dump()["kwargs"],
        "remat": bool(run.memory.activation_checkpointing),
        "host_spread_nbytes": round(HOST_SPREAD * growth),
        "plans": {"": XlaPlan(read_versions(LIBRARIES), "", evaluated, [], asked)},
    })  # fmt: skip
    save_calibration(run, known)
    return known


def ask_for_plan(run: Run, card: KnownGpu | None = None, *, progress: Progress = lambda _: None) -> XlaPlan:
    """Return a plan that knows the run's training step and the run as it is, and keep it.

    XLA is asked for what is not known yet; the step as planned for a card of the same compute capability does.

    Args:
        card: None: the CPU's compiler is asked.

    Raises:
        BadInput: brax refuses the run, or XLA cannot compile it for the card.
        MissingExtra: jax or brax is not installed.
    """
    sizes = sizes_of(run)
    known = calibrate(run, progress=progress)
    found = known.plan_for(card, on_gpu=card is not None)
    name, libraries = (card.name, ("jaxlib", *PACKAGES)) if card is not None else ("", LIBRARIES)
    if found is None or (found.card != name and not found.is_of(card)):
        found = known.plans.get(name) or XlaPlan(read_versions(libraries), name, None, [], {})
    plan = found
    told = asked_sizes(replay=sizes.replay)
    wanted = [each for each in (*(() if plan.moments else told), sizes) if asked_key(card, each) not in plan.asked]
    left, each_s = len(wanted) + (plan.evaluation_nbytes is None), known.compile_s / 2

    def planned(asked: Run, *, evaluation: bool) -> int:
        nonlocal left, each_s
        began, soon = time.monotonic(), max(round(left * each_s / 60), 1)
        target: Any = {} if card is None else {"target": target_text(card), "card": card.name}
        answer: int = ask_compiler(
            "plan", asked, evaluation=evaluation, **target,
            progress=lambda text: progress(f"{text}; {left} to go, about {soon} min"),
        )["temporaries"]  # fmt: skip
        left, each_s = left - 1, time.monotonic() - began
        return answer

    def keep() -> None:
        save_calibration(run, replace(known, plans=known.plans | {plan.card: plan}))

    for each in wanted:
        nbytes = planned(with_sizes(run, each), evaluation=False)
        plan = replace(plan, asked=plan.asked | {asked_key(card, each): nbytes})
        keep()
    if not plan.moments:
        collecting, updating = (plan.asked[asked_key(card, each)] for each in told)
        moments = solved(collecting, updating, known.transition_nbytes, replay=sizes.replay)
        plan = replace(plan, moments=moments)
        keep()
    if plan.evaluation_nbytes is None:
        nbytes = planned(with_sizes(run, sizes, EVAL_ENVS), evaluation=True)
        plan = replace(plan, evaluation_nbytes=nbytes / EVAL_ENVS)
        keep()
    return plan


def asked_of_compiler(run: Run, mode: Mode, progress: Progress) -> Run:
    """Have the CPU's compiler asked about a run where the mode wants it; return the run with its spaces, where known.

    `trace` asks about the very run, `auto` only where nothing is known of its environment yet, since that takes
    minutes.

    Raises:
        MissingExtra, BadInput: mode `trace` without jax, or a run that brax refuses.
    """
    installed = is_installed("jax") and is_installed("brax")
    if mode == "trace" or (mode == "auto" and installed and _known(run) is None and not _is_refused(run)):
        calibrate(run, progress=progress)
    return with_brax_spaces(run)


def ask_where_unknown(run: Run, device: DeviceName, machine: Machine, mode: Mode, progress: Progress) -> str:
    """Have XLA asked for the device where that is possible and its plan is not known; return why that failed, if it
    did.

    `auto` does so where there is no plan of such a card, or not of such a batch; `trace` also asks about the very run.
    """
    gpu = machine.gpus[0] if device == "cuda" and machine.gpus else None
    card = None if gpu is None or plugin_missing() else known_card(gpu)
    if mode == "arithmetic" or find_calibration(run) is None or _is_refused(run):
        return ""
    known = known_of(run, device, gpu)
    if known is not None and (card is None or known.plan.card):
        answers = card is None or (known.same_card and sizes_of(run).is_even)
        if known.planned is not None or (mode == "auto" and answers):
            return ""
    try:
        ask_for_plan(run, card, progress=progress)
    except (BadInput, MissingExtra) as wrong:
        if card is None:
            raise
        if known is None:
            ask_for_plan(run, progress=progress)
        return f"XLA could not plan it for a {card.name} ({wrong}): the CPU's plan is used, with a wide band"
    return ""


def _is_refused(run: Run) -> bool:
    return any(finding.severity == "error" for finding in broken_rules(run))


def _known(run: Run) -> Calibration | None:
    return find_calibration(run) or find_relative(run)


def with_brax_spaces(run: Run) -> Run:
    """Return the run with the spaces that its environment had when it was compiled; as it is where nobody knows."""
    known = None if run.env.spaces is not None else _known(run)
    return run if known is None else _with_spaces(run, known.observation, known.action_size)


def with_traced_spaces(run: Run) -> Run:
    """Return the same, with the environment traced (seconds, nothing is compiled) where nobody knows its spaces.

    Raises:
        BadInput: it cannot be made.
        MissingExtra: jax or brax is not installed.
    """
    run = with_brax_spaces(run)
    if run.env.spaces is not None:
        return run
    shapes = ask_compiler("shapes", run)
    return _with_spaces(run, shapes["observation"], shapes["action_size"])


def _with_spaces(run: Run, seen: dict[str, list[int]] | list[int], action_size: int) -> Run:
    if isinstance(seen, dict):
        observation: Space = DictSpace(spaces={key: BoxSpace(shape=tuple(shape)) for key, shape in seen.items()})
    else:
        observation = BoxSpace(shape=tuple(seen))
    spaces = Spaces(observation=observation, action=BoxSpace(shape=(action_size,)))
    return run.replace(env=run.env.model_copy(update={"spaces": spaces}))


def ask_compiler(what: Question, run: Run, *, progress: Progress = lambda _: None, **more: Any) -> dict[str, Any]:
    """Return what a fresh process answers about the run; see `compiling.py`.

    Args:
        progress: is told what goes on, from another thread.
        more: for the question, as plain data: `evaluation`, `target`, `card`.

    Raises:
        BadInput: brax refuses the run, its environment cannot be made, or the child died.
        MissingExtra: jax or brax is not installed.
    """
    for package in ("jax", "brax"):
        if not is_installed(package):
            raise MissingExtra("jax", package, what="compiling a brax run")
    task = {"what": what, "run": run.model_dump(), **more}
    path = import_path(run, own=bool(own_code(run).names))
    try:
        found = ask_child(
            __name__, task, kind="compile", timeout_s=TIMEOUT_S, path=path, environment=ENVIRONMENT, told=progress
        )
    except (TypeError, ValueError) as wrong:
        raise BadInput(f"the settings of {run.name} are not plain data: {wrong}", path=run.source) from wrong
    answer = found.data
    if answer is None:
        raise BadInput(f"compiling {run.name} gave no answer {found.how}", path=run.source)
    if "missing" in answer:
        raise MissingExtra("jax", answer["missing"], what="compiling a brax run")
    if "error" in answer:
        raise BadInput(answer["error"], path=run.source, hint=answer.get("hint", ""))
    return answer


def main() -> None:
    """Answer the question of the task file."""
    answer_task(_answer)


def _answer(task: dict[str, Any], say: Progress) -> dict[str, Any]:
    if task["what"] == "plan":
        modules = "|".join((EPOCH_MODULE, EVALUATION_MODULE))
        add_flags(f"--xla_dump_to={task['folder']}/dump", f"--xla_dump_hlo_module_re={modules}")
    if "target" in task:
        add_flags(FLAGS)
    try:
        answer: dict[str, Any] = import_module("legroom.backends.brax.compiling").QUESTIONS[task["what"]](task, say)
    except BadInput as wrong:
        return {"error": wrong.message, "hint": wrong.hint}
    except MissingExtra as missing:
        return {"missing": missing.package}
    except ModuleNotFoundError as missing:
        return {"missing": missing.name}
    return answer
