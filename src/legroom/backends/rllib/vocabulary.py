"""RLlib's words beside SB3's: a run may be written in either."""

from legroom.backends.rllib.translation import RLLIB_KEYS
from legroom.backends.sb3.vocabulary import VOCABULARY as SB3
from legroom.model.draft import Vocabulary

VOCABULARY = Vocabulary(
    names={name: ("hyperparams", name) for name in RLLIB_KEYS},
    moved={("hyperparams", "num_timesteps"): ("total_timesteps",), ("hyperparams", "seed"): ("seed",)},
    hyperparams=RLLIB_KEYS,
    sizes=SB3.sizes | {
        "num_envs_per_env_runner", "train_batch_size", "train_batch_size_per_learner", "minibatch_size", "num_epochs",
        "num_sgd_iter", "n_step",
    },
    counts={**SB3.counts, "num_env_runners": 0, "num_learners": 0, "evaluation_num_env_runners": 0},
    free=SB3.free | {
        "rollout_fragment_length", "replay_buffer_config", "batch_mode", "framework", "fcnet_hiddens", "epsilon",
    },
)  # fmt: skip
