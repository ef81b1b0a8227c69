"""`legroom check PATH...`: what is wrong with configurations and scripts, and what only looks so.

Only the options are here: help and a press of TAB need no rules (`check_steps`).
"""

from __future__ import annotations

from typing import Annotated

import typer

from legroom.cli import check_options, options
from legroom.cli.help import OUTPUT, WHAT, rarely
from legroom.cli.writing import Force


def run(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="train.py, run.yaml, ppo.yml, a folder, mine:full")
    ] = None,
    cpu_only: options.CpuOnly = False,
    ram: options.Ram = None,
    vram: options.Vram = None,
    gpu: options.GpuName = None,
    reserve: options.Reserve = "0%",
    select: Annotated[
        list[str] | None, typer.Option(metavar="RULES", help="Only these rules, e.g. LR002,no-effect.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="RULES", help="All rules but these.")] = None,
    fix: Annotated[
        bool, typer.Option("--fix", rich_help_panel=OUTPUT, help="Apply mechanical fixes to the files.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", rich_help_panel=OUTPUT, help="With --fix: only show the changes.")
    ] = False,
    like: options.Like = None,
    settings: options.Settings = None,
    explain_rule: Annotated[
        str | None,
        typer.Option(
            "--explain-rule",
            "--rule",
            metavar="RULE",
            rich_help_panel=rarely(WHAT),
            help="Explain a rule: what it finds, and why.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", rich_help_panel=OUTPUT, help="Also list what is fine, and why.")
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list", rich_help_panel=OUTPUT, help="List the rules.")] = False,
    baseline: check_options.Baseline = None,
    write_baseline: check_options.WriteBaseline = None,
    force: Force = False,
    form: check_options.FormatOption = check_options.Format.TEXT,
    json: options.Json = False,
) -> int:
    """Find mistakes in a configuration or training script, worst first. Nothing is executed.

    Run files, zoo and brax YAML are parsed; Python is read by its syntax tree. Exit code 1: there are errors or
    warnings. The comment `# legroom: ignore[LR012]` suppresses a finding. [tool.legroom] in the nearest pyproject.toml
    may set ignore, ram, vram, gpu and baseline.

    \b
    legroom check train.py --ram 32GiB --vram 16GiB
    legroom check --explain-rule LR012

    \b
    legroom check constants.py --like gameboy:default
    legroom check configs/ --select minibatch-does-not-divide
    legroom check brax.yaml --fix --dry-run
    legroom check . --format sarif --baseline legroom-baseline.json
    """
    from legroom.cli.check_steps import Asked, carry_out

    return carry_out(
        Asked(
            paths, cpu_only, ram, vram, gpu, reserve, select, ignore, fix, dry_run, like, settings, explain_rule,
            everything, list_rules, check_options.Format.JSON if json else form, baseline, write_baseline, force,
        )
    )  # fmt: skip
