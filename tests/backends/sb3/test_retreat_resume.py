"""If this fails, a training that retreated and was resumed applies its schedule of micro-batches to other updates."""

import pytest
import torch
from microbatch_cases import parameters
from resume_envs import envs
from stable_baselines3 import DQN, PPO

from legroom.backends.sb3.state import capture, continue_learning, restore
from legroom.backends.sb3.updates import in_pieces
from legroom.training.checkpoint import Checkpoints

ON = dict(n_steps=32, batch_size=16, n_epochs=3)
OFF = dict(buffer_size=300, learning_starts=40, batch_size=16, train_freq=4, gradient_steps=2)
STOPPING = ON | dict(target_kl=2e-3, learning_rate=3e-3)  # how many minibatches a rollout has is not known before


@pytest.mark.parametrize(
    ("algorithm", "settings", "schedule"),
    [(PPO, ON, [[0, 16], [17, 5]]), (PPO, STOPPING, [[0, 16], [9, 5], [14, 3]]), (DQN, OFF, [[0, 16], [27, 5]])],
    ids=["ppo", "early stopping", "dqn"],
)
def test_a_resumed_schedule_goes_on_where_it_was(tmp_path, algorithm, settings, schedule):
    torch.set_num_threads(1)
    seen = []

    def make():
        model = algorithm("MlpPolicy", envs(), seed=3, device="cpu", policy_kwargs=dict(net_arch=[16]), **settings)
        update = in_pieces(model, schedule)
        add_gradients = update.add_gradients
        update.add_gradients = lambda *arguments: seen.append(arguments[-1]) or add_gradients(*arguments)
        return model

    model, checkpoints, written = make(), Checkpoints(tmp_path), []
    collect = model.collect_rollouts

    def collect_rollouts(*arguments, **more):
        if model.num_timesteps >= 64 and not written:
            state = capture(model)
            checkpoints.write(model.num_timesteps, state.tensors, state.data, link=state.link, files=state.files)
            written.append(len(seen))
        return collect(*arguments, **more)

    model.collect_rollouts = collect_rollouts
    continue_learning(model, 256)
    whole = seen[:]
    assert {size for _, size in schedule} <= set(whole)
    seen.clear()
    resumed = make()
    restore(resumed, checkpoints.latest())
    continue_learning(resumed, 256)
    assert seen == whole[written[0] :]
    assert torch.equal(parameters(model), parameters(resumed))
