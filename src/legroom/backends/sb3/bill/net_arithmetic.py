"""Estimate networks and updates of an SB3 run from shapes alone: no torch, nothing imported that the run names.

Parameters are exact (a test counts the real ones). Activations follow from what autograd keeps (`model.workload`). What
lives only for a moment (gradients of activations, an optimizer's temporaries) is estimated, which is why tracing is the
better way where torch is installed. With activation checkpointing or bfloat16 the estimate is an upper one: it says
more than a trace would rather than less.

Mirrors common/policies.py, common/torch_layers.py and the policies of stable-baselines3 2.9.2 and sb3-contrib 2.9.0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from legroom.backends.base import algorithm_of, hyper
from legroom.backends.sb3.published_layers import find_extractor, is_headless
from legroom.backends.sb3.stored import (
    FLOAT32,
    normalizes_observations,
    observation_nbytes,
    pass_samples,
    stored_observation,
)
from legroom.environments.images import is_image
from legroom.model.evidence import NetTrace
from legroom.model.facts import spaces_of
from legroom.model.footprint import Known, Phase
from legroom.model.run import Run
from legroom.model.spaces import DTYPES, BoxSpace, DictSpace, Space
from legroom.model.workload import Net, convolutions, linear, mlp

NATURE_CNN = ((32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0))  # out channels, kernel, stride, padding
BFLOAT16 = 2
REDUCTION = 4 << 20  # partial sums of a bias' gradient over a large batch, on a card (`device.cuda_reduce`)

# Relative error of the estimated transients; `bench.accuracy_heldout` shows what it is in real runs.
TRANSIENT_ERROR = 0.15
UNKNOWN_ERROR = 0.3
KNOBS_ERROR = 0.2  # with activation checkpointing or bfloat16; `bench.knobs` of d63e92e7


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
    activations, temporaries = _update(run, networks, device)
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
            Phase.UPDATE: {
                "batch": batch * _sample_nbytes(run), "activations": activations, "temporaries": temporaries
            },
        },
        known=Known.ARITHMETIC,
        error=UNKNOWN_ERROR if note else KNOBS_ERROR if _is_turned(run) else TRANSIENT_ERROR,
        note=note,
        guessed="; ".join(not_known(run)),
    )  # fmt: skip


# Aliases of the library's own policies, whose networks are mirrored here.
_POLICIES = frozenset({"MlpPolicy", "CnnPolicy", "MultiInputPolicy", "LinearPolicy"} | {
    "MlpLstmPolicy", "CnnLstmPolicy", "MultiInputLstmPolicy",
})  # fmt: skip
_OPTIMIZERS = frozenset({"Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "RMSpropTFLike", "SGD"})


def not_known(run: Run) -> list[str]:
    """Return what of the run's networks and updates no arithmetic knows: code of the user's own, mostly.

    What is billed for it is not even a lower bound. Extractors that publish their layers are known.
    """
    found = []
    if run.algo_class:
        found.append(f"what {run.algo_class} does beyond {run.algo}")
    if run.policy.name not in _POLICIES and not is_headless(run.policy.name):
        found.append(f"the networks of {run.policy.name}")
    if _extractor(run)[1]:
        found.append(f"the layers of {_named_extractor(run)}")
    kwargs = run.policy.kwargs
    activation, optimizer = kwargs.get("activation_fn"), kwargs.get("optimizer_class")
    if activation is not None and not _is_torchs(str(activation), "nn"):
        found.append(f"what {activation} keeps")
    if optimizer is not None and not (_is_torchs(str(optimizer), "optim") and _last(str(optimizer)) in _OPTIMIZERS):
        found.append(f"what {optimizer} keeps")
    return found


def _is_torchs(name: str, part: str) -> bool:
    """Return whether a class is torch's (or SB3's own copy of one of torch's), as people write it."""
    module = name.replace(":", ".").rpartition(".")[0]
    return module in ("", part) or module.partition(".")[0] in ("torch", "th", "stable_baselines3")


def _last(name: str) -> str:
    return name.replace(":", ".").rpartition(".")[2]


def _is_turned(run: Run) -> bool:
    return bool(run.memory.activation_checkpointing or run.memory.bf16)


def _update(run: Run, networks: Networks, device: Literal["cpu", "cuda"]) -> tuple[int, int]:
    """Return the bytes of activations and temporaries at the peak of an update."""
    step, batch = networks.step, pass_samples(run)
    if not _is_turned(run):
        activations = FLOAT32 * step.kept * batch
        # Backward holds the gradients of one layer's output and input. An image is first converted and then divided by
        # 255: both arrays exist before any activation does.
        per_sample = max(2 * step.widest, 2 * step.converted - step.kept)
        return activations, max(FLOAT32 * per_sample * batch, _optimizer_step(run, networks, device, activations))
    return _turned_update(run, networks, device)


def _turned_update(run: Run, networks: Networks, device: Literal["cpu", "cuda"]) -> tuple[int, int]:
    """Return the same with activation checkpointing or bfloat16: the largest of the moments an update goes through."""
    step, batch = networks.step, pass_samples(run)
    each = _scalar_nbytes(run, step, device)
    kept, widest, weights, again = step.kept, step.widest, step.parameters, 0
    if run.memory.activation_checkpointing:
        kept, widest = step.kept - step.inside, step.widest_outside
        for part in step.recomputed:
            # recomputed, with two gradients; the weights' gradients are added up piece by piece, in copies
            found = int(each * (part.kept + 2 * part.widest) * part.at_once(batch)) + 2 * FLOAT32 * part.parameters
            weights -= part.parameters
            again = max(again, found)
    activations = int(each * kept * batch)
    beyond = [int(each * 2 * widest * batch), again]
    if run.memory.bf16:
        activations += (BFLOAT16 * step.cast + FLOAT32 * step.handed_out) * batch + BFLOAT16 * max(weights, 0)
        beyond.append(FLOAT32 * step.converted * batch)  # in float32 until the extractor is done
    alone = [
        2 * FLOAT32 * step.converted * batch,  # converted, then divided
        batch * _sample_nbytes(run),  # the minibatch before, still referenced while this one is made
    ]
    if algorithm_of(run).family == "off-policy":
        alone.append(int(each * 2 * step.widest * batch))  # the target's forward pass: all samples, nothing kept
    temporaries = max(*beyond, *(nbytes - activations for nbytes in alone))
    if device == "cuda":
        temporaries += REDUCTION
    return activations, max(temporaries, _optimizer_step(run, networks, device, activations))


def _scalar_nbytes(run: Run, step: Net, device: Literal["cpu", "cuda"]) -> float:
    """Return the bytes that one kept scalar takes; cards keep what goes into a normalisation in both precisions."""
    if not run.memory.bf16:
        return FLOAT32
    return BFLOAT16 + FLOAT32 * 0.7 if step.normed and device == "cuda" else BFLOAT16


def _optimizer_step(run: Run, networks: Networks, device: Literal["cpu", "cuda"], activations: int) -> int:
    """Return by how much the optimizer's step exceeds the activations, which are gone when it is made.

    Adam computes the root of its second moment into a new array: of all parameters at once in its multi-tensor form,
    torch's default on a card only; else of one parameter after the other, twice, which is more where a single layer has
    most of the parameters. Where no knob is turned, half a copy of all parameters stands for either; it is what real
    runs showed (`bench.accuracy_heldout`).
    """
    if not _is_turned(run):
        return FLOAT32 * networks.trained // 2
    return max(FLOAT32 * (2 * networks.step.largest if device == "cpu" else networks.trained) - activations, 0)


def convolved_nbytes(run: Run) -> int:
    """Return the bytes that go into and come out of the largest convolution of one forward pass."""
    step, samples = _networks(run)[0].step, pass_samples(run)
    if run.memory.activation_checkpointing and step.recomputed and algorithm_of(run).family == "on-policy":
        # target networks' passes are whole
        samples = max(part.at_once(samples) for part in step.recomputed)
    return FLOAT32 * step.convolved * samples


def quantile_pairs(run: Run) -> int:
    """Return how many pairs of quantiles a loss compares per sample; 0 where it compares none."""
    name, kwargs = algorithm_of(run).name, run.policy.kwargs
    if name == "QRDQN":
        return int(kwargs.get("n_quantiles", 200)) ** 2
    if name == "TQC":
        each, critics = int(kwargs.get("n_quantiles", 25)), int(kwargs.get("n_critics", 2))
        return each * critics * max(each - int(hyper(run, "top_quantiles_to_drop_per_net") or 0), 1) * critics
    return 0


def count_parameters(run: Run) -> int:
    """Return the scalars in the policy, target networks included."""
    networks, _ = _networks(run)
    return networks.trained + networks.targets


def may_checkpoint(run: Run) -> bool | None:
    """Return whether memory.activation_checkpointing has something to turn; None where only importing would tell."""
    networks, note = _networks(run)
    return True if networks.step.recomputed else None if note else False


def _networks(run: Run) -> tuple[Networks, str]:
    extractor, note = _extractor(run)
    match algorithm_of(run).name:
        case "DQN" | "DoubleDQN" | "QRDQN":
            return _q_networks(run, extractor), note
        case "SAC" | "TQC" | "CrossQ" | "TD3" | "DDPG":
            return _actor_critics(run, extractor), note
        case "ARS":
            _, action = spaces_of(run)
            bare = run.policy.name == "LinearPolicy"  # which also leaves out the bias
            arch = run.policy.kwargs.get("net_arch", [] if bare else [64, 64])
            net = extractor.then(mlp(extractor.features, arch))
            out = linear(_width_after(arch, extractor.features), _action_outputs(action))
            bias = out.features if bare else 0
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
            features = features.then(linear(width, hidden))  # the critic's own linear layer instead of an LSTM
        width = hidden
    towers = mlp(width, pi).then(mlp(width, vf))
    outputs = _action_outputs(action)
    heads = linear(_width_after(pi, width), outputs).then(linear(_width_after(vf, width), 1))
    net = features.then(towers).then(heads)
    spread = 0
    if isinstance(action, BoxSpace):
        spread = outputs
        if hyper(run, "use_sde"):
            latent = _width_after(pi, width)
            spread = latent * (outputs if kwargs.get("full_std", True) else 1)
    return Networks(net.parameters + spread, 0, net, net)


def _q_networks(run: Run, extractor: Net) -> Networks:
    _, action = spaces_of(run)
    if is_headless(run.policy.name):
        return Networks(extractor.parameters, extractor.parameters, extractor, extractor)
    arch = run.policy.kwargs.get("net_arch")
    if arch is None:
        arch = [] if _is_nature_cnn(run) else [64, 64]
    quantiles = int(run.policy.kwargs.get("n_quantiles", 200)) if algorithm_of(run).name == "QRDQN" else 1
    outputs = (_cells(action) if algorithm_of(run).name == "DoubleDQN" else _action_outputs(action)) * quantiles
    net = extractor.then(mlp(extractor.features, arch, outputs))
    return Networks(net.parameters, net.parameters, net, net)


def _actor_critics(run: Run, extractor: Net) -> Networks:
    """Return SAC's, TD3's and their relatives' networks: an actor, n critics, and targets of some or all."""
    _, action = spaces_of(run)
    name, kwargs = algorithm_of(run).name, run.policy.kwargs
    arch: Any = kwargs.get("net_arch")
    if arch is None:
        arch = {"TD3": [400, 300], "DDPG": [400, 300], "CrossQ": {"pi": [256, 256], "qf": [1024, 1024]}}.get(
            name, [256, 256]
        )
        if name in ("TD3", "DDPG") and _is_nature_cnn(run):
            arch = [256, 256]
    pi, qf = (arch.get("pi", []), arch.get("qf", [])) if isinstance(arch, dict) else (arch, arch)
    dims, width = _action_outputs(action), extractor.features
    shared = bool(kwargs.get("share_features_extractor", False))
    body = mlp(width, pi)
    deterministic = name in ("TD3", "DDPG")
    head = linear(_width_after(pi, width), dims)
    spread = 0 if deterministic else head.parameters
    if spread and hyper(run, "use_sde"):  # a matrix of its own instead of a layer with bias
        spread = _width_after(pi, width) * (dims if kwargs.get("full_std", True) else 1)
    actor = extractor.then(body).then(head).then(Net(spread, dims, dims, dims))
    outputs = int(kwargs.get("n_quantiles", 25)) if name == "TQC" else 1
    critic = mlp(width + dims, qf, outputs)
    n_critics = int(kwargs.get("n_critics", 1 if name == "DDPG" else 2))
    critics = Net(features=1) if shared else extractor
    for _ in range(n_critics):
        critics = critics.then(critic)
    if name == "CrossQ" and kwargs.get("batch_norm", True):  # scale and bias before every layer
        actor = actor.then(_norms([width, *pi]))
        critics = critics.then(_norms([width + dims, *qf] * n_critics))
        actor, critics = (replace(net, inside=0, recomputed=(), widest_outside=net.widest) for net in (actor, critics))
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
    named = _named_extractor(run)
    own = None if named is None else _last(str(named)) if _is_librarys(str(named)) else ""
    if own in (None, "CombinedExtractor") and isinstance(observation, DictSpace):
        return _combined(run, observation), ""
    if named is None and run.policy.name.startswith("Cnn"):
        return _nature_cnn(_image_shape(observation), int(_extractor_kwargs(run).get("features_dim", 512))), ""
    if named is None or own == "FlattenExtractor":
        return _flatten(observation), ""
    published = find_extractor(str(named))
    if published is not None and published.layers is not None and isinstance(observation, BoxSpace):
        return published.net(observation, _extractor_kwargs(run)), ""
    if own == "NatureCNN":
        return _nature_cnn(_image_shape(observation), int(_extractor_kwargs(run).get("features_dim", 512))), ""
    features = int(_extractor_kwargs(run).get("features_dim", 512))
    elements = _flattened(observation)
    note = f"the layers of {named} are not known without importing it and are not counted (use --mode trace)"
    return Net(0, elements + features, features, features, elements), note


def _extractor_kwargs(run: Run) -> Mapping[str, Any]:
    return {**run.policy.kwargs.get("features_extractor_kwargs", {}), **run.policy.features_extractor_kwargs}


def _named_extractor(run: Run) -> Any:
    return run.policy.features_extractor or run.policy.kwargs.get("features_extractor_class")


def _is_librarys(name: str) -> bool:
    """Return whether an extractor is SB3's own, not a user's of the same name."""
    module = name.replace(":", ".").rpartition(".")[0]
    return not module or module.partition(".")[0] == "stable_baselines3"


def _is_nature_cnn(run: Run) -> bool:
    named = _named_extractor(run)
    if named is not None:
        return _is_librarys(str(named)) and _last(str(named)) == "NatureCNN"
    return run.policy.name.startswith("Cnn")


def _combined(run: Run, observation: DictSpace) -> Net:
    size = int(_extractor_kwargs(run).get("cnn_output_dim", 256))
    net, features = Net(), 0
    for space in observation.spaces.values():
        if is_image(space) and not normalizes_observations(run):
            part = _nature_cnn(_image_shape(space), size)
        else:
            part = _flatten(space)
        net, features = net.then(part), features + part.features
    # th.cat makes one more array of all features
    widest = max(net.widest, features)
    outside = max(net.widest_outside, features)
    return replace(net, kept=net.kept + features, widest=widest, widest_outside=outside, features=features)


def _action_outputs(action: Space) -> int:
    match action.type:
        case "discrete":
            return action.n
        case "multidiscrete":
            return sum(action.nvec)
    return math.prod(action.shape)  # type: ignore[union-attr]


def _cells(action: Space) -> int:
    """Return how many values DoubleDQN has for an action, which is a set of K of n cells: one per cell."""
    return action.nvec[0] if action.type == "multidiscrete" else _action_outputs(action)


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


def _width_after(layers: Any, width: int) -> int:
    """Return the width after some layers."""
    return int(layers[-1]) if len(layers) else width


def _norms(widths: Any) -> Net:
    """Return batch normalisations; input and normalised input are kept."""
    return Net(2 * sum(widths), 2 * sum(widths), max(widths), 1, widest_outside=max(widths))


def _lstm(width: int, hidden: int, layers: int) -> Net:
    """Return an LSTM; four gates, cell and output are kept."""
    parameters = sum(4 * hidden * ((width if layer == 0 else hidden) + hidden + 2) for layer in range(layers))
    largest = 4 * hidden * max(width, hidden)
    return Net(parameters, 6 * hidden * layers, 4 * hidden, hidden, largest=largest, widest_outside=4 * hidden)


def _nature_cnn(shape: tuple[int, ...], features: int) -> Net:
    """Return SB3's `NatureCNN`: a container of convolutions, then one linear layer."""
    return convolutions(shape, NATURE_CNN, features, convert=True)


def _flatten(space: Space) -> Net:
    """Return SB3's `FlattenExtractor`."""
    width = _flattened(space)
    # A float32 box is used as it is; anything else is converted or one-hot encoded into a new array.
    converted = 0 if isinstance(space, BoxSpace) and space.dtype == "float32" else width
    return Net(0, converted, 0, width, converted)


def _flattened(space: Space) -> int:
    """Return how many numbers an observation is once it is flat and encoded."""
    match space.type:
        case "discrete":
            return space.n
        case "multidiscrete":
            return sum(space.nvec)
        case "dict":
            return sum(_flattened(sub) for sub in space.spaces.values())
    return math.prod(space.shape)


def _image_shape(space: Space) -> tuple[int, ...]:
    """Return the shape as a CNN sees it."""
    return space.shape if isinstance(space, BoxSpace) and len(space.shape) > 1 else (1, _flattened(space))
