"""What else a script puts on the card: a second model, a callback's tensors, a network put into the policy later.

A run that is read from a script is its model's constructor and `learn`; with --trust its classes are traced. What other
statements put on the card is in no bill, so that nobody can say whether it all fits. Found by the ways in which code
says "cuda" (`.cuda()`, `.to(device)`, `device=`), in the script and the modules beside it that it imports; classes
that are traced with the run are left out.
"""

import ast
from collections.abc import Iterator
from math import prod
from pathlib import Path

from legroom.backends.sb3.script_models import algorithm_named
from legroom.errors import BadInput
from legroom.machine.child_process import run_file
from legroom.model.run import Run
from legroom.reading.interpreter.script import Script, last_name, read_script
from legroom.reading.user_files import read_text

FEW_NUMBERS = 100_000  # less than the smallest segment of a GPU's allocator
_MAKERS = {"ones", "zeros", "rand", "randn", "empty", "eye"}
_PLACING = {"device", "map_location"}  # arguments
_NETWORKS = {"policy", "actor", "critic", "q_net", "features_extractor", "mlp_extractor"}
# bases of classes that are traced as parts of a run: networks, policies, optimizers, functions with a gradient
_TRACED = ("Module", "Extractor", "Policy", "Function", "Sequential", "Optimizer", "Net", "Distribution")


def beside_the_run(run: Run) -> str:
    """Return what the run's script puts on the card beside it, in a line; empty where nothing was found."""
    script = run_file(run)
    if script is None or script.suffix != ".py" or not script.is_file():
        return ""
    found = next(_places(script), None)
    if found is None:
        return ""
    file, line, what = found
    return f"{file.name}:{line} {what}, which is not part of the run (legroom predict -- python {script.name} runs it)"


def _places(file: Path) -> Iterator[tuple[Path, int, str]]:
    try:
        script = read_script(read_text(str(file)), str(file))
    except BadInput:
        return
    for each in script.followed:
        placed = sorted(_placed(each.tree, _traced_classes(each)))
        yield from ((Path(each.path), line, what) for line, what in placed)


def _traced_classes(script: Script) -> set[str]:
    """Return the classes that belong to networks, policies and algorithms, those that derive from one of them too."""
    bases = {cls.name: {base.rpartition(".")[2] for base in script.bases(cls)} for cls in script.classes}
    return {cls for cls, names in bases.items() if any(name.endswith(_TRACED) or _is_algorithm(name) for name in names)}


def _is_algorithm(name: str) -> bool:
    return any(algorithm_named(f"{package}.{name}") for package in ("stable_baselines3", "sb3_contrib"))


def _placed(node: ast.AST, traced: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that put something on a card, with what they do."""
    if isinstance(node, ast.ClassDef) and node.name in traced:
        return
    if isinstance(node, ast.Call):
        yield from _placed_by_call(node, traced)
    elif isinstance(node, ast.Assign) and any(_is_network(target) for target in node.targets):
        yield node.lineno, "puts a network into the policy"
    for child in ast.iter_child_nodes(node):
        yield from _placed(child, traced)


def _placed_by_call(call: ast.Call, traced: set[str]) -> Iterator[tuple[int, str]]:
    name, method = last_name(call.func), isinstance(call.func, ast.Attribute)
    made = _is_algorithm(name) or name in traced
    if isinstance(call.func, ast.Attribute) and name == "load":
        made = made or _is_algorithm(last_name(call.func.value))
    moved = name in ("to", "set_default_device") and any(_is_card(each) for each in call.args)
    if (moved or (method and name == "cuda")) and not _is_small(call):
        yield call.lineno, "puts something on the GPU"
    elif not made and any(each.arg in _PLACING and _is_card(each.value) for each in call.keywords):
        yield call.lineno, f"makes {name or 'something'} on the GPU"


def _is_small(call: ast.Call) -> bool:
    """Return whether it moves a tensor of a few numbers: `torch.ones(10).cuda()`, to see whether there is a GPU."""
    made = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(made, ast.Call) or last_name(made.func) not in _MAKERS:
        return False
    sizes = [each.value for each in made.args if isinstance(each, ast.Constant) and isinstance(each.value, int)]
    return 0 < len(sizes) == len(made.args) and prod(sizes) <= FEW_NUMBERS


def _is_card(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith("cuda")
    if isinstance(node, ast.Call):
        return last_name(node.func) == "device" and any(_is_card(each) for each in node.args)
    if isinstance(node, ast.IfExp):
        return _is_card(node.body) or _is_card(node.orelse)
    return "device" in last_name(node).lower()


def _is_network(target: ast.expr) -> bool:
    """Return whether something is put into a network of a model: `model.policy.mlp_extractor = ...`."""
    if not isinstance(target, ast.Attribute):
        return False
    inner = target.value
    while isinstance(inner, ast.Attribute):
        if inner.attr in _NETWORKS and not (isinstance(inner.value, ast.Name) and inner.value.id == "self"):
            return True
        inner = inner.value
    return False
