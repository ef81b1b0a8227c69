"""The rules of the house (ARCHITECTURE.md), run by `make lint` and by the tests: prints one line per violation.

1. Imports point down the list of rooms, lazy ones too: inside functions, under TYPE_CHECKING, and names of modules in
   strings (`-m legroom.x`, tables of modules). So there are no cycles between rooms.
2. The core names no backend: no identifier, string or import outside a backend's own room.
3. Heavy packages are imported only in the rooms that own them.
4. The workloads use the public interface alone, and the core names none of them but in examples of commands
   and where `DoubleDQN` is a public name of legroom.
5. What users read (strings, help, pages of the documentation) is plain English: none of the words of `WORDS`.
6. No room has more lines than its ceiling, nor the package more files. Ceilings only fall: after a cut, `python
   tests/house_rules.py --lower` writes them down to what is there; who needs more room takes it from another one.
7. One class name, one class, private ones too; `--twice` lists those that several classes still have, which a ceiling
   counts. A buffer that a library's own is replaced by is called as that library's (`ALIKE`).
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src"

# From the ground up: a room may import those before it. Backends are above the core rooms whose nouns they fill in.
ROOMS = (
    "hollow", "installing", "errors", "units", "orphan", "extras", "backends.default", "model",
    "plugins", "named_runs", "backends.base",
    "machine", "trackers", "sharing", "device", "xla", "storing", "cluster", "environments",
    "reading", "scheduling", "predicting", "fitting", "checking", "explaining", "watching", "training",
    "testing", "sweeping",
    "backends.sb3", "backends.brax", "backends.rllib", "backends.program", "backends.exports",
    "api", "optuna", "torchrl", "tianshou", "extend", "rendering", "serving", "cli", "__main__",
)  # fmt: skip
HEAVY = {
    "torch": {"hollow", "device", "storing", "torchrl", "backends"},
    "gymnasium": {"environments", "storing", "sharing", "backends"},
    "stable_baselines3": {"backends"},
    "sb3_contrib": {"backends"},
    "jax": {"hollow", "xla", "backends"},
    "brax": {"backends"},
    "mujoco": {"backends"},
    "ray": {"cluster", "sweeping", "backends"},
    "scipy": set(),
    "matplotlib": set(),
    "pyboy": set(),
    "pygame": set(),
    "rasterio": set(),
}
GROUPS = (
    "legroom.backends",
    "legroom.workloads",
    "legroom.rules",
    "legroom.knobs",
)  # of entry points, which are called like packages
WORDS = re.compile(
    r"\b(nobody|somebody|anybody|whoever|shall|whatsoever|for want of|in vain|last words|for ever|hardly|has not got"
    r"|let go)\b",
    re.I,
)
MODULE = re.compile(r"legroom(?:\.\w+)+")
# Lines of Python, docstrings included; the rooms of backends apart. They only fall.
CEILINGS = {
    "backends.sb3": 12_064,
    "hollow": 9_778,
    "reading": 6_294,
    "backends.program": 4_913,
    "rendering": 4_242,
    "backends.brax": 3_969,
    "training": 3_928,
    "watching": 3_338,
    "model": 3_293,
    "cli": 3_164,
    "storing": 2_619,
    "sharing": 2_494,
    "backends.rllib": 1_912,
    "checking": 1_875,
    "serving": 1_793,
    "machine": 1_730,
    "environments": 1_652,
    "explaining": 1_523,
    "top level": 1_492,
    "fitting": 1_236,
    "sweeping": 1_027,
    "predicting": 727,
    "device": 605,
    "backends": 546,
    "cluster": 473,
    "files": 429,
    "xla": 330,
    "scheduling": 177,
    "class names twice": 0,
}


def backend_names() -> tuple[str, ...]:
    """Return the backends of this distribution, as pyproject.toml registers them."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    return tuple(points["legroom.backends"])


def violations() -> list[str]:
    """Return one line per violation of the rules above."""
    names = backend_names()
    found: list[str] = []
    for path in sorted((SRC / "legroom").rglob("*.py")):
        tree = ast.parse(path.read_text())
        where = path.relative_to(SRC)
        room = room_of(".".join(where.with_suffix("").parts).removesuffix(".__init__"))
        found += [f"{where}:{line}: {what}" for line, what in _wrong_way(tree, room)]
        if not room.startswith("backends."):
            found += [f"{where}:{line}: {what}" for line, what in _names_backend(tree, names)]
        if room != "backends.exports":
            found += [f"{where}:{line}: {what}" for line, what in _names_workload(tree)]
    return found + _above_ceilings() + _workload_imports() + _odd_words()


def _odd_words() -> list[str]:
    """Return where users would read one of the words; comments and docstrings, help apart, are for developers."""
    found = []
    for path in sorted(SRC.rglob("*.py")):
        tree, where = ast.parse(path.read_text()), path.relative_to(SRC)
        documented = {id(text) for text in _docstrings(tree, helps=where.parts[:2] == ("legroom", "cli"))}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if "    ld " not in text and id(node) not in documented:  # assembler has comments of its own
                found += [f"{where}:{node.lineno}: {word[0]!r}" for word in WORDS.finditer(text)]
    pages = [ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")]
    pages += [
        *(ROOT / "docs").rglob("*.md"),
        *(page for kind in ("md", "html", "js", "toml") for page in SRC.rglob(f"*.{kind}")),
    ]
    for path in sorted(path for path in pages if "generated" not in path.parts):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found += [f"{path.relative_to(ROOT)}:{number}: {word[0]!r}" for word in WORDS.finditer(line)]
    return found


def _docstrings(tree: ast.Module, *, helps: bool) -> Iterator[ast.expr]:
    """Yield the docstrings; of a command's module not that of `run`, which is its help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and not (helps and getattr(node, "name", "") == "run"):
                yield first.value


def room_of(module: str) -> str:
    """Return the room that a module of legroom is in."""
    parts = module.split(".")[1:]
    if parts[:1] == ["backends"] and len(parts) > 1:
        return f"backends.{parts[1]}"
    return parts[0] if parts else "legroom"


def _wrong_way(tree: ast.Module, room: str) -> Iterator[tuple[int, str]]:
    if room in ("legroom", "backends"):
        return
    if room not in ROOMS:
        yield 1, f"room {room} is not in the list of rooms"
        return
    here = ROOMS.index(room)
    for line, module in edges(tree):
        top = module.partition(".")[0]
        if top in HEAVY and room.partition(".")[0] not in HEAVY[top]:
            yield line, f"{room} imports {top}"
        if top != "legroom" or module == "legroom":
            continue
        target = room_of(module)
        if target in ROOMS and ROOMS.index(target) > here:
            yield line, f"{room} imports {target}, which is above it ({module})"


def edges(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every module that is imported or named, with its line: lazily, for type checkers only, or in a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                yield node.lineno, module if _is_module(module) else node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = node.value.partition(":")[0]
            if MODULE.fullmatch(module) and module not in GROUPS and _is_module(module):
                yield node.lineno, module


def _is_module(module: str) -> bool:
    path = SRC.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _names_backend(tree: ast.Module, names: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    extras = {id(argument) for call in ast.walk(tree) if _takes_extra(call) for argument in call.args[:1]}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in extras:
            words = [node.value] if "\n" not in node.value and " " not in node.value else []
        elif isinstance(node, ast.Name):
            words = node.id.lower().split("_")
        elif isinstance(node, ast.Attribute):
            words = node.attr.lower().split("_")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            words = node.name.lower().split("_")
        elif isinstance(node, ast.ImportFrom | ast.Import):
            words = [part for alias in node.names for part in alias.name.split(".")]
            words += (getattr(node, "module", "") or "").split(".")
        for word in set(words) & set(names):
            yield node.lineno, f"names the backend {word}"


def _names_workload(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield imports of a workload, and texts that are one's name, or one of its runs or modules, and nothing else."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["legroom.workloads"]
    named = re.compile(rf"({'|'.join(points)})(:\w*)?|legroom_workloads\.[\w.:]+")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("legroom_workloads"):
            yield node.lineno, f"imports the workloads' {node.module}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and named.fullmatch(node.value):
            yield node.lineno, f"names the workload {node.value}"


def _takes_extra(node: ast.AST) -> bool:
    """Return whether a call's first argument is the name of an extra, which may be called like a backend."""
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("needs", "MissingExtra")


def _above_ceilings() -> list[str]:
    over = {room: (found, CEILINGS.get(room, 0)) for room, found in measured().items()}
    return [f"{room}: {found:,} with a ceiling of {most:,}" for room, (found, most) in over.items() if found > most]


def measured() -> dict[str, int]:
    """Return the lines of each room, of the modules that are in none, and the number of files."""
    counted: dict[str, int] = {"files": 0, "top level": 0, "class names twice": len(names_twice())}
    for path in sorted((SRC / "legroom").rglob("*.py")):
        parts = path.relative_to(SRC / "legroom").parts
        room = (
            "top level" if len(parts) == 1 else ".".join(parts[: 2 if parts[0] == "backends" and len(parts) > 2 else 1])
        )
        counted[room] = counted.get(room, 0) + len(path.read_text().splitlines())
        counted["files"] += 1
    return counted


ALIKE = ("LeanReplayBuffer",)  # public: legroom's for SB3, and those that take the place of other libraries' own


def names_twice() -> dict[str, list[str]]:
    """Return the names that several classes have, with where those are."""
    found: dict[str, list[str]] = {}
    for path in sorted((SRC / "legroom").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in ALIKE:
                found.setdefault(node.name, []).append(f"{path.relative_to(SRC / 'legroom')}:{node.lineno}")
    return {name: places for name, places in found.items() if len(places) > 1}


def lower_ceilings() -> None:
    """Write the ceilings down to what is there; none is raised."""
    lowered = {room: min(lines, CEILINGS.get(room, lines)) for room, lines in measured().items()}
    rows = "".join(f'    "{room}": {lines:_},\n' for room, lines in sorted(lowered.items(), key=lambda row: -row[1]))
    source = Path(__file__).read_text()
    Path(__file__).write_text(
        re.sub(r"(?s)CEILINGS = \{\n.*?\}", lambda _: f"CEILINGS = {{\n{rows}}}", source, count=1)
    )


PUBLIC = ("legroom", "legroom.extend")  # and what they export


def _workload_imports() -> list[str]:
    found = []
    for path in sorted((SRC / "legroom_workloads").rglob("*.py")):
        for line, module in edges(ast.parse(path.read_text())):
            if module.startswith("legroom.") and module not in PUBLIC:
                found.append(f"{path.relative_to(SRC)}:{line}: a workload imports {module}, which is not public")
    return found


if __name__ == "__main__":
    if "--twice" in sys.argv:
        sys.stdout.write("".join(f"{name}: {', '.join(places)}\n" for name, places in sorted(names_twice().items())))
        sys.exit(0)
    if "--lower" in sys.argv:
        lower_ceilings()
        sys.exit(0)
    wrong = violations()
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    sys.exit(1 if wrong else 0)
