"""An SB3 training script: its constructor calls, found by following the script, never executed.

Each call of an algorithm is written down as a draft. What cannot be known is left out where memory does not depend on
it, and named with its line where it does.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from legroom.backends.base import find_algorithm
from legroom.backends.sb3.script_memory import LARGE, is_judged_elsewhere, kept_beside, loads_data
from legroom.backends.sb3.signatures import SB3_ALGORITHMS, algorithm_named
from legroom.model.draft import Draft, NotFollowed, get
from legroom.model.spaces import KnownSpaces
from legroom.reading.interpreter.effects import same
from legroom.reading.interpreter.follower import MOST_STATEMENTS, Interpreter
from legroom.reading.interpreter.gym_calls import Env, one_env
from legroom.reading.interpreter.values import (
    OPEN,
    Bound,
    Class,
    Function,
    Module,
    Names,
    Namespace,
    NotKnown,
    Parser,
    Super,
    Symbol,
    is_plain,
    is_settled,
    plain,
)
from legroom.reading.known_spaces import wrapped
from legroom.reading.reading_budget import TooCostly, pay
from legroom.reading.source import last_name, nodes_of, parse_module, walk
from legroom.reading.validating import is_harmless
from legroom.reading.yamls import Key

_PACKAGES = ("stable_baselines3.", "sb3_contrib.")


LIBRARIES = ("stable_baselines3", "sb3_contrib")

# Constructor arguments by position after `policy` and `env`, as far as people use them.
POSITIONAL: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("PPO", "MaskablePPO", "RecurrentPPO"), ("learning_rate", "n_steps", "batch_size", "n_epochs", "gamma")
    ),
    "A2C": ("learning_rate", "n_steps", "gamma"),
    "TRPO": ("learning_rate", "n_steps", "batch_size", "gamma"),
    **dict.fromkeys(
        ("DQN", "DoubleDQN", "QRDQN", "SAC", "TD3", "DDPG", "TQC", "CrossQ"),
        ("learning_rate", "buffer_size", "learning_starts", "batch_size"),
    ),
}
DEVICES = ("auto", "cpu", "cuda")
PLACES: Mapping[str, Key] = {"policy_kwargs": ("policy", "kwargs"), "seed": ("seed",), "device": ("device",)}
DROPPED = frozenset({"env", "policy", "verbose", "tensorboard_log", "_init_setup_model", "action_noise"})
# Attributes of models and environments that are set for reasons that have nothing to do with memory.
_SET_FREELY = frozenset({
    "num_timesteps", "lr_schedule", "exploration_rate", "exploration_schedule", "logger", "_logger", "ep_info_buffer",
    "ep_success_buffer", "training", "norm_reward", "norm_obs", "render_mode", "metadata", "spec", "reward_range",
    "name", "_last_obs", "_custom_logger", "start_time", "n_epochs",
})  # fmt: skip
# What may be called of a model and leaves its settings and buffers as its constructor made them.
_CALLED_FREELY = frozenset({
    "learn", "predict", "save", "train", "collect_rollouts", "set_env", "get_env", "set_logger", "set_random_seed",
    "get_parameters", "set_parameters", "get_vec_normalize_env", "save_replay_buffer",
})  # fmt: skip
LARGE_ARRAY = 1 << 26  # elements of an array beside the model, from which memory depends on it
_BUFFERS = ("replay_buffer", "rollout_buffer")
# Functions of libraries that run what they are given several times side by side.
_SIDE_BY_SIDE = frozenset({
    "Parallel", "Process", "Thread", "apply_async", "delayed", "gather", "imap", "imap_unordered", "map", "map_async",
    "remote", "run_in_executor", "spawn", "starmap", "starmap_async", "submit", "to_thread",
})  # fmt: skip
# SB3's own classes that may stand in policy_kwargs or as buffer classes, by their last name.
KNOWN_CLASSES: Mapping[str, str] = {
    "NatureCNN": "stable_baselines3.common.torch_layers:NatureCNN",
    "CombinedExtractor": "stable_baselines3.common.torch_layers:CombinedExtractor",
    "FlattenExtractor": "stable_baselines3.common.torch_layers:FlattenExtractor",
}
# Policies by the names of their classes, all that SB3 and sb3-contrib also call by an alias.
POLICY_ALIASES: Mapping[str, str] = {
    f"{kind}{name}": alias
    for kind in ("", "Maskable")
    for name, alias in (
        ("ActorCriticPolicy", "MlpPolicy"), ("ActorCriticCnnPolicy", "CnnPolicy"),
        ("MultiInputActorCriticPolicy", "MultiInputPolicy"),
    )
}  # fmt: skip


@dataclass(eq=False)
class Model:
    """An algorithm's constructor call."""

    draft: Draft
    env: Any
    made: ast.Call | None = None
    inside: tuple[object, ...] = ()  # the loops that it was made in
    learned: list[tuple[object, ...]] = field(default_factory=list)  # calls of `learn` that were followed, with loops
    loop: tuple[int, int, int] | None = None  # the steps of its one call of `learn`, how often it is made, its line

    def doubt(self, place: NotFollowed) -> None:
        """Note that it may not be what the constructor made any more."""
        self.draft.not_followed = self.draft.not_followed or place


def drafts(text: str, path: str) -> list[Draft]:
    """Return one draft per constructor call of an SB3 algorithm; none when the module has no such call.

    Raises:
        BadInput: it is not Python, or nested too deeply.
    """
    tree = parse_module(text, path)
    if not any(library in text for library in LIBRARIES) and not _has_constructor(tree):
        return []
    models = ScriptModels(path)
    models.follow(tree)
    models.follow_uncalled(_has_constructor)
    return models.finished()


def _library_algorithm(symbol: str) -> str | None:
    """Return the algorithm of SB3 that a name stands for; other libraries have a PPO too.

    A bare name was imported by `*`, or in an earlier cell of a notebook.
    """
    return algorithm_named(symbol) if "." not in symbol or symbol.startswith(_PACKAGES) else None


def _has_constructor(tree: ast.AST) -> bool:
    nodes = nodes_of(tree) if isinstance(tree, ast.Module) else walk(tree)
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    return any(algorithm_named(last_name(func)) for func in calls)


class ScriptModels(Interpreter):
    """Follows a script and collects its models."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.models: list[Model] = []
        self.making_envs = 0  # constructors of the script's environments under way
        self.making: list[list[tuple[list[Any], dict[str, Any]]]] = []  # what subclasses under way give to their base
        self.changed_envs: list[tuple[Env, NotFollowed]] = []
        self.together: list[tuple[Model, Model]] = []  # under two names of the same function or object
        self.evals: list[tuple[Env, dict[str, Any], int]] = []  # with the line of the call
        self.checkpoints: list[tuple[dict[str, Any], int]] = []

    # -- calls ---------------------------------------------------------------------------------------------------------

    def instance(self, cls: Class, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        bases = (base for base in self.ancestors(cls) if isinstance(base, Symbol))
        algorithm = next((found for base in bases if (found := _library_algorithm(base))), None)
        if algorithm is not None:
            self.making.append([])
            super().instance(cls, args, kwargs, node)
            given, passed = self.making.pop(), _passed_on(cls, algorithm, args, kwargs)
            model = self.construct(algorithm, *passed, node)
            model.draft.put(("algo_class",), cls.reference, node.lineno)
            if cls.method("__init__") is not None:  # what the run says has to be what the library is given
                told = _named(algorithm, *passed)
                for name, value in (pair for each in given for pair in _named(algorithm, *each).items()):
                    if name not in DROPPED and not same(value, told.get(name)):
                        key = PLACES.get(name, ("hyperparams", name))
                        model.draft.unknown[key] = (node.lineno, f"what {cls.node.name}.__init__ makes of it")
                if len(given) != 1:
                    model.doubt(self.place(node))
            return model
        self.making_envs += (made_elsewhere := is_judged_elsewhere(cls.node))
        found = super().instance(cls, args, kwargs, node)
        self.making_envs -= made_elsewhere
        return found

    def base_method(self, owner: Super, name: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        of_library = not any(isinstance(base, Class) and base.method(name) is not None for base in owner.cls.bases)
        if name == "__init__" and self.making and of_library:
            self.making[-1].append((args, kwargs))
        return super().base_method(owner, name, args, kwargs, node)

    def set_attribute(self, owner: Any, name: str, value: Any, node: ast.AST) -> None:
        root = owner
        while isinstance(root, Bound):
            root = root.owner
        if isinstance(root, Model):
            if not is_harmless((name,)) and name not in _SET_FREELY:
                root.doubt(self.place(node))
        elif isinstance(owner, Env):
            if name not in _SET_FREELY:
                self.changed_envs.append((owner, self.place(node)))
        else:
            super().set_attribute(owner, name, value, node)

    def set_item(self, owner: Any, key: Any, value: Any, node: ast.AST) -> None:
        if isinstance(owner, Bound | Model):
            self.set_attribute(owner, str(key), value, node)
        else:
            super().set_item(owner, key, value, node)

    def foreign(self, maker: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> NotKnown:
        before = len(self.models)
        found = super().foreign(maker, args, kwargs, node)
        beside = maker.startswith(("numpy.", "torch.")) and _elements(args, kwargs) >= LARGE_ARRAY
        if beside or (loads_data(maker) and not self.making_envs and not self._is_small_file(args)):
            self.lose(node, "takes memory beside what is trained")
        if maker.rpartition(".")[2] in _SIDE_BY_SIDE or last_name(node.func) in _SIDE_BY_SIDE or "n_jobs" in kwargs:
            for model in self.models[before:]:  # nobody knows how many at a time
                model.doubt(self.place(node))
        return found

    def _is_small_file(self, args: list[Any]) -> bool:
        try:
            return bool(args) and Path(self.path).with_name(str(args[0])).stat().st_size < LARGE // 16  # as objects
        except (OSError, ValueError):
            return False

    def rewrite(self, inside: list[Any] | dict[Any, Any], changed: Any) -> None:
        super().rewrite(inside, changed)
        _doubt_kept_together(changed)

    def write(self, inside: dict[Any, Any], key: Any, value: Any) -> None:
        super().write(inside, key, value)
        if isinstance(value, Model) and isinstance(inside, Names):
            self.together += [
                (each, value) for each in inside.values() if isinstance(each, Model) and each is not value
            ]
        elif isinstance(value, Model):
            _doubt_kept_together(inside)

    def on_listcomp(self, node: Any, at: Any) -> Any:
        before, found = len(self.models), super().on_listcomp(node, at)
        _doubt_kept_together(found if not isinstance(node, ast.GeneratorExp) else None)
        for model in self.models[before:] if isinstance(found, NotKnown) else ():  # nobody knows how many
            model.doubt(self.place(node))
        return found

    on_setcomp = on_dictcomp = on_listcomp

    def touched_by(self, value: Any, maker: str, node: ast.Call) -> None:
        if isinstance(value, Model):
            value.doubt(self.place(node))
        super().touched_by(value, maker, node)

    def library_call(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        name = symbol.rpartition(".")[2]
        algorithm = _library_algorithm(symbol)
        if algorithm is not None:
            return self.construct(algorithm, args, kwargs, node)
        if name in ("EvalCallback", "MaskableEvalCallback"):
            env = args[0] if args else kwargs.get("eval_env")
            if isinstance(env, Env):
                self.evals.append((env, kwargs, node.lineno))
            return self.unknown(node)
        if name == "CheckpointCallback":
            self.checkpoints.append(({"save_freq": args[0], **kwargs} if args else kwargs, node.lineno))
            return self.unknown(node)
        return super().library_call(symbol, args, kwargs, node)

    def attributes_of(self, owner: Any, node: ast.AST) -> Any:
        if isinstance(owner, Model):  # whoever has them may set any
            owner.doubt(self.place(node))
        return super().attributes_of(owner, node)

    def builtin(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        if symbol in ("copy.deepcopy", "deepcopy"):
            for model in (one for one in args if isinstance(one, Model)):
                model.doubt(self.place(node, "copies a model with all that it holds"))
        return super().builtin(symbol, args, kwargs, node)

    def method(self, bound: Bound, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Any:
        model = bound.owner
        root, names = bound.owner, [bound.name]
        while isinstance(root, Bound):
            root, names = root.owner, [root.name, *names]
        if isinstance(root, Model) and (
            any(name.startswith("_") for name in names) or (len(names) == 1 and bound.name not in _CALLED_FREELY)
        ):
            root.doubt(self.place(node))
        if not isinstance(model, Model):
            of = model.maker.rpartition(".")[0] if isinstance(model, NotKnown) else ""
            if bound.name == "learn" and _library_algorithm(of):  # DQN.load(...)
                self.lose(node, "trains a model with the settings of the file that it is loaded from")
            return super().method(bound, args, kwargs, node)
        if bound.name == "learn":
            self.count_steps(model, args[0] if args else kwargs.get("total_timesteps"), node)
        if bound.name == "get_env":
            return model.env
        if bound.name == "set_env" and args:
            model.env = args[0]
        return model

    def count_steps(self, model: Model, steps: Any, learn: ast.Call) -> None:
        """Write down how long a model learns: in one call, or in one that a counted loop around it repeats.

        Of several calls SB3 counts on in some ways and anew in others.
        """
        around = [each for each in self.passes if each[0] not in model.inside]
        call = (learn, *(entered for entered, _, _ in around[:1]))
        known = isinstance(steps, int | float) and not isinstance(steps, bool) and steps >= 1
        times = 1
        for inner, (_, loop, count) in zip([learn, *(loop for _, loop, _ in around[::-1])], around[::-1], strict=False):
            times = times * count if count is not None and _every_pass(loop, inner) else 0
        several = any(call != other for other in model.learned) or bool(model.learned and not around)
        model.learned.append(call)
        model.draft.data.pop("total_timesteps", None)
        model.loop = (int(steps), times, learn.lineno) if known and times and not several else None
        if model.loop is not None and not around:
            model.draft.put(("total_timesteps",), steps, learn.lineno)

    def construct(self, algorithm: str, args: list[Any], kwargs: dict[str, Any], node: ast.Call) -> Model:
        """Write down the call of an algorithm's constructor."""
        draft = Draft(f"{Path(self.path).stem}:{node.lineno}", self.path)
        model = Model(draft, None, node, tuple(loop for loop, _, _ in self.passes))
        self.models.append(model)
        draft.put(("algo",), algorithm, node.lineno)
        named = _named(algorithm, args, kwargs)
        if isinstance(named.get(OPEN), NotKnown):
            draft.unknown[("hyperparams",)] = (node.lineno, named.pop(OPEN).text)
        policy = class_reference(named.get("policy", "MlpPolicy"))
        draft.put(("policy", "name"), policy or "MlpPolicy", node.lineno)
        model.env = named.get("env")
        where = {k.arg: k.value.lineno for k in node.keywords if k.arg}
        for name, value in named.items():
            if name == "policy_kwargs" and value is None:
                continue  # as if it were not given
            if name == "device" and value not in DEVICES:
                continue  # mps, xpu: memory of the host is the same
            own = not isinstance(value, Symbol | None) or not (value or _PACKAGES[0]).startswith(_PACKAGES)
            if own and name in ("replay_buffer_class", "rollout_buffer_class"):
                model.doubt(self.place(node, "stores in a class that is not the library's"))
            if name not in DROPPED:
                place(draft, PLACES.get(name, ("hyperparams", name)), value, where.get(name, node.lineno))
        return model

    # -- the result ------------------------------------------------------------------------------------------------

    def finished(self) -> list[Draft]:
        """Return the drafts with their environments, in the order of the calls in the file.

        Raises:
            TooCostly: no call was reached before the statements that may be followed were used up.
        """
        if not self.models and self.followed > MOST_STATEMENTS:
            raise TooCostly(f"more than {MOST_STATEMENTS:,} statements", self.path)
        found: dict[str, Draft] = {}
        self.doubt_what_is_set()
        if self.models and (beside := kept_beside(self.trees)) is not None:
            self.lose(beside, "takes memory beside what is trained")
        for model, other in self.together:
            if model.learned and other.learned and other.made:  # memory is that of both
                model.doubt(second := self.place(other.made, "makes a second model while the first is kept"))
                other.doubt(second)
        for model in self.models:
            line = model.draft.lines[("algo",)]
            env = model.env
            if isinstance(env, str) and type(env) is str:
                env = one_env(self, env) or Env()
            model.draft.put(("env",), {}, line)
            if isinstance(env, Env):
                _describe_env(model.draft, env, line)
            else:  # then nobody knows how many there are, or what they show
                text = env.text if isinstance(env, NotKnown) else str(env) if isinstance(env, Symbol) else "not given"
                model.draft.unknown[("env", "n_envs")] = (line, f"that of {text}")
            envs = env.n_envs if isinstance(env, Env) and isinstance(env.n_envs, int) else 1
            self.describe_callbacks(model.draft, envs, env)
            model.draft.not_followed = model.draft.not_followed or self.not_followed
            if isinstance(env, Env):
                changed = next((place for other, place in self.changed_envs if other.origin is env.origin), None)
                if changed is not None:
                    model.doubt(changed)
            _count_iterations(model)
            found.setdefault(_content(model.draft), model.draft)
        drafts = sorted(found.values(), key=lambda draft: draft.lines[("algo",)])
        for number, draft in enumerate(drafts):  # a call in a loop may be several runs
            alike = sum(other.name == draft.name for other in drafts[:number])
            draft.name += f".{alike + 1}" if alike else ""
        if len(drafts) == 1:  # named after the script rather than after its line
            drafts[0].name = Path(self.path).stem
        return drafts

    def doubt_what_is_set(self) -> None:
        """Doubt the models of a script that sets the buffer of one where it is not followed: in a callback."""
        for node in (node for tree in self.trees for node in nodes_of(tree)):
            if isinstance(node, ast.Attribute) and node.attr in _BUFFERS and isinstance(node.ctx, ast.Store):
                for model in self.models:
                    model.doubt(self.place(node))

    def describe_callbacks(self, draft: Draft, envs: int, trained: Any) -> None:
        if self.evals:
            env, kwargs, line = self.evals[0]
            if isinstance(trained, Env) and env.origin is trained.origin:
                draft.put(("eval", "on_training_envs"), True, line)
            if isinstance(env.n_envs, int) or not get(draft.data, ("eval", "on_training_envs")):
                place(draft, ("eval", "n_envs"), env.n_envs, line)
            draft.put(("eval", "workers"), env.workers, line)
            every, episodes = kwargs.get("eval_freq"), kwargs.get("n_eval_episodes")
            if isinstance(every, int) and every > 0:  # SB3 counts steps of the vectorised environment
                draft.put(("eval", "every"), every * envs, line)
            if isinstance(episodes, int):
                draft.put(("eval", "episodes"), episodes, line)
        if self.checkpoints:
            kwargs, line = self.checkpoints[0]
            every = kwargs.get("save_freq")
            if isinstance(every, int) and every > 0:
                draft.put(("checkpoint", "every"), every * envs, line)
            if kwargs.get("save_replay_buffer") is True:
                draft.put(("checkpoint", "replay_buffer"), True, line)


def _every_pass(loop: ast.stmt, inner: ast.AST) -> bool:
    """Return whether a `for` comes to `inner`, a call or a loop in it, once in every pass, and makes all of them."""
    ends = (ast.Break, ast.Continue, ast.Return)
    if not isinstance(loop, ast.For) or any(isinstance(part, ends) for part in walk(loop)):
        return False
    plain = (part for part in loop.body if part is inner or isinstance(part, ast.Expr | ast.Assign))
    return any(part is inner for statement in plain for part in walk(statement))


def _count_iterations(model: Model) -> None:
    """Put the steps of a `learn` that a loop repeats: each call makes whole iterations, so the loop does."""
    draft, algorithm = model.draft, find_algorithm("sb3", str(model.draft.data["algo"]))
    if model.loop is None or "total_timesteps" in draft.data or algorithm is None or algorithm.family != "on-policy":
        return
    steps, times, line = model.loop
    rollout = get(draft.data, ("hyperparams", "n_steps"), algorithm.defaults["n_steps"])
    envs = get(draft.data, ("env", "n_envs"), 1)
    unknown = any(key in draft.unknown for key in (("hyperparams",), ("hyperparams", "n_steps"), ("env", "n_envs")))
    if isinstance(rollout, int) and isinstance(envs, int) and rollout * envs > 0 and not unknown:
        draft.put(("total_timesteps",), times * -(-steps // (rollout * envs)) * rollout * envs, line)


def _named(algorithm: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an algorithm's constructor by name."""
    return dict(zip(("policy", "env", *POSITIONAL.get(algorithm, ())), args, strict=False)) | kwargs


def _content(draft: Draft) -> str:
    """Return what of a run memory depends on, to tell the runs of one call apart."""
    told = [(key, value) for key, value in _leaves(draft.data) if not is_harmless(key)]
    return repr((draft.lines[("algo",)], sorted(told, key=repr), sorted(map(str, draft.unknown)), draft.not_followed))


def _leaves(data: Any, at: Key = ()) -> Iterator[tuple[Key, Any]]:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _leaves(value, (*at, key))
    elif at:
        yield at, data


def _elements(args: list[Any], kwargs: dict[str, Any]) -> int:
    """Return how many elements an array has that is made with these arguments: by its shape, or number by number."""
    shape = kwargs.get("size", kwargs.get("shape", args[0] if args and isinstance(args[0], list) else args))
    sizes = shape if isinstance(shape, list) else [shape]
    return prod(each for each in sizes if type(each) is int and each > 0) if is_settled(sizes) else 0


def _doubt_kept_together(kept: Any) -> None:
    """Doubt the models of a list or dict: a run is one of them, and memory is that of all."""
    values = kept.values() if isinstance(kept, dict) else kept if isinstance(kept, list) else ()
    models = [each for each in values if isinstance(each, Model) and each.made is not None]
    for model in models if len(models) > 1 else ():
        assert model.made is not None
        model.doubt(NotFollowed(None, model.made.lineno, NotKnown(model.made).text))


def _passed_on(cls: Class, algorithm: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return what a user's subclass is called with, as far as the library's constructor has such arguments."""
    init = cls.method("__init__")
    if init is None or isinstance(init.node, ast.Lambda):
        return args, kwargs
    names = [parameter.arg for parameter in init.node.args.args[1:]]
    if names or not init.node.args.vararg:
        args, kwargs = [], dict(zip(names, args, strict=False)) | kwargs
    known = {"policy", "env", "**", *PLACES, *next(a.keys for a in SB3_ALGORITHMS if a.name == algorithm)}
    return args, {name: value for name, value in kwargs.items() if name in known}


def place(draft: Draft, key: Key, value: Any, line: int) -> None:
    """Put a value into the draft; the parts of it that are not known, beside it."""
    pay()
    if isinstance(value, Class):
        draft.put(key, value.reference, line)
    elif isinstance(value, NotKnown | Env | Function | Model | Module | Bound | Namespace | Parser):
        draft.unknown[key] = (line, value.text if isinstance(value, NotKnown) else "an object")
    elif isinstance(value, dict):
        draft.put(key, {}, line)
        for name, child in value.items():
            place(draft, (*key, str(name)), child, line)
    elif isinstance(value, Symbol):
        if not _takes_object(key):  # a number of a module that is not there: config.LEARNING_RATE
            draft.unknown[key] = (line, str(value))
            return
        reference = class_reference(value) if key[-1] == "features_extractor_class" else str(value)
        draft.put(key, reference, line)
    elif isinstance(value, list) and not all(is_plain(v) for v in value):
        draft.unknown[key] = (line, "a list of objects")
    else:
        draft.put(key, plain(value), line)


def _takes_object(key: Key) -> bool:
    """Return whether a class or function may stand there, so that its name is the value."""
    name = str(key[-1])
    in_kwargs = any(str(part).endswith("kwargs") for part in key[:-1])
    return key[0] == "env" or name.endswith(("_class", "_fn")) or (in_kwargs and name != "net_arch")


def class_reference(value: Any) -> str | None:
    """Return a class or policy name as a run file would have it: `CnnPolicy`, `module:Class`."""
    if isinstance(value, Class):
        return value.reference
    if isinstance(value, Symbol):
        module, dot, name = value.rpartition(".")
        if not dot or module.partition(".")[0] in LIBRARIES:  # not a user's class of the same name
            name = POLICY_ALIASES.get(name, name)
            if name in KNOWN_CLASSES or name.endswith(("MlpPolicy", "CnnPolicy", "MultiInputPolicy")):
                return KNOWN_CLASSES.get(name, name)
        return f"{module}:{name}" if dot else name
    return value if isinstance(value, str) else None


def _describe_env(draft: Draft, env: Env, line: int) -> None:
    values: dict[str, Any] = {"id": env.id, "n_envs": env.n_envs, "workers": env.workers}
    values |= {"start_method": env.start_method, "frame_stack": env.frame_stack, "normalize": env.normalize}
    values |= {"wrappers": list(env.wrappers) or None, "kwargs": dict(env.kwargs) or None}
    for name, value in values.items():
        if value is not None and value is not False:
            place(draft, ("env", name), value, line)
    if env.doubted:
        draft.doubted.add(("env", "n_envs"))
    if env.observation is not None and env.action is not None:
        own = [cls.node.name for cls in env.classes]  # they gave the spaces
        known = wrapped(KnownSpaces(env.observation, env.action), [each for each in env.wrappers if each not in own])
        if known is not None:
            draft.put(("env", "spaces"), {"observation": known.observation, "action": known.action}, line)
