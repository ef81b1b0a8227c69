"""PPO's update as SB3 makes it, on RLlib's learner.

Three things differ in RLlib and are put right where they are decided: advantages are standardised in every minibatch
and not only over the rollout (standardising twice is the same as doing it last), Adam's epsilon is 1e-5, and an
iteration ends its updates once the policy has moved by 1.5 x target_kl.

Mirrors PPO.train of stable-baselines3 2.9 on PPOTorchLearner of ray 2.60.
"""

from typing import Any

import torch
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing

ADAM_EPS = 1e-5


class Sb3PPOLearner(PPOTorchLearner):
    """RLlib's PPO with SB3's minibatches; reads `legroom` from the config's `learner_config_dict`."""

    def build(self) -> None:
        super().build()
        self._target_kl = self.config.learner_config_dict.get("target_kl")
        self._standardise = self.config.learner_config_dict.get("normalize_advantage", True)
        self._moved_enough = False

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        params = self.get_parameters(self.module[module_id])
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(params, eps=ADAM_EPS),
            params=params,
            lr_or_lr_schedule=config.lr,
        )

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        super().before_gradient_based_update(timesteps=timesteps)
        self._moved_enough = False

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict[str, Any], fwd_out: Any) -> Any:
        mask = batch.get(Columns.LOSS_MASK)
        advantages = batch[Postprocessing.ADVANTAGES]
        counted = advantages if mask is None else advantages[mask]
        if self._standardise and len(counted) > 1:
            standard = (advantages - counted.mean()) / (counted.std() + 1e-8)
            batch = {**batch, Postprocessing.ADVANTAGES: standard}
        if self._target_kl is not None and not self._moved_enough:
            self._moved_enough = self._approximate_kl(module_id, batch, fwd_out, mask) > 1.5 * self._target_kl
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)

    def apply_gradients(self, gradients_dict: dict[Any, Any]) -> None:
        if not self._moved_enough:
            super().apply_gradients(gradients_dict)

    @torch.no_grad()
    def _approximate_kl(self, module_id: str, batch: dict[str, Any], fwd_out: Any, mask: Any) -> float:
        """Return SB3's estimate of how far the policy is from the one that collected the rollout."""
        actions = self.module[module_id].unwrapped().get_train_action_dist_cls()
        log_ratio = (
            actions.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS]).logp(batch[Columns.ACTIONS])
            - batch[Columns.ACTION_LOGP]
        )
        log_ratio = log_ratio if mask is None else log_ratio[mask]
        return float(torch.mean(torch.exp(log_ratio) - 1 - log_ratio))
