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
    "jax": {"hollow", "xla", "backends"},
    "ray": {"cluster", "sweeping", "backends"},
    **{each: {"backends"} for each in ("stable_baselines3", "sb3_contrib", "brax", "mujoco")},
    **{each: set() for each in ("scipy", "matplotlib", "pyboy", "pygame", "rasterio")},
}
GROUPS = ("legroom.backends", "legroom.workloads", "legroom.rules", "legroom.knobs")  # entry points, not modules
WORDS = re.compile(
    r"\b(nobody|somebody|anybody|whoever|shall|whatsoever|for want of|in vain|last words|for ever|hardly|has not got"
    r"|let go)\b",
    re.I,
)
MODULE = re.compile(r"legroom(?:\.\w+)+")
# Lines of Python, docstrings included; the rooms of backends apart. They only fall.
CEILINGS = {
    "backends.sb3": 12_931,
    "hollow": 9_752,
    "reading": 6_272,
    "backends.program": 4_892,
    "rendering": 4_204,
    "training": 3_910,
    "backends.brax": 3_900,
    "model": 3_307,
    "watching": 3_288,
    "cli": 3_154,
    "storing": 2_605,
    "sharing": 2_454,
    "backends.rllib": 1_896,
    "checking": 1_871,
    "serving": 1_790,
    "machine": 1_706,
    "environments": 1_647,
    "explaining": 1_504,
    "top level": 1_492,
    "fitting": 1_236,
    "sweeping": 1_004,
    "predicting": 729,
    "device": 599,
    "backends": 512,
    "cluster": 468,
    "files": 428,
    "xla": 325,
    "scheduling": 170,
    "class names twice": 0,
}

ALIKE = ("LeanReplayBuffer",)  # public: legroom's for SB3, and those that take the place of other libraries' own
PUBLIC = ("legroom", "legroom.extend")  # and what they export
TREES = {path: ast.parse(path.read_text()) for path in sorted(SRC.rglob("*.py"))}
POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


def violations() -> list[str]:
    """One line per violation of the rules above."""
    found: list[str] = []
    for path, tree in TREES.items():
        where = path.relative_to(SRC)
        if where.parts[0] == "legroom":
            room = room_of(".".join(where.with_suffix("").parts).removesuffix(".__init__"))
            seen = [*_wrong_way(tree, room)]
            seen += [] if room.startswith("backends.") else _names_backend(tree, tuple(POINTS["legroom.backends"]))
            seen += [] if room == "backends.exports" else _names_workload(tree)
        else:
            inner = (edge for edge in edges(tree) if edge[1].startswith("legroom.") and edge[1] not in PUBLIC)
            seen = [(line, f"a workload imports {module}, which is not public") for line, module in inner]
        found += [f"{where}:{line}: {what}" for line, what in seen]
    over = {room: (lines, CEILINGS.get(room, 0)) for room, lines in measured().items()}
    found += [f"{room}: {lines:,} with a ceiling of {most:,}" for room, (lines, most) in over.items() if lines > most]
    return found + _odd_words()


def _odd_words() -> list[str]:
    """Where users would read one of the words; comments and docstrings, help apart, are for developers."""
    found = []
    for path, tree in TREES.items():
        where = path.relative_to(SRC)
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
    """The docstrings; of a command's module not that of `run`, which is its help."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and not (helps and getattr(node, "name", "") == "run"):
                yield first.value


def room_of(module: str) -> str:
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
    for line, module in edges(tree):
        top = module.partition(".")[0]
        if top in HEAVY and room.partition(".")[0] not in HEAVY[top]:
            yield line, f"{room} imports {top}"
        target = room_of(module) if top == "legroom" and module != top else ""
        if target in ROOMS and ROOMS.index(target) > ROOMS.index(room):
            yield line, f"{room} imports {target}, which is above it ({module})"


def edges(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every module that is imported or named, with its line: lazily, for type checkers only, or in a string."""
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
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    extras = {id(call.args[0]) for call in calls if getattr(call.func, "id", "") in EXTRAS and call.args}
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in extras:
            words = [node.value]
        elif isinstance(node, ast.ImportFrom | ast.Import):
            words = ".".join([getattr(node, "module", "") or "", *(alias.name for alias in node.names)]).split(".")
        elif isinstance(node, ast.Name | ast.Attribute | ast.FunctionDef | ast.ClassDef):
            named = [getattr(node, field, "") for field in ("id", "attr", "name")]
            words = "_".join(named).lower().split("_")
        for word in set(words) & set(names):
            yield node.lineno, f"names the backend {word}"


EXTRAS = ("needs", "MissingExtra")  # whose first argument is an extra, which may be called like a backend


def _names_workload(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Imports of a workload, and texts that are one's name, or one of its runs or modules, and nothing else."""
    named = re.compile(rf"({'|'.join(POINTS['legroom.workloads'])})(:\w*)?|legroom_workloads\.[\w.:]+")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("legroom_workloads"):
            yield node.lineno, f"imports the workloads' {node.module}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and named.fullmatch(node.value):
            yield node.lineno, f"names the workload {node.value}"


def measured() -> dict[str, int]:
    """The lines of each room, of the modules that are in none, and the number of files."""
    counted: dict[str, int] = {"files": 0, "top level": 0, "class names twice": len(names_twice())}
    for path in sorted((SRC / "legroom").rglob("*.py")):
        *folders, _ = path.relative_to(SRC / "legroom").parts
        room = ".".join(folders[: 2 if folders[0] == "backends" else 1]) if folders else "top level"
        counted[room] = counted.get(room, 0) + len(path.read_text().splitlines())
        counted["files"] += 1
    return counted


def names_twice() -> dict[str, list[str]]:
    """The names that several classes have, with where those are."""
    found: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        for node in ast.walk(tree) if SRC / "legroom" in path.parents else ():
            if isinstance(node, ast.ClassDef) and node.name not in ALIKE:
                found.setdefault(node.name, []).append(f"{path.relative_to(SRC / 'legroom')}:{node.lineno}")
    return {name: places for name, places in found.items() if len(places) > 1}


def lower_ceilings() -> None:
    """Write the ceilings down to what is there; none is raised."""
    lowered = {room: min(lines, CEILINGS.get(room, lines)) for room, lines in measured().items()}
    rows = "".join(f'    "{room}": {lines:_},\n' for room, lines in sorted(lowered.items(), key=lambda row: -row[1]))
    source, table = Path(__file__).read_text(), f"CEILINGS = {{\n{rows}}}"
    Path(__file__).write_text(re.sub(r"(?s)CEILINGS = \{\n.*?\}", lambda _: table, source, count=1))


if __name__ == "__main__":
    if "--lower" in sys.argv:
        lower_ceilings()
        sys.exit(0)
    twice = "--twice" in sys.argv
    lines = (
        [f"{name}: {', '.join(places)}" for name, places in sorted(names_twice().items())] if twice else violations()
    )
    (sys.stdout if twice else sys.stderr).write("".join(f"{line}\n" for line in lines))
    sys.exit(1 if lines and not twice else 0)
