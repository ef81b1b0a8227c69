"""LR060: a cache on a class, meant to be shared, in environments that run in processes of their own."""

import ast
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_envs import worker_classes
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, dotted, each_function
from legroom.reading.source import walk

# names of things that are costly to hold and meant to be held once
_SHARED = ("cache", "shared", "pool", "store", "level", "map", "data", "asset", "texture", "table", "lookup", "memo")


def look(script: Script) -> Iterable[Found]:
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


RULE = Rule(
    code="LR060",
    name="class-cache-not-shared",
    severity="warning",
    what="Environments in worker processes fill a cache that is an attribute of a class.",
    why=(
        "A class attribute is shared by the objects of one process. Spawned and forkserver workers each have their own "
        "class: 200 MB of level data in 8 workers is 1,968 MB, and 353 MB when all map one file."
    ),
    example="class Levels:\n    _cache = {}\n    @classmethod\n    def get(cls, i): cls._cache[i] = load(i)\n",
    remedy="Write the data to a .npy file once and open it with numpy.load(mmap_mode='r') in every worker.",
    look=per_script(look),
)
