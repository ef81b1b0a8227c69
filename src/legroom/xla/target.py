"""A card as XLA's compiler for GPUs wants it described: the text of a `GpuTargetConfigProto`.

With it XLA plans the memory of a program for a card that is not there, and needs no driver and no CUDA library. What
one multiprocessor has follows from the compute capability (CUDA C++ Programming Guide 12.9, table "Technical
Specifications per Compute Capability"); all else is in the table of cards (`machine/gpu_table.py`).

Where a program would need more than the card has, XLA computes some results twice to save memory. A plan is wanted of
the program as it is, so the card is described with more memory than any program needs.
"""

import os
from dataclasses import dataclass

from legroom.errors import BadInput
from legroom.machine.gpu_table import KnownGpu, find_gpu
from legroom.machine.versions import read_versions
from legroom.model.machine import Gpu

KIB = 1024
EXTRA = "xla-gpu"
PLUGIN, RUNTIME, ASSEMBLER = "jax-cuda12-plugin", "jax-cuda12-pjrt", "nvidia-cuda-nvcc-cu12"
PACKAGES = (PLUGIN, RUNTIME, ASSEMBLER)
UNBOUNDED = 1 << 50
# What a process needs that compiles for a card without having one: jax asks the plugin for CUDA's libraries, and XLA
# would time kernels on the card to choose between them.
FLAGS = "--xla_gpu_autotune_level=0"
# Nothing of a card's memory is taken where there is one, and the answer is the same everywhere.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "JAX_ENABLE_COMPILATION_CACHE": "0",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}  # fmt: skip


@dataclass(frozen=True)
class _Processor:
    """What one multiprocessor has: threads, KiB of shared memory and how many of them one block gets, FP32 units."""

    threads: int
    shared_kib: int
    shared_kib_optin: int
    fpus: int


_PROCESSORS = {
    (6, 0): _Processor(2048, 64, 48, 64),
    (6, 1): _Processor(2048, 96, 48, 128),
    (7, 0): _Processor(2048, 96, 96, 64),
    (7, 5): _Processor(1024, 64, 64, 64),
    (8, 0): _Processor(2048, 164, 163, 64),
    (8, 6): _Processor(1536, 100, 99, 128),
    (8, 9): _Processor(1536, 100, 99, 128),
    (9, 0): _Processor(2048, 228, 227, 128),
    (10, 0): _Processor(2048, 228, 227, 128),
    (10, 3): _Processor(2048, 228, 227, 128),
    (12, 0): _Processor(1536, 100, 99, 128),
}


def known_card(gpu: Gpu) -> KnownGpu | None:
    """Return the card's row of the table; None where it has none."""
    try:
        return find_gpu(gpu.name)
    except BadInput:
        return None


def target_text(card: KnownGpu) -> str:
    """Return the card as XLA's text proto; CUDA 12.9 and cuDNN 9.8, as the plugin is built for."""
    each, (major, minor) = _PROCESSORS[card.capability], card.capability
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: {each.threads}
  shared_memory_per_block: {48 * KIB} shared_memory_per_core: {each.shared_kib * KIB}
  shared_memory_per_block_optin: {each.shared_kib_optin * KIB}
  core_count: {card.multiprocessors} fpus_per_core: {each.fpus}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: {card.bandwidth} l2_cache_size: {card.l2_nbytes} clock_rate_ghz: {card.clock_hz / 1e9:g}
  device_memory_size: {UNBOUNDED}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 8 }} runtime_version {{ major: 12 minor: 9 patch: 0 }}
device_description_str: "NVIDIA {card.name}"
"""


def add_flags(*flags: str) -> None:
    """Add to XLA's flags, which it reads when jax is imported."""
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])


def plugin_missing() -> str:
    """Return why XLA cannot be asked for a card here, empty where it can.

    jax refuses a plugin whose version is not jaxlib's.
    """
    found = read_versions((*PACKAGES, "jaxlib"))
    for package in PACKAGES:
        if package not in found:
            return f"{package} is not installed"
    ours = found.get("jaxlib", "")
    for package in (PLUGIN, RUNTIME):
        if found[package] != ours:
            return f"{package} {found[package]} does not match jaxlib {ours}"
    return ""
