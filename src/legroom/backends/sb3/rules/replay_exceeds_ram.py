"""LR014: a replay buffer that starts well and dies when it is full, or is refused when it is made."""

from collections.abc import Iterator

from legroom.backends.sb3.checking import lean_way, shares
from legroom.backends.sb3.stored import replay_rows, written_rows
from legroom.checking.rule_helpers import N_ENVS, of_ram, per_run, ram_limit
from legroom.model.footprint import Phase
from legroom.model.rule import Found, Rule
from legroom.model.subject import Key, Subject, SubjectRun
from legroom.model.verdict import refused_array
from legroom.units import format_fine_size as size

BUFFER: Key = ("hyperparams", "buffer_size")


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
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


RULE = Rule(
    code="LR014",
    name="replay-exceeds-ram",
    severity="error",
    what="The replay buffer fits at the start and not when it is full.",
    why="Its arrays are zeros, which Linux backs with memory only once they are written: the run is killed hours in. "
    "An array that alone is over RAM and swap is refused at once, with a MemoryError.",
    example="buffer_size: 1000000   # of 4×84×84 uint8, twice per transition: 52.6 GiB",
    remedy="Lean replay storage, a smaller buffer_size, or optimize_memory_usage where timeouts do not matter.",
    look=per_run(look, needs=(N_ENVS, BUFFER)),
)
