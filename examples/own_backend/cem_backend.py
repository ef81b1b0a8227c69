"""A whole legroom backend: the cross-entropy method, in NumPy, on environments with numbers in and a choice out.

Each iteration draws linear policies, plays an episode with each, and moves towards the best. Policies and what their
episodes observe take the memory; with `chunk`, only so many are held at a time, to the same result.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

import legroom.extend as lg

FLOAT64 = 8
DEFAULTS = {"population": 32, "elite": 8, "steps": 200, "sigma": 1.0, "chunk": None}


def smaller_chunks(run: lg.Run, evidence: lg.Evidence) -> Iterator[lg.Run]:
    size = lg.hyper(run, "chunk") or lg.hyper(run, "population")
    while size > 1:
        size = -(-size // 2)
        yield lg.with_settings(run, hyperparams={"chunk": size})


class CemPredictor(lg.BackendPredictor):
    def constraints(self, run: lg.Run) -> Iterable[lg.Finding]:
        if lg.hyper(run, "elite") > lg.hyper(run, "population"):
            hint = f"elite: {lg.hyper(run, 'population')}"
            yield lg.Finding("CEM01", "elite-exceeds-population", "error", "elite is larger than the population", hint)

    def footprint(self, run: lg.Run, evidence: lg.Evidence) -> lg.Footprint:
        observation, action = lg.spaces_of(run)
        held, steps = lg.hyper(run, "chunk") or lg.hyper(run, "population"), lg.hyper(run, "steps")
        numbers = math.prod(observation.shape) * action.n
        seen = held * steps * math.prod(observation.shape) * FLOAT64
        items = (
            lg.Item("runtime", 60_000_000, lg.Place.HOST, "Python, NumPy and gymnasium", error=20_000_000),
            lg.Item("population", held * numbers * FLOAT64, lg.Place.HOST, f"{held:,} policies of {numbers:,} numbers"),
            lg.Item("episodes", seen, lg.Place.HOST, f"{held:,} episodes of {steps:,} observations"),
        )
        return lg.footprint_of(run, evidence, items)


class CemFitter(lg.BackendFitter):
    knobs = (lg.Knob("hyperparams.chunk", "slower", "bits", "so many policies are held at a time", smaller_chunks),)


class CemLearner(lg.Learner):
    def __init__(self, task: lg.TrainTask) -> None:
        import gymnasium

        self.settings, self.total_timesteps, self.timesteps = task.run, task.total_timesteps, 0
        self.env = gymnasium.make(task.run.env.id, **task.run.env.kwargs)
        self.shape = (math.prod(self.env.observation_space.shape), int(self.env.action_space.n))
        self.iteration, self.mean, self.reward = 0, np.zeros(self.shape), -math.inf

    def step(self) -> Mapping[str, float]:
        size, chunk = lg.hyper(self.settings, "population"), lg.hyper(self.settings, "chunk")
        spread = lg.hyper(self.settings, "sigma") / math.sqrt(1 + self.iteration)
        returns: list[float] = []
        for first in range(0, size, chunk or size):
            policies = [self._draw(number, spread) for number in range(first, min(first + (chunk or size), size))]
            episodes = np.empty((len(policies), lg.hyper(self.settings, "steps"), self.shape[0]))
            returns += [self._play(policy, seen) for policy, seen in zip(policies, episodes, strict=True)]
        best = np.argsort(returns)[-lg.hyper(self.settings, "elite") :]
        drawn = [self._draw(int(number), spread) for number in best]
        self.mean, self.reward, self.iteration = np.mean(drawn, axis=0), float(np.mean(returns)), self.iteration + 1
        return {"reward": self.reward, "spread": spread}

    def _draw(self, number: int, spread: float) -> np.ndarray:
        seed = [self.settings.seed or 0, self.iteration, number]  # of its own: chunks of any size draw the same
        return self.mean + spread * np.random.default_rng(seed).normal(size=self.shape)

    def _play(self, policy: np.ndarray, seen: np.ndarray) -> float:
        observation, total = self.env.reset(seed=self.iteration)[0], 0.0
        for at in range(len(seen)):
            seen[at] = np.ravel(observation)
            observation, reward, terminated, truncated, _ = self.env.step(int(np.argmax(seen[at] @ policy)))
            total, self.timesteps = total + float(reward), self.timesteps + 1
            if terminated or truncated:
                break
        return total

    def capture(self, previous: lg.SavedState | None) -> lg.State:
        return lg.State({"policy/mean": self.mean}, {"iteration": self.iteration, "timesteps": self.timesteps})

    def restore(self, checkpoint: lg.SavedState) -> str:
        self.mean = checkpoint.tensors("policy")["mean"]
        self.iteration, self.timesteps = checkpoint.data["iteration"], checkpoint.data["timesteps"]
        return ""

    def status(self) -> lg.Status:
        return lg.Status(reward_mean=self.reward if self.iteration else None)

    def learned(self, *, finished: bool) -> lg.Learned:
        return lg.Learned(hashlib.sha256(self.mean.tobytes()).hexdigest(), score={"reward": self.reward})

    def close(self) -> None:
        self.env.close()


class CemTrainer(lg.BackendTrainer):
    def learner(self, task: lg.TrainTask, loop: lg.Loop) -> lg.Learner:
        return CemLearner(task)


BACKEND = lg.Backend(
    name="cem", title="CEM", algorithms=(lg.Algorithm("CEM", "cem", "cem_backend", "evolution", DEFAULTS),),
    packages=("gymnasium",), predictor=CemPredictor(), fitter=CemFitter(), trainer=CemTrainer(),
)  # fmt: skip
