"""What of a file was understood: an absence of findings is an approval only where the rules knew what they saw.

A file is one of three things: understood (a run was read from it, or a call of a library that has rules), not
understood (it trains, with something that has no rules, or in a way that cannot be followed), or no training at all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.backends.base import backends
from legroom.checking.torch_sources import loops_of, steps_environment
from legroom.model.rule import Subject, Understanding
from legroom.reading.files import OTHER_TRAINERS
from legroom.reading.interpreter.script import Script, dotted, each_function
from legroom.reading.source import unparsed, walk

UNDERSTOOD = Understanding("understood")
MOST_LETTERS = 60  # of a call that is named
NO_TRAINING = Understanding("no training", "no training in this file")
_TRAIN = frozenset({"train", "learn", "fit", "run", "run_training", "start_training"})
_GRADIENTS = {
    "jax": (
        "jax.grad",
        "jax.value_and_grad",
        "optax.apply_updates",
        "flax.nnx.value_and_grad",
        "flax.nnx.grad",
        "equinox.apply_updates",
        "equinox.filter_grad",
        "equinox.filter_value_and_grad",
    ),
    "TensorFlow": ("tensorflow.GradientTape",),
}
# Keys of which a configuration of a training has several.
_SETTINGS = re.compile(
    r"(?im)(?:^|[{,])[ \t]*[\"']?(batch_?size|n_?steps|num_?steps|rollout_?\w+|num_?envs|n_?envs|learning_?rate|"
    r"lr|gamma|buffer_?size|replay\w*|num_?mini_?batches|mini_?batch_?size|n_?epochs|num_epochs|total_?timesteps|"
    r"num_?timesteps|max_iterations|n_timesteps|train_batch_size|sgd_minibatch_size|num_workers|num_envs_per_worker|"
    r"rollout_fragment_length|timesteps_total|discount|learning_starts|actor_lr|critic_lr|critic_tau|algo(?:rithm)?|"
    r"hidden_(?:sizes?|dims?|layers?))[\"']?[ \t]*:"
)
# Functions that are one: tianshou.trainer.offpolicy_trainer(policy, ...)
_TRAINER = re.compile(r"_trainer$|^(run_)?train(ing)?(_loop)?$")
# Who learns by `update(batch)`; a dict, a progress bar and a configuration have an update too.
_LEARNERS = re.compile(r"agent|learner|algo|policy|trainer|maddpg|ddpg|sac|ppo|dqn|td3", re.I)
# Classes that hold a training loop, by the names that people give them.
_LOOPS = re.compile(r"Trainer|Runner|Agent|Learner|Workspace|Experiment|Algorithm|PPO|SAC|DQN|TD3|DDPG|A2C")


def understanding_of(subject: Subject) -> Understanding:
    """Return what of the subject was understood."""
    if subject.runs:
        return UNDERSTOOD
    if subject.script is not None:
        return _of_script(subject.script)
    return _not(f"{subject.kind} file without an algorithm") if subject.guessed else understanding_of_yaml(subject.text)


def understanding_of_yaml(text: str) -> Understanding:
    """Return what is to be said of YAML that no reader takes for a run of its library."""
    keys = {match.lower() for match in _SETTINGS.findall(text)}
    if len(keys) >= 2:
        return _not("settings of a custom program (no library is named)")
    return NO_TRAINING


def _of_script(script: Script) -> Understanding:
    of_lightning = any(method.name == "training_step" for cls in script.classes for method in each_function(cls))
    if not of_lightning and not any(call for call in _training_calls(script)):
        return NO_TRAINING
    followed = {backend.title: backend.checker.follows(script) for backend in backends()}
    if True in followed.values():
        return UNDERSTOOD
    if _calls_attribute(script, ("backward",)) and script.imports("torch"):
        text = "plain PyTorch training loop: checked for leaks and waste, its size is not computed"
        return Understanding("understood", f"{text} (legroom predict -- python {script.path} does)")
    for name, functions in _GRADIENTS.items():
        if any(True for _ in script.calls_of(*functions)):
            return _not(f"{name} training loop (no rules for it yet)")
    other = next((package for package in sorted(OTHER_TRAINERS) if script.imports(package)), None)
    if other is not None:
        return _not(f"training with {other} (no rules for it yet)")
    holder = _loop_elsewhere(script)
    if holder is not None:
        return _not(f"training by {holder}, whose loop is in another module")
    title = next((title for title, found in followed.items() if found is False), None)
    if title is not None:
        return _not(f"{title} training whose settings cannot be followed")
    if of_lightning:
        return _not("training_step() of a Lightning module (no rules for it yet)")
    called = next((found for call in script.calls if (found := _trains_something(script, call))), None)
    return NO_TRAINING if called is None else _not(f"training by {called}(), whose loop is in another module")


def _training_calls(script: Script) -> Iterable[ast.Call]:
    """Yield calls that may train something; whose they are is for the caller to say."""
    functions = [name for names in _GRADIENTS.values() for name in names]
    yield from script.calls_of(*functions)
    for call in script.calls:
        if (isinstance(call.func, ast.Attribute) and call.func.attr in _TRAIN | {"backward"}) or _trains_something(
            script, call
        ):
            yield call


def _loop_elsewhere(script: Script) -> str | None:
    """Return the class whose `train()` a script calls, where that class is imported from a module that is not seen."""
    for call in script.calls:
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in _TRAIN):
            continue
        made = call.func.value
        if isinstance(made, ast.Name):
            bindings = script.scopes.reaching(made)
            made = bindings[0].value if len(bindings) == 1 and bindings[0].value is not None else made
        name = script.qualified(made.func) if isinstance(made, ast.Call) else None
        if name is not None and "." in name and _LOOPS.search(name.rpartition(".")[2]):
            return name.rpartition(".")[2]
    return None


def _trains_something(script: Script, call: ast.Call) -> str | None:
    """Return `runner.learn` or `algo.train` where a call can be nothing else; `net.train()` switches dropout on."""
    last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    function = _TRAINER.search(last) is not None
    if not function and last not in ("learn", "train", "update"):
        return None
    name = dotted(call.func) or unparsed(call.func)
    if function and script.definition(call.func) is None and script.qualified(call.func):
        return name
    if not isinstance(call.func, ast.Attribute) or name in ("self.learn", "self.train") or len(name) > MOST_LETTERS:
        return None
    if last == "learn":
        return name
    if last == "update":
        steps = any(steps_environment(part) for loop in loops_of(script, call) for part in walk(loop))
        return name if steps and call.args and _LEARNERS.search(name) else None
    if last != "train" or any(isinstance(a, ast.Constant) and isinstance(a.value, bool) for a in call.args):
        return None
    used = not isinstance(script.scopes.parents.get(id(call)), ast.Expr)
    plain = used or call.args or call.keywords or re.search(r"algo|trainer|agent|learner|runner", name, re.I)
    return name if plain else None


def _calls_attribute(script: Script, names: tuple[str, ...]) -> bool:
    return any(isinstance(call.func, ast.Attribute) and call.func.attr in names for call in script.calls)


def _not(what: str) -> Understanding:
    return Understanding("not understood", f"not understood: {what}")
