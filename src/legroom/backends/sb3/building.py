"""Build the real SB3 algorithm of a run on the meta device, with hollow buffers and a stub environment.

The constructor is the library's own, so whatever a release does with spaces, wrappers and policy arguments is done.
Parameters are made on the meta device from the start: initialising 15 M of them with orthogonal matrices takes seconds.
"""

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable import buffers as maskable
from sb3_contrib.common.recurrent import buffers as recurrent
from sb3_contrib.ppo_recurrent import ppo_recurrent
from stable_baselines3.common import buffers, torch_layers
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecNormalize

import legroom
from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.applied_knobs import OWN_ARGUMENT, has_own, turn_knobs
from legroom.backends.sb3.hollow_buffers import Sizes, StubVecEnv, hollow_recurrent, hollow_replay, hollow_rollout
from legroom.backends.sb3.stored import batch_samples, pass_samples
from legroom.backends.sb3.updates import in_pieces
from legroom.environments.gym_spaces import to_gymnasium
from legroom.environments.objects import LIVE, package_of, resolve_object
from legroom.environments.own_code import own_code, registered_packages
from legroom.errors import BadInput, Untraceable
from legroom.hollow.journal import ValueRefused
from legroom.machine.child_process import import_path
from legroom.model.facts import Algorithm, spaces_of
from legroom.model.run import Run

# policy_kwargs whose values are classes, and where a bare name is looked up
_OWNERS = {"activation_fn": torch.nn, "optimizer_class": torch.optim, "features_extractor_class": torch_layers}
# constructor arguments that need objects legroom does not build, and that no device memory depends on
HOST_ONLY = {"rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs",
              "tensorboard_log", "verbose", "optimize_memory_usage", "action_noise", "_init_setup_model"}  # fmt: skip


def build_model(
    run: Run, device: torch.device, *, plan: Sizes, parts: Sizes, on_step: Callable[[], None]
) -> BaseAlgorithm:
    """Return the run's algorithm, built by its own constructor.

    Args:
        plan: called with the batch size when minibatches are wanted; yields their sizes (one, from a replay buffer).
        parts: called with the size of a minibatch of a run with micro-batches; yields the sizes of these.
        on_step: called at every step of the environments.

    Raises:
        Untraceable: a class that the run names cannot be imported, or the constructor refuses.
        BadInput: the run declares no spaces.
    """
    algorithm = algorithm_of(run)
    algorithm_class = class_of_run(run)
    arguments = {k: _schedule(k, v) for k, v in run.hyperparams.items() if k not in HOST_ONLY}
    with importable(run), warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        env = stub_env(run, on_step)
        dict_space = isinstance(env.observation_space, spaces.Dict)
        if algorithm.recurrent:
            stack.enter_context(_recurrent_buffers(run, plan))
        elif algorithm.family == "on-policy":
            if algorithm.masked:
                base: type = maskable.MaskableDictRolloutBuffer if dict_space else maskable.MaskableRolloutBuffer
            else:
                base = buffers.DictRolloutBuffer if dict_space else buffers.RolloutBuffer
            arguments["rollout_buffer_class"] = hollow_rollout(base, plan, parts)
        elif algorithm.family == "off-policy":
            arguments |= _replay_arguments(run, dict_space, plan, parts)
        else:
            raise Untraceable(f"{algorithm.name} has no gradient update to trace", modelled=True)
        policy = find_class(run, run.policy.name) if ":" in run.policy.name else run.policy.name
        policy_kwargs = policy_arguments(run)
        try:
            model: BaseAlgorithm = algorithm_class(policy, env, policy_kwargs=policy_kwargs, device=device, **arguments)
            if pass_samples(run) < batch_samples(run):
                in_pieces(model, pass_samples(run), redoes=False)
            turn_knobs(model, run.memory, run.source)
        except (Untraceable, ValueRefused):
            raise
        except Exception as wrong:  # a library's constructor raises anything; its message is the reason
            said = own_line(wrong) or f"{algorithm.name} cannot be built: {type(wrong).__name__}: {wrong}"
            raise Untraceable(said) from wrong
        return model


@contextmanager
def _recurrent_buffers(run: Run, plan: Sizes) -> Iterator[None]:
    """Let RecurrentPPO, which takes no class of buffers as an argument, make hollow ones."""
    steps = int(hyper(run, "n_steps"))
    sequence = min(steps, run.env.episode_steps or steps)
    with ExitStack() as stack:
        for name in ("RecurrentRolloutBuffer", "RecurrentDictRolloutBuffer"):
            made = hollow_recurrent(getattr(recurrent, name), plan, sequence)
            # where it is made, and where a rollout is checked for being one
            stack.enter_context(mock.patch.object(ppo_recurrent, name, made))
        yield


_NOT_THE_USERS = tuple(
    str(Path(module.__file__ or "").parent) + os.sep for module in (torch, stable_baselines3, sb3_contrib, legroom)
)


def own_line(wrong: BaseException) -> str:
    """Return where in the user's code something was raised, and what, in a line; empty where it was not there."""
    frames = traceback.extract_tb(wrong.__traceback__)
    own = [each for each in frames if not each.filename.startswith((*_NOT_THE_USERS, "<"))]
    if not own:
        return ""
    said = str(wrong).strip().splitlines() or [""]
    return f"{own[-1].filename}:{own[-1].lineno}, in {own[-1].name}: {type(wrong).__name__}: {said[0]}"


def class_of(algorithm: Algorithm) -> Any:
    """Return the algorithm's class, from SB3, sb3-contrib or legroom itself."""
    return getattr(import_module(algorithm.package), algorithm.name)


def class_of_run(run: Run) -> Any:
    """Return the class that the run trains: its own subclass of the algorithm, or the algorithm's.

    Raises:
        Untraceable: its own cannot be imported, or is no subclass.
    """
    base = class_of(algorithm_of(run))
    if run.algo_class is None:
        return base
    found = find_object(run.algo_class)
    if not isinstance(found, type) or not issubclass(found, base):
        raise Untraceable(f"{run.algo_class!r} is not a subclass of {base.__name__}")
    return found


def _replay_arguments(run: Run, dict_space: bool, plan: Sizes, parts: Sizes) -> dict[str, Any]:
    if dict_space:
        base: type = buffers.DictReplayBuffer
    elif int(hyper(run, "n_steps") or 1) > 1:
        base = buffers.NStepReplayBuffer
    else:
        base = buffers.ReplayBuffer
    arguments: dict[str, Any] = {"replay_buffer_class": hollow_replay(base, plan, parts, _relabeled(run))}
    if base is buffers.NStepReplayBuffer:
        arguments["replay_buffer_kwargs"] = {"n_steps": int(hyper(run, "n_steps")), "gamma": hyper(run, "gamma")}
    return arguments


def _relabeled(run: Run) -> float:
    """Return which share of its samples a run gives other goals."""
    named = run.hyperparams.get("replay_buffer_class")
    if not isinstance(named, str) or not named.endswith("HerReplayBuffer"):
        return 0.0
    goals = (run.hyperparams.get("replay_buffer_kwargs") or {}).get("n_sampled_goal", 4)
    return 1 - 1 / (goals + 1)  # SB3's her_ratio


def policy_arguments(run: Run) -> dict[str, Any]:
    """Return SB3's policy_kwargs for the run, with names resolved to classes."""
    arguments = {key: _resolve(run, key, value) for key, value in run.policy.kwargs.items()}
    if run.policy.features_extractor:
        arguments["features_extractor_class"] = find_class(run, run.policy.features_extractor)
    if run.policy.features_extractor_kwargs:
        arguments["features_extractor_kwargs"] = {
            key: _resolve(run, key, value) for key, value in run.policy.features_extractor_kwargs.items()
        }
    if run.memory.activation_checkpointing and has_own(arguments.get("features_extractor_class")):
        given = arguments.get("features_extractor_kwargs") or {}
        arguments["features_extractor_kwargs"] = {**given, OWN_ARGUMENT: True}
    return arguments


def _resolve(run: Run, key: str, value: Any) -> Any:
    """Return `value` with names of classes replaced by the classes, at any depth."""
    if isinstance(value, dict):
        return {name: _resolve(run, name, each) for name, each in value.items()}
    if not isinstance(value, str):
        return value
    if key in _OWNERS and "." not in value and ":" not in value:
        found = getattr(_OWNERS[key], value, None)
        if found is None:
            raise Untraceable(f"policy.kwargs.{key}: {_OWNERS[key].__name__} has no {value!r}")
        return found
    if key.endswith(("_class", "_fn")) or value.startswith(LIVE):
        return find_class(run, value)
    return value


def find_class(run: Run, name: str) -> Any:
    """Return the layers, optimizer or policy that the run names; of a registered package, only a class of these.

    Raises:
        Untraceable: it cannot be imported, or is something else: `torch.load`.
    """
    found = find_object(name)
    fine = isinstance(found, type) and issubclass(found, torch.nn.Module | torch.optim.Optimizer)
    if not fine and not name.startswith(LIVE) and package_of(name) in registered_packages(run):
        raise Untraceable(f"{name!r} is neither a class of layers nor an optimizer")
    return found


def find_object(name: str) -> Any:
    """Return the class or function that the run names.

    Raises:
        Untraceable: it cannot be imported.
    """
    try:
        return resolve_object(name)
    except BadInput as wrong:
        raise Untraceable(str(wrong)) from wrong


def _schedule(key: str, value: Any) -> Any:
    # zoo files write schedules as lin_2.5e-4; memory does not depend on the rate, so its start stands for it
    if isinstance(value, str) and value.startswith("lin_"):
        return float(value[4:])
    if key in ("train_freq",) and isinstance(value, list):
        return tuple(value)
    return value


def stub_env(run: Run, on_step: Callable[[], None], n_envs: int | None = None) -> VecEnv:
    """Return environments that show zeros, wrapped as the run wraps them."""
    observation, action = spaces_of(run)
    return wrapped(run, StubVecEnv(n_envs or run.env.n_envs, to_gymnasium(observation), to_gymnasium(action), on_step))


def wrapped(run: Run, env: VecEnv, **normalizing: Any) -> VecEnv:
    """Return the environments with what the run wraps around all of them; `normalizing` goes to VecNormalize."""
    if run.env.normalize:
        settings = run.env.normalize if isinstance(run.env.normalize, dict) else {}
        # returns are discounted as the algorithm's, as the zoo does it
        env = VecNormalize(env, **{"gamma": run.hyperparams.get("gamma", 0.99), **settings, **normalizing})
    if run.env.frame_stack and run.env.frame_stack > 1:
        env = VecFrameStack(env, run.env.frame_stack)
    return env


@contextmanager
def importable(run: Run) -> Iterator[None]:
    """Make modules beside the run file and in the working directory importable for a run that names some of them.

    Such a run is only built where the user trusts it. The two folders come last: a numpy.py there is not numpy.
    """
    before = list(sys.path)
    if own_code(run).names:
        sys.path[:] = import_path(run, own=True)
    try:
        yield
    finally:
        sys.path[:] = before
