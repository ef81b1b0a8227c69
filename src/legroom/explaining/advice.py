"""Which knobs help against what ran out, cheapest price first, each with a command to copy.

The prices are those of the knobs, as `legroom fit` has them where no probe has measured anything: a failure's text says
nothing about the observations. `legroom fit` finds out how far to turn them, so its command comes first in the
explanation. Keys of a run file are for runs that legroom trains; a log of another program gets that program's settings.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.backends.base import knob_named
from legroom.explaining.causes import Cause
from legroom.explaining.log_programs import BASELINES, MUCH, RAY_RUNS, REMEDIES, LoggedProgram, remedy
from legroom.model.plan import PRICES
from legroom.model.trace import Advice, Explanation
from legroom.units import MIB, format_size, typed_size

_GPU_KINDS = ("cuda", "cublas", "jax")
_LIMITED_KINDS = ("container", "slurm", "ray")  # their capacity is the budget of the host
_SPILL_ABOVE = "4GiB"
_FEW_ENVS = 1
LEAST_SHARE = 0.05  # of a GPU, that others hold: less is a desktop, or a monitor


@dataclass(frozen=True)
class Context:
    """What the log shows beside the failure itself."""

    cause: Cause | None = None
    script: str | None = None  # that was started, as it can be typed
    command: str = ""  # with which, and with its arguments where the log shows them
    program: LoggedProgram | None = None
    grabbing: tuple[Advice, ...] = ()  # settings of libraries in the log that take most of the GPU when they start
    loads: bool = False  # it is about a DataLoader of PyTorch


@dataclass(frozen=True)
class _Case:
    """What advice depends on: the explanation so far and what the log shows beside it."""

    found: Explanation
    context: Context

    @property
    def cause(self) -> str:
        return self.context.cause.name if self.context.cause else ""

    @property
    def run(self) -> str:
        return shlex.quote(self.context.script) if self.context.script else "RUN"

    @property
    def command(self) -> str:
        """How the user's own program is started."""
        return self.context.command or "YOUR COMMAND"

    @property
    def foreign(self) -> LoggedProgram | None:
        """The program, where it is none that legroom trains."""
        return None if self.context.program in (BASELINES, RAY_RUNS) else self.context.program

    @property
    def outside(self) -> int:
        """What is held outside PyTorch, where it is more than CUDA itself takes."""
        return held if (held := self.found.outside or 0) >= MUCH else 0

    @property
    def crowded(self) -> bool:
        """Whether ending other processes helps: what they hold makes room for the request, or is much."""
        others, found = self.found.others or 0, self.found
        enough = others + (found.free or 0) >= (found.requested or 0)
        return bool(others) and (enough or others >= LEAST_SHARE * (found.capacity or 0))

    @property
    def mostly_outside(self) -> bool:
        """Whether PyTorch holds the smaller part, so that its settings help little."""
        return self.outside > (self.found.allocated or 0) + (self.found.reserved_unallocated or 0)

    def turn(self, key: str, value: str, say: str) -> Advice:
        """Return the advice to set one key of the run file, at its knob's price; what is no knob costs nothing."""
        knob = knob_named(key)
        price = knob.unprobed_price if knob is not None else "free"
        return Advice(f"{key}={value}", price, say, f"legroom train {self.run} --set {key}={value}")

    def size_of(self, *names: str) -> int | None:
        return next((d.sizes[0] for d in self.found.dimensions if d.name in names), None)


def advise(found: Explanation, context: Context) -> tuple[tuple[Advice, ...], str]:
    case = _Case(found, context)
    given = found.advice or tuple(_BY_KIND.get(found.kind, _host)(case))
    advice = tuple(sorted(given, key=lambda one: PRICES.index(one.price)))
    if found.advice:
        return advice, next((one.command for one in advice if one.command), "")
    return advice, _start(case)


def _start(case: _Case) -> str:
    found = case.found
    if found.kind == "checkpoint-corrupt":
        return f"legroom train {case.run} --out DIR --resume"
    option, room = "", None
    if found.kind in _GPU_KINDS and found.capacity:
        option, room = "--vram", max(found.capacity - (found.others or 0) - case.outside, 0)
    elif found.kind in _LIMITED_KINDS:
        option, room = "--ram", found.capacity
    given = f"{option} {typed_size(room)} " if room else ""
    if found.kind in ("cuda", "cublas") and (case.foreign or case.mostly_outside):
        rehearsed = case.foreign is None or case.foreign.rehearsed
        return f"legroom predict {given}-- {case.command}" if rehearsed else "nvidia-smi" if case.crowded else ""
    if found.kind == "ray" and case.context.program is not RAY_RUNS:
        return ""  # Ray starts its workers elsewhere: what we start would not see them
    if case.context.loads or (case.foreign and found.kind != "jax"):
        return f"legroom watch -- {case.command}"
    if not case.context.command:
        return f"legroom fit RUN {given}".rstrip()
    return f"legroom {f'fit {given}' if given else 'predict '}-- {case.command}"  # fit has to be given a budget


def _host(case: _Case) -> Iterator[Advice]:
    """Advise on RAM: the buffers first, then what the workers take."""
    found, cause, program = case.found, case.cause, case.context.program
    if case.context.loads:
        yield from _loader(case)
        return
    if found.kind == "ray" and "object store" in found.summary:
        yield remedy("object_store_memory", "free", "a larger store in ray.init: it is in /dev/shm")
    if program is not None and program.host and (not cause or found.kind == "ray"):
        monitored = "monitor" in found.summary  # else the kernel has killed it, whatever Ray's limit is
        yield from (one for one in program.host if monitored or one is not REMEDIES["RAY_LIMIT"])
        return
    if found.kind == "ray":
        yield remedy("num_cpus", "slower", "more CPUs for each task or actor: fewer run at once on a node")
        yield REMEDIES["RAY_LIMIT"]
        return
    if cause in ("stack", "space", "data"):
        yield from _not_buffers(case)
        return
    said_nothing = cause not in ("rollout", "flatten", "replay", "sample")
    if said_nothing or cause in ("rollout", "flatten"):
        yield case.turn("memory.rollout", "lean", "lossless storage of the rollout, no flatten copy")
    if said_nothing or cause in ("replay", "sample"):
        yield case.turn("memory.replay", "lean", "lossless storage of the replay, next_obs stored once")
    if found.kind != "host-array":
        yield from _workers(case)
    yield case.turn("memory.max_bytes", _SPILL_ABOVE, "lean storage goes to disk above 4 GiB")
    if cause in ("rollout", "flatten"):
        steps = max((case.size_of("n_steps") or 2048) // 8, 16)
        yield case.turn("hyperparams.n_steps", str(steps), "a shorter rollout")
    if cause in ("replay", "sample"):
        rows = max((case.size_of("buffer rows", "capacity") or 1_000_000) // 10, 1000)
        yield case.turn("hyperparams.buffer_size", str(rows), "a shorter replay buffer")
    if (case.size_of("n_envs") or 2) > _FEW_ENVS:
        yield case.turn("env.n_envs", str(_FEW_ENVS), "fewer environments at once")


def _loader(case: _Case) -> Iterator[Advice]:
    say = "fewer loader workers: each holds a copy of the dataset's objects and its prefetched batches"
    yield remedy("num_workers", "slower", say)
    yield remedy("prefetch_factor", "slower", "fewer prefetched batches (default: 2 for each worker)")
    say = "one array instead of a list of objects: counting references makes each worker copy the list"
    yield Advice("dataset", "free", say, f"legroom watch -- {case.command}")


def _not_buffers(case: _Case) -> Iterator[Advice]:
    """Advise where the array is an environment's own, or data that it reads."""
    if case.cause == "data":
        yield case.turn(
            "memory.shared_data",
            "true",
            "one copy of read-only data for all workers: legroom.share in the environment",
        )
    yield from _workers(case)
    yield case.turn("env.n_envs", str(_FEW_ENVS), "fewer environments at once")


def _gpu(case: _Case) -> Iterator[Advice]:
    found, foreign = case.found, case.foreign
    if case.crowded:
        say = f"they hold {format_size(found.others or 0)} (nvidia-smi names them): end them or use another GPU"
        yield Advice("other processes", "free", say, "nvidia-smi")
    if _fragmented(found):
        if foreign:
            say = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: they grow, no fragments"
            yield remedy("expandable segments", "free", say)
        else:
            yield case.turn("memory.expandable_segments", "true", "segments can grow: no fragments")
    if case.outside:
        yield from case.context.grabbing or (foreign.gpu if foreign else _UNNAMED[found.others is not None :])
        if foreign or case.mostly_outside:
            return
    if case.cause in _ON_GPU and case.context.program is not BASELINES:
        yield from _ON_GPU[case.cause]
        return
    if foreign:
        yield from foreign.gpu
        return
    if case.cause == "model":
        yield remedy("dtype", "changes-learning", "weights in bfloat16: half the bytes")
        return
    elif case.cause == "load":
        yield remedy("map_location='cpu'", "free", "load to the host first: the model is on the GPU already")
    else:
        yield case.turn("memory.micro_batch", "16", "a minibatch in pieces, the same gradient")
        yield case.turn("memory.activation_checkpointing", "true", "recompute activations, do not keep them")
        yield case.turn("hyperparams.batch_size", "32", "a smaller minibatch")
    yield case.turn("memory.bf16", "true", "activations in half the bytes")


# What holds memory outside PyTorch where the log names none.
_UNNAMED = (
    REMEDIES["OTHERS"],
    remedy("gpu_memory_utilization", "slower", "a smaller share, if it is vLLM in this process"),
    remedy("num_envs", "changes-learning", "fewer environments, if it is a simulator on the GPU"),
)
# Buffers that a traceback shows being made on the GPU.
_ON_GPU = {
    "replay": (
        remedy("device='cpu'", "slower", "the replay buffer in host memory; each batch is copied to the GPU"),
        remedy("buffer_size", "changes-learning", "a shorter replay buffer; with many environments it counts for each"),
    ),
    "rollout": (
        remedy("rollout length", "changes-learning", "a shorter rollout"),
        remedy("num_envs", "changes-learning", "fewer environments: the rollout holds the steps of all"),
    ),
}


def _fragmented(found: Explanation) -> bool:
    """Say whether memory lies reserved and unused that would have been enough, or is much."""
    idle = found.reserved_unallocated or 0
    return 0 < min(found.requested or idle, 256 * MIB) <= idle


def _xla(case: _Case) -> Iterator[Advice]:
    yield case.turn("memory.xla_preallocate", "false", "XLA takes memory as needed, not 75 % at the start")
    yield case.turn("env.n_envs", "512", "fewer environments, where they are simulated on the GPU")
    yield case.turn("hyperparams.batch_size", "128", "a smaller minibatch")


def _mps(case: _Case) -> Iterator[Advice]:
    yield case.turn("memory.micro_batch", "16", "a minibatch in pieces, the same gradient")
    say = "host memory instead of GPU memory"
    yield Advice("device=cpu", "slower", say, f"legroom train {case.run} --device cpu")
    yield case.turn("hyperparams.batch_size", "32", "a smaller minibatch")


def _shm(case: _Case) -> Iterator[Advice]:
    say = "a container gets 64 MiB unless it asks for more"
    yield Advice("docker --shm-size", "free", say, "docker run --shm-size=8g IMAGE")
    if case.context.loads:
        yield from _loader(case)
        return
    yield from _workers(case)
    yield case.turn("env.n_envs", "4", "fewer environments at once")


def _workers(case: _Case) -> Iterator[Advice]:
    yield case.turn("env.workers", "light", "light workers, without torch: 23 MB instead of 284 MB each")
    yield case.turn("env.envs_per_worker", "4", "several environments share a worker process")


def _processes(case: _Case) -> Iterator[Advice]:
    """Advise where processes cannot be started: fork, and the page file of Windows."""
    yield from _workers(case)
    if case.found.kind == "fork":
        yield case.turn("env.start_method", "forkserver", "workers start from a small server process")
    yield case.turn("env.n_envs", "4", "fewer environments: fewer processes")


def _checkpoint(case: _Case) -> Iterator[Advice]:
    say = "continue from the last complete one; legroom's checkpoints are complete or absent"
    yield Advice("checkpoint", "free", say, f"legroom train {case.run} --out DIR --resume")


_BY_KIND = {
    "cuda": _gpu,
    "cublas": _gpu,
    "jax": _xla,
    "mps": _mps,
    "shm": _shm,
    "pagefile": _processes,
    "fork": _processes,
    "checkpoint-corrupt": _checkpoint,
}  # the rest is about the host's memory
