"""What of a file was understood: an absence of findings is an approval only where the rules knew what they saw.

A file is one of three things: understood (a run was read from it, or a call of a library that has rules), not
understood (it trains, with something that has no rules, or in a way that cannot be followed), or no training at all.
"""

from __future__ import annotations

import ast
import re

from legroom.backends.base import backends
from legroom.checking.torch_sources import loops_of, steps_environment
from legroom.model.rule import Subject, Understanding
from legroom.reading.files import OTHER_TRAINERS
from legroom.reading.interpreter.script import Script, dotted, each_function
from legroom.reading.source import unparsed, walk

UNDERSTOOD = Understanding("understood")
NO_TRAINING = Understanding("no training", "no training in this file")
_GRADIENTS = {
    "jax": (
        "jax.grad", "jax.value_and_grad", "optax.apply_updates", "flax.nnx.value_and_grad", "flax.nnx.grad",
        "equinox.apply_updates", "equinox.filter_grad", "equinox.filter_value_and_grad",
    ),
    "TensorFlow": ("tensorflow.GradientTape",),
}  # fmt: skip
# Keys of which a configuration of a training has several.
_SETTINGS = re.compile(
    r"(?im)(?:^|[{,])[ \t]*[\"']?(batch_?size|n_?steps|num_?steps|rollout_?\w+|num_?envs|n_?envs|learning_?rate|"
    r"lr|gamma|buffer_?size|replay\w*|num_?mini_?batches|mini_?batch_?size|n_?epochs|num_epochs|total_?timesteps|"
    r"num_?timesteps|max_iterations|n_timesteps|train_batch_size|sgd_minibatch_size|num_workers|num_envs_per_worker|"
    r"rollout_fragment_length|timesteps_total|discount|learning_starts|actor_lr|critic_lr|critic_tau|algo(?:rithm)?|"
    r"hidden_(?:sizes?|dims?|layers?))[\"']?[ \t]*:"
)
# Functions that are a training loop: tianshou.trainer.offpolicy_trainer(policy, ...)
_TRAINER = re.compile(r"_trainer$|^(run_)?train(ing)?(_loop)?$")
# Who learns by `train()` or `update(batch)`; networks, dicts and progress bars have such methods too.
_LEARNERS = re.compile(r"agent|learner|algo|policy|trainer|runner|maddpg|ddpg|sac|ppo|dqn|td3", re.I)


def understanding_of(subject: Subject) -> Understanding:
    if subject.runs:
        return UNDERSTOOD
    if subject.script is not None:
        return _of_script(subject.script)
    return _not(f"{subject.kind} file without an algorithm") if subject.guessed else understanding_of_yaml(subject.text)


def understanding_of_yaml(text: str) -> Understanding:
    """Return what is to be said of YAML that no reader takes for a run of its library."""
    keys = {match.lower() for match in _SETTINGS.findall(text)}
    return NO_TRAINING if len(keys) < 2 else _not("settings of a custom program (no library is named)")


def _of_script(script: Script) -> Understanding:
    followed = {backend.title: backend.checker.follows(script) for backend in backends()}
    if True in followed.values():
        return UNDERSTOOD
    if script.imports("torch") and "backward" in script.calls_by_name:
        text = "plain PyTorch training loop: checked for leaks, its size is not computed"
        return Understanding("understood", f"{text} (legroom predict -- python {script.path} does)")
    for name, functions in _GRADIENTS.items():
        if any(True for _ in script.calls_of(*functions)):
            return _not(f"{name} training loop (no rules for it yet)")
    of_lightning = any(method.name == "training_step" for cls in script.classes for method in each_function(cls))
    called = next((found for call in script.calls if (found := _trains_something(script, call))), None)
    other = next((package for package in sorted(OTHER_TRAINERS) if script.imports(package)), None)
    if called is None and not of_lightning and not (other and {"run", "fit"} & script.calls_by_name.keys()):
        return NO_TRAINING
    if other is not None:
        return _not(f"training with {other} (no rules for it yet)")
    title = next((title for title, found in followed.items() if found is False), None)
    if title is not None:
        return _not(f"{title} training whose settings cannot be followed")
    if of_lightning:
        return _not("training_step() of a Lightning module (no rules for it yet)")
    return _not(f"training by {called}(), whose loop is in another module")


def _trains_something(script: Script, call: ast.Call) -> str | None:
    """Return `runner.learn` or `algo.train` where a call can be nothing else; `net.train()` switches dropout on."""
    name = dotted(call.func) or unparsed(call.func)
    last = name.rpartition(".")[2]
    if _TRAINER.search(last) and script.definition(call.func) is None and script.qualified(call.func):
        return name
    if not isinstance(call.func, ast.Attribute) or name in ("self.learn", "self.train"):
        return None
    if last == "update":
        steps = any(steps_environment(part) for loop in loops_of(script, call) for part in walk(loop))
        return name if steps and call.args and _LEARNERS.search(name) else None
    if last == "train":
        switched = any(isinstance(a, ast.Constant) and isinstance(a.value, bool) for a in call.args)
        used = not isinstance(script.scopes.parents.get(id(call)), ast.Expr)
        return name if not switched and (used or call.args or call.keywords or _LEARNERS.search(name)) else None
    return name if last in ("learn", "run_training", "start_training") else None


def _not(what: str) -> Understanding:
    return Understanding("not understood", f"not understood: {what}")
