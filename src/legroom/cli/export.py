"""`legroom export DIR FILE`: what a run has learned, as SB3's archive, or for brax as a safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.backends.base import backend_named
from legroom.cli import options
from legroom.cli.trusting import Trust
from legroom.errors import BadInput
from legroom.rendering.console import document, say
from legroom.training.archives import backend_name_in, check_export
from legroom.units import format_size

# What a backend raises over a checkpoint that is whole, but that no training has written.
NOT_OF_OURS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]


def run(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder, or one of its checkpoints.")],
    archive: Annotated[Path, typer.Argument(metavar="FILE", help="model.zip; of a brax run: policy.safetensors.")],
    force: Force = False,
    trust: Trust = False,
    json: options.Json = False,
) -> None:
    """Write the last good checkpoint of a run as an archive of Stable-Baselines3; of a brax run, as safetensors.

    Checkpoints are data. Code that the run's policy names (`module:attr`) is imported only with --trust.

    \b
    legroom export runs/first model.zip
    legroom export runs/walk policy.safetensors
    legroom export runs/first/checkpoints/step-000000012288 model.zip --force
    """
    check_export(directory, archive, force=force)  # before torch is imported
    backend = backend_named(backend_name_in(directory))
    try:
        exported = backend.trainer.export(directory, archive, force=force, trust=trust)
    except NOT_OF_OURS as error:
        what = f"its checkpoint was not written by a training: {type(error).__name__}: {error}"
        raise BadInput(what, path=directory, hint="give a folder that legroom train wrote") from error
    if json:
        facts = {"archive": str(exported.path), "algo": exported.algorithm, "timesteps": exported.step}
        say(document({**facts, "nbytes": exported.nbytes, "notes": exported.notes}))
        return
    size = format_size(exported.nbytes)
    say(f"{exported.path}: {exported.algorithm} after {exported.step:,} steps, {size}")
    for note in exported.notes:
        say(f"note: {note}")
