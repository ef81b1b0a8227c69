"""A reward of NaN ends a training with its story; what was learned before it is kept, and gone on from."""

import gymnasium as gym
import numpy as np
import pytest

from legroom.errors import EXIT_GOOD, EXIT_TRAINING_FAILED
from legroom.model.learner import TrainTask
from legroom.model.run import Run
from legroom.training import child
from legroom.training.checkpoint import Checkpoints

AT = 255
ENV = f"{__name__}:Spoiled"


class Spoiled(gym.Env):
    """Gives a reward or an observation of NaN from a step on."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, what: str = "") -> None:
        self.what, self.steps = what, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        spoiled = np.nan if self.steps >= AT else 0.5
        seen = np.full(3, spoiled if self.what == "observation" else 0.5, np.float32)
        return seen, spoiled if self.what == "reward" else 1.0, self.steps % 20 == 0, False, {}


class Events(list):
    def send(self, event, **fields):
        self.append({"event": event, **fields})


@pytest.fixture
def signals_as_before():
    import signal

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def train(out, algo, what, **task):
    settings = dict(learning_starts=20, buffer_size=600) if algo == "DQN" else dict(n_steps=40, batch_size=40)
    run = dict(algo=algo, env=dict(id=ENV, kwargs=dict(what=what)), hyperparams=settings, seed=1, total_timesteps=400)
    events = Events()
    out.mkdir(exist_ok=True)
    task = TrainTask(Run.model_validate(run), str(out), "cpu", 400, -1, checkpoint_every=40, **task)
    return child.TrainingLoop(task, events).train(), events  # type: ignore[arg-type]


@pytest.mark.usefixtures("signals_as_before")
@pytest.mark.parametrize("algo", ["PPO", "DQN"])
@pytest.mark.parametrize("what", ["reward", "observation"])
def test_nan_ends_a_training_before_it_is_kept(tmp_path, algo, what):
    code, events = train(tmp_path / "run", algo, what)
    assert code == EXIT_TRAINING_FAILED
    story = next(each["message"] for each in events if each["event"] == "failed")
    seen = "environment 0 gave the reward nan" if what == "reward" else "environment 0 gave an observation"
    assert seen in story and f"at step {AT}" in story
    good = Checkpoints(tmp_path / "run").all()
    assert good and all(checkpoint.step <= AT for checkpoint in good)
    for checkpoint in good:
        assert all(np.isfinite(array).all() for array in checkpoint.tensors("policy").values())
    code, events = train(tmp_path / "run", algo, "", resume=True)
    assert code == EXIT_GOOD
    assert events[0]["resumed_from"] == good[-1].step
