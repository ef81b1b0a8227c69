"""`legroom profile ENV`: what an environment costs, whether it leaks, and how many of it fit here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from legroom.cli import options
from legroom.cli.help import OUTPUT, WHAT, rarely
from legroom.cli.overrides import split_settings
from legroom.cli.writing import Force, Html, check_writable, write_page, write_text
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.model.trace import Comparison, Profile
from legroom.profiling.baseline import compare, read_baseline
from legroom.profiling.profile_env import FRAMES, MOST_ENVS, SEED, SNAPSHOT_INTERVAL, profile, write_cprofile
from legroom.rendering.console import PLAIN_WIDTH, say, status
from legroom.rendering.layout import draw
from legroom.rendering.profile_text import profile_document, profile_json

NO_ENVS = ("0", "none")
File = Path | None


def run(
    env: Annotated[str, typer.Argument(metavar="ENV", help="CartPole-v1, module:attr, or a workload: ninja:parallel")],
    frames: Annotated[
        int, typer.Option(metavar="N", help="Steps to take; more where the verdict needs them.")
    ] = FRAMES,
    snapshot_interval: Annotated[
        int, typer.Option(metavar="N", rich_help_panel=rarely(WHAT), help="Most steps between two samples.")
    ] = SNAPSHOT_INTERVAL,
    envs: Annotated[
        str | None, typer.Option(metavar="N,N", help="Copies side by side; default 1,2,4,8; 0: none.")
    ] = None,
    baseline: Annotated[
        File, typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Compare with a saved profile.")
    ] = None,
    save: Annotated[
        File, typer.Option(metavar="FILE", rich_help_panel=OUTPUT, help="Save the profile, for --baseline.")
    ] = None,
    fail_on_leak: Annotated[
        bool, typer.Option("--fail-on-leak", rich_help_panel=OUTPUT, help="Exit code 1 if it leaks.")
    ] = False,
    report: Annotated[
        File, typer.Option(metavar="FILE", rich_help_panel=rarely(OUTPUT), help="Also write the text to FILE.")
    ] = None,
    html: Html = None,
    force: Force = False,
    cprofile: Annotated[
        File,
        typer.Option(
            metavar="FILE", rich_help_panel=rarely(OUTPUT), help="Write cProfile's statistics, from a separate pass."
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(metavar="N", rich_help_panel=rarely(WHAT), help="Seed of the environment and the random actions."),
    ] = SEED,
    settings: options.Settings = None,
    everything: Annotated[
        bool, typer.Option("--all", rich_help_panel=OUTPUT, help="List every line that leaks and every key.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Whether an environment leaks and where, and its cost: steps, observations, copies side by side. ENV is
    imported and EXECUTED, with random actions.

    It runs in processes of its own. Verdicts: leak (grows steadily; the lines that allocate are listed), growing (not
    settled yet), ok. Exit code 1: it leaks, with --fail-on-leak.

    \b
    legroom profile CartPole-v1
    legroom profile my_envs:MyEnv --frames 5000 --fail-on-leak

    \b
    legroom profile ninja:parallel --envs 1,2,4,8 --html ninja.html
    legroom profile mine:small --data deposit.csv
    legroom profile my_envs:MyEnv --save before.json
    legroom profile my_envs:MyEnv --baseline before.json
    """
    counts = None if envs is None else _counts(envs)
    if not 0 <= seed < 2**32:
        raise BadInput(f"--seed {seed} is out of range", hint="0 to 4294967295")
    before = None if baseline is None else read_baseline(baseline)
    for option, file in (("--save", save), ("--report", report), ("--html", html), ("--cprofile", cprofile)):
        check_writable(option, file, force=force)
    overrides = split_settings(settings or [])
    with status(f"stepping {env}", show=not json) as tell:
        how: Any = {"seed": seed, "overrides": overrides}
        found = profile(env, frames, snapshot_interval, envs=counts, tell=tell, **how)
        if cprofile is not None:
            tell(f"profiling the functions of {env}")
            write_cprofile(env, cprofile, frames, **how)
    comparison = None if before is None else compare(found, before, str(baseline))
    _write_files(found, comparison, save=save, report=report, html=html)
    say(profile_json(found, comparison) if json else profile_document(found, comparison, everything=everything))
    if not json:
        for file in filter(None, (save, report, html)):
            say(f"written: {file}")
        if cprofile is not None:
            say(f"written: {cprofile} (python -m pstats {cprofile})")
    return EXIT_FINDINGS if fail_on_leak and found.leak.verdict == "leak" else EXIT_GOOD


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


def _write_files(
    found: Profile, comparison: Comparison | None, *, save: Path | None, report: Path | None, html: Path | None
) -> None:
    if save is not None:
        write_text("--save", save, f"{profile_json(found)}\n")
    if report is not None:
        write_text("--report", report, draw(profile_document(found, comparison), width=PLAIN_WIDTH, colour=False))
    write_page(html, profile_document(found, comparison, everything=True))
