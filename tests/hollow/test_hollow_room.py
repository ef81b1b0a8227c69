"""hollow/ is loaded into interpreters that have no legroom and may be as old as Python 3.9."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "src" / "legroom" / "hollow"
FILES = sorted(ROOM.rglob("*.py"))
ALLOWED = (sys.stdlib_module_names - {"tomllib"}) | {"numpy", "torch"}
TYPES = {"list", "tuple", "dict", "set", "int", "float", "str", "bool", "bytes", "None"}


def too_new(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield what Python 3.9 compiles and then stumbles over."""
    annotations = {
        id(inner)
        for node in ast.walk(tree)
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and id(node) not in annotations:
            if any(ast.unparse(side).partition("[")[0] in TYPES for side in (node.left, node.right)):
                yield node.lineno, "X | Y outside annotations"
        elif isinstance(node, ast.Call):
            names = {keyword.arg for keyword in node.keywords}
            if ast.unparse(node.func) == "zip" and "strict" in names:
                yield node.lineno, "zip(strict=…)"
            if ast.unparse(node.func).endswith("dataclass") and names & {"slots", "kw_only"}:
                yield node.lineno, "dataclass(slots=…)"


def foreign(tree: ast.Module, *also: str) -> Iterator[tuple[int, str]]:
    """Yield imports of what a guest does not have."""
    allowed = ALLOWED | set(also)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, a.name) for a in node.names if a.name.partition(".")[0] not in allowed)
        elif (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (node.module or "").partition(".")[0] not in allowed
        ):
            yield node.lineno, str(node.module)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_guest_can_import_it(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text, feature_version=(3, 9))
    also = ("jax",) if path.name.startswith("jax_") else ()  # which are loaded once a program has imported jax
    assert not [*foreign(tree, *also), *too_new(tree)]
    assert "from __future__ import annotations" in text or path.name == "__init__.py"


@pytest.mark.parametrize(
    "source",
    ["import legroom", "from legroom.units import MIB", "import pydantic", "import tomllib", "A = int | None",
     "isinstance(x, list | tuple)", "zip(a, b, strict=True)", "@dataclass(slots=True)\nclass A: ..."],
)  # fmt: skip
def test_what_a_guest_cannot_import_is_seen(source: str) -> None:
    tree = ast.parse(source)
    assert [*foreign(tree), *too_new(tree)]


def test_it_loads_under_another_name_without_legroom(tmp_path: Path) -> None:
    (tmp_path / "legroom_hollow").symlink_to(ROOM)
    names = [path.stem for path in ROOM.glob("*.py") if path.stem != "__init__"]
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import importlib\n"
        f"for name in {names!r}: importlib.import_module('legroom_hollow.' + name)\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] == 'legroom']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
