"""LR027: brax SAC without a size of its replay buffer."""

from collections.abc import Iterator

from legroom.backends.base import hyper
from legroom.checking.rule_helpers import of_ram, per_run, ram_limit
from legroom.model.finding import Severity
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
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


RULE = Rule(
    code="LR027",
    name="brax-sac-replay-default",
    severity="warning",
    what="brax SAC without max_replay_size.",
    why="None means num_timesteps, and brax allocates all of it at once, on the device.",
    example="sac: {num_timesteps: 50_000_000}",
    remedy="Set max_replay_size to the number of transitions to keep.",
    look=per_run(look),
)
