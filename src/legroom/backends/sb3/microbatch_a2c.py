"""The update of A2C with its one gradient, that of the whole rollout, computed in pieces.

As PPO's (`microbatch_ppo`), with A2C's loss and one minibatch. Mirrors `A2C.train` (stable_baselines3/a2c/a2c.py,
2.9.2); a test pins its source.
"""

from functools import partial
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.utils import explained_variance
from torch.nn import functional

from legroom.backends.sb3.microbatch_parts import is_known, refuse_unknown_buffer, rollout_minibatches
from legroom.backends.sb3.microbatch_ppo import MicroBatchedPPO
from legroom.backends.sb3.update_retreat import Surviving
from legroom.device.exact_pieces import check_sizes, size_at

FIGURES = ("entropy_loss", "policy_loss", "value_loss")


class MicroBatchedA2C(MicroBatchedPPO):
    """A mixin before A2C; see `microbatch.microbatched`."""

    batch_size = None  # the whole rollout

    def train(self: Any) -> None:
        """Update the policy from the rollout, in micro-batches.

        Raises:
            BadInput: the size makes no sense, or pieces would not be exact with this policy or buffer.
        """
        check_sizes(self.micro_batch)
        if self.micro_batch is None and not (self.survives and is_known(self.rollout_buffer)):
            super(Surviving, self).train()  # type: ignore[misc]
            return
        refuse_unknown_buffer(self.rollout_buffer)
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        self._unwatched = True
        ((whole, parts),) = rollout_minibatches(self.rollout_buffer, self._whole())
        update = self._minibatches_done
        size = min(size_at(self.micro_batch, update) or len(whole), len(whole))
        add_gradients = partial(self._add_gradients, list(self.policy.parameters()), None, whole, parts)
        total = self._attempt(add_gradients, size, update)
        self._minibatches_done += 1
        self.policy.optimizer.step()
        self._n_updates += 1
        buffer, logger = self.rollout_buffer, self.logger
        logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        explained = explained_variance(buffer.values.flatten(), buffer.returns.flatten())
        logger.record("train/explained_variance", explained)
        for name, figure in zip(FIGURES, total.cpu().numpy().tolist(), strict=True):
            logger.record(f"train/{name}", figure)
        if hasattr(self.policy, "log_std"):
            logger.record("train/std", th.exp(self.policy.log_std).mean().item())

    def _normalized(self: Any, advantages: th.Tensor) -> th.Tensor:
        if self.normalize_advantage:  # a single one, too
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return advantages

    def _losses(self: Any, part: Any, advantages: th.Tensor, _: Any) -> tuple[th.Tensor, th.Tensor]:
        actions = part.actions
        if isinstance(self.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        values, log_prob, entropy = self.policy.evaluate_actions(part.observations, actions)
        values = values.flatten()
        policy_loss = -(advantages * log_prob).mean()
        value_loss = functional.mse_loss(part.returns, values)
        entropy_loss = -th.mean(-log_prob if entropy is None else entropy)
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        return loss, th.stack([entropy_loss, policy_loss, value_loss]).detach()
