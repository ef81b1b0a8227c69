"""Checks the direction of imports (ARCHITECTURE.md): run by `make lint`, and by the tests.

A room may import the rooms below it and the common ground; nothing imports `cli`; only two rooms import heavy packages.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "legroom"

# room -> rooms it may import; everyone may import the common ground
COMMON = {"model", "units", "errors", "extras", "lazily"}
ALLOWED: dict[str, set[str]] = {}  # being rebuilt with the seam
HEAVY = {
    "torch",
    "gymnasium",
    "stable_baselines3",
    "sb3_contrib",
    "jax",
    "brax",
    "mujoco",
    "ray",
    "pyboy",
    "pygame",
    "rasterio",
    "scipy",
    "matplotlib",
}
# A module of a light room, imported inside functions: what it draws is rendering, what it draws with is not.
HEAVY_MODULES = {"rendering/charts.py": {"matplotlib"}, "rendering/sweep_chart.py": {"matplotlib"}}
MAY_BE_HEAVY = {"backends", "device", "environments", "cluster", "storing", "sharing", "sweeping"}


def violations() -> list[str]:
    """Return one line per import that goes the wrong way."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        room = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for line, name in _imports(path):
            top, _, rest = name.partition(".")
            excepted = HEAVY_MODULES.get(str(path.relative_to(ROOT)), set())
            if top in HEAVY - excepted and room not in MAY_BE_HEAVY:
                found.append(f"{path.relative_to(ROOT)}:{line}: {room} imports {top}")
            if top != "legroom" or not rest:
                continue
            target = rest.partition(".")[0]
            allowed = COMMON | ALLOWED.get(room, set()) | {room}
            if room in ALLOWED and target not in allowed and not any(rest.startswith(a) for a in allowed if "." in a):
                found.append(f"{path.relative_to(ROOT)}:{line}: {room} imports {rest}")
    return found


def _imports(path: Path) -> list[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append((node.lineno, node.module))
    return names


if __name__ == "__main__":
    wrong = violations()
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    sys.exit(1 if wrong else 0)
