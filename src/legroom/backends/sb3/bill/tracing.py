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
from legroom.backends.sb3.bill import sb3_footprint
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.bill.network import NETWORK_ERROR, SCRATCH_ITEMS
from legroom.backends.sb3.bill.scratch import Answer, Measured, Request, beyond_tensors, plan_scratch, remember
from legroom.backends.sb3.constraints import space_rules
from legroom.backends.sb3.script_tensors import beside_the_run
from legroom.backends.sb3.stored import has_own_classes, network_key, update_nbytes
from legroom.environments.script_classes import named_by_file
from legroom.errors import MissingExtra, Untraceable
from legroom.extras import needs
from legroom.hollow.cuda_reduce import card_with
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.child_process import installed_first, interpreter, patiently, run_file
from legroom.machine.gpu_table import multiprocessors_of
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
class TracingJob:
    """One run on its way: what is asked of the child, what was estimated, what of its update is known already."""

    request: Request
    estimate: NetTrace
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
        MissingExtra: mode `trace` without the libraries; otherwise arithmetic answers, with a note.
    """
    if mode == "arithmetic":
        return [_estimate(run, on) for run, on in zip(runs, devices, strict=True)]
    gpu = machine.gpus[0] if machine.gpus else None
    card = None if gpu is None else card_with(multiprocessors_of(gpu), gpu.capability)
    jobs = [
        plan(Request(run, on, values=values, card=card), measure=_worth_measuring(run, machine, on))
        for run, on in zip(runs, devices, strict=True)
    ]
    return look_closely(jobs, strict=mode == "trace")


def look_closely(jobs: Sequence[TracingJob], *, strict: bool) -> list[Look]:
    """Return what tracing and measuring tell about the runs, in order.

    Raises:
        MissingExtra: `strict`, and the libraries are missing.
    """
    try:
        answers = _answers(jobs)
    except MissingExtra as missing:
        if strict:
            raise
        note, way = f"predicted by arithmetic: {missing}", "where torch and SB3 are installed it is traced"
        return [Look(job.estimate, notes=(note,), unknown=_unknown(job.estimate, way, job.request)) for job in jobs]
    return [_conclude(job, answer) for job, answer in zip(jobs, answers, strict=True)]


def _estimate(run: Run, device: DeviceName) -> Look:
    """Return what arithmetic says, with what was measured of the same update on this machine before, if it was."""
    job = plan(Request(named_by_file(run, run_file(run)), device), measure=True)
    scratch = beyond_tensors(job.request.run, job.estimate, job.measured) if job.measured else None
    unknown = _unknown(job.estimate, "--mode auto --trust traces it", Request(run, device))
    return Look(estimate_net(run, device), scratch, unknown=unknown)


def _unknown(net: NetTrace, way: str, request: Request) -> str:
    """Return why an estimate does not say all that there is, empty where it does."""
    guessed = f"arithmetic does not know {net.guessed} ({way})" if net.guessed else ""
    return guessed or _beside(request)


def _beside(request: Request) -> str:
    """Return what else is on the card; empty where it is none, or nothing is."""
    return beside_the_run(request.run) if request.device == "cuda" else ""


def _worth_measuring(run: Run, machine: Machine, device: DeviceName) -> bool:
    """Return whether a real update should be made: it may be the host's peak, and its scratch matters there."""
    net = estimate_net(run, device)
    footprint = sb3_footprint(run, Evidence(machine, device, base_figures(device=device), net))
    peak = footprint.host.nbytes
    doubt = sum(item.error for item in footprint.items if item.name in SCRATCH_ITEMS)
    doubt += int(NETWORK_ERROR * (net.weights + net.gradients + net.optimizer))
    unknown = bool(net.note)  # layers that no arithmetic knows
    return unknown or (footprint.at(Phase.UPDATE) * (1 + UPDATE_MARGIN) >= peak and doubt > TOLERATED_DOUBT * peak)


def plan(request: Request, *, measure: bool) -> TracingJob:
    net = estimate_net(request.run, request.device)
    job = TracingJob(request, net)
    if request.device == "cpu" and measure:
        try:
            parameters = net.weights + net.gradients + net.optimizer
            batches, job.measured = plan_scratch(request.run, update_nbytes(net), parameters)
            job.request = replace(request, batches=batches)
        except Untraceable as reason:
            job.notes.append(f"operators' scratch memory was not measured, the band is wider: {reason}")
            job.unmeasured = True
    return job


def _answers(jobs: Sequence[TracingJob]) -> list[Answer]:
    """Return an answer per job: a kept one, from this process for what only it knows, or from one child for all."""
    known = [_trace_here(job.request) if _is_here(job.request.run) else _kept(job) for job in jobs]
    asked = [job for job, answer in zip(jobs, known, strict=True) if answer is None]
    answers = trace_in_child([replace(job.request, batches=[]) if job.measured else job.request for job in asked])
    for job, answer in zip(asked, answers, strict=True):
        if answer.net is not None and (path := _path(job.request)) is not None:
            write_json(path, _adapter().dump_python(answer.net, mode="json"))
    found = iter(answers)
    return [answer or next(found) for answer in known]


def _is_here(run: Run) -> bool:
    """Say whether the run's networks are of classes that exist in this process only."""
    return "live:" in repr((run.policy, run.algo_class))


def _kept(job: TracingJob) -> Answer | None:
    """Return what a trace of this run on the CPU told an earlier command, where nothing is left to be measured."""
    path = None if job.request.batches and not job.measured else _path(job.request)
    if path is None or (content := read_json(path)) is None:
        return None
    try:
        return Answer(_adapter().validate_python(content))
    except ValidationError:
        return None


def _trace_here(request: Request) -> Answer:
    with needs("sb3", what="tracing a run"):
        from legroom.backends.sb3.trace import trace_run
    not_measured = "the policy uses a class that exists in this process only" if request.batches else ""
    try:
        net = trace_run(request.run, request.device, card=request.card, values=request.values)
    except Untraceable as reason:
        return Answer(None, str(reason), reason.way, reason.modelled, not_measured=not_measured)
    return Answer(net, not_measured=not_measured)


def _conclude(job: TracingJob, answer: Answer) -> Look:
    run, notes, measured, unknown = job.request.run, list(job.notes), job.measured or answer.measured, ""
    if answer.measured:
        remember(run, job.request.batches, answer.measured)
    refused = answer.net is None and any(found.severity == "error" for found in space_rules(run))
    if refused:  # which is said as an error; what came of trying it is no news
        unknown = "it could not be traced: SB3 refuses this run"
    elif answer.net is None:
        notes.append(f"predicted by arithmetic, with a wider band: the policy cannot be traced: {answer.not_traced}")
        if not answer.modelled or job.estimate.guessed:
            unknown = f"it could not be traced: {answer.not_traced} ({answer.way or _way_out(run)})"
    if answer.not_measured and not refused:
        notes.append(f"operators' scratch memory was not measured, the band is wider: {answer.not_measured}")
    net = answer.net or job.estimate
    unmeasured = bool(not measured and (answer.not_measured or job.unmeasured) and not refused)
    scratch = beyond_tensors(run, net, measured) if measured else None
    return Look(net, scratch, tuple(notes), unknown or _beside(job.request), unmeasured)


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
    if not requests:
        return []
    for package in NEEDED:
        if not is_installed(package):
            raise MissingExtra("sb3", package, what="tracing a run")
    path, pipe = installed_first(sys.path, last=(str(Path.cwd()),)), subprocess.PIPE
    to_send, limit_s = [pickle.dumps(list(requests))], TIMEOUT_S * (1 + len(requests))
    with subprocess.Popen(interpreter(CHILD, path, ends=True), stdin=pipe, stdout=pipe, stderr=pipe) as child:
        try:
            output, errors = patiently(
                child, limit_s, lambda left: child.communicate(to_send.pop() if to_send else None, timeout=left)
            )
        except subprocess.TimeoutExpired:
            return [Answer(None, f"tracing took more than {limit_s} s")] * len(requests)
        finally:
            child.kill()
    if child.returncode:
        words = errors.decode(errors="replace").strip().splitlines() or [f"exit code {child.returncode}"]
        return [Answer(None, f"the tracing process died: {words[-1]}")] * len(requests)
    answers: list[Answer] = pickle.loads(output)
    return answers


def _path(request: Request) -> Path | None:
    """Return where a trace is kept; None for one on a GPU, or where what the run says does not tell all of it."""
    if request.device != "cpu" or has_own_classes(request.run):
        return None
    versions = sorted(read_versions((*LIBRARIES, "sb3-contrib")).items())
    return cache_folder() / f"trace-{digest(network_key(request.run), request.values, versions, _code())}.json"


@cache
def _code() -> list[tuple[str, int, int]]:
    """Return what tells whether the code that traces is still the same."""
    root = Path(legroom.__file__).parent
    files = sorted(path for folder in ("hollow", "backends/sb3") for path in (root / folder).rglob("*.py"))
    return [(path.name, (about := path.stat()).st_size, about.st_mtime_ns) for path in files]


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(NetTrace)
