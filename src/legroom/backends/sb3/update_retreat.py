"""What the mirrored updates of SB3's algorithms do when memory runs out in a minibatch: the same one, again, smaller.

A mixin of the mixins in `microbatch_*`. Where `survives` is set, each minibatch is an attempt (`redoing`): its
gradients are computed and clipped, and nothing that outlives the minibatch is touched. The optimizer's step comes after
it and is not attempted twice: it writes parameters and moments in place and takes memory in between, so a failure in it
leaves a state that nobody can vouch for, and ends the training; the last checkpoint is the way on.

Every retreat to smaller pieces becomes part of `micro_batch`, as a schedule: `[[0, 64], [17, 32]]`. A run that is given
that schedule from the start ends with the same bits.
"""

from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.base_class import BaseAlgorithm

from legroom.backends.sb3.microbatch_parts import refuse_unknown_buffer
from legroom.device.exact_pieces import MicroBatch, refuse_inexact, shrunk_from
from legroom.device.redoing import Moment, Redoing, Result, Retreat


class Surviving(BaseAlgorithm):
    """Answers failed allocations inside a minibatch; a mixin before an algorithm.

    Its base makes its objects look like SB3's in memory: so a model's class can be swapped for one with it, and back.

    `survives` turns it on, for a class or a model; `on_retreat` hears of every retreat before the minibatch is redone.
    """

    micro_batch: MicroBatch | None = None
    survives = False
    on_retreat: Callable[[Retreat], None] | None = None
    _redoing: Redoing | None = None
    _policy_buffers: tuple[torch.Tensor, ...] | None = None
    _unwatched = True  # no minibatch of this call of train() has come in pieces yet

    def _excluded_save_params(self: Any) -> list[str]:
        return [*super()._excluded_save_params(), "on_retreat", "_redoing", "_policy_buffers", "between_minibatches"]

    def _attempt(self: Any, attempt: Callable[[int], Result], size: int, update: int) -> Result:
        """Return `attempt(size)`, made again with the same random numbers where memory ran out in it."""
        if not self.survives:
            return attempt(size)
        if self._redoing is None:
            self._redoing = Redoing(self._retreated, self._let_go, self._may_split)
        if self._policy_buffers is None:  # to look for them takes longer than all the rest here
            self._policy_buffers = tuple(self.policy.buffers())
        moment = Moment.now(self.device, self._policy_buffers)
        result: Result = self._redoing.run(attempt, size, update, moment, self.device)
        return result

    def _retreated(self: Any, retreat: Retreat) -> None:
        if retreat.size != retreat.size_before:
            whole = self.batch_size or retreat.size_before
            self.micro_batch = shrunk_from(self.micro_batch, retreat.update, retreat.size, whole)
        if self.on_retreat is not None:
            self.on_retreat(retreat)

    def _let_go(self: Any) -> None:
        """Drop the gradients so far, what the policy remembers, and memory for minibatches that are now too large."""
        self.policy.optimizer.zero_grad(set_to_none=True)
        forget_distribution(getattr(self.policy, "action_dist", None))
        for column in getattr(self._buffer(), "columns", {}).values():
            column.outputs.let_go()

    def _may_split(self: Any) -> None:
        refuse_inexact(self.policy, self.micro_batch)
        refuse_unknown_buffer(self._buffer())

    def _buffer(self: Any) -> Any:
        return getattr(self, "rollout_buffer", None) or getattr(self, "replay_buffer", None)


# What SB3's distributions keep of the last forward pass, to be replaced by the next one.
_OF_LAST_PASS = ("distribution", "distributions", "_latent_sde", "gaussian_actions")


def forget_distribution(distribution: Any) -> None:
    """Have a policy's distribution let go of the last forward pass.

    Its logits know how they were computed, and so they keep alive every activation of the network that no backward pass
    has freed: most of what did not fit.
    """
    for name in _OF_LAST_PASS:
        if getattr(distribution, name, None) is not None:
            setattr(distribution, name, None)
