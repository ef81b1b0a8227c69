"""If these fail, `legroom train` says nothing of how good a policy is, or judges it on what it has never seen."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from legroom.backends.sb3.judging import score_of
from legroom.reading import read


class Dots(gymnasium.Env):
    """Four black pixels; who judges its policies is set by the tests."""

    observation_space = spaces.Box(0, 255, (2, 2, 1), np.uint8)
    action_space = spaces.Discrete(2)
    score = ""

    def reset(self, **options: Any) -> tuple[np.ndarray, dict]:
        return np.zeros((2, 2, 1), np.uint8), {}


class Policy:
    """Always takes the second action, and remembers the shape of what it saw."""

    ep_info_buffer = ({"r": 2.0, "l": 10}, {"r": 4.0, "l": 30})
    seen: tuple[int, ...] = ()

    def predict(self, observation: np.ndarray, deterministic: bool) -> tuple[int, None]:
        self.seen = observation.shape
        return 1, None


def plain_judge(act: Any, kwargs: dict, *, time_limit_s: float) -> dict[str, float]:
    return {"won": float(act(np.zeros((2, 2, 1), np.uint8), None))}


def stacking_judge(act: Any, kwargs: dict, *, frame_stack: int = 1, time_limit_s: float) -> dict[str, float]:
    return {"won": float(act(np.zeros((2, 2, frame_stack), np.uint8), None)), "frames": frame_stack}


def judged(judge: str, wrap: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[dict, Policy]:
    monkeypatch.setattr(Dots, "score", f"{__name__}:{judge}")
    policy, env = Policy(), wrap(DummyVecEnv([Dots]))
    run = read("gameboy:learn", overrides=options.pop("overrides", []))
    return score_of(run, policy, env, finished=options.get("finished", True)), policy  # type: ignore[arg-type]


def test_a_judge_that_stacks_frames_is_told_how_many_the_policy_sees(monkeypatch):
    score, policy = judged("stacking_judge", lambda env: VecFrameStack(env, 3), monkeypatch)
    assert score == {"episodes": 2, "reward_mean": 3.0, "length_mean": 20.0, "won": 1.0, "frames": 3}
    assert policy.seen == (2, 2, 3)


def test_without_stacking_either_judge_is_asked_as_it_is(monkeypatch):
    assert judged("stacking_judge", lambda env: env, monkeypatch)[0]["frames"] == 1
    assert judged("plain_judge", lambda env: env, monkeypatch)[0]["won"] == 1.0


@pytest.mark.parametrize(
    ("judge", "wrap", "options"),
    [
        ("plain_judge", lambda env: VecFrameStack(env, 3), {}),  # it would show the policy single frames
        ("stacking_judge", lambda env: VecFrameStack(VecNormalize(env), 3), {}),  # and numbers of another size
        ("stacking_judge", lambda env: env, {"overrides": [("env.wrappers", "[my.Wrapper]")]}),
        ("stacking_judge", lambda env: env, {"finished": False}),
    ],
)  # fmt: skip
def test_a_judge_that_would_show_something_else_is_not_asked(judge, wrap, options, monkeypatch):
    score, policy = judged(judge, wrap, monkeypatch, **options)
    assert set(score) == {"episodes", "reward_mean", "length_mean"} and policy.seen == ()
