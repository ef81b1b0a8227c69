"""What can be attached to a program that uses Stable-Baselines3, or a buffer with its interface; the prices are those
of the knobs."""

from legroom.backends.sb3.knobs import SB3_KNOBS
from legroom.model.plan import Price
from legroom.model.program_plan import Attachment

_BUFFERS = "legroom.backends.sb3.attaching"
_WORKERS = "legroom.backends.sb3.attaching"
_TRAIN = "legroom.backends.sb3.attaching_updates"
_PRICES: dict[str, Price] = {knob.key: knob.unprobed_price for knob in SB3_KNOBS}
_UPDATES = {
    "stable_baselines3.ppo.ppo": f"{_TRAIN}:on_ppo",
    "stable_baselines3.a2c.a2c": f"{_TRAIN}:on_a2c",
    "stable_baselines3.dqn.dqn": f"{_TRAIN}:on_dqn",
    "sb3_contrib.ppo_mask.ppo_mask": f"{_TRAIN}:on_maskable_ppo",
    "stable_baselines3.common.base_class": f"{_TRAIN}:on_base_class",
}
ATTACHMENTS = (
    Attachment(
        "lean", _PRICES["memory.rollout"], "rollouts and replay stored losslessly in less memory",
        hooks={
            "stable_baselines3.common.buffers": f"{_BUFFERS}:on_buffers",
            "sb3_contrib.common.maskable.buffers": f"{_BUFFERS}:on_maskable_buffers",
            "stable_baselines3.common.save_util": f"{_BUFFERS}:on_save_util",
            "cleanrl_utils.buffers": f"{_BUFFERS}:on_own_buffers",
        },
    ),
    Attachment(
        "workers", _PRICES["env.workers"], "worker processes without torch in place of SubprocVecEnv's",
        hooks={"stable_baselines3.common.vec_env.subproc_vec_env": f"{_WORKERS}:on_subproc_vec_env"},
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
