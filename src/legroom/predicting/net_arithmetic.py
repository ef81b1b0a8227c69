"""Estimate networks and updates of an SB3 run from shapes alone: no torch, nothing imported that the run names.

Parameters are exact (a test counts the real ones). Activations follow from what autograd keeps: a convolution or linear
layer keeps its input, a ReLU or Tanh its output, so every layer's activated output is kept once; an image is kept as
the float32 it is converted to. What lives only for a moment (gradients of activations, an optimizer's temporaries) is
estimated, which is why tracing is the better way where torch is installed.

Mirrors common/policies.py, common/torch_layers.py and the policies of stable-baselines3 2.9.2 and sb3-contrib 2.9.0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from legroom.model.evidence import NetTrace
from legroom.model.facts import algorithm_of, hyper, is_image, spaces_of, stored_observation
from legroom.model.footprint import Known, Phase
from legroom.model.run import Run
from legroom.model.spaces import DTYPES, BoxSpace, DictSpace, Space
from legroom.model.stored import FLOAT32, normalizes_observations, observation_nbytes, pass_samples

NATURE_CNN = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))  # out channels, kernel, stride, padding

# The mine's extractor: size -> (convolutions, pool, features). Each convolution is followed by a ReLU, then
# AdaptiveAvgPool3d(pool), Flatten, Linear(features), ReLU.
_CNN3D = {
    "full": (((32, 3, 1, 1), (64, 3, 2, 1), (128, 3, 2, 1)), 4, 512),
    "small": (((16, 3, 1, 1), (32, 3, 2, 1), (64, 3, 2, 1)), 4, 256),
    "tiny": (((8, 5, 2, 2), (16, 5, 2, 2)), 1, 64),
}
# Q networks without a head of their own: the extractor's features are the values.
HEADLESS = ("legroom.workloads.fire:CellPolicy",)

# Relative error of the estimated transients; `bench/accuracy.py --mode arithmetic` shows what it is in real runs.
TRANSIENT_ERROR = 0.15
UNKNOWN_ERROR = 0.3


@dataclass(frozen=True)
class Net:
    """Part of a network, in scalars (per sample where it is not parameters).

    Args:
        kept: kept for backward.
        widest: the widest output that has a gradient.
        features: the output.
        converted: observations that are converted to float32 before anything else happens.
        convolved: in- and output of the largest convolution; operators take their scratch one after the other.
    """

    parameters: int = 0
    kept: int = 0
    widest: int = 0
    features: int = 0
    converted: int = 0
    convolved: int = 0

    def then(self, other: Net) -> Net:
        """Return this part followed by, or beside, another whose features are the result."""
        return Net(
            self.parameters + other.parameters,
            self.kept + other.kept,
            max(self.widest, other.widest),
            other.features,
            max(self.converted, other.converted),
            max(self.convolved, other.convolved),
        )


@dataclass(frozen=True)
class Networks:
    """All networks of a policy: those trained, those that only follow, and how often an update runs through them."""

    trained: int
    targets: int
    step: Net  # what one gradient step keeps at its peak
    forward: Net  # what choosing an action goes through


def estimate_net(run: Run, device: Literal["cpu", "cuda"]) -> NetTrace:
    """Return what networks, optimizer and one update take, estimated from the run's shapes."""
    networks, note = _networks(run)
    batch = pass_samples(run)
    batch_nbytes = batch * _sample_nbytes(run)
    activations = FLOAT32 * networks.step.kept * batch
    # Backward holds the gradients of one layer's output and input. An image is first converted and then divided by 255:
    # both arrays exist before any activation does. Adam needs a second copy of its largest tensor.
    step = networks.step
    per_sample = max(2 * step.widest, 2 * step.converted - step.kept)
    temporaries = max(FLOAT32 * per_sample * batch, FLOAT32 * networks.trained // 2)
    acting = run.env.n_envs * FLOAT32 * 2 * max(networks.forward.widest, networks.forward.converted)
    return NetTrace(
        device=device,
        parameters=networks.trained + networks.targets,
        weights=FLOAT32 * (networks.trained + networks.targets),
        targets=FLOAT32 * networks.targets,
        gradients=FLOAT32 * networks.trained,
        optimizer=int(FLOAT32 * networks.trained * _optimizer_copies(run)),
        transient={
            Phase.COLLECT: {"temporaries": acting},
            Phase.UPDATE: {"batch": batch_nbytes, "activations": activations, "temporaries": temporaries},
        },
        known=Known.ARITHMETIC,
        error=UNKNOWN_ERROR if note else TRANSIENT_ERROR,
        note=note,
    )


def convolved_nbytes(run: Run) -> int:
    """Return the bytes that go into and come out of the largest convolution of one forward pass."""
    return FLOAT32 * _networks(run)[0].step.convolved * pass_samples(run)


def count_parameters(run: Run) -> int:
    """Return the scalars in the policy, target networks included."""
    networks, _ = _networks(run)
    return networks.trained + networks.targets


def _networks(run: Run) -> tuple[Networks, str]:
    extractor, note = _extractor(run)
    match algorithm_of(run).name:
        case "DQN" | "QRDQN":
            return _q_networks(run, extractor), note
        case "SAC" | "TQC" | "CrossQ" | "TD3" | "DDPG":
            return _actor_critics(run, extractor), note
        case "ARS":
            _, action = spaces_of(run)
            linear = run.policy.name == "LinearPolicy"  # which also leaves out the bias
            arch = run.policy.kwargs.get("net_arch", [] if linear else [64, 64])
            net = extractor.then(_mlp(extractor.features, arch))
            out = _linear(_last(arch, extractor.features), _action_outputs(action))
            bias = out.features if linear else 0
            return Networks(net.parameters + out.parameters - bias, 0, Net(), net), note
    return _actor_critic(run, extractor), note


def _actor_critic(run: Run, extractor: Net) -> Networks:
    """Return PPO's, A2C's, TRPO's policy: two towers on one extractor (or on one each)."""
    _, action = spaces_of(run)
    kwargs = run.policy.kwargs
    arch = kwargs.get("net_arch")
    if isinstance(arch, (list, tuple)) and arch and isinstance(arch[0], dict):
        arch = arch[0]
    if arch is None:
        arch = [] if _is_nature_cnn(run) else [64, 64]
    pi, vf = (arch.get("pi", []), arch.get("vf", [])) if isinstance(arch, dict) else (arch, arch)
    shared = kwargs.get("share_features_extractor", True)
    features = extractor if shared else extractor.then(extractor)
    width = extractor.features
    if algorithm_of(run).recurrent:
        hidden, layers = int(kwargs.get("lstm_hidden_size", 256)), int(kwargs.get("n_lstm_layers", 1))
        lstms = 1 if kwargs.get("shared_lstm") or not kwargs.get("enable_critic_lstm", True) else 2
        for _ in range(lstms):
            features = features.then(_lstm(width, hidden, layers))
        if lstms == 1 and not kwargs.get("shared_lstm"):
            features = features.then(_linear(width, hidden))  # the critic's own linear layer instead of an LSTM
        width = hidden
    towers = _mlp(width, pi).then(_mlp(width, vf))
    outputs = _action_outputs(action)
    heads = _linear(_last(pi, width), outputs).then(_linear(_last(vf, width), 1))
    net = features.then(towers).then(heads)
    spread = 0
    if isinstance(action, BoxSpace):
        spread = outputs
        if hyper(run, "use_sde"):
            latent = _last(pi, width)
            spread = latent * (outputs if kwargs.get("full_std", True) else 1)
    return Networks(net.parameters + spread, 0, net, net)


def _q_networks(run: Run, extractor: Net) -> Networks:
    _, action = spaces_of(run)
    if run.policy.name in HEADLESS:
        return Networks(extractor.parameters, extractor.parameters, extractor, extractor)
    arch = run.policy.kwargs.get("net_arch")
    if arch is None:
        arch = [] if _is_nature_cnn(run) else [64, 64]
    quantiles = int(run.policy.kwargs.get("n_quantiles", 200)) if algorithm_of(run).name == "QRDQN" else 1
    outputs = _action_outputs(action) * quantiles
    net = extractor.then(_mlp(extractor.features, arch)).then(_linear(_last(arch, extractor.features), outputs))
    return Networks(net.parameters, net.parameters, net, net)


def _actor_critics(run: Run, extractor: Net) -> Networks:
    """Return SAC's, TD3's and their relatives' networks: an actor, n critics, and targets of some or all."""
    _, action = spaces_of(run)
    name, kwargs = algorithm_of(run).name, run.policy.kwargs
    arch = kwargs.get("net_arch")
    if arch is None:
        arch = {"TD3": [400, 300], "DDPG": [400, 300], "CrossQ": {"pi": [256, 256], "qf": [1024, 1024]}}.get(
            name, [256, 256]
        )
        if name in ("TD3", "DDPG") and _is_nature_cnn(run):
            arch = [256, 256]
    pi, qf = (arch.get("pi", []), arch.get("qf", [])) if isinstance(arch, dict) else (arch, arch)
    dims, width = _action_outputs(action), extractor.features
    shared = bool(kwargs.get("share_features_extractor", False))
    body = _mlp(width, pi)
    deterministic = name in ("TD3", "DDPG")
    head = _linear(_last(pi, width), dims)
    spread = 0 if deterministic else head.parameters
    if spread and hyper(run, "use_sde"):  # a matrix of its own instead of a layer with bias
        spread = _last(pi, width) * (dims if kwargs.get("full_std", True) else 1)
    actor = extractor.then(body).then(head).then(Net(spread, dims, dims, dims))
    outputs = int(kwargs.get("n_quantiles", 25)) if name == "TQC" else 1
    critic = _mlp(width + dims, qf).then(_linear(_last(qf, width + dims), outputs))
    n_critics = int(kwargs.get("n_critics", 1 if name == "DDPG" else 2))
    critics = Net(features=1) if shared else extractor
    for _ in range(n_critics):
        critics = critics.then(critic)
    if name == "CrossQ" and kwargs.get("batch_norm", True):  # scale and bias before every layer
        actor = actor.then(_norms([width, *pi]))
        critics = critics.then(_norms([width + dims, *qf] * n_critics))
    trained = actor.parameters + critics.parameters
    if deterministic:
        targets = trained  # actor and critics
    elif name == "CrossQ":
        targets = 0
    else:
        targets = critics.parameters + (extractor.parameters if shared else 0)
    # The actor's loss runs through the critics as well: the peak of an update.
    return Networks(trained, targets, actor.then(critics), actor)


def _extractor(run: Run) -> tuple[Net, str]:
    """Return the features extractor, and a note when it is not known here."""
    observation = stored_observation(run)
    named = run.policy.features_extractor or run.policy.kwargs.get("features_extractor_class")
    if named is None and isinstance(observation, DictSpace):
        return _combined(run, observation), ""
    if named is None and run.policy.name.startswith("Cnn"):
        return _nature_cnn(_shape(observation), int(_extractor_kwargs(run).get("features_dim", 512))), ""
    if named is None:
        return _flatten(observation), ""
    if str(named) in KNOWN_EXTRACTORS and isinstance(observation, BoxSpace):
        return KNOWN_EXTRACTORS[str(named)](observation, _extractor_kwargs(run)), ""
    if str(named).rpartition(":")[2].rpartition(".")[2] == "NatureCNN":
        return _nature_cnn(_shape(observation), int(_extractor_kwargs(run).get("features_dim", 512))), ""
    features = int(_extractor_kwargs(run).get("features_dim", 512))
    elements = _flattened(observation)
    note = f"the layers of {named} are not known without importing it and are not counted (use --mode trace)"
    return Net(0, elements + features, features, features, elements), note


def _extractor_kwargs(run: Run) -> Mapping[str, Any]:
    return {**run.policy.kwargs.get("features_extractor_kwargs", {}), **run.policy.features_extractor_kwargs}


def _is_nature_cnn(run: Run) -> bool:
    named = run.policy.features_extractor or run.policy.kwargs.get("features_extractor_class")
    if named is not None:
        return str(named).rpartition(":")[2].rpartition(".")[2] == "NatureCNN"
    return run.policy.name.startswith("Cnn")


def _combined(run: Run, observation: DictSpace) -> Net:
    size = int(_extractor_kwargs(run).get("cnn_output_dim", 256))
    net, features = Net(), 0
    for space in observation.spaces.values():
        if is_image(space) and not normalizes_observations(run):
            part = _nature_cnn(_shape(space), size)
        else:
            part = _flatten(space)
        net, features = net.then(part), features + part.features
    # th.cat makes one more array of all features
    widest = max(net.widest, features)
    return Net(net.parameters, net.kept + features, widest, features, net.converted, net.convolved)


def _nature_cnn(shape: tuple[int, ...], features: int) -> Net:
    return _convolutions(shape, NATURE_CNN, None, features, True)


def _convolutions(
    shape: tuple[int, ...],
    layers: tuple[tuple[int, int, int, int], ...],
    pool: int | None,
    features: int,
    convert: bool,
) -> Net:
    """Return convolutions over all axes but the first, each with a ReLU, then pool, flatten, linear and ReLU."""
    channels, *size = shape
    parameters, elements = 0, math.prod(shape)
    converted = elements if convert else 0
    kept, widest, convolved = converted, 0, 0
    for out, kernel, stride, padding in layers:
        size = [max((n + 2 * padding - kernel) // stride + 1, 1) for n in size]
        parameters += channels * out * kernel ** len(size) + out
        before, channels, elements = elements, out, out * math.prod(size)
        kept, widest, convolved = kept + elements, max(widest, elements), max(convolved, before + elements)
    if pool is not None:
        elements = channels * pool ** len(size)
        kept += elements
    linear = _linear(elements, features)
    return Net(parameters + linear.parameters, kept + features, widest, features, converted, convolved)


def _cnn3d(observation: BoxSpace, kwargs: Mapping[str, Any]) -> Net:
    layers, pool, features = _CNN3D.get(str(kwargs.get("size", "full")), _CNN3D["full"])
    return _convolutions(observation.shape, layers, pool, features, observation.dtype != "float32")


def _fire_net(observation: BoxSpace, kwargs: Mapping[str, Any]) -> Net:
    """`FireNet` of the fire workload: same-size convolutions (inputs, outputs, kernel), and what autograd keeps.

    `kept` counts feature maps: the inputs of convolutions and of group normalisations, and the outputs of activations.
    """
    channels, height, width = observation.shape
    residual, scales, attention = (bool(kwargs.get(key, True)) for key in ("residual", "multi_scale", "attention"))
    if not (residual or scales or attention):
        layers = [(channels, 32, 3), (32, 64, 3), (64, 64, 3), (64, 1, 1)]
        kept, norms, wide = channels + 32 + 64 + 64, 0, 64
    else:
        wide = 128
        layers = [(channels, wide, 3), (wide, wide, 3), (wide, 1, 1)]
        kept, norms = channels + 4 * wide, 1
        if scales:
            layers += [(wide, wide // 2, kernel) for kernel in (3, 5, 7)] + [(3 * wide // 2, wide, 1)]
            kept += 3 * wide // 2 + wide
        if residual:
            layers += [(wide, wide, 3)] * 16
            kept, norms = kept + 8 * 4 * wide, norms + 16
        if attention:
            layers += [(wide, wide // 8, 1), (wide // 8, wide, 1), (wide, 1, 7)]
            kept += 2 * wide
    cells = height * width
    parameters = sum(i * o * kernel**2 + o for i, o, kernel in layers) + norms * 2 * wide
    return Net(parameters, kept * cells, wide * cells, cells, convolved=2 * wide * cells)


# Extractors of the shipped workloads, by the name a run file gives them.
KNOWN_EXTRACTORS: Mapping[str, Callable[[BoxSpace, Mapping[str, Any]], Net]] = {
    "legroom.workloads.mine:Cnn3d": _cnn3d,
    "legroom.workloads.fire:FireNet": _fire_net,
}


def _flatten(space: Space) -> Net:
    width = _flattened(space)
    # A float32 box is used as it is; anything else is converted or one-hot encoded into a new array.
    converted = 0 if isinstance(space, BoxSpace) and space.dtype == "float32" else width
    return Net(0, converted, 0, width, converted)


def _flattened(space: Space) -> int:
    match space.type:
        case "discrete":
            return space.n
        case "multidiscrete":
            return sum(space.nvec)
        case "dict":
            return sum(_flattened(sub) for sub in space.spaces.values())
    return math.prod(space.shape)


def _mlp(width: int, layers: Any) -> Net:
    net = Net(features=width)
    for out in layers:
        linear = _linear(net.features, int(out))
        net = net.then(linear)
    return net


def _linear(width: int, out: int) -> Net:
    return Net(width * out + out, out, out, out)


def _norms(widths: Any) -> Net:
    return Net(2 * sum(widths), 2 * sum(widths), max(widths), 1)  # input and normalised input are kept


def _lstm(width: int, hidden: int, layers: int) -> Net:
    parameters = sum(4 * hidden * ((width if layer == 0 else hidden) + hidden + 2) for layer in range(layers))
    return Net(parameters, 6 * hidden * layers, 4 * hidden, hidden)  # four gates, cell and output are kept


def _last(layers: Any, width: int) -> int:
    return int(layers[-1]) if len(layers) else width


def _shape(space: Space) -> tuple[int, ...]:
    return space.shape if isinstance(space, BoxSpace) and len(space.shape) > 1 else (1, _flattened(space))


def _action_outputs(action: Space) -> int:
    match action.type:
        case "discrete":
            return action.n
        case "multidiscrete":
            return sum(action.nvec)
    return math.prod(action.shape)  # type: ignore[union-attr]


def _optimizer_copies(run: Run) -> float:
    """Return how many arrays of the size of the parameters the optimizer keeps."""
    named = str(run.policy.kwargs.get("optimizer_class", "")).lower()
    if "sgd" in named:
        return 0
    if "rmsprop" in named or (not named and algorithm_of(run).name == "A2C" and hyper(run, "use_rms_prop")):
        return 1
    return 2


def _sample_nbytes(run: Run) -> int:
    """Return the bytes of one transition as the update's tensors hold it."""
    _, action = spaces_of(run)
    observations = observation_nbytes(run)
    count = math.prod(action.shape) if not isinstance(action, DictSpace) else 1
    actions = count * DTYPES["float32"]
    if algorithm_of(run).family == "off-policy":
        return 2 * observations + actions + 2 * FLOAT32
    return observations + actions + 4 * FLOAT32
