"""What an environment and its script are likely to import and hold, where nothing may be built: by kind and by package.

A prediction by arithmetic imports nothing that a run names, so it takes what was measured here before (`env_look`
keeps it) or else these figures: of the packages that well-known environments come from, and of the packages that a
script and the modules beside it import, as their source says. What an environment of the user's own holds (prices,
levels, a ROM) is in no table; it widens the band.
"""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from legroom.errors import BadInput
from legroom.machine.child_process import run_file
from legroom.machine.versions import is_installed
from legroom.model.evidence import EnvMemory
from legroom.model.footprint import Known
from legroom.model.run import Run
from legroom.named_runs import workload_packages
from legroom.reading.known_spaces import is_atari
from legroom.reading.source import module_file, parse_module
from legroom.reading.user_files import read_text

MB = 1_000_000
# Measured by building and stepping them (`env_child`), beyond torch and SB3: gymnasium 1.4, mujoco 4.0, Box2D 2.3.10,
# pygame-ce 2.5.8, ale-py 0.12.1, gymnasium-robotics 1.4.2; 2026-11-17, Python 3.11, Linux x86-64.
# imports, first instance, each further one, mapped files; MB
BOX2D, RACING, MUJOCO = (3.6, 0.3, 0.3, 7.5), (3.6, 6.4, 8.6, 9.7), (9.8, 2.1, 1.2, 15.5)
ROBOTICS, ATARI = (12.6, 25.0, 18.0, 19.8), (1.5, 1.6, 1.3, 5.0)
_KINDS = {
    **dict.fromkeys(("LunarLander", "LunarLanderContinuous", "BipedalWalker", "BipedalWalkerHardcore"), BOX2D),
    "CarRacing": RACING,
    **dict.fromkeys((
        "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum",
        "Pusher", "Reacher", "Swimmer", "Walker2d",
    ), MUJOCO),
}  # fmt: skip
_ROBOTICS = ("Fetch", "Hand", "AdroitHand", "PointMaze", "AntMaze", "FrankaKitchen")
# What importing a package adds to a process that has torch and SB3: its own bytes and mapped files, MB. Measured on the
# same day, in two environments; a package's plain import (`import scipy`) may add less than a part of it.
PACKAGES = {
    "pandas": (28, 20), "matplotlib": (25, 6), "scipy": (39, 22), "jax": (39, 72), "pyboy": (18, 16), "pygame": (1, 5),
    "networkx": (11, 0), "mujoco": (8, 12), "Box2D": (1, 1), "ale_py": (1, 3), "ray": (18, 17),
    "gymnasium_robotics": (10, 12),
}  # fmt: skip
TYPICAL_ERROR = 0.5  # of all these: other versions, other parts of a package
UNKNOWN_PACKAGE, MOST_UNKNOWN = 6 * MB, 4  # ± for each that is in no table
# ± for what an environment of the user's own holds: where its source reads or makes tables, and where it does not.
OWN_DATA, OWN_STATE = 60 * MB, 8 * MB
_DATA_PACKAGES = frozenset({"pandas", "polars", "h5py", "pyarrow", "xarray", "netCDF4", "rasterio", "datasets", "zarr"})
_DATA_CALLS = frozenset({
    "load", "loadtxt", "genfromtxt", "fromfile", "memmap", "open_memmap", "imread", "read_bytes", "default_rng",
})  # fmt: skip
MOST_MODULES = 40  # beside a script that are followed


def typical_memory(run: Run, *, own: bool) -> EnvMemory | None:
    """Return what the run's environments and script are likely to take, None where there is nothing to say.

    Args:
        own: the environment is the user's own code.
    """
    imports, first, more, mapped = _kind(run.env.id or "")
    anonymous, files, unknown, reads_data = _imported(run_file(run))
    if not (imports or anonymous or unknown or own):
        return None
    doubt = (OWN_DATA if reads_data else OWN_STATE) if own else int(TYPICAL_ERROR * first * MB)
    return EnvMemory(
        int(imports * MB), int(first * MB), int(more * MB), int(mapped * MB),
        script=int(anonymous * MB), script_mapped=int(files * MB), known=Known.DEFAULT, doubt=doubt,
        script_doubt=int(TYPICAL_ERROR * anonymous * MB) + UNKNOWN_PACKAGE * min(unknown, MOST_UNKNOWN),
    )  # fmt: skip


def _kind(env_id: str) -> tuple[float, float, float, float]:
    name = env_id.rpartition(":")[2].rpartition("/")[2].partition("-v")[0]
    if is_atari(env_id):
        return ATARI
    if name.startswith(_ROBOTICS) and "Bullet" not in name:
        return ROBOTICS
    return _KINDS.get(name, (0, 0, 0, 0))


def _imported(script: Path | None) -> tuple[float, float, int, bool]:
    """Return what the packages add that a script imports, how many are in no table, and whether it reads data."""
    if script is None or script.suffix != ".py":
        return 0, 0, 0, False
    names, calls_data = _packages(script, script.stat().st_mtime_ns)
    found = names - _LOADED - workload_packages()
    known = [PACKAGES[name] for name in found if name in PACKAGES]
    unknown = [name for name in found - PACKAGES.keys() if is_installed(name)]
    reads_data = calls_data or bool(found & _DATA_PACKAGES)
    return sum(own for own, _ in known), sum(files for _, files in known), len(unknown), reads_data


# Loaded with torch and SB3, or next to nothing.
_LOADED = frozenset({
    "torch", "stable_baselines3", "sb3_contrib", "gymnasium", "gym", "numpy", "cv2", "cloudpickle", "legroom", "yaml",
    "tqdm", "rich", "psutil", "sympy", "typing_extensions", "PIL", "shimmy", "rl_zoo3", "wandb", "tensorboard",
})  # fmt: skip


@lru_cache(maxsize=64)
def _packages(script: Path, changed: int) -> tuple[frozenset[str], bool]:
    """Return the packages that a script and the modules beside it import, and whether one of them calls for data."""
    folder, todo, done, names = script.absolute().parent, [script], set[Path](), set[str]()
    calls_data = False
    while todo and len(done) < MOST_MODULES:
        file = todo.pop()
        done.add(file)
        try:
            tree = parse_module(read_text(str(file)), str(file))
        except BadInput:
            continue
        calls_data |= any(isinstance(node, ast.Attribute) and node.attr in _DATA_CALLS for node in ast.walk(tree))
        for name in _imports(tree):
            beside = module_file(name, folder)
            if beside is None:
                names.add(name.partition(".")[0])
            elif beside not in done:
                todo.append(beside)
    return frozenset(names), calls_data


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that are imported when this one is: not those in functions."""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        statement = todo.pop()
        if isinstance(statement, ast.Import):
            yield from (each.name for each in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            yield statement.module
        elif isinstance(statement, ast.If | ast.Try):
            todo += [*statement.body, *statement.orelse]
