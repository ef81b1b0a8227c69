"""Exact micro-batching: SB3 algorithms whose update passes a minibatch through the network in pieces.

    model = with_micro_batch(PPO, 8)("CnnPolicy", env, batch_size=64)

What autograd keeps for the backward pass is most of an update's memory and grows with the samples in one pass, so eight
samples at a time need about an eighth. Unlike a smaller batch_size it does not change what is learned: the gradient is
that of the whole minibatch (`device.exact_pieces` says when), but for the order of its sums. In double precision a
whole `train()` ends within 1e-15 of SB3's; in single precision mostly within 1e-6. Large ReLU networks may exceed that:
once rounding puts a unit on the other side of zero, later steps magnify it, as they do when SB3 itself uses another
number of threads (`bench.microbatch` of eca25f63: both, and how much). It costs time only where small passes use the
processor badly.

Only an algorithm whose `train` is mirrored here can have it. SAC's and TD3's updates are several coupled losses.
"""

import sys
from functools import cache

from stable_baselines3 import A2C, DQN, PPO

from legroom import DoubleDQN
from legroom.backends.sb3.microbatch_dqn import MicroBatchedDoubleDQN, MicroBatchedDQN
from legroom.backends.sb3.microbatch_ppo import MicroBatchedA2C, MicroBatchedMaskablePPO, MicroBatchedPPO
from legroom.backends.sb3.stored import MICRO_BATCHED
from legroom.device.exact_pieces import MicroBatch, check_sizes
from legroom.errors import BadInput

_MIXINS: dict[type, type] = {
    PPO: MicroBatchedPPO, A2C: MicroBatchedA2C, DQN: MicroBatchedDQN, DoubleDQN: MicroBatchedDoubleDQN,
}  # fmt: skip
_ALL_MIXINS = (*_MIXINS.values(), MicroBatchedMaskablePPO)


def _mixins() -> dict[type, type]:
    """Return the mixin by algorithm; sb3-contrib is not imported for it, nor need it be installed."""
    contrib = sys.modules.get("sb3_contrib.ppo_mask.ppo_mask")
    return _MIXINS | ({contrib.MaskablePPO: MicroBatchedMaskablePPO} if contrib is not None else {})


@cache
def microbatched(algorithm: type) -> type:
    """Return the algorithm with an attribute `micro_batch`: None, a size, or [[from_update, size], ...].

    `from_update` counts the minibatches learned from, over all rollouts and epochs, from 0; before the first one they
    are whole. The attribute may be set on the class or, before learning, on a model.

    Raises:
        BadInput: the algorithm's update is not one that is mirrored here.
    """
    if issubclass(algorithm, _ALL_MIXINS):
        return algorithm
    for base, mixin in _mixins().items():
        if issubclass(algorithm, base) and algorithm.train is base.train:  # type: ignore[attr-defined]
            name = f"MicroBatched{algorithm.__name__}"
            return type(name, (mixin, algorithm), {"__module__": __name__, "__doc__": mixin.__doc__})
    own = any(issubclass(algorithm, base) for base in _mixins())
    what = "has a train() of its own" if own else "has no micro_batch"
    raise BadInput(
        f"{algorithm.__name__} {what}: only {', '.join(MICRO_BATCHED)} compute a minibatch in pieces", hint="remove it"
    )


def with_micro_batch(algorithm: type, micro_batch: MicroBatch | None) -> type:
    """Return the algorithm with this micro-batch for all models made of it.

    Raises:
        BadInput: it does not support one, or `micro_batch` is not a size.
    """
    check_sizes(micro_batch)
    base = microbatched(algorithm)
    return type(base.__name__, (base,), {"__module__": __name__, "__doc__": base.__doc__, "micro_batch": micro_batch})


def surviving(algorithm: type, micro_batch: MicroBatch | None = None) -> type:
    """Return the algorithm whose update goes on in smaller pieces when memory runs out in it (`sb3_retreat`).

    Raises:
        BadInput: as `with_micro_batch`.
    """
    base = with_micro_batch(algorithm, micro_batch)
    return type(base.__name__, (base,), {"__module__": __name__, "__doc__": base.__doc__, "survives": True})


def can_survive(algorithm: type) -> bool:
    """Return whether the algorithm's update is one that is mirrored here."""
    return issubclass(algorithm, _ALL_MIXINS) or any(
        issubclass(algorithm, base) and algorithm.train is base.train  # type: ignore[attr-defined]
        for base in _mixins()
    )
