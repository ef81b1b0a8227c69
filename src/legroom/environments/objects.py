"""Names for classes and functions, and back: what a Run holds where a library wants the object itself.

A Run is plain data, so that it can be written to a file and read again. An object that can be imported is named
`module:Qualname`, torch's own `torch.nn.ReLU` as one would write it, a class of a script `train.py:Qualname`
(`script_classes`). A live class of `__main__`, one defined inside a function, or a lambda has no such name; it is kept
in this process and named `live:<n>`, which `resolve_object` understands for as long as the process lives, and nowhere
else.
"""

import difflib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import getattr_static
from types import FunctionType, MethodType
from typing import Any

from legroom.errors import BadInput

LIVE = "live:"
SCRIPT = ".py:"  # in the name of a class that stands in a script
# As people and hyperparameter files abbreviate them.
ALIASES = {"nn": "torch.nn", "th": "torch", "optim": "torch.optim", "gym": "gymnasium"}
# Packages whose import registers ids; SB3's own command line tools import them as well.
PROVIDERS = (
    "ale_py", "pybullet_envs_gymnasium", "panda_gym", "highway_env", "minigrid", "gymnasium_robotics", "shimmy",
)  # fmt: skip
# Where the libraries document their classes, as against the modules that happen to define them.
_PUBLIC_MODULES = ("torch.nn", "torch.optim")

_live: list[Any] = []


def register(obj: Any) -> str:
    """Keep `obj` in this process and return its name there; the same object always gets the same one."""
    for number, known in enumerate(_live):
        if known is obj:
            return f"{LIVE}{number}"
    _live.append(obj)
    return f"{LIVE}{len(_live) - 1}"


def name_object(obj: Any) -> str:
    """Return the name by which `resolve_object` finds `obj` again: one that can be imported, where there is one."""
    module, qualname = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return register(obj)
    for public in _PUBLIC_MODULES:
        if module.startswith(public) and getattr(sys.modules.get(public), qualname, None) is obj:
            return f"{public}.{qualname}"
    # a script's __main__ is another module in every other process
    importable = module != "__main__" and "<" not in qualname and _walk(sys.modules.get(module), qualname) is obj
    return f"{module}:{qualname}" if importable else register(obj)


def find_loaded(text: str) -> Any:
    """Return the object called `text` where this process has it already, else None; nothing is imported."""
    if text.startswith(LIVE):
        number = text.removeprefix(LIVE)
        return _live[int(number)] if number.isdecimal() and int(number) < len(_live) else None
    module, _, qualname = text.partition(":")
    first, _, rest = qualname.partition(".")
    found = getattr(sys.modules.get(module), "__dict__", {}).get(first)  # a package may import what it is asked for
    return _walk(found, rest) if rest else found


def resolve_object(text: str) -> Any:
    """Return the object called `text`: `module:Qualname`, `package.module.Class`, `nn.ReLU` or `live:<n>`.

    Raises:
        BadInput: it cannot be imported, or the module has no such thing.
    """
    if text.startswith(LIVE):
        if (live := find_loaded(text)) is None:
            hint = "move the class to a module that can be imported"
            raise BadInput(f"{text!r} is defined in another process", hint=hint)
        return live
    if SCRIPT in text:
        return _of_script(text)
    module, colon, qualname = text.partition(":")
    if not colon:
        module, _, qualname = text.rpartition(".")
    if not module or not qualname:
        raise BadInput(f"{text!r} is not an object", hint="write it as module:Name")
    head, dot, rest = module.partition(".")
    owner = _import(ALIASES.get(head, head) + dot + rest, text)
    found = _walk(owner, qualname)
    if found is None:
        close = difflib.get_close_matches(qualname, dir(owner), n=1)
        hint = f"did you mean {close[0]!r}?" if close else ""
        raise BadInput(f"{text!r}: {owner.__name__} has no {qualname!r}", hint=hint)
    return found


def _of_script(text: str) -> Any:
    from legroom.environments.script_classes import lift, why_missing  # what few runs need, and workers stay small

    path, _, qualname = text.rpartition(":")
    module = lift(path)
    found = _walk(module, qualname)
    if found is None:
        raise BadInput(f"{qualname!r} is not available without running {path}: {why_missing(module, qualname)}")
    return found


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth of lists and dicts."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from texts_of(each)
    if isinstance(value, str):
        yield value


def package_of(name: str) -> str:
    """Return the top-level package that importing `module:Name` or `package.module.Name` begins with."""
    module, colon, _ = name.partition(":")
    head = (module if colon else name.rpartition(".")[0]).partition(".")[0]
    return ALIASES.get(head, head).partition(".")[0]


def makes_env(name: str, found: Any, base: type | tuple[type, ...] | None = None) -> Callable[..., Any]:
    """Return `found` if it is something to call for an environment, decided before it is called.

    That is a class with `reset` and `step`, or a function of Python that is not the standard library's (or a partial
    or an object that can be called like one): neither `os.system` nor `subprocess.Popen` is.

    Args:
        base: given, only a class that derives from it, defined in the package that `name` begins with, will do.

    Raises:
        BadInput: it is something else.
    """
    plain = found
    while isinstance(plain, partial):
        plain = plain.func
    if base is not None:
        fine = isinstance(found, type) and issubclass(found, base) and _package(found) == package_of(name)
    elif isinstance(plain, type):
        fine = all(callable(getattr(plain, each, None)) for each in ("reset", "step"))
    else:
        is_function = isinstance(plain, FunctionType | MethodType)
        function = plain if is_function else getattr_static(type(plain), "__call__", None)
        fine = isinstance(function, FunctionType | MethodType) and _package(function) not in sys.stdlib_module_names
    if fine:
        made: Callable[..., Any] = found
        return made
    kind = f"{_package(found)}'s {found.__qualname__}" if hasattr(found, "__qualname__") else ""
    hint = "name a class with reset() and step(), or a function of your own that returns an environment"
    what = f"{kind}, which is not called" if kind else f"of type {type(found).__name__}"
    raise BadInput(f"{name!r} is {what}, not a class or function that makes an environment", hint=hint)


def _package(found: Any) -> str:
    return str(getattr(found, "__module__", "")).partition(".")[0]


def _import(module: str, text: str) -> Any:
    try:
        return import_module(module)
    except Exception as error:  # a user's module may raise anything
        raise BadInput(f"{text!r} cannot be imported: {type(error).__name__}: {error}") from error


def _walk(owner: Any, qualname: str) -> Any:
    for part in qualname.split("."):
        owner = getattr(owner, part, None)
    return owner
