"""What a script does beside its model that may take host memory, told by its source.

A prediction bills the model, its buffers and its environments. A list that a loop fills, a callback that keeps
observations or a table of a million rows is in none of them. In doubt a container that grows counts: what stays small
is a number each time, or comes to an end soon. Environments and networks of the script are judged elsewhere.
"""

import ast
from collections.abc import Iterator, Sequence
from math import prod

from legroom.reading.interpreter.evaluator import fold
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.source import last_name, walk

LARGE = 64 << 20  # bytes beside the model from which memory depends on them
FEW_PASSES = 10_000  # of a loop that keeps something in each
OBJECT, NUMBER = 500, 36  # bytes of an element, with its place in a list
_KEEPING = ("add", "append", "appendleft", "extend", "insert", "setdefault")
_LOADERS = ("numpy.fromfile", "numpy.genfromtxt", "numpy.load", "numpy.loadtxt", "pandas.read_", "polars.read_",
            "torch.load", "pickle.load", "joblib.load", "scipy.io.loadmat", "datasets.load_dataset")  # fmt: skip
_NUMBERS = ("abs", "bool", "float", "format", "int", "item", "len", "max", "mean", "min", "monotonic", "perf_counter",
            "pow", "round", "std", "str", "sum", "time")  # fmt: skip
_TOLD = ("r", "l", "t", "rewards", "dones", "reward", "episode_reward", "is_success")  # what Monitor and SB3 tell
_JUDGED_ELSEWHERE = ("Env", "Wrapper", "Module", "Extractor", "Policy", "Dataset")
Loop = ast.For | ast.AsyncFor | ast.While
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp


def loads_data(maker: str) -> bool:
    """Whether a function of a library returns what a file holds."""
    return maker.startswith(_LOADERS)


def kept_beside(trees: Sequence[ast.Module]) -> ast.AST | None:
    """Return the first place that may take much memory beside the model, None where there is none."""
    for tree in trees:
        for node in _Source(tree).places():
            return node
    return None


class _Source:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.values: dict[str, list[ast.expr | None]] = {}
        for node in walk(tree):
            for name, value in _bound(node):
                self.values.setdefault(name, []).append(value)
        self.numeric: dict[str, bool] = {}
        given = {name: made[0] for name, made in self.values.items() if len(made) == 1 and made[0] is not None}
        self.constants = {name: value.value for name, value in given.items() if isinstance(value, ast.Constant)}

    def places(self) -> Iterator[ast.AST]:
        judged = [node for node in walk(self.tree) if isinstance(node, ast.ClassDef) and is_judged_elsewhere(node)]
        elsewhere = {id(part) for node in judged for part in walk(node)}
        called = {name.id for node in walk(self.tree) if isinstance(node, ast.keyword) and node.arg == "callback"
                  for name in walk(node.value) if isinstance(name, ast.Name)}  # fmt: skip
        for node in walk(self.tree):
            if id(node) in elsewhere:
                continue
            if isinstance(node, Loop) and not self._is_short(node):
                yield from self._kept(node.body)
            elif isinstance(node, ast.ClassDef) and any("Callback" in last_name(base) for base in node.bases):
                for method in (part for part in node.body if isinstance(part, ast.FunctionDef)):
                    yield from self._kept(method.body) if method.name != "__init__" else ()
                    yield from (part for part in walk(method) if isinstance(part, ast.Call) and self._is_large(part))
            elif isinstance(node, ast.FunctionDef) and node.name in called:
                yield from self._kept(node.body)
            elif self._made(node) >= LARGE:
                yield node

    def _is_short(self, loop: Loop) -> bool:
        """Whether a loop ends soon, or what it goes through is there already."""
        passes = None if isinstance(loop, ast.While) else self._passes(loop.iter)
        return passes is not None and passes <= FEW_PASSES

    def _passes(self, iterated: ast.expr) -> int | None:
        """Return how many numbers a `range` or a literal gives, as far as its bounds are constants; None: unknown."""
        if isinstance(iterated, ast.List | ast.Tuple | ast.Dict | ast.Constant):
            return 1
        if not isinstance(iterated, ast.Call) or not iterated.args:
            return None
        if last_name(iterated.func) in ("enumerate", "reversed", "sorted", "tqdm", "zip"):
            return self._passes(iterated.args[0])
        bounds = [self._number(each) for each in iterated.args]
        if last_name(iterated.func) not in ("range", "trange") or None in bounds:
            return None
        try:
            return len(range(*bounds[:3]))  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            return None

    def _number(self, node: ast.expr) -> int | None:
        try:
            value = fold(node, self.constants)
        except (Unfoldable, RecursionError):
            return None
        return int(value) if isinstance(value, int | float) and abs(value) < 1 << 62 else None

    def _kept(self, body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
        """Yield what a container is given that is more than a number."""
        for node in (part for statement in body for part in walk(statement)):
            given: list[ast.expr] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _KEEPING:
                given = node.args
            elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.List | ast.ListComp):
                given = [node.value]
            if not all(map(self._is_number, given)):
                yield node

    def _is_number(self, node: ast.AST | None) -> bool:
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.Compare():
                return True
            case ast.BinOp():
                return self._is_number(node.left) and self._is_number(node.right)
            case ast.UnaryOp():
                return self._is_number(node.operand)
            case ast.IfExp():
                return self._is_number(node.body) and self._is_number(node.orelse)
            case ast.Tuple() | ast.List() | ast.Set():
                return all(map(self._is_number, node.elts))
            case ast.Dict():
                return all(map(self._is_number, node.values))
            case ast.Call():
                return last_name(node.func) in _NUMBERS
            case ast.Subscript():
                key = node.slice.value if isinstance(node.slice, ast.Constant) else None
                return key in _TOLD or self._is_number(node.value)
            case ast.Name() | ast.Attribute():
                name = last_name(node)
                if name not in self.numeric:
                    self.numeric[name] = True  # while it is looked at: `n = n + 1` says nothing
                    values = self.values.get(name, [])
                    self.numeric[name] = bool(values) and all(map(self._is_number, values))
                return self.numeric[name]
        return False

    def _made(self, node: ast.AST) -> int:
        """About how many bytes a container takes: a comprehension, `[0] * n`, `bytearray(n)`, `list(range(n))`."""
        if isinstance(node, Comprehension):
            each = node.value if isinstance(node, ast.DictComp) else node.elt
            inner = self._made(each) or (NUMBER if self._is_number(each) else OBJECT)
            return inner * prod(self._passes(part.iter) or 1 for part in node.generators)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, times in ((node.left, node.right), (node.right, node.left)):
                if isinstance(one, ast.List) or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes)):
                    items = 8 * len(one.elts) if isinstance(one, ast.List) else len(one.value)  # type: ignore[arg-type]
                    return items * (self._number(times) or 0)
        elif isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.func, ast.Name):
            if node.func.id in ("bytearray", "bytes"):
                return self._number(node.args[0]) or 0
            if node.func.id in ("deque", "list", "set", "sorted", "tuple"):
                return NUMBER * (self._passes(node.args[0]) or 0)
        return 0

    def _is_large(self, call: ast.Call) -> bool:
        """Whether a call makes a large array, by its shape of constants, or copies what may be the model."""
        shape = call.args[0].elts if call.args and isinstance(call.args[0], ast.Tuple | ast.List) else call.args[:1]
        sizes = [self._number(each) for each in shape]
        return last_name(call.func) == "deepcopy" or (None not in sizes and 4 * prod(sizes, start=1) >= LARGE)  # type: ignore[arg-type]


def is_judged_elsewhere(node: ast.ClassDef) -> bool:
    """Whether a class is an environment or a part of a network: what it takes is its own."""
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    return {"step", "reset"} <= methods or any(last_name(base).endswith(_JUDGED_ELSEWHERE) for base in node.bases)


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that a node binds, with their values; None where that is not known, a number where it is one."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple | ast.List):
                stepped = isinstance(node.value, ast.Call) and last_name(node.value.func) == "step"
                for at, each in enumerate(target.elts):  # of `step`, all but observation and infos are numbers
                    known = stepped and 0 < at < len(target.elts) - 1
                    yield last_name(each), ast.Constant(0) if known else None
            else:
                yield last_name(target), node.value
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield last_name(node.target), node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        counted = isinstance(node.iter, ast.Call) and last_name(node.iter.func) in ("range", "trange", "count")
        for part in walk(node.target):
            if isinstance(part, ast.Name):
                yield part.id, ast.Constant(0) if counted else None
    elif isinstance(node, ast.arg):
        yield node.arg, None
