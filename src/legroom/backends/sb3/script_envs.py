"""Environments of a script as far as its source describes them: how many, in which processes, made where.

`env` is followed from a name through wrappers (`VecNormalize(env)`), helper functions that return one, and branches
that agree, to the call that makes it. That call is the environment's identity: two names with the same origin are the
same object, two calls of one helper are not. Where the call says nothing (a parameter, a helper of another package),
the assignment itself is the identity.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from legroom.reading.interpreter.asker import DEEPEST, Asker, attribute_stores, integer_of, length_of, range_of, text_of
from legroom.reading.interpreter.scopes import Binding
from legroom.reading.interpreter.script import Definition, Script, argument, dotted, has_hidden_arguments
from legroom.reading.interpreter.values import NotKnown
from legroom.reading.source import walk

# vec env wrappers whose first argument is the environment
WRAPPERS = frozenset({
    "VecNormalize", "VecFrameStack", "VecMonitor", "VecTransposeImage", "VecVideoRecorder", "VecCheckNan",
    "VecExtractDictObs", "Monitor", "TimeLimit", "RecordEpisodeStatistics", "FlattenObservation", "ActionMasker",
    "NormalizeObservation", "NormalizeReward", "ClipAction", "RescaleAction", "AtariWrapper", "FrameStackObservation",
    "RecordVideo", "AtariPreprocessing", "GrayscaleObservation", "ResizeObservation",
})  # fmt: skip
PROCESSES = frozenset({"SubprocVecEnv", "AsyncVectorEnv"})
IN_PLACE = frozenset({"DummyVecEnv", "SyncVectorEnv"})
_LIBRARIES = ("stable_baselines3", "sb3_contrib", "gymnasium", "gym", "shimmy")


@dataclass(frozen=True)
class EnvFact:
    """One environment; None is not known.

    Args:
        origin: the call that makes it or the binding that holds it, its identity.
        workers: whether each environment has a process of its own.
        makers: the functions or classes the workers build it with, as expressions.
        script: where `makers` stand.
    """

    origin: object
    n_envs: int | None = None
    workers: bool | None = None
    makers: tuple[ast.expr, ...] = ()
    script: Script | None = None


def library_class(script: Script, node: ast.expr | None) -> str | None:
    """Return the last name of a class of SB3, sb3-contrib or gymnasium that `node` means."""
    name = script.qualified(node)
    if name is None or name.partition(".")[0] not in _LIBRARIES or "." not in name:
        return None
    return name.rpartition(".")[2]


def env_facts(script: Script, node: ast.expr | None) -> list[EnvFact]:
    """Return what `node` can be: one fact per way that leads to it; empty when any way is not known."""
    value = None if node is None else _EnvAsker(script).value(node, 0)
    return value if isinstance(value, _Envs) else []


def n_envs_of(script: Script, node: ast.expr | None) -> int | None:
    """Return how many environments `node` has, where every way to it agrees."""
    counts = {fact.n_envs for fact in env_facts(script, node)}
    return counts.pop() if len(counts) == 1 else None


def origins_of(script: Script, node: ast.expr | None) -> frozenset[int]:
    """Return the identities `node` can have; empty when not known."""
    return frozenset(id(fact.origin) for fact in env_facts(script, node))


def process_vec_envs(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that start a process per environment, with the class's name."""
    for call in script.calls:
        name = library_class(script, call.func)
        if name in PROCESSES:
            yield call, name
        elif name == "make_vec_env" and library_class(script, argument(call, "vec_env_cls", 6)) in PROCESSES:
            yield call, "SubprocVecEnv"
        elif name == "make_vec" and text_of(script, argument(call, "vectorization_mode", 2)) == "async":
            yield call, "AsyncVectorEnv"


class _Envs(list[EnvFact]):
    """The environments that an expression can be."""


class _EnvAsker(Asker):
    """Takes expressions for environments; a name that nothing else is known of is one by itself."""

    def agreed(self, values: list[Any], name: str) -> Any:
        made = [value for value in values if value is not None]
        if not made or not all(isinstance(value, _Envs) for value in made):
            return NotKnown(name)
        return _Envs(chain.from_iterable(made))

    def bound(self, binding: Binding, at: int) -> Any:
        made = super().bound(binding, at)
        return made if made is None or isinstance(made, _Envs) else _Envs([EnvFact(binding)])

    def on_ifexp(self, node: ast.IfExp, at: int) -> Any:
        return self.agreed([self.value(node.body, at + 1), self.value(node.orelse, at + 1)], "env")

    def on_attribute(self, node: ast.Attribute, at: int) -> Any:
        """`self.env`, assigned once in its class (later wraps of itself included)."""
        cls = self.script.scopes.class_of(node)
        if cls is None or dotted(node.value) != "self" or at > DEEPEST:
            return self.unknown(node)
        stored = (
            statement.value
            for target, statement in attribute_stores(self.script, node.attr)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and self.script.scopes.class_of(target) is cls
        )
        made = [value for value in stored if not isinstance(value, ast.Constant | None)]
        fresh = [s for s in made if not any(dotted(part) == f"self.{node.attr}" for part in walk(s))]
        if len(fresh) != 1:
            return self.unknown(node)
        value = self.value(fresh[0], at + 1)
        return value if isinstance(value, _Envs) else _Envs([EnvFact(fresh[0])])

    def on_call(self, node: ast.Call, at: int) -> Any:
        name = library_class(self.script, node.func)
        fact = _made_by_library(self.script, node, name)
        if fact is not None:
            return _Envs([fact])
        if name in WRAPPERS:
            inner = node.args[0] if node.args else argument(node, "venv") or argument(node, "env")
            return self.unknown(node) if inner is None else self.value(inner, at + 1)
        own = self.script.definition(node.func)
        return self.unknown(node) if own is None or at > DEEPEST else self.own_call(*own, node, at + 1)

    def own_call(self, other: Script, definition: Definition, node: ast.Call, at: int) -> Any:
        """A class or function of the folder: an environment class, or a helper that returns an environment.

        The origin is the call, since a helper makes a new environment each time it is called.
        """
        if isinstance(definition, ast.ClassDef):
            if not any(base.partition(".")[0] in ("gymnasium", "gym") for base in other.bases(definition)):
                return self.unknown(node)
            inner = self.value(node.args[0], at) if len(node.args) == 1 else None
            own = _Envs([EnvFact(node, 1, False, (node.func,), self.script)])
            return inner if isinstance(inner, _Envs) else own
        inside = (n for n in walk(definition) if isinstance(n, ast.Return))
        returned = [n.value for n in inside if other.scopes.function_of(n) is definition]
        made = self.of(other).value(returned[0], at) if len(returned) == 1 and returned[0] is not None else None
        return _Envs(replace(f, origin=node) for f in made) if isinstance(made, _Envs) else self.unknown(node)


def _made_by_library(script: Script, call: ast.Call, name: str | None) -> EnvFact | None:
    """Return the environment that a call of SB3 or gymnasium makes."""
    if name in PROCESSES | IN_PLACE:
        makers = argument(call, "env_fns", 0)
        return EnvFact(call, len_of(script, makers), name in PROCESSES, tuple(_makers(script, makers)), script)
    if name == "make":
        return EnvFact(call, 1, False, (), script)
    if name not in ("make_vec_env", "make_atari_env"):
        return None
    given, hidden = argument(call, "n_envs", 1), has_hidden_arguments(call)
    count = 1 if given is None and not hidden else integer_of(script, given)
    if name == "make_atari_env":
        return EnvFact(call, count, None, (), script)
    kind, maker = argument(call, "vec_env_cls", 6), argument(call, "env_id", 0)
    workers = None if hidden and kind is None else library_class(script, kind) in PROCESSES
    return EnvFact(call, count, workers, (maker,) if maker is not None else (), script)


def len_of(script: Script, node: ast.expr | None) -> int | None:
    """Return how many items a list of environment makers has, also one that a loop appends to."""
    length = length_of(script, node)
    if length is not None or not isinstance(node, ast.Name):
        return length
    bindings = script.scopes.reaching(node)
    uses = script.scopes.uses_of(bindings[0].value) if len(bindings) == 1 and bindings[0].value is not None else []
    changes = [p for use in uses if isinstance(p := script.scopes.parents.get(id(use)), ast.Attribute)]
    empty = len(changes) == 1 and length_of(script, bindings[0].value) == 0
    return _appended(script, changes[0]) if empty else None


def _appended(script: Script, append: ast.Attribute) -> int | None:
    """Return how many items `for i in range(n): makers.append(...)` adds."""
    call = script.scopes.parents.get(id(append))
    statement = script.scopes.parents.get(id(call)) if isinstance(call, ast.Call) else None
    loop = script.scopes.parents.get(id(statement)) if isinstance(statement, ast.Expr) else None
    if (
        append.attr != "append"
        or not isinstance(loop, ast.For)
        or script.scopes.function_of(loop) is not (script.scopes.function_of(append))
    ):
        return None
    around = [a for a in script.scopes.ancestors(loop) if isinstance(a, ast.For | ast.While)]
    numbers = range_of(script, loop.iter)
    return None if numbers is None or around else len(numbers)


def _makers(script: Script, node: ast.expr | None, depth: int = 0) -> Iterator[ast.expr]:
    """Yield the expressions that a list of environment makers consists of."""
    match node:
        case ast.List() | ast.Tuple():
            yield from node.elts
        case ast.BinOp(op=ast.Mult()):
            yield from _makers(script, node.left, depth + 1)
        case ast.ListComp():
            yield node.elt
        case ast.Name() if depth < DEEPEST:
            bindings = script.scopes.reaching(node)
            if len(bindings) == 1 and bindings[0].kind == "assign":
                yield from _makers(script, bindings[0].value, depth + 1)


def worker_classes(script: Script) -> Iterator[tuple[ast.Call, Script, ast.ClassDef]]:
    """Yield the environment classes of the folder that run in worker processes, with the call that starts them."""
    for call, _ in process_vec_envs(script):
        seen: set[int] = set()
        for fact in env_facts(script, call):
            for maker in fact.makers:
                for other, cls in classes_made(script, maker):
                    if id(cls) not in seen:
                        seen.add(id(cls))
                        yield call, other, cls


def classes_made(script: Script, maker: ast.expr, depth: int = 0) -> Iterator[tuple[Script, ast.ClassDef]]:
    """Yield the classes of the folder that an environment maker builds: a class, lambda, function or factory call."""
    if depth > 4:
        return
    if isinstance(maker, ast.Call):
        definition = script.definition(maker.func)
        if library_class(script, maker.func) == "make" and maker.args:
            yield from registered(script, maker.args[0])
            return
        if definition is None:
            inner = [*maker.args, *(k.value for k in maker.keywords)]  # functools.partial(Env, ...), a wrapper
            for part in inner:
                if isinstance(part, ast.Name | ast.Attribute | ast.Call | ast.Lambda):
                    yield from classes_made(script, part, depth + 1)
            return
        yield from _classes_of(definition, depth)
    elif isinstance(maker, ast.Lambda):
        yield from classes_made(script, maker.body, depth + 1)
    elif isinstance(maker, ast.Name | ast.Attribute):
        definition = script.definition(maker)
        if definition is not None:
            yield from _classes_of(definition, depth)
        else:
            yield from registered(script, maker)
    else:
        yield from registered(script, maker)


def registered(script: Script, name: ast.expr) -> Iterator[tuple[Script, ast.ClassDef]]:
    """Yield the class of the folder that `gym.register(id, entry_point="module:Class")` gives this name to."""
    wanted = text_of(script, name)
    for call in script.calls if wanted is not None else ():
        if library_class(script, call.func) == "register" and text_of(script, argument(call, "id", 0)) == wanted:
            entry = argument(call, "entry_point", 1)
            module, _, last = (text_of(script, entry) or "").partition(":")
            found = script.modules[module].defined_as(last) if module in script.modules else script.definition(entry)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield found[0], found[1]


def _classes_of(definition: tuple[Script, Definition], depth: int) -> Iterator[tuple[Script, ast.ClassDef]]:
    other, node = definition
    if isinstance(node, ast.ClassDef):
        yield other, node
        for base in node.bases:
            inner = other.definition(base)
            if inner is not None and isinstance(inner[1], ast.ClassDef) and depth < 4:
                yield from _classes_of(inner, depth + 1)
        return
    for part in walk(node):
        if isinstance(part, ast.Call):
            inner = other.definition(part.func)
            if inner is not None and inner[1] is not node and depth < 4:
                yield from _classes_of(inner, depth + 1)
