"""`legroom profile ENV`: what an environment costs, whether it leaks, and how many of it fit here."""

from __future__ import annotations

from typing import Any

from legroom.cli.commands import ProfileCommand
from legroom.cli.output import check_writable, write_page, write_text
from legroom.cli.overrides import split_settings
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.rendering.console import PLAIN_WIDTH, say, status
from legroom.rendering.layout import draw
from legroom.rendering.profile_text import profile_document, profile_json
from legroom.watching.baseline import compare, read_baseline
from legroom.watching.profile import MOST_ENVS, profile, write_cprofile

NO_ENVS = ("0", "none")


def run(asked: ProfileCommand) -> int:
    counts = None if asked.envs is None else _counts(asked.envs)
    if not 0 <= asked.seed < 2**32:
        raise BadInput(f"--seed {asked.seed} is out of range", hint="0 to 4294967295")
    before = None if asked.baseline is None else read_baseline(asked.baseline)
    files = {"--save": asked.save, "--report": asked.report, "--html": asked.html, "--cprofile": asked.cprofile}
    for option, file in files.items():
        check_writable(option, file, force=asked.force)
    overrides = split_settings(asked.settings)
    with status(f"stepping {asked.env}", show=not asked.json) as tell:
        how: Any = {"seed": asked.seed, "overrides": overrides}
        found = profile(asked.env, asked.frames, asked.snapshot_interval, envs=counts, tell=tell, **how)
        if asked.cprofile is not None:
            tell(f"profiling the functions of {asked.env}")
            write_cprofile(asked.env, asked.cprofile, asked.frames, **how)
    comparison = None if before is None else compare(found, before, str(asked.baseline))
    if asked.save is not None:
        write_text("--save", asked.save, f"{profile_json(found)}\n")
    if asked.report is not None:
        text = draw(profile_document(found, comparison), width=PLAIN_WIDTH, colour=False)
        write_text("--report", asked.report, text)
    write_page(asked.html, profile_document(found, comparison, everything=True))
    document = profile_document(found, comparison, everything=asked.everything)
    say(profile_json(found, comparison) if asked.json else document)
    if not asked.json:
        for file in filter(None, (asked.save, asked.report, asked.html)):
            say(f"written: {file}")
        if asked.cprofile is not None:
            say(f"written: {asked.cprofile} (python -m pstats {asked.cprofile})")
    return EXIT_FINDINGS if asked.fail_on_leak and found.leak.verdict == "leak" else EXIT_GOOD


def _counts(text: str) -> tuple[int, ...]:
    """Return the numbers of `1,2,4`.

    Raises:
        BadInput: it is no list of whole numbers.
    """
    if text.strip() in NO_ENVS:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) < 9 and 1 <= int(part) <= MOST_ENVS for part in parts):
        raise BadInput(
            f"--envs {text!r} is not a list of numbers from 1 to {MOST_ENVS}", hint="such as 1,2,4,8; 0 for none"
        )
    return tuple(sorted({int(part) for part in parts}))
