"""LeanVecEnvs that are closed at a test's end, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from legroom import LeanVecEnv


@pytest.fixture
def opened() -> Iterator[Callable[..., LeanVecEnv]]:
    envs: list[LeanVecEnv] = []

    def start(*arguments: Any, **keywords: Any) -> LeanVecEnv:
        envs.append(LeanVecEnv(*arguments, **keywords))
        return envs[-1]

    yield start
    for env in envs:
        env.close()


@pytest.fixture
def begun(opened: Callable[..., LeanVecEnv]) -> Callable[..., LeanVecEnv]:
    """As `opened`, with the first reset done."""

    def start(*arguments: Any, **keywords: Any) -> LeanVecEnv:
        env = opened(*arguments, **keywords)
        env.reset()
        return env

    return start
