"""What `legroom check` does: reads and checks the files, makes the fixes, and says what is left."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from legroom.checking.check import check, chosen_rules, find_rule
from legroom.checking.fixing import applied, fix_file
from legroom.cli import options
from legroom.cli.baseline import without_known, write_baseline
from legroom.cli.check_options import Format
from legroom.cli.overrides import repeated, split_settings
from legroom.errors import EXIT_FINDINGS, EXIT_GOOD, BadInput
from legroom.machine import probe
from legroom.model.rule import Checked, Fix
from legroom.named_runs import workloads
from legroom.reading.constants import walked_settings
from legroom.reading.project_file import Project, read_project
from legroom.reading.yamls import parse_yaml
from legroom.rendering.console import document, say
from legroom.rendering.findings_text import (
    check_document,
    check_json,
    fixes_text,
    github_text,
    rule_text,
    rules_text,
    sarif_text,
)

FixedFile = tuple[str, list[Fix], str]  # path, fixes made, the change as a diff


@dataclass(frozen=True)
class Asked:
    """The options of the command, as they were given."""

    paths: list[str] | None
    cpu_only: bool
    ram: str | None
    vram: str | None
    gpu: str | None
    reserve: str
    select: list[str] | None
    ignore: list[str] | None
    fix: bool
    dry_run: bool
    like: str | None
    settings: list[str] | None
    explain_rule: str | None
    everything: bool
    list_rules: bool
    form: Format
    baseline: Path | None
    write_baseline: Path | None
    force: bool

    def in_project(self, project: Project) -> Asked:
        """Return the options with what the project says where they say nothing."""
        known = self.baseline
        if known is None and project.baseline and project.folder is not None:
            known = project.folder / project.baseline
        return replace(
            self, ram=self.ram or project.ram, vram=self.vram or project.vram,
            gpu=self.gpu or (None if self.vram else project.gpu), ignore=[*(self.ignore or []), *project.ignore],
            baseline=None if self.write_baseline is not None else known,
        )  # fmt: skip


def carry_out(asked: Asked) -> int:
    """Check, and return the exit code."""
    if asked.explain_rule is not None or asked.list_rules:
        say(rule_text(find_rule(asked.explain_rule)) if asked.explain_rule is not None else rules_text(chosen_rules()))
        return EXIT_GOOD
    if not asked.paths:
        raise BadInput("no path given", hint="legroom check train.py")
    if asked.dry_run and not asked.fix:
        raise BadInput("--dry-run shows what --fix would change", hint="give both")
    paths, asked = asked.paths, asked.in_project(read_project(asked.paths[0]))
    machine = options.with_gpu(probe(), asked.gpu)
    where: Any = options.chosen_device(None, asked.cpu_only, wants_gpu=bool(asked.vram or asked.gpu))
    budget = options.chosen_budget(machine, ram=asked.ram, vram=asked.vram, reserve=asked.reserve)
    if asked.cpu_only:
        budget = replace(budget, vram=None, vram_origin="")
    look = partial(
        check, paths, machine=machine, budget=budget, select=_split(asked.select), ignore=_split(asked.ignore),
        like=asked.like, overrides=split_settings(asked.settings or []), device="cpu" if where == "cpu" else None,
    )  # fmt: skip
    checked, made = _fixed(look, paths, dry_run=asked.dry_run) if asked.fix else (look(), [])
    if asked.write_baseline is not None:
        count = write_baseline(asked.write_baseline, checked, force=asked.force)
        say(f"written: {asked.write_baseline}, {count:,} findings")
        return EXIT_GOOD
    checked, dropped = (checked, 0) if asked.baseline is None else without_known(checked, asked.baseline)
    repairs = list(_repairs(checked, repeated(asked.settings or [], like=asked.like))) if asked.fix else []
    if asked.form is Format.JSON:
        known: dict[str, Any] = {} if asked.baseline is None else {"in_baseline": dropped}
        known |= {"repairs": repairs} if repairs else {}
        say(document(check_json(checked) | _made_json(made, asked.dry_run) | known))
    elif asked.form is Format.TEXT:
        told = [f"{dropped:,} findings are in the baseline {asked.baseline}"] if dropped else []
        found = check_document(checked, budget, everything=asked.everything)
        fixes: list[Any] = [*repairs, ""] if repairs and not made else list(repairs)
        fixes += fixes_text(made, checked, dry_run=asked.dry_run) if asked.fix and (made or not repairs) else ()
        if fixes:
            say(fixes)
        say(replace(found, parts=[*found.parts, *told]))
    else:
        say(github_text(checked) if asked.form is Format.GITHUB else sarif_text(checked, chosen_rules()))
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


def _split(texts: list[str] | None) -> list[str]:
    return [part.strip() for text in texts or [] for part in text.split(",") if part.strip()]


def _is_ours(each: Checked) -> bool:
    """Return whether a file is that of a named run."""
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
