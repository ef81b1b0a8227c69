"""Hydra's and OmegaConf's YAML, as far as it is plain data: `defaults:` lists and `${...}` references.

A `defaults` list names files of the same folder (`- ppo`) or of a folder in it (`- env: cartpole`); the keys of the
file itself are laid over theirs, where `_self_` does not say otherwise. Files that are not there are noted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from legroom.errors import BadInput
from legroom.model.draft import get, merged
from legroom.reading import yamls
from legroom.reading.reading_notes import note
from legroom.reading.user_files import is_file, read_text

DEEPEST = 8  # files that name one another
_REFERENCE = re.compile(r"\$\{([\w.]+)\}")


def composed(data: dict[Any, Any], path: str) -> dict[Any, Any]:
    """Return the mapping with its defaults below it and its references to other keys resolved."""
    whole = _with_defaults(data, Path(path).parent, DEEPEST) if isinstance(data.get("defaults"), list) else data
    return _resolved(whole, whole, DEEPEST) if _has_reference(whole) else whole


def _with_defaults(data: dict[Any, Any], folder: Path, depth: int) -> dict[Any, Any]:
    own = {key: value for key, value in data.items() if key != "defaults"}
    found: dict[Any, Any] = {}
    missing = []
    for each in data["defaults"]:
        if each == "_self_":
            found = merged(found, own)
            continue
        for group, name in each.items() if isinstance(each, dict) else ((None, each),):
            group = str(group).removeprefix("override ").lstrip("/") if group is not None else None
            if not isinstance(name, str) or (group or "").startswith("hydra"):
                continue
            where, _, package = (group or "").partition("@")
            file = folder / where / (name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
            if depth <= 0 or not is_file(str(file)):
                missing.append(str(file.relative_to(folder)) if file.is_relative_to(folder) else str(file))
                continue
            inner = _read(file, depth)
            at = package or where.replace("/", ".")
            for part in reversed([part for part in at.split(".") if part and part != "_global_"]):
                inner = {part: inner}
            found = merged(found, inner)
    if missing:
        note(f"defaults not read, as there is no such file: {', '.join(missing)}")
    return found if "_self_" in data["defaults"] else merged(found, own)


def _read(file: Path, depth: int) -> dict[Any, Any]:
    try:
        data, _ = yamls.parse_yaml(read_text(str(file)), str(file))
    except BadInput:
        note(f"defaults not read, as it is not valid YAML: {file}")
        return {}
    if not isinstance(data, dict):
        return {}
    return _with_defaults(data, file.parent, depth - 1) if isinstance(data.get("defaults"), list) else data


def _has_reference(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(_has_reference(each) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and "${" in value


def _resolved(value: Any, root: dict[Any, Any], depth: int) -> Any:
    """Return `value` with references replaced; one that cannot be resolved stays as text."""
    if isinstance(value, dict):
        return {key: _resolved(each, root, depth) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, root, depth) for each in value]
    whole = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if whole is None or depth <= 0:
        return value
    found = get(root, tuple(whole[1].split(".")))
    return value if found is None else _resolved(found, root, depth - 1)
