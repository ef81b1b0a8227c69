"""check(paths) -> list[Checked]: reads each subject once, lets every rule look at it, and sorts what they found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from legroom.backends.base import Backend, backend_of
from legroom.checking.confirmations import confirmations
from legroom.checking.ignoring import read_ignored
from legroom.checking.rule_helpers import counts_known
from legroom.checking.rule_table import REMOVED, RULES
from legroom.checking.subject_reader import read_subject
from legroom.checking.understanding import NO_TRAINING, understanding_of, understanding_of_yaml
from legroom.checking.walking import Target, targets
from legroom.errors import BadInput, NotARun
from legroom.model.footprint import Finding
from legroom.model.machine import Machine
from legroom.model.rule import Checked, Fix, Rule, Subject, SubjectRun, Totals
from legroom.model.spaces import describe
from legroom.model.verdict import Budget
from legroom.predicting.predict import DeviceName
from legroom.reading.collect_problems import expanded
from legroom.reading.naming import did_you_mean
from legroom.reading.reading_budget import TooCostly, bounded_reading
from legroom.reading.user_files import Unreadable, read_text
from legroom.units import plural

_ORDER = ("error", "warning", "info")
RULES_SECONDS = 8.0  # for all rules together; a script of 600 lines takes them 0.2
MOST_FINE = 3  # runs of a file whose good sides are told; a zoo file has a hundred


def check(
    paths: Sequence[str],
    *,
    machine: Machine,
    budget: Budget,
    select: Iterable[str] = (),
    ignore: Iterable[str] = (),
    like: str | None = None,
    overrides: Sequence[tuple[str, str]] = (),
    device: DeviceName | None = None,
) -> list[Checked]:
    """Return what there is to say about each file, those of folders included.

    Args:
        select, ignore: codes, their beginnings (LR0) or names of rules.
        like, overrides: what the files do not say, and what is to be assumed instead of what they say.

    Raises:
        BadInput: a rule is not known, or a named path cannot be read or is nothing of a training.
    """
    rules = chosen_rules(select, ignore)
    named = [name for path in paths for name in expanded(path)]

    def look(target: Target) -> list[Checked]:
        return _checked(target, rules, machine=machine, budget=budget, like=like, overrides=overrides, device=device)

    return [each for target in targets(named) for each in look(target)]


def _checked(target: Target, rules: Sequence[Rule], **options: Any) -> list[Checked]:
    """Return what there is to say about one file: nothing about what a folder holds besides.

    Raises:
        BadInput: it was named, and cannot be read.
    """
    if target.problem:
        return [Checked(target.name, "skipped", note=f"{target.name}: {target.problem}")]
    try:
        with bounded_reading(target.name):
            subject = read_subject(target.name, **options)
        if target.found and _is_other_yaml(subject):
            return []
        with bounded_reading(target.name, seconds=RULES_SECONDS):
            return [look_at(subject, rules)]
    except NotARun:
        understood = understanding_of_yaml(read_text(target.name))
        if target.found and understood == NO_TRAINING:
            return []
        return [Checked(target.name, "settings", understanding=understood)]
    except OSError as error:  # of something beside it
        return [Checked(target.name, "skipped", note=f"{target.name}: {error.strerror or error}")]
    except BadInput as error:
        if not target.found and not _is_other_python(error):
            raise
        return _skipped(target, error)


def look_at(subject: Subject, rules: Sequence[Rule] = RULES) -> Checked:
    """Return what the rules find in one subject, in the order of its gravity, and what is fine."""
    ignored = read_ignored(subject.text)
    several = len(subject.runs) + len(subject.guessed) > 1
    findings: list[Finding] = []
    fixes: list[Fix] = []
    seen: set[tuple[str, int | None, str]] = set()
    said: dict[tuple[str, int | None], int] = {}  # the name of a rule and a line -> which rule said it
    left_out = 0
    for number, rule in enumerate(rules):
        for each in rule.look(subject):
            finding = rule.finding(each, subject.path)
            if (finding.code, finding.line, finding.message) in seen:
                continue  # entries that share their settings by a YAML anchor
            if said.setdefault((finding.name, finding.line), number) != number:
                continue  # a run and the call it was read from, each with a rule of that name
            seen.add((finding.code, finding.line, finding.message))
            if ignored.covers(finding):
                left_out += 1
                continue
            if several and each.run:
                finding = replace(finding, message=f"{each.run}: {finding.message}")
            findings.append(finding)
            if each.fix is not None:
                fixes.append(each.fix)
    findings.sort(key=lambda f: (_ORDER.index(f.severity), f.line or 0, f.code))
    good = (
        [s for one in subject.runs[:MOST_FINE] for s in confirmations(subject, one)]
        if len(subject.runs) <= MOST_FINE
        else []
    )
    for one in subject.guessed[:1]:
        good += confirmations(subject, one, algo_known=False)
    return Checked(
        path=subject.path,
        kind=subject.kind,
        subject=subject,
        findings=tuple(findings),
        fine=tuple(dict.fromkeys(good)),
        totals=tuple(_totals(one) for one in subject.runs),
        ignored=left_out,
        fixes=tuple(fixes),
        note=_note(subject),
        understanding=understanding_of(subject),
    )


def _note(subject: Subject) -> str:
    if subject.kind == "constants" and not subject.runs:
        return "no algorithm found in this file; --set algo=PPO, or --like RUN with a run that has one, checks more"
    return ""


def chosen_rules(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """Return the rules that the options leave.

    Raises:
        BadInput: no rule has such a code or name.
    """
    removed = {*REMOVED, *(name.upper() for name in REMOVED.values())}
    wanted = [_matching(text) for text in select]
    unwanted = [_matching(text) for text in ignore if text.upper() not in removed]
    codes = {code for match in wanted for code in match} or {rule.code for rule in RULES}
    codes -= {code for match in unwanted for code in match}
    return tuple(rule for rule in RULES if rule.code in codes)


def find_rule(text: str) -> Rule:
    """Return the rule of that code or name.

    Raises:
        BadInput: there is none.
    """
    for rule in RULES:
        if text.upper() == rule.code or text.lower() == rule.name:
            return rule
    raise _no_such_rule(text)


def _matching(text: str) -> set[str]:
    found = {r.code for r in RULES if r.code.startswith(text.upper()) or r.name == text.lower()} if text else set()
    if not found:
        raise _no_such_rule(text)
    return found


def _no_such_rule(text: str) -> BadInput:
    names = [*(rule.name for rule in RULES), *(rule.code for rule in RULES)]
    return BadInput(f"no rule {text!r}", hint=did_you_mean(text, names, "'legroom check --list'"))


def _is_other_yaml(subject: Subject) -> bool:
    """Return whether it is YAML that has nothing to do with a training; a folder holds YAML of all kinds."""
    return subject.path.endswith((".yml", ".yaml")) and not subject.runs and not subject.guessed


def _is_other_python(error: BadInput) -> bool:
    """Return whether the file is sound Python that has nothing to do with a training."""
    return str(error.path).endswith(".py") and error.message.startswith("holds no training")


def _skipped(target: Target, error: BadInput) -> list[Checked]:
    """Return a note on something in a folder that cannot be read, is too costly to read, or is broken Python.

    What is merely something else is passed over. Unless it was named: then it is said that there is nothing to say.
    """
    if not target.found:
        return [Checked(target.name, "script", understanding=NO_TRAINING)]
    broken = target.name.endswith(".py") and error.message.startswith("not valid Python")
    if broken or isinstance(error, TooCostly | Unreadable):
        return [Checked(target.name, "skipped", note=str(error))]
    return []


def _totals(one: SubjectRun) -> Totals:
    """Return what can be summed up of a run; None for whatever is not known."""
    run, footprint = one.run, one.footprint
    known_envs = run.env.n_envs if one.knows("env", "n_envs") else None
    found = counts_known(one)
    backend = backend_of(run)
    stored = backend.checker.stored_data(run, footprint) if footprint is not None else None
    total = run.total_timesteps
    return Totals(
        name=run.name,
        title=_title(one, backend),
        n_envs=known_envs,
        samples=found.samples if found else None,
        iterations=found.iterations if found else None,
        steps=found.steps if found and found.steps is not None else total,
        updates=found.updates if found else None,
        stored=stored.nbytes or None if stored else None,
        flattened=stored.peak if stored else None,
        flattened_when=stored.peak_when if stored else "",
        host=footprint.host.nbytes if footprint else None,
        host_high=footprint.host.high if footprint else None,
        gpu=footprint.gpu.nbytes if footprint and footprint.gpu else None,
        gpu_high=footprint.gpu.high if footprint and footprint.gpu else None,
    )


def _title(one: SubjectRun, backend: Backend) -> str:
    run = one.run
    parts = [f"{run.algo} on {backend.title}" if backend.in_headings else run.algo]
    if one.knows("env", "n_envs"):
        parts.append(plural(run.env.n_envs, "env"))
    if run.env.spaces is not None:
        parts.append(f"observation {describe(backend.predictor.storage(run).observation)}")
    elif run.env.id:
        parts.append(f"{run.env.id}, whose spaces are not known")
    return ", ".join(parts)
