"""Several processes: NCCL's collectives of a hollow card move nothing, so that each process is rehearsed by itself."""

from __future__ import annotations

import os
from typing import Any

import torch

from .dispatching import Follower


def install(follower: Follower) -> None:
    """Let process groups of cards be made, with a backend of PyTorch's own that does nothing."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    module: Any = distributed_c10d
    begin, new = module.init_process_group, module.new_group

    def on_cards(backend: Any) -> bool:
        return backend is None or "nccl" in str(backend)

    def init_process_group(backend: Any = None, init_method: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not on_cards(backend):
            return begin(backend, init_method, *args, **kwargs)
        from torch.testing._internal.distributed.fake_pg import FakeStore

        rank = kwargs.get("rank", -1)
        size = kwargs.get("world_size", -1)
        follower.journal.json("note", text="collectives between GPUs move nothing in a rehearsal")
        return begin(
            "fake", rank=int(os.environ.get("RANK", 0)) if rank < 0 else rank, store=FakeStore(),
            world_size=int(os.environ.get("WORLD_SIZE", 1)) if size < 0 else size,
        )  # fmt: skip

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        return new(ranks, timeout, None if on_cards(backend) else backend, *args, **kwargs)

    parallel: Any = torch.nn.parallel.DistributedDataParallel
    wrap, hook = parallel.__init__, parallel.register_comm_hook

    def reduced(state: Any, bucket: Any) -> Any:
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    reduced.__annotations__ = {}  # as strings they would be compared with types

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        wrap(self, *args, **kwargs)
        if (
            module.get_backend(self.process_group) == "fake"
        ):  # its collectives return nothing, and gradients are awaited
            hook(self, None, reduced)

    parallel.__init__ = wrapped
    places: list[Any] = [module, torch.distributed]
    for place in places:
        place.init_process_group, place.new_group = init_process_group, new_group
        place.is_nccl_available = lambda: True
