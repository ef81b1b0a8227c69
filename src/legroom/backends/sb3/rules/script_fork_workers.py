"""LR054: worker processes started by fork."""

import ast
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_envs import library_class, process_vec_envs
from legroom.checking.rule_helpers import per_script
from legroom.model.rule import Fix, Found, Rule
from legroom.reading.interpreter.asker import text_of
from legroom.reading.interpreter.script import Script, argument

_GLOBAL = ("multiprocessing.set_start_method", "torch.multiprocessing.set_start_method")
_CONTEXT = ("multiprocessing.get_context", "torch.multiprocessing.get_context")


def look(script: Script) -> Iterable[Found]:
    for what, value in _methods(script):
        if text_of(script, value) == "fork":
            yield Found(
                f"{what} starts workers by fork: a killed worker can hang the training forever",
                'start_method="forkserver" (SB3\'s default) or "spawn", with the training under '
                'if __name__ == "__main__":',
                value.lineno, fix=_fix(script, value, what),
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
    """Return what `{"start_method": ...}` or `dict(start_method=...)` gives for a key."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return argument(node, key)
    return None


def _fix(script: Script, value: ast.expr, what: str) -> Fix | None:
    """Fork needs no main guard and its successors do: only a script that has one is changed."""
    from legroom.reading.interpreter.scopes import is_main_guard

    if not isinstance(value, ast.Constant) or what == "get_context" or value.lineno != value.end_lineno:
        return None
    if not any(is_main_guard(statement) for statement in script.tree.body):
        return None
    line, end = value.lineno, value.end_col_offset or 0
    return Fix("start workers by forkserver", line, script.column(line, value.col_offset), line,
               script.column(line, end), '"forkserver"')  # fmt: skip


RULE = Rule(
    code="LR054",
    name="fork-workers",
    severity="warning",
    what="Environment workers are started with the start method fork.",
    why=(
        "Forked workers inherit the pipes of their siblings: when the kernel kills one for memory, SB3's SubprocVecEnv "
        "waits forever and leaves orphans. Fork is also unsafe once torch or CUDA has started threads."
    ),
    example='env = SubprocVecEnv([make_env(i) for i in range(8)], start_method="fork")\n',
    remedy='Leave start_method out (forkserver), and keep the training under if __name__ == "__main__":.',
    look=per_script(look),
)
