"""Memory of SB3's runs: buffers that do not fit or are larger than need be, workers, machines with room to spare."""

from __future__ import annotations

import math
from collections.abc import Iterator

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.checking import lean_way, shares
from legroom.backends.sb3.knobs import ways_to_grow
from legroom.backends.sb3.stored import (
    FLOAT32,
    keeps_float32,
    may_store_leanly,
    observation_leaves,
    replay_rows,
    rollout_rows,
    stores_leanly,
    written_rows,
)
from legroom.checking.rule_helpers import N_ENVS, ROLLOUT, of_ram, ram_limit, run_rule
from legroom.fitting.tiers import largest
from legroom.model.facts import n_workers, spaces_of
from legroom.model.footprint import Phase, Place
from legroom.model.rule import Found, Key, Subject, SubjectRun
from legroom.model.run import Run
from legroom.model.spaces import DTYPES, BoxSpace, leaves
from legroom.model.verdict import fits, refused_array
from legroom.predicting.predict import add_up
from legroom.units import format_fine_size as size

# Words in the names of an environment's arguments that say how much it does in a step or has to draw from. An argument
# of another name may change the observation, and so the networks.
AMOUNTS_OF_WORK = {
    *("sims", "simulations", "ignitions", "scenarios", "substeps", "frameskip", "lookahead"),
    *("rasters", "landscapes", "levels", "tracks", "maps"),
}


@run_rule("LR009")
def full_gpu(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Keys that people turn when the GPU is full, and that live in host memory."""
    vram = subject.budget.vram
    gpu = one.footprint.gpu if one.footprint else None
    if vram is None or gpu is None or gpu.high <= subject.budget.usable(vram):
        return
    keys: list[tuple[Key, str]] = [
        (("hyperparams", "buffer_size"), "the replay buffer is in host memory"),
        (("hyperparams", "n_steps"), "the rollout is in host memory"),
    ]
    for name in one.run.env.kwargs:
        if set(name.lower().split("_")) & AMOUNTS_OF_WORK:
            keys.append((("env", "kwargs", name), "an environment works on the host, and this is how much it works"))
    for key, what in keys:
        if one.gives(*key) and (key[-1] != "n_steps" or algorithm_of(one.run).family == "on-policy"):
            message = f"{key[-1]} does not touch GPU memory ({size(gpu.nbytes)} predicted): {what}"
            yield Found(message, "a smaller batch_size or network, or micro-batches, would", one.line(*key), "info")


PACKAGE = "stable-baselines3"
WORTH_A_WORD = 64 << 20  # of difference; a few kilobytes of flags are nobody's problem


@run_rule("LR011", needs=ROLLOUT)
def float32_rollout(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """SB3 before 2.7.1, which keeps every rollout in float32."""
    run = one.run
    rows = rollout_rows(run)
    if rows is None or stores_leanly(run) or not keeps_float32(subject.machine.versions):
        return
    leaves = observation_leaves(run).values()
    slots = rows * run.env.n_envs
    own = slots * sum(n * DTYPES[dtype] for n, dtype in leaves)
    wide = slots * sum(n * FLOAT32 for n, _ in leaves)
    if wide - own < WORTH_A_WORD:
        return
    dtypes = ", ".join(sorted({dtype for _, dtype in leaves}))
    factor = wide / own
    twice = f", {size(2 * wide)} at the flatten copy" if run.env.n_envs > 1 else ""
    message = (
        f"installed is {PACKAGE} {subject.machine.versions[PACKAGE]}, which keeps {dtypes} observations as float32: "
        f"{size(own)} → {size(wide)} stored ({factor:.{0 if math.isclose(factor, round(factor)) else 1}f}×){twice}"
    )
    yield Found(
        message,
        "stable-baselines3>=2.7.1 keeps the space's dtype",
        one.line("hyperparams", "n_steps") or one.line("algo"),
    )


@run_rule("LR012", needs=ROLLOUT)
def flatten_copy_exceeds_ram(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A rollout that fits, until SB3 copies it."""
    limit = ram_limit(subject)
    if limit is None or one.footprint is None:
        return
    parts = shares(one.footprint, "rollout.")
    stored = parts.buffer + parts.rest
    if not parts.flatten or stored > limit or stored + parts.flatten <= limit:
        return
    message = (
        f"the rollout fits as it is stored ({size(parts.buffer)}, {size(stored)} with everything else) but not when "
        f"SB3 flattens it: RolloutBuffer.get copies the observations, {size(stored + parts.flatten)} at the peak, over "
        f"{of_ram(subject)}"
    )
    hint = f"{lean_way(subject, one, 'rollout')} needs no such copy, nor does a single environment"
    yield Found(message, hint, one.line("hyperparams", "n_steps") or one.line("algo"))


@run_rule("LR013", needs=ROLLOUT)
def rollout_exceeds_ram(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A rollout that does not fit into RAM."""
    limit = ram_limit(subject)
    if limit is None or one.footprint is None:
        return
    parts = shares(one.footprint, "rollout.")
    if not parts.buffer or parts.buffer + parts.rest <= limit or parts.rest > limit:
        return
    steps, envs = hyper(one.run, "n_steps"), one.run.env.n_envs
    peak = f" ({size(parts.buffer + parts.flatten)} when flattened)" if parts.flatten else ""
    message = f"{steps:,} steps × {envs:,} envs are {size(parts.buffer)} of rollout{peak}, over {of_ram(subject)}"
    most = int(steps * (limit - parts.rest) / (parts.buffer + parts.flatten))
    hint = lean_way(subject, one, "rollout")
    if most:
        hint += f" first; plain arrays have room for n_steps {most:,}"
    yield Found(message, hint, one.line("hyperparams", "n_steps") or one.line("algo"))


BUFFER: Key = ("hyperparams", "buffer_size")


@run_rule("LR014", needs=(N_ENVS, BUFFER))
def replay_exceeds_ram(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A replay buffer that starts well and dies when it is full, or is refused when it is made."""
    limit, rows = ram_limit(subject), replay_rows(one.run)
    if limit is None or one.footprint is None or rows is None:
        return
    parts = shares(one.footprint, "replay.")
    refused = refused_array(one.footprint, subject.budget)
    slots = written_rows(one.run, rows) * one.run.env.n_envs
    if parts.buffer + parts.rest <= limit and refused:
        hint = f"{lean_way(subject, one, 'replay')}, or buffer_size {slots:,}, which is all that the run writes"
        yield Found(f"{refused}, over {of_ram(subject)}", hint, one.line(*BUFFER) or one.line("algo"))
        return
    if parts.buffer + parts.rest <= limit or parts.rest > limit or one.footprint.at(Phase.START) > limit:
        return
    share = (limit - parts.rest) / parts.buffer  # pages are resident once written: it fills evenly
    steps = int(slots * share)
    of_run = f", {steps / one.run.total_timesteps:.0%} of the run" if one.run.total_timesteps else ""
    dies = f"it starts with next to nothing and dies after about {steps:,} env steps"
    dies += f" ({share:.0%} of the {slots:,} it would hold{of_run})"
    message = (
        f"the replay buffer takes {size(parts.buffer)} when full, {size(parts.buffer + parts.rest)} with the rest, "
        f"over {of_ram(subject)}; {refused or dies}"
    )
    hint = f"{lean_way(subject, one, 'replay')}, or buffer_size {steps:,}"
    yield Found(message, hint, one.line(*BUFFER) or one.line("algo"))


LITTLE = 0.4  # of the RAM
CORES = 4  # a machine with fewer has little to share out
FEW = 4  # environments, where the number of cores is not known
MOST = 16


@run_rule("LR024", needs=ROLLOUT)
def under_used_machine(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A machine that could run many more environments."""
    limit, run = ram_limit(subject), one.run
    if subject.kind == "zoo":  # tuned for n_envs, whatever machine it runs on
        return
    if limit is None or one.footprint is None or algorithm_of(run).family != "on-policy":
        return
    peak, envs = one.footprint.host.high, run.env.n_envs
    elsewhere = subject.budget.ram_origin == "given"  # another machine, of which only the memory is known
    cores = subject.machine.cores
    few = envs <= FEW if elsewhere else cores >= CORES and 2 * envs <= cores
    if peak > LITTLE * limit or not few or not one.gives("env", "n_envs"):
        return
    most = _most_envs(subject, one)
    wanted = min(most, MOST if elsewhere else cores)
    if wanted < 2 * envs:
        return
    steps = int(hyper(run, "n_steps"))
    beside = "" if elsewhere else f" and {cores} cores"
    fewer = steps * envs // wanted
    same = f", or n_steps {fewer:,} for as much data per update as now" if fewer else ""
    processes = " in worker processes" if run.env.workers == "dummy" else ""
    message = (
        f"{'1 env needs' if envs == 1 else f'{envs:,} envs need'} {size(one.footprint.host.nbytes)}, "
        f"{one.footprint.host.nbytes / limit:.0%} of {of_ram(subject)}{beside}: {most:,} would fit"
    )
    hint = f"n_envs {wanted:,} with n_steps {steps:,}{same}; they collect side by side{processes}"
    yield Found(message, hint, one.line("env", "n_envs"))


def _most_envs(subject: Subject, one: SubjectRun) -> int:
    """Return how many environments fit, as `legroom fit --grow` finds it."""
    evidence = one.evidence
    assert evidence is not None

    def fitting(run: Run) -> Run | None:
        return run if fits(add_up(run, evidence), subject.budget) is True else None

    best = largest(ways_to_grow(one.run)[0], fitting)
    return one.run.env.n_envs if best is None else best.env.n_envs


@run_rule("LR025", needs=(N_ENVS, ("env", "frame_stack")))
def stacked_frames_stored(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Stacked frames, each of which is stored as often as it is shown."""
    stack, run = one.run.env.frame_stack or 1, one.run
    if stack < 2 or one.footprint is None or stores_leanly(run):
        return
    on_policy = algorithm_of(run).family == "on-policy"
    kind = "rollout" if on_policy else "replay"
    observations = sum(
        item.total for item in one.footprint.items if item.name.startswith((f"{kind}.observations", f"{kind}.next_obs"))
    )
    if observations < WORTH_A_WORD:
        return
    # a replay buffer keeps the next observation too, unless it is told to find it one row later
    times = stack if on_policy or hyper(run, "optimize_memory_usage") is True else 2 * stack
    message = (
        f"every frame is stored {times} times: {stack} frames per observation"
        f"{'' if times == stack else ', and each observation as the next one too'}; {size(observations)}, of which "
        f"{size(observations / times)} are different frames"
    )
    lean = f"{lean_way(subject, one, kind)} stores each frame once" if may_store_leanly(run) else ""
    yield Found(message, lean, one.line("env", "frame_stack") or one.line("algo"))


WORTH_NARROWING = 16 << 20


@run_rule("LR026", needs=(N_ENVS,))
def wide_observations(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Observations in more bytes than their values need."""
    run = one.run
    if stores_leanly(run):
        return
    rows = rollout_rows(run)
    copies = 1
    if rows is None:
        ring = replay_rows(run)
        if ring is None:
            return
        rows, copies = written_rows(run, ring), 1 if hyper(run, "optimize_memory_usage") else 2
    slots = rows * run.env.n_envs * copies
    stored = observation_leaves(run)
    observation, _ = spaces_of(run)
    for key, leaf in leaves(observation).items():
        narrow = _narrow(leaf)
        elements, dtype = stored[key]
        if narrow is None or (algorithm_of(run).family == "on-policy" and keeps_float32(subject.machine.versions)):
            continue
        now, then = slots * elements * DTYPES[dtype], slots * elements * DTYPES[narrow]
        if now - then < WORTH_NARROWING:
            continue
        which = f"observation {key!r}" if key else "observations"
        why = "the networks compute in float32" if narrow == "float32" else "they are whole numbers from 0 to 255"
        message = f"{leaf.dtype} {which} take {size(now)} in the buffer, {size(then)} as {narrow}; {why}"
        hint = f"declare and return them as {narrow}; a wrapper can"
        yield Found(
            message, hint, one.line("env", "spaces", "observation") or one.line("env", "id") or one.line("algo")
        )


def _narrow(leaf: object) -> str | None:
    """Return the dtype that would do, None where it is not certain that one would."""
    if not isinstance(leaf, BoxSpace):
        return None
    if leaf.dtype == "float32" and (leaf.low, leaf.high) == (0, 255) and len(leaf.shape) >= 2:
        return "uint8"
    return "float32" if leaf.dtype == "float64" else None


@run_rule("LR029", needs=(N_ENVS,))
def heavy_workers(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """SB3's worker processes, each of which imports PyTorch."""
    run = one.run
    if subject.kind != "run" or run.env.workers != "subproc" or one.footprint is None:
        return
    assert one.evidence is not None
    light = add_up(run.replace(env=run.env.model_copy(update={"workers": "light"})), one.evidence)
    now, then = (sum(i.total for i in bill.items if i.place is Place.WORKER) for bill in (one.footprint, light))
    if now <= then:
        return
    message = f"{n_workers(run):,} worker processes import PyTorch, which they do not use: {size(now)} together"
    hint = f"workers: light takes {size(then)}, steps the same environments and gives the same results"
    yield Found(message, hint, one.line("env", "workers"))
