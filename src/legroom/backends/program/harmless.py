"""Whether a piece of source may take or keep GPU memory, told by what it calls.

In doubt it may. Harmless is what computes with numbers, and what is called by one of the names below: printing,
logging, writing checkpoints, files, times. A function of the program's own is as harmless as its body.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from legroom.backends.program.source import KEEPING, Function, name_of, own_nodes, root_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MODULES = _words("""
    argparse atexit ax console csv datetime fig functools gc imageio inspect itertools json log logger logging math
    matplotlib mlflow np numpy operator os pandas parser path pathlib pbar pd pickle plt pprint progress random re
    rich run shutil signal sns socket string summary sys tb tensorboard time tqdm traceback wandb warnings writer
    yaml
""")
_FUNCTIONS = _words("""
    Counter Path abs all any bool defaultdict dict divmod enumerate exit filter float format getattr hasattr id
    input int isinstance issubclass len list max min open perf_counter print quit range repr reversed round set
    setattr sleep slice sorted str sum super timedelta tqdm trange tuple type vars zip
""")
_METHODS = _words("""
    add_figure add_graph add_histogram add_hparams add_image add_scalar add_scalars add_text add_video capitalize
    clear close copy count cpu critical debug detach dump dumps elapsed_time empty_cache encode end endswith error
    eval exception exists export finish flush format format_map get get_last_lr get_lr index info is_available
    isfinite isinf isnan item items join keys ljust log log_dict log_metric log_metrics lower lstrip manual_seed
    max_memory_allocated memory_allocated memory_reserved mkdir mkdtemp named_parameters no_grad numel numpy
    parameters pop print read record remove replace reset_peak_memory_stats rjust rstrip save save_checkpoint
    save_model save_pretrained savefig seed set_description set_epoch set_postfix set_postfix_str size sort split
    start startswith state_dict strftime strip synchronize time title tolist train unlink update_bar upper values
    warn warning watch write write_text writelines zero_grad zfill
""")
_NUMBERS = _words("""
    abs bool ceil count elapsed_time exp float floor get_last_lr get_lr int item len log log10 max
    max_memory_allocated mean median memory_allocated memory_reserved min numel percentile perf_counter pow prod
    round size sqrt std sum time timestamp total_seconds var
""")
_TABLES = _words("""
    array asarray dict geomspace linspace list logspace range repeat sorted tuple
""")
CONFIG = _words("""
    args cfg conf config flags hp hparams opt options opts settings
""")
DEEP = 12  # calls of the program's own functions that are followed


class AllocationJudge:
    """Says what may allocate, with the functions and the numbers that the program's files define.

    Args:
        trees: of all of the program's files.
    """

    def __init__(self, trees: Sequence[ast.AST]) -> None:
        self.functions: dict[str, list[Function]] = {}
        values: dict[str, list[ast.expr | None]] = {}
        nodes = [node for tree in trees for node in ast.walk(tree)]
        given: dict[str, list[ast.Call]] = {}
        for node in nodes:
            if isinstance(node, ast.Call):
                given.setdefault(name_of(node.func), []).append(node)
        for node in nodes:
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append(node)
                for name, value in _parameters(node, given.get(node.name, [])):
                    values.setdefault(name, []).append(value)
            else:
                for name, value in _assignments(node):
                    values.setdefault(name, []).append(value)
        self._values: Mapping[str, list[ast.expr | None]] = values
        self._numeric: dict[str, bool] = {}
        self._tables: dict[str, bool] = {}

    def is_number(self, node: ast.expr | None) -> bool:
        """Return whether an expression is a number or text of Python's own, whatever its value."""
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Compare):
            return True
        if isinstance(node, ast.BinOp):
            return self.is_number(node.left) and self.is_number(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_number(node.operand)
        if isinstance(node, ast.IfExp):
            return self.is_number(node.body) and self.is_number(node.orelse)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return all(map(self.is_number, node.elts))
        if isinstance(node, ast.Dict):
            return all(map(self.is_number, node.values))
        if isinstance(node, ast.Subscript):
            option = isinstance(node.slice, ast.Constant) and node.slice.value in ("lr", "momentum", "weight_decay")
            return option or name_of(node.value) == "shape" or self.is_number(node.value)
        if isinstance(node, ast.Call):
            return self._is_numeric_call(node)
        if isinstance(node, ast.Name | ast.Attribute):
            return root_of(node) in CONFIG or self._is_numeric_name(name_of(node))
        return False

    def is_table(self, node: ast.expr) -> bool:
        """Return whether an expression is a list or dictionary of numbers that stands in the source or the settings."""
        if isinstance(node, ast.List | ast.Tuple | ast.Dict):
            return self.is_number(node)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            return self.is_number(node.value if isinstance(node, ast.DictComp) else node.elt)
        if isinstance(node, ast.BinOp):  # [512] * 4 + [4096]
            return self.is_number(node) and (self.is_table(node.left) or self.is_table(node.right))
        if isinstance(node, ast.Call):
            made = name_of(node.func) in _TABLES and root_of(node.func) in ("np", "numpy", name_of(node.func))
            return made and all(self.is_number(each) or self.is_table(each) for each in node.args)
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        values, name = self._values.get(name_of(node), []), name_of(node)
        if name not in self._tables:
            self._tables[name] = False  # while it is looked at
            self._tables[name] = bool(values) and all(each is not None and self.is_table(each) for each in values)
        return root_of(node) in CONFIG or self._tables[name]

    def is_dict(self, node: ast.expr) -> bool:
        """Return whether a name is bound to a dictionary somewhere."""
        values = self._values.get(name_of(node), [])
        calls = [name_of(each.func).lower() for each in values if isinstance(each, ast.Call)]
        return any(isinstance(each, ast.Dict | ast.DictComp) for each in values) or any("dict" in c for c in calls)

    def is_numbers(self, node: ast.expr) -> bool:
        """Return whether an expression gives numbers one by one that stand in the source."""
        if not isinstance(node, ast.Call):
            return self.is_table(node)
        name = name_of(node.func)
        if name in ("range", "trange", "count", "enumerate", "tqdm"):
            return True
        if name == "zip":
            return all(map(self.is_numbers, node.args))
        if name in ("items", "keys", "values") and isinstance(node.func, ast.Attribute):
            return self.is_table(node.func.value)
        yields = [each.value for function in self.functions.get(name, ()) for each in ast.walk(function)
                  if isinstance(each, ast.Yield)]  # fmt: skip
        return bool(yields) and all(map(self.is_number, yields))

    def _is_numeric_call(self, call: ast.Call) -> bool:
        name, root = name_of(call.func), root_of(call.func)
        if name in ("item", "len", "numel", "tolist") or root in ("time", "math", "np", "numpy", "random"):
            return True
        if name not in _NUMBERS:
            return False
        own = isinstance(call.func, ast.Name) or self.is_number(call.func.value)  # type: ignore[attr-defined]
        return own and all(map(self.is_number, call.args))

    def _is_numeric_name(self, name: str) -> bool:
        found = self._numeric.get(name)
        if found is None:
            self._numeric[name] = True  # while it is looked at: `n = n + 1` says nothing
            values = self._values.get(name, [])
            found = self._numeric[name] = bool(values) and all(map(self.is_number, values))
        return found

    def may_allocate(self, node: ast.AST, depth: int = 0) -> bool:
        """Return whether executing it may take GPU memory or keep it."""
        shown = {
            id(each) for call in own_nodes(node) if isinstance(call, ast.Call) and self.is_harmless(call, depth)
            for each in ast.walk(call) if isinstance(each, ast.BinOp) and not isinstance(each.op, ast.MatMult)
        }  # fmt: skip
        return any(id(each) not in shown and self._takes(each, depth) for each in own_nodes(node))

    def _takes(self, node: ast.AST, depth: int) -> bool:
        if isinstance(node, ast.Call):
            return not self.is_harmless(node, depth)
        if isinstance(node, ast.BinOp):
            return not (self.is_number(node.left) and self.is_number(node.right))
        if isinstance(node, ast.AugAssign):
            return not (self.is_number(node.target) and self.is_number(node.value))
        if isinstance(node, ast.Assign):
            return any(name_of(target) == "requires_grad" for target in node.targets)
        return isinstance(node, ast.Import | ast.ImportFrom | ast.Await)

    def is_harmless(self, call: ast.Call, depth: int = 0) -> bool:
        """Return whether a call takes no GPU memory, its arguments not looked at."""
        name, root = name_of(call.func), root_of(call.func)
        if name in self.functions and root not in _MODULES:
            return depth < DEEP and not any(
                self.may_allocate(each, depth + 1) for function in self.functions[name] for each in function.body
            )
        if name in KEEPING:
            return all(map(self.is_number, call.args)) or root in _MODULES
        if name == "load_state_dict":  # of another network; an optimizer may be given what it does not have yet
            return all(isinstance(each, ast.Call) and name_of(each.func) == "state_dict" for each in call.args)
        if name == "step":
            return "sched" in root.lower() or "sched" in ast.unparse(call.func).lower()
        if isinstance(call.func, ast.Name):
            return name in _FUNCTIONS
        return (
            name in _METHODS
            or root in _MODULES
            or (isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Constant | ast.JoinedStr))
        )


def _parameters(function: Function, calls: Sequence[ast.Call]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the parameters of a function, each with the values that calls give it; None where that is not known."""
    spec = function.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    for default, name in zip(reversed(spec.defaults), reversed(names), strict=False):
        yield name, default
    after = names[1:] if names[:1] in (["self"], ["cls"]) else names
    if not calls:
        yield from ((name, None) for name in (*names, *(each.arg for each in spec.kwonlyargs)))
    for call in calls:
        if any(isinstance(each, ast.Starred) for each in call.args) or any(k.arg is None for k in call.keywords):
            yield from ((name, None) for name in (*names, *(each.arg for each in spec.kwonlyargs)))
        yield from zip(after, call.args, strict=False)
        yield from ((k.arg, k.value) for k in call.keywords if k.arg)


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield names that a node assigns, each with its value; None where that is not known."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
        if node.value is not None:
            yield from _unpacked(node.target, node.value)
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        counted = isinstance(node.iter, ast.Call) and name_of(node.iter.func) in ("range", "trange", "count")
        listed = isinstance(node.iter, ast.Call) and name_of(node.iter.func) == "enumerate"
        if listed and isinstance(node.target, ast.Tuple):
            yield name_of(node.target.elts[0]), ast.Constant(0)
            yield from ((each, None) for each in _stored(node.target.elts[1]))
        else:
            yield from ((each, ast.Constant(0) if counted else None) for each in _stored(node.target))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from ((each, None) for each in _stored(node.optional_vars))


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
    if isinstance(target, ast.Tuple | ast.List):
        pairs = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for at, each in enumerate(target.elts):
            if pairs:
                yield from _unpacked(each, value.elts[at])  # type: ignore[attr-defined]
            else:
                yield from ((name, None) for name in _stored(each))
    elif name := name_of(target):
        yield name, value


def _stored(target: ast.expr) -> list[str]:
    return [name_of(each) for each in ast.walk(target) if isinstance(each, ast.Name | ast.Attribute)]
