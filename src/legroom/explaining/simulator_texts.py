"""Simulators and engines on the card: NVIDIA's Warp and PhysX, Vulkan, Taichi, MuJoCo's solvers, vLLM's cache.

There, environments and rollout are on the card, unlike with SB3: fewer environments is what helps. Two kinds of text
look like each other and are not the same: memory that ran out, and a buffer of a fixed size that was too small for a
scene, which a setting makes larger.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, first_size, to_bytes
from legroom.units import format_size

# what PhysX and MuJoCo say, and the setting that it is about: of Isaac Lab's PhysxCfg, of mujoco_warp's Data
_BUFFERS = (
    (r"patch buffer overflow", "gpu_max_rigid_patch_count"),
    (r"contact buffer overflow", "gpu_max_rigid_contact_count"),
    (r"collisionstacksize buffer overflow", "gpu_collision_stack_size"),
    (r"foundlostaggregatepairscapacity", "gpu_found_lost_aggregate_pairs_capacity"),
    (r"totalaggregatepairscapacity", "gpu_total_aggregate_pairs_capacity"),
    (r"foundlostpairscapacity", "gpu_found_lost_pairs_capacity"),
    (r"njmax_nnz overflow", "njmax_nnz"),
    (r"nefc overflow|njmax overflow", "njmax"),
    (r"ccd overflow", "naccdmax"),
    (r"(?:ncon|nacon|broadphase|narrowphase|nconmax|contact) overflow", "nconmax"),
)
_LEAST = re.compile(r"(?:at least|\bto|capacity to|needs?)\s+(\d[\d,]*)", re.I)


def _asked(log: Log, place: int) -> int | None:
    """Return what was asked for: PhysX and Warp say bytes in the message, or in the line after it."""
    message = log.message(place, length=400, before=60)
    plain = re.findall(r"memory allocation of size (\d{4,18}) failed", log.around(place, before=300, after=0))
    if plain:  # Vulkan's callers count in bytes
        return int(plain[-1])
    return first_size(rf"(?:allocate (?:memory )?(?:of size )?|on device: cuda(?::\d+)? for ){SIZE}", message)


def _simulator(log: Log, place: int) -> Reading | None:
    requested = _asked(log, place)
    asked = f": {format_size(requested)} more was asked for" if requested else ""
    return reading(
        place, Rank.REFUSED if requested else Rank.SAID, "simulator",
        f"GPU memory ran out in the simulator, which keeps its environments on the GPU{asked}.", requested=requested,
    )  # fmt: skip


def _named(log: Log, place: int) -> Reading | None:
    """Read CUDA's own words in a line of a simulator; PyTorch's readers have them otherwise."""
    if not re.search(r"\bwarp\b|carb\.|omni\.|physx|\bgym cuda\b", log.line(place), re.I):
        return None
    found = _simulator(log, place)
    return found and Reading(place, Rank.REFUSED, found.explanation)


def _taichi(log: Log, place: int) -> Reading | None:
    """Read Taichi and Genesis, whose driver wrapper is named beside CUDA's own words."""
    line = log.around(place, before=200, after=400).lower()
    if "cuda_driver.h" not in line and "taichi" not in line and "[genesis]" not in line and "quadrants" not in line:
        return None
    return reading(
        place, Rank.REFUSED, "simulator",
        "GPU memory ran out in the simulator, which keeps its environments on the GPU.",
    )  # fmt: skip


def _vulkan_host(log: Log, place: int) -> Reading | None:
    around = log.around(place, before=400, after=400)
    handles = re.search(r"file descriptors: (\d+), soft limit: (\d+)", around)
    notes = (f"{handles[1]} of {handles[2]} file descriptors were open",) if handles else ()
    return reading(
        place, Rank.SAID, "simulator",
        "Vulkan says that host memory ran out. Drivers say so as well where a device cannot be opened or handles run "
        "out, so look at RAM first and then at the driver.",
        certain=False, notes=notes,
    )  # fmt: skip


def _buffer(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=400, before=60)
    setting = next((name for words, name in _BUFFERS if re.search(words, message, re.I)), None)
    if setting is None:
        return None
    wanted = _most(log, place)
    size = f", at least {wanted:,}" if wanted else ""
    return reading(
        place, Rank.REFUSED, "simulator-buffer",
        f"No memory ran out: a buffer of the simulator is too small for this scene and drops contacts. Raise "
        f"{setting}{size}; the buffer is allocated on the GPU.",
        notes=(f"{setting} must be at least {wanted:,}",) if wanted else (),
    )  # fmt: skip


def _most(log: Log, place: int) -> int | None:
    """Return the largest size that the messages near the place ask for: they are repeated as the scene changes."""
    found = [int(m[1].replace(",", "")) for m in _LEAST.finditer(log.around(place, before=3000, after=300))]
    return max((n for n in found if n > 1), default=None)


def _kv_cache(log: Log, place: int) -> Reading | None:
    around = log.around(place, before=6000, after=1500)
    total = re.findall(rf"total_gpu_memory \({SIZE}\)", around)
    needed = first_size(rf"{SIZE} KV cache is needed", around)
    free = first_size(rf"available KV cache memory \({SIZE}\)", around)
    started = re.search(r"Free memory on device.{0,20}?\(([\d.]+)/([\d.]+) GiB\)", around)
    capacity = to_bytes(total[-1]) if total else to_bytes(f"{started[2]} GiB") if started else None
    if free is None and started:
        free = to_bytes(f"{started[1]} GiB")
    return reading(
        place, Rank.REFUSED, "kv-cache",
        "vLLM found no room for its KV cache: weights and activations fill the share of the GPU that it may take "
        "(gpu_memory_utilization).",
        requested=needed, free=free, capacity=capacity,
    )  # fmt: skip


def _minibatches(log: Log, place: int) -> Reading | None:
    around = log.around(place, before=2500, after=400)
    if not re.search(r"training[/\\]agents[/\\]", around) or "AssertionError" not in around:
        return None
    devices = "device_count" in log.message(place, length=80)
    rule = "num_envs a multiple of the devices" if devices else "batch_size × num_minibatches a multiple of num_envs"
    return reading(
        place, Rank.REFUSED, "assertion", f"No memory ran out: brax asserts {rule}, and says nothing more about it."
    )


RECOGNISERS = (
    Recogniser("GPU simulator", ("pxgcudadevicememoryallocator", "failed to allocate memory on device 'cuda",
                                 "warp error: failed to allocate",
                                 "bytes on device 'cuda", "physx error: failed to allocate",
                                 "memory allocation on gpu failed", "allocation failed on device: cuda"), _simulator),
    Recogniser("GPU simulator, in CUDA's words", ("cuda error 2: out of memory", "cudaerrormemoryallocation",
                                                  "cuda error: out of memory"), _named),
    Recogniser("Taichi", ("cuda_error_out_of_memory", "out of cuda pre-allocated memory"), _taichi),
    Recogniser("Vulkan device", ("error_out_of_device_memory", "erroroutofdevicememory", "outofdevicememoryerror"),
               _simulator),
    Recogniser("Vulkan host", ("erroroutofhostmemory", "error_out_of_host_memory"), _vulkan_host),
    Recogniser("simulator buffers", ("buffer overflow detected", "pairscapacity", "nefc overflow", "njmax overflow",
                                     "njmax_nnz overflow", "ccd overflow", "broadphase overflow", "ncon overflow",
                                     "narrowphase overflow", "nconmax overflow", "nacon overflow"), _buffer),
    Recogniser("vLLM", ("no available memory for the cache blocks", "kv cache is needed, which is larger",
                        "is less than desired gpu memory utilization",
                        "number of tokens that can be stored in kv cache"), _kv_cache),
    Recogniser("minibatch assertion", ("assert batch_size * num_minibatches % num_envs",
                                       "assert num_envs % device_count"), _minibatches),
)  # fmt: skip
