"""General rules about runs: what any run file, zoo entry, module of constants or script says about sizes and counts."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import algorithm_of, backend_of
from legroom.checking.locating import line_removal, value_fix
from legroom.checking.rule_helpers import (
    BATCH_SIZE,
    TOTAL,
    callbacks_are_its_own,
    counts_known,
    of_ram,
    of_vram,
    ram_limit,
    run_rule,
    subject_rule,
)
from legroom.model.footprint import HOST_PLACES, Item
from legroom.model.rule import Found, Key, Subject, SubjectRun
from legroom.model.verdict import gpu_fits
from legroom.predicting.constraints import keys_without_effect
from legroom.units import format_fine_size as size


@subject_rule("run", "LR001")
def invalid_value(subject: Subject) -> Iterator[Found]:
    """Yield what the readers refused; they have written it down instead of stopping."""
    for problem in subject.problems:
        yield Found(problem.message, problem.hint, problem.line)
    for one in subject.runs:
        for problem in one.problems:
            yield Found(problem.message, problem.hint, problem.line, run=one.run.name)


REPLAY: Key = ("checkpoint", "replay_buffer")


@run_rule("LR009")
def no_effect(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Keys that nothing reads in such a run."""
    for key, message, hint in keys_without_effect(one.run):
        if not one.gives(*key) or (key == REPLAY and not callbacks_are_its_own(subject)):
            continue  # a base run's, a default, or another model's
        if key == REPLAY and subject.kind in ("constants", "script"):
            message = message.replace("saving the replay buffer", "save_replay_buffer")
            fix = value_fix(subject, one, key, "False", "save_replay_buffer -> False, which is what happens now")
        else:
            fix = line_removal(subject, one.line(*key), f"remove {key[-1]}, which nothing reads")
        refused = key[0] == "hyperparams" and subject.kind in ("script", "zoo")
        if refused:
            message = f"{algorithm_of(one.run).name} takes no {key[-1]}: its constructor raises a TypeError"
        yield Found(message, hint, one.line(*key), "error" if refused else None, fix)


@run_rule("LR015")
def vram_exceeded(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A run that needs more GPU memory than there is."""
    vram, footprint = subject.budget.vram, one.footprint
    gpu = footprint.gpu if footprint else None
    if footprint is None or gpu is None or vram is None:
        return
    if gpu_fits(footprint, subject.budget) is None:
        message = f"unknown whether it fits {of_vram(subject)}: {'; '.join(footprint.unknown)}"
        yield Found(message, "legroom predict --trust traces it", one.line("policy") or one.line("algo"), "warning")
        return
    if gpu.high <= subject.budget.usable(vram):
        return
    certain = gpu.low > subject.budget.usable(vram)
    message = (
        f"predicted GPU peak {size(gpu.nbytes)} (between {size(gpu.low)} and {size(gpu.high)}) "
        f"{'is' if certain else 'may be'} over {of_vram(subject)}"
    )
    hint, unread = backend_of(one.run).checker.advice_for_full_gpu, backend_of(one.run).predictor.unread_memory(one.run)
    if unread is not None and "micro_batch" not in unread and not one.run.memory.micro_batch:
        hint = "memory: {micro_batch: ...} gives the same gradient in pieces; legroom fit finds the size"
    yield Found(message, hint, one.line(*BATCH_SIZE) or one.line("algo"), "error" if certain else "warning")


@run_rule("LR020", needs=(TOTAL,))
def timesteps_not_multiple(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A number of steps that is no whole number of iterations."""
    found, total = counts_known(one), one.run.total_timesteps
    if found is None or total is None or found.steps is None or found.iterations is None or found.steps == total:
        return
    message = (
        f"{total:,} steps / {found.samples:,} per iteration = {total / found.samples:,.2f}: "
        f"{backend_of(one.run).title} runs {found.iterations:,} iterations, {found.steps:,} steps"
    )
    yield Found(
        message,
        "use a multiple of the iteration to stop exactly at total_timesteps",
        one.line(*TOTAL) or one.line("algo"),
    )


KEY: Key = ("env", "start_method")


@run_rule("LR030")
def fork_workers(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """Workers started by fork."""
    if subject.kind == "script" or one.run.env.start_method != "fork" or one.run.env.workers == "dummy":
        return  # of scripts, the calls themselves are looked at
    message = "workers started by fork hang the trainer forever when one of them is killed, and leave orphans"
    fix = value_fix(subject, one, KEY, "forkserver", "start_method fork -> forkserver")
    yield Found(message, "start_method: forkserver, SB3's default, or workers: light", one.line(*KEY), fix=fix)


@run_rule("LR032")
def host_exceeded(subject: Subject, one: SubjectRun) -> Iterator[Found]:
    """A run that does not fit into RAM for other reasons than its buffer."""
    limit = ram_limit(subject)
    if limit is None or one.footprint is None or one.footprint.host.high <= limit:
        return
    host = one.footprint.host
    live = [item for item in one.footprint.items if item.place in HOST_PLACES and host.phase in item.phases]
    buffers = sum(item.total for item in live if item.name.startswith(("rollout.", "replay.")))
    if buffers > host.nbytes - limit and host.nbytes > limit:
        return  # the rules about buffers say it
    largest = max(live, key=lambda item: item.total)
    certain = host.low > limit
    message = (
        f"predicted host peak {size(host.nbytes)} (up to {size(host.high)}) {'is' if certain else 'may be'} over "
        f"{of_ram(subject)}; the largest item is {largest.name}, {size(largest.total)}"
    )
    yield Found(
        message, _hint(one, largest), one.line("env", "n_envs") or one.line("algo"), "error" if certain else "warning"
    )


def _hint(one: SubjectRun, largest: Item) -> str:
    if backend_of(one.run).spreads:
        return "fewer environments, or a smaller batch"
    return "workers: light" if "worker" in largest.place.value else "legroom fit finds what fits"
