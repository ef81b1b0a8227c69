"""Trace a run's networks and updates: the device memory SB3 would ask for, in order, without a device.

The run's own algorithm (built by `sb3_build`) collects a few steps and makes a few updates on storages without bytes,
while a `StorageFollower` writes down every birth and death. The caching allocator's state is shaped by what came before,
so the order is the library's: move the policy, collect, update, collect, update.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import sb3_contrib
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import Logger
from torch.distributions import Distribution

from legroom.backends.fake_tensors import DEVICE, StorageFollower, Workspaces, foreach_as_on_cuda
from legroom.backends.sb3_build import build_model, importable
from legroom.errors import Untraceable
from legroom.model.evidence import NetTrace
from legroom.model.facts import algorithm_of, hyper
from legroom.model.footprint import Phase
from legroom.model.run import Run

_LIBRARIES = tuple(str(Path(module.__file__ or "").parent) for module in (stable_baselines3, sb3_contrib))

MAX_ITERATIONS = 3
MAX_STEPS = 3
MAX_EPOCHS = 2
MAX_BATCHES = 3


def trace_run(
    run: Run,
    device: Literal["cpu", "cuda"],
    *,
    workspaces: Workspaces = Workspaces(),  # noqa: B008  frozen
    validate_args: bool = True,
) -> NetTrace:
    """Return the memory of the run's networks, optimizer and updates on `device`.

    Args:
        workspaces: cuBLAS sizes of the card.
        validate_args: whether torch.distributions checks its arguments, as it does unless the user turned it off.

    Raises:
        Untraceable: the policy or update cannot be followed; the reason is the message.
    """
    on_cuda = device == "cuda"
    follower = StorageFollower(workspaces if on_cuda else None, _LIBRARIES)
    foreach = on_cuda and run.memory.foreach is not False
    checks = Distribution._validate_args
    with ExitStack() as stack:
        stack.enter_context(importable(run))
        stack.enter_context(foreach_as_on_cuda(foreach))
        Distribution.set_default_validate_args(validate_args)
        stack.callback(Distribution.set_default_validate_args, checks)
        try:
            return _Tracer(run, follower, device).trace()
        except Untraceable:
            raise
        except NotImplementedError as wrong:
            raise Untraceable(f"the update depends on data: {wrong}".splitlines()[0]) from wrong


class _Tracer:
    def __init__(self, run: Run, follower: StorageFollower, device: Literal["cpu", "cuda"]) -> None:
        self.run, self.follower, self.device = run, follower, device
        self.family = algorithm_of(run).family

    def trace(self) -> NetTrace:
        follower = self.follower
        follower.mark(Phase.START)
        with follower:
            with torch.device(DEVICE), _moves(follower):
                model = build_model(self.run, self._plan, DEVICE)
            follower.recording = True
            self._label_on_step(model)
            self._learn(model)
            follower.recording = False
        return self._summary(model)

    # -- the run, shortened --------------------------------------------------------------------------------------

    def _plan(self, batch_size: int) -> list[int]:
        total = int(hyper(self.run, "n_steps")) * self.run.env.n_envs
        size = batch_size or total
        full, rest = divmod(total, size)
        return [size] * min(full, MAX_BATCHES) + ([rest] if rest else [])

    def _learn(self, model: Any) -> None:
        total = self.run.total_timesteps or 10**9
        model.set_logger(Logger(folder=None, output_formats=[]))
        _, callback = model._setup_learn(total)
        if self.family == "on-policy":
            self._learn_on_policy(model, callback, total)
        else:
            self._learn_off_policy(model, callback, total)

    def _learn_on_policy(self, model: Any, callback: Any, total: int) -> None:
        steps = int(model.n_steps)
        iterations = -(-total // (steps * self.run.env.n_envs))
        if hasattr(model, "n_epochs"):
            model.n_epochs = min(model.n_epochs, MAX_EPOCHS)
        for _ in range(min(iterations, MAX_ITERATIONS)):
            self.follower.mark(Phase.COLLECT)
            model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=min(steps, MAX_STEPS))
            self.follower.mark(Phase.UPDATE)
            model._update_current_progress_remaining(model.num_timesteps, total)
            model.train()

    def _learn_off_policy(self, model: Any, callback: Any, total: int) -> None:
        model.num_timesteps = min(model.learning_starts, total)
        model._update_current_progress_remaining(model.num_timesteps, total)
        gradient_steps = model.gradient_steps if model.gradient_steps >= 0 else MAX_STEPS
        for _ in range(4):
            self.follower.mark(Phase.COLLECT)
            model.collect_rollouts(
                model.env,
                train_freq=model.train_freq,
                action_noise=model.action_noise,
                callback=callback,
                learning_starts=model.learning_starts,
                replay_buffer=model.replay_buffer,
                log_interval=None,
            )
            self.follower.mark(Phase.UPDATE)
            model.train(batch_size=model.batch_size, gradient_steps=min(gradient_steps, 4))

    # -- what the blocks are -------------------------------------------------------------------------------------

    def _label_on_step(self, model: Any) -> None:
        targets = {id(p) for p in _target_tensors(model)}
        for tensor in [*model.policy.parameters(), *model.policy.buffers()]:
            self.follower.relabel(tensor, "targets" if id(tensor) in targets else "weights")

    def _summary(self, model: Any) -> NetTrace:
        tensors = {t.untyped_storage()._cdata: t for t in (*model.policy.parameters(), *model.policy.buffers())}
        weights = sum(t.untyped_storage().nbytes() for t in tensors.values())
        targets = {t.untyped_storage()._cdata: t for t in _target_tensors(model)}
        return NetTrace(
            device=self.device,
            parameters=sum(p.numel() for p in model.policy.parameters()),
            weights=weights,
            targets=sum(t.untyped_storage().nbytes() for t in targets.values()),
            gradients=sum(p.numel() * p.element_size() for p in model.policy.parameters() if p.grad is not None),
            optimizer=0,
            events=tuple(self.follower.events),
        )


def _target_tensors(model: Any) -> Iterator[torch.Tensor]:
    for name in ("q_net_target", "critic_target", "actor_target", "quantile_net_target"):
        module = getattr(model, name, None)
        if isinstance(module, torch.nn.Module):
            yield from module.parameters()
            yield from module.buffers()


@contextmanager
def _moves(follower: StorageFollower) -> Iterator[None]:
    """While it lasts, `policy.to(device)` counts as the copy to the device that it is."""
    original = torch.nn.Module.to

    def to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        def copy(tensor: torch.Tensor) -> torch.Tensor:
            follower.adopt(tensor, "weights")
            return tensor

        module._apply(copy)  # the order in which Module.to visits tensors
        follower.recording = True
        return module

    torch.nn.Module.to = to  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.nn.Module.to = original  # type: ignore[method-assign]


__all__ = ["BaseCallback", "CallbackList", "trace_run"]
