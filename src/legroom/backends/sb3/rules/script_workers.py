"""Worker processes in SB3's scripts: what each of them loads, holds and inherits."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.base_figures import SHIPPED_CPU, SHIPPED_CUDA
from legroom.backends.sb3.script_calls import library_class, process_vec_envs, worker_classes
from legroom.checking.rule_helpers import script_rule
from legroom.checking.script_gpu import cuda_calls
from legroom.model.rule import Found
from legroom.reading.interpreter.known_values import text_of
from legroom.reading.interpreter.scopes import is_main_guard
from legroom.reading.interpreter.script import Script, argument, dotted, each_function
from legroom.reading.source import walk

_GLOBAL = ("multiprocessing.set_start_method", "torch.multiprocessing.set_start_method")
_CONTEXT = ("multiprocessing.get_context", "torch.multiprocessing.get_context")


@script_rule("LR054")
def fork_workers(script: Script) -> Iterable[Found]:
    """Worker processes started by fork."""
    for what, value in _methods(script):
        if text_of(script, value) == "fork":
            yield Found(
                f"{what} starts workers by fork: a killed worker can hang the training forever",
                'start_method="forkserver" (SB3\'s default) or "spawn", with the training under '
                'if __name__ == "__main__":',
                value.lineno,
            )  # fmt: skip


def _methods(script: Script) -> Iterator[tuple[str, ast.expr]]:
    vectorised = list(process_vec_envs(script))
    for call in script.calls:
        name = library_class(script, call.func)
        if name == "SubprocVecEnv":
            value = argument(call, "start_method", 1)
        elif name == "AsyncVectorEnv":
            value = argument(call, "context")
        elif name == "make_vec_env":
            kwargs = argument(call, "vec_env_kwargs", 7)
            value = _entry(kwargs, "start_method") or _entry(kwargs, "context")
        elif script.qualified(call.func) in _GLOBAL and (vectorised or script.imports("torch")):
            value = argument(call, "method", 0)
            name = "set_start_method"
        elif script.qualified(call.func) in _CONTEXT and vectorised:
            value = argument(call, "method", 0)
            name = "get_context"
        else:
            continue
        if value is not None:
            yield str(name), value


def _entry(node: ast.expr | None, key: str) -> ast.expr | None:
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return argument(node, key)
    return None


_HEAVY = ("torch", "torchvision", "stable_baselines3", "sb3_contrib")
_WITH, _WITHOUT = (f"{nbytes / 1e6:.0f} MB" for nbytes in (SHIPPED_CUDA["worker"], SHIPPED_CPU["light_worker"]))
_COST = f"{_WITH} of its own per worker with torch's CUDA build, {_WITHOUT} without torch"


@script_rule("LR055")
def worker_imports_torch(script: Script) -> Iterable[Found]:
    """Environment workers that load torch, which they do not need."""
    calls = list(process_vec_envs(script))
    if not calls:
        return
    said = set()
    for call, other, cls in worker_classes(script):
        imported = _top_level_torch(other) if other.path != script.path else None
        if imported is not None and other.path not in said:
            said.add(other.path)
            package, line = imported
            yield Found(
                f"{cls.name} runs in worker processes and its module {other.name} imports {package} (line {line}): "
                f"about {_COST}",
                f"import {package.partition(' ')[0]} inside the functions that need it, or move {cls.name} to a module "
                "without it",
                call.lineno,
            )
    if said:
        return
    call, kind = calls[0]
    if kind == "SubprocVecEnv" and not said:
        where = _why(script, call)
        yield Found(f"SubprocVecEnv workers load torch ({where}): about {_COST}",
                    "workers without torch: legroom train, or gymnasium's AsyncVectorEnv with envs in a module of "
                    "their own", call.lineno, severity="info")  # fmt: skip


def _top_level_torch(script: Script, seen: frozenset[str] = frozenset()) -> tuple[str, int] | None:
    """Return the heavy package that the module, or one it imports, imports when it is itself imported; and the line."""
    for name, statement in script.imported:
        package = name.partition(".")[0]
        if not _runs_on_import(script, statement):
            continue
        if package in _HEAVY:
            return package, statement.lineno
        beside = script.modules.get(name)
        if beside is not None and name not in seen:
            inner = _top_level_torch(beside, seen | {name})
            if inner is not None:
                return f"{inner[0]} through {name}" if " through " not in inner[0] else inner[0], statement.lineno
    return None


def _runs_on_import(script: Script, statement: ast.stmt) -> bool:
    for ancestor in script.scopes.ancestors(statement):
        if isinstance(ancestor, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_main_guard(ancestor):
            return False
        if isinstance(ancestor, ast.If) and "TYPE_CHECKING" in ast.dump(ancestor.test):
            return False
        if isinstance(ancestor, ast.Try):
            return False  # optional there: it may do without
    return True


def _why(script: Script, call: ast.Call) -> str:
    if any(library_class(script, made.func) == "Monitor" for made in script.calls):
        return "SB3's Monitor in the environment maker brings it"
    if script.scopes.function_of(call) is None or any(is_main_guard(node) for node in script.tree.body):
        return "unpickling SB3's wrapper and re-importing this script bring it"
    return "unpickling SB3's wrapper brings it"  # a module: workers import the script that was started


# names of things that are costly to hold and meant to be held once
_SHARED = ("cache", "shared", "pool", "store", "level", "map", "data", "asset", "texture", "table", "lookup", "memo")


@script_rule("LR060")
def class_cache(script: Script) -> Iterable[Found]:
    """A cache on a class, meant to be shared, in environments that run in processes of their own."""
    said: set[int] = set()
    for call, other, cls in worker_classes(script):
        for home, owner in ((other, cls), *_used_classes(other, cls)):
            for name, line in _filled_caches(owner):
                if id(owner) in said:
                    continue
                said.add(id(owner))
                meant = any(word in (owner.name + name).lower() for word in _SHARED)
                where = "" if home.path == script.path else f" in {home.name}"
                yield Found(
                    f"{owner.name}.{name}{where} is filled at run time, separately in each worker process: workers "
                    "share no class attributes, so every worker holds a copy",
                    "read-only data: a memory-mapped .npy (numpy.load(mmap_mode='r')) that all workers open",
                    line if home.path == script.path else call.lineno,
                    severity=None if meant else "info",
                )


def _used_classes(script: Script, cls: ast.ClassDef) -> Iterator[tuple[Script, ast.ClassDef]]:
    """Yield the classes of the folder that an environment's methods call by name."""
    for node in walk(cls):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            definition = script.definition(node.value)
            if definition is not None and isinstance(definition[1], ast.ClassDef) and definition[1] is not cls:
                yield definition[0], definition[1]


def _filled_caches(cls: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Yield class attributes that start empty and that methods fill for the whole class."""
    for statement in cls.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_empty(value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _is_empty(value):
                pass
            case _:
                continue
        own = any(_assigns_own(method, name) for method in each_function(cls))
        if any(_fills(method, cls.name, name, own) for method in each_function(cls)):
            yield name, statement.lineno


def _is_empty(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return not node.keys
    if isinstance(node, ast.Call):
        empty = isinstance(node.func, ast.Name) and node.func.id in ("dict", "OrderedDict") and not node.keywords
        return empty and not node.args
    return isinstance(node, ast.Constant) and node.value is None


def _assigns_own(method: ast.FunctionDef | ast.AsyncFunctionDef, attribute: str) -> bool:
    """Return whether `self.attribute = ...` gives each object one of its own."""
    return any(
        isinstance(target, ast.Attribute) and target.attr == attribute and dotted(target.value) == "self"
        for node in walk(method)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )


def _fills(method: ast.FunctionDef | ast.AsyncFunctionDef, cls_name: str, attribute: str, own: bool) -> bool:
    class_method = any(isinstance(d, ast.Name) and d.id == "classmethod" for d in method.decorator_list)
    first = method.args.args[0].arg if method.args.args else ""
    classes = (cls_name, first) if class_method else (cls_name,)
    # self.cache[key] = ... fills the class's dict unless the object has one of its own
    holders = classes if class_method or own else (cls_name, first)
    targets = (t for node in walk(method) if isinstance(node, ast.Assign) for t in node.targets)
    return any(
        _is_attribute_of(target, attribute, classes)
        or (isinstance(target, ast.Subscript) and _is_attribute_of(target.value, attribute, holders))
        for target in targets
    )


def _is_attribute_of(node: ast.expr, attribute: str, owners: tuple[str, ...]) -> bool:
    """Return whether `node` is the attribute of one of these names, of `type(...)` or of `....__class__`."""
    match node:
        case ast.Attribute(attr=name, value=ast.Name(id=owner)):
            return name == attribute and owner in owners
        case ast.Attribute(attr=name, value=ast.Call() | ast.Attribute(attr="__class__")):
            return name == attribute
    return False


@script_rule("LR061")
def cuda_in_workers(script: Script) -> Iterable[Found]:
    """CUDA tensors made by environments that run in worker processes."""
    said: set[int] = set()
    for call, other, cls in worker_classes(script):
        if id(cls) in said or not other.imports("torch"):
            continue
        uses = (call for method in each_function(cls) for call in cuda_calls(other, method, perhaps=True))
        for place in uses:
            said.add(id(cls))
            where = "" if other.path == script.path else f" ({other.name}, line {place.lineno})"
            yield Found(
                f"{cls.name} runs in worker processes and puts tensors on the GPU{where}: each worker creates its own "
                "CUDA context, 300–500 MB of GPU memory",
                "keep environments on the CPU and return NumPy arrays",
                place.lineno if other.path == script.path else call.lineno,
            )
            break
