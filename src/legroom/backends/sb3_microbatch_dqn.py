"""The update of DQN with the gradient of each minibatch computed in pieces.

The loss is a mean over the transitions sampled: each piece's mean counts by its share of them, gradients add up, and
clipping and the optimizer's step come once per gradient step. Transitions are drawn as SB3 draws them, all at once, and
gathered piece by piece.

Mirrors `DQN.train` (stable_baselines3/dqn/dqn.py, 2.9.2); a test pins its source.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch as th
from torch.nn import functional

from legroom.backends.sb3_microbatch_exact import MicroBatch, check_sizes, refuse_inexact, size_at, splits, watched
from legroom.backends.sb3_microbatch_parts import refuse_unknown_buffer, replay_parts


class MicroBatchedDQN:
    """A mixin before DQN; see `sb3_microbatch.microbatched`."""

    micro_batch: MicroBatch | None = None

    def _setup_model(self: Any) -> None:
        super()._setup_model()  # type: ignore[misc]
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
        if not splits(self.micro_batch, batch_size):
            super().train(gradient_steps, batch_size)  # type: ignore[misc]
            return
        sizes = [size_at(self.micro_batch, self._n_updates + step) or batch_size for step in range(gradient_steps)]
        self.policy.set_training_mode(True)
        unwatched = any(size < batch_size for size in sizes)
        if unwatched:
            refuse_inexact(self.policy, min(sizes))
        refuse_unknown_buffer(self.replay_buffer)
        self._update_learning_rate(self.policy.optimizer)
        losses = []
        for size in sizes:
            self.policy.optimizer.zero_grad()
            total: Any = None
            for part in replay_parts(self.replay_buffer, batch_size, size, self._vec_normalize_env):
                with watched(self.policy, self.device) if unwatched else nullcontext():
                    loss = self._loss(part)
                unwatched = False
                share = len(part.actions) / batch_size
                (loss * share).backward()
                total = loss.detach() * share if total is None else total + loss.detach() * share
                del part, loss  # the next part is made only when this one's memory is free
            losses.append(total.item())
            th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

    def _loss(self: Any, part: Any) -> th.Tensor:
        """Return the loss of one part, as if it were a minibatch."""
        discounts = part.discounts if part.discounts is not None else self.gamma
        with th.no_grad():
            next_q_values, _ = self.q_net_target(part.next_observations).max(dim=1)
            target_q_values = part.rewards + (1 - part.dones) * discounts * next_q_values.reshape(-1, 1)
        current_q_values = th.gather(self.q_net(part.observations), dim=1, index=part.actions.long())
        return functional.smooth_l1_loss(current_q_values, target_q_values)
