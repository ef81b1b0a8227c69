"""One training: as it is asked for and, once prepared, as it will be done.

`train` takes it; its child is told a `TrainTask` and reports into a `ChildRecord`; the `Outcome` is what comes of it.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from legroom.backends.base import backend_of, no_cluster, require_packages
from legroom.cluster.reaching import refuse_unreachable
from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.training import RETRIES
from legroom.training.differing import Differences, changing_learning, differences, refuse, with_changes
from legroom.training.run_folder import Predicted, RunFolder


@dataclass(frozen=True)
class Training:
    """One training to be done.

    Args:
        asked: the run, with what the options say laid over it; the knobs of the outcome are what differs in `run`.
        run: as it is trained: with the savings in it, the seed and the total. Until it is prepared, as `asked`.
        out: the folder to train in; None: one of its own.
        device: where it is trained.
        sizes: runs of the same workload to choose from, the preferred one first; none where `asked` was named.
        plain: as the library does it, without savings.
        fit: with knobs turned until it fits, those that change what is learned too.
        retries: how often it may go on after a failure.
        allow_changes: a resume may take over what changes learning.
        cluster: local, auto, or the address of a cluster; None: nothing was said.
        host_limit: bytes that it may use; None: unknown.
        begun: the run as it was asked for when the folder was begun; None: as `asked`.
    """

    asked: Run
    run: Run
    out: Path | None = None
    device: str = "cpu"
    predicted: Predicted | None = None
    _: KW_ONLY
    sizes: Sequence[Run] = ()
    resume: bool = False
    plain: bool = False
    fit: bool = False
    pictures: bool = False
    checkpoint_every: int | None = None
    retries: int = RETRIES
    allow_changes: bool = False
    cluster: str | None = None
    versions: Mapping[str, str] | None = None
    host_limit: int | None = None
    begun: Run | None = None

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.out) if self.out is not None else RunFolder.default(self.asked)

    def checked(self) -> Training:
        """Return the training of the size that its folder was begun with; nothing is predicted or built for that.

        Raises:
            BadInput: it contradicts itself, or what it asks for cannot be trained.
            MissingExtra: a package that it needs is not installed.
        """
        if self.fit and self.plain:
            raise BadInput("--plain contradicts --fit", hint="give one of them")
        if self.resume and self.out is None:
            raise BadInput("--resume needs a folder", hint="--out DIR")
        kept = self.folder.run() if self.resume else None
        asked = next((one for one in self.sizes if kept is not None and one.name == kept.name), self.asked)
        backend = backend_of(asked)
        require_packages(asked)
        if self.cluster is not None and not backend.spreads:
            raise no_cluster(f"{asked.name} uses backend {backend.name}", asked.source)
        if asked.env.id is None:
            raise _without_env(asked)
        backend.refuse_training(asked, fit=self.fit, resume=self.resume, pictures=self.pictures)
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
        return replace(done, out=done.folder.path)


def _without_env(run: Run) -> BadInput:
    """Return the refusal of a run whose spaces are known, and whose environment only the script makes."""
    if run.source is not None and Path(run.source).suffix == ".py":
        hint = f"run the program itself: legroom train -- python {shlex.quote(str(run.source))}"
        return BadInput("creates its environment itself", path=run.source, hint=hint)
    return BadInput(
        "the run names no environment", path=run.source,
        hint="set env.id to package.module:Class, or run your own program: legroom train -- python train.py",
    )  # fmt: skip
