"""The bill of a brax run: from what the compilers said about it, or by arithmetic where they have not been asked.

Everything lives on one device: a GPU's memory, or the host's where there is none. The training step is one compiled
program: its arguments (weights, optimizer, the states of all environments) are there all the time, its temporaries
(rollout, activations, the physics' intermediate results) are one block for as long as it runs. How large that block is
only the compiler knows; `plans.py` says how it is asked about two sizes and answers for all.

The CPU's compiler is asked on any machine, and its block is exact for training on a CPU. A GPU's compiler decides for
itself what to fuse and when; it is asked for the very card where the extra `xla-gpu` is installed, and plans that were
asked before are kept and shipped. Without one a wide band has to be allowed.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from legroom.backends.brax.arithmetic import MOVED, arithmetic_items, context_item, replay_item
from legroom.backends.brax.calibration import Calibration, KnownRun, known_of
from legroom.backends.brax.facts import eval_envs_of, is_ppo
from legroom.backends.brax.plans import GAP_NBYTES, sizes_of
from legroom.installing import install_command
from legroom.machine.versions import is_installed
from legroom.model.evidence import Evidence
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.machine import Gpu, Machine
from legroom.model.run import Run
from legroom.predicting.gpu import XLA_SHARE, allocator_items
from legroom.units import MIB, format_size
from legroom.xla.target import EXTRA, PLUGIN, plugin_missing

TRAINING = (Phase.COLLECT, Phase.UPDATE)
# Of the temporaries. CPU: XLA's plan, and malloc's pages and threads' stacks (`bench.brax_memory` of d63e92e7).
# GPU: from a plan of the CPU's compiler: other fusions and schedules (13 to 72 % more than the plans for cards). From a
# plan for the card itself, or for another card: `bench/xla.py`.
CPU_ERROR, GPU_ERROR = 0.05, 0.5
CARD_ERROR, OTHER_CARD_ERROR = 0.10, 0.25
ROUGH_ERROR = 0.15  # of a plan that two sizes tell, for sizes of 10 MB or more: up to 10 % too little (the robot)
UNEVEN_ERROR = 0.4  # of a batch that is no multiple of 64: XLA was asked about such; up to 36 % too much
# of minibatches far larger than any that XLA was asked about: it plans 7,560 B per sample of 40,960 on an RTX 3060,
# where 6,650 B are solved from up to 10,240
FAR_SAMPLES, FAR_ERROR = 4 * 10_240, 0.2
SCALED_ERROR = 0.25  # of what was taken from another network or from a step without a knob
HOST_ERROR = 0.05  # of what tracing and compiling take, besides how many cores are free: repeated runs, other sizes
RUNNING_NBYTES, RUNNING_ERROR = 12 * MIB, 10 * MIB  # thread pools and what jax allocates beside the program


def brax_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the items of a brax run."""
    if evidence.device != "cuda":
        yield from _library_items(run, known_of(run), Place.HOST)
        return
    yield context_item()
    known = known_of(run, "cuda", card_of(evidence.machine))
    items = list(_library_items(run, known, Place.GPU))
    yield from items
    yield from allocator_items(items, context_item())


def _library_items(run: Run, known: KnownRun | None, device: Place) -> Iterator[Item]:
    if known is None:
        yield from arithmetic_items(run, device)
        return
    yield from _host_items(known.calibration, device)
    yield from _state_items(run, known, device)
    yield from _temporary_items(run, known, device)
    yield from _evaluation_items(run, known, device)


def card_of(machine: Machine) -> Gpu | None:
    """Return the card that a run would train on, None where only its memory is known."""
    return machine.gpus[0] if machine.gpus else None


def _host_items(known: Calibration, device: Place) -> Iterator[Item]:
    """What the process takes before and beside all that: the same wherever the run trains."""
    growth = known.all_compiled_nbytes - known.imported_nbytes
    error = round(math.hypot(known.host_spread_nbytes, HOST_ERROR * growth))  # independent of each other
    yield Item(
        "runtime.import, trace, compile", known.all_compiled_nbytes, Place.HOST, phases=(Phase.START,),
        known=Known.MEASURED, error=error,
        why=f"Python, jax and brax {known.imported_nbytes / 1e6:,.0f} MB, tracing and compiling the training step and "
        f"the evaluation ({known.compile_s:,.0f} s) the rest",
    )  # fmt: skip
    yield Item(
        "runtime.compiled", known.retained_nbytes, Place.HOST, phases=(*TRAINING, Phase.CHECKPOINT),
        known=Known.MEASURED, error=error, why="what stays of it while the run trains",
    )  # fmt: skip
    if device is Place.HOST:
        yield Item(
            "runtime.threads", RUNNING_NBYTES, Place.HOST, phases=(*TRAINING, Phase.CHECKPOINT), known=Known.DEFAULT,
            error=RUNNING_ERROR, why="XLA's thread pools and buffers of its matrix products",
        )  # fmt: skip


def _state_items(run: Run, known: KnownRun, device: Place) -> Iterator[Item]:
    calibration = known.calibration
    yield Item("network.weights", calibration.weights_nbytes, device, known=Known.TRACED, why="policy and value")
    if calibration.targets_nbytes:
        yield Item("network.targets", calibration.targets_nbytes, device, known=Known.TRACED, why="target critics")
    yield Item("optimizer.state", calibration.optimizer_nbytes, device, known=Known.TRACED, why="Adam's two moments")
    yield Item(
        "network.normaliser", calibration.other_nbytes, device, known=Known.TRACED, why="running statistics, counters"
    )
    yield Item(
        "envs.states", calibration.env_state_nbytes, device, count=run.env.n_envs, known=Known.TRACED,
        why=f"{run.env.n_envs:,} environments × {calibration.env_state_nbytes:,} B carried from step to step",
    )  # fmt: skip
    yield Item("envs.shared state", calibration.env_fixed_nbytes, device, known=Known.TRACED, why="one for all of them")
    if not is_ppo(run):
        yield replay_item(run, device)


def _compiler_error(known: KnownRun, device: Place) -> float:
    """Return how far a program may be from its plan, as a share of its temporaries."""
    if device is not Place.GPU:
        return CPU_ERROR
    return GPU_ERROR if not known.plan.card else CARD_ERROR if known.same_card else OTHER_CARD_ERROR


def _temporary_items(run: Run, known: KnownRun, device: Place) -> Iterator[Item]:
    """The program's block of temporaries, by what its fullest moment is made of."""
    sizes = sizes_of(run)
    terms = known.temporaries(sizes)
    share = SCALED_ERROR if known.scaled else _compiler_error(known, device)
    share = max(share, SCALED_ERROR) if known.calibration.made_elsewhere else share
    if known.planned is None:  # else it is XLA's own
        share = max(share, UNEVEN_ERROR if known.plan.card and not sizes.is_even else 0.0)
        share = max(share, ROUGH_ERROR if known.plan.card and known.plan.is_rough else 0.0)
        share = max(share, FAR_ERROR if is_ppo(run) and sizes.value("BU") > FAR_SAMPLES else 0.0)
    said = f"as XLA for {known.plan.card or 'the CPU'} plans it"
    if device is Place.GPU and not known.plan.card:
        said += "; the GPU's compiler plans differently"

    def item(name: str, nbytes: float, why: str) -> Item:
        error = round(share * nbytes)
        return Item(name, round(nbytes), device, why, TRAINING, known=Known.TRACED, error=error)

    groups = [
        *_stored_groups(run, known, terms),
        (
            "network.activations", sum(terms.get(term, 0.0) for term in ("BU", "W", "B")),
            f"one minibatch, {round(sizes.value('BU')):,} samples, and what the backward pass keeps of it, {said}",
        ),
        (
            "envs.temporaries", terms.get("N", 0.0),
            f"intermediate results of the physics, {sizes.envs:,} environments, {said}",
        ),
    ]  # fmt: skip
    yield from (item(*group) for group in groups)
    other = item("xla.other temporaries", sum(terms.values()) - sum(nbytes for _, nbytes, _ in groups), said)
    yield replace(other, error=max(other.error, GAP_NBYTES)) if known.plan.card else other


def _stored_groups(run: Run, known: KnownRun, terms: dict[str, float]) -> list[tuple[str, float, str]]:
    """Return the rollout and its copies, or those of SAC's replay buffer, which is itself no temporary."""
    if not is_ppo(run):
        return [("replay.copies", terms.get("M", 0.0), MOVED)]
    steps, each = sizes_of(run).value("BMU"), known.calibration.transition_nbytes
    rollout = terms.get("BMU", 0.0) + terms.get("S", 0.0)
    first = min(steps * each, rollout)
    return [
        ("rollout", first, f"{round(steps):,} steps × {each:,} B per step"),
        ("rollout.copies", rollout - first, "put in order, and shuffled for the minibatches"),
    ]


def _evaluation_items(run: Run, known: KnownRun, device: Place) -> Iterator[Item]:
    envs, calibration = eval_envs_of(run), known.calibration
    default = "" if run.eval else " (brax's default)"
    yield Item(
        "envs.evaluation states", calibration.eval_state_nbytes, device, count=envs, known=Known.TRACED,
        why=f"{envs:,} environments that evaluate{default}; brax keeps their last states",
    )  # fmt: skip
    temporaries = round((known.plan.evaluation_nbytes or 0.0) * envs)
    share = _compiler_error(known, device)
    yield Item(
        "envs.evaluation temporaries", temporaries, device, phases=(Phase.CHECKPOINT,), known=Known.TRACED,
        error=round(share * temporaries), why="intermediate results of the physics while it evaluates",
    )  # fmt: skip


def brax_notes(run: Run, device: str, machine: Machine) -> tuple[str, ...]:
    """Return what the reader of the bill should know about where its figures come from, and what a card will show."""
    gpu = card_of(machine) if device == "cuda" else None
    known = known_of(run, "cuda" if device == "cuda" else "cpu", gpu)
    if known is None:
        said = (
            "predicted by arithmetic: the size of an environment is a default; --mode trace asks the compiler, once "
            "for all settings of this environment"
        )
        return (said, *_preallocated(run, gpu))
    of = "of the same environment with other networks or knobs" if known.scaled else "of this training step"
    if others := known.calibration.made_elsewhere:
        of += f", compiled with {', '.join(others)} (other versions here; --mode trace compiles it here)"
    if device != "cuda":
        return (f"temporaries are as XLA's CPU compiler plans those {of}",)
    return (_compiler_note(known, of), *_preallocated(run, gpu))


def _compiler_note(known: KnownRun, of: str) -> str:
    if not known.plan.card:
        said = f"temporaries are as XLA's CPU compiler plans those {of}; the GPU's compiler plans differently"
        return f"{said}: ±{GPU_ERROR:.0%} of the temporaries. {_how_to_ask()}"
    said = f"temporaries are as XLA's compiler for a {known.plan.card} plans those {of}"
    if known.same_card:
        return said
    return f"{said}: ±{OTHER_CARD_ERROR:.0%} of the temporaries on another GPU. {_how_to_ask()}"


def _how_to_ask() -> str:
    missing = plugin_missing()
    if not missing:
        return "--mode trace with --gpu asks XLA for that GPU"
    why = f" ({missing})" if is_installed(PLUGIN) else ""
    return f"For this GPU's exact plan{why}, install it: {install_command(EXTRA, PLUGIN)}"


def _preallocated(run: Run, gpu: Gpu | None) -> tuple[str, ...]:
    """Return what nvidia-smi will show, which is not what the run needs."""
    if gpu is None or run.memory.xla_preallocate is False:
        return ()
    taken = format_size(round(XLA_SHARE * gpu.free))
    return (
        f"nvidia-smi will show about {taken} plus the CUDA context, whatever the run needs: XLA reserves "
        f"{XLA_SHARE:.0%} of the GPU when it starts (memory.xla_preallocate: false turns that off)",
    )
