"""XLA asked about a brax run: what its temporaries take on the CPU and on GPUs, and what compiling takes on the host.

A process that has compiled a training step holds a gigabyte for it, so every question has a process of its own, which
begins here (`main`) and imports jax once its flags are set (`compiling.py`). What it says it is doing is handed on,
since a compilation takes minutes. What XLA answers is kept at once (`calibration.py`): who interrupts loses one answer.
"""

import os
from collections.abc import Callable
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from legroom.backends.brax.calibration import (
    LIBRARIES,
    Calibration,
    all_at_once,
    calibration_of_env,
    calibration_places,
    find_calibration,
    find_plan,
    known_of,
    library_versions,
    plan_file,
    read_plan,
    save_calibration,
)
from legroom.backends.brax.facts import eval_envs_of, is_ppo
from legroom.backends.brax.plans import Asked, Sizes, XlaPlan, moments_of, sizes_of, with_sizes
from legroom.environments.own_code import own_code
from legroom.errors import BadInput, MissingExtra
from legroom.machine.cache import write_json
from legroom.machine.child_process import answer_task, ask_child, import_path
from legroom.machine.gpu_table import KnownGpu
from legroom.machine.versions import is_installed, read_versions
from legroom.model.evidence import Mode
from legroom.model.machine import Gpu
from legroom.model.run import Run, Spaces
from legroom.model.spaces import BoxSpace, DictSpace, Space
from legroom.predicting.constraints import broken_rules
from legroom.xla.target import ENVIRONMENT, FLAGS, PACKAGES, add_flags, known_card, plugin_missing, target_text

TIMEOUT_S = 3600.0
EPOCH_MODULE, EVALUATION_MODULE = "jit__fun", "jit_generate_eval_unroll"  # as jax names what it compiles
EVAL_ENVS = 1024  # that XLA is asked to evaluate with: enough that what all of them share is nothing
Progress = Callable[[str], None]
Question = Literal["shapes", "compile", "plan"]


def calibrate(run: Run, *, progress: Progress = lambda _: None) -> Calibration:
    """Return what is known of the run, compiling it where nothing is kept, with the CPU's plan of it as it is.

    Raises:
        BadInput: brax refuses the run.
        MissingExtra: jax or brax is not installed.
    """
    run = all_at_once(run)
    known = find_calibration(run)
    if known is None or known.made_elsewhere:  # asked again, with the libraries that are here
        free, busy = ask_compiler("compile", run, progress=progress), ask_compiler("compile", run, cores=1)
        known = _from_compiler(free, busy)
        file = save_calibration(run, known)
        evaluated = free["evaluation_temporaries"] / eval_envs_of(run)
        asked = [Asked(sizes_of(run), free["temporaries"])]
        plan = XlaPlan(read_versions(LIBRARIES), "", evaluated, {"": asked})
        write_json(plan_file(file, ""), plan.model_dump())
    ask_for_plan(run, progress=progress)
    return known


def _from_compiler(free: dict[str, Any], busy: dict[str, Any]) -> Calibration:
    """Return what two processes said that compiled the same, one with all cores and one with a single one."""
    measured = ("imported_nbytes", "traced_nbytes", "compiled_nbytes", "all_compiled_nbytes", "retained_nbytes")
    found = {each.name: free[each.name] for each in fields(Calibration) if each.name in free} | {
        "versions": dict(library_versions()),
        "compile_s": free["trace_s"] + free["compile_s"] + free["evaluation_s"],
        "host_spread_nbytes": abs(free["all_compiled_nbytes"] - busy["all_compiled_nbytes"]) // 2,
    }
    return Calibration(**found | {name: (free[name] + busy[name]) // 2 for name in measured})


def ask_for_plan(
    run: Run, card: KnownGpu | None = None, *, progress: Progress = lambda _: None, place: Path | None = None
) -> XlaPlan:
    """Return a plan that knows the run's training step and the run as it is, and keep it.

    XLA is asked for what is not known yet; the step as planned for a card of the same compute capability does.

    Args:
        card: None: the CPU's compiler is asked.
        place: the calibration to keep it beside; that of the run on this machine.

    Raises:
        BadInput: brax refuses the run, or XLA cannot compile it for the card.
        MissingExtra: jax or brax is not installed.
    """
    run, places = all_at_once(run), [place] if place is not None else calibration_places(run)
    name = "" if card is None else card.name
    plan = next(filter(None, (read_plan(each, name) for each in places)), None)
    like = None if card is None else find_plan(places, card, on_gpu=True)
    if plan is None and like is not None and like.is_of(card):
        plan = like
    if plan is None:
        plan = XlaPlan(read_versions(LIBRARIES if card is None else ("jaxlib", *PACKAGES)), name, None, {})
    file = plan_file(places[0], plan.card)

    def planned(sizes: Sizes, *, evaluation: bool = False) -> int:
        target: Any = {} if card is None else {"target": target_text(card), "card": card.name}
        asked_run = with_sizes(run, sizes, EVAL_ENVS if evaluation else None)
        answer: int = ask_compiler("plan", asked_run, progress=progress, evaluation=evaluation, **target)["temporaries"]
        return answer

    wanted = [] if plan.step is not None else [s for each in moments_of(replay=not is_ppo(run)) for s in each.asked]
    for sizes in dict.fromkeys((*wanted, sizes_of(run))):
        if plan.exact(name, sizes) is None:
            plan = plan.with_answer(name, sizes, planned(sizes))
            write_json(file, plan.model_dump())
    if plan.evaluation_nbytes is None:
        plan = replace(plan, evaluation_nbytes=planned(sizes_of(run), evaluation=True) / EVAL_ENVS)
        write_json(file, plan.model_dump())
    return plan


def asked_of_compiler(run: Run, mode: Mode, progress: Progress) -> Run:
    """Have the CPU's compiler asked about a run where the mode wants it; return the run with its spaces, where known.

    `trace` asks about the very run, `auto` only where nothing is known of its environment yet, since that takes
    minutes.

    Raises:
        MissingExtra, BadInput: mode `trace` without jax, or a run that brax refuses.
    """
    ask = mode == "trace"
    if mode == "auto" and calibration_of_env(run) is None:
        ask = not _is_refused(run) and is_installed("jax") and is_installed("brax")
    if ask:
        calibrate(run, progress=progress)
    return with_brax_spaces(run)


def asked_for_card(run: Run, gpu: Gpu, mode: Mode, progress: Progress) -> str:
    """Have XLA asked for the card where that is possible and its plan is not known; return why that failed, if it did.

    `auto` does so where there is no plan of such a card, or not of such a batch; `trace` also asks about the very run.
    """
    card, known = known_card(gpu), known_of(run, "cuda", gpu)
    if card is None or known is None or _is_refused(run) or plugin_missing():
        return ""
    answers = known.scaled or (known.same_card and (sizes_of(run).is_asked or known.planned is not None))
    if mode == "auto" and known.plan.card and answers:
        return ""
    try:
        ask_for_plan(run, card, progress=progress)
    except (BadInput, MissingExtra) as wrong:
        return f"XLA could not plan it for a {card.name} ({wrong}): the CPU's plan is used, with a wide band"
    return ""


def _is_refused(run: Run) -> bool:
    return any(finding.severity == "error" for finding in broken_rules(run))


def with_brax_spaces(run: Run) -> Run:
    """Return the run with the spaces that its environment had when it was compiled; as it is where nobody knows."""
    known = None if run.env.spaces is not None else calibration_of_env(run)
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


def ask_compiler(
    what: Question, run: Run, *, progress: Progress = lambda _: None, timeout_s: float = TIMEOUT_S, **more: Any
) -> dict[str, Any]:
    """Return what a fresh process answers about the run; see `compiling.py`.

    Args:
        progress: is told what goes on, from another thread.
        more: for the question, as plain data: `evaluation`, `target`, `card`; `cores` to do with.

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
            __name__, task, kind="compile", timeout_s=timeout_s, path=path, environment=ENVIRONMENT, told=progress
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
    if task.get("cores") and hasattr(os, "sched_setaffinity"):  # before XLA counts them
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["cores"]])
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
