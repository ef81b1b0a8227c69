"""What can be turned of a run on the page: every setting that it has, with its range, its default and its price.

The list follows from the tables that everything else uses: the constructor's defaults in `model.facts`, the keys
of `MemorySpec`, and the knobs with their prices. A new hyperparameter or knob is on the page without a line here.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from legroom.backends.base import Backend, algorithm_of, backend_of, knob_named
from legroom.model.facts import Algorithm
from legroom.model.run import EnvSpec, EvalSpec, MemorySpec, Run
from legroom.model.spaces import BoxSpace
from legroom.named_runs import workload_of
from legroom.reading.known_spaces import find_spaces

Control = dict[str, Any]
# the last stop of a slider; a field beside it takes any number
LAST_STOPS = {
    "env.n_envs": 1024, "env.envs_per_worker": 64, "env.frame_stack": 16, "hyperparams.n_steps": 65_536,
    "hyperparams.batch_size": 65_536, "hyperparams.buffer_size": 10_000_000, "hyperparams.unroll_length": 128,
    "hyperparams.num_minibatches": 128, "hyperparams.max_replay_size": 10_000_000, "hyperparams.n_epochs": 64,
    "memory.micro_batch": 4096, "eval.n_envs": 256,
}  # fmt: skip
MEMORY_DEPENDS_ON = (
    "n_steps", "batch_size", "buffer_size", "n_epochs", "optimize_memory_usage", "unroll_length", "num_minibatches",
    "max_replay_size", "num_updates_per_batch", "grad_updates_per_step", "gradient_steps", "train_freq",
)  # fmt: skip
ON_GPU_ONLY = ("expandable_segments",)
STEPS_OF_RETURNS = "n-step returns"
SIZES = ("memory.max_bytes",)


def controls_of(run: Run) -> list[dict[str, Any]]:
    """Return the groups of controls of this run, each with a name and its controls."""
    algorithm = algorithm_of(run)
    about_memory: list[Control] = []
    others: list[Control] = []
    for control in _hyperparameters(run, algorithm):
        name = control["key"].partition(".")[2]
        (about_memory if name in MEMORY_DEPENDS_ON else others).append(control)
    about_memory.sort(key=lambda control: MEMORY_DEPENDS_ON.index(control["key"].partition(".")[2]))
    backend = backend_of(run)
    other_buffer = "memory.replay" if algorithm.family == "on-policy" else "memory.rollout"
    offered = [key for key in backend.fitter.settings if key != other_buffer]
    groups = {
        "Observations": [*_observations(run)],
        "Environments": [*_environments(backend, offered)],
        "Collecting and updating": about_memory,
        "Network": [
            _control(f"policy.kwargs.{name}", label, "widths")
            for name, label in backend.fitter.layers.items()
            if isinstance(run.policy.kwargs.get(name, [] if len(backend.fitter.layers) == 1 else None), list | tuple)
        ],
        "Memory": [*_memory(offered)],
        "Evaluation and checkpoints": [*_around(offered)],
        "Further hyperparameters": others,
    }
    return [
        {"name": name, "controls": [control | _priced(control, backend) for control in found]}
        for name, found in groups.items()
        if found
    ]


def control_by_key(run: Run) -> dict[str, Control]:
    """Return the controls of a run by the key they turn."""
    return {control["key"]: control for group in controls_of(run) for control in group["controls"]}


def _observations(run: Run) -> Iterator[Control]:
    """Yield what an environment of the user's own observes, where the run itself says it."""
    declared = run.env.spaces
    if declared is None or not isinstance(declared.observation, BoxSpace):
        return
    if find_spaces(run.env.id or "") is None and workload_of(run) is None:
        yield _control("env.spaces.observation.shape", "observation shape", "widths")
        types = ["float32", "uint8", "float64", "int64"]
        yield _control("env.spaces.observation.dtype", "observation type", "choice", "float32", choices=types)


def _environments(backend: Backend, offered: Container[str]) -> Iterator[Control]:
    yield _count("env.n_envs", "environments", 1, last=backend.fitter.last_stops.get("env.n_envs"))
    if "env.workers" in offered:
        yield _control("env.workers", "workers", "choice", "dummy", choices=_choices(EnvSpec, "workers"))
    if "env.envs_per_worker" in offered:
        yield _count("env.envs_per_worker", "environments per worker", 1)
    if "env.frame_stack" in offered:
        yield _count("env.frame_stack", "frames stacked")


def _around(offered: Container[str]) -> Iterator[Control]:
    yield _count("eval.n_envs", "evaluation environments")
    if "eval.workers" in offered:
        yield _control("eval.workers", "evaluation workers", "choice", choices=_choices(EvalSpec, "workers"))
    if "checkpoint.replay_buffer" in offered:
        yield _control("checkpoint.replay_buffer", "replay buffer in checkpoints", "flag")
    yield _control("total_timesteps", "total timesteps", "number", whole=True)


def _hyperparameters(run: Run, algorithm: Algorithm) -> Iterator[Control]:
    for name, default in algorithm.defaults.items():
        key, label = f"hyperparams.{name}", name.replace("_", " ")
        given = run.hyperparams.get(name, default)
        if isinstance(default, bool):
            yield _control(key, label, "flag", default)
        elif name.endswith(("_class", "_kwargs")) or name in ("action_noise",):
            continue  # classes and what they are made with: no setting that one turns
        elif name == "n_steps" and algorithm.family == "off-policy":  # of returns, not of a rollout
            yield _control(key, STEPS_OF_RETURNS, "number", default, whole=True)
        elif key in LAST_STOPS:
            yield _count(key, label, default)
        elif isinstance(given, str) or isinstance(default, str):
            yield _control(key, label, "text", default)
        elif isinstance(given, list | dict | tuple):
            continue  # (`train_freq: [1, episode]`) stays as the file says it
        else:
            yield _control(key, label, "number", default, whole=isinstance(default, int))


def _memory(offered: Container[str]) -> Iterator[Control]:
    hints = get_type_hints(MemorySpec, localns={"tuple": tuple})
    for name in (field.name for field in fields(MemorySpec)):
        key, label, hint = f"memory.{name}", name.replace("_", " "), hints[name]
        choices = _literals(hint)
        if key not in offered:
            continue
        if choices:
            yield _control(key, label, "choice", choices=choices)
        elif bool in get_args(hint):
            yield _control(key, label, "flag")
        elif key in SIZES:
            yield _control(key, "limit of lean storage", "size")
        elif key in LAST_STOPS:
            yield _count(key, label)
        else:
            yield _control(key, label, "number", whole=True)


def _literals(hint: Any) -> list[str]:
    return [value for part in (hint, *get_args(hint)) if get_origin(part) is Literal for value in get_args(part)]


def _choices(cls: Any, name: str) -> list[str]:
    return _literals(get_type_hints(cls)[name])


def _control(key: str, label: str, kind: str, default: Any = None, **more: Any) -> Control:
    return {"key": key, "label": label, "kind": kind, "default": default, **more}


def _count(key: str, label: str, default: Any = None, *, last: int | None = None) -> Control:
    return _control(key, label, "count", default, stops=_stops(last or LAST_STOPS[key]))


def _stops(last: int) -> list[int]:
    """Return where a slider stops: powers of two and the numbers half-way, or 1, 2, 5, 10 … for large buffers."""
    if last >= 1_000_000:
        return [m * 10**e for e in range(3, 8) for m in (1, 2, 5) if m * 10**e <= last]
    stops = {2**e for e in range(20)} | {3 * 2**e for e in range(19)}
    return sorted(stop for stop in stops if stop <= last)


def _priced(control: Control, backend: Backend) -> Control:
    """Return price and sentence of the knob that turns this control; what only a probe could call free is slower."""
    knob = knob_named(control["key"], backend) if control["label"] != STEPS_OF_RETURNS else None
    on_gpu = {"gpu_only": True} if control["key"].partition(".")[2] in ON_GPU_ONLY else {}
    return ({} if knob is None else {"price": knob.unprobed_price, "say": knob.say}) | on_gpu


def turned_settings(run: Run, data: Any) -> Iterator[tuple[str, str]]:
    """Yield key and value of every setting of the run that was turned in the data."""
    before = run.model_dump(exclude_defaults=True)
    for key, control in control_by_key(run).items():
        value = _at(data, key)
        if value != _at(before, key) and _is_plain(value, control):
            yield key, json.dumps(value)


def _at(data: Any, key: str) -> Any:
    for name in key.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def _is_plain(value: Any, control: Mapping[str, Any]) -> bool:
    """Whether it is made of numbers, truths and words that the control has."""
    known = (None, *control.get("choices", ()))
    values = value if isinstance(value, list) else [value]
    return all(isinstance(each, int | float) or each in known for each in values)
