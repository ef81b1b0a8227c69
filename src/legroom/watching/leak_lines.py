"""Which of the user's lines leave memory behind: two short passes, each in a child of its own.

`find_lines` follows every allocation. The environment is stepped untracked first, so that what it keeps once (caches,
modules) is there already. Then some thousand steps are tracked, and what they allocated and did not free is added up by
the user's own line; tracemalloc sees Python's objects and NumPy's arrays. One live object of an environment is no leak,
so a line counts only where it left something behind in both halves of the tracked steps.
Beside the lines, the lists, dicts, sets and deques that have more entries after either half are named by what refers to
them: where the line allocates is often far from what keeps the object.

Python keeps freed dicts, tuples, lists and floats for the next that needs one; whoever leaks such a second-hand object
did not allocate it, and the blame would go to the line that did. A full collection throws them away, so there is one
after every tracked step.

`find_c_lines` reads the allocator's own count at every line, for what C code allocates by itself. The difference goes
to the line that ran. What one line allocates and a later one frees shows on both, with opposite signs; the lines named
are those that by themselves explain the growth which was measured before.
"""

from __future__ import annotations

import ast
import gc
import site
import sys
import sysconfig
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from legroom.watching.allocator_signals import malloc_reader
from legroom.watching.measuring import SEED, Stepper

OWN_FOLDERS = tuple(str(Path(__file__).parents[1] / room) for room in ("watching", "environments", "backends"))
OWN_FILES = (str(Path(__file__).parents[1] / "testing.py"),)
MOST_LINES, MOST_CONTAINERS = 10, 3
LEAST_SHARE = 0.02  # of the largest line
LEAST_PER_STEP = 0.25  # bytes
TRACEMALLOC_FRAMES = 25
MOST_C_LINES = 5
ALONE_FROM, ALONE_TO = 0.6, 1.6  # times the growth expected: such a line explains it by itself
LEAST_C_SHARE = 0.05
_CONTAINERS = (list, dict, set, deque)


class CodeLine(NamedTuple):
    """One call: the function, and the file and line it stood at."""

    function: str
    file: str
    line: int


Sizes = dict[CodeLine, int]
Located = Callable[[Sequence[CodeLine]], CodeLine | None]


def find_lines(
    env: Any, built_from: dict[str, Any], folder: str, *, warm_up: int, steps: int, seed: int = SEED
) -> dict[str, Any]:
    """Return `{"found_by", "lines", "kept_in"}`: lines that leave memory behind, largest first; what grew meanwhile.

    Args:
        warm_up: steps before anything is tracked.
        steps: tracked, in two halves.
    """
    locate = own_frame_of(env)
    stepper = Stepper(env, seed=seed)
    stepper.advance(warm_up)
    gc.collect()
    containers = [each for each in gc.get_objects() if isinstance(each, _CONTAINERS)]
    loose = (one for one in gc.get_referents(*gc.get_objects()) if isinstance(one, dict) and not gc.is_tracked(one))
    containers += {id(one): one for one in loose}.values()  # dicts of arrays alone, which Python's collector leaves out
    sizes_then = [[len(each) for each in containers]]
    gc.freeze()  # makes the many collections that follow cheap
    halves: list[Sizes] = []
    half = max(1, steps // 2)
    try:
        for _ in range(2):
            sizes: Sizes = defaultdict(int)
            with _tracked(locate, sizes):
                for _ in range(half):
                    stepper.advance(1)
                    gc.collect()
            halves.append(sizes)
            sizes_then.append([len(each) for each in containers])
    finally:
        gc.unfreeze()
    grew = [
        (after - middle, number)
        for number, (before, middle, after) in enumerate(zip(*sizes_then, strict=True)) if before < middle < after
    ]  # fmt: skip
    named = {_name_of(containers[number], containers): None for _, number in sorted(grew, reverse=True)}
    per_step = {
        frame: sum(sizes[frame] for sizes in halves) / (2 * half)
        for frame in halves[0]
        if min(sizes.get(frame, 0) for sizes in halves) / half >= LEAST_PER_STEP
    }
    lines = _ranked(per_step, MOST_LINES, LEAST_SHARE * max(per_step.values(), default=0.0))
    return {"found_by": "tracemalloc", "lines": lines, "kept_in": [*filter(None, named)][:MOST_CONTAINERS]}


def _name_of(container: Any, others: list[Any]) -> str:
    """Return `Owner.attribute (list) of Kind`, or `module.name (…)`; empty where no object or module has it."""
    newest = next(reversed(list(container.values() if isinstance(container, dict) else container)), None)
    what = f"({type(container).__name__}) of {type(newest).__name__}"
    for referrer in gc.get_referrers(container):
        if referrer is others:
            continue
        owners = [referrer, *gc.get_referrers(referrer)] if isinstance(referrer, dict) else [referrer]
        for owner in owners:
            attributes = {} if owner is others else getattr(owner, "__dict__", {})
            name = next((name for name, value in list(attributes.items()) if value is container), "")
            if name and not type(owner).__module__.startswith("legroom.watching"):
                kept = owner.__name__ if isinstance(owner, type | ModuleType) else type(owner).__name__
                return f"{kept}.{name} {what}"
    return ""


def _ranked(per_step: dict[CodeLine, float], most: int, least: float) -> list[dict[str, Any]]:
    ranked = sorted(per_step.items(), key=lambda entry: -entry[1])[:most]
    return [
        {
            "file": frame.file,
            "line": frame.line,
            "function": frame.function or _function_at(frame.file, frame.line),
            "bytes_per_step": round(each, 2),
        }
        for frame, each in ranked
        if each >= least
    ]


def _function_at(file: str, line: int) -> str:
    """Return the innermost function that a line stands in: tracemalloc does not tell."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    with suppress(OSError, SyntaxError, ValueError):
        around = [each for each in ast.walk(ast.parse(Path(file).read_bytes())) if isinstance(each, kinds)]
        around = [each for each in around if each.lineno <= line <= (each.end_lineno or 0)]
        return max(around, key=lambda each: each.lineno).name if around else ""
    return ""


@contextmanager
def _tracked(locate: Located, into: Sizes) -> Iterator[None]:
    """Track with tracemalloc and add up what is left by the user's line."""
    tracemalloc = import_module("tracemalloc")
    tracemalloc.start(TRACEMALLOC_FRAMES)
    try:
        yield
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    for statistic in snapshot.statistics("traceback"):
        frame = locate([CodeLine("", entry.filename, entry.lineno) for entry in reversed(statistic.traceback)])
        if frame is not None:
            into[frame] += statistic.size


def find_c_lines(
    env: Any, built_from: dict[str, Any], folder: str, *, warm_up: int, steps: int, expected: float, seed: int = SEED
) -> dict[str, Any]:
    """Return `{"found_by", "lines"}` as `find_lines` does; no lines where malloc does not tell.

    Args:
        expected: bytes per step that C memory grows by.
    """
    read = malloc_reader()
    if read is None:
        return {"found_by": "malloc", "lines": []}
    stepper = Stepper(env, seed=seed)
    stepper.advance(warm_up)
    gc.collect()
    tracer = _LineTracer(read, own_frame_of(env))
    stepper.advance(1)
    sys.settrace(tracer.called)
    try:
        stepper.advance(steps)
    finally:
        sys.settrace(None)
    per_step = {frame: nbytes / steps for frame, nbytes in tracer.deltas.items()}
    alone = {f: each for f, each in per_step.items() if ALONE_FROM * expected <= each <= ALONE_TO * expected}
    return {"found_by": "malloc", "lines": _ranked(alone or per_step, MOST_C_LINES, LEAST_C_SHARE * expected)}


class _LineTracer:
    """A trace function that adds the change of malloc's count to the line that ran meanwhile."""

    def __init__(self, read: Callable[[], int], locate: Located) -> None:
        self.deltas: dict[CodeLine, int] = {}
        self._read, self._locate = read, locate
        self._is_user: dict[str, bool] = {}
        self._running: list[CodeLine] = []
        self._last = read()

    def called(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Begin to follow a call, if it is the user's."""
        file = frame.f_code.co_filename
        if file not in self._is_user:
            self._is_user[file] = self._locate([CodeLine("", file, 0)]) is not None
        if not self._is_user[file]:
            return None
        self._settle()
        self._running.append(_where(frame))
        self._last = self._read()
        return self._ran

    def _ran(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._settle()
        if self._running:
            if event == "return":
                self._running.pop()
            else:
                self._running[-1] = _where(frame)
        self._last = self._read()
        return self._ran

    def _settle(self) -> None:
        """Book what changed since the last event; what the books themselves take is not counted."""
        changed = self._read() - self._last
        if changed and self._running:
            line = self._running[-1]
            self.deltas[line] = self.deltas.get(line, 0) + changed


def _where(frame: FrameType) -> CodeLine:
    return CodeLine(frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)


def own_frame_of(env: Any) -> Located:
    """Return what finds the user's frame of a stack, for stacks of this environment."""
    libraries, envs = library_folders(), _env_folders(env)
    return lambda stack: own_frame(stack, libraries, envs)


def own_frame(stack: Sequence[CodeLine], libraries: Iterable[str], envs: Iterable[str]) -> CodeLine | None:
    """Return the user's frame of a stack (innermost call first), None where it has none.

    Memory is allocated deep inside NumPy or the standard library; the line to change is the innermost one that is
    neither, nor ours. Where there is none (a packaged environment), it is the innermost of the environment's package.
    """
    libraries = tuple(libraries)
    called = [
        frame
        for frame in stack
        if frame.file not in OWN_FILES and not _inside(frame.file, OWN_FOLDERS) and not frame.file.startswith("<")
    ]
    for frame in called:
        if not _inside(frame.file, libraries):
            return frame
    return next((frame for folder in envs for frame in called if _inside(frame.file, (folder,))), None)


def _inside(file: str, folders: Sequence[str]) -> bool:
    return any(file == folder or file.startswith(folder.rstrip("/") + "/") for folder in folders)


def library_folders() -> tuple[str, ...]:
    """Return the folders of installed packages and of the standard library."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(sorted({str(Path(folder)) for folder in folders if folder} | {str(Path(sys.base_prefix, "lib"))}))


def _env_folders(env: Any) -> tuple[str, ...]:
    """Return the folders (or files) in which the environment and what it wraps are written, the innermost first."""
    found = []
    while env is not None:
        module = sys.modules.get(type(env).__module__)
        file = getattr(module, "__file__", None)
        if file:
            top = sys.modules.get(type(env).__module__.partition(".")[0])
            inside = getattr(module, "__package__", "") and top is not None and getattr(top, "__path__", None)
            found.append(str(Path(file).parent) if inside else file)
        env = getattr(env, "env", None)
    return tuple(reversed(found))
