"""`legroom export DIR FILE`: what a run has learned, as SB3's archive, or for brax as a safetensors file."""

from __future__ import annotations

from legroom.backends.base import backend_named
from legroom.cli.commands import ExportCommand
from legroom.errors import BadInput
from legroom.rendering.console import document, say
from legroom.training.run_folder import backend_name_in, check_export
from legroom.units import format_size

# What a backend raises over a checkpoint that is whole, but that no training has written.
NOT_OF_OURS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)


def run(asked: ExportCommand) -> None:
    check_export(asked.directory, asked.archive, force=asked.force)  # before torch is imported
    backend = backend_named(backend_name_in(asked.directory))
    try:
        exported = backend.trainer.export(asked.directory, asked.archive, force=asked.force, trust=asked.trust)
    except NOT_OF_OURS as error:
        what = f"its checkpoint was not written by a training: {type(error).__name__}: {error}"
        raise BadInput(what, path=asked.directory, hint="give a folder that legroom train wrote") from error
    if asked.json:
        facts = {"archive": str(exported.path), "algo": exported.algorithm, "timesteps": exported.step}
        say(document({**facts, "nbytes": exported.nbytes, "notes": exported.notes}))
        return
    size = format_size(exported.nbytes)
    say(f"{exported.path}: {exported.algorithm} after {exported.step:,} steps, {size}")
    for note in exported.notes:
        say(f"note: {note}")
