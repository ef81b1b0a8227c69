"""A brax run by arithmetic alone: networks, optimizer, environment states, rollout, and what compiling takes.

The state of one environment and the physics' temporaries depend on the model and are only known to the compiler, so
those items are defaults with a wide error until it has been asked (`asking.py`).

Mirrors the layout of brax 0.14.2 (`training/acting.py`, `training/agents/ppo/train.py`).
"""

from collections.abc import Iterator
from itertools import pairwise

from legroom.backends.base import hyper
from legroom.backends.brax.facts import eval_envs_of, is_ppo
from legroom.model.facts import spaces_of
from legroom.model.footprint import Item, Known, Phase, Place
from legroom.model.run import Run
from legroom.model.spaces import BoxSpace, DictSpace
from legroom.units import MIB

FLOAT = 4
# XLA plans a copy of the buffer for the step that moves it (jaxlib 0.9.2, brax 0.14.2: 32 B per transition of 32 B).
MOVED = "a full buffer is moved as a whole to make room for each step"
# brax's own defaults: ppo/networks.py and sac/networks.py
HIDDEN_POLICY, HIDDEN_VALUE = (32, 32, 32, 32), (256,) * 5
HIDDEN_SAC = (256, 256)
# One MJX ant under the CPU compiler, jax 0.9.2, brax 0.14.2, 2026-11: 0.075 MB in all.
STATE_BYTES, TEMPORARY_BYTES = 15_000, 60_000
# Import, tracing and compiling of one training epoch: 1.07 GB peak RSS at 256 envs, 1.14 at 1024 (same versions).
COMPILE_BYTES, COMPILE_ERROR = 1_050_000_000, 90_000_000


def arithmetic_items(run: Run, device: Place) -> Iterator[Item]:
    """Yield the items of a run that was never compiled."""
    yield Item(
        "runtime.import, trace, compile", COMPILE_BYTES, Place.HOST, known=Known.DEFAULT, error=COMPILE_ERROR,
        why="Python, jax, brax and XLA compiling one training epoch",
    )  # fmt: skip
    yield from _network_items(run, device)
    yield from _state_items(run, device)
    if is_ppo(run):
        yield from _rollout_items(run, device)
    else:
        replay = replay_item(run, device)
        yield replay
        yield Item("replay.copies", replay.nbytes, device, phases=(Phase.COLLECT,), why=MOVED)


def context_item() -> Item:
    """Return what a GPU holds beside XLA's allocator."""
    return Item(
        "gpu.context", 450 * MIB, Place.GPU, known=Known.DEFAULT, error=150 * MIB,
        why="CUDA context and libraries, outside of XLA's allocator; varies by GPU and driver",
    )  # fmt: skip


def _network_items(run: Run, device: Place) -> Iterator[Item]:
    parameters, targets = count_parameters(run)
    yield Item("network.weights", FLOAT * parameters, device, why=f"{parameters:,} parameters, float32")
    if targets:
        yield Item("network.targets", FLOAT * targets, device, why=f"{targets:,} parameters of the target critics")
    yield Item("network.gradients", FLOAT * parameters, device, phases=(Phase.UPDATE,), why="one per parameter")
    yield Item("optimizer.state", 2 * FLOAT * parameters, device, why="Adam keeps two moments per parameter")


def _state_items(run: Run, device: Place) -> Iterator[Item]:
    envs = run.env.n_envs
    yield Item(
        "envs.states", STATE_BYTES, device, count=envs, known=Known.DEFAULT, error=STATE_BYTES // 2,
        why=f"physics state of {envs:,} environments; the compiler knows the real size",
    )  # fmt: skip
    yield Item(
        "envs.temporaries", TEMPORARY_BYTES, device, count=envs, phases=(Phase.COLLECT, Phase.UPDATE),
        known=Known.DEFAULT, error=TEMPORARY_BYTES // 2, why=f"intermediate results, {envs:,} environments at once",
    )  # fmt: skip
    evaluating = eval_envs_of(run)
    default = "" if run.eval else " (brax's default)"
    yield Item(
        "envs.evaluation states", STATE_BYTES + TEMPORARY_BYTES, device, count=evaluating,
        phases=(Phase.START, Phase.CHECKPOINT), known=Known.DEFAULT, error=(STATE_BYTES + TEMPORARY_BYTES) // 2,
        why=f"{evaluating:,} evaluation environments{default}",
    )  # fmt: skip


def _rollout_items(run: Run, device: Place) -> Iterator[Item]:
    unroll, batch, minibatches = (hyper(run, key) for key in ("unroll_length", "batch_size", "num_minibatches"))
    each = transition_nbytes(run)
    steps = unroll * batch * minibatches
    yield Item(
        "rollout", steps * each, device, phases=(Phase.COLLECT, Phase.UPDATE),
        why=f"{unroll} steps × {batch} × {minibatches} minibatches × {each:,} B per step",
    )  # fmt: skip
    yield Item(
        "rollout.shuffled copy", steps * each, device, phases=(Phase.UPDATE,),
        why="every epoch permutes the rollout into a second array",
    )  # fmt: skip
    widths = sum(sum(layers) for layers in hidden_layers(run))
    samples = batch if run.memory.activation_checkpointing else unroll * batch  # one step of the unroll at a time
    activations = samples * FLOAT * 2 * widths
    yield Item(
        "network.activations", activations, device, phases=(Phase.UPDATE,), error=activations // 2,
        why=f"one minibatch, {samples:,} samples × {widths:,} units, before and after each activation",
    )  # fmt: skip


def replay_item(run: Run, device: Place) -> Item:
    """Return SAC's replay buffer, one array of flattened transitions that is there from the start."""
    size = hyper(run, "max_replay_size") or run.total_timesteps or 0
    each = transition_nbytes(run)
    why = f"{size:,} transitions × {each:,} B"
    if not hyper(run, "max_replay_size"):
        why += " (max_replay_size left out means num_timesteps)"
    return Item("replay", size * each, device, why=why)


def transition_nbytes(run: Run) -> int:
    """Return the bytes of one stored step: two observations, action, reward, discount and the policy's extras."""
    observation, action = spaces_of(run)
    size = action.nbytes
    # PPO keeps the raw action, a mean and a scale per action, log-probability, truncation, the end of the episode and
    # its length and return; SAC the truncation
    extras = 3 * size + 5 * FLOAT if is_ppo(run) else FLOAT
    return 2 * observation.nbytes + size + 2 * FLOAT + extras


def hidden_layers(run: Run) -> tuple[tuple[int, ...], ...]:
    """Return the hidden layers of each network: policy and value, or policy and two critics."""
    kwargs = run.policy.kwargs
    if not is_ppo(run):
        layers = tuple(kwargs.get("hidden_layer_sizes", HIDDEN_SAC))
        return layers, layers, layers
    policy = tuple(kwargs.get("policy_hidden_layer_sizes", HIDDEN_POLICY))
    return policy, tuple(kwargs.get("value_hidden_layer_sizes", HIDDEN_VALUE))


def count_parameters(run: Run) -> tuple[int, int]:
    """Return the parameters that are trained and those of target networks."""
    observation, action = spaces_of(run)
    inputs, actions = _elements(observation), _elements(action)
    policy, *others = hidden_layers(run)
    trained = _dense((inputs, *policy, 2 * actions))  # a mean and a scale per action
    if not is_ppo(run):
        critics = sum(_dense((inputs + actions, *layers, 1)) for layers in others)
        return trained + critics + 1, critics
    return trained + sum(_dense((inputs, *layers, 1)) for layers in others), 0


def _dense(widths: tuple[int, ...]) -> int:
    return sum(a * b + b for a, b in pairwise(widths))


def _elements(space: object) -> int:
    if isinstance(space, DictSpace):
        return sum(_elements(sub) for sub in space.spaces.values())
    return space.nbytes // FLOAT if isinstance(space, BoxSpace) else 1
