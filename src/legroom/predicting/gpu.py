"""What a run takes on the GPU: the largest amount the caching allocator ever reserves, item by item.

The allocator never gives memory back on its own, so a card has to hold the largest amount it ever *reserved*, plus what
lives outside of it: the CUDA context and cuDNN's workspace. A traced run's requests are replayed through the simulator.
The bill lists the blocks alive when most is handed out, by what they are; what is reserved beyond that is
fragmentation. (Not the blocks alive when the last segment was reserved: that may be any moment.)
Without a trace the same bill is estimated from shapes, with a wide band.
"""

import math
from collections.abc import Iterable, Iterator

from legroom.hollow.cuda_allocator import ROUND_SEGMENT_BYTES, Settings
from legroom.hollow.cuda_reduce import GpuShape
from legroom.hollow.replaying import Replay, replay
from legroom.model.evidence import Event, NetTrace
from legroom.model.footprint import ALWAYS, AllocatorPeaks, Item, Known, Phase, Place
from legroom.model.machine import Gpu, Machine
from legroom.model.run import Run
from legroom.units import MIB

# 300-500 MB by card and driver; NVML shows it as the process's memory beyond what torch reserved.
CONTEXT_BYTES, CONTEXT_ERROR = 400_000_000, 100_000_000
# ATen/cuda/CublasHandlePool.cpp: the default CUBLAS_WORKSPACE_CONFIG, :4096:2:16:8 and on Hopper :4096:8.
CUBLAS_BYTES, CUBLAS_HOPPER_BYTES = 8_519_680, 32 * MIB
_CUBLAS_SIZES = (CUBLAS_BYTES, CUBLAS_HOPPER_BYTES)
# Share of the largest convolution (input, weight, output) that cuDNN is assumed to take as workspace, and as much again
# on either side as error: it may need none, and nothing bounds it. No card was measured (2026-11); Conv3d is worse,
# because its faster algorithms unfold more.
CUDNN_SHARE = {1: 0.05, 2: 0.05, 3: 0.25}
# Values that cuDNN keeps per time step, sample and unit of a recurrent layer in training, and as much again on either
# side as error: an LSTM has four gates, a cell and a state. No card was measured.
RNN_RESERVE = 4
# Reserved beyond allocated, relative, when only sizes are known: 7% to 91%, median 28%, in the 179 runs of
# bench/vram.py, nine in ten between 12% and 65% (2026-11).
ESTIMATED_FRAGMENTATION, ESTIMATED_FRAGMENTATION_ERROR = 0.3, 0.35
# The same with expandable segments: median 27%, nine in ten between 11% and 61%; 24% of what takes over 100 MB, where
# the pages of 20 MiB matter less (`bench.knobs segments` of eca25f63, 2026-11).
EXPANDABLE_FRAGMENTATION, EXPANDABLE_FRAGMENTATION_ERROR = 0.25, 0.33

_WHY = {
    "weights": "parameters and buffers of the policy",
    "targets": "target networks",
    "gradients": "one per trained parameter",
    "optimizer": "the optimizer's state",
    "batch": "observations and targets copied from the buffer",
    "activations": "kept for the backward pass",
    "temporaries": "intermediate results and operator scratch",
    "workspace": "cuBLAS, one for the main thread and one for autograd's",
}
_LASTING = {"weights", "targets"}  # from the move to the device on
_FROM_FIRST_UPDATE = {"gradients", "optimizer", "workspace"}


def gpu_items(run: Run, net: NetTrace, machine: Machine) -> tuple[list[Item], AllocatorPeaks]:
    """Return the items on the GPU at the peak, and what the allocator itself would report."""
    gpu = machine.gpus[0] if machine.gpus else None
    if net.events:
        items, peaks = _replayed(run, net, gpu)
    else:
        items, peaks = _estimated(run, net, gpu)
    return [*items, *_outside(net)], peaks


def _replayed(run: Run, net: NetTrace, gpu: Gpu | None) -> tuple[list[Item], AllocatorPeaks]:
    settings = Settings(expandable_segments=bool(run.memory.expandable_segments))
    result = _replay(net, settings, _cublas_bytes(gpu))
    phase = _phase_at(net, result.allocated_peak_event)
    by_label = dict.fromkeys(_WHY, 0)
    for block, nbytes in result.live_at_allocated_peak.items():
        origin = block if net.rounds is None else net.rounds.origin(block)
        by_label[net.labels.get(origin, "temporaries")] += nbytes
    why = _WHY | {"temporaries": _WHY["temporaries"] + _card_said(net)}
    items = [
        Item(f"gpu.{label}", nbytes, Place.GPU, why[label], phases=_phases(label, phase), known=Known.TRACED)
        for label, nbytes in by_label.items()
    ]
    # What is not modelled may be off by so much at the peak, wherever it is counted.
    doubt = sum(net.unmodelled.values())
    items.append(_fragmentation(result, phase, doubt))
    return items, AllocatorPeaks(result.peak_allocated, result.peak_reserved, _error(items))


def _card_said(net: NetTrace) -> str:
    """Return whose kernels were followed, where they are not those of the usual card."""
    return f", on a GPU with {net.card}" if net.card not in ("", str(GpuShape())) else ""


# Variants of a run that differ on the host alone share their trace.
_REPLAYS: dict[tuple[int, Settings, int], tuple[NetTrace, Replay]] = {}
_MOST_REPLAYS = 8


def _replay(net: NetTrace, settings: Settings, cublas: int) -> Replay:
    key = id(net.events), settings, cublas
    if key not in _REPLAYS:
        while len(_REPLAYS) >= _MOST_REPLAYS:
            del _REPLAYS[next(iter(_REPLAYS))]
        _REPLAYS[key] = net, replay(_for_card(net, cublas), settings, net.rounds)  # whose id is not given to another
    return _REPLAYS[key][1]


def _for_card(net: NetTrace, wanted: int) -> list[Event]:
    """Return the events with cuBLAS's workspace as large as on this card."""
    workspaces = {block for block, label in net.labels.items() if label == "workspace"}
    return [
        ("alloc", e[1], wanted) if len(e) == 3 and e[1] in workspaces and e[2] in _CUBLAS_SIZES else e
        for e in net.events
    ]


def _cublas_bytes(gpu: Gpu | None) -> int:
    hopper = gpu is not None and gpu.capability is not None and gpu.capability[0] == 9
    return CUBLAS_HOPPER_BYTES if hopper else CUBLAS_BYTES


def _phase_at(net: NetTrace, event: int) -> Phase:
    found = Phase.START
    for start, phase in net.phase_starts:
        if start > event:
            break
        found = phase
    return found


def _phases(label: str, peak: Phase) -> tuple[Phase, ...]:
    if label in _LASTING:
        return ALWAYS
    if label in _FROM_FIRST_UPDATE:
        return tuple(phase for phase in Phase if phase in (peak, Phase.UPDATE, Phase.CHECKPOINT))
    return (peak,)


def _fragmentation(result: Replay, phase: Phase, doubt: int) -> Item:
    why = f"reserved in {len(result.segments)} segments, but not allocated even at the peak"
    nbytes = result.peak_reserved - result.peak_allocated
    # A real card's addresses break ties between equal blocks differently; one more small segment has been seen.
    error = ROUND_SEGMENT_BYTES + doubt
    return Item("gpu.fragmentation", nbytes, Place.GPU, why, (phase,), known=Known.TRACED, error=error)


def _estimated(run: Run, net: NetTrace, gpu: Gpu | None) -> tuple[list[Item], AllocatorPeaks]:
    phase = max(net.transient, key=lambda p: sum(net.transient[p].values()), default=Phase.UPDATE)
    sizes = {
        "weights": net.weights - net.targets,
        "targets": net.targets,
        "gradients": net.gradients,
        "optimizer": net.optimizer,
        **net.transient.get(phase, {}),
        "workspace": 2 * _cublas_bytes(gpu),
    }
    lasting = {"weights", "targets", "gradients", "optimizer", "workspace"}
    items = [
        Item(
            f"gpu.{label}", nbytes, Place.GPU, _WHY.get(label, "estimated from shapes"), _phases(label, phase),
            known=Known.ARITHMETIC, error=0 if label in lasting else int(nbytes * net.error),
        )
        for label, nbytes in sizes.items()
    ]  # fmt: skip
    allocated = sum(sizes.values())
    share, error = ESTIMATED_FRAGMENTATION, ESTIMATED_FRAGMENTATION_ERROR
    if run.memory.expandable_segments:
        share, error = EXPANDABLE_FRAGMENTATION, EXPANDABLE_FRAGMENTATION_ERROR
    cached = int(allocated * share)
    reserved = -(-(allocated + cached) // ROUND_SEGMENT_BYTES) * ROUND_SEGMENT_BYTES
    items.append(Item(
        "gpu.fragmentation", reserved - allocated, Place.GPU,
        f"about {share:.0%} of what is allocated; a trace would replay the allocator", (phase,),
        known=Known.ARITHMETIC, error=int(allocated * error),
    ))  # fmt: skip
    return items, AllocatorPeaks(allocated, reserved, _error(items))


def _error(items: Iterable[Item]) -> int:
    """Return by how many bytes the sum of items may be off, as `Footprint.band` adds errors up."""
    return math.isqrt(sum((item.count * item.error) ** 2 for item in items))


def _outside(net: NetTrace) -> Iterator[Item]:
    yield Item(
        "gpu.context", CONTEXT_BYTES, Place.GPU, "CUDA context: 300-500 MB by GPU and driver, outside the allocator",
        known=Known.DEFAULT, error=CONTEXT_ERROR,
    )  # fmt: skip
    if net.convolution:
        share = int(net.convolution * CUDNN_SHARE.get(net.convolution_axes, CUDNN_SHARE[3]))
        yield Item(
            "gpu.cudnn workspace", share, Place.GPU,
            f"a guess for cuDNN: 0 to 2× this for the largest Conv{net.convolution_axes}d; low confidence",
            (Phase.COLLECT, Phase.UPDATE), known=Known.DEFAULT, error=share,
        )  # fmt: skip
    if net.rnn_values:
        reserve = RNN_RESERVE * net.rnn_values
        yield Item(
            "gpu.rnn reserve", reserve, Place.GPU,
            "cuDNN keeps what the recurrent layers' backward pass needs; a guess: 0 to 2× this",
            (Phase.UPDATE,), known=Known.DEFAULT, error=reserve,
        )  # fmt: skip


XLA_SHARE = 0.75  # of a card's memory: XLA_PYTHON_CLIENT_MEM_FRACTION's default, with and without preallocation
# cuBLAS, cuDNN and cuSOLVER allocate beside what a plan holds (which has cuBLAS's 4 MiB where it calls it), and before
# the first step XLA times kernels on copies of their operands. No card was measured (2026-11).
WORKSPACE_NBYTES = 32 * MIB


def allocator_items(items: Iterable[Item], context: Item) -> Iterator[Item]:
    """What comes to the program's own arrays on a card."""
    yield Item(
        "gpu.library workspaces", WORKSPACE_NBYTES, Place.GPU, known=Known.DEFAULT, error=WORKSPACE_NBYTES,
        why="cuBLAS, cuDNN, cuSOLVER and the timing of kernels: a guess, 0 to 2× this; varies by GPU and version",
    )  # fmt: skip
    on_card = [item for item in items if item.place is Place.GPU]
    for phase in Phase:
        arrays = WORKSPACE_NBYTES + sum(item.total for item in on_card if phase in item.phases)
        unused = round(arrays * (1 / XLA_SHARE - 1)) - context.nbytes
        if unused > 0:
            yield Item(
                "gpu.beyond XLA's share", unused, Place.GPU, phases=(phase,), known=Known.ARITHMETIC,
                why=f"XLA's allocator takes at most {XLA_SHARE:.0%} of the GPU (XLA_PYTHON_CLIENT_MEM_FRACTION)",
            )  # fmt: skip
