"""Objects of `torch.cuda` that a hollow card has: streams, events, graphs, generators; and groups of processes.

Nothing runs there, so there is never anything to wait for. The current stream is kept per thread and card: the
allocator has free blocks per stream. What a graph captures runs once, eagerly, and takes its memory from a private
pool. A generator is one of the CPU's kind that says it is the card's. NCCL's collectives move nothing, so that each
process is rehearsed by itself.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import time
from typing import Any

import torch

from .card import nothing
from .dispatching import Follower


def install_streams(follower: Follower) -> dict[str, Any]:
    """Put the classes where PyTorch has them; returns what answers for C++."""
    numbers = itertools.count(1)
    here = follower.here

    def card_index(device: Any) -> int:
        index = device if device is None or isinstance(device, int) else torch.device(device).index
        return follower.card_at(None if index is not None and index < 0 else index).index

    class Stream:
        """Stands for `torch.cuda.Stream`."""

        def __init__(self, device: Any = None, priority: int = 0, **given: Any) -> None:
            self.device_index = card_index(given.get("device_index", device))
            self.stream_id = next(numbers) if given.get("stream_id") is None else given["stream_id"]
            self.device = torch.device("cuda", self.device_index)
            self.device_type, self.priority = 1, priority
            self.cuda_stream = self.native_handle = self.stream_id
            self._before: list[Stream] = []

        wait_event = wait_stream = synchronize = nothing

        def query(self) -> bool:
            return True

        def is_capturing(self) -> bool:
            return follower.capturing is not None

        def record_event(self, event: Any = None) -> Any:
            event = Event() if event is None else event
            event.record(self)
            return event

        def __enter__(self) -> Any:
            self._before.append(current(self.device_index))
            select(self)
            return self

        def __exit__(self, *_: object) -> None:
            select(self._before.pop())

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and hash(other) == hash(self)

        def __hash__(self) -> int:
            return hash((self.stream_id, self.device_index))

        def __repr__(self) -> str:
            return f"<torch.cuda.Stream device={self.device} cuda_stream={self.stream_id:#x}>"

    class Event:
        """Stands for `torch.cuda.Event`."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("interprocess"):
                raise RuntimeError("CUDA events of several processes are not simulated in a rehearsal")
            self.device: Any = None
            self._at: float | None = None
            self.cuda_event = self.event_id = id(self)

        def record(self, stream: Any = None) -> None:
            stream = current(None) if stream is None else stream
            self.device = stream.device
            self._at = time.perf_counter()

        wait = synchronize = nothing

        def query(self) -> bool:
            return True

        def elapsed_time(self, end_event: Any) -> float:
            if self._at is None or end_event._at is None:
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            return float(end_event._at - self._at) * 1000

    def external(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("torch.cuda.ExternalStream is not simulated in a rehearsal")

    def current(device: Any = None) -> Any:
        index = card_index(device)
        found = here.__dict__.setdefault("streams", {}).get(index)
        return Stream(stream_id=0, device_index=index) if found is None else found

    def select(stream: Any) -> None:
        if stream is not None:
            here.__dict__.setdefault("streams", {})[stream.device_index] = stream

    def default(device: Any = None) -> Any:
        return Stream(stream_id=0, device_index=card_index(device))

    cuda: Any = torch.cuda
    for name, value in (("Stream", Stream), ("Event", Event), ("ExternalStream", external)):
        setattr(cuda, name, value)
        setattr(cuda.streams, name, value)
    bases: Any = importlib.import_module("torch._streambase")
    for kind, name in ((Stream, "_StreamBase"), (Event, "_EventBase")):  # torch up to 2.6 asks whether they are such
        if hasattr(getattr(bases, name, None), "register"):
            getattr(bases, name).register(kind)
    torch.Stream, torch.Event = Stream, Event  # type: ignore[misc,assignment]
    cuda.StreamContext = cuda.stream = lambda stream: contextlib.nullcontext() if stream is None else stream
    cuda.current_stream, cuda.default_stream, cuda.set_stream = current, default, select
    return {
        "_accelerator_getStream": current,
        "_accelerator_setStream": select,
        "_cuda_getCurrentRawStream": lambda index: current(index).stream_id,
    }


def install_graphs(follower: Follower) -> dict[str, Any]:
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

        instantiate = register_generator_state = enable_debug_mode = debug_dump = nothing

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


_Base: Any = torch.Generator


def install_generators(follower: Follower) -> None:
    """Let `torch.Generator(device="cuda")` be made, and each card have its own."""

    class Like(type(_Base)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Base)

    class CardGenerator(_Base):
        """A generator of a card."""

        @property
        def device(self) -> torch.device:
            found: torch.device = self.__dict__["card"]
            return found

        def clone_state(self) -> Any:
            return made(self.device, self.get_state())

        graphsafe_get_state, set_offset = clone_state, nothing

        def graphsafe_set_state(self, state: Any) -> None:
            self.set_state(state.get_state())

        def get_offset(self) -> int:
            return 0

    class Generator(_Base, metaclass=Like):
        """`torch.Generator`, on a card too."""

        def __new__(cls, device: Any = "cpu") -> Any:
            found = torch.device(device) if not isinstance(device, int) else torch.device("cuda", device)
            return made(follower.card_at(found.index).device) if found.type == "cuda" else _Base(device=device)

    def made(device: torch.device, state: Any = None) -> Any:
        found = _Base.__new__(CardGenerator)
        found.__dict__["card"] = device
        if state is not None:
            found.set_state(state)
        return found

    torch.Generator = Generator  # type: ignore[misc]
    for card in follower.cards:
        card.generator = made(card.device)
        card.generator.manual_seed(0)
    torch.cuda.default_generators = tuple(card.generator for card in follower.cards)
    follower.shadows.generator = follower.cards[0].generator if follower.cards else None


def install_process_groups(follower: Follower) -> None:
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
