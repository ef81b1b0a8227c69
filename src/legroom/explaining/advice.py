"""Which knobs help against what ran out, cheapest price first, each with a command to copy.

The prices are those of the knobs, as `legroom fit` has them where no probe has measured anything: a failure's text says
nothing about the observations. `legroom fit` finds out how far to turn them, so its command comes first in the
explanation.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from legroom.backends.base import knob_named
from legroom.explaining.causes import Cause
from legroom.model.explanation import Advice, Explanation
from legroom.model.plan import PRICES
from legroom.units import MIB, format_size, typed_size

_GPU_KINDS = ("cuda", "cublas", "jax")
_NOT_OURS = ("simulator", "simulator-buffer", "kv-cache", "assertion")  # no run of legroom's would be started
_LIMITED_KINDS = ("container", "slurm", "ray")  # their capacity is the budget of the host
_SPILL_ABOVE = "4GiB"
_FEW_ENVS = 1


@dataclass(frozen=True)
class _Case:
    """What advice depends on: the explanation so far, what allocated it, and the name of the run for commands."""

    found: Explanation
    cause: str
    run: str

    @property
    def program(self) -> str:
        """Return how the user's own program is started."""
        return f"python {self.run}" if self.run != "RUN" else "python train.py"

    def turn(self, key: str, value: str, say: str) -> Advice:
        """Return the advice to set one key of the run file, at its knob's price; what is no knob costs nothing."""
        knob = knob_named(key)
        price = knob.unprobed_price if knob is not None else "free"
        return Advice(f"{key}={value}", price, say, f"legroom train {self.run} --set {key}={value}")

    def size_of(self, *names: str) -> int | None:
        """Return the size of the array's axis of that name, where there is one."""
        return next((d.sizes[0] for d in self.found.dimensions if d.name in names), None)


def advise(found: Explanation, cause: Cause | None, script: str | None) -> tuple[tuple[Advice, ...], str]:
    """Return the advice, cheapest first, and the one command to start with."""
    case = _Case(found, cause.name if cause else "", shlex.quote(script) if script else "RUN")
    advice = sorted(_BY_KIND.get(found.kind, _host)(case), key=lambda one: PRICES.index(one.price))
    return tuple(advice), _start(case)


def _start(case: _Case) -> str:
    found = case.found
    if found.kind == "checkpoint-corrupt":
        return f"legroom train {case.run} --out DIR --resume"
    if found.kind in _NOT_OURS:
        return advice[0].command if (advice := list(_BY_KIND[found.kind](case))) else ""
    option, room = "", None
    if found.kind in _GPU_KINDS and found.capacity:
        option, room = "--vram", found.capacity - min(found.others or 0, found.capacity)
    elif found.kind in _LIMITED_KINDS:
        option, room = "--ram", found.capacity
    given = f"{option} {typed_size(room)} " if room else ""
    if _loads(found):
        return f"legroom watch -- {case.program}"
    if case.run == "RUN":
        return f"legroom fit RUN {given}".rstrip()
    return f"legroom fit {given}-- {case.program}"  # takes any program; a script may be one that cannot be read


def _host(case: _Case) -> Iterator[Advice]:
    """Advise on RAM: the buffers first, then what the workers take."""
    found, cause = case.found, case.cause
    if _loads(found):
        yield from _loader(case)
        return
    if cause in ("stack", "space", "data"):
        yield from _not_buffers(case)
        return
    said_nothing = cause not in ("rollout", "flatten", "replay", "sample")
    if said_nothing or cause in ("rollout", "flatten"):
        yield case.turn("memory.rollout", "lean", "the rollout in a fraction, bit-equal, no flatten copy")
    if said_nothing or cause in ("replay", "sample"):
        yield case.turn("memory.replay", "lean", "the replay in a fraction, bit-equal, next_obs shared")
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


def _loads(found: Explanation) -> bool:
    """Return whether it is a worker of PyTorch's DataLoader that died, and none of an environment."""
    return found.kind == "worker-died" and "DataLoader" in found.summary


def _loader(case: _Case) -> Iterator[Advice]:
    say = "fewer loader workers: each has its own copy of what the dataset keeps, and batches made ahead"
    yield Advice("num_workers", "slower", say, f"{case.program}  # DataLoader(num_workers=1)")
    say = "fewer batches made ahead (2 for each worker)"
    yield Advice("prefetch_factor", "slower", say, f"{case.program}  # DataLoader(prefetch_factor=1)")
    say = "what the dataset keeps as one array, not as a list of objects: workers copy each object that they count"
    yield Advice("dataset", "free", say, f"legroom watch -- {case.program}")


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
    found = case.found
    if found.others:
        say = f"they hold {format_size(found.others)}: end them or use another GPU"
        yield Advice("other processes", "free", say, "nvidia-smi")
    if _fragmented(found):
        yield case.turn("memory.expandable_segments", "true", "segments can grow: no fragments")
    yield case.turn("memory.micro_batch", "16", "a minibatch in pieces, the same gradient")
    yield case.turn("memory.activation_checkpointing", "true", "recompute activations, do not keep them")
    yield case.turn("hyperparams.batch_size", "32", "a smaller minibatch")
    yield case.turn("memory.bf16", "true", "activations in half the bytes")


def _fragmented(found: Explanation) -> bool:
    """Say whether memory lies reserved and unused that would have been enough, or is much."""
    idle = found.reserved_unallocated or 0
    return 0 < min(found.requested or idle, 256 * MIB) <= idle


def _xla(case: _Case) -> Iterator[Advice]:
    yield case.turn("memory.xla_preallocate", "false", "XLA takes what it needs, not 75 % of the GPU at once")
    yield case.turn("env.n_envs", "512", "fewer environments: their state is most of it")
    yield case.turn("hyperparams.batch_size", "128", "a smaller minibatch")


def _mps(case: _Case) -> Iterator[Advice]:
    yield case.turn("memory.micro_batch", "16", "a minibatch in pieces, the same gradient")
    say = "the same memory, without the GPU's limit"
    yield Advice("device=cpu", "slower", say, f"legroom train {case.run} --device cpu")
    yield case.turn("hyperparams.batch_size", "32", "a smaller minibatch")


def _shm(case: _Case) -> Iterator[Advice]:
    say = "a container gets 64 MiB unless it asks for more"
    yield Advice("docker --shm-size", "free", say, "docker run --shm-size=8g IMAGE")
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


def _simulation(case: _Case) -> Iterator[Advice]:
    """Advise on what lives on the card: environments first; the program's own options turn it."""
    yield Advice("other processes", "free", "end what else is on the GPU, or use another one", "nvidia-smi")
    say = "no window, and no cameras that are not needed"
    yield Advice("headless", "free", say, f"{case.program} --headless")
    say = "fewer environments: their state, contacts and cameras are most of what is on the GPU"
    yield Advice("num_envs", "changes-learning", say, f"{case.program} --num_envs 512")
    say = "a shorter rollout: it is on the GPU too"
    yield Advice(
        "rollout length", "changes-learning", say, f"{case.program}  # num_steps_per_env, horizon_length, unroll_length"
    )


def _simulator_buffer(case: _Case) -> Iterator[Advice]:
    setting = (case.found.notes[0].partition(" ")[0] if case.found.notes else "") or "the buffer's size"
    yield Advice(
        setting,
        "free",
        "a larger buffer: the scene loses contacts without",
        f"{case.program}  # with a larger {setting}",
    )
    yield Advice("num_envs", "changes-learning", "fewer environments: fewer contacts", f"{case.program} --num_envs 512")


def _kv_cache(case: _Case) -> Iterator[Advice]:
    yield Advice("other processes", "free", "end what else is on the GPU", "nvidia-smi")
    serve = "vllm serve MODEL"
    share = f"{serve} --gpu-memory-utilization 0.95"
    yield Advice("gpu_memory_utilization", "free", "a larger share of the GPU", share)
    say = "a shorter context needs less cache"
    yield Advice("max_model_len", "changes-learning", say, f"{serve} --max-model-len 4096")


def _assertion(case: _Case) -> Iterator[Advice]:
    say = "batch_size × num_minibatches a multiple of num_envs, num_envs of the devices"
    command = f"legroom check {case.run}" if case.run != "RUN" else "legroom check train.py"
    yield Advice("num_minibatches", "changes-learning", say, command)


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
    "simulator": _simulation,
    "simulator-buffer": _simulator_buffer,
    "kv-cache": _kv_cache,
    "assertion": _assertion,
}  # the rest is about the host's memory
