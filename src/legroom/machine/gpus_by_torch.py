"""The GPUs as torch sees them, where NVML shows none: no `nvidia-ml-py`, or a container that hides the driver's files.

Asked in a process of its own, since importing torch and making a CUDA context takes seconds and hundreds of megabytes:
only by a command that is about to train, and only where torch is a CUDA build.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

from legroom.model.machine import Gpu, Machine

TIMEOUT_S = 120.0
_ASK = """
import json, torch
cards = []
for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    about = torch.cuda.get_device_properties(number)
    free, total = torch.cuda.mem_get_info(number)
    cards.append([about.name, total, free, about.major, about.minor])
print(json.dumps(cards))
"""


def with_gpus_by_torch(machine: Machine) -> Machine:
    """Return the machine with the GPUs that torch finds, as it is where some are known or torch is for CPUs."""
    if machine.gpus or "+cu" not in machine.versions.get("torch", ""):
        return machine
    return replace(machine, gpus=_ask_torch())


def _ask_torch() -> tuple[Gpu, ...]:
    command = [sys.executable, "-P", "-c", _ASK]
    try:
        said = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True, stdin=subprocess.DEVNULL)
        cards = json.loads(said.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):  # a driver that is too old, a card that fell off the bus
        return ()
    return tuple(Gpu(name, total, free, (major, minor)) for name, total, free, major, minor in cards)
