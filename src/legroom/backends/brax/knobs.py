"""brax's knobs, with their prices; the order within a price decides between knobs that buy the same."""

from legroom.backends.brax import ladders
from legroom.backends.brax.facts import LAYERS
from legroom.model.evidence import Evidence
from legroom.model.plan import Knob
from legroom.model.run import Run

# fmt: off
BRAX_KNOBS: tuple[Knob, ...] = (
    Knob("memory.xla_preallocate", "free", "bits",
         "XLA takes memory as it needs it, not three quarters of the GPU at the start", ladders.no_preallocation,
         counted=False),
    Knob("eval.n_envs", "free", "bits",
         "fewer environments that only evaluate; training never sees them", ladders.fewer_evaluation_envs),

    Knob("memory.activation_checkpointing", "slower", "rounding",
         "the loss's networks go over an unroll step by step, and each step again for the backward pass",
         ladders.remat_of_the_loss),
    Knob("memory.env_chunk", "slower", "rounding",
         "so many environments are stepped at once, one chunk after the other", ladders.envs_in_chunks),

    Knob("env.n_envs", "changes-learning", "",
         "fewer environments that each play longer: as many samples per update, less varied",
         ladders.fewer_envs_longer_rollouts),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "as many env steps per update, in more and smaller gradient steps, which are noisier",
         ladders.smaller_batch_more_minibatches),
    Knob("hyperparams.batch_size", "changes-learning", "",
         "gradients of fewer samples are noisier, and there are more steps per update", ladders.smaller_batch),
    Knob("hyperparams.max_replay_size", "changes-learning", "",
         "older experience is forgotten earlier", ladders.smaller_replay, starts_over=True),
    Knob("hyperparams.unroll_length", "changes-learning", "",
         "less data per update, and returns estimated over shorter stretches", ladders.shorter_rollout),
    Knob("env.n_envs", "changes-learning", "",
         "fewer environments, and so less data per update", ladders.fewer_envs),
    Knob("policy.kwargs.policy_hidden_layer_sizes", "changes-learning", "",
         "narrower hidden layers can represent less", ladders.smaller_network,
         also=tuple(f"policy.kwargs.{name}" for name in LAYERS[1:]), starts_over=True),
)
# fmt: on


def with_free_savings(run: Run, evidence: Evidence) -> Run:
    """Return the run without XLA's preallocation, which serves nobody and hides what is needed, where it has a card."""
    return next(ladders.no_preallocation(run, evidence), run) if evidence.device == "cuda" else run
