"""The update of DQN with the gradient of each minibatch computed in pieces.

The loss is a mean over the transitions sampled: each piece's mean counts by its share of them, gradients add up, and
clipping and the optimizer's step come once per gradient step. Transitions are drawn as SB3 draws them, all at once, and
gathered piece by piece.

How a minibatch is drawn and what its loss is are the algorithm's: SB3's for DQN, its own for `double_dqn`,
whose importance weights are those of the whole minibatch and whose priorities are set once it is complete.

Mirrors `DQN.train` (stable_baselines3/dqn/dqn.py, 2.9.2); a test pins its source.
"""

from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch as th
from torch.nn import functional

from legroom.backends.sb3.microbatch_parts import Parts, Surviving, is_known, refuse_unknown_buffer, replay_minibatch
from legroom.device.exact_pieces import check_sizes, refuse_inexact, size_at, splits, watched


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
