"""`legroom explain [FILE|-]`: what a log or a traceback says ran out, and what helps."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Annotated

import typer

from legroom.cli import options
from legroom.cli.help import OUTPUT
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.explaining import explain_file, explain_stream
from legroom.explaining.explain import no_log
from legroom.rendering.console import say
from legroom.rendering.explanation_text import MOST_ADVICE, explanation_document, explanation_json


def run(
    file: Annotated[str, typer.Argument(metavar="[FILE|-]", help="A log or traceback; default: standard input.")] = "-",
    everything: Annotated[bool, typer.Option("--all", rich_help_panel=OUTPUT, help="List all advice.")] = False,
    json: options.Json = False,
) -> int:
    """Why a program ran out of memory, from its log or traceback: what ran out, what took it, and what helps.

    Exit code 1: no out-of-memory error recognised in it.

    \b
    legroom explain train.log
    python train.py 2>&1 | legroom explain
    legroom explain slurm-1234.out --json
    """
    if file == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise BadInput("no text to explain", hint="legroom explain FILE, or COMMAND 2>&1 | legroom explain")
    with suppress(UnsupportedOperation):  # it is no file of the system's
        if file == "-" and (what := no_log(os.fstat(sys.stdin.fileno()))):
            raise BadInput(f"standard input is a {what}", hint="dmesg | legroom explain -")
    found = explain_stream(sys.stdin.buffer) if file == "-" else explain_file(Path(file))
    say(explanation_json(found) if json else explanation_document(found, None if everything else MOST_ADVICE))
    return EXIT_GOOD if found.recognised else EXIT_FINDINGS
