"""What a finished training really held, by the names of the bill's items: only what can be told apart from the rest."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from legroom.machine.tree import descendants, process_memory
from legroom.model.run import Run
from legroom.storing.column import Column
from legroom.storing.ring import Ring
from legroom.units import format_size


def measured_items(model: BaseAlgorithm, env: VecEnv) -> dict[str, int]:
    """Return bytes by item name, as `predicting` names them; `workers` is the private memory of all of them."""
    items: dict[str, int] = {}
    for prefix, buffer in (("rollout", "rollout_buffer"), ("replay", "replay_buffer")):
        if getattr(model, buffer, None) is not None:
            items |= _observations(prefix, getattr(model, buffer))
    place = "gpu" if model.device.type == "cuda" else "network"
    items[f"{place}.weights"] = _nbytes(trained_parameters(model))  # target networks are an item of their own
    states = [
        value for optimizer in _optimizers(model) for state in optimizer.state.values() for value in state.values()
    ]
    items[f"{place}.optimizer"] = _nbytes(value for value in states if isinstance(value, torch.Tensor))
    workers = [process_memory(pid) for pid in descendants(os.getpid())[1:]]
    if workers:
        items["workers"] = sum(worker.uss for worker in workers if worker is not None)
    return items


def trained_parameters(model: BaseAlgorithm) -> list[torch.Tensor]:
    """Return the parameters that an optimizer changes."""
    return [p for optimizer in _optimizers(model) for group in optimizer.param_groups for p in group["params"]]


def _observations(prefix: str, buffer: Any) -> dict[str, int]:
    stored = {"observations": buffer.observations, "next_observations": getattr(buffer, "next_observations", None)}
    items: dict[str, int] = {}
    rows = buffer.size() if prefix == "replay" else buffer.buffer_size  # memory is there once it has been written to
    for name, values in stored.items():
        parts = values if isinstance(values, dict) else {"": values}
        for key, part in parts.items():
            label = f"{prefix}.{name}[{key}]" if key else f"{prefix}.{name}"
            if isinstance(part, Column | Ring):
                purposes = part.breakdown()
                if decoded := purposes.pop("decoded", 0):  # an item of its own in the bill
                    items[f"{prefix}.decoded copy"] = items.get(f"{prefix}.decoded copy", 0) + decoded
                items[label] = sum(size for purpose, size in purposes.items() if purpose != "spilled")
            elif isinstance(part, np.ndarray):
                items[label] = part.nbytes * rows // buffer.buffer_size
    return items


def _optimizers(model: BaseAlgorithm) -> list[torch.optim.Optimizer]:
    owners: list[Any] = [model.policy, getattr(model, "actor", None), getattr(model, "critic", None)]
    found = {id(o.optimizer): o.optimizer for o in owners if getattr(o, "optimizer", None) is not None}
    return list(found.values())


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def opening_lines(run: Run, model: BaseAlgorithm) -> list[str]:
    """Return the lines with which a training begins."""
    parameters = sum(parameter.numel() for parameter in trained_parameters(model))
    networks = f"networks: {architecture(run)}, {parameters:,} parameters"
    if model.device.type != "cuda":
        memory = process_memory("self")
        return [networks + (f"; host memory {format_size(memory.pss)}" if memory is not None else "")]
    about = torch.cuda.get_device_properties(model.device)
    free, total = torch.cuda.mem_get_info(model.device)
    return [
        f"GPU memory at the start: {format_size(total)} on a {about.name}, {format_size(free)} free",
        f"{networks}; GPU memory {gpu_memory(model)}",
    ]


def cleaned_line(model: BaseAlgorithm) -> str | None:
    """Give back what PyTorch's allocator only keeps, and return what then is left; None without a GPU."""
    if model.device.type != "cuda":
        return None
    before = torch.cuda.memory_reserved(model.device)
    torch.cuda.empty_cache()
    return f"GPU memory after cleanup: {gpu_memory(model)}, {format_size(before)} before"


def gpu_memory(model: BaseAlgorithm) -> str:
    """Return what PyTorch's allocator has handed out and holds, as text."""
    allocated, reserved = torch.cuda.memory_allocated(model.device), torch.cuda.memory_reserved(model.device)
    return f"{format_size(allocated)} allocated, {format_size(reserved)} reserved"


def architecture(run: Run) -> str:
    """Return what a run's networks are called: the extractor and its switches, or the policy.

    Switches are arguments that are on or off: `FireNet (residual only)` has others, which are off.
    """
    extractor = run.policy.features_extractor
    if extractor is None:
        return run.policy.name
    name = extractor.rpartition(":")[2].rpartition(".")[2]
    arguments: dict[str, Any] = dict(run.policy.features_extractor_kwargs)
    switches = {key: value for key, value in arguments.items() if isinstance(value, bool)}
    others = [f"{key}={value}" for key, value in arguments.items() if key not in switches]
    on = [key for key, value in switches.items() if value]
    said = [" and ".join([", ".join(on[:-1]), on[-1]] if len(on) > 1 else on)] if on else []
    if switches:
        said = [f"{said[0]} only"] if on and len(on) < len(switches) else said or [f"without {', '.join(switches)}"]
    return f"{name} ({'; '.join([*said, *others])})" if said or others else name
