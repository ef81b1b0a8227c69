"""What is known of a finished training: how good its policy is, and what it really held, by the names of bill items.

A workload's environment names its judge in the attribute `score`: a function `module:name` that gets a function from
observation and action mask to action, the environment's arguments, and a time limit, and returns numbers by name. One
that also takes `frame_stack` stacks so many frames itself, as the policy is used to.

For `--visualization` its attribute `picture` names a function that is called with what its attribute `last_episode`
holds and the path to write. The drawing happens here and not in the workers, which stay small.

SB3's EvalCallback keeps the state of its environments from one evaluation to the next, so a resumed run would evaluate
on other episodes than the uninterrupted one. Here every evaluation begins with the same seeds: nothing has to be kept,
and two evaluations of one run are comparable.
"""

import inspect
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib.common.maskable.evaluation import evaluate_policy as evaluate_masked
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import (
    VecEnv,
    VecFrameStack,
    VecNormalize,
    sync_envs_normalization,
    unwrap_vec_wrapper,
)

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.making import make_vec_env
from legroom.environments.objects import resolve_object
from legroom.machine.tree import descendants, process_memory
from legroom.model.learner import Evaluation
from legroom.model.run import Run
from legroom.storing.column import Column
from legroom.storing.ring import Ring
from legroom.units import format_size

TIME_LIMIT_S = 60.0


def score_of(run: Run, model: BaseAlgorithm, env: VecEnv, *, finished: bool) -> dict[str, Any]:
    """Return numbers by name: mean return and length of the last episodes, and the workload's own judgement."""
    episodes = list(model.ep_info_buffer or ())
    score: dict[str, Any] = {"episodes": len(episodes)}
    if episodes:
        score["reward_mean"] = float(np.mean([episode["r"] for episode in episodes]))
        score["length_mean"] = float(np.mean([episode["l"] for episode in episodes]))
    if finished and unwrap_vec_wrapper(env, VecNormalize) is None:  # a judge could not normalise as it did
        stacking = unwrap_vec_wrapper(env, VecFrameStack)
        with untouched_randomness():
            frames = None if stacking is None else stacking.stacked_obs.n_stack
            score |= judgement(run, first_attribute(env, "score"), model.predict, frames)
    return score


def judgement(run: Run, judge_name: Any, predict: Callable[..., Any], frame_stack: int | None) -> dict[str, Any]:
    """Return the workload's own figures by name; none where it has no judge, or wrappers that it cannot know of.

    It plays on a bare environment: a policy would not see there what it was trained on.

    Args:
        predict: as of SB3's policies.
    """
    if not isinstance(judge_name, str) or run.env.wrappers:
        return {}
    judge = resolve_object(judge_name)
    asked = {} if frame_stack is None else {"frame_stack": frame_stack}
    if not asked.keys() <= inspect.signature(judge).parameters.keys():
        return {}

    def act(observation: np.ndarray, mask: np.ndarray | None) -> int | np.ndarray:
        masks = {} if mask is None else {"action_masks": mask}
        action = np.asarray(predict(observation, deterministic=True, **masks)[0])
        return action if action.ndim else int(action)  # a set of cells, or one action

    figures: dict[str, Any] = judge(act, run.env.arguments, time_limit_s=TIME_LIMIT_S, **asked)
    return figures


PAUSE_S = 15.0  # between two pictures: an iteration of DQN is a few steps, and a thousand pictures are of no use


class Pictures:
    """Draws the first environment's last episode every so many iterations, but not all the time."""

    def __init__(self, env: VecEnv, out: Path, every: int, say: Callable[[str], None]) -> None:
        self._env, self._folder, self._every, self._say = env, out / "pictures", every, say
        name = first_attribute(env, "picture")
        self._draw = resolve_object(name) if name else None
        self._drawn: float | None = None
        if self._draw is None:
            say("--visualization: this environment has no `picture`; nothing will be drawn")

    def at_boundary(self, iteration: int) -> None:
        due = self._drawn is None or time.monotonic() - self._drawn >= PAUSE_S
        if due and self._draw is not None and iteration and iteration % self._every == 0:
            self._drawn = time.monotonic()
            self.draw(f"iteration-{iteration:06d}.png")

    def draw(self, name: str) -> None:
        """Draw the last complete episode, if there is one; a picture that fails is a remark and no failure."""
        episode = first_attribute(self._env, "last_episode")
        if self._draw is None or episode is None:
            return
        self._folder.mkdir(exist_ok=True)
        try:
            self._draw(episode, self._folder / name)
        except Exception as failed:  # an environment's own drawing must not end a training
            self._say(f"--visualization: {type(failed).__name__}: {failed}")


def first_attribute(env: VecEnv, name: str) -> Any:
    """Return an attribute of the first environment, None where it has none."""
    try:
        return env.get_attr(name, indices=[0])[0]
    except Exception:  # each VecEnv says a missing attribute in its own way
        return None


SEED_AWAY = 1_000_003  # from the training's seed, so that no training episode is repeated


class PolicyEvaluator:
    """Evaluates the policy when asked, and records what it finds for the next row of the log."""

    def __init__(
        self, run: Run, model: BaseAlgorithm, watched: Callable[[Callable[[], VecEnv]], VecEnv] = lambda make: make()
    ) -> None:
        self._run, self._model, self._watched = run, model, watched
        self._env: VecEnv | None = None

    def evaluate(self) -> Evaluation:
        """Return mean and standard deviation of the episodes' returns."""
        spec = self._run.eval
        assert spec is not None
        with untouched_randomness():
            if self._env is None:
                n_envs, workers = spec.n_envs, spec.workers
                made = self._watched(lambda: make_vec_env(self._run, n_envs=n_envs, workers=workers, training=False))
                self._env = self._model._wrap_env(made, monitor_wrapper=False)
            training_env = self._model.get_env()
            if training_env is not None and self._model.get_vec_normalize_env() is not None:
                sync_envs_normalization(training_env, self._env)
            self._env.seed((self._run.seed or 0) + SEED_AWAY)
            masked = algorithm_of(self._run).masked and is_masking_supported(self._env)
            judge: Any = evaluate_masked if masked else evaluate_policy
            mean, spread = judge(self._model, self._env, n_eval_episodes=spec.episodes, warn=False)
        self._model.logger.record("eval/mean_reward", float(mean))
        self._model.logger.record("eval/std_reward", float(spread))
        return Evaluation(float(mean), float(spread))

    def close(self) -> None:
        if self._env is not None:
            self._env.close()


@contextmanager
def untouched_randomness() -> Iterator[None]:
    """Put the global random number generators back afterwards: looking must not change what is learned."""
    python, numpy, torch_cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def measured_items(model: BaseAlgorithm, env: VecEnv) -> dict[str, int]:
    """Return bytes by item name, as `predicting` names them; `workers` is the private memory of all of them."""
    items: dict[str, int] = {}
    for prefix, buffer in (("rollout", "rollout_buffer"), ("replay", "replay_buffer")):
        if getattr(model, buffer, None) is not None:
            items |= _observations(prefix, getattr(model, buffer))
    place = "gpu" if model.device.type == "cuda" else "network"
    items[f"{place}.weights"] = _nbytes(trained_parameters(model))  # target networks are an item of their own
    states = [
        value for optimizer in _optimizers(model) for state in optimizer.state.values() for value in state.values()
    ]
    items[f"{place}.optimizer"] = _nbytes(value for value in states if isinstance(value, torch.Tensor))
    workers = [process_memory(pid) for pid in descendants(os.getpid())[1:]]
    if workers:
        items["workers"] = sum(worker.uss for worker in workers if worker is not None)
    return items


def trained_parameters(model: BaseAlgorithm) -> list[torch.Tensor]:
    """Return the parameters that an optimizer changes."""
    return [p for optimizer in _optimizers(model) for group in optimizer.param_groups for p in group["params"]]


def _observations(prefix: str, buffer: Any) -> dict[str, int]:
    stored = {"observations": buffer.observations, "next_observations": getattr(buffer, "next_observations", None)}
    items: dict[str, int] = {}
    rows = buffer.size() if prefix == "replay" else buffer.buffer_size  # memory is there once it has been written to
    for name, values in stored.items():
        parts = values if isinstance(values, dict) else {"": values}
        for key, part in parts.items():
            label = f"{prefix}.{name}[{key}]" if key else f"{prefix}.{name}"
            if isinstance(part, Column | Ring):
                purposes = part.breakdown()
                if decoded := purposes.pop("decoded", 0):  # an item of its own in the bill
                    items[f"{prefix}.decoded copy"] = items.get(f"{prefix}.decoded copy", 0) + decoded
                items[label] = sum(size for purpose, size in purposes.items() if purpose != "spilled")
            elif isinstance(part, np.ndarray):
                items[label] = part.nbytes * rows // buffer.buffer_size
    return items


def _optimizers(model: BaseAlgorithm) -> list[torch.optim.Optimizer]:
    owners: list[Any] = [model.policy, getattr(model, "actor", None), getattr(model, "critic", None)]
    found = {id(o.optimizer): o.optimizer for o in owners if getattr(o, "optimizer", None) is not None}
    return list(found.values())


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def opening_lines(run: Run, model: BaseAlgorithm) -> list[str]:
    """Return the lines with which a training begins."""
    parameters = sum(parameter.numel() for parameter in trained_parameters(model))
    networks = f"networks: {architecture(run)}, {parameters:,} parameters"
    if model.device.type != "cuda":
        memory = process_memory("self")
        return [networks + (f"; host memory {format_size(memory.pss)}" if memory is not None else "")]
    about = torch.cuda.get_device_properties(model.device)
    free, total = torch.cuda.mem_get_info(model.device)
    return [
        f"GPU memory at the start: {format_size(total)} on a {about.name}, {format_size(free)} free",
        f"{networks}; GPU memory {gpu_memory(model)}",
    ]


def cleaned_line(model: BaseAlgorithm) -> str | None:
    """Give back what PyTorch's allocator only keeps, and return what then is left; None without a GPU."""
    if model.device.type != "cuda":
        return None
    before = torch.cuda.memory_reserved(model.device)
    torch.cuda.empty_cache()
    return f"GPU memory after cleanup: {gpu_memory(model)}, {format_size(before)} before"


def gpu_memory(model: BaseAlgorithm) -> str:
    """Return what PyTorch's allocator has handed out and holds, as text."""
    allocated, reserved = torch.cuda.memory_allocated(model.device), torch.cuda.memory_reserved(model.device)
    return f"{format_size(allocated)} allocated, {format_size(reserved)} reserved"


def architecture(run: Run) -> str:
    """Return what a run's networks are called: the extractor and its switches, or the policy.

    Switches are arguments that are on or off: `FireNet (residual only)` has others, which are off.
    """
    extractor = run.policy.features_extractor
    if extractor is None:
        return run.policy.name
    name = extractor.rpartition(":")[2].rpartition(".")[2]
    arguments: dict[str, Any] = dict(run.policy.features_extractor_kwargs)
    switches = {key: value for key, value in arguments.items() if isinstance(value, bool)}
    others = [f"{key}={value}" for key, value in arguments.items() if key not in switches]
    on = [key for key, value in switches.items() if value]
    said = [" and ".join([", ".join(on[:-1]), on[-1]] if len(on) > 1 else on)] if on else []
    if switches:
        said = [f"{said[0]} only"] if on and len(on) < len(switches) else said or [f"without {', '.join(switches)}"]
    return f"{name} ({'; '.join([*said, *others])})" if said or others else name
