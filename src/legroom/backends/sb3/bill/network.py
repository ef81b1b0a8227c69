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

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.bill.lean import decoded_batches
from legroom.backends.sb3.bill.net_arithmetic import convolved_nbytes, quantile_pairs
from legroom.backends.sb3.stored import (
    FLOAT32,
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
from legroom.model.facts import episode_limit
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run
from legroom.model.spaces import leaves

# What an update needs beyond its tensors where it was not measured: oneDNN's and BLAS' own buffers, and what malloc
# loses between blocks below its mmap threshold (32 MiB). Set on 54 updates of `evidence_child` (2026-11-17, torch
# 2.13.0+cpu, glibc 2.36, one thread; `bench.update_scratch` of eca25f63): MLPs of 64 to 2048, NatureCNN on 48x48x3 to
# 96x96x3 and 64x64x12, LSTMs, batches of 32 to 256.
# Of the bytes that go in and come out of the largest convolution: while they come from the heap, and beyond that.
# Beyond: NatureCNN on 84x84x4 0.84, on 144x160x12 0.57, the mine's 3D network about 0.6 (2026-11-15).
CONVOLUTION_SCRATCH, LARGE_CONVOLUTION_SCRATCH = 1.3, 0.65
CONVOLUTION_SCRATCH_ERROR, LARGE_CONVOLUTION_SCRATCH_ERROR = 0.3, 0.2
HEAP_CONVOLUTIONS = 60_000_000
# Of weights, gradients and optimizer state, up to a bound where single blocks are mapped; a little of what is beyond.
HEAP_SHARES = {"on-policy": 0.3, "off-policy": 0.5}
HEAP_SHARE_BOUND, BEYOND_BOUND = 45_000_000, 0.04
TRUST_REGION_SHARE = 1.5  # TRPO's conjugate gradients: some vectors of all parameters more
# Quantile losses (QR-DQN, TQC) compare every pair of quantiles: so many arrays of [batch, quantiles, quantiles].
PAIRWISE_ARRAYS = 16
LESSER_SHARE = 0.3  # of the smaller of two kinds of scratch, which reuses most of the other's blocks
NORMS_KEPT = 2.0  # of CrossQ's activations, which its batch normalisations copy
# Of an LSTM: sequences are padded, and each time step keeps its own buffers: per sample and unit, and convolutions.
RECURRENT_BYTES, RECURRENT_CONVOLUTIONS, RECURRENT_ERROR = 976, 4, 0.6
SCRATCH_ERROR = 0.35  # of all of it
# malloc keeps freed blocks for reuse, and oneDNN keeps compiled kernels, which comes to this with any update.
RETAINED, RETAINED_ERROR = 6_000_000, 12_000_000
KERNELS_RETAINED, KERNELS_RETAINED_ERROR = 16_000_000, 12_000_000  # with convolutions
LSTM_RETAINED, LSTM_RETAINED_ERROR = 50_000_000, 30_000_000
MOST_KEPT = 70_000_000  # between updates, of an update's scratch: 50 to 70 MB in the largest of the same
# The same in bfloat16, by the axes of the convolution: a processor without instructions for it converts and unfolds
# what it convolves. Seen 1.6 and 7 of the in- and outputs with a 2D and a 3D network (2026-11-16, torch 2.13.0+cpu, an
# EPYC without avx512_bf16; `bench.knobs host` of eca25f63); one with such instructions needs less.
BF16_SCRATCH, BF16_SCRATCH_ERROR = {2: 1.6, 3: 6.0}, {2: 1.2, 3: 4.0}
# With activation checkpointing, beyond what the measured child shows, which makes an update or two: pieces of a few MB
# come and go in the heap, and what lies between them stays. Found 26, 40 and 128 MB more than was measured with three
# networks (2026-11-16, torch 2.13.0+cpu, glibc 2.36; `bench.knobs host` of eca25f63).
PIECES_KEPT, PIECES_KEPT_ERROR = 55_000_000, 75_000_000
# Of a network's weights, gradients and optimizer state: what malloc's heap and BLAS add to them where nothing was
# measured. 0.24 with TQC and layers of 2048, 0.10 with PPO and layers of 4096 (2026-11-17, torch 2.13.0+cpu, glibc
# 2.36). Twice as much where an update was tried and could not be made: such a run is out of the ordinary.
NETWORK_ERROR, UNMEASURED_ERROR = 0.2, 0.4

# ARS (`_do_one_update` in sb3_contrib/ars/ars.py 2.9): deltas, policy_deltas, both sums, and both joined.
CANDIDATE_ARRAYS = 6

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
    if algorithm_of(run).family == "evolution":
        directions = int(hyper(run, "n_delta") or 1)
        why = f"{directions} random directions, scaled ones, and the weights plus and minus each, twice while joined"
        nbytes = CANDIDATE_ARRAYS * directions * net.weights
        yield Item("update.candidates", nbytes, Place.HOST, why, (Phase.COLLECT, Phase.UPDATE), error=nbytes // 4)
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
    nbytes, error, why = _unmeasured_scratch(run, evidence)
    yield Item(OPERATOR_SCRATCH, nbytes, Place.HOST, why, (Phase.UPDATE,), known=Known.DEFAULT, error=error)
    if again:
        kept, idle = min(nbytes, MOST_KEPT), (Phase.COLLECT, *((Phase.CHECKPOINT,) if run.checkpoint else ()))
        why = "freed blocks of an update that malloc keeps for the next; not measured"
        yield Item(
            "collect.kept by malloc", kept, Place.HOST, why, idle, known=Known.DEFAULT, error=kept // 2
        )  # fmt: skip
    retained, error = RETAINED, RETAINED_ERROR
    if algorithm_of(run).recurrent:
        retained, error = LSTM_RETAINED, LSTM_RETAINED_ERROR
    elif convolved_nbytes(run):
        retained, error = KERNELS_RETAINED, KERNELS_RETAINED_ERROR
    net = evidence.net
    if evidence.unmeasured and net is not None:
        error += int(UNMEASURED_ERROR * (net.weights + net.gradients + net.optimizer + update_nbytes(net)))
    yield Item(
        KEPT_BY_MALLOC, retained, Place.HOST, "freed blocks and compiled kernels that are kept; not measured",
        (Phase.COLLECT, Phase.UPDATE, Phase.CHECKPOINT), known=Known.DEFAULT, error=error,
    )  # fmt: skip


def _unmeasured_scratch(run: Run, evidence: Evidence) -> tuple[int, int, str]:
    """Return what an update is likely to need beyond its tensors, ±, and why."""
    algorithm, net, convolved = algorithm_of(run), evidence.net, convolved_nbytes(run)
    assert net is not None
    resident = net.weights + net.gradients + net.optimizer
    share = TRUST_REGION_SHARE if algorithm.name == "TRPO" else HEAP_SHARES.get(algorithm.family, 0.0)
    network = min(int(share * resident), HEAP_SHARE_BOUND) + int(BEYOND_BOUND * resident)
    why = "malloc's and BLAS' own for the networks, not measured"
    if run.memory.bf16 and convolved:
        axes = 3 if any(len(leaf.shape) > 3 for leaf in leaves(stored_observation(run)).values()) else 2
        why = "oneDNN's workspaces for convolutions; more in bfloat16 where the processor has no instructions"
        return int(BF16_SCRATCH[axes] * convolved) + network, int(BF16_SCRATCH_ERROR[axes] * convolved), why
    mapped = max(convolved - HEAP_CONVOLUTIONS, 0)
    inside = int(CONVOLUTION_SCRATCH * (convolved - mapped))
    beyond, doubt = int(LARGE_CONVOLUTION_SCRATCH * mapped), int(CONVOLUTION_SCRATCH_ERROR * (convolved - mapped))
    if convolved:
        why = "oneDNN's workspaces for convolutions, and malloc's own; not measured"
    if algorithm.recurrent:
        longest = min(pass_samples(run), episode_limit(run) or pass_samples(run))
        steps = RECURRENT_BYTES * longest * int(run.policy.kwargs.get("lstm_hidden_size", 256))
        inside = RECURRENT_CONVOLUTIONS * (inside + beyond) + steps + update_nbytes(net)
        why = "padded sequences; not measured"
        return inside + network, int(RECURRENT_ERROR * inside + SCRATCH_ERROR * network), why
    if algorithm.name == "CrossQ":
        inside += int(NORMS_KEPT * net.transient.get(Phase.UPDATE, {}).get("activations", 0))
    pairs = PAIRWISE_ARRAYS * FLOAT32 * pass_samples(run) * quantile_pairs(run)
    if pairs:
        why = "differences of all pairs of quantiles, and malloc's own; not measured"
    one, other = sorted((inside + network, pairs))
    nbytes = other + int(LESSER_SHARE * one) if pairs else other
    return nbytes + beyond, int(SCRATCH_ERROR * nbytes + doubt + LARGE_CONVOLUTION_SCRATCH_ERROR * mapped), why


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
