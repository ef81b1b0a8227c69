"""Training brax runs in this process: the numbers are brax's own, interrupted or not."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from brax.envs.base import State
from brax.training.agents.ppo import train as ppo
from brax.training.agents.sac import train as sac

from legroom.backends.brax import schedule
from legroom.backends.brax.capture import train_arguments
from legroom.backends.brax.envs import FINISHED, Episodes, counting_episodes, make_training_env
from legroom.backends.brax.preparing import begin_envs
from legroom.backends.brax.state import export_brax
from legroom.errors import EXIT_BAD_INPUT, EXIT_GOOD, EXIT_INTERRUPTED, EXIT_TRAINING_FAILED, BadInput
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.training.arrays import parameters_sha256, read_safetensors
from legroom.training.checkpoint import Checkpoints
from legroom.training.child import TrainingLoop
from legroom.training.progress_log import read_progress

EACH = 8 * 5 * 4  # environment steps of one training step


def run(envs=16, **more):
    hyperparams = dict(
        batch_size=8, unroll_length=5, num_minibatches=4, num_updates_per_batch=2, episode_length=20,
        normalize_observations=True, num_evals=3, num_resets_per_eval=2,
    )  # fmt: skip
    return Run.model_validate(dict(
        backend="brax", algo="PPO", name="point", seed=3, total_timesteps=8 * EACH,
        env=dict(id="brax_toys:Point", n_envs=envs), eval=dict(n_envs=8), hyperparams=hyperparams,
        policy=dict(kwargs=dict(policy_hidden_layer_sizes=[8], value_hidden_layer_sizes=[8])), **more,
    ))  # fmt: skip


class Events:
    """Keeps what is told; `stop_at` sends the signal of Ctrl-C when that many steps are made."""

    def __init__(self, stop_at=None):
        self.told, self.stop_at = [], stop_at

    def send(self, event, **fields):
        self.told.append({"event": event, **fields})
        if event == "progress" and self.stop_at is not None and fields["timesteps"] >= self.stop_at:
            self.stop_at = None
            os.kill(os.getpid(), signal.SIGINT)

    def of(self, event):
        return [each for each in self.told if each["event"] == event]


def train(out, events, *, resume=False, trained=None, **task):
    out.mkdir(exist_ok=True)
    trained = trained or run()
    told = TrainTask(
        trained, str(out), "cpu", trained.total_timesteps, -1, resume=resume, **{"checkpoint_every": 1, **task}
    )
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    try:
        return TrainingLoop(told, events).train()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def cache(xla_cache):
    """Compiled programs are shared by the trainings of all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(xla_cache))
        patch.syspath_prepend(Path(__file__).parent)
        jax.config.update("jax_compilation_cache_dir", str(xla_cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_disable_most_optimizations", True)  # compiling is what takes the time here
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A training that was stopped by Ctrl-C after three steps of eight, and one that went on from there."""
    out, first, second = tmp_path_factory.mktemp("brax") / "run", Events(stop_at=3 * EACH), Events()
    assert train(out, first) == EXIT_INTERRUPTED
    assert train(out, second, resume=True) == EXIT_GOOD
    return out, first, second


def test_stopped_and_resumed_it_is_what_brax_trains(interrupted):
    _, first, second = interrupted
    (stopped,), (ended,) = first.of("ended"), second.of("ended")
    assert (stopped["status"], stopped["step"], stopped["exact"]) == ("stopped", 3 * EACH, True)
    assert second.of("started")[0]["resumed_from"] == 3 * EACH
    seen = {}
    arguments = train_arguments(run(), make_training_env(run()))
    _, params, _ = ppo.train(**arguments, progress_fn=lambda step, metrics: seen.setdefault(int(step), metrics))
    leaves = {f"{at:03d}": np.asarray(leaf) for at, leaf in enumerate(jax.tree.leaves(params[1:]))}
    assert ended["step"] == 8 * EACH == max(seen)
    assert ended["parameters_sha256"] == parameters_sha256(leaves)
    evaluated = first.of("evaluated")[0]
    assert (evaluated["step"], evaluated["mean"]) == (0, pytest.approx(float(seen[0]["eval/episode_reward"]), rel=1e-6))


def test_a_training_tells_what_it_does(interrupted):
    out, first, second = interrupted
    said = [each["text"] for each in second.of("say")]
    assert any("compiled in" in text for text in said)
    assert [each["step"] // EACH for each in (*first.of("evaluated"), *second.of("evaluated"))] == [0, 4, 8]
    rows = [row for row in read_progress(out / "progress.csv") if row.steps_per_s == row.steps_per_s]
    assert [row.timesteps // EACH for row in rows] == list(range(1, 9))
    last = rows[-1]
    assert 1 <= last.episode_length_mean <= 20
    assert second.of("ended")[0]["score"]["length_mean"] == pytest.approx(last.episode_length_mean)


@pytest.mark.slow
def test_a_reward_of_nan_ends_it_before_it_is_kept(tmp_path):
    """An iteration has 10 steps of each environment, an episode 20: the 12th step is in the second one."""
    events, whole = Events(), run()
    spoiled = whole.replace(env=whole.env.model_copy(update={"kwargs": {"nan_at": 12}}))
    assert train(tmp_path, events, trained=spoiled) == EXIT_TRAINING_FAILED
    (failed,) = events.of("failed")
    assert (failed["step"], failed["cause"]) == (2 * EACH, "not-finite")
    assert failed["message"].startswith("not finite: ") and "NaN" in failed["message"]
    good = Checkpoints(tmp_path).all()
    assert [checkpoint.step for checkpoint in good] == [0, EACH]
    for checkpoint in good:
        assert all(np.isfinite(array).all() for array in checkpoint.tensors("policy").values())
    assert train(tmp_path, Events(), resume=True) == EXIT_GOOD  # with another environment


def test_the_policy_is_exported_as_it_is_in_the_checkpoint(interrupted, tmp_path):
    export_brax(interrupted[0], tmp_path / "policy.safetensors")
    tensors = read_safetensors(tmp_path / "policy.safetensors")
    assert tensors["params/policy/params/hidden_0/kernel"].shape == (2, 8)
    with pytest.raises(BadInput, match=r"name it POLICY\.safetensors"):
        export_brax(interrupted[0], tmp_path / "model.zip")


def test_environments_that_begin_anew_have_the_shapes_of_the_run():
    env = counting_episodes(None)(make_training_env(run()).env, episode_length=20, action_repeat=1)
    captured = SimpleNamespace(run=run(envs=6), env=env, devices=1)
    one, other = (begin_envs(captured, salt) for salt in (1, 2))
    assert one.obs.shape == (1, 6, 2)
    assert one.obs.tolist() != other.obs.tolist()


def test_episodes_are_counted_when_they_end():
    counts = {"episodes": np.array([[2.0, 0.0]]), "reward": np.array([[9.0, 0.0]]), "length": np.array([[30.0, 0.0]])}
    state = State(None, None, None, None, {}, {FINISHED: counts, "command": 1})
    episodes = Episodes()
    after = episodes.take(state)
    assert (episodes.count, episodes.reward_mean, episodes.length_mean) == (2, 4.5, 15)
    assert float(after.info[FINISHED]["reward"].sum()) == 0
    assert after.info["command"] == 1
    assert Episodes(episodes.sums).length_mean == 15


SAC_EACH = 16  # environment steps of one training step
FILLED = 64  # and of filling the replay buffer


def sac_run(**more):
    hyperparams = dict(
        batch_size=8, min_replay_size=50, max_replay_size=200, grad_updates_per_step=2, episode_length=20,
        normalize_observations=True, num_evals=3,
    )  # fmt: skip
    return Run.model_validate(dict(
        backend="brax", algo="SAC", name="point", seed=3, total_timesteps=FILLED + 24 * SAC_EACH,
        env=dict(id="brax_toys:Point", n_envs=16), eval=dict(n_envs=8), hyperparams=hyperparams | more,
        policy=dict(kwargs=dict(hidden_layer_sizes=[8])),
    ))  # fmt: skip


@pytest.mark.slow
def test_sac_stopped_and_resumed_is_what_brax_trains(tmp_path, monkeypatch):
    """Two epochs of 12 training steps, 4 at a time; the buffer of 200 is full on the way and moved."""
    monkeypatch.setattr(schedule, "MOST_STEPS_AT_ONCE", 5)
    first, second, trained = Events(stop_at=FILLED + 8 * SAC_EACH), Events(), sac_run()
    assert train(tmp_path / "run", first, trained=trained) == EXIT_INTERRUPTED
    assert first.of("ended")[0]["step"] == FILLED + 8 * SAC_EACH
    assert train(tmp_path / "run", second, trained=trained, resume=True) == EXIT_GOOD
    (ended,) = second.of("ended")
    assert second.of("started")[0]["resumed_from"] == FILLED + 8 * SAC_EACH
    seen = {}
    arguments = train_arguments(trained, make_training_env(trained))
    _, params, _ = sac.train(**arguments, progress_fn=lambda step, metrics: seen.setdefault(int(step), metrics))
    assert ended["step"] == max(seen) == FILLED + 24 * SAC_EACH
    assert ended["exact"] is True
    policy = Checkpoints(tmp_path / "run").latest().tensors("policy")
    ours = [array for name, array in sorted(policy.items()) if name.startswith("params/policy/")]
    theirs = [np.asarray(leaf) for leaf in jax.tree.leaves(params[1])]
    assert [each.tobytes() for each in ours] == [each.tobytes() for each in theirs]
    assert {"params/alpha", "params/q/params/MLP_0/hidden_0/kernel"} <= set(policy)
    assert ended["items"]["replay"] > 200 * 4 * (2 + 2 + 2 + 1 + 1 + 1)  # observations, action, three numbers


@pytest.mark.slow
def test_another_replay_buffer_is_refused(tmp_path):
    assert train(tmp_path, Events(stop_at=1), trained=sac_run()) == EXIT_INTERRUPTED
    events = Events()
    assert train(tmp_path, events, trained=sac_run(max_replay_size=300), resume=True) == EXIT_BAD_INPUT
    assert "replay" in events.of("refused")[0]["message"]
