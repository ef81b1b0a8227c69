"""Trace a run's networks and updates: the device memory SB3 would ask for, in order, without a device.

The run's own algorithm (built by `sb3_build`) collects a few steps and makes a few updates on storages without bytes,
followed by the same engine as a program (`hollow/dispatching.py`), which writes down every request and release. The
caching allocator's state is shaped by what came before, so the order is the library's: move the policy, collect,
update, collect, update. Of loops that repeat the same requests (steps of a rollout, minibatches, epochs, iterations)
three rounds are traced and the others copied, in a number that leaves the allocator where the full number would
(`event_chunks`).

Mirrors the `learn` methods of stable-baselines3 2.9 (on_policy_algorithm.py, off_policy_algorithm.py).
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import getfile
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.type_aliases import TrainFreq, TrainFrequencyUnit
from torch.distributions import Distribution
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from legroom import DoubleDQN
from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3 import minibatches, updates
from legroom.backends.sb3.building import build_model, importable, own_line, stub_env
from legroom.backends.sb3.judging import untouched_randomness
from legroom.backends.sb3.stored import batch_samples, pass_samples
from legroom.device import exact_pieces
from legroom.device.event_chunks import repeat, shorten
from legroom.errors import Untraceable
from legroom.hollow.assumed_values import RunReads
from legroom.hollow.card_autocast import autocast_as_on_card
from legroom.hollow.card_operators import join_weights, operators_as_on_card
from legroom.hollow.compiling import run_uncompiled
from legroom.hollow.cuda_reduce import GpuShape, card_with
from legroom.hollow.dispatching import Follower
from legroom.hollow.fake_tensors import DEVICE, foreach_as_on_cuda
from legroom.hollow.journal import Requests, Rounds, ValueRefused
from legroom.hollow.scratch_uncertainty import BFLOAT16
from legroom.hollow.second_order import in_thread_of_card
from legroom.model.evidence import Event, NetTrace, Values
from legroom.model.footprint import Phase
from legroom.model.run import Run

_LIBRARIES = tuple(str(Path(module.__file__ or "").parent) for module in (stable_baselines3, sb3_contrib))
# of their updates: what those ask for, these do
_MIRRORS = (
    *(str(Path(module.__file__ or "")) for module in (minibatches, updates, exact_pieces)),
    str(Path(getfile(DoubleDQN)).parent),
)

TRACED = 3  # rounds of a loop that are traced; the first may set things up, the third must repeat the second
TRACED_PARTS = TRACED + 1  # the first makes the gradients, which outlive the others
MAX_EVENTS = 200_000  # replayed in about half a second; beyond it fewer iterations are repeated
ENDLESS = 10**9  # total_timesteps of a run that does not say
EPISODE_STEPS = 100  # of a run that trains per episode and does not say how long one is


def trace_run(
    run: Run, device: Literal["cpu", "cuda"], *, card: GpuShape | None = None, validate_args: bool | None = None,
    values: Values = "refuse",
) -> NetTrace:  # fmt: skip
    """Return the memory of the run's networks, optimizer and updates on `device`.

    Args:
        card: whose kernels and workspaces are followed; None: an RTX 4090's.
        validate_args: whether torch.distributions checks its arguments; None: as it is set in this process (by
            default it does).
        values: what code gets that reads a value: nothing, an answer that is written down, or what a CPU computes.

    Raises:
        Untraceable: the policy or update cannot be followed; the reason is the message.
    """
    card = card or card_with(None, None)
    on_cuda = device == "cuda"
    follower = Follower.of_run(card if on_cuda else None, RunReads(values, (*_LIBRARIES, *_MIRRORS)))
    checks = Distribution._validate_args
    with ExitStack() as stack:
        stack.enter_context(importable(run))
        stack.enter_context(untouched_randomness())
        random.seed(0)  # a policy of the user's own may draw what it does: the same question gets the same answer
        np.random.seed(0)
        if not on_cuda:
            stack.enter_context(autocast_as_on_card({}, "cpu"))
        else:
            stack.enter_context(autocast_as_on_card(stack.enter_context(operators_as_on_card(card))))
            stack.enter_context(foreach_as_on_cuda())
            stack.callback(in_thread_of_card(follower))
        compiled: list[bool] = []
        stack.enter_context(run_uncompiled(lambda: compiled.append(True)))
        Distribution.set_default_validate_args(checks if validate_args is None else validate_args)
        stack.callback(Distribution.set_default_validate_args, checks)
        try:
            found = _Tracer(run, follower, device).trace()
            return found if not compiled else replace(found, unmodelled=dict(found.unmodelled) | _compiled(found))
        except Untraceable:
            raise
        except ValueRefused as refused:
            raise Untraceable(str(refused), way=refused.way) from refused
        except Exception as wrong:  # user code on tensors without data raises anything; the caller falls back
            if said := own_line(wrong):
                raise Untraceable(said) from wrong
            reason = f"{type(wrong).__name__}: {wrong}".strip().splitlines()[0]
            raise Untraceable(f"the update cannot be followed on tensors without data ({reason})") from wrong


def _compiled(net: NetTrace) -> dict[str, int]:
    """Return by how much Inductor's code may differ from the operators it was made of, which are what was followed.

    It plans its own buffers: at most all that an update holds for a moment comes or goes. And it measures its kernels
    with an emptied cache, which takes a buffer as large as the card's L2 cache (128 MiB is more than any has).
    """
    held = max((sum(each.values()) for each in net.transient.values()), default=0)
    return {"torch.compile: code that Inductor generates": held + (128 << 20 if net.device == "cuda" else 0)}


class _Tracer:
    """One trace; `marks` are (event index, what starts there), `copies` how often what is repeated."""

    def __init__(self, run: Run, follower: Follower, device: Literal["cpu", "cuda"]) -> None:
        self.run, self.follower, self.device = run, follower, device
        self.requests: Requests = follower.journal
        self.reads: RunReads = follower.reads
        self.family = algorithm_of(run).family
        self.marks: list[tuple[int, str]] = []
        self.copies = {"step": 0, "part": 0, "rest part": 0, "batch": 0, "epoch": 0, "iteration": 0}
        self.batch_size = 0
        self.micro_batch = pass_samples(run) if pass_samples(run) < batch_samples(run) else None

    def trace(self) -> NetTrace:
        follower = self.follower
        with follower.entered():
            with torch.device(DEVICE), _moves(follower):
                model: Any = build_model(
                    self.run,
                    DEVICE,
                    plan=self._minibatches,
                    parts=self._parts,
                    on_step=lambda: self._mark("step"),
                )
            follower.recording = True
            labels = _Labels(follower, model)
            try:
                self._learn(model)
            finally:
                labels.remove()
            follower.recording = False
        return self._summary(model, labels)

    def _mark(self, name: str) -> None:
        self.follower.give_back()
        self.marks.append((len(self.requests.events), name))

    # -- the run, shortened --------------------------------------------------------------------------------------

    def _learn(self, model: Any) -> None:
        total = self.run.total_timesteps or ENDLESS
        model.set_logger(Logger(folder=None, output_formats=[]))
        self.evaluating = _Evaluating(self.run)
        _, callback = model._setup_learn(total, callback=self.evaluating)
        if self.family == "on-policy":
            self._learn_on_policy(model, callback, total)
        else:
            self._learn_off_policy(model, callback, total)
        self._mark("end")

    def _learn_on_policy(self, model: Any, callback: Any, total: int) -> None:
        steps = int(model.n_steps)
        iterations = -(-total // (steps * self.run.env.n_envs))
        traced = min(steps, TRACED + 1)  # rounds lie between steps
        self.copies["step"] = shorten(steps, 60) - traced
        self.copies["iteration"] = shorten(iterations, 24) - min(iterations, TRACED)
        self._shorten_epochs(model)
        for number in range(min(iterations, TRACED)):
            self._mark("iteration")
            self.evaluating.plan(traced, number, iterations, steps * self.run.env.n_envs)
            model.collect_rollouts(model.env, callback, model.rollout_buffer, n_rollout_steps=traced)
            self._mark("update")
            model._update_current_progress_remaining(model.num_timesteps, total)
            model.train()
            self._mark("trained")
        self._mark("rounds end")

    def _shorten_epochs(self, model: Any) -> None:
        """Decide how many minibatches and epochs are traced, and how many copied."""
        epochs = int(getattr(model, "n_epochs", 1))
        self.batch_size = int(getattr(model, "batch_size", 0) or 0)
        full, rest = self._minibatch_counts(self.batch_size)
        parts = self._shorten_parts(batch_samples(self.run), rest)
        if rest == 0 and self.run.algo_class is None:
            # epoch after epoch of equal minibatches is one long epoch; a user's subclass may go through them as well
            self.copies["batch"] = shorten(full * epochs, max(24 // parts, 4)) - min(full * epochs, TRACED)
            self._full = min(full * epochs, TRACED)
            if hasattr(model, "n_epochs"):
                model.n_epochs = 1
        else:
            self.copies["batch"] = shorten(full, 6) - min(full, TRACED)
            self.copies["epoch"] = shorten(epochs, 6) - min(epochs, TRACED)
            self._full = min(full, TRACED)
            if hasattr(model, "n_epochs"):
                model.n_epochs = min(epochs, TRACED)

    def _shorten_parts(self, batch: int, rest: int = 0) -> int:
        """Decide how many micro-batches are copied, in full minibatches and the rest; return those of a full one."""
        if self.micro_batch is None:
            return 1
        for name, size in (("part", batch), ("rest part", rest)):
            parts = size // self.micro_batch
            self.copies[name] = shorten(parts, 4) - min(parts, TRACED_PARTS)
        return shorten(batch // self.micro_batch, 4)

    def _parts(self, size: int) -> Iterable[int]:
        """Yield the sizes of the micro-batches that are traced of a minibatch, like `_minibatches`."""
        assert self.micro_batch is not None
        full, rest = divmod(size, self.micro_batch)
        for _ in range(min(full, TRACED_PARTS)):
            self._mark("part")
            yield self.micro_batch
        self._mark("parts end")
        if rest:
            yield rest

    def _minibatch_counts(self, batch_size: int) -> tuple[int, int]:
        total = int(hyper(self.run, "n_steps")) * self.run.env.n_envs
        return divmod(total, batch_size or total)

    def _minibatches(self, batch_size: int) -> Iterable[int]:
        if self.family == "off-policy":
            self._mark("batch")
            yield batch_size
            return
        total = int(hyper(self.run, "n_steps")) * self.run.env.n_envs
        if not batch_size and self.batch_size:  # TRPO's actor learns from all at once, before its critic does in parts
            yield total
            return
        _, rest = self._minibatch_counts(batch_size)
        self._mark("epoch")
        for _ in range(self._full):
            self._mark("batch")
            yield min(batch_size or total, total)
        self._mark("rest")
        if rest:
            yield rest
        self._mark("epoch end")

    def _learn_off_policy(self, model: Any, callback: Any, total: int) -> None:
        n_envs = self.run.env.n_envs
        frequency, gradient_steps = self._train_frequency(model)
        self._shorten_parts(int(model.batch_size))
        per_loop = frequency * n_envs
        loops_before = model.learning_starts // per_loop  # no update happens in these
        loops = max(0, -(-total // per_loop) - loops_before)
        steps = shorten(frequency, 12)
        model.train_freq = TrainFreq(steps, TrainFrequencyUnit.STEP)
        # Delayed policy updates make every second (third) loop different: so many loops are one round.
        per_round = 1
        if gradient_steps:
            delay = int(getattr(model, "policy_delay", 1))
            per_round = delay // math.gcd(delay, gradient_steps)
        rounds = loops // per_round
        self.copies["iteration"] = shorten(rounds, 24) - min(rounds, TRACED)
        numbers = [*range(min(rounds, TRACED) * per_round), *range(loops - loops % per_round, loops)]
        for number in numbers:
            if number == rounds * per_round:
                self._mark("rounds end")
            self._mark("iteration" if number % per_round == 0 and number < rounds * per_round else "loop")
            model.num_timesteps = (loops_before + number) * per_loop
            model._update_current_progress_remaining(model.num_timesteps, total)
            self._settle_exploration(model, frequency, first=number == 0)
            model.num_timesteps += (frequency - steps) * n_envs
            self.evaluating.plan(steps, number, loops, per_loop, before=loops_before)
            model.collect_rollouts(
                model.env,
                train_freq=model.train_freq,
                action_noise=model.action_noise,
                callback=callback,
                learning_starts=model.learning_starts,
                replay_buffer=model.replay_buffer,
                log_interval=None,
            )
            self._mark("update")
            if gradient_steps and model.num_timesteps > model.learning_starts:
                model.train(batch_size=model.batch_size, gradient_steps=shorten(gradient_steps, 4))
        if loops % per_round == 0:
            self._mark("rounds end")

    def _train_frequency(self, model: Any) -> tuple[int, int]:
        """Return the steps per environment between updates, and the gradient steps of an update."""
        model._convert_train_freq()
        frequency = int(model.train_freq.frequency)
        if model.train_freq.unit == TrainFrequencyUnit.EPISODE:
            frequency *= self.run.env.episode_steps or EPISODE_STEPS
        gradient_steps = int(model.gradient_steps)
        return frequency, frequency * self.run.env.n_envs if gradient_steps < 0 else gradient_steps

    @staticmethod
    def _settle_exploration(model: Any, frequency: int, *, first: bool) -> None:
        """Replace the coin that decides between a random and a predicted action by its likelier side.

        It matters once: cuBLAS takes its workspace at the first prediction or the first update, whichever comes first.
        """
        if not hasattr(model, "exploration_schedule"):
            return
        schedule = model.exploration_schedule
        always_random = first and schedule(model._current_progress_remaining) ** frequency > 0.5
        model.exploration_rate = 1.1 if always_random else 0.0
        model._on_step = lambda: None  # would set the rate anew; target networks are updated in place

    # -- what came out -------------------------------------------------------------------------------------------

    def _summary(self, model: Any, labels: _Labels) -> NetTrace:
        found = self._expand()
        events, marks, names = found.events, found.marks, found.labels
        policy = model.policy
        weights = {t.untyped_storage()._cdata: t for t in (*policy.parameters(), *policy.buffers())}
        targets = {t.untyped_storage()._cdata: t for t in target_tensors(model)}
        return NetTrace(
            device=self.device,
            card=str(self.follower.cards[0].shape) if self.device == "cuda" else "",
            parameters=sum(p.numel() for p in policy.parameters()),
            weights=_nbytes(weights.values()),
            targets=_nbytes(targets.values()),
            gradients=labels.gradients,
            optimizer=labels.optimizer,
            transient=_transient(self.requests.events, [(0, "start"), *self.marks], self.requests.labels),
            events=tuple(events) if self.device == "cuda" else (),
            labels=names if self.device == "cuda" else {},
            rounds=found.rounds,
            phase_starts=tuple((position, _PHASES[name]) for position, name in marks if name in _PHASES),
            assumed=self.reads.assumed,
            # by which kernels bfloat16 is convolved is known of the card (`GpuShape.cudnn_bfloat16`)
            unmodelled={what: size for what, size in self.requests.doubts.items() if what != BFLOAT16},
            convolution=self.follower.libraries.convolution,
            convolution_axes=self.follower.libraries.convolution_axes,
            rnn_values=self.follower.libraries.rnn_values,
        )

    def _expand(self) -> _Sequence:
        """Return events, marks and labels with the untraced rounds of every loop copied in, inner loops first.

        Of the outermost loop, only as many as its rounds look back; the others are for the allocator to repeat.
        """
        sequence = _Sequence(list(self.requests.events), self.marks, dict(self.requests.labels))
        sequence.repeat_inside("batch", "parts end", "part", "parts end", self.copies["part"])
        if self.family == "on-policy":
            sequence.repeat_inside("rest", "parts end", "part", "parts end", self.copies["rest part"])
            sequence.repeat_inside("iteration", "update", "step", None, self.copies["step"])
            sequence.repeat_inside("epoch", "rest", "batch", "rest", self.copies["batch"])
            sequence.repeat_inside("update", "trained", "epoch", "epoch end", self.copies["epoch"])
        sequence.repeat_inside("start", "rounds end", "iteration", "rounds end", self.copies["iteration"], most=3)
        return sequence


class _Sequence:
    """Events with marks and labels, growing by copies."""

    def __init__(self, events: list[Event], marks: list[tuple[int, str]], labels: dict[int, str]) -> None:
        self.events, self.marks, self.labels = events, [(0, "start"), *marks], labels
        self.rounds: Rounds | None = None

    def repeat_inside(
        self, opening: str, closing: str, start: str, end: str | None, times: int, *, most: int | None = None
    ) -> None:
        """From every `opening` mark to the next `closing` one, repeat the last round of a loop `times` more.

        Rounds begin at `start` marks; the last `end` mark closes the last round (None: the last `start` mark does).

        Args:
            most: write out only so many copies, and note in `rounds` how many more there are.
        """
        if times <= 0:
            return
        spans, low = [], None
        for index, (_, name) in enumerate(self.marks):
            if name == closing and low is not None:
                spans.append((low, index))
                low = None
            if name == opening:
                low = index
        for low, high in reversed(spans):
            inside = self.marks[low : high + 1]
            borders = [position for position, name in inside if name == start]
            if end is not None:
                borders += [position for position, name in inside if name == end][-1:]
            if len(borders) >= 3:
                self._repeat(borders, times, times if most is None else most)

    def _repeat(self, borders: list[int], times: int, most: int) -> None:
        copies = min(times, most)
        done = repeat(self.events, borders, copies)
        if done is None:
            return
        events, origins = done
        if times > copies and origins:
            length, births = borders[-1] - borders[-2], len(origins) // copies
            end = borders[-1] + copies * length
            affordable = max(0, (MAX_EVENTS - end) // length)
            self.rounds = Rounds(end, length, births, min(origins), min(times - copies, affordable))
        grown = len(events) - len(self.events)
        self.events = events
        self.labels |= {copy: self.labels[origin] for copy, origin in origins.items()}
        self.marks = [(p + grown if p >= borders[-1] else p, name) for p, name in self.marks]


class _Labels:
    """Says what blocks are while the run goes on: weights, targets; then gradients and state at each optimizer step."""

    def __init__(self, follower: Follower, model: Any) -> None:
        self.follower = follower
        self.gradients = self.optimizer = 0
        self._gradients: dict[int, int] = {}
        self._states: dict[int, int] = {}
        for tensor in (*model.policy.parameters(), *model.policy.buffers()):
            follower.relabel(tensor, "weights")
        for tensor in target_tensors(model):
            follower.relabel(tensor, "targets")
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.follower.relabel(parameter.grad, "gradients")
                    self._gradients[id(parameter)] = parameter.grad.untyped_storage().nbytes()
        self.gradients = sum(self._gradients.values())

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor) and value.device == DEVICE:
                    self.follower.relabel(value, "optimizer")
                    self._states[value.untyped_storage()._cdata] = value.untyped_storage().nbytes()
        self.optimizer = sum(self._states.values())

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


class _Evaluating(BaseCallback):
    """Passes the observations of the evaluation environments through the policy, as SB3's EvalCallback does.

    It does so in a step of the environments, while what that step computed is alive. The last traced step of a rollout
    stands for any of them, and the second rollout (of three that are traced) for any later one.
    """

    PASSES = 3  # of one evaluation; they repeat the same requests

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run, self._steps_left = run, 0
        self._env: Any = None

    def plan(self, steps: int, rollout: int, rollouts: int, rollout_steps: int, before: int = 0) -> None:
        """Decide whether there is an evaluation in this rollout, of which so many `steps` are traced.

        Args:
            rollout: its number; `before` others went before that were not traced.
            rollouts: how many the run has.
            rollout_steps: of a whole one, all environments together.
        """
        self._steps_left = 0
        if self._run.eval is not None:
            every = self._run.eval.every or max((self._run.total_timesteps or 100_000) // 10, 1)
            first = max(0, -(-every // rollout_steps) - 1 - before)
            if first < rollouts and rollout >= min(first, 1):
                self._steps_left = steps

    def _on_step(self) -> bool:
        self._steps_left -= 1
        if self._steps_left == 0:
            self._evaluate()
        return True

    def _evaluate(self) -> None:
        assert self._run.eval is not None
        model: Any = self.model
        if self._env is None:
            self._env = model._wrap_env(stub_env(self._run, lambda: None, self._run.eval.n_envs), monitor_wrapper=False)
        masks = {"action_masks": get_action_masks(self._env)} if algorithm_of(self._run).masked else {}
        observations, states = self._env.reset(), None
        starts = np.ones(self._env.num_envs, dtype=bool)
        for _ in range(self.PASSES):
            _, states = model.predict(observations, state=states, episode_start=starts, deterministic=True, **masks)


_PHASES = {"start": Phase.START, "iteration": Phase.COLLECT, "loop": Phase.COLLECT, "update": Phase.UPDATE}
_LASTING = {"weights", "targets", "gradients", "optimizer", "workspace"}


def _transient(
    events: list[Event], marks: list[tuple[int, str]], labels: dict[int, str]
) -> dict[Phase, dict[str, int]]:
    """Return, per phase, what is alive by category when the most transient bytes are."""
    phase_at = {position: _PHASES[name] for position, name in marks if name in _PHASES}
    phase = Phase.START
    live: dict[str, int] = {}
    sizes: dict[int, int] = {}
    total = 0
    peaks: dict[Phase, tuple[int, dict[str, int]]] = {}
    for index, event in enumerate(events):
        phase = phase_at.get(index, phase)
        label = labels[event[1]]
        if label in _LASTING:
            continue
        if len(event) == 3:
            sizes[event[1]] = event[2]
            total += event[2]
            live[label] = live.get(label, 0) + event[2]
            if total > peaks.get(phase, (0, {}))[0]:
                peaks[phase] = (total, dict(live))
        else:
            total -= sizes[event[1]]
            live[label] -= sizes[event[1]]
    return {phase: {k: v for k, v in found.items() if v} for phase, (_, found) in peaks.items()}


def target_tensors(model: Any) -> Iterator[torch.Tensor]:
    """Yield the parameters and buffers of the model's target networks."""
    for name in ("q_net_target", "critic_target", "actor_target", "quantile_net_target"):
        module = getattr(model, name, None)
        if isinstance(module, torch.nn.Module):
            yield from module.parameters()
            yield from module.buffers()


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors)


@contextmanager
def _moves(follower: Follower) -> Iterator[None]:
    """While it lasts, `policy.to(device)` counts as the copy to the device that it is."""
    original = torch.nn.Module.to

    def to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        _, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        changes: dict[str, Any] = {"dtype": dtype, "memory_format": layout}
        changes = {name: value for name, value in changes.items() if value is not None}
        if changes:
            original(module, **changes)
        # Extractors, actors and critics are "moved" while they are built, from the host to the host: the algorithm's
        # own _setup_model is what moves the finished policy. Later moves are real: networks of a user's subclass.
        if not follower.recording and sys._getframe(1).f_code.co_name != "_setup_model":
            return module

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            follower.adopt(tensor, "weights")
            return tensor

        follower.recording = True
        module._apply(copy)  # the order in which Module.to visits tensors
        return module

    def flatten(module: torch.nn.RNNBase) -> None:
        if any(follower.is_on_card(weight) for weight in module._flat_weights if weight is not None):
            block = join_weights(module)
            if block is not None:
                follower.relabel(block, "weights")

    with (
        mock.patch.object(torch.nn.Module, "to", to),
        mock.patch.object(torch.nn.RNNBase, "flatten_parameters", flatten),
    ):
        yield
