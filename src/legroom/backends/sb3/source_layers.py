"""What is known of a features extractor's layers without importing it: what it publishes, or what its source says.

A workload declares layers and sizes in its entry (`model.workload`). A class may carry them as well, as
`legroom_layers(observation, **arguments)`, `legroom_sizes` and `legroom_headless`; that counts where the class is in
this process already, as in `legroom.predict(PPO, "CnnPolicy", env, policy_kwargs=...)`.

Most extractors of users are one row of layers written out in `__init__`: convolutions, a pooling or two, linear
layers. Such a row is followed in the order it is written, from the observation's shape, and what is known of
`__init__`'s arguments. Whatever else stands there (a loop, a layer that is not in the table, a second branch) ends it:
then nothing is known, as before. It is an estimate: `forward` is not read.
"""

import ast
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from legroom.environments.objects import find_loaded
from legroom.errors import BadInput
from legroom.machine.child_process import run_file
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace
from legroom.model.workload import Extractor, Net
from legroom.named_runs import workloads
from legroom.reading.interpreter.evaluator import fold
from legroom.reading.interpreter.script import last_name
from legroom.reading.interpreter.values import Unfoldable
from legroom.reading.source import parse_module
from legroom.reading.user_files import read_text

KEEPS_INPUT = frozenset({"GELU", "SiLU", "ELU", "LeakyReLU", "Softplus", "Mish", "SELU", "Dropout", "Dropout2d"})
NORMS = frozenset({"BatchNorm1d", "BatchNorm2d", "LayerNorm", "GroupNorm", "InstanceNorm2d"})


def source_layers(run: Run, name: str, observation: BoxSpace, arguments: Mapping[str, Any]) -> Net | None:
    """Return the extractor called `name` as its source describes it, None where that is not a plain row of layers.

    Args:
        observation: as the extractor sees it.
        arguments: of its constructor.
    """
    file = run_file(run)
    if file is None or file.suffix != ".py" or ":" not in name:
        return None
    module, _, cls = name.rpartition(":")
    if module != "__main__" and not module.endswith(".py"):
        file = file.with_name(f"{module}.py")
    known = tuple(sorted((key, value) for key, value in arguments.items() if isinstance(value, int)))
    # an image comes channels first, whatever order the environment has
    shape = observation.shape
    if len(shape) == 3 and shape[2] < min(shape[:2]) and observation.dtype == "uint8":
        shape = (shape[2], *shape[:2])
    try:
        changed = file.stat().st_mtime_ns
    except OSError:
        return None
    return _read(file, changed, cls, shape, observation.dtype == "float32", known)


@lru_cache(maxsize=64)
def _read(
    file: Path, changed: int, cls: str, shape: tuple[int, ...], is_float: bool, arguments: tuple[tuple[str, int], ...]
) -> Net | None:
    try:
        tree = parse_module(read_text(str(file)), str(file))
    except (BadInput, OSError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == cls:
            made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
            try:
                return _Row(made[0], shape, is_float, dict(arguments)).net() if len(made) == 1 else None
            except RecursionError:  # 1 + 1 + 1 + ...
                return None
    return None


class _Row:
    """Follows the layers of one `__init__`."""

    def __init__(
        self, made: ast.FunctionDef, shape: tuple[int, ...], is_float: bool, arguments: dict[str, int]
    ) -> None:
        self.made = made
        self.shape = shape  # of what the next layer gets
        names = [each.arg for each in made.args.args[1:]]
        defaults = zip(reversed(names), reversed(made.args.defaults), strict=False)
        self.names: dict[str, Any] = {f"{name}.shape": list(shape) for name in names[:1]}
        self.names |= {name: value for name, node in defaults if (value := self._number(node)) is not None} | arguments
        self.converted = 0 if is_float else math.prod(shape)

    def net(self) -> Net | None:
        net, layers = Net(kept=self.converted, converted=self.converted), 0
        for node in self._calls():
            layer = last_name(node.func)
            if layer == "Flatten":
                self.shape = (math.prod(self.shape),)
            elif layer in KEEPS_INPUT:
                net = net.then(Net(kept=math.prod(self.shape)))
            elif layer in NORMS:
                net = net.then(Net(2 * self.shape[0], math.prod(self.shape)))
            elif layer in LAYERS:
                made = LAYERS[layer](self, node)
                if made is None:
                    return None
                net, layers = net.then(made), layers + 1
        if not layers:
            return None
        return replace(net, features=self.names.get("features_dim", math.prod(self.shape)), widest_outside=net.widest)

    def _calls(self) -> Iterator[ast.Call]:
        """Yield the calls in the order they are written; one that makes layers in a loop ends in nothing known."""
        found: list[ast.Call] = []
        for statement in self.made.body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target, value = statement.targets[0], self._number(statement.value)
                if isinstance(target, ast.Name) and value is not None:
                    self.names[target.id] = value
            looped = (ast.For, ast.While, ast.If, ast.ListComp, ast.GeneratorExp)
            nodes = list(ast.walk(statement))
            calls = [node for node in nodes if isinstance(node, ast.Call)]
            made = {last_name(call.func) for call in calls}
            if made & UNKNOWN or (made & LAYERS.keys() and any(isinstance(node, looped) for node in nodes)):
                return
            found += calls
        yield from sorted(found, key=lambda call: (call.lineno, call.col_offset))

    def convolution(self, node: ast.Call) -> Net | None:
        out, kernel = self._argument(node, "out_channels", 1), self._argument(node, "kernel_size", 2)
        stride, padding = self._argument(node, "stride", 3, 1), self._argument(node, "padding", 4, 0)
        if out is None or kernel is None or not stride or padding is None or len(self.shape) < 2:
            return None
        channels, *size = self.shape
        before, weights = math.prod(self.shape), channels * out * kernel ** len(size)
        net = self._becomes((out, *(max((n + 2 * padding - kernel) // stride + 1, 1) for n in size)), weights, out)
        return replace(net, convolved=before + math.prod(self.shape))

    def linear(self, node: ast.Call) -> Net | None:
        out = self._argument(node, "out_features", 1)
        return None if out is None else self._becomes((out,), math.prod(self.shape) * out, out)

    def pool(self, node: ast.Call) -> Net | None:
        kernel = self._argument(node, "kernel_size", 0)
        stride = self._argument(node, "stride", 1, kernel)
        if kernel is None or not stride or len(self.shape) < 2:
            return None
        return self._becomes((self.shape[0], *(max((n - kernel) // stride + 1, 1) for n in self.shape[1:])))

    def adaptive_pool(self, node: ast.Call) -> Net | None:
        cells = self._argument(node, "output_size", 0)
        if cells is None or len(self.shape) < 2:
            return None
        return self._becomes((self.shape[0], *(cells for _ in self.shape[1:])))

    def _becomes(self, shape: tuple[int, ...], weights: int = 0, bias: int = 0) -> Net:
        """Return the layer that makes such a shape of what it gets."""
        self.shape = shape
        elements = math.prod(shape)
        return Net(weights + bias, elements, elements, elements, largest=weights)

    def _argument(self, node: ast.Call, name: str, place: int, default: int | None = None) -> int | None:
        given = [keyword.value for keyword in node.keywords if keyword.arg == name] or node.args[place : place + 1]
        found = self._number(given[0]) if given else default
        return None if found is None or not 0 <= found <= LARGEST else found

    def _number(self, node: ast.expr) -> int | None:
        """Return the whole number that an expression is, None where it is none or not known."""
        try:
            value = fold(node, self.names)
        except Unfoldable:
            return None
        if isinstance(value, list) and len(set(map(str, value))) == 1:  # (3, 3): square ones are meant
            value = value[0]
        return value if type(value) is int else None


LAYERS: Mapping[str, Callable[[_Row, ast.Call], Net | None]] = {
    "Conv1d": _Row.convolution, "Conv2d": _Row.convolution, "Conv3d": _Row.convolution, "Linear": _Row.linear,
    "MaxPool2d": _Row.pool, "AvgPool2d": _Row.pool, "AdaptiveAvgPool2d": _Row.adaptive_pool,
}  # fmt: skip
LARGEST = 1 << 24  # of a layer's sizes
UNKNOWN = frozenset({
    "LSTM", "GRU", "RNN", "LSTMCell", "GRUCell", "MultiheadAttention", "TransformerEncoder", "TransformerEncoderLayer",
    "ConvTranspose2d", "Embedding", "ModuleDict", "ModuleList", "NatureCNN", "create_mlp",
})  # fmt: skip


def find_extractor(name: str) -> Extractor | None:
    """Return what the extractor called `name` publishes, None where it publishes nothing."""
    for workload in workloads():
        if name in workload.extractors:
            return workload.extractors[name]
    layers, sizes = (_attribute(name, attribute) for attribute in ("legroom_layers", "legroom_sizes"))
    return None if layers is None and sizes is None else Extractor(layers, tuple(sizes or ()))


def is_headless(policy: str) -> bool:
    """Return whether a policy's Q network has no head of its own: the extractor's features are the values."""
    if ":" not in policy:
        return False
    return any(policy in workload.headless for workload in workloads()) or bool(_attribute(policy, "legroom_headless"))


def _attribute(name: str, attribute: str) -> Any:
    return getattr(find_loaded(name), attribute, None)
