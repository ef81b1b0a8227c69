"""What XLA says about a brax run that is traced and compiled and never run; asked by way of `asking`.

*compile*: the run's epoch (and its evaluation) as they are; answers with XLA's memory analysis, seconds, and the
high-water mark of this process, which is what tracing and compiling take on the host wherever the run trains.

*plan*: the run as it is, or its evaluation, to be told the bytes of its temporaries. XLA has written them before it
generates any code, which takes most of a compilation's time: the process ends right there.

*shapes*: traces only: the bytes of weights, optimizer and states.

With a `target` (`xla/target.py`) it is XLA's compiler for that card that is asked, about brax's `pmap` over that
card: a `vmap` over an axis of one is another program, whose temporaries XLA plans otherwise.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from brax.training import acting

from legroom.backends.brax.asking import EPOCH_MODULE, EVALUATION_MODULE
from legroom.backends.brax.capture import Captured, capture, policy_params, without_device
from legroom.backends.brax.facts import eval_envs_of, is_ppo
from legroom.errors import BadInput
from legroom.model.run import Run
from legroom.xla.buffers import read_allocations
from legroom.xla.devices import assignment_file, card_sharding, on_card

PMAP_AXIS = "i"  # as brax calls it
Task = dict[str, Any]
Say = Callable[[str], None]


def _compile(task: Task, say: Say) -> dict[str, Any]:
    imported, started = _status("VmRSS"), time.perf_counter()
    captured = _captured(task, say)
    lowered = _lowered(captured, task)
    say("XLA compiles the training step")
    step = lowered.compile().memory_analysis()
    del lowered
    say("XLA compiles the evaluation")
    evaluation = _lowered(captured, task, evaluation=True).compile().memory_analysis()
    return {
        **shapes_of(captured),
        "temporaries": step.temp_size_in_bytes,
        "evaluation_temporaries": evaluation.temp_size_in_bytes,
        "imported_nbytes": imported,
        "all_compiled_nbytes": _status("VmHWM"),
        "retained_nbytes": _status("VmRSS"),
        "compile_s": time.perf_counter() - started,
    }


def _plan(task: Task, say: Say) -> dict[str, Any]:
    """Answer with the bytes that XLA packs the temporaries of the run as it is into."""
    lowered = _lowered(_captured(task, say), task, evaluation=task["evaluation"])
    return {"temporaries": _temporaries(lowered, task, say)}


def _captured(task: Task, say: Say) -> Captured:
    run = Run.model_validate(task["run"])
    if (run.env.kwargs.get("config_overrides") or {}).get("impl") == "warp":
        raise BadInput(
            f"env {run.env.id!r}: Warp's physics are not part of XLA's plan", path=run.source,
            hint="impl: jax, or predict the program that trains it: legroom predict -- python train.py",
        )  # fmt: skip
    say("tracing brax's training step")
    # `legroom train` makes an epoch of one training step; brax's own SAC has a loop around it
    steps = 1 if run.algo.upper() == "PPO" else 2
    return capture(run, steps=steps)


def _lowered(captured: Captured, task: Task, *, evaluation: bool = False) -> Any:
    """Return the program, traced for its arguments' shapes: what jax has between tracing and compiling."""
    program = captured.evaluation if evaluation else captured.epoch
    arguments = captured.evaluation_arguments if evaluation else captured.arguments
    if "target" in task:
        sharding = card_sharding(task["target"])
        if not evaluation:
            return _on_card(captured, sharding).lower(*arguments)
        arguments = on_card(arguments, sharding)
    return program.lower(*arguments)  # type: ignore[attr-defined]


def _on_card(captured: Captured, sharding: Any) -> Any:
    """Return the epoch as brax maps it, over the card, with what it donates."""
    donated = tuple(range(len(captured.arguments) - 1))
    epoch: Any = captured.epoch
    return jax.pmap(epoch.__wrapped__, PMAP_AXIS, donate_argnums=donated, devices=tuple(sharding.device_set))


def _for_card(task: Task) -> str:
    return f" for a {task['card']}" if "target" in task else ""


def _temporaries(lowered: Any, task: Task, say: Say) -> int:
    evaluation = task["evaluation"]
    module = EVALUATION_MODULE if evaluation else EPOCH_MODULE
    say(f"XLA plans the memory of {'the evaluation' if evaluation else 'the training step'}{_for_card(task)}")
    text = assignment_file(lowered.compile, module, Path(task["folder"], "dump")).read_text()
    return read_allocations(text)["temporaries"]


def shapes_of(captured: Captured) -> dict[str, Any]:
    """Return the bytes of what an epoch is given, by what it is, and the sizes of observation and action."""

    def nbytes(tree: Any) -> int:
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree_util.tree_leaves(tree))

    state, env_state = captured.arguments[0], captured.arguments[1]
    envs = captured.run.env.n_envs
    leaves = jax.tree_util.tree_leaves(env_state)
    batched = [leaf for leaf in leaves if leaf.shape[1:2] == (envs // captured.devices,)]
    each = nbytes(batched) // envs
    weights = nbytes([getattr(state, name) for name in ("params", "policy_params", "q_params") if hasattr(state, name)])
    optimizer = nbytes([value for name, value in vars(state).items() if "optimizer_state" in name])
    evaluated = nbytes(captured.evaluation_arguments[0]) // eval_envs_of(captured.run)
    return {
        "weights_nbytes": weights,
        "targets_nbytes": nbytes(getattr(state, "target_q_params", ())),
        "optimizer_nbytes": optimizer,
        "other_nbytes": nbytes(state) - weights - optimizer - nbytes(getattr(state, "target_q_params", ())),
        "env_state_nbytes": each,
        "env_fixed_nbytes": nbytes(env_state) - each * envs,
        "eval_state_nbytes": evaluated,
        "transition_nbytes": transition_nbytes(captured),
        "observation": _observation(env_state),
        "action_size": int(captured.env.action_size),
    }


def transition_nbytes(captured: Captured) -> int:
    """Return the bytes of one environment step as brax stores it, by tracing one step of its own `actor_step`."""

    fields = ("truncation", "episode_metrics", "episode_done") if is_ppo(captured.run) else ("truncation",)

    def step(state: Any, params: Any, key: Any) -> Any:
        return acting.actor_step(captured.env, state, captured.make_policy(params), key, extra_fields=fields)[1]

    learned, env_state, *_, keys = captured.arguments
    whole = (env_state, policy_params(learned), keys)
    found = jax.eval_shape(step, *(jax.tree_util.tree_map(without_device, tree) for tree in whole))
    envs = captured.run.env.n_envs // captured.devices
    return sum(leaf.size // envs * leaf.dtype.itemsize for leaf in jax.tree_util.tree_leaves(found))


def _observation(env_state: Any) -> Any:
    observation = env_state.obs
    if hasattr(observation, "items"):
        return {key: list(leaf.shape[2:]) for key, leaf in observation.items()}
    return list(observation.shape[2:])


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0  # not Linux


QUESTIONS: dict[str, Callable[[Task, Say], dict[str, Any]]] = {
    "shapes": lambda task, say: shapes_of(_captured(task, say)), "compile": _compile, "plan": _plan,
}  # fmt: skip
