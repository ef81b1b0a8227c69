"""Which code of the library ours mirrors, as fingerprints: equal results are promised for that code alone.

A fingerprint is of the syntax without comments, docstrings and annotations, so that releases that differ in those only
count as the same. A test compares the table with the installed release; `attaching` asks it about the user's, and
leaves alone what it does not know. The code below is that of stable-baselines3 2.7.1 to 2.9.2 (2026-11) and of
sb3-contrib 2.9.2.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

PINNED = {
    "RolloutBuffer.reset": "6b969cd720dcca0d",
    "RolloutBuffer.add": "3f7dee3b4ddb01e6",
    "RolloutBuffer.get": "d5b7e77ba60d95c8",
    "RolloutBuffer._get_samples": "7eddc66d582c3fb1",
    "DictRolloutBuffer.add": "de3f709e211411d8",
    "DictRolloutBuffer.get": "695a877424c60580",
    "DictRolloutBuffer._get_samples": "8be794c23ee65750",
    "BaseBuffer.sample": "827f120bacffb89d",
    "ReplayBuffer.__init__": "fdd53166b17c8e14",
    "ReplayBuffer.add": "d40bf4c871c80c2a",
    "ReplayBuffer.sample": "e6d6e47a0b176baf",
    "ReplayBuffer._get_samples": "6ae9e9755d1755d1",
    "DictReplayBuffer.add": "82d83303806c9a45",
    "DictReplayBuffer.sample": "199b36e97b0f0fe5",
    "DictReplayBuffer._get_samples": "b3d32edca8cb9fec",
    "NStepReplayBuffer._get_samples": "87f7d9f05f955ced",
    "MaskableRolloutBuffer.reset": "46ac777e3ab134b7",
    "MaskableRolloutBuffer.add": "e3da1c5112704881",
    "MaskableRolloutBuffer.get": "199ae8e9e04bef91",
    "MaskableRolloutBuffer._get_samples": "d6948ffcffc3cdce",
    "MaskableDictRolloutBuffer.add": "e3da1c5112704881",
    "MaskableDictRolloutBuffer.get": "b88513449e40cb62",
    "MaskableDictRolloutBuffer._get_samples": "1c6f5380dbc95d40",
    "PPO.train": "2417fbd585aea947",
    "A2C.train": "7fc046aac30653ac",
    "DQN.train": "13bf405c242ec11b",
    "MaskablePPO.train": "6f75e6fdd0bac554",
}
# A replay buffer with SB3's interface that is no part of SB3: CleanRL's, at fe8d8a0 (2026-11).
OWN_PINNED = {
    "BaseBuffer.sample": "0e0c44a891265e87",
    "ReplayBuffer.add": "d40bf4c871c80c2a",
    "ReplayBuffer.sample": "f9fa36f0837a1635",
    "ReplayBuffer._get_samples": "c2536f62ed85bde5",
}
OWN_REPLAY = tuple(OWN_PINNED)


def _of(*classes: str) -> tuple[str, ...]:
    return tuple(name for name in PINNED if name.partition(".")[0] in classes)


ROLLOUT = _of("RolloutBuffer", "DictRolloutBuffer")
REPLAY = _of("BaseBuffer", "ReplayBuffer", "DictReplayBuffer", "NStepReplayBuffer")
MASKABLE = _of("MaskableRolloutBuffer", "MaskableDictRolloutBuffer")


def unknown_code(module: Any, names: tuple[str, ...], pinned: Mapping[str, str] = PINNED) -> str:
    """Return the first of these functions of a module that is not the one we know; empty where all are."""
    return next((name for name in names if _fingerprint_in(module, name) != pinned[name]), "")


def _fingerprint_in(module: Any, name: str) -> str:
    kind, _, method = name.partition(".")
    function = vars(getattr(module, kind, object)).get(method)
    return "" if function is None else fingerprint(function)


def fingerprint(function: Callable[..., Any]) -> str:
    """Return what the code of a function says, as sixteen hexadecimal digits; empty where there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""
    return hashlib.sha256(" ".join(_words(tree)).encode()).hexdigest()[:16]


# Not `ast.dump`, whose text differs between versions of Python.
_NOT_CODE = ("annotation", "returns", "type_comment", "type_params", "kind", "decorator_list", "ctx")


def _words(node: Any) -> Iterator[str]:
    if isinstance(node, ast.AST):
        yield type(node).__name__
        for name, value in ast.iter_fields(node):
            if name in _NOT_CODE or value is None or value == []:
                continue
            if name == "body" and isinstance(value, list):
                value = [each for each in value if not _is_text(each)]
            yield name
            yield from _words(value)
    elif isinstance(node, list):
        for each in node:
            yield from _words(each)
    else:
        yield repr(node)


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
