"""One training: as it is asked for and, once prepared, as it will be done; and how a resumed run differs from it.

`train` takes it and tells its child the part of it that is a `TrainTask`; the child reports into a `ChildRecord`; the
`Outcome` is what comes of it.

A resume compares what it is asked for with what its folder was begun with, both before any knob was turned. What
changes learning is refused unless the user allows it; then only what differs is taken over. What keeps learning the
same (memory, workers) stays as the folder has it, and is said.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from legroom.backends.base import backend_of, no_cluster, require_packages
from legroom.cluster.reaching import refuse_unreachable
from legroom.errors import BadInput
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.training import RETRIES
from legroom.training.run_folder import Predicted, RunFolder

Name = tuple[str, ...]
Differences = dict[Name, tuple[Any, Any]]
ABSENT = object()
PICTURES_EVERY = 10  # iterations
# Taken from what is asked for now, or only words.
FREE = ("total_timesteps", "checkpoint", "seed", "name", "description", "recommended_for", "source", "legroom")
SAME_LEARNING: tuple[Name, ...] = (
    ("memory",), ("eval",), ("device",), ("env", "workers"), ("env", "envs_per_worker"), ("env", "start_method"),
    ("env", "spaces"), ("env", "episode_steps"), ("env", "nbytes"), ("env", "timeout"), ("env", "on_timeout"),
)  # fmt: skip


def differences(then: Run, now: Run) -> Differences:
    """Return the settings in which two runs differ, with both values; `ABSENT` where one does not say."""
    before, after = (dict(_flat(run.model_dump())) for run in (then, now))
    return {
        name: (before.get(name, ABSENT), after.get(name, ABSENT))
        for name in [*before, *(name for name in after if name not in before)]
        if name[0] not in FREE and before.get(name, ABSENT) != after.get(name, ABSENT)
    }


def changing_learning(found: Differences) -> Differences:
    return {name: values for name, values in found.items() if not _within(name, SAME_LEARNING)}


def with_changes(run: Run, changes: Differences) -> Run:
    """Return the run with the later values.

    Raises:
        BadInput: they are no run together.
    """
    data = run.model_dump()
    for name, (_, value) in changes.items():
        *way, last = name
        inner = data
        for key in way:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        if value is ABSENT:
            inner.pop(last, None)
        else:
            inner[last] = value
    try:
        return Run.model_validate(data)
    except ValueError as error:  # of pydantic
        raise BadInput(f"the changes cannot be applied: {error}", path=run.source) from None


def refuse(found: Differences, folder: Path) -> None:
    """Raise where something changes learning.

    Raises:
        BadInput: says what, with both values.
    """
    for name, values in found.items():
        which = f"{_said(name)} " if len(name) > 1 else ""
        raise BadInput(
            f"was started with another {name[0]}: {which}{shown(values[0])}, not {shown(values[1])}"
            + (f", and {len(found) - 1} more" if len(found) > 1 else ""),
            path=folder,
            hint="resume with the same run, accept the change with --allow-changes, or use another --out",
        )


def listed(found: Differences) -> str:
    return ", ".join(f"{_said(name)} {shown(then)} -> {shown(now)}" for name, (then, now) in found.items())


def shown(value: Any) -> str:
    text = "not set" if value is ABSENT or value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _said(name: Name) -> str:
    return ".".join(name)


def _within(name: Name, parts: Sequence[Name]) -> bool:
    return any(name[: len(part)] == part for part in parts)


def _flat(data: Mapping[str, Any], way: Name = ()) -> Iterator[tuple[Name, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, (*way, key))
        elif value != {}:  # an empty dict says nothing; one that is filled later differs by its entries
            yield (*way, key), value


@dataclass(frozen=True)
class Training(TrainTask):
    """One training to be done, of which its child is told what a `TrainTask` has.

    Until it is prepared, `run` is as `asked`; then it has the savings in it, the seed and the total. Where `out` is
    empty, it gets a folder of its own.
    """

    _: KW_ONLY
    asked: Run  # the run, with what the options say laid over it; the knobs of the outcome are what differs in `run`
    predicted: Predicted | None = None
    # runs of the same workload to choose from, the preferred one first; none where `asked` was named
    sizes: Sequence[Run] = ()
    plain: bool = False  # as the library does it, without savings
    fit: bool = False  # with knobs turned until it fits, those that change what is learned too
    retries: int = RETRIES  # how often it may go on after a failure
    allow_changes: bool = False  # a resume may take over what changes learning
    versions: Mapping[str, str] | None = None
    host_limit: int | None = None  # bytes that it may use; None: unknown
    begun: Run | None = None  # the run as it was asked for when the folder was begun; None: as `asked`

    @property
    def folder(self) -> RunFolder:
        return RunFolder(Path(self.out)) if self.out else RunFolder.default(self.asked)

    def checked(self) -> Training:
        """Return the training of the size that its folder was begun with; nothing is predicted or built for that.

        Raises:
            BadInput: it contradicts itself, or what it asks for cannot be trained.
            MissingExtra: a package that it needs is not installed.
        """
        if self.fit and self.plain:
            raise BadInput("--plain contradicts --fit", hint="give one of them")
        if self.resume and not self.out:
            raise BadInput("--resume needs a folder", hint="--out DIR")
        kept = self.folder.run() if self.resume else None
        asked = next((one for one in self.sizes if kept is not None and one.name == kept.name), self.asked)
        backend = backend_of(asked)
        require_packages(asked)
        if self.cluster is not None and not backend.spreads:
            raise no_cluster(f"{asked.name} uses backend {backend.name}", asked.source)
        if asked.env.id is None:
            raise _without_env(asked)
        backend.trainer.refuse_training(
            asked, fit=self.fit, resume=self.resume, pictures=self.pictures_every is not None
        )
        if self.cluster not in (None, "local", "auto"):
            refuse_unreachable(self.cluster)
        if asked.eval is not None and asked.eval.on_training_envs:  # which only a script can do
            asked = asked.replace(eval=asked.eval.model_copy(update={"on_training_envs": False}))
        checked = replace(self, asked=asked, run=asked)
        checked.folder.check(resume=self.resume)
        if kept is not None:
            checked.resumed_run(kept)
        return checked

    def resumed_run(self, kept: Run) -> tuple[Run, Differences]:
        """Return the run that resuming continues with, and what differs from the one the folder was begun with.

        Raises:
            BadInput: something differs that changes learning, and that was not allowed.
        """
        asked, folder = self.asked, self.folder
        found = differences(folder.asked() or kept, asked)
        changes = changing_learning(found)
        for fixed in ("backend", "algo"):  # nothing of what was learned would fit
            refuse({name: values for name, values in changes.items() if name[0] == fixed}, folder.path)
        if not self.allow_changes:
            refuse(changes, folder.path)
        if asked.seed is not None and asked.seed != kept.seed:
            hint = "drop --seed"
            raise BadInput(f"was started with seed {kept.seed}, not {asked.seed}", path=folder.path, hint=hint)
        run = with_changes(kept, changes) if changes else kept
        return run.replace(total_timesteps=asked.total_timesteps, checkpoint=asked.checkpoint or kept.checkpoint), found

    def prepared(self, asked: Run, run: Run, device: str, predicted: Predicted | None) -> Training:
        """Return the training of the run that came of what was asked for, in its folder."""
        run = run if run.seed is not None else run.replace(seed=secrets.randbelow(2**31))
        done = replace(self, asked=asked, run=run, device=device, predicted=predicted)
        return replace(done, out=str(done.folder.path))


def _without_env(run: Run) -> BadInput:
    """Return the refusal of a run whose spaces are known, and whose environment only the script makes."""
    if run.source is not None and Path(run.source).suffix == ".py":
        hint = f"run the program itself: legroom train -- python {shlex.quote(str(run.source))}"
        return BadInput("creates its environment itself", path=run.source, hint=hint)
    return BadInput(
        "the run names no environment", path=run.source,
        hint="set env.id to package.module:Class, or run your own program: legroom train -- python train.py",
    )  # fmt: skip
