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
_KEEPING = ("add", "append", "appendleft", "extend", "insert", "push", "put", "put_nowait", "setdefault")
_JOINING = ("append", "cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "pad", "repeat", "row_stack",
            "stack", "tile", "union", "vstack")  # fmt: skip
_PAIRING = ("cdist", "kron", "meshgrid", "outer", "pdist")  # make an array of all pairs
_STARTING = ("Pool", "Popen", "Process", "ProcessPoolExecutor", "create_subprocess_exec", "create_subprocess_shell",
             "fork", "posix_spawn")  # fmt: skip
_CALLBACKS = ("BaseCallback", "CallbackList", "CheckpointCallback", "ConvertCallback", "EvalCallback",
              "EveryNTimesteps", "LogEveryNTimesteps", "MaskableEvalCallback", "ProgressBarCallback",
              "StopTrainingOnMaxEpisodes", "StopTrainingOnNoModelImprovement", "StopTrainingOnRewardThreshold",
              "WandbCallback")  # fmt: skip
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
    return next(_Source(trees).places(), None)


class _Source:
    """A script and the modules beside it that were followed."""

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        nodes = [node for tree in trees for node in walk(tree)]
        judged = [node for node in nodes if isinstance(node, ast.ClassDef) and is_judged_elsewhere(node)]
        elsewhere = {id(part) for node in judged for part in walk(node)}
        self.nodes = [node for node in nodes if id(node) not in elsewhere]
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.values: dict[str, list[ast.expr | None]] = {}
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, []).append(node)
            for name, value in _bound(node):
                self.values.setdefault(name, []).append(value)
        self.classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
        self.numeric: dict[str, bool] = {}
        given = {name: made[0] for name, made in self.values.items() if len(made) == 1 and made[0] is not None}
        self.constants = {name: value.value for name, value in given.items() if isinstance(value, ast.Constant)}

    def places(self) -> Iterator[ast.AST]:
        repeated: list[ast.AST] = []
        for node in self.nodes:
            if isinstance(node, Loop) and not self._is_short(node):
                repeated += node.body
            elif isinstance(node, ast.ClassDef) and any("Callback" in last_name(base) for base in node.bases):
                methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
                repeated += [part for method in methods if method.name != "__init__" for part in method.body]
                yield from (part for part in walk(node) if isinstance(part, ast.Call) and self._is_large(part))
            elif isinstance(node, ast.keyword) and node.arg == "callback":
                repeated.append(node.value)
                yield from (part for part in _calls(node.value) if self._is_foreign(part))
            elif self._made(node) >= LARGE:
                yield node
        yield from self._kept(self._with_called(repeated))

    def _is_foreign(self, call: ast.Call) -> bool:
        return last_name(call.func) not in (*_CALLBACKS, *self.classes)

    def _with_called(self, repeated: list[ast.AST]) -> list[ast.AST]:
        """Return what runs again and again, with the functions of the script that are named there."""
        seen: set[str] = set()
        for statement in repeated:  # which grows
            for part in walk(statement):
                name = last_name(part) if isinstance(part, ast.Name | ast.Attribute) else ""
                if name in self.functions and name not in seen:
                    seen.add(name)
                    repeated += [
                        each for function in self.functions[name] for each in (*function.decorator_list, *function.body)
                    ]
        return repeated

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

    def _kept(self, repeated: Sequence[ast.AST]) -> Iterator[ast.AST]:
        """Yield what a container is given that is more than a number, and what becomes longer each time."""
        for node in (part for statement in repeated for part in walk(statement)):
            match node:
                case ast.Call(func=ast.Attribute(attr=name)) if name in _KEEPING:
                    grows = not all(map(self._is_number, node.args))
                case ast.Call() if last_name(node.func) == "lru_cache":
                    grows = any(self._number(each.value) is None for each in node.keywords)  # maxsize=None
                case ast.AugAssign(op=ast.Add()):
                    grows = any(map(_is_sequence, (node.value, *self.values.get(last_name(node.target), ()))))
                case ast.Assign():
                    grows = not self._is_number(node.value) and self._grows(node)
                case _:
                    grows = isinstance(node, ast.Name | ast.Attribute) and last_name(node) == "cache"
            if grows:
                yield node

    def _grows(self, node: ast.Assign) -> bool:
        """Whether what is assigned is kept under a key, or made of what it was before and more."""
        names = {last_name(target) for target in node.targets}
        for target in node.targets:
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant | ast.Slice):
                return any(map(_is_dict, self.values.get(last_name(target.value), ())))
        for part in walk(node.value):
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
                if _is_sequence(part.left) or _is_sequence(part.right):
                    return True
            elif isinstance(part, ast.Call) and last_name(part.func) in _JOINING:
                named = [last_name(each) for each in walk(part) if isinstance(each, ast.Name | ast.Attribute)]
                if not names.isdisjoint(named):
                    return True
        return False

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
        elif isinstance(node, ast.Call) and last_name(node.func) in (*_PAIRING, *_STARTING):
            return LARGE
        elif isinstance(node, ast.Call) and last_name(node.func).endswith("Callback"):
            return LARGE if self._is_foreign(node) else 0
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


def _calls(callback: ast.expr) -> Iterator[ast.Call]:
    """Yield the calls that make callbacks: one, those of a list, or what `CallbackList` is given."""
    if isinstance(callback, ast.List | ast.Tuple):
        yield from (call for each in callback.elts for call in _calls(each))
    elif isinstance(callback, ast.Call):
        yield callback
        yield from (call for each in callback.args for call in _calls(each) if isinstance(each, ast.List | ast.Tuple))


def _is_sequence(node: ast.expr | None) -> bool:
    text = isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
    return (
        text or isinstance(node, ast.List | ast.ListComp) or (isinstance(node, ast.BinOp) and _is_sequence(node.left))
    )


def _is_dict(node: ast.expr | None) -> bool:
    called = last_name(node.func).lower() if isinstance(node, ast.Call) else ""
    return isinstance(node, ast.Dict | ast.DictComp) or called.endswith("dict")


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
