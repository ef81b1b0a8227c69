"""The bill of a brax run: from what the compiler said about it, or by arithmetic where it has not been asked.

Everything lives on one device: a GPU's memory, or the host's where there is none. The training step is one compiled
program: its arguments (weights, optimizer, the states of all environments) are there all the time, its temporaries
(rollout, activations, the physics' intermediate results) are one block for as long as it runs. How large that block is
only the compiler knows; see `brax_calibration` for how it is asked once for all settings.

The CPU's compiler is asked on any machine, and its block is exact for training on a CPU. A GPU's compiler decides for
itself what to fuse and when; it is asked for the very card where the extra `xla-gpu` is installed, and plans that were
asked before are kept and shipped (`card_plans`). Without one a wide band has to be allowed.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from legroom.backends.brax.arithmetic import MOVED, arithmetic_items, context_item, replay_item
from legroom.backends.brax.calibration import Calibration, calibrate, made_elsewhere, sizes_of
from legroom.backends.brax.card_plans import CardPlan
from legroom.backends.brax.compiled import ask_compiler
from legroom.backends.brax.facts import eval_envs_of, is_ppo
from legroom.backends.brax.pieces import EVEN, Sizes, evenness
from legroom.backends.brax.scaling import Scaled, calibration_of_env, known_for, known_of
from legroom.machine.versions import is_installed
from legroom.model.evidence import Evidence, Mode
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.machine import Gpu, Machine
from legroom.model.run import Run, Spaces
from legroom.model.spaces import BoxSpace, DictSpace, Space
from legroom.predicting.constraints import broken_rules
from legroom.predicting.xla_allocator import allocator_items
from legroom.units import MIB

TRAINING = (Phase.COLLECT, Phase.UPDATE)
# Of the temporaries. CPU: XLA's own plan, to which malloc's pages and the threads' stacks come; `bench/brax_memory.py`.
# GPU: from a plan of the CPU's compiler: other fusions and schedules (13 to 72 % more than the plans for cards). From a
# plan for the card itself, or for another card: `bench/xla.py`.
CPU_ERROR, GPU_ERROR = 0.05, 0.5
CARD_ERROR, OTHER_CARD_ERROR = 0.10, 0.25
CARD_ERROR_NBYTES = 2 * MIB  # the gaps between buffers of a small program, and workspaces of matrix products
UNEVEN_ERROR = 0.4  # of a batch that is no multiple of 64 where XLA was asked about such only: up to 36 % too much
SCALED_ERROR = 0.25  # of what was taken from another network or from a step without a knob
HOST_ERROR = 0.05  # of what tracing and compiling take, besides how many cores are free: repeated runs, other sizes
RUNNING_NBYTES, RUNNING_ERROR = 12 * MIB, 10 * MIB  # thread pools and what jax allocates beside the program

# Which terms of a program's temporaries are shown as what; whatever is left is "other".
PHYSICS, ROLLOUT = ("N", "NU", "NV", "NW", "k", "kU"), ("BMU", "BMV", "BMW", "BM")
MINIBATCH = ("BU", "BV", "BW", "B", "U", "V", "W")


def brax_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield the items of a brax run."""
    if evidence.device != "cuda":
        yield from _library_items(run, known_of(run), Place.HOST)
        return
    yield context_item()
    known = known_for(run, card_of(evidence.machine))
    items = list(_library_items(run, known, Place.GPU))
    yield from items
    yield from allocator_items(items, context_item())


def _library_items(run: Run, known: Scaled | None, device: Place) -> Iterator[Item]:
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


def _state_items(run: Run, known: Scaled, device: Place) -> Iterator[Item]:
    calibration = known.calibration
    yield Item("network.weights", known.weights_nbytes, device, known=Known.TRACED, why="policy and value")
    if known.targets_nbytes:
        yield Item("network.targets", known.targets_nbytes, device, known=Known.TRACED, why="target critics")
    yield Item("optimizer.state", known.optimizer_nbytes, device, known=Known.TRACED, why="Adam's two moments")
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


def _compiler_error(known: Scaled, device: Place) -> float:
    """Return how far a program may be from its plan, as a share of its temporaries."""
    if device is not Place.GPU:
        return CPU_ERROR
    return GPU_ERROR if known.plan is None else CARD_ERROR if known.same_card else OTHER_CARD_ERROR


def _temporary_items(run: Run, known: Scaled, device: Place) -> Iterator[Item]:
    """The program's block of temporaries, by what its fullest moment is made of."""
    sizes = sizes_of(run)
    terms = known.temporaries(sizes)
    deviation = known.calibration.deviation() if known.planned is None or known.scaled else 0.0  # else it is XLA's own
    share = max(SCALED_ERROR if known.scaled else _compiler_error(known, device), deviation)
    share = max(share, SCALED_ERROR) if made_elsewhere(known.calibration) else share
    if not known.calibration.has_kind(sizes):
        share = max(share, SCALED_ERROR)  # the other kind of program was compiled
    if is_ppo(run) and known.plan is not None and known.planned is None and _is_uneven(sizes, known.plan):
        share = max(share, UNEVEN_ERROR)
    said = f"as XLA for {'the CPU' if known.plan is None else known.plan.card} plans it"
    if device is Place.GPU and known.plan is None:
        said += "; the GPU's compiler plans differently"

    def item(name: str, nbytes: float, why: str) -> Item:
        error = round(share * nbytes)
        return Item(name, round(nbytes), device, why, TRAINING, known=Known.TRACED, error=error)

    groups = [
        *_stored_groups(run, known, terms),
        (
            "network.activations", sum(terms.get(term, 0.0) for term in MINIBATCH),
            f"one minibatch, {round(sizes.value('BU')):,} samples, and what the backward pass keeps of it, {said}",
        ),
        (
            "envs.temporaries", sum(terms.get(term, 0.0) for term in PHYSICS),
            f"intermediate results of the physics, {sizes.envs:,} environments, {said}",
        ),
    ]  # fmt: skip
    yield from (item(*group) for group in groups)
    other = item("xla.other temporaries", sum(terms.values()) - sum(nbytes for _, nbytes, _ in groups), said)
    yield other if known.plan is None else replace(other, error=max(other.error, CARD_ERROR_NBYTES))


def _is_uneven(sizes: Sizes, plan: CardPlan) -> bool:
    """Return whether XLA may fuse otherwise than in the programs it was asked about; of odd batches it is not known."""
    return bool(sizes.batch % 2) or (evenness(sizes.batch) < EVEN and not plan.knows(sizes))


def _stored_groups(run: Run, known: Scaled, terms: dict[str, float]) -> list[tuple[str, float, str]]:
    """Return the rollout and its copies, or those of SAC's replay buffer, which is itself no temporary."""
    if not is_ppo(run):
        return [("replay.copies", terms.get("M", 0.0), MOVED)]
    steps, each = sizes_of(run).value("BMU"), known.calibration.transition_nbytes
    rollout = sum(terms.get(term, 0.0) for term in ROLLOUT)
    first = min(steps * each, rollout)
    return [
        ("rollout", first, f"{round(steps):,} steps × {each:,} B per step"),
        ("rollout.copies", rollout - first, "put in order, and shuffled for the minibatches"),
    ]


def _evaluation_items(run: Run, known: Scaled, device: Place) -> Iterator[Item]:
    envs, calibration = eval_envs_of(run), known.calibration
    default = "" if run.eval else " (brax's default)"
    yield Item(
        "envs.evaluation states", calibration.eval_state_nbytes, device, count=envs, known=Known.TRACED,
        why=f"{envs:,} environments that evaluate{default}; brax keeps their last states",
    )  # fmt: skip
    temporaries = known.evaluation_nbytes(envs)
    share = _compiler_error(known, device)
    yield Item(
        "envs.evaluation temporaries", temporaries, device, phases=(Phase.CHECKPOINT,), known=Known.TRACED,
        error=round(share * temporaries), why="intermediate results of the physics while it evaluates",
    )  # fmt: skip


def asked_of_compiler(run: Run, mode: Mode, progress: Callable[[str], None]) -> Run:
    """Have the compiler asked about a run where the mode wants it; return the run with its spaces, where known.

    `trace` asks about the very run, `auto` only where nothing is known of its environment yet, since that takes
    minutes; what it said is kept for all settings (`calibration`).

    Raises:
        MissingExtra, BadInput: mode `trace` without jax, or a run that brax refuses.
    """
    ask = mode == "trace"
    if mode == "auto" and calibration_of_env(run) is None:
        refused = any(finding.severity == "error" for finding in broken_rules(run))
        ask = not refused and is_installed("jax") and is_installed("brax")
    if ask:
        calibrate(run, progress=progress)
    return with_brax_spaces(run)


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
