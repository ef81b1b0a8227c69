"""CUDA graphs of a hollow card: what is captured runs once, eagerly, and takes its memory from a private pool."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .card import nothing
from .dispatching import Follower


def install(follower: Follower) -> dict[str, Any]:
    """Put a graph class where PyTorch has it; returns what answers for C++."""
    handles = itertools.count(1)
    users: dict[Any, int] = {}  # how many graphs use a pool

    def new_pool() -> tuple[int, int]:
        return (0, next(handles))

    class CUDAGraph:
        """Stands for `torch.cuda.CUDAGraph`."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._pool: Any = None

        def capture_begin(self, pool: Any = None, *_: Any, **__: Any) -> None:
            if follower.capturing is not None:
                raise RuntimeError("Only one capture at a time is allowed in a process.")
            self._pool = new_pool() if pool is None else tuple(pool)
            users[self._pool] = users.get(self._pool, 0) + 1
            for card in follower.cards:
                card.allocator.keep(self._pool)
            follower.capturing = self._pool

        def capture_end(self) -> None:
            follower.capturing = None

        def replay(self) -> None:
            if self._pool is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")

        instantiate = register_generator_state = enable_debug_mode = nothing

        def reset(self) -> None:
            if self._pool is None:
                return
            users[self._pool] -= 1
            if not users[self._pool]:
                for card in follower.cards:
                    card.allocator.let_go(self._pool)
            self._pool = None

        def pool(self) -> Any:
            return self._pool

        def debug_dump(self, debug_path: str) -> None:
            raise RuntimeError("torch.cuda.CUDAGraph.debug_dump is not simulated in a rehearsal")

        def __del__(self) -> None:
            self.reset()

    cuda: Any = torch.cuda

    def capturing() -> bool:
        return follower.capturing is not None

    for module in (cuda, cuda.graphs):
        module.CUDAGraph, module.graph_pool_handle, module.is_current_stream_capturing = CUDAGraph, new_pool, capturing
    cuda.graphs._CUDAGraph, cuda.graphs._cuda_isCurrentStreamCapturing = CUDAGraph, capturing
    cuda.graphs._graph_pool_handle = new_pool
    return {"_cuda_isCurrentStreamCapturing": capturing}
