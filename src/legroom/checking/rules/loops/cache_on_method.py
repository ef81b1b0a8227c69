"""LR098: a boundless cache on a method of an environment or a network."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, argument, each_function

_LIVING = re.compile(r"^(gym|gymnasium)\..*(Env|Wrapper)$|^torch\.nn\.Module$")


def look(script: Script) -> Iterable[Found]:
    if not script.imports("functools"):
        return
    for cls in script.classes:
        for method in each_function(cls):
            cached = next((d for d in method.decorator_list if _is_boundless(script, d)), None)
            if cached is None or len(method.args.args) < 2 or method.args.args[0].arg != "self":
                continue
            if any(_LIVING.match(base) for base in script.bases(cls)):
                yield Found(
                    f"the cache of {cls.name}.{method.name}() has no bound and holds self: every argument, every "
                    "result and every instance is kept until the process ends",
                    "lru_cache(maxsize=...) on a function without self, or a dict that reset() empties",
                    cached.lineno,
                )


def _is_boundless(script: Script, decorator: ast.expr) -> bool:
    if script.qualified(decorator) == "functools.cache":
        return True
    if not (isinstance(decorator, ast.Call) and script.qualified(decorator.func) == "functools.lru_cache"):
        return False
    size = argument(decorator, "maxsize", 0)
    return isinstance(size, ast.Constant) and size.value is None


RULE = Rule(
    code="LR098",
    name="cache-on-method",
    severity="warning",
    what="functools.cache or lru_cache(maxsize=None) on a method of an environment or a network.",
    why="The cache belongs to the class and has self in its keys. It never drops anything, so environments that are "
    "made anew stay alive with all that was asked of them.",
    example="class World(gym.Env):\n    @lru_cache(maxsize=None)\n    def path(self, start, goal): ...\n",
    remedy="A bounded cache, on a function that does not take self.",
    look=per_script(look),
)
