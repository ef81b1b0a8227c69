"""The knob table: every setting that memory depends on and that fitting may turn, with its price.

*free*: bit-equal results, and no slower. *slower*: the same mathematics, to the bit or up to rounding (1e-6 per
update). *changes-learning*: anything else, however harmless. Within a price the order here decides between knobs that
buy the same. A new knob is one function that gives its settings, one line here, one test.

What people are advised to do and is not here does nothing for memory: fewer epochs (time only), fewer simulations per
step, a shorter run, no replay buffer saved with PPO (which has none).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from legroom.backends.brax import ladders as brax
from legroom.fitting import ladders_free as free
from legroom.fitting import ladders_learning as learning
from legroom.fitting import ladders_slower as slower
from legroom.fitting.free import lean_price
from legroom.model.evidence import Evidence
from legroom.model.plan import Price
from legroom.model.run import Run

Exact = Literal["bits", "rounding", ""]


@dataclass(frozen=True)
class Knob:
    """One knob.

    Args:
        key: the setting it turns, by its name in the run file; the first of them where it turns several.
        say: what it does and what it costs, for the person who reads the plan.
        ladder: its settings for a run, from the least turned to the most; none where it does nothing.
        exact: whether results stay equal to the bit, up to rounding, or not.
        asks_probe: its price is `slower` unless a probe of the environment measured that it is none.
    """

    key: str
    price: Price
    exact: Exact
    say: str
    ladder: Callable[[Run, Evidence], Iterator[Run]]
    asks_probe: bool = False

    def price_for(self, run: Run, evidence: Evidence) -> Price:
        """Return what it costs this run."""
        if self.asks_probe and lean_price(run, evidence) != "free":
            return "slower"
        return self.price


# fmt: off
KNOBS: tuple[Knob, ...] = (
    Knob("memory.rollout", "free", "bits",
         "observations are stored losslessly without what repeats, and the rollout is not copied to be flattened",
         free.lean_storage, asks_probe=True),
    Knob("env.workers", "free", "bits",
         "worker processes import no torch: tens of megabytes each instead of hundreds", free.light_workers),
    Knob("eval.workers", "free", "bits",
         "the same for the environments that evaluate", free.light_evaluation_workers),
    Knob("memory.expandable_segments", "free", "bits",
         "the CUDA allocator's segments grow, instead of leaving gaps between them", free.expandable_segments),
    Knob("memory.xla_preallocate", "free", "bits",
         "XLA takes memory as it needs it, not three quarters of the card at the start", free.no_preallocation),
    Knob("eval.n_envs", "free", "bits",
         "fewer environments that only evaluate; training never sees them", free.fewer_evaluation_envs),
    Knob("memory.shared_data", "free", "bits",
         "read-only data of the environments once for all workers", free.shared_data),

    Knob("memory.micro_batch", "slower", "rounding",
         "a minibatch goes through the networks in pieces whose gradients add up to its own", slower.micro_batches),
    Knob("memory.activation_checkpointing", "slower", "rounding",
         "what layers hand on is computed again for the backward pass, a forward pass more",
         slower.activation_checkpointing),
    Knob("memory.activation_checkpointing", "slower", "rounding",
         "the loss's networks go over an unroll step by step, and each step again for the backward pass",
         brax.remat_of_the_loss),
    Knob("memory.env_chunk", "slower", "rounding",
         "so many environments are stepped at once, one chunk after the other", brax.envs_in_chunks),
    Knob("memory.foreach", "slower", "rounding",
         "the optimizer updates one tensor after the other, without temporaries for all at once",
         slower.single_tensor_optimizer),
    Knob("env.envs_per_worker", "slower", "bits",
         "several environments share a process and are stepped one after the other", slower.envs_per_worker),
    Knob("memory.max_bytes", "slower", "bits",
         "the oldest stored observations wait on disk until they are sampled", slower.spilling),
    Knob("memory.empty_cache_every", "slower", "bits",
         "the CUDA cache is given back after every update; the own peak stays (median 1.00 over 179 runs)",
         slower.emptied_cache),

    Knob("env.n_envs", "changes-learning", "",
         "fewer environments that each play longer: as many samples per update, less varied",
         learning.fewer_envs_longer_rollouts),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "as many env steps per update, in more and smaller gradient steps, which are noisier",
         brax.smaller_batch_more_minibatches),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "gradients of fewer samples are noisier, and there are more steps per update", learning.smaller_batch),
    Knob("memory.bf16", "changes-learning", "",
         "forward and backward passes in 16 bits, weights in 32", learning.bfloat16),
    Knob("hyperparams.buffer_size", "changes-learning", "",
         "older experience is forgotten earlier", learning.smaller_replay),
    Knob("hyperparams.n_steps", "changes-learning", "",
         "less data per update, and returns estimated over shorter stretches", learning.shorter_rollout),
    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, and so less data per update", learning.fewer_envs),
    Knob("policy.kwargs.net_arch", "changes-learning", "",
         "narrower hidden layers can represent less", learning.smaller_network),
    Knob("policy.features_extractor_kwargs", "changes-learning", "",
         "a smaller features extractor sees less", learning.smaller_extractor),
    Knob("env.grid", "changes-learning", "",
         "the workload's data at a coarser resolution: another, easier problem", learning.coarser_grid),
)
# fmt: on
