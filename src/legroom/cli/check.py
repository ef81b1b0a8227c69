"""`legroom check PATH...`: what is wrong with configurations and scripts, and what only looks so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

import typer

from legroom.checking.check import check, chosen_rules, find_rule
from legroom.checking.fixing import fix_file
from legroom.cli import options
from legroom.cli.help import OUTPUT, WHAT, rarely
from legroom.cli.overrides import split_settings
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.machine import probe
from legroom.model.checked import Checked
from legroom.model.rule import Fix
from legroom.reading.user_files import is_directory, is_file
from legroom.rendering.console import document, say
from legroom.rendering.findings_text import check_json, check_text, fixes_text, rule_text, rules_text

FixedFile = tuple[str, list[Fix], str]  # path, fixes made, the change as a diff


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
            "--explain-rule", "--rule", metavar="RULE", rich_help_panel=rarely(WHAT), help="What a rule finds, and why."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", rich_help_panel=OUTPUT, help="Also list what is fine, and why.")
    ] = False,
    list_rules: Annotated[bool, typer.Option("--list", rich_help_panel=OUTPUT, help="List the rules.")] = False,
    json: options.Json = False,
) -> int:
    """What is wrong with a configuration or training script, the worst first. Nothing is executed.

    Run files, zoo and brax YAML are parsed; Python is read by its syntax tree. Exit code 1: there are errors or
    warnings. The comment `# legroom: ignore[LR012]` suppresses a finding.

    \b
    legroom check train.py --ram 32GiB --vram 16GiB
    legroom check --explain-rule LR012

    \b
    legroom check constants.py --like gameboy:default
    legroom check configs/ --select minibatch-does-not-divide
    legroom check brax.yaml --fix --dry-run
    """
    if explain_rule is not None or list_rules:
        say(rule_text(find_rule(explain_rule)) if explain_rule is not None else rules_text(chosen_rules()))
        return EXIT_GOOD
    if not paths:
        raise BadInput("no path given", hint="legroom check train.py")
    if dry_run and not fix:
        raise BadInput("--dry-run shows what --fix would change", hint="give both")
    machine = options.with_gpu(probe(), gpu)
    where: Any = options.chosen_device(None, cpu_only, wants_gpu=bool(vram or gpu))
    budget = options.chosen_budget(machine, ram=ram, vram=vram, reserve=reserve)
    if cpu_only:
        budget = replace(budget, vram=None, vram_origin="")
    look = partial(
        check, paths, machine=machine, budget=budget, select=_split(select), ignore=_split(ignore), like=like,
        overrides=split_settings(settings or []), device="cpu" if where == "cpu" else None,
    )  # fmt: skip
    checked, made = _fixed(look, paths, dry_run=dry_run) if fix else (look(), [])
    if json:
        say(document(check_json(checked) | _made_json(made, dry_run)))
    else:
        say([*fixes_text(made, dry_run=dry_run), *check_text(checked, budget, everything=everything)])
    return EXIT_FINDINGS if any(each.bad for each in checked) else EXIT_GOOD


def _fixed(
    look: Callable[[], list[Checked]], paths: list[str], *, dry_run: bool
) -> tuple[list[Checked], list[FixedFile]]:
    """Make the fixes of all files; return what a check says afterwards, and what was changed in each file."""
    _refuse_named_runs(paths)
    checked = look()
    made = [(each.path, *fix_file(each.path, each.fixes, dry_run=dry_run)) for each in checked if each.fixes]
    if not dry_run and any(fixes for _, fixes, _ in made):
        checked = look()
    return checked, made


def _split(texts: list[str] | None) -> list[str]:
    return [part.strip() for text in texts or [] for part in text.split(",") if part.strip()]


def _refuse_named_runs(paths: list[str]) -> None:
    for path in paths:
        if not is_file(path) and not is_directory(path) and not is_file(path.rpartition(":")[0]):
            hint = f"legroom fit {path} -o run.yaml writes a fixed copy"
            raise BadInput(f"{path} is a named run of legroom, which --fix does not change", hint=hint)


def _made_json(made: list[FixedFile], dry_run: bool) -> dict[str, Any]:
    if not made:
        return {}
    fixes = [{"path": path, **asdict(fix)} for path, all_made, _ in made for fix in all_made]
    return {"would_fix" if dry_run else "fixed": fixes}
