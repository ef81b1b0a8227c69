"""How long a brax training is and when it evaluates, counted by hand; and its keys, which are brax's."""

import jax
import pytest

from legroom.backends.brax.schedule import first_keys, next_keys, schedule_of
from legroom.model.run import Run


def run(total=100_000, seed=3, **hyperparams):
    given = {"batch_size": 128, "unroll_length": 10, "num_minibatches": 4, "episode_length": 1000} | hyperparams
    env = {"id": "ant", "n_envs": 256}
    return Run.model_validate(
        dict(backend="brax", algo="PPO", env=env, hyperparams=given, total_timesteps=total, seed=seed)
    )


def sac(total=100_000, **hyperparams):
    given = {"episode_length": 1000, "min_replay_size": 1000} | hyperparams
    data = dict(backend="brax", algo="SAC", env={"id": "ant", "n_envs": 64}, hyperparams=given, total_timesteps=total)
    return Run.model_validate(data)


@pytest.mark.parametrize(
    ("trained", "loop"),
    [
        # one epoch rounds up once: 100,000 / 5,120 = 19.53 steps
        (run(), {"env_steps_each": 5120, "training_steps": 20, "env_steps": 102_400}),
        # 10 evaluations are 9 epochs; 100,000 / (9 × 5,120) = 2.17, so 3 steps in each
        (run(num_evals=10), {"epochs": 9, "steps_per_epoch": 3, "env_steps": 138_240, "evaluate_every": 3}),
        # resets make epochs shorter
        (run(num_evals=3, num_resets_per_eval=2),
         {"epochs": 4, "steps_per_epoch": 5, "resets": True, "evaluate_every": 10}),
        (run(num_evals=10, run_evals=False), {"evaluate_every": None, "evaluate_last": False}),
        # 1,000 / 64 = 15.6, so 16 × 64 = 1,024 steps before the first update; 98,976 / 64 = 1,546.5 = 7 × 13 × 17 steps
        (sac(), {"prefill": 1024, "training_steps": 1547, "env_steps": 1024 + 1547 * 64, "steps_at_once": 91}),
        (sac(num_evals=3), {"evaluate_every": 9}),  # 774 = 9 × 86 steps in each of two epochs
    ],
)  # fmt: skip
def test_the_loop_is_that_of_brax(trained, loop):
    schedule = schedule_of(trained, 100_000)
    assert {name: getattr(schedule, name) for name in loop} == loop


@pytest.mark.parametrize(
    ("envs", "every", "expected"),
    [
        (64, None, 20),  # 64 × 1,000 steps are dear for a training of 100,000: the beginning and the end
        (1, None, 2),  # ten evaluations are 10,000 steps
        (64, 51_200, 10),
        (64, 100, 1),
    ],
)
def test_evaluations_are_as_many_as_is_not_too_dear(envs, every, expected):
    evaluated = run().model_copy(update={"eval": Run.model_validate(
        dict(algo="PPO", env={}, eval={"n_envs": envs, "every": every})).eval})  # fmt: skip
    assert schedule_of(evaluated, 100_000).evaluate_every == expected


def test_the_steps_of_an_epoch_hand_their_keys_on():
    keys = first_keys(run(), 1)
    following = next_keys(run(), keys, epoch_ends=False)
    assert following["step"].tolist() == jax.random.split(keys["step"][0], 3)[2:].tolist()
    assert following["epochs"].tolist() == keys["epochs"].tolist()
    assert next_keys(run(), keys, epoch_ends=True)["epochs"].tolist() != keys["epochs"].tolist()


def test_the_keys_of_sac_after_several_steps():
    keys = first_keys(sac(), 1)
    key = keys["step"][0]
    for _ in range(3):
        key = jax.random.split(key)[1]
    assert next_keys(sac(), keys, steps=3, epoch_ends=False)["step"].tolist() == [key.tolist()]


def test_the_largest_seed_has_keys():
    assert first_keys(run(seed=2**32 - 1), 1)["step"].shape == (1, 2)
