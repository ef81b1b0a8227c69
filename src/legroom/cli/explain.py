"""`legroom explain [FILE|-]`: what a log or a traceback says ran out, and what helps."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import UnsupportedOperation
from pathlib import Path

from legroom.cli.commands import ExplainCommand
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.explaining import explain_file, explain_stream
from legroom.explaining.explain import no_log
from legroom.rendering.console import say
from legroom.rendering.explanation_text import MOST_ADVICE, explanation_document, explanation_json


def run(asked: ExplainCommand) -> int:
    if asked.file == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise BadInput("no text to explain", hint="legroom explain FILE, or COMMAND 2>&1 | legroom explain")
    with suppress(UnsupportedOperation):  # it is no file of the system's
        if asked.file == "-" and (what := no_log(os.fstat(sys.stdin.fileno()))):
            raise BadInput(f"standard input is a {what}", hint="dmesg | legroom explain -")
    found = explain_stream(sys.stdin.buffer) if asked.file == "-" else explain_file(Path(asked.file))
    say(
        explanation_json(found)
        if asked.json
        else explanation_document(found, None if asked.everything else MOST_ADVICE)
    )
    return EXIT_GOOD if found.recognised else EXIT_FINDINGS
