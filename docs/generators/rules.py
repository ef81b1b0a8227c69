"""A page per rule of `legroom check`, from the texts in the rule's own file."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType

from docs.generators.markdown import code, table, tree

from legroom.checking.rule import Rule
from legroom.checking.rules import RULES, runs, scripts

MEANING = {
    "error": "it will not run, or not as it says",
    "warning": "it will not do what it says",
    "info": "worth knowing",
}
WHERE = {"runs": "run files and whatever a run is read from", "scripts": "Python scripts, by their syntax"}


def pages() -> Mapping[str, str]:
    by_code: dict[str, list[Rule]] = {}
    for rule in RULES:
        by_code.setdefault(rule.code, []).append(rule)
    places = {id(module.RULE): (kind, module) for kind, module in _modules()}
    texts = {f"rules/{code_}.md": _page(same, places) for code_, same in by_code.items()}
    return {**texts, "rules/index.md": _index(by_code, places)}


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for kind, package in (("runs", runs), ("scripts", scripts)):
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            module = import_module(found.name)
            if hasattr(module, "RULE"):
                yield kind, module


def _page(same: list[Rule], places: Mapping[int, tuple[str, ModuleType]]) -> str:
    parts = [f"# {same[0].code} {same[0].name}\n"]
    for rule in same:
        kind, module = places[id(rule)]
        if len(same) > 1:
            parts.append(f"## In {'scripts' if kind == 'scripts' else 'run files'}\n")
        language = "python" if kind == "scripts" else "yaml"
        mended = "yes, where it is certain what to write" if mends(module) else "no"
        parts += [
            f"**{rule.what}**\n",
            table(
                ["severity", "looks at", "`--fix`", "silence a line with"],
                [
                    (
                        f"{rule.severity}: {MEANING[rule.severity]}",
                        WHERE[kind],
                        mended,
                        f"`# legroom: ignore[{rule.code}]`",
                    )
                ],
            ),
            f"Why: {rule.why}\n",
            "What it finds:\n",
            code(rule.example, language if kind == "scripts" or ":" in rule.example else "text"),
            f"What to do: {rule.remedy}\n",
        ]
    parts.append(f"The same in the terminal: `legroom check --rule {same[0].code}`.\n")
    return "\n".join(parts)


def mends(module: ModuleType) -> bool:
    """Return whether the rule's file makes fixes."""
    return "Fix(" in Path(str(module.__file__)).read_text() or "fix=" in Path(str(module.__file__)).read_text()


def _index(by_code: Mapping[str, list[Rule]], places: Mapping[int, tuple[str, ModuleType]]) -> str:
    rows = []
    for code_, same in by_code.items():
        looks = ", ".join("scripts" if places[id(rule)][0] == "scripts" else "runs" for rule in same)
        fix = "yes" if any(mends(places[id(rule)][1]) for rule in same) else ""
        rows.append((f"[{code_}]({code_}.md)", same[0].name, same[0].severity, looks, fix, same[0].what))
    return (
        f"# Rules of check\n\n`legroom check` knows {len(by_code)} rules. A rule that is not sure stays silent. "
        "`--select` and `--ignore` take codes and names.\n\n"
        + table(["code", "name", "severity", "looks at", "fix", "what"], rows)
        + "\n"
        + tree(*by_code)
    )
