"""Predict networks, optimizer and update on the host.

On the CPU they live in the training process: weights and target networks from the start, gradients and optimizer
state from the first update on, and for each update a minibatch, what autograd keeps, and what operators use inside
(oneDNN's reordered weights, im2col buffers), which no tensor shows and which is measured. On a GPU only the copies on
the way there are in host memory.

Gathering a minibatch makes two copies, a NumPy one and the tensor, while the previous minibatch is still referenced;
that moment is over when activations come, so only what exceeds them counts. Lean storage decodes into memory that
becomes the tensor itself on the CPU and is page-locked for a GPU, and keeps it for the next minibatches: nothing is
copied, but one more minibatch exists all the time, and both while the run collects.

With micro-batches (`memory.micro_batch`) all that is of a micro-batch: it alone is gathered, passed and kept.
"""

from collections.abc import Iterator

from legroom.backends.base import algorithm_of
from legroom.backends.sb3.bill.lean import decoded_batches
from legroom.backends.sb3.bill.net_arithmetic import convolved_nbytes
from legroom.backends.sb3.stored import (
    batch_samples,
    gather_excess,
    iterations,
    observation_nbytes,
    pass_samples,
    stored_observation,
    stores_leanly,
    update_nbytes,
)
from legroom.model.evidence import Evidence, NetTrace
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run
from legroom.model.spaces import leaves

# What a CPU convolution needs inside, of the bytes that go in and come out of the largest one; used where it was not
# measured. NatureCNN on 84x84x4 needs 0.84, on 144x160x12 0.57 (slopes of `measured_updates.py` between 32 and 512
# samples), the mine's 3D network about 0.6 (1 and 2 samples); 2026-11-15, torch 2.13.0+cpu, one thread.
CONVOLUTION_SCRATCH, CONVOLUTION_SCRATCH_ERROR = 0.65, 0.2
# malloc keeps freed blocks below its mmap threshold (at most 32 MiB each) for reuse, and oneDNN keeps compiled kernels;
# used where it was not measured. `python -m bench.accuracy --mode arithmetic` (2026-11-15, torch 2.13.0+cpu).
RETAINED, RETAINED_ERROR = 8_000_000, 12_000_000
KERNELS_RETAINED, KERNELS_RETAINED_ERROR = 38_000_000, 25_000_000  # with convolutions or an LSTM
LARGE_RETAINED, LARGE_RETAINED_ERROR = 70_000_000, 45_000_000  # where convolutions work on more than 128 MB
LARGE = 128_000_000
# The same in bfloat16, by the axes of the convolution: a processor without instructions for it converts and unfolds
# what it convolves. Seen 1.6 and 7 of the in- and outputs with a 2D and a 3D network (2026-11-16, torch 2.13.0+cpu, an
# EPYC without avx512_bf16; `python -m bench.knobs host`); one with such instructions needs less.
BF16_SCRATCH, BF16_SCRATCH_ERROR = {2: 1.6, 3: 6.0}, {2: 1.2, 3: 4.0}
# With activation checkpointing, beyond what the measured child shows, which makes an update or two: pieces of a few MB
# come and go in the heap, and what lies between them stays. Found 26, 40 and 128 MB more than was measured with three
# networks (2026-11-16, torch 2.13.0+cpu, glibc 2.36; `python -m bench.knobs host`).
PIECES_KEPT, PIECES_KEPT_ERROR = 55_000_000, 75_000_000
# Of a network's weights, gradients and optimizer state: what malloc's heap and BLAS add to them where nothing was
# measured. 0.24 with TQC and layers of 2048, 0.10 with PPO and layers of 4096 (2026-11-17, torch 2.13.0+cpu, glibc
# 2.36). Twice as much where an update was tried and could not be made: such a run is out of the ordinary.
NETWORK_ERROR, UNMEASURED_ERROR = 0.2, 0.4

OPERATOR_SCRATCH, KEPT_BY_MALLOC = "update.operator scratch", "runtime.kept by malloc"
SCRATCH_ITEMS = (OPERATOR_SCRATCH, KEPT_BY_MALLOC)  # what a real update in a child process would tell better


def network_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    """Yield weights, gradients, optimizer state and the update's own memory, as far as they are on the host."""
    net = evidence.net
    if net is None:
        return
    if evidence.device == "cuda":
        yield from _host_copies(run)
        return
    yield from _update_items(run, evidence, net)


def _update_items(run: Run, evidence: Evidence, net: NetTrace) -> Iterator[Item]:
    known = net.known
    parameters = f"{net.parameters:,} parameters"
    yield Item("network.weights", net.weights - net.targets, Place.HOST, f"{parameters}, targets included", known=known)
    if net.targets:
        yield Item("network.targets", net.targets, Place.HOST, "the target networks' copy", known=known)
    after = _after_first_update(run)
    whole, samples = batch_samples(run), pass_samples(run)
    pieces = f", {samples:,} of {whole:,} samples at a time" if samples < whole else ""
    if net.gradients:
        yield Item("network.gradients", net.gradients, Place.HOST, "one per trained parameter", after, known=known)
    if net.optimizer:
        yield Item("network.optimizer", net.optimizer, Place.HOST, "kept from the first update on", after, known=known)
    for phase, categories in net.transient.items():
        for name, nbytes in categories.items():
            why = _WHY.get(name, "") + (pieces if phase is Phase.UPDATE and name != "temporaries" else "")
            error = int(net.error * nbytes)
            yield Item(f"{phase}.{name}", nbytes, Place.HOST, why, (phase,), known=known, error=error)
    if stores_leanly(run):
        yield from _decoded_items(run, update_nbytes(net))
    elif gather := gather_excess(net):
        why = "the NumPy copy and the previous minibatch, beyond what the activations take later"
        yield Item("update.minibatch copies", gather, Place.HOST, why, (Phase.UPDATE,))
    yield from _scratch_items(run, evidence)


_WHY = {
    "batch": "the minibatch's tensors",
    "activations": "kept by autograd for the backward pass",
    "temporaries": "temporary: activation gradients, an optimizer step",
}


def _scratch_items(run: Run, evidence: Evidence) -> Iterator[Item]:
    scratch = evidence.scratch
    if run.memory.activation_checkpointing:
        why = "pieces of activations that are computed again; malloc keeps what lies between them"
        yield Item(
            "update.pieces", PIECES_KEPT, Place.HOST, why, (Phase.UPDATE,),
            known=Known.DEFAULT, error=PIECES_KEPT_ERROR,
        )  # fmt: skip
    again = iterations(run) > 1 if algorithm_of(run).family == "on-policy" else True
    if scratch is not None:
        yield Item(
            OPERATOR_SCRATCH, scratch.nbytes, Place.HOST, scratch.why, (Phase.UPDATE,),
            known=Known.MEASURED, error=scratch.error,
        )  # fmt: skip
        if again and scratch.retained:
            why = "freed blocks that malloc keeps for the next update"
            error = min(scratch.retained, scratch.error)
            yield Item(
                "collect.kept by malloc", scratch.retained, Place.HOST, why, (Phase.COLLECT, Phase.CHECKPOINT),
                known=Known.MEASURED, error=error,
            )  # fmt: skip
        return
    convolved = convolved_nbytes(run)
    if convolved:
        share, doubt = CONVOLUTION_SCRATCH, CONVOLUTION_SCRATCH_ERROR
        why = "oneDNN's workspaces for convolutions; not measured, about half of their in- and outputs"
        if run.memory.bf16:
            axes = 3 if any(len(leaf.shape) > 3 for leaf in leaves(stored_observation(run)).values()) else 2
            share, doubt = BF16_SCRATCH[axes], BF16_SCRATCH_ERROR[axes]
            why = "oneDNN's workspaces for convolutions; more in bfloat16 where the processor has no instructions"
        yield Item(
            OPERATOR_SCRATCH, int(share * convolved), Place.HOST, why, (Phase.UPDATE,),
            known=Known.DEFAULT, error=int(doubt * convolved),
        )  # fmt: skip
    kernels = convolved or algorithm_of(run).recurrent
    retained, error = (KERNELS_RETAINED, KERNELS_RETAINED_ERROR) if kernels else (RETAINED, RETAINED_ERROR)
    if convolved > LARGE:
        retained, error = LARGE_RETAINED, LARGE_RETAINED_ERROR
    net = evidence.net
    if evidence.unmeasured and net is not None:
        error += int(UNMEASURED_ERROR * (net.weights + net.gradients + net.optimizer + update_nbytes(net)))
    yield Item(
        "runtime.kept by malloc", retained, Place.HOST, "freed blocks and compiled kernels that are kept; not measured",
        (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT), known=Known.DEFAULT, error=error,
    )  # fmt: skip


def _decoded_items(run: Run, update: int) -> Iterator[Item]:
    """Yield the decoded minibatches that lean storage keeps; the one in use is part of the update already."""
    each, kept = decoded_batches(run)
    after = _after_first_update(run)
    if kept > 1:
        why = "the minibatch before, or the one decoded ahead of time; kept for reuse"
        # while both are held, a third one may be begun
        error = max(2 * each - update, 0) if algorithm_of(run).family == "on-policy" else 0
        yield Item("storage.decoded minibatch", each, Place.HOST, why, after, error=error)
    if idle := tuple(phase for phase in after if phase is not Phase.UPDATE):
        yield Item("storage.last minibatch", each, Place.HOST, "kept for the next update", idle)


def _host_copies(run: Run) -> Iterator[Item]:
    if stores_leanly(run):
        each, kept = decoded_batches(run)
        why = f"{'two minibatches' if kept > 1 else 'a minibatch'} decoded into page-locked memory, kept for reuse"
        yield Item("storage.decoded minibatches", each * kept, Place.HOST, why, _after_first_update(run))
        return
    family = algorithm_of(run).family
    per_sample = observation_nbytes(run) * (2 if family == "off-policy" else 1)
    nbytes = 2 * pass_samples(run) * per_sample
    why = "gathered by NumPy, then as a tensor on its way to the GPU"
    yield Item("update.minibatch copies", nbytes, Place.HOST, why, (Phase.UPDATE,))


def _after_first_update(run: Run) -> tuple[Phase, ...]:
    # A run that ends with its first update has neither while it collects (and flattens) its only rollout.
    if algorithm_of(run).family == "on-policy" and iterations(run) <= 1:
        return (Phase.UPDATE, Phase.CHECKPOINT)
    return (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT)
