"""Look closely at runs: have them traced and their updates measured in a child process.

The two processes are halves of one program and exchange pickles; nothing read from a user's file is ever unpickled. A
policy made of classes that only this process knows is traced here instead, and not measured. What cannot be traced is
estimated by arithmetic, and a note says why.

Traces on the CPU are kept from one command to the next: a child that imports torch takes a second or more. One is kept
only where the run's networks are made of the libraries' own classes, so that what is installed and what the run says
tell all about them. A user's class may change without its name.
"""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import legroom
from legroom.backends.sb3.base_figures import LIBRARIES, base_figures
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import NETWORK_ERROR, SCRATCH_ITEMS
from legroom.backends.sb3.bill.parts import sb3_footprint
from legroom.backends.sb3.bill.scratch import (
    Answer,
    Measured,
    Request,
    beyond_tensors,
    plan_scratch,
    remember,
)
from legroom.backends.sb3.constraints import space_rules
from legroom.backends.sb3.script_tensors import beside_the_run
from legroom.backends.sb3.stored import has_own_classes, network_key, update_nbytes
from legroom.environments.script_classes import named_by_file
from legroom.errors import MissingExtra, Untraceable
from legroom.extras import needs
from legroom.hollow.cuda_reduce import Card, card_with
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.child_process import installed_first, interpreter, run_file
from legroom.machine.gpu_table import multiprocessors_of
from legroom.machine.patience import patiently
from legroom.machine.versions import is_installed, read_versions
from legroom.model.evidence import DeviceName, Evidence, Look, Mode, NetTrace, Values
from legroom.model.footprint import Phase
from legroom.model.machine import Machine
from legroom.model.run import Run

CHILD = "legroom.backends.sb3.evidence_child"
NEEDED = ("torch", "stable-baselines3", "sb3-contrib")
TIMEOUT_S = 120  # and as much again per run
UPDATE_MARGIN = 0.3  # an update estimated by arithmetic may really need so much more
TOLERATED_DOUBT = 0.02  # of the peak: unmeasured scratch below it is not worth the seconds of a real update


@dataclass
class Job:
    """One run on its way: what was estimated, what of its update is known already, what is to be measured."""

    run: Run
    device: DeviceName
    estimate: NetTrace
    values: Values = "refuse"
    card: Card | None = None
    batches: list[int] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unmeasured: bool = False


def look(
    runs: Sequence[Run],
    devices: Sequence[DeviceName],
    machine: Machine,
    mode: Mode,
    values: Values = "refuse",
    progress: object = None,
) -> list[Look]:
    """Return what is known of the runs' networks and updates, in order; see `BackendPredictor`.

    Raises:
        MissingExtra: mode `trace` without the libraries.
    """
    if mode == "arithmetic":
        return [_estimate(run, on) for run, on in zip(runs, devices, strict=True)]
    measure = [_worth_measuring(run, machine, on) for run, on in zip(runs, devices, strict=True)]
    return look_closely(runs, devices, measure, strict=mode == "trace", values=values, card=_card(machine))


def _estimate(run: Run, device: DeviceName) -> Look:
    """Return what arithmetic says, with what was measured of the same update on this machine before, if it was."""
    job = _plan(named_by_file(run, run_file(run)), device, True)
    scratch = beyond_tensors(run, job.estimate, job.measured) if job.measured else None
    unknown = _guess(job.estimate, "--mode auto --trust traces it") or _beside(run, device)
    return Look(estimate_net(run, device), scratch, unknown=unknown)


def _card(machine: Machine) -> Card | None:
    """Return what shapes the kernels of the machine's first card, None where it has none."""
    if not machine.gpus:
        return None
    gpu = machine.gpus[0]
    return card_with(multiprocessors_of(gpu), gpu.capability)


def look_closely(
    runs: Sequence[Run],
    devices: Sequence[DeviceName],
    measure: Sequence[bool],
    *,
    strict: bool,
    values: Values = "refuse",
    card: Card | None = None,
) -> list[Look]:
    """Return what tracing and measuring tell about the runs, in order.

    Args:
        measure: whether the update of each run is worth measuring.
        strict: without the libraries, raise; otherwise fall back to arithmetic with a note.

    Raises:
        MissingExtra: see `strict`.
    """
    jobs = [
        replace(_plan(run, on, measured), values=values, card=card)
        for run, on, measured in zip(runs, devices, measure, strict=True)
    ]
    try:
        answers = _answers(jobs)
    except MissingExtra as missing:
        if strict:
            raise
        note, way = f"predicted by arithmetic: {missing}", "where torch and SB3 are installed it is traced"
        return [
            Look(job.estimate, notes=(note,), unknown=_guess(job.estimate, way) or _beside(job.run, job.device))
            for job in jobs
        ]
    return [_conclude(job, answer) for job, answer in zip(jobs, answers, strict=True)]


def _worth_measuring(run: Run, machine: Machine, device: DeviceName) -> bool:
    """Return whether a real update should be made: it may be the host's peak, and its scratch matters there."""
    net = estimate_net(run, device)
    footprint = sb3_footprint(run, Evidence(machine, device, base_figures(device=device), net))
    peak = footprint.host.nbytes
    doubt = sum(item.error for item in footprint.items if item.name in SCRATCH_ITEMS)
    doubt += int(NETWORK_ERROR * (net.weights + net.gradients + net.optimizer))
    unknown = bool(net.note)  # layers that no arithmetic knows
    return unknown or (footprint.at(Phase.UPDATE) * (1 + UPDATE_MARGIN) >= peak and doubt > TOLERATED_DOUBT * peak)


def _plan(run: Run, device: DeviceName, measure: bool) -> Job:
    job = Job(run, device, estimate_net(run, device))
    if device == "cpu" and measure:
        try:
            net = job.estimate
            parameters = net.weights + net.gradients + net.optimizer
            job.batches, job.measured = plan_scratch(run, update_nbytes(net), parameters)
        except Untraceable as reason:
            job.notes.append(f"operators' scratch memory was not measured, the band is wider: {reason}")
            job.unmeasured = True
    return job


def _answers(jobs: Sequence[Job]) -> list[Answer]:
    """Return an answer per job: from one child for all, or from this process for what only it knows."""
    known_here = ["live:" in repr((job.run.policy, job.run.algo_class)) for job in jobs]
    kept = [None if here else _kept(job) for job, here in zip(jobs, known_here, strict=True)]
    requests = [
        Request(job.run, job.device, [] if job.measured else job.batches, job.values, job.card)
        for job, here, known in zip(jobs, known_here, kept, strict=True)
        if not here and known is None
    ]
    traced = iter(trace_in_child(requests))
    return [
        _trace_here(job) if here else known or _keep(job, next(traced))
        for job, here, known in zip(jobs, known_here, kept, strict=True)
    ]


def _kept(job: Job) -> Answer | None:
    """Return what an earlier command found out, where nothing is left to be measured."""
    if job.device != "cpu" or (job.batches and not job.measured):
        return None
    net = kept_trace(job.run, job.values)
    return None if net is None else Answer(net)


def _keep(job: Job, answer: Answer) -> Answer:
    if job.device == "cpu" and answer.net is not None:
        keep_trace(job.run, job.values, answer.net)
    return answer


def _trace_here(job: Job) -> Answer:
    with needs("sb3", what="tracing a run"):
        from legroom.backends.sb3.trace import trace_run
    not_measured = "the policy uses a class that exists in this process only" if job.batches else ""
    try:
        return Answer(trace_run(job.run, job.device, card=job.card, values=job.values), not_measured=not_measured)
    except Untraceable as reason:
        return Answer(None, str(reason), reason.way, reason.modelled, not_measured=not_measured)


def _conclude(job: Job, answer: Answer) -> Look:
    notes, measured, unknown = list(job.notes), job.measured or answer.measured, ""
    if answer.measured:
        remember(job.run, job.batches, answer.measured)
    refused = answer.net is None and any(found.severity == "error" for found in space_rules(job.run))
    if refused:  # which is said as an error; what came of trying it is no news
        unknown = "it could not be traced: SB3 refuses this run"
    elif answer.net is None:
        notes.append(f"predicted by arithmetic, with a wider band: the policy cannot be traced: {answer.not_traced}")
        if not answer.modelled or job.estimate.guessed:
            unknown = f"it could not be traced: {answer.not_traced} ({answer.way or _way_out(job.run)})"
    if answer.not_measured and not refused:
        notes.append(f"operators' scratch memory was not measured, the band is wider: {answer.not_measured}")
    net = answer.net or job.estimate
    unknown = unknown or _beside(job.run, job.device)
    unmeasured = bool(not measured and (answer.not_measured or job.unmeasured) and not refused)
    scratch = beyond_tensors(job.run, net, measured) if measured else None
    return Look(net, scratch, tuple(notes), unknown, unmeasured)


def _guess(net: NetTrace, way: str) -> str:
    """Return why an estimate says nothing, empty where arithmetic knows all of it."""
    return f"arithmetic does not know {net.guessed} ({way})" if net.guessed else ""


def _beside(run: Run, device: DeviceName) -> str:
    """Return what else is on the card; empty where it is none, or nothing is."""
    return beside_the_run(run) if device == "cuda" else ""


def _way_out(run: Run) -> str:
    """Return how to know what a run takes that cannot be traced: running it is the one way that is left."""
    script = run_file(run)
    command = f"python {script.name}" if script is not None and script.suffix == ".py" else "COMMAND"
    return f"legroom watch -- {command} shows what it takes"


def trace_in_child(requests: Sequence[Request]) -> list[Answer]:
    """Return the answers, in order; a child that dies answers every request with its last words.

    Raises:
        MissingExtra: the libraries are not installed.
    """
    for package in NEEDED:
        if not is_installed(package):
            raise MissingExtra("sb3", package, what="tracing a run")
    path, pipe = installed_first(sys.path, last=(str(Path.cwd()),)), subprocess.PIPE
    child = subprocess.Popen(interpreter(CHILD, path, ends=True), stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        to_send, limit_s = [pickle.dumps(list(requests))], TIMEOUT_S * (1 + len(requests))
        output, errors = patiently(
            child, limit_s, lambda left: child.communicate(to_send.pop() if to_send else None, timeout=left)
        )
    except subprocess.TimeoutExpired:
        return [Answer(None, f"tracing took more than {TIMEOUT_S * (1 + len(requests))} s")] * len(requests)
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode:
        words = errors.decode(errors="replace").strip().splitlines() or [f"exit code {child.returncode}"]
        return [Answer(None, f"the tracing process died: {words[-1]}")] * len(requests)
    answers: list[Answer] = pickle.loads(output)
    return answers


TRACED_BY = ("hollow", "backends/sb3")


def kept_trace(run: Run, values: Values) -> NetTrace | None:
    """Return what a trace of this run on the CPU told before; None where nothing is kept."""
    if (path := _path(run, values)) is None or (content := read_json(path)) is None:
        return None
    try:
        found: NetTrace = _adapter().validate_python(content)
    except ValidationError:
        return None
    return found


def keep_trace(run: Run, values: Values, net: NetTrace) -> None:
    """Keep what a trace on the CPU told, where the run's networks are known by what it says."""
    if (path := _path(run, values)) is not None:
        write_json(path, _adapter().dump_python(net, mode="json"))


def _path(run: Run, values: Values) -> Path | None:
    if has_own_classes(run):
        return None
    versions = sorted(read_versions((*LIBRARIES, "sb3-contrib")).items())
    return cache_folder() / f"trace-{digest(network_key(run), values, versions, _code())}.json"


@cache
def _code() -> list[tuple[str, int, int]]:
    """Return what tells whether the code that traces is still the same."""
    root = Path(legroom.__file__).parent
    files = sorted(path for folder in TRACED_BY for path in (root / folder).rglob("*.py"))
    return [(path.name, (about := path.stat()).st_size, about.st_mtime_ns) for path in files]


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(NetTrace)
