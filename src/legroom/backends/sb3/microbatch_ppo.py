"""The update of PPO, MaskablePPO and A2C with the gradient of each minibatch computed in pieces.

Every mean that SB3 takes is over the whole minibatch here, too: advantages are normalised before the first piece, each
piece's loss is SB3's own formula weighted by the piece's share of the minibatch, gradients add up, and clipping and the
optimizer's step come once, after the last. What is learned differs from SB3's by the rounding of sums; with pieces as
large as the minibatch, not at all. A2C's one minibatch is the whole rollout.

Mirrors `PPO.train` (stable_baselines3/ppo/ppo.py, 2.9.2), `MaskablePPO.train` (sb3_contrib/ppo_mask/ppo_mask.py,
2.9.2) and `A2C.train` (stable_baselines3/a2c/a2c.py, 2.9.2); a test pins their source.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.utils import explained_variance
from torch.nn import functional

from legroom.backends.sb3.microbatch_parts import Parts, Surviving, is_known, refuse_unknown_buffer, rollout_minibatches
from legroom.device.exact_pieces import check_sizes, refuse_inexact, size_at, splits, watched

# What an update reports of a minibatch, in the order of the tensor it is added up in.
FIGURES = ("policy_gradient_loss", "clip_fraction", "value_loss", "entropy_loss", "loss", "approx_kl")


@dataclass(frozen=True)
class _Clipping:
    ratio: float
    values: float | None


class MicroBatchedPPO(Surviving):
    """A mixin before PPO or MaskablePPO; see `microbatch.microbatched`."""

    masked = False
    _minibatches_done = 0  # in all rollouts together, which a schedule of micro-batches counts; checkpoints keep it
    update_at: dict[str, Any] | None = None  # how far an update is; set before train(), that goes on from there
    between_minibatches: Callable[[], None] | None = None  # called where `update_at` and the model say all

    def _setup_model(self: Any) -> None:
        super()._setup_model()  # type: ignore[safe-super]
        check_sizes(self.micro_batch)
        if splits(self.micro_batch, self._whole()):
            refuse_inexact(self.policy, self.micro_batch)
            refuse_unknown_buffer(self.rollout_buffer)

    def train(self: Any) -> None:
        """Update the policy from the rollout, in micro-batches.

        Raises:
            BadInput: the size makes no sense, or pieces would not be exact with this policy or buffer.
        """
        check_sizes(self.micro_batch)
        if self.micro_batch is None and not (self.survives and is_known(self.rollout_buffer)):
            super().train()  # type: ignore[misc]
            return
        refuse_unknown_buffer(self.rollout_buffer)
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clipping = _Clipping(
            self.clip_range(self._current_progress_remaining),
            None if self.clip_range_vf is None else self.clip_range_vf(self._current_progress_remaining),
        )
        at = self.update_at = self.update_at or {"epoch": 0, "minibatch": 0, "figures": [], "in_epoch": 0}
        figures: list[dict[str, float]] = at["figures"]
        continue_training = self._unwatched = True
        add_gradients = partial(self._add_gradients, list(self.policy.parameters()), clipping)
        for epoch in range(at["epoch"], self.n_epochs):
            for whole, parts in self._minibatches_from(at):
                if self.between_minibatches is not None:
                    self.between_minibatches()
                update = self._minibatches_done
                size = min(size_at(self.micro_batch, update) or len(whole), len(whole))
                total = self._attempt(partial(add_gradients, whole, parts), size, update)
                self._minibatches_done += 1
                # one wait for the device per minibatch
                figures.append(dict(zip(FIGURES, total.cpu().numpy().tolist(), strict=True)))
                approx_kl = figures[-1]["approx_kl"]
                if self.target_kl is not None and approx_kl > 1.5 * self.target_kl:
                    continue_training = False
                    if self.verbose >= 1:
                        print(f"Early stopping at step {epoch} due to reaching max kl: {approx_kl:.2f}")  # noqa: T201
                    break  # what was added up is dropped: the next minibatch begins without gradients
                self.policy.optimizer.step()
                at["minibatch"] += 1
            self._n_updates += 1
            at |= {"epoch": epoch + 1, "minibatch": 0}
            del at["random"]
            if not continue_training:
                break
        del self.update_at
        self._log(figures, at["in_epoch"], clipping)

    def _minibatches_from(self: Any, at: dict[str, Any]) -> Iterator[tuple[np.ndarray, Parts]]:
        """Yield the minibatches of an epoch that are left; how they are drawn is kept, and they are drawn again."""
        drawn, now = "random" in at, np.random.get_state(legacy=False)
        if drawn:
            np.random.set_state(at["random"])
        else:
            at |= {"random": now, "in_epoch": len(at["figures"])}
        for number, minibatch in enumerate(rollout_minibatches(self.rollout_buffer, self._whole())):
            if drawn and number == 0:
                np.random.set_state(now)
            if number >= at["minibatch"]:
                yield minibatch

    def _whole(self: Any) -> int:
        """Return the samples in a minibatch; sb3-contrib takes None for a whole rollout."""
        return int(self.batch_size or self.n_steps * self.n_envs)

    def _add_gradients(
        self: Any,
        parameters: Iterable[th.nn.Parameter],
        clipping: _Clipping | None,
        whole: np.ndarray,
        parts: Parts,
        size: int,
    ) -> th.Tensor:
        """Leave the clipped gradient of a whole minibatch in the parameters and return what SB3 would report of it."""
        in_pieces = size < len(whole)
        watching = self._unwatched and in_pieces
        if watching:
            refuse_inexact(self.policy, size)
        buffer = self.rollout_buffer
        advantages = (
            self._normalized(buffer.to_torch(buffer.advantages[whole].flatten())) if in_pieces else None
        )  # a whole minibatch has them itself
        self.policy.optimizer.zero_grad()
        total: th.Tensor | None = None
        done = 0
        for part in parts(size):
            count = len(part.actions)
            mine = self._normalized(part.advantages) if advantages is None else advantages[done : done + count]
            with watched(self.policy, self.device) if watching else nullcontext():
                loss, figures = self._losses(part, mine, clipping)
            if watching:
                self._unwatched = watching = False
            if in_pieces:
                share = count / len(whole)
                (loss * share).backward()
                figures = figures * share
            else:
                loss.backward()
            total = figures if total is None else total + figures
            done += count
            del part, loss, figures, mine  # the next part is made only when this one's memory is free
        th.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        assert total is not None, "a minibatch has samples"
        return total

    def _normalized(self: Any, advantages: th.Tensor) -> th.Tensor:
        """Return the advantages of a whole minibatch as SB3 uses them."""
        if self.normalize_advantage and (
            self.masked or len(advantages) > 1
        ):  # sb3-contrib normalises a single one, too
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return advantages

    def _losses(self: Any, part: Any, advantages: th.Tensor, clipping: _Clipping) -> tuple[th.Tensor, th.Tensor]:
        """Return the loss of one part, as if it were a minibatch, and its figures."""
        actions = part.actions
        if isinstance(self.action_space, spaces.Discrete):
            actions = part.actions.long().flatten()
        masks = {"action_masks": part.action_masks} if self.masked else {}
        values, log_prob, entropy = self.policy.evaluate_actions(part.observations, actions, **masks)
        values = values.flatten()
        ratio = th.exp(log_prob - part.old_log_prob)
        policy_loss_1 = advantages * ratio
        policy_loss_2 = advantages * th.clamp(ratio, 1 - clipping.ratio, 1 + clipping.ratio)
        policy_loss = -th.min(policy_loss_1, policy_loss_2).mean()
        if clipping.values is not None:
            values = part.old_values + th.clamp(values - part.old_values, -clipping.values, clipping.values)
        value_loss = functional.mse_loss(part.returns, values)
        entropy_loss = -th.mean(-log_prob if entropy is None else entropy)
        loss = policy_loss + self.ent_coef * entropy_loss + self.vf_coef * value_loss
        with th.no_grad():
            clip_fraction = th.mean((th.abs(ratio - 1) > clipping.ratio).float())
            log_ratio = log_prob - part.old_log_prob
            approx_kl = th.mean((th.exp(log_ratio) - 1) - log_ratio)
            figures = th.stack([policy_loss, clip_fraction, value_loss, entropy_loss, loss, approx_kl])
        return loss, figures

    def _log(self: Any, figures: list[dict[str, float]], in_epoch: int, clipping: _Clipping) -> None:
        """Record what SB3 records, in its order.

        Args:
            in_epoch: where in `figures` the last epoch begins; SB3 reports the divergence of that one only.
        """
        buffer = self.rollout_buffer
        for name in ("entropy_loss", "policy_gradient_loss", "value_loss"):
            self.logger.record(f"train/{name}", np.mean([each[name] for each in figures]))
        divergences = np.array([each["approx_kl"] for each in figures[in_epoch:]], np.float32)
        self.logger.record("train/approx_kl", np.mean(divergences))
        self.logger.record("train/clip_fraction", np.mean([each["clip_fraction"] for each in figures]))
        self.logger.record("train/loss", figures[-1]["loss"])
        explained = explained_variance(buffer.values.flatten(), buffer.returns.flatten())
        self.logger.record("train/explained_variance", explained)
        if not self.masked and hasattr(self.policy, "log_std"):
            self.logger.record("train/std", th.exp(self.policy.log_std).mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/clip_range", clipping.ratio)
        if clipping.values is not None:
            self.logger.record("train/clip_range_vf", clipping.values)


class MicroBatchedMaskablePPO(MicroBatchedPPO):
    """The same before MaskablePPO."""

    masked = True


A2C_FIGURES = ("entropy_loss", "policy_loss", "value_loss")


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
        for name, figure in zip(A2C_FIGURES, total.cpu().numpy().tolist(), strict=True):
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
