"""Inference engines: vLLM and SGLang, which take a share of the GPU at the start and fill it with weights and cache.

Two failures look alike and need opposite settings. The engine's share is too small for its cache: a larger share or a
shorter context. Or the share is larger than what is left on the GPU (another process, training beside it, the sampler's
warm-up after the cache was taken): a smaller one.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.log_programs import OPENRLHF, OTHERS, TRL, VERL, program_of, remedy
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, first_size, to_bytes
from legroom.model.explanation import Advice
from legroom.units import format_size

_STARTUP = re.compile(r"Free memory on device.{0,20}?\(([\d.]+)/([\d.]+) GiB\).{0,80}?\(([\d.]+), ([\d.]+) GiB\)")
_CACHE_BYTES = remedy("kv_cache_memory_bytes", "slower", "sets the size of the cache itself, not a share of the GPU")
_FEWER_SEQUENCES = remedy("max_num_seqs", "slower", "fewer sequences at once: a lower peak")


def _share(log: Log, place: int, say: str, *, value: str = "", raised: bool = False) -> Advice:
    """Return the advice about the engine's share, by the name that the trainer has for it."""
    trainer = program_of(log, place)
    prefix = trainer.prefix if trainer in (VERL, OPENRLHF, TRL) else ""
    return remedy(f"{prefix}gpu_memory_utilization{value}", "free" if raised else "slower", say)


def _cache(log: Log, place: int) -> Reading | None:
    """Read a share that is too small for the cache."""
    around = log.around(place, before=3000, after=1500)
    message = log.message(place, length=900, before=200)
    total = re.findall(rf"total_gpu_memory \({SIZE}\)", around)
    needed = first_size(rf"{SIZE} KV cache is needed", message)
    left = first_size(rf"available KV cache memory \({SIZE}\)", message)
    fits = re.search(r"(?:maximum model length is|stored in KV cache \()\s*(\d+)", message)
    taken = re.findall(r"Available KV cache memory: -([\d.]+) GiB", around)
    notes = [f"weights and activations take {taken[-1]} GiB more than the share itself"] if taken else []
    return reading(
        place, Rank.REFUSED, "kv-cache",
        "vLLM's share of the GPU (gpu_memory_utilization) is too small for its KV cache"
        + (": weights and activations fill it." if needed is None and fits is None else "."),
        requested=needed, free=left, capacity=to_bytes(total[-1]) if total else None, notes=tuple(notes),
        advice=(
            _share(log, place, "a larger share, where nothing else needs the GPU", raised=True), _CACHE_BYTES,
            remedy(f"max_model_len{f'={fits[1]}' if fits else ''}", "changes-learning",
                   "the longest context that fits" if fits else "a shorter context needs less cache"),
        ),
    )  # fmt: skip


def _startup(log: Log, place: int) -> Reading | None:
    """Read a share that is larger than what is free when the engine starts."""
    match = _STARTUP.search(log.message(place, length=400, before=80))
    if match is None:
        return None
    free, capacity, wanted = (to_bytes(f"{match[group]} GiB") or 0 for group in (1, 2, 4))
    value = f"{int(100 * free / capacity) / 100:.2f}" if capacity else "0"
    return reading(
        place, Rank.REFUSED, "kv-cache",
        f"vLLM wants {format_size(wanted)} (gpu_memory_utilization {match[3]}), and {format_size(free)} is free.",
        requested=wanted, free=free, capacity=capacity,
        notes=(f"{format_size(capacity - free)} of the GPU was taken before: by other processes, or by this one",),
        advice=(OTHERS, _share(log, place, "at most what is free", value=f"={value}"), _CACHE_BYTES),
    )  # fmt: skip


def _warm_up(log: Log, place: int) -> Reading | None:
    """Read vLLM's warm-up, which runs when the cache has been taken; PyTorch's own text stands before it."""
    count = re.search(r"with (\d+) dummy requests", log.message(place, length=300))
    of = f" of {int(count[1]):,} requests (max_num_seqs)" if count else ""
    lower = "a smaller share leaves room for the sampler"
    return reading(
        place, Rank.KILLER, "kv-cache",
        f"GPU memory ran out when vLLM warmed up its sampler with a batch{of}: weights and KV cache had taken the "
        "rest. Lower max_num_seqs or gpu_memory_utilization.",
        advice=(_FEWER_SEQUENCES, _share(log, place, lower), _CACHE_BYTES),
    )  # fmt: skip


def _sleeping(log: Log, place: int) -> Reading | None:
    """Read vLLM's allocator of sleep mode, which maps weights and cache again when the engine wakes up."""
    waking = "wake_up" in log.around(place, before=3000, after=300)
    when = "when it woke up" if waking else "in its allocator for sleep mode, at its start or when it woke up"
    return reading(
        place, Rank.REFUSED, "kv-cache",
        f"GPU memory ran out in vLLM {when}: what else is on the GPU left too little for its weights and cache. "
        "The amount is not given.",
        advice=(
            _share(log, place, "a smaller share: less to map when it wakes up"),
            remedy("sleep mode", "slower", "training gives its memory back before wake_up: offload, empty_cache()"),
            _CACHE_BYTES, _FEWER_SEQUENCES,
        ),
    )  # fmt: skip


def _sglang(log: Log, place: int) -> Reading | None:
    left = re.findall(rf"avail mem={SIZE}", log.around(place, before=3000, after=0))
    return reading(
        place, Rank.REFUSED, "kv-cache",
        "SGLang's share of the GPU (--mem-fraction-static) is too small for weights and KV cache.",
        free=to_bytes(left[-1]) if left else None,
        advice=(
            OTHERS,
            remedy("--mem-fraction-static", "free", "a larger share, where nothing else needs the GPU"),
            remedy("--context-length", "changes-learning", "a shorter context needs less cache"),
        ),
    )  # fmt: skip


def _slots(log: Log, place: int) -> Reading | None:
    setting = re.search(r"smaller number for `?(--[\w-]+)", log.message(place, length=200))
    return setting and reading(
        place, Rank.REFUSED, "kv-cache", f"SGLang's slots for requests are full: lower {setting[1]}.",
        advice=(remedy(setting[1], "slower", "fewer requests at once"),),
    )  # fmt: skip


RECOGNISERS = (
    Recogniser("vLLM's cache", ("no available memory for the cache blocks", "kv cache is needed, which is larger",
                                "number of tokens that can be stored in kv cache"), _cache),
    Recogniser("vLLM's start", ("is less than desired gpu memory utilization",), _startup),
    Recogniser("vLLM's warm-up", ("cuda out of memory occurred when warming up",), _warm_up),
    Recogniser("vLLM's sleep mode", ("out of memory at ",),
               lambda log, place: _sleeping(log, place) if "cumem_allocator" in log.line(place) else None),
    Recogniser("SGLang's slots", ("_slots runs out of memory",), _slots),
    Recogniser("SGLang", ("try to increase --mem-fraction-static",), _sglang),
)  # fmt: skip
