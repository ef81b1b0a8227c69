"""Exact micro-batching: SB3 algorithms whose update passes a minibatch through the network in pieces.

    model = with_micro_batch(PPO, 8)("CnnPolicy", env, batch_size=64)

What autograd keeps for the backward pass is most of an update's memory and grows with the samples in one pass, so eight
samples at a time need about an eighth. Unlike a smaller batch_size it does not change what is learned: the gradient is
that of the whole minibatch (`device.exact_pieces` says when), but for the order of its sums. In double precision a
whole `train()` ends within 1e-15 of SB3's; in single precision mostly within 1e-6. Large ReLU networks may exceed that:
once rounding puts a unit on the other side of zero, later steps magnify it, as they do when SB3 itself uses another
number of threads (`bench.microbatch` of eca25f63: both, and how much). It costs time only where small passes use the
processor badly.

DQN's loss is a mean over the transitions sampled: each piece's mean counts by its share of them, gradients add up, and
clipping and the optimizer's step come once per gradient step. Transitions are drawn as SB3 draws them, all at once, and
gathered piece by piece. How a minibatch is drawn and what its loss is are the algorithm's. Mirrors `DQN.train`
(stable_baselines3/dqn/dqn.py, 2.9.2); a test pins its source.

Only an algorithm whose `train` is mirrored here can have it. SAC's and TD3's updates are several coupled losses.
"""

import sys
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import A2C, DQN, PPO
from torch.nn import functional

from legroom import DoubleDQN
from legroom.backends.sb3.microbatch_parts import Parts, Surviving, is_known, refuse_unknown_buffer, replay_minibatch
from legroom.backends.sb3.microbatch_ppo import MicroBatchedA2C, MicroBatchedMaskablePPO, MicroBatchedPPO
from legroom.backends.sb3.stored import MICRO_BATCHED
from legroom.device.exact_pieces import MicroBatch, check_sizes, refuse_inexact, size_at, splits, watched
from legroom.errors import BadInput


class DQNInParts(Surviving):
    """The update of DQN and its relatives; `_draw`, `_loss` and `_learned` say what is drawn and learned."""

    def _setup_model(self: Any) -> None:
        super()._setup_model()  # type: ignore[safe-super]
        check_sizes(self.micro_batch)
        if splits(self.micro_batch, self.batch_size):
            refuse_inexact(self.policy, self.micro_batch)
            refuse_unknown_buffer(self.replay_buffer)

    def train(self: Any, gradient_steps: int, batch_size: int = 100) -> None:
        """Make gradient steps, each in micro-batches.

        Raises:
            BadInput: the size makes no sense, or pieces would not be exact with this policy or buffer.
        """
        check_sizes(self.micro_batch)
        if not splits(self.micro_batch, batch_size) and not (self.survives and is_known(self.replay_buffer)):
            super().train(gradient_steps, batch_size)  # type: ignore[misc]
            return
        refuse_unknown_buffer(self.replay_buffer)
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        self._unwatched = True
        losses = []
        for step in range(gradient_steps):
            update = self._n_updates + step
            size = min(size_at(self.micro_batch, update) or batch_size, batch_size)
            parts = self._draw(batch_size)
            loss = self._attempt(partial(self._add_gradients, parts, batch_size), size, update)
            losses.append(loss.item())
            self.policy.optimizer.step()
            self._learned(parts)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def _add_gradients(self: Any, parts: Parts, batch_size: int, size: int) -> th.Tensor:
        """Leave the clipped gradient of a whole minibatch in the parameters and return its loss."""
        watching = self._unwatched and size < batch_size
        if watching:
            refuse_inexact(self.policy, size)
        self.policy.optimizer.zero_grad()
        total: th.Tensor | None = None
        for part in parts(size):
            with watched(self.policy, self.device) if watching else nullcontext():
                loss = self._loss(part)
            if watching:
                self._unwatched = watching = False
            share = len(part.actions) / batch_size
            if share < 1:
                loss = loss * share
            loss.backward()
            total = loss.detach() if total is None else total + loss.detach()
            del part, loss  # the next part is made only when this one's memory is free
        th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        assert total is not None, "a minibatch has samples"
        return total


class MicroBatchedDQN(DQNInParts):
    """A mixin before DQN; see `microbatch.microbatched`."""

    def _draw(self: Any, batch_size: int) -> Parts:
        return replay_minibatch(self.replay_buffer, batch_size, self._vec_normalize_env)

    def _learned(self: Any, parts: Parts) -> None:
        pass

    def _loss(self: Any, part: Any) -> th.Tensor:
        """Return the loss of one part, as if it were a minibatch."""
        discounts = part.discounts if part.discounts is not None else self.gamma
        with th.no_grad():
            next_q_values, _ = self.q_net_target(part.next_observations).max(dim=1)
            target_q_values = part.rewards + (1 - part.dones) * discounts * next_q_values.reshape(-1, 1)
        current_q_values = th.gather(self.q_net(part.observations), dim=1, index=part.actions.long())
        return functional.smooth_l1_loss(current_q_values, target_q_values)


class MicroBatchedDoubleDQN(DQNInParts):
    """A mixin before `DoubleDQN`, which brings its own loss and its own way of drawing."""

    def _draw_uniformly(self: Any, batch_size: int) -> Parts:
        return replay_minibatch(self.replay_buffer, batch_size, self._vec_normalize_env)


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
