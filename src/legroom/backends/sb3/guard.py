"""A guard for somebody's own Stable-Baselines3 script: memory that runs out in an update does not end it.

    model = PPO("CnnPolicy", env, batch_size=512, device="cuda")
    with legroom.guard(model) as guarded:
        model.learn(1_000_000)
    for retreat in guarded.retreats:
        print(retreat.update, retreat.why, retreat.what)

While the block lasts, PPO, MaskablePPO, A2C and DQN compute each minibatch as SB3 does, to the bit. Where an allocation
fails in it (on the GPU or on the host), what was half-built is freed and the same minibatch is computed again, with the
same random numbers: first as it was, then in halves, quarters and so on, whose gradients add up to the minibatch's own.
Each retreat is a warning of the logger `legroom`, and `guarded.micro_batch` is the schedule that came of all of them.

Other algorithms, and subclasses with a `train` of their own, run as they are: their updates change several networks one
after the other, and nobody can vouch for a half-done one. There, and where memory runs out outside of an update, the
library's own exception comes through, with a note that says what helps.

The model is what it was when the block ends: the guard leaves no attribute and no class behind.
"""

from __future__ import annotations

import logging
from types import TracebackType

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from legroom.backends.sb3.updates import Update, in_pieces, mirrored_owner, put_back, update_of
from legroom.device.exact_pieces import MicroBatch, check_sizes
from legroom.device.redoing import Retreat, is_out_of_memory
from legroom.errors import BadInput

logger = logging.getLogger("legroom")


class Guard:
    """See the module; made by `legroom.guard`."""

    def __init__(self, model: BaseAlgorithm, micro_batch: MicroBatch | None = None) -> None:
        if not isinstance(model, BaseAlgorithm):
            raise BadInput(f"guard is for models of Stable-Baselines3, not {type(model).__name__}",
                           hint="legroom.survive guards your own update function")  # fmt: skip
        check_sizes(micro_batch)
        self.model = model
        self.retreats: list[Retreat] = []
        self._begin_with = micro_batch
        self._update: Update | None = None
        self._before: Update | None = None
        self._is_open = False

    @property
    def micro_batch(self) -> MicroBatch | None:
        """The schedule by now, [[from_update, size], ...] from the first minibatch in the block; None: whole ones."""
        return self._begin_with if self._update is None else self._update.micro_batch

    def __enter__(self) -> Guard:
        if self._is_open:
            raise BadInput("this guard is already in use", hint="one legroom.guard(model) per block")
        self._before = before = update_of(self.model)
        given = self._begin_with if self._begin_with is not None or before is None else before.micro_batch
        if mirrored_owner(type(self.model)) is None and given is None:
            logger.info("%s cannot be redone in pieces: errors are explained only", type(self.model).__name__)
            return self
        self._update = in_pieces(self.model, given, on_retreat=self._retreated)
        self._update.done = before.done if before is not None else 0
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        put_back(self.model, self._before)
        if error is not None and is_out_of_memory(error):
            error.add_note(f"legroom: {_advice(self.model, self._update is not None)}")

    def _retreated(self, retreat: Retreat) -> None:
        self.retreats.append(retreat)
        logger.warning("update %d: %s; redone with %s", retreat.update, retreat.why, retreat.what)


def guard(model: BaseAlgorithm, micro_batch: MicroBatch | None = None) -> Guard:
    """Return a context in which memory that runs out in an update of `model` does not end `model.learn`.

    Args:
        micro_batch: samples per pass to begin with, or a schedule [[from_update, size], ...]; None: whole minibatches.

    Raises:
        BadInput: it is not an SB3 model, or (when the block is entered) it does not support `micro_batch`.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import PPO
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1)
        >>> with legroom.guard(model):
        ...     _ = model.learn(64)
        >>> model.num_timesteps
        64
    """
    return Guard(model, micro_batch)


def _advice(model: BaseAlgorithm, redoes: bool) -> str:
    lean = "legroom.lean(...) stores the same " + (
        "rollouts" if isinstance(model, OnPolicyAlgorithm) else "transitions"
    ) + " in less memory"  # fmt: skip
    if redoes:
        return f"computing in pieces did not help, or the failure was not in an update; {lean}"
    name = type(model).__name__
    return f"an update of {name} cannot be done again safely once it has begun; a smaller batch_size helps, and {lean}"
