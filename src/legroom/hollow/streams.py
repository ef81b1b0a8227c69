"""Streams and events of a hollow card. Nothing runs there, so there is never anything to wait for.

The current stream is kept per thread and card: the allocator has free blocks per stream.
"""

from __future__ import annotations

import importlib
import itertools
import time
from typing import Any

import torch

from .card import nothing
from .dispatching import Follower


def install(follower: Follower) -> dict[str, Any]:
    """Put the classes where PyTorch has them; returns what answers for C++."""
    numbers = itertools.count(1)
    here = follower.here

    def card_index(device: Any) -> int:
        if device is None:
            return int(here.device)
        if isinstance(device, int):
            return follower.card_at(device if device >= 0 else None).index
        return follower.card_at(torch.device(device).index).index

    class Stream:
        """Stands for `torch.cuda.Stream`."""

        def __init__(self, device: Any = None, priority: int = 0, **given: Any) -> None:
            index = given.get("device_index")
            self.device_index = card_index(device) if index is None else index
            self.stream_id = given.get("stream_id")
            if self.stream_id is None:
                self.stream_id = next(numbers)
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
            return isinstance(other, Stream) and (other.stream_id, other.device_index) == (
                self.stream_id,
                self.device_index,
            )

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

    class ExternalStream(Stream):
        """Refused: a stream of another library."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            raise RuntimeError("torch.cuda.ExternalStream is not simulated in a rehearsal")

    class StreamContext:
        """Stands for `torch.cuda.StreamContext`."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.stream.__enter__()

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                self.stream.__exit__()

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
    for name, value in (("Stream", Stream), ("Event", Event), ("ExternalStream", ExternalStream)):
        setattr(cuda, name, value)
        setattr(cuda.streams, name, value)
    bases: Any = importlib.import_module("torch._streambase")
    for kind, name in ((Stream, "_StreamBase"), (Event, "_EventBase")):  # torch up to 2.6 asks whether they are such
        if hasattr(getattr(bases, name, None), "register"):
            getattr(bases, name).register(kind)
    torch.Stream, torch.Event = Stream, Event  # type: ignore[misc,assignment]
    cuda.StreamContext, cuda.stream = StreamContext, StreamContext
    cuda.current_stream, cuda.default_stream, cuda.set_stream = current, default, select
    return {
        "_accelerator_getStream": current,
        "_accelerator_setStream": select,
        "_cuda_getCurrentRawStream": lambda index: current(index).stream_id,
    }
