"""`legroom import model.zip DIR --trust`: an archive of Stable-Baselines3 as a run's folder to go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from legroom.backends.base import backends
from legroom.cli import options
from legroom.cli.export import Force
from legroom.cli.trusting import Trust
from legroom.errors import BadInput
from legroom.rendering.console import document, say
from legroom.training.archives import check_import


def run(
    archive: Annotated[Path, typer.Argument(metavar="MODEL.ZIP", help="A file that SB3's model.save() wrote.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The run folder to create.")],
    trust: Trust = False,
    algo: Annotated[
        str | None, typer.Option(metavar="NAME", help="Algorithm, where the archive does not say it.")
    ] = None,
    force: Force = False,
    json: options.Json = False,
) -> None:
    """Make a run folder, with one checkpoint, from an archive of Stable-Baselines3. Archives can execute code, so
    --trust is required.

    Continuing from an archive is approximate: it holds no environments.

    \b
    legroom import model.zip runs/old --trust
    legroom train run.yaml --resume --out runs/old --timesteps 2000000
    """
    check_import(archive, directory, trust=trust, force=force)  # before torch is imported
    tried = (backend.import_archive(archive, directory, algorithm=algo, force=force) for backend in backends())
    imported = next(filter(None, tried), None)
    if imported is None:
        raise BadInput("no installed backend imports archives", path=archive)
    if json:
        facts = {"out": str(imported.path), "algo": imported.algorithm, "timesteps": imported.step}
        facts |= {"resume": "approximate", "parameters_sha256": imported.parameters_sha256}
        say(document(facts))
        return
    say(f"{imported.path}: {imported.algorithm} after {imported.step:,} steps")
    say(f"continue with: legroom train RUN --resume --out {imported.path}")
