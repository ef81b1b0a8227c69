"""From a path to a Subject: its runs, what is wrong with them, their footprints by arithmetic, its syntax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from legroom.errors import BadInput
from legroom.model.machine import Machine
from legroom.model.rule import Key, Subject, SubjectRun
from legroom.model.run import Run
from legroom.model.verdict import Budget
from legroom.predicting.predict import DeviceName, add_up, choose_device, gather
from legroom.reading.collect_problems import CollectedFile, collected_text, read_collecting
from legroom.reading.interpreter.script import read_script
from legroom.reading.validating import HARMLESS, HARMLESS_PARTS, CollectedRun


def read_subject(
    target: str,
    *,
    machine: Machine,
    budget: Budget,
    like: str | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    device: DeviceName | None = None,
) -> Subject:
    """Return the subject that `target`, a file or a named run, is.

    Raises:
        BadInput: it cannot be read, or nothing in it is of a training.
    """
    file = read_collecting(target, overrides=overrides, like=like)
    return _subject(file, machine, budget, device)


def subject_of_text(
    text: str, name: str, *, machine: Machine, budget: Budget, device: DeviceName | None = None
) -> Subject:
    """Return the subject that the text of a run file is; nothing beside it is looked at, for there is no file.

    Raises:
        BadInput: nothing in it is of a training.
    """
    return _subject(collected_text(text, name), machine, budget, device)


def _subject(file: CollectedFile, machine: Machine, budget: Budget, device: DeviceName | None) -> Subject:
    problems = list(file.problems)
    known: list[SubjectRun] = []
    guessed: list[SubjectRun] = []
    for each in file.runs:
        if each.run is None or not each.algo_known:
            problems += each.problems if each.algo_known else ()
        if each.run is None:
            continue
        one = _subject_run(each, each.run, file.kind, machine, budget, device)
        if each.algo_known:
            known.append(one)
        elif _looks_like_ppo(one):
            guessed.append(one)
    return Subject(
        path=file.path,
        text=file.text,
        kind=file.kind,
        machine=machine,
        budget=budget,
        runs=tuple(known),
        script=read_script(file.text, file.path) if file.path.endswith(".py") else None,
        guessed=tuple(guessed),
        problems=tuple(problems),
    )


def _subject_run(
    read: CollectedRun, run: Run, kind: str, machine: Machine, budget: Budget, device: DeviceName | None
) -> SubjectRun:
    lines = {_words(key): line for key, line in read.lines.items()}
    unknown = frozenset(_words(key) for key in read.unknown)
    if kind == "script" and run.algo_class is not None:  # its own defaults, and its own way to use what it is given
        unknown |= {("hyperparams",)}
    if kind != "run":  # only run files have mappings around their keys; elsewhere those are the reader's own
        lines = {key: line for key, line in lines.items() if not any(k[:-1] == key for k in lines)}
    one = SubjectRun(run, lines, unknown, problems=read.problems if read.algo_known else ())
    if not read.algo_known or any(_matters(key) for key in unknown):
        return one
    where = device or _device(run, machine, budget)
    try:
        run, evidence = gather(run, machine, mode="arithmetic", device=where)
        return replace(one, footprint=add_up(run, evidence), evidence=evidence)
    except BadInput:  # the spaces are not known, or the backend cannot be predicted
        return one


def _looks_like_ppo(one: SubjectRun) -> bool:
    """Return whether constants without an algorithm have all that minibatches of a rollout are made of."""
    needed: tuple[Key, ...] = (("env", "n_envs"), ("hyperparams", "n_steps"), ("hyperparams", "batch_size"))
    return all(one.gives(*key) and one.knows(*key) for key in (*needed, ("hyperparams", "n_epochs")))


def _device(run: Run, machine: Machine, budget: Budget) -> DeviceName:
    """Return where the run would train: a GPU budget alone means cuda."""
    if run.device == "auto" and budget.vram is not None:
        return "cuda"
    return choose_device(run, machine)


def _matters(key: tuple[Any, ...]) -> bool:
    """Return whether memory depends on the key, so that a default in its place would make the footprint wrong."""
    return key[-1] not in HARMLESS and key[:2] not in HARMLESS_PARTS


def _words(key: tuple[Any, ...]) -> Key:
    return tuple(str(part) for part in key)
