"""PyTorch's own recording of memory (`torch.cuda.memory._record_memory_history`) in a rehearsal: accepted, and empty.

People who look for memory have these calls in their programs. They change nothing on the card. A snapshot has no
segments here, and is not written to a file: an earlier one, of a real run, may be there.
"""

from __future__ import annotations

from typing import Any

import torch

NOTE = "torch.cuda.memory: history and snapshots are empty in a rehearsal, and not written (the timeline: --html FILE)"


def install(follower: Any) -> dict[str, Any]:
    """Answer the calls of `torch.cuda.memory`, and say once that nothing is recorded."""
    said: list[bool] = []

    def say_once() -> None:
        if not said:
            said.append(True)
            follower.journal.json("note", text=NOTE)

    def record(*_: Any, **__: Any) -> None:
        say_once()

    def snapshot(*_: Any, **__: Any) -> dict[str, Any]:
        say_once()
        traces: list[Any] = [[] for _ in follower.cards]
        return {"segments": [], "device_traces": traces, "allocator_settings": {}, "external_annotations": []}

    memory: Any = torch.cuda.memory
    memory._dump_snapshot = record
    return {
        "_cuda_record_memory_history": record,
        "_cuda_record_memory_history_legacy": record,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_isHistoryEnabled": lambda: False,
    }
