"""`legroom check PATH...`: what is wrong with configurations and scripts, and what only looks so."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from legroom.checking.check import check, chosen_rules, find_rule
from legroom.checking.fixing import applied, fix_file
from legroom.cli.budgets import chosen_budget, place_of
from legroom.cli.commands import CheckCommand
from legroom.cli.overrides import repeated, split_settings
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.model.rule import Checked, Fix
from legroom.named_runs import workloads
from legroom.reading.constants import walked_settings
from legroom.reading.yamls import parse_yaml
from legroom.rendering.console import document, say
from legroom.rendering.findings_text import (
    check_document,
    check_json,
    fixes_text,
    rule_text,
    rules_text,
    sarif_text,
)

FixedFile = tuple[str, list[Fix], str]  # path, fixes made, the change as a diff


def run(asked: CheckCommand) -> int:
    if asked.rule is not None or asked.list_rules:
        say(rule_text(find_rule(asked.rule)) if asked.rule is not None else rules_text(chosen_rules()))
        return EXIT_GOOD
    if not asked.paths:
        raise BadInput("no path given", hint="legroom check train.py")
    if asked.dry_run and not asked.fix:
        raise BadInput("--dry-run shows what --fix would change", hint="give both")
    paths = asked.paths
    machine, where = place_of(asked)
    budget = chosen_budget(machine, asked)
    if asked.cpu_only:
        budget = replace(budget, vram=None, vram_origin="")
    look = partial(
        check, paths, machine=machine, budget=budget, select=_split(asked.select),
        ignore=_split(asked.ignore), like=asked.like, overrides=split_settings(asked.settings),
        device="cpu" if where == "cpu" else None,
    )  # fmt: skip
    checked, made = _fixed(look, paths, dry_run=asked.dry_run) if asked.fix else (look(), [])
    repairs = list(_repairs(checked, repeated(asked.settings, like=asked.like))) if asked.fix else []
    if asked.json or asked.format == "json":
        known: dict[str, Any] = {"repairs": repairs} if repairs else {}
        say(document(check_json(checked) | _made_json(made, asked.dry_run) | known))
    elif asked.format == "text":
        fixes: list[Any] = [*repairs, ""] if repairs and not made else list(repairs)
        fixes += fixes_text(made, checked, dry_run=asked.dry_run) if asked.fix and (made or not repairs) else ()
        if fixes:
            say(fixes)
        say(check_document(checked, budget, everything=asked.everything))
    else:
        say(sarif_text(checked, chosen_rules()))
    return EXIT_FINDINGS if any(each.bad for each in checked) else EXIT_GOOD


def _fixed(
    look: Callable[[], list[Checked]], paths: list[str], *, dry_run: bool
) -> tuple[list[Checked], list[FixedFile]]:
    """Make the fixes of all files; return what a check says afterwards, and what was changed in each file.

    A named run is legroom's own and stays as it is.
    """
    checked = look()
    own = [each for each in checked if each.fixes and (each.path in paths or not _is_ours(each))]
    made = [(each.path, *fix_file(each.path, each.fixes, dry_run=dry_run)) for each in own]
    if not dry_run and any(fixes for _, fixes, _ in made):
        checked = look()
    return checked, made


def _split(texts: list[str]) -> list[str]:
    return [part.strip() for text in texts for part in text.split(",") if part.strip()]


def _is_ours(each: Checked) -> bool:
    return any(each.path == str(file) for workload in workloads() for file in workload.run_files().values())


def _repairs(checked: list[Checked], again: list[str]) -> Iterator[str]:
    """Yield for each named run that fixes would change the command that trains it repaired."""
    for each in checked:
        if each.subject is None or not each.fixes or not _is_ours(each):
            continue
        name, text = each.subject.runs[0].run.name, each.subject.text
        old, new = (dict(walked_settings(parse_yaml(one)[0])) for one in (text, applied(text, each.fixes)[0]))
        changed = [key for key, value in new.items() if not isinstance(value, dict) and old.get(key) != value]
        settings = [word for key in changed for word in ("--set", f"{'.'.join(map(str, key))}={new[key]}")]
        command = shlex.join(["legroom", "train", name, *again, *settings])
        yield f"{name} is legroom's own and stays as it is; repaired: {command}"


def _made_json(made: list[FixedFile], dry_run: bool) -> dict[str, Any]:
    if not made:
        return {}
    fixes = [{"path": path, **asdict(fix)} for path, all_made, _ in made for fix in all_made]
    return {"would_fix" if dry_run else "fixed": fixes}
