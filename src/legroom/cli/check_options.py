"""Options of `legroom check` for other programs: formats and baselines. Only the options: TAB reads them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from legroom.cli.help import OUTPUT, WHAT, rarely


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


FormatOption = Annotated[
    Format,
    typer.Option("--format", rich_help_panel=rarely(OUTPUT), help="For people, programs, GitHub, code scanning."),
]
Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", rich_help_panel=rarely(WHAT), help="Hide the findings in FILE."),
]
WriteBaseline = Annotated[
    Path | None,
    typer.Option(
        "--write-baseline", metavar="FILE", rich_help_panel=rarely(OUTPUT), help="Write all findings, for --baseline."
    ),
]
