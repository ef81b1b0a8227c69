"""What brax refuses, or does unasked, in runs."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.backends.brax.constraints import (
    device_rule,
    divisibility_rule,
    least_mend,
    length_rules,
    nearest_batch,
    nearest_envs,
    nearest_minibatches,
    overflow_rule,
    replay_rule,
)
from legroom.checking.locating import value_fix
from legroom.checking.rule_helpers import N_ENVS, TOTAL, of_ram, ram_limit, run_rule
from legroom.model.footprint import Severity
from legroom.model.rule import Found, Key, Subject, SubjectRun
from legroom.units import format_fine_size as size

MINIBATCHES: Key = ("hyperparams", "num_minibatches")
BATCH: Key = ("hyperparams", "batch_size")


@run_rule("LR002", needs=(N_ENVS, BATCH, MINIBATCHES))
def divisibility(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Brax PPO's assertion about batch size, minibatches and environments, which has no message of its own."""
    run = one.run
    for finding in divisibility_rule(run):
        batch, minibatches, envs = hyper(run, "batch_size"), hyper(run, "num_minibatches"), run.env.n_envs
        unroll = hyper(run, "unroll_length")
        more, larger = nearest_minibatches(batch, minibatches, envs), nearest_batch(batch, minibatches, envs)
        fewer = nearest_envs(batch, minibatches, envs)
        name, new = least_mend(batch, minibatches, envs)
        key, old = (MINIBATCHES, minibatches) if name == "num_minibatches" else (BATCH, batch)
        before = unroll * batch * minibatches
        after = before // old * new
        say = f"{name} {old} -> {new}: {before:,} -> {after:,} env steps per update"
        hint = (
            f"num_minibatches {more} ({batch} × {more} = {batch * more}), or batch_size {larger} "
            f"({larger} × {minibatches} = {larger * minibatches}), or num_envs {fewer} "
            f"(as many env steps per update as now, {before:,})"
        )
        yield Found(
            finding.message, hint, one.line(*key) or one.line(*N_ENVS), fix=value_fix(subject, one, key, str(new), say)
        )


MOST: Key = ("hyperparams", "max_devices_per_host")


@run_rule("LR010", needs=(N_ENVS,))
def uneven_devices(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Environments that cannot be dealt out to the devices."""
    devices = _devices(subject, one)
    if devices is None:
        return
    for finding in device_rule(one.run, devices):
        better = str((finding.fix or {})["env.n_envs"])
        fix = value_fix(subject, one, N_ENVS, better, f"num_envs {one.run.env.n_envs} -> {better}")
        yield Found(finding.message, finding.hint, one.line(*N_ENVS), fix=fix)


def _devices(subject: Subject, one: SubjectRun) -> int | None:
    """Return how many devices brax would use, None where neither file nor machine says it."""
    if not one.knows(*MOST):
        return None
    here = len(subject.machine.gpus) if one.footprint is not None and one.footprint.device == "cuda" else 0
    most = hyper(one.run, "max_devices_per_host")
    if here:
        return min(here, most) if most else here
    return int(most) if most else None


@run_rule("LR027")
def sac_replay_default(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Brax SAC without a size of its replay buffer."""
    run = one.run
    if run.algo.upper() != "SAC" or hyper(run, "max_replay_size") is not None:
        return
    if not one.knows("hyperparams", "max_replay_size") or run.total_timesteps is None:
        return
    message = f"max_replay_size is not given: brax keeps num_timesteps = {run.total_timesteps:,} transitions"
    severity: Severity | None = None
    if one.footprint is not None:
        nbytes = sum(item.total for item in one.footprint.items if item.name == "replay")
        on_gpu = one.footprint.device == "cuda"
        limit = subject.budget.vram if on_gpu else ram_limit(subject)
        message += f", {size(nbytes)} on the {'GPU' if on_gpu else 'host'}, allocated at the start"
        if limit is not None and nbytes > limit:
            there = f"{size(limit)} of GPU memory" if on_gpu else of_ram(subject)
            message, severity = f"{message}, over {there}", "error"
    yield Found(message, "max_replay_size: 1048576 is usual", one.line("total_timesteps") or one.line("algo"), severity)


DEFAULT = 128


@run_rule("LR028", needs=(N_ENVS,))
def default_eval_envs(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Brax's 128 evaluation environments, where nobody asked for them."""
    run = one.run
    if run.eval is not None or hyper(run, "run_evals") is False:
        return
    envs = run.env.n_envs
    message = f"num_eval_envs is not given: brax evaluates on {DEFAULT} environments of its own beside the {envs:,}"
    if one.footprint is not None:
        nbytes = sum(item.total for item in one.footprint.items if item.name == "envs.evaluation states")
        message += f", about {size(nbytes)} of states"
    if envs < DEFAULT:
        yield Found(
            f"{message}: more than it trains on",
            f"num_eval_envs {envs}",
            one.line(*N_ENVS) or one.line("algo"),
            "warning",
        )
        return
    yield Found(message, "", one.line(*N_ENVS) or one.line("algo"))


KEY: Key = ("memory", "xla_preallocate")
SHARE = 0.75  # of the card's whole memory: XLA_PYTHON_CLIENT_MEM_FRACTION's default


@run_rule("LR031")
def xla_preallocation(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """XLA taking three quarters of a GPU that somebody else uses too."""
    run = one.run
    if run.memory.xla_preallocate is False:
        return
    if run.memory.xla_preallocate and run.env.workers != "dummy":
        message = "xla_preallocate with worker processes: each that touches JAX takes 75 % of the GPU for itself"
        yield Found(message, "xla_preallocate: false", one.line(*KEY))
        return
    for gpu in subject.machine.gpus[:1]:
        if gpu.free < SHARE * gpu.total and one.footprint is not None and one.footprint.device == "cuda":
            message = (
                f"XLA preallocates 75 % of the GPU, {size(SHARE * gpu.total)}, and only {size(gpu.free)} of the "
                f"{gpu.name} are free: another process holds the rest"
            )
            yield Found(message, "memory: {xla_preallocate: false}", one.line(*KEY) or one.line("algo"))


@run_rule("LR033", needs=(N_ENVS,))
def too_many_for_int32(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Sizes that jax's 32-bit integers cannot count."""
    for finding in overflow_rule(one.run):
        name = finding.hint.split()[0]
        line = one.line(*N_ENVS) if name == "num_envs" else one.line("hyperparams", name)
        yield Found(finding.message, finding.hint, line or one.line("algo"))


@run_rule("LR034")
def episode_too_short(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Brax episodes too short for an unroll or a repeated action."""
    if not one.knows("hyperparams", "episode_length"):
        return
    for finding in length_rules(one.run):
        line = one.line("hyperparams", finding.hint.split()[0]) or one.line("hyperparams", "episode_length")
        yield Found(finding.message, finding.hint, line or one.line("algo"), finding.severity)


@run_rule("LR035", needs=(N_ENVS,))
def replay_too_small(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A brax replay buffer smaller than what is put into it at once."""
    for finding in replay_rule(one.run):
        if finding.hint.startswith("min_replay_size") and not one.knows(*TOTAL):
            continue
        line = one.line("hyperparams", finding.hint.partition(" ")[0]) or one.line(*N_ENVS)
        yield Found(finding.message, finding.hint, line or one.line("algo"))
