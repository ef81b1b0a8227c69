"""Look closely at runs: have them traced in a child process.

The two processes are halves of one program and exchange pickles; nothing read from a user's file is ever unpickled. A
policy made of classes that only this process knows is traced here instead. What cannot be traced is estimated by
arithmetic, and a note says why.

Traces on the CPU are kept from one command to the next: a child that imports torch takes a second or more. One is kept
only where the run's networks are made of the libraries' own classes, so that what is installed and what the run says
tell all about them. A user's class may change without its name.
"""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

import legroom
from legroom.backends.sb3.base_figures import LIBRARIES
from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.backends.sb3.constraints import space_rules
from legroom.backends.sb3.script_tensors import beside_the_run
from legroom.backends.sb3.stored import has_own_classes, network_key
from legroom.errors import MissingExtra, Untraceable
from legroom.extras import needs
from legroom.hollow.cuda_reduce import GpuShape, card_with
from legroom.machine.cache import cache_folder, digest, read_json, write_json
from legroom.machine.child_process import installed_first, interpreter, patiently, run_file
from legroom.machine.gpu_table import multiprocessors_of
from legroom.machine.versions import is_installed, read_versions
from legroom.model.evidence import DeviceName, Look, Mode, NetTrace, Values
from legroom.model.machine import Machine
from legroom.model.run import Run

CHILD = "legroom.backends.sb3.evidence_child"
NEEDED = ("torch", "stable-baselines3", "sb3-contrib")
TIMEOUT_S = 120  # and as much again per run


@dataclass(frozen=True)
class Request:
    """One run to trace on a device."""

    run: Run
    device: DeviceName
    values: Values = "refuse"
    card: GpuShape | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a request; where it could not be traced, the reason, and the way to know all the same."""

    net: NetTrace | None
    not_traced: str = ""
    way: str = ""
    modelled: bool = False  # by arithmetic, on purpose


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
    gpu = machine.gpus[0] if machine.gpus else None
    card = None if gpu is None else card_with(multiprocessors_of(gpu), gpu.capability)
    requests = [Request(run, on, values, card) for run, on in zip(runs, devices, strict=True)]
    if mode == "arithmetic":
        return [_estimate(request, "--mode auto --trust traces it") for request in requests]
    try:
        answers = _answers(requests)
    except MissingExtra as missing:
        if mode == "trace":
            raise
        note, way = f"predicted by arithmetic: {missing}", "where torch and SB3 are installed it is traced"
        return [_estimate(request, way, note) for request in requests]
    return [_conclude(request, answer) for request, answer in zip(requests, answers, strict=True)]


def _estimate(request: Request, way: str, *notes: str) -> Look:
    net = estimate_net(request.run, request.device)
    guessed = f"arithmetic does not know {net.guessed} ({way})" if net.guessed else ""
    return Look(net, notes, guessed or _beside(request))


def _beside(request: Request) -> str:
    """Return what else is on the card; empty where it is none, or nothing is."""
    return beside_the_run(request.run) if request.device == "cuda" else ""


def _answers(requests: Sequence[Request]) -> list[Answer]:
    """Return an answer per request: a kept one, from this process for what only it knows, or from one child for all."""
    known = [_trace_here(each) if _is_here(each.run) else _kept(each) for each in requests]
    asked = [request for request, answer in zip(requests, known, strict=True) if answer is None]
    answers = trace_in_child(asked)
    for request, answer in zip(asked, answers, strict=True):
        if answer.net is not None and request.device == "cpu" and (path := _path(request)) is not None:
            write_json(path, _adapter().dump_python(answer.net, mode="json"))
    found = iter(answers)
    return [answer or next(found) for answer in known]


def _is_here(run: Run) -> bool:
    """Say whether the run's networks are of classes that exist in this process only."""
    return "live:" in repr((run.policy, run.algo_class))


def _trace_here(request: Request) -> Answer:
    with needs("sb3", what="tracing a run"):
        from legroom.backends.sb3.trace import trace_run
    try:
        return Answer(trace_run(request.run, request.device, card=request.card, values=request.values))
    except Untraceable as reason:
        return Answer(None, str(reason), reason.way, reason.modelled)


def _conclude(request: Request, answer: Answer) -> Look:
    if answer.net is not None:
        return Look(answer.net, unknown=_beside(request))
    run, net = request.run, estimate_net(request.run, request.device)
    if any(found.severity == "error" for found in space_rules(run)):
        # which is said as an error; what came of trying it is no news
        return Look(net, unknown="it could not be traced: SB3 refuses this run")
    unknown, note = "", f"predicted by arithmetic, with a wider band: the policy cannot be traced: {answer.not_traced}"
    if not answer.modelled or net.guessed:
        unknown = f"it could not be traced: {answer.not_traced} ({answer.way or _way_out(run)})"
    return Look(net, (note,), unknown or _beside(request))


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


def _kept(request: Request) -> Answer | None:
    """Return what a trace of this run on the CPU told an earlier command; None where nothing is kept."""
    path = _path(request) if request.device == "cpu" else None
    if path is None or (content := read_json(path)) is None:
        return None
    try:
        return Answer(_adapter().validate_python(content))
    except ValidationError:
        return None


def _path(request: Request) -> Path | None:
    if has_own_classes(request.run):
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
