"""Updates in exact pieces, and done again where memory runs out: one way for every model, whoever made it.

    in_pieces(model, 8)

What `legroom train` does to its own model, `legroom.guard` to a live one and `legroom.attach` to those of a program is
this: the algorithm's `train` looks whether the model has an `Update` and, where it has, leaves the update to that. The
model gets no attribute and keeps its class, so what callbacks see of it and what it is saved as stay the library's.

**Pieces.** What autograd keeps for the backward pass is most of an update's memory and grows with the samples in one
pass, so eight samples at a time need about an eighth. Unlike a smaller batch_size it does not change what is learned:
the gradient is that of the whole minibatch (`device.exact_pieces` says when), but for the order of its sums. Advantages
are normalised before the first piece, each piece's loss is SB3's own formula weighted by the piece's share of the
minibatch, gradients add up, and clipping and the optimizer's step come once, after the last. In double precision a
whole `train()` ends within 1e-15 of SB3's; in single precision mostly within 1e-6. Large ReLU networks may exceed that:
once rounding puts a unit on the other side of zero, later steps magnify it, as they do when SB3 itself uses another
number of threads. With pieces as large as the minibatch nothing differs.

**Again.** Each minibatch is an attempt (`device.redoing`): its gradients are computed and clipped, and nothing that
outlives the minibatch is touched. The optimizer's step comes after it and is not attempted twice: it writes parameters
and moments in place and takes memory in between, so a failure in it leaves a state that nobody can vouch for, and ends
the training. Every retreat to smaller pieces becomes part of `micro_batch`, as a schedule: `[[0, 64], [17, 32]]`. A run
that is given that schedule from the start ends with the same bits.

Mirrors `PPO.train`, `A2C.train` and `DQN.train` of stable-baselines3 2.9.2 and `MaskablePPO.train` of sb3-contrib
2.9.2; a test pins their source. SAC's and TD3's updates are several coupled losses and are not among them.
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial, wraps
from typing import Any, ClassVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.utils import explained_variance
from torch.nn import functional

from legroom.backends.sb3.minibatches import (
    Parts,
    is_known,
    refuse_unknown_buffer,
    replay_minibatch,
    rollout_minibatches,
)
from legroom.backends.sb3.stored import MICRO_BATCHED
from legroom.device.exact_pieces import MicroBatch, check_sizes, refuse_inexact, shrunk_from, size_at, splits, watched
from legroom.device.redoing import Moment, Redoing, Retreat
from legroom.errors import BadInput

# The loss of some samples, at this place of their minibatch, as if they were one; and its figures.
Losses = Callable[[Any, slice], tuple[th.Tensor, th.Tensor]]
# What SB3's distributions keep of the last forward pass. It knows how it was computed, and so it keeps alive every
# activation of the network that no backward pass has freed: most of what did not fit.
_OF_LAST_PASS = ("distribution", "distributions", "_latent_sde", "gaussian_actions")


class Update:
    """How the minibatches of one model's updates are computed.

    Args:
        micro_batch: samples per pass, or [[from_update, size], ...]; `from_update` counts the minibatches learned from,
            over all rollouts and epochs, from 0; before the first one they are whole. None: always.
        redoes: a minibatch in which memory runs out is computed again.
        on_retreat: hears of every retreat before the minibatch is redone.

    Attributes:
        done: minibatches learned from in all rollouts together; a checkpoint keeps it.
        at: how far an update is; set before `train()`, that goes on from there.
        between: called before each minibatch, where `at` and the model say all.
    """

    goes_on = False  # an update that is begun can be captured

    def __init__(
        self, model: Any, micro_batch: MicroBatch | None, redoes: bool, on_retreat: Callable[[Retreat], None] | None
    ) -> None:
        self._model = weakref.ref(model)
        self.micro_batch, self.redoes, self.on_retreat = micro_batch, redoes, on_retreat
        self.done = 0
        self.at: dict[str, Any] | None = None
        self.between: Callable[[], None] | None = None
        self._redoing = Redoing(self._retreated, self._let_go, self._may_split)
        self._unwatched = True  # no minibatch of this call of train() has come in pieces yet
        self._policy_buffers = tuple(model.policy.buffers())  # to look takes longer than all the rest of an attempt
        if splits(micro_batch, self._whole):
            self._may_split()

    @property
    def model(self) -> Any:
        return self._model()

    @property
    def _buffer(self) -> Any:
        return getattr(self.model, "rollout_buffer", None) or getattr(self.model, "replay_buffer", None)

    @property
    def _whole(self) -> int:
        """The samples in a minibatch: A2C has one, of the whole rollout, and sb3-contrib takes None for that."""
        model = self.model
        return int(getattr(model, "batch_size", None) or model.n_steps * model.n_envs)

    def run(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Do an update, by the library's own function where it needs neither pieces nor a second attempt.

        Raises:
            BadInput: pieces would not be exact with this policy or buffer.
        """
        model = self.model
        if not splits(self.micro_batch, self._whole) and not (self.redoes and is_known(self._buffer)):
            original(model, *args, **kwargs)
            return
        refuse_unknown_buffer(self._buffer)
        model.policy.set_training_mode(True)
        model._update_learning_rate(model.policy.optimizer)
        self._unwatched, self._parameters = True, list(model.policy.parameters())
        self.train(*args, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def losses(self, whole: np.ndarray | None, *, in_pieces: bool) -> Losses:
        """Return what computes the losses of a minibatch.

        Args:
            whole: the indices of its samples in a rollout.
        """
        raise NotImplementedError

    def attempt(self, parts: Parts, count: int, update: int, whole: np.ndarray | None = None) -> th.Tensor:
        """Leave the clipped gradient of a minibatch in the parameters, and return the figures of its loss.

        It is computed again with the same random numbers where memory ran out.

        Args:
            count: samples in it.
        """
        size = min(size_at(self.micro_batch, update) or count, count)
        add_gradients = partial(self.add_gradients, parts, count, whole)
        if not self.redoes:
            return add_gradients(size)
        device = self.model.device
        return self._redoing.run(add_gradients, size, update, Moment.now(device, self._policy_buffers), device)

    def add_gradients(self, parts: Parts, count: int, whole: np.ndarray | None, size: int) -> th.Tensor:
        model = self.model
        in_pieces = size < count
        watching = self._unwatched and in_pieces
        if watching:
            refuse_inexact(model.policy, size)
        losses = self.losses(whole, in_pieces=in_pieces)
        model.policy.optimizer.zero_grad()
        total: th.Tensor | None = None
        done = 0
        for part in parts(size):
            n = len(part.actions)
            with watched(model.policy, model.device) if watching else nullcontext():
                loss, figures = losses(part, slice(done, done + n))
            if watching:
                self._unwatched = watching = False
            if in_pieces:
                (loss * (n / count)).backward()
                figures = figures * (n / count)
            else:
                loss.backward()
            total = figures if total is None else total + figures
            done += n
            del part, loss, figures  # the next part is made only when this one's memory is free
        th.nn.utils.clip_grad_norm_(self._parameters, model.max_grad_norm)
        assert total is not None, "a minibatch has samples"
        return total

    def _retreated(self, retreat: Retreat) -> None:
        if retreat.size != retreat.size_before:
            whole = getattr(self.model, "batch_size", None) or retreat.size_before
            self.micro_batch = shrunk_from(self.micro_batch, retreat.update, retreat.size, whole)
        if self.on_retreat is not None:
            self.on_retreat(retreat)

    def _let_go(self) -> None:
        """Drop the gradients so far, what the policy remembers, and memory for minibatches that are now too large."""
        policy = self.model.policy
        policy.optimizer.zero_grad(set_to_none=True)
        distribution = getattr(policy, "action_dist", None)
        for name in _OF_LAST_PASS:
            if getattr(distribution, name, None) is not None:
                setattr(distribution, name, None)
        for column in getattr(self._buffer, "columns", {}).values():
            column.outputs.let_go()

    def _may_split(self) -> None:
        refuse_inexact(self.model.policy, self.micro_batch)
        refuse_unknown_buffer(self._buffer)

    def _forward(self, part: Any, **more: Any) -> tuple[th.Tensor, th.Tensor, th.Tensor | None]:
        """Return values, log probabilities and entropy of a part of a rollout."""
        model, actions = self.model, part.actions
        if isinstance(model.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        values, log_prob, entropy = model.policy.evaluate_actions(part.observations, actions, **more)
        return values.flatten(), log_prob, entropy

    def _log(self, figures: dict[str, Any]) -> None:
        for name, value in figures.items():
            self.model.logger.record(f"train/{name}", value)

    def _explained(self) -> Any:
        buffer = self._buffer
        return explained_variance(buffer.values.flatten(), buffer.returns.flatten())


class PpoUpdate(Update):
    """Of PPO."""

    goes_on = True
    masked = False
    # in the order of the tensor in which they are added up
    figures: ClassVar = ("policy_gradient_loss", "clip_fraction", "value_loss", "entropy_loss", "loss", "approx_kl")

    def train(self) -> None:
        model = self.model
        progress = model._current_progress_remaining
        self._clip = model.clip_range(progress)
        self._clip_values = None if model.clip_range_vf is None else model.clip_range_vf(progress)
        at = self.at = self.at or {"epoch": 0, "minibatch": 0, "figures": [], "in_epoch": 0}
        figures: list[dict[str, float]] = at["figures"]
        continue_training = True
        for epoch in range(at["epoch"], model.n_epochs):
            for whole, parts in self._minibatches_from(at):
                if self.between is not None:
                    self.between()
                total = self.attempt(parts, len(whole), self.done, whole)
                self.done += 1
                # one wait for the device per minibatch
                figures.append(dict(zip(self.figures, total.cpu().numpy().tolist(), strict=True)))
                approx_kl = figures[-1]["approx_kl"]
                if model.target_kl is not None and approx_kl > 1.5 * model.target_kl:
                    continue_training = False
                    if model.verbose >= 1:
                        print(f"Early stopping at step {epoch} due to reaching max kl: {approx_kl:.2f}")  # noqa: T201
                    break  # what was added up is dropped: the next minibatch begins without gradients
                model.policy.optimizer.step()
                at["minibatch"] += 1
            model._n_updates += 1
            at |= {"epoch": epoch + 1, "minibatch": 0}
            del at["random"]
            if not continue_training:
                break
        self.at = None
        self._log(self._report(figures, figures[at["in_epoch"] :]))
        model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
        clips = {"clip_range": self._clip, "clip_range_vf": self._clip_values}
        self._log({name: value for name, value in clips.items() if value is not None})

    def _minibatches_from(self, at: dict[str, Any]) -> Iterator[tuple[np.ndarray, Parts]]:
        """Yield the minibatches of an epoch that are left; how they are drawn is kept, and they are drawn again."""
        drawn, now = "random" in at, np.random.get_state(legacy=False)
        if drawn:
            np.random.set_state(at["random"])
        else:
            at |= {"random": now, "in_epoch": len(at["figures"])}
        for number, minibatch in enumerate(rollout_minibatches(self._buffer, self._whole)):
            if drawn and number == 0:
                np.random.set_state(now)
            if number >= at["minibatch"]:
                yield minibatch

    def _normalized(self, advantages: th.Tensor) -> th.Tensor:
        """Return the advantages of a whole minibatch as SB3 uses them; sb3-contrib normalises a single one, too."""
        if self.model.normalize_advantage and (self.masked or len(advantages) > 1):
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        return advantages

    def losses(self, whole: np.ndarray | None, *, in_pieces: bool) -> Losses:
        buffer, advantages = self._buffer, None
        if in_pieces:  # a whole minibatch has them itself
            advantages = self._normalized(buffer.to_torch(buffer.advantages[whole].flatten()))

        def losses(part: Any, place: slice) -> tuple[th.Tensor, th.Tensor]:
            return self._loss(part, self._normalized(part.advantages) if advantages is None else advantages[place])

        return losses

    def _loss(self, part: Any, advantages: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        model, clip, clip_values = self.model, self._clip, self._clip_values
        masks = {"action_masks": part.action_masks} if self.masked else {}
        values, log_prob, entropy = self._forward(part, **masks)
        ratio = th.exp(log_prob - part.old_log_prob)
        policy_loss_1 = advantages * ratio
        policy_loss_2 = advantages * th.clamp(ratio, 1 - clip, 1 + clip)
        policy_loss = -th.min(policy_loss_1, policy_loss_2).mean()
        if clip_values is not None:
            values = part.old_values + th.clamp(values - part.old_values, -clip_values, clip_values)
        value_loss = functional.mse_loss(part.returns, values)
        entropy_loss = -th.mean(-log_prob if entropy is None else entropy)
        loss = policy_loss + model.ent_coef * entropy_loss + model.vf_coef * value_loss
        with th.no_grad():
            clip_fraction = th.mean((th.abs(ratio - 1) > clip).float())
            log_ratio = log_prob - part.old_log_prob
            approx_kl = th.mean((th.exp(log_ratio) - 1) - log_ratio)
            figures = th.stack([policy_loss, clip_fraction, value_loss, entropy_loss, loss, approx_kl])
        return loss, figures

    def _report(self, figures: list[dict[str, float]], last_epoch: list[dict[str, float]]) -> dict[str, Any]:
        """Return what SB3 records, in its order; it reports the divergence of the last epoch only."""

        def mean(name: str) -> Any:
            return np.mean([each[name] for each in figures])

        report = {name: mean(name) for name in ("entropy_loss", "policy_gradient_loss", "value_loss")}
        report["approx_kl"] = np.mean(np.array([each["approx_kl"] for each in last_epoch], np.float32))
        report |= {"clip_fraction": mean("clip_fraction"), "loss": figures[-1]["loss"]}
        report["explained_variance"] = self._explained()
        if not self.masked and hasattr(self.model.policy, "log_std"):
            report["std"] = th.exp(self.model.policy.log_std).mean().item()
        return report


class MaskablePpoUpdate(PpoUpdate):
    """Of sb3-contrib's MaskablePPO."""

    masked = True


class A2cUpdate(Update):
    """Of A2C, whose one minibatch is the whole rollout."""

    def train(self) -> None:
        model = self.model
        ((whole, parts),) = rollout_minibatches(self._buffer, self._whole)
        total = self.attempt(parts, len(whole), self.done, whole)
        self.done += 1
        model.policy.optimizer.step()
        model._n_updates += 1
        model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
        self._log({"explained_variance": self._explained()})
        self._log(dict(zip(("entropy_loss", "policy_loss", "value_loss"), total.cpu().numpy().tolist(), strict=True)))
        if hasattr(model.policy, "log_std"):
            self._log({"std": th.exp(model.policy.log_std).mean().item()})

    def losses(self, whole: np.ndarray | None, *, in_pieces: bool) -> Losses:
        model, buffer = self.model, self._buffer
        advantages = buffer.to_torch(buffer.advantages[whole].flatten())
        if model.normalize_advantage:  # a single one, too
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

        def losses(part: Any, place: slice) -> tuple[th.Tensor, th.Tensor]:
            values, log_prob, entropy = self._forward(part)
            policy_loss = -(advantages[place] * log_prob).mean()
            value_loss = functional.mse_loss(part.returns, values)
            entropy_loss = -th.mean(-log_prob if entropy is None else entropy)
            loss = policy_loss + model.ent_coef * entropy_loss + model.vf_coef * value_loss
            return loss, th.stack([entropy_loss, policy_loss, value_loss]).detach()

        return losses


class DqnUpdate(Update):
    """Of DQN."""

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        model, losses = self.model, []
        for step in range(gradient_steps):
            parts = self._draw(batch_size)
            losses.append(self.attempt(parts, batch_size, model._n_updates + step).item())
            model.policy.optimizer.step()
            self._learned(parts)
        model._n_updates += gradient_steps
        model.logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
        self._log({"loss": np.mean(losses)})

    def _draw(self, batch_size: int) -> Parts:
        """Draw transitions as SB3 draws them, all at once, to be gathered piece by piece."""
        return replay_minibatch(self.model.replay_buffer, batch_size, self.model._vec_normalize_env)

    def _learned(self, parts: Parts) -> None:
        """Take over what a minibatch has shown, after the step made of it."""

    def losses(self, whole: np.ndarray | None, *, in_pieces: bool) -> Losses:
        def losses(part: Any, place: slice) -> tuple[th.Tensor, th.Tensor]:
            loss = self._loss(part)
            return loss, loss.detach()

        return losses

    def _loss(self, part: Any) -> th.Tensor:
        model = self.model
        discounts = part.discounts if part.discounts is not None else model.gamma
        with th.no_grad():
            next_q_values, _ = model.q_net_target(part.next_observations).max(dim=1)
            target_q_values = part.rewards + (1 - part.dones) * discounts * next_q_values.reshape(-1, 1)
        current_q_values = th.gather(model.q_net(part.observations), dim=1, index=part.actions.long())
        return functional.smooth_l1_loss(current_q_values, target_q_values)


class DoubleDqnUpdate(DqnUpdate):
    """Of `legroom.DoubleDQN`, which says itself what it draws, loses and learns."""

    def _draw(self, batch_size: int) -> Parts:
        if self.model.priorities is None:
            return super()._draw(batch_size)
        parts: Parts = self.model._draw(batch_size)
        return parts

    def _learned(self, parts: Parts) -> None:
        self.model._learned(parts)

    def _loss(self, part: Any) -> th.Tensor:
        loss: th.Tensor = self.model._loss(part)
        return loss


# by the class that defines the `train` which is mirrored: packages need not be installed, nor imported for this
_KINDS = {
    "PPO": PpoUpdate, "MaskablePPO": MaskablePpoUpdate, "A2C": A2cUpdate, "DQN": DqnUpdate,
    "DoubleDQN": DoubleDqnUpdate,
}  # fmt: skip
_PACKAGES = ("stable_baselines3", "sb3_contrib", "legroom_workloads")
_updates: weakref.WeakKeyDictionary[BaseAlgorithm, Update] = weakref.WeakKeyDictionary()


def mirrored_owner(algorithm: type) -> type | None:
    """Return the class whose update this algorithm has; None where that is not one of those mirrored here."""
    owner = next((each for each in algorithm.__mro__ if "train" in vars(each)), object)
    ours = owner.__name__ in _KINDS and owner.__module__.partition(".")[0] in _PACKAGES
    return owner if ours else None


def in_pieces(
    model: BaseAlgorithm,
    micro_batch: MicroBatch | None = None,
    *,
    redoes: bool = True,
    on_retreat: Callable[[Retreat], None] | None = None,
) -> Update:
    """Let a model's updates be computed in pieces, and again where memory runs out; arguments as of `Update`.

    Raises:
        BadInput: `micro_batch` is no size, the algorithm's update is not one that is mirrored here, or pieces would
            not be exact with this policy or buffer.
    """
    check_sizes(micro_batch)
    owner = mirrored_owner(type(model))
    if owner is None:
        own = any(each.__name__ in _KINDS for each in type(model).__mro__)
        what = "has a train() of its own" if own else "has no micro_batch"
        raise BadInput(
            f"{type(model).__name__} {what}: only {', '.join(MICRO_BATCHED)} compute a minibatch in pieces",
            hint="remove it",
        )
    _let_train_look(owner)
    update = _updates[model] = _KINDS[owner.__name__](model, micro_batch, redoes, on_retreat)
    return update


def update_of(model: BaseAlgorithm) -> Update | None:
    """Return how a model's updates are computed; None: as the library does it."""
    return _updates.get(model)


def put_back(model: BaseAlgorithm, update: Update | None) -> None:
    """Let a model's updates be computed as `update_of` said that they were."""
    _updates.pop(model, None)
    if update is not None:
        _updates[model] = update


def _let_train_look(owner: Any) -> None:
    original = owner.train
    if hasattr(original, "looks"):
        return

    @wraps(original)
    def train(self: BaseAlgorithm, *args: Any, **kwargs: Any) -> None:
        # a subclass's own update may have called it
        update = _updates.get(self) if type(self).train is train else None  # type: ignore[attr-defined]
        if update is None:
            original(self, *args, **kwargs)
        else:
            update.run(original, *args, **kwargs)

    train.looks = True  # type: ignore[attr-defined]
    owner.train = train
