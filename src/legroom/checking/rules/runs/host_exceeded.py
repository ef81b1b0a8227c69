"""LR032: a run that does not fit into RAM for other reasons than its buffer."""

from __future__ import annotations

from collections.abc import Iterator

from legroom.backends.base import backend_of
from legroom.checking.rule_helpers import of_ram, per_run, ram_limit
from legroom.model.footprint import HOST_PLACES, Item
from legroom.model.rule import Found, Rule
from legroom.model.subject import Subject, SubjectRun
from legroom.units import format_fine_size as size


def look(subject: Subject, one: SubjectRun) -> Iterator[Found]:
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


RULE = Rule(
    code="LR032",
    name="host-exceeded",
    severity="error",
    what="The predicted host memory is over the RAM, and no buffer is to blame.",
    why="The kernel kills the largest process, or a worker, without a traceback.",
    example="env: {n_envs: 100, workers: subproc}   # on 16 GiB",
    remedy="Light workers, fewer environments, smaller minibatches on the CPU.",
    look=per_run(look),
)
