"""Every source of random numbers that training draws from, as plain data, and back.

torch on the host and on every GPU, NumPy's global generator (SB3's buffers draw from it), Python's own, and the
generator of the action space (the random actions before learning starts). An environment's own is in its state.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from legroom.backends.sb3.state_torch import to_array, to_tensor
from legroom.errors import BadInput


def capture_random(action_space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the states of all generators."""
    version, numbers, gauss = random.getstate()
    uses_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
    return {
        "torch": to_array(torch.get_rng_state()),
        "cuda": [to_array(state) for state in torch.cuda.get_rng_state_all()] if uses_gpu else [],
        "numpy": np.random.get_state(legacy=False),
        "python": {"version": version, "numbers": np.array(numbers, np.uint32), "gauss": gauss},
        "action_space": _generator_state(action_space),
    }


def restore_random(state: Mapping[str, Any], action_space: spaces.Space[Any]) -> None:
    """Continue all generators from where they were.

    Raises:
        BadInput: the states are of other generators.
    """
    try:
        torch.set_rng_state(to_tensor(state["torch"]))
        if torch.cuda.is_available():
            for device, numbers in enumerate(state["cuda"][: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(to_tensor(numbers), device)
        np.random.set_state(state["numpy"])
        python = state["python"]
        random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
        if state["action_space"] is not None:
            action_space.np_random.bit_generator.state = state["action_space"]
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise BadInput(f"a checkpoint's random generators are not the ones here: {error}") from error


def _generator_state(space: spaces.Space[Any]) -> Any:
    generator = space._np_random  # asking for `np_random` would make one
    return None if generator is None else generator.bit_generator.state
