"""The reference of run files, from their JSON schema (what `legroom schema` prints)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from docs.generators.markdown import table

from legroom.model.run import Run
from legroom.units import LARGEST

SECTIONS = {
    "env": "EnvSpec", "env.spaces": "Spaces", "policy": "PolicySpec", "memory": "MemorySpec", "eval": "EvalSpec",
    "checkpoint": "CheckpointSpec",
}  # fmt: skip
SPACES = ("BoxSpace", "DiscreteSpace", "MultiDiscreteSpace", "MultiBinarySpace", "DictSpace")


def pages() -> Mapping[str, str]:
    schema = _schema()
    parts = [
        "# Run file\n",
        "YAML, read and never executed. Only `algo` and `env` are needed. Every key can be changed on the way with "
        "`--set KEY=VALUE`; keys of `env` and `hyperparams` also by their own name, `--n-envs 2`.\n",
        "```{literalinclude} ../files/run.yaml\n:language: yaml\n```\n",
        "For editors: `legroom schema > run.schema.json`, which this page is made from.\n",
        "## The whole\n",
        _properties(schema, skip=("source",)),
    ]
    for section, name in SECTIONS.items():
        spec = schema["$defs"][name]
        parts += [f"## {section}\n", spec.get("description", "") + "\n", _properties(spec)]
    parts += ["## Spaces\n"]
    for name in SPACES:
        spec = schema["$defs"][name]
        kind = spec["properties"]["type"]["const"]
        parts += [f"### type: {kind}\n", spec.get("description", "") + "\n", _properties(spec, skip=("type",))]
    parts.append(
        "## hyperparams\n\nThe algorithm's own, by the names of its library: `n_steps`, `batch_size`, `buffer_size`, "
        "`learning_rate` … for Stable-Baselines3, `num_envs`, `num_minibatches`, `unroll_length` … for brax. A name "
        "that the algorithm does not have is an error, with the closest one that it has.\n"
    )
    return {"run_file.md": "\n".join(parts)}


@cache
def _schema() -> dict[str, Any]:
    return Run.model_json_schema()


def described(key: str) -> str:
    """Return what the schema says of a key (`memory.bf16`): type, default and description; nothing if it has none."""
    section, _, name = key.rpartition(".")
    spec = _schema()["$defs"].get(SECTIONS.get(section, ""), {}).get("properties", {}).get(name)
    if spec is None:
        return ""
    says = f"; {spec['description']}" if "description" in spec else ""
    return f"`{key}`, {_type(spec)}, default {_default(spec)}{says}."


def _properties(spec: Mapping[str, Any], skip: tuple[str, ...] = ()) -> str:
    needed = spec.get("required", ())
    rows = [
        (f"`{name}`", _type(each), "needed" if name in needed else _default(each), each.get("description", ""))
        for name, each in spec["properties"].items()
        if name not in skip
    ]
    return table(["key", "value", "default", "what"], rows)


def _default(spec: Mapping[str, Any]) -> str:
    value = spec.get("default")
    if value is None:
        return "none"
    if isinstance(value, dict):
        return "none of it given"
    return f"`{str(value).lower() if isinstance(value, bool) else value!r}`".replace("'", "")


def _type(spec: Mapping[str, Any]) -> str:
    """Return a property's type in words."""
    if "anyOf" in spec or "oneOf" in spec:
        options = [each for each in spec.get("anyOf", spec.get("oneOf")) if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(_type(each) for each in options))
    if "$ref" in spec:
        name = spec["$ref"].rsplit("/", 1)[-1]
        return "a space" if name.endswith("Space") else f"see [{_section(name)}](#{_section(name).replace('.', '-')})"
    if "enum" in spec:
        return ", ".join(f"`{each}`" for each in spec["enum"])
    if "const" in spec:
        return f"`{spec['const']}`"
    if spec.get("type") == "array":
        return f"list of {_type(spec['items'])}" if "items" in spec else "list"
    return _plain(spec)


def _plain(spec: Mapping[str, Any]) -> str:
    words = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "yes or no",
        "object": "mapping",
    }
    kind = words.get(str(spec.get("type")), "anything")
    low, high = spec.get("minimum"), spec.get("maximum")
    if low is not None and high is not None and high < LARGEST:
        return f"{kind}, {low:,} to {high:,}"
    return f"{kind}, at least {low:,}" if low is not None else kind


def _section(name: str) -> str:
    return next((section for section, spec in SECTIONS.items() if spec == name), name)
