"""Look closely at runs: have them traced and their updates measured in a child process.

The two processes are halves of one program and exchange pickles; nothing read from a user's file is ever unpickled. A
policy made of classes that only this process knows is traced here instead, and not measured. What cannot be traced is
estimated by arithmetic, and a note says why.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.scratch import beyond_tensors, plan_scratch, remember
from legroom.backends.sb3.stored import update_nbytes
from legroom.catalog import load
from legroom.errors import MissingExtra, Untraceable
from legroom.machine.versions import is_installed
from legroom.model.evidence import Look, NetTrace
from legroom.model.run import Run
from legroom.model.tracing import Answer, Measured, Request

CHILD = "legroom.backends.sb3.evidence_child"
NEEDED = ("torch", "stable-baselines3", "sb3-contrib")
TIMEOUT_S = 120  # and as much again per run


@dataclass
class Job:
    """One run on its way: what was estimated, what of its update is known already, what is to be measured."""

    run: Run
    device: Literal["cpu", "cuda"]
    estimate: NetTrace
    batches: list[int] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look_closely(
    runs: Sequence[Run], devices: Sequence[Literal["cpu", "cuda"]], measure: Sequence[bool], *, strict: bool
) -> list[Look]:
    """Return what tracing and measuring tell about the runs, in order.

    Args:
        measure: whether the update of each run is worth measuring.
        strict: without the libraries, raise; otherwise fall back to arithmetic with a note.

    Raises:
        MissingExtra: see `strict`.
    """
    each = zip(runs, devices, measure, strict=True)
    jobs = [None if run.backend == "brax" else _plan(run, on, measured) for run, on, measured in each]
    wanted = [job for job in jobs if job is not None]
    try:
        answers = iter(_answers(wanted))
    except MissingExtra as missing:
        if strict:
            raise
        reason = f"predicted by arithmetic: {missing}"
        return [Look(None) if job is None else Look(job.estimate, notes=(reason,)) for job in jobs]
    return [Look(None) if job is None else _conclude(job, next(answers)) for job in jobs]


def _plan(run: Run, device: Literal["cpu", "cuda"], measure: bool) -> Job:
    job = Job(run, device, estimate_net(run, device))
    if device == "cpu" and measure:
        try:
            net = job.estimate
            parameters = net.weights + net.gradients + net.optimizer
            job.batches, job.measured = plan_scratch(run, update_nbytes(net), parameters)
        except Untraceable as reason:
            job.notes.append(f"operators' scratch memory was not measured: {reason}")
    return job


def _answers(jobs: Sequence[Job]) -> list[Answer]:
    """Return an answer per job: from one child for all, or from this process for what only it knows."""
    known_here = [_known_here_only(job.run) for job in jobs]
    requests = [
        Request(job.run, job.device, [] if job.measured else job.batches)
        for job, here in zip(jobs, known_here, strict=True)
        if not here
    ]
    answers = iter(trace_in_child(requests) if requests else [])
    return [_trace_here(job) if here else next(answers) for job, here in zip(jobs, known_here, strict=True)]


def _known_here_only(run: Run) -> bool:
    return "live:" in repr(run.policy)


def _trace_here(job: Job) -> Answer:
    not_measured = "the policy uses a class that exists in this process only" if job.batches else ""
    try:
        return Answer(load("sb3.trace")(job.run, job.device), not_measured=not_measured)
    except Untraceable as reason:
        return Answer(None, str(reason), not_measured=not_measured)


def _conclude(job: Job, answer: Answer) -> Look:
    notes, measured = list(job.notes), job.measured or answer.measured
    if answer.measured:
        remember(job.run, answer.measured)
    if answer.net is None:
        notes.append(f"predicted by arithmetic, with a wider band: the policy cannot be traced: {answer.not_traced}")
    if answer.not_measured:
        notes.append(f"operators' scratch memory was not measured: {answer.not_measured}")
    net = answer.net or job.estimate
    return Look(net, beyond_tensors(job.run, net, measured) if measured else None, tuple(notes))


def trace_in_child(requests: Sequence[Request]) -> list[Answer]:
    """Return the answers, in order; a child that dies answers every request with its last words.

    Raises:
        MissingExtra: the libraries are not installed.
    """
    for package in NEEDED:
        if not is_installed(package):
            raise MissingExtra("sb3", package, what="tracing a run")
    child = subprocess.Popen(
        [sys.executable, "-m", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        output, errors = child.communicate(pickle.dumps(list(requests)), timeout=TIMEOUT_S * (1 + len(requests)))
    except subprocess.TimeoutExpired:
        return [Answer(None, f"tracing took more than {TIMEOUT_S * (1 + len(requests))} s")] * len(requests)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode:
        words = errors.decode(errors="replace").strip().splitlines() or [f"exit code {child.returncode}"]
        return [Answer(None, f"the tracing process died: {words[-1]}")] * len(requests)
    return pickle.loads(output)
