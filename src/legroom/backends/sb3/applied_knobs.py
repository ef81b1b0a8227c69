"""Turn the memory knobs of a run on its algorithm: activation checkpointing, bf16.

    model = with_knobs(PPO, run)("CnnPolicy", env)

They are turned right after the library has built networks and optimizers, so that no argument of the library changes
on the way: giving SB3 optimizer arguments, for instance, would silently replace its own (PPO's Adam has eps 1e-5). The
trained model, the hollow one that is traced and the small one that is measured are all made of the class returned here.
"""

from typing import Any

from legroom.backends.sb3.activation_checkpointing import checkpoint_activations
from legroom.backends.sb3.bf16 import run_in_bf16
from legroom.errors import BadInput
from legroom.model.run import MemorySpec, Run

_TURNED = ("activation_checkpointing", "bf16")


def with_knobs(algorithm: type, run: Run) -> type:
    """Return the algorithm with the run's knobs turned; the algorithm itself where the run turns none."""
    if not any(getattr(run.memory, name) is not None for name in _TURNED):
        return algorithm
    base: Any = algorithm
    memory = run.memory

    class Knobs(base):
        def _setup_model(self) -> None:
            super()._setup_model()
            turn_knobs(self, memory, run.source)

    return type(algorithm.__name__, (Knobs,), {"__module__": __name__, "__doc__": algorithm.__doc__})


def turn_knobs(model: Any, memory: MemorySpec, source: str | None = None) -> None:
    """Turn the knobs on a finished model.

    Raises:
        BadInput: a knob has nothing to turn in this policy.
    """
    if memory.activation_checkpointing and not checkpoint_activations(model.policy):
        raise BadInput(
            "memory.activation_checkpointing: the policy has no nn.Sequential of three or more layers to compute again",
            path=source,
            hint="remove it; containers with batch normalisation or dropout do not count",
        )
    if memory.bf16:
        run_in_bf16(model)
