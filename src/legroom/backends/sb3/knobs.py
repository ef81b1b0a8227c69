"""SB3's knobs: every setting that memory depends on and that fitting may turn, with its price.

Within a price the order here decides between knobs that buy the same. A new knob is one function that gives its
settings, one line here, one test.

What people are advised to do and is not here does nothing for memory: fewer epochs (time only), fewer simulations per
step, a shorter run, no replay buffer saved with PPO (which has none).
"""

from legroom.backends.sb3 import ladders
from legroom.backends.sb3.bill.lean import storage_price
from legroom.model.evidence import Evidence
from legroom.model.plan import Attachment, Knob, Price
from legroom.model.run import Run

# fmt: off
LEAN_STORAGE = Knob(
    "memory.rollout", "free", "bits",
    "observations are stored losslessly, repeats once; the rollout is not copied to be flattened",
    ladders.lean_storage, storage_price, also=("memory.replay",))
SB3_KNOBS: tuple[Knob, ...] = (
    LEAN_STORAGE,
    Knob("env.workers", "free", "bits",
         "workers without torch: 4.8 to 23 MB each, not 165 to 284 MB; cheap environments run in-process",
         ladders.light_workers),
    Knob("eval.workers", "free", "bits",
         "the same for evaluation environments", ladders.light_evaluation_workers),
    Knob("memory.expandable_segments", "free", "bits",
         "the CUDA allocator's segments grow, instead of leaving gaps between them", ladders.expandable_segments,
         counted=False),
    Knob("memory.shared_data", "free", "bits",
         "read-only data of the environments once for all workers", ladders.shared_data),

    Knob("memory.micro_batch", "slower", "rounding",
         "a minibatch goes through the networks in pieces whose gradients add up to its own", ladders.micro_batches),
    Knob("memory.activation_checkpointing", "slower", "rounding",
         "activations are computed again for the backward pass: one more forward pass",
         ladders.activation_checkpointing),
    Knob("env.envs_per_worker", "slower", "bits",
         "several environments share a process and are stepped in turn", ladders.envs_per_worker),
    Knob("memory.max_bytes", "slower", "bits",
         "the oldest stored observations wait on disk until they are sampled", ladders.spilling),

    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, each with longer rollouts: as many samples per update, less varied",
         ladders.fewer_envs_longer_rollouts),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "gradients of fewer samples are noisier, and there are more steps per update", ladders.smaller_batch),
    Knob("memory.bf16", "changes-learning", "",
         "forward and backward passes in 16 bits, weights in 32", ladders.bfloat16),
    Knob("hyperparams.buffer_size", "changes-learning", "",
         "older experience is forgotten earlier", ladders.smaller_replay),
    Knob("hyperparams.n_steps", "changes-learning", "",
         "less data per update, and returns estimated over shorter stretches", ladders.shorter_rollout),
    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, and so less data per update", ladders.fewer_envs),
    Knob("policy.kwargs.net_arch", "changes-learning", "",
         "narrower hidden layers can represent less", ladders.smaller_network, starts_over=True),
    Knob("policy.features_extractor_kwargs", "changes-learning", "",
         "a smaller features extractor sees less", ladders.smaller_extractor, starts_over=True),
    Knob("env.grid", "changes-learning", "",
         "the workload's data at a coarser resolution: another, easier problem", ladders.coarser_grid,
         starts_over=True),
)
# fmt: on


MENDS = {"minibatch-does-not-divide": ladders.with_nearest_batch}


def with_free_savings(run: Run, evidence: Evidence) -> Run:
    """Return the run with light workers and, where a probe measured it no slower, lean storage."""
    lighter = next(ladders.light_workers(run, evidence), run)
    is_free = LEAN_STORAGE.price_for(run, evidence) == "free"
    return next(ladders.lean_storage(lighter, evidence), lighter) if is_free else lighter


_ATTACHING = "legroom.backends.sb3.attaching"
_PRICES: dict[str, Price] = {knob.key: knob.unprobed_price for knob in SB3_KNOBS}
_UPDATES = {"stable_baselines3.common.base_class": f"{_ATTACHING}:on_base_class"}
ATTACHMENTS = (
    Attachment(
        "lean", _PRICES["memory.rollout"], "rollouts and replay stored losslessly in less memory",
        hooks={
            "stable_baselines3.common.buffers": f"{_ATTACHING}:on_buffers",
            "sb3_contrib.common.maskable.buffers": f"{_ATTACHING}:on_maskable_buffers",
            "stable_baselines3.common.save_util": f"{_ATTACHING}:on_save_util",
            "cleanrl_utils.buffers": f"{_ATTACHING}:on_own_buffers",
        },
    ),
    Attachment(
        "workers", _PRICES["env.workers"], "worker processes without torch in place of SubprocVecEnv's",
        hooks={"stable_baselines3.common.vec_env.subproc_vec_env": f"{_ATTACHING}:on_subproc_vec_env"},
    ),
    Attachment(
        "redo", "free", "an update that runs out of memory is done again in exact pieces", hooks=_UPDATES,
        saves="device",
    ),
    Attachment(
        "allocator", _PRICES["memory.expandable_segments"], "the CUDA allocator's segments grow, without gaps between",
        variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, others=("PYTORCH_ALLOC_CONF",),
        needs_gpu=True, saves="device",
    ),
    Attachment(
        "micro_batch", _PRICES["memory.micro_batch"], "a minibatch goes through the network in pieces of N samples",
        hooks=_UPDATES, takes="samples", saves="device",
    ),
)  # fmt: skip
