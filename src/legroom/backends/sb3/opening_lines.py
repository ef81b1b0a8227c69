"""What a training says of itself once its networks are where they will be trained: which they are, what they take.

On a GPU: its size, what is free of it, and what PyTorch's allocator has by now; on the CPU the process's own memory.
The same lines whatever the run, so that a log tells which of several variants was trained.
"""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from legroom.backends.sb3.measured_items import trained_parameters
from legroom.machine.tree import process_memory
from legroom.model.run import Run
from legroom.units import format_size


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
