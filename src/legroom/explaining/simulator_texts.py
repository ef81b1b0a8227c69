"""Simulators on the GPU: NVIDIA's Warp and PhysX, Vulkan, SAPIEN, Taichi, MuJoCo's solvers.

There, environments are on the GPU, unlike with SB3: fewer of them is what helps. Two kinds of text look like each other
and are not the same: memory that ran out, and a buffer of a fixed size that was too small for a scene, which a setting
makes larger.
"""

from __future__ import annotations

import re

from legroom.explaining.log import Log
from legroom.explaining.log_programs import CAMERAS, HEADLESS, NUM_ENVS, OTHERS, program_of, remedy, surroundings
from legroom.explaining.reading import Rank, Reading, Recogniser, reading
from legroom.explaining.sizes import SIZE, first_size
from legroom.model.explanation import Advice
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
_ON_GPU = (OTHERS, HEADLESS, NUM_ENVS, CAMERAS)
_LEAST = r"(?:at least|\bto|needs?)\s+(\d[\d,]*)"


def _asked(log: Log, place: int) -> int | None:
    """Return what was asked for: PhysX and Warp say bytes in the message, or in the line after it."""
    message = log.message(place, length=400, before=60)
    plain = re.findall(r"memory allocation of size (\d{4,18}) failed", log.around(place, before=300, after=0))
    if plain:  # Vulkan's callers count in bytes
        return int(plain[-1])
    return first_size(rf"(?:allocate (?:memory )?(?:of size )?|on device: cuda(?::\d+)? for ){SIZE}", message)


def _simulator(log: Log, place: int) -> Reading | None:
    return _ran_out(log, place, f"in {_name(log, place)}")


def _name(log: Log, place: int) -> str:
    line = log.line(place).lower()
    physx = "pxg" in line or "physx" in line
    warp = re.search(r"\bwarp\b|on device:? '?cuda", line)
    return "PhysX" if physx else "Warp" if warp else "a simulator on the GPU"


def _ran_out(
    log: Log, place: int, where: str, rank: Rank | None = None, advice: tuple[Advice, ...] = _ON_GPU
) -> Reading:
    requested = _asked(log, place)
    asked = f": {format_size(requested)} more was asked for" if requested else "; the amount is not given"
    return reading(
        place, rank or (Rank.REFUSED if requested else Rank.SAID), "simulator", f"GPU memory ran out {where}{asked}.",
        requested=requested, advice=advice,
    )  # fmt: skip


def _named(log: Log, place: int) -> Reading | None:
    """Read CUDA's own words in a line of a simulator; PyTorch's readers have them otherwise."""
    if not re.search(r"\bwarp\b|carb\.|omni\.|physx|\bgym cuda\b", log.line(place), re.I):
        return None
    return _ran_out(log, place, f"in {_name(log, place)}", Rank.REFUSED)


def _taichi(log: Log, place: int) -> Reading | None:
    """Read Taichi and Genesis, whose driver wrapper is named beside CUDA's own words."""
    line = log.around(place, before=200, after=400).lower()
    if "cuda_driver.h" not in line and "taichi" not in line and "[genesis]" not in line and "quadrants" not in line:
        return None
    knob = "n_envs" if "genesis" in surroundings(log, place).lower() else "fields"
    say = "fewer environments: their fields are on the GPU" if knob == "n_envs" else "fewer or smaller fields"
    return _ran_out(log, place, "in Taichi", Rank.REFUSED, (OTHERS, remedy(knob, "changes-learning", say)))


def _vulkan(log: Log, place: int) -> Reading | None:
    """Read Vulkan's refusal: a renderer's or, in other programs, a computation's."""
    program = program_of(log, place)
    advice = _ON_GPU if program is not None and program.simulates else (OTHERS, CAMERAS)
    return _ran_out(log, place, "in Vulkan, which renders or computes", advice=advice)


def _camera_group(log: Log, place: int) -> Reading | None:
    """Read SAPIEN as ManiSkill passes it on: the exception before says whether a buffer could not be made."""
    chain, caused, _ = log.around(place, before=2500, after=0).rpartition("was the direct cause of the following")
    reason = re.findall(r"^\s*[\w.]*(?:Error|Exception): (.+)$", chain, re.MULTILINE)[-1:] if caused else []
    memory = bool(reason) and bool(re.search(r"memory|create.{0,20}buffer|allocat", reason[0], re.IGNORECASE))
    if reason and not memory:
        return None  # the renderer or the driver refused for another reason, which it says
    return reading(
        place, Rank.REFUSED, "simulator",
        "SAPIEN could not create the cameras of the parallel environments"
        + (": GPU memory ran out for their buffers." if memory else ", most often because GPU memory ran out."),
        certain=memory,
        advice=(
            NUM_ENVS, remedy("camera size", "changes-learning", "a smaller width and height, or fewer cameras"),
            remedy("shader_pack=minimal", "changes-learning", "the shader that needs least memory; coarser pictures"),
            remedy("render_mode", "free", "no rgb_array or human render camera, where the policy does not see it"),
        ),
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
        advice=(remedy("processes", "slower", "fewer that render: each takes handles and fences of the driver"),),
    )  # fmt: skip


def _buffer(log: Log, place: int) -> Reading | None:
    message = log.message(place, length=400, before=60)
    words, setting = next((row for row in _BUFFERS if re.search(row[0], message, re.I)), ("", ""))
    if not setting:
        return None
    wanted = _most(log, place, words)
    size = f", at least {wanted:,}" if wanted else ""
    return reading(
        place, Rank.REFUSED, "simulator-buffer",
        f"Memory did not run out: a buffer of the simulator is too small for this scene and drops contacts. Raise "
        f"{setting}{size}; the buffer is allocated on the GPU.",
        advice=(
            remedy(f"{setting}={wanted}" if wanted else setting, "free", "a larger buffer, which loses no contacts"),
            remedy("num_envs", "changes-learning", "fewer environments: fewer contacts"),
        ),
    )  # fmt: skip


def _most(log: Log, place: int, words: str) -> int | None:
    """Return the largest size that messages about this buffer ask for: they are repeated as the scene changes."""
    around = " ".join(log.around(place, before=3000, after=400).split())
    asked = re.findall(rf"(?:{words}).{{0,160}}?{_LEAST}", around, re.I)
    return max((int(number.replace(",", "")) for number in asked), default=None)


def _minibatches(log: Log, place: int) -> Reading | None:
    around = log.around(place, before=2500, after=400)
    if not re.search(r"training[/\\]agents[/\\]", around) or "AssertionError" not in around:
        return None
    devices = "device_count" in log.message(place, length=80)
    rule = "num_envs a multiple of the devices" if devices else "batch_size × num_minibatches a multiple of num_envs"
    return reading(
        place, Rank.REFUSED, "assertion",
        f"Memory did not run out: brax asserts {rule}, without a message.",
        advice=(remedy("num_envs" if devices else "num_minibatches", "changes-learning", f"make {rule}"),),
    )  # fmt: skip


RECOGNISERS = (
    Recogniser("GPU simulator", ("pxgcudadevicememoryallocator", "failed to allocate memory on device 'cuda",
                                 "warp error: failed to allocate",
                                 "bytes on device 'cuda", "physx error: failed to allocate",
                                 "memory allocation on gpu failed", "allocation failed on device: cuda",
                                 "out of gpu memory allocating resource"), _simulator),
    Recogniser("GPU simulator, in CUDA's words", ("cuda error 2: out of memory", "cudaerrormemoryallocation",
                                                  "cuda error: out of memory"), _named),
    Recogniser("Taichi", ("cuda_error_out_of_memory", "out of cuda pre-allocated memory"), _taichi),
    Recogniser("Vulkan device", ("error_out_of_device_memory", "erroroutofdevicememory", "outofdevicememoryerror"),
               _vulkan),
    Recogniser("SAPIEN", ("unable to create gpu parallelized camera group",), _camera_group),
    Recogniser("Vulkan host", ("erroroutofhostmemory", "error_out_of_host_memory"), _vulkan_host),
    Recogniser("simulator buffers", ("buffer overflow detected", "pairscapacity", "nefc overflow", "njmax overflow",
                                     "njmax_nnz overflow", "ccd overflow", "broadphase overflow", "ncon overflow",
                                     "narrowphase overflow", "nconmax overflow", "nacon overflow"), _buffer),
    Recogniser("minibatch assertion", ("assert batch_size * num_minibatches % num_envs",
                                       "assert num_envs % device_count"), _minibatches),
)  # fmt: skip
