"""What an SB3 algorithm has learned, as arrays and JSON and back: networks, optimizers, and what is neither.

SB3 itself says which these are (`_get_torch_save_params`): the policy with its target networks, every optimizer, and
variables such as SAC's entropy coefficient. Optimizer states are put back as they were and not through
`load_state_dict`, which would cast a float32 moment to the dtype of a bfloat16 parameter.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import StateDependentNoiseDistribution

from legroom.errors import BadInput
from legroom.model.learner import SavedState
from legroom.training.arrays import dtype_of, put_together, take_apart

# How a step is computed, not what is computed: a resumed run may choose otherwise.
_HOW = frozenset({"foreach", "fused", "capturable", "differentiable", "maximize", "params"})
_EXPLORATION = ("exploration_mat", "exploration_matrices")


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Return the tensor's values, sharing its memory where it is contiguous on the host; dtypes as in `arrays`."""
    host = tensor.detach().cpu().contiguous()
    try:
        return host.numpy()
    except TypeError:  # bfloat16, float8
        dtype = dtype_of(str(host.dtype).removeprefix("torch."))
        return host.reshape(-1).view(torch.uint8).numpy().view(dtype).reshape(tuple(host.shape))


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Return a tensor on the host with the array's values."""
    if array.dtype.names is None:
        return torch.from_numpy(np.array(array))
    flat = torch.from_numpy(np.array(array.reshape(-1)).view(np.uint8))
    return flat.view(getattr(torch, array.dtype.names[0])).reshape(array.shape)


def policy_arrays(model: BaseAlgorithm) -> dict[str, np.ndarray]:
    """Return the policy's state dict, whose hash is the run's `parameters_sha256`."""
    return {name: to_array(tensor) for name, tensor in _state_dict(model.policy).items()}


def capture_learned(model: BaseAlgorithm, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return what is no array of networks, optimizers and variables; the arrays are added to `arrays`."""
    names, variables = model._get_torch_save_params()
    optimizers = {}
    for name in names:
        part = attrgetter(name)(model)
        if isinstance(part, torch.optim.Optimizer):
            optimizers[name] = _optimizer_state(name, part, arrays)
        else:
            arrays |= {f"{name}/{key}": to_array(tensor) for key, tensor in _state_dict(part).items()}
    for name in variables or ():
        value = attrgetter(name)(model)
        if value is not None:
            arrays[f"variables/{name}"] = to_array(value)
    for owner, noise in _exploration_noise(model).items():
        for field in _EXPLORATION:
            arrays[f"exploration/{owner}.{field}"] = to_array(getattr(noise, field))
    return {"optimizers": optimizers}


def prepare_learned(model: BaseAlgorithm, checkpoint: SavedState) -> Callable[[], None]:
    """Check that a checkpoint's networks and optimizers are this model's, and return what takes them over.

    Raises:
        BadInput: names the first difference.
    """
    names, variables = model._get_torch_save_params()
    steps: list[Callable[[], None]] = []
    for name in names:
        part = attrgetter(name)(model)
        if isinstance(part, torch.optim.Optimizer):
            steps.append(_prepare_optimizer(name, part, checkpoint))
        else:
            steps.append(_prepare_module(name, part, checkpoint))
    values = checkpoint.tensors("variables")
    for name in variables or ():
        value = attrgetter(name)(model)
        if (value is None) != (name not in values):
            raise misfit(checkpoint, f"{name} is {'only there' if value is None else 'not there'}")
        if value is not None:
            _same(checkpoint, name, values[name], to_array(value))
    noises, matrices = _exploration_noise(model), checkpoint.tensors("exploration")

    def take_over() -> None:
        for step in steps:
            step()
        for name, array in values.items():
            attrgetter(name)(model).data.copy_(to_tensor(array))
        for owner, noise in noises.items():
            for field in _EXPLORATION:
                if f"{owner}.{field}" in matrices:
                    setattr(noise, field, to_tensor(matrices[f"{owner}.{field}"]).to(model.device))

    return take_over


def misfit(checkpoint: SavedState, difference: str) -> BadInput:
    """Return the error for a checkpoint of something else."""
    hint = "resume with the run that wrote it, or start over in another --out"
    return BadInput(f"belongs to another run: {difference}", path=checkpoint.path, hint=hint)


def _state_dict(module: Any) -> dict[str, torch.Tensor]:
    module = getattr(module, "_orig_mod", module)  # what torch.compile wrapped
    return {name: value for name, value in module.state_dict().items() if isinstance(value, torch.Tensor)}


def _prepare_module(name: str, module: Any, checkpoint: SavedState) -> Callable[[], None]:
    own, saved = _state_dict(module), checkpoint.tensors(name)
    for key in own:
        if key not in saved:
            raise misfit(checkpoint, f"{name}.{key} is missing in it")
        _same(checkpoint, f"{name}.{key}", saved[key], to_array(own[key]))
    for key in saved:
        if key not in own:
            raise misfit(checkpoint, f"{name}.{key} is only in it")

    def take_over() -> None:
        with torch.no_grad():
            for key, tensor in own.items():
                tensor.copy_(to_tensor(saved[key]))

    return take_over


def _same(checkpoint: SavedState, name: str, saved: np.ndarray, own: np.ndarray) -> None:
    if saved.shape != own.shape or saved.dtype != own.dtype:
        raise misfit(checkpoint, f"{name} is {_form(saved)} in it, and {_form(own)} here")


def _form(array: np.ndarray) -> str:
    kind = array.dtype.names[0] if array.dtype.names else array.dtype.name
    return f"{'×'.join(map(str, array.shape)) or 'one'} {kind}"


def _optimizer_state(name: str, optimizer: torch.optim.Optimizer, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    parameters = _parameters(optimizer)
    states = {}
    for i, parameter in enumerate(parameters):
        entries: dict[str, Any] = {}
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                arrays[f"optimizer/{name}.{i}.{key}"] = to_array(value)
                entries[key] = {"on_host": value.device.type == "cpu"}
            else:
                entries[key] = {"value": take_apart(value, "optimizer", arrays)}
        if entries:
            states[str(i)] = entries
    groups = []
    for group in optimizer.param_groups:
        plain = {k: to_array(v) if isinstance(v, torch.Tensor) else v for k, v in group.items() if k not in _HOW}
        groups.append({key: take_apart(value, "optimizers", arrays) for key, value in plain.items()})
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    return {"class": type(optimizer).__name__, "sizes": sizes, "groups": groups, "states": states}


def _prepare_optimizer(name: str, optimizer: torch.optim.Optimizer, checkpoint: SavedState) -> Callable[[], None]:
    saved = checkpoint.data["optimizers"].get(name)
    if saved is None:
        raise misfit(checkpoint, f"{name} is missing in it")
    kind, sizes = type(optimizer).__name__, [len(group["params"]) for group in optimizer.param_groups]
    if saved["class"] != kind:
        raise misfit(checkpoint, f"{name} is {saved['class']} in it, and {kind} here")
    if saved["sizes"] != sizes:
        raise misfit(checkpoint, f"{name} has {saved['sizes']} parameters in it, and {sizes} here")
    tensors = checkpoint.tensors("optimizer")
    others = {f"optimizers/{key}": value for key, value in checkpoint.tensors("optimizers").items()}
    parameters = _parameters(optimizer)

    def take_over() -> None:
        for group, values in zip(optimizer.param_groups, saved["groups"], strict=True):
            for key, value in values.items():
                _set(group, key, put_together(value, others))
        optimizer.state.clear()
        for i, entries in saved["states"].items():
            parameter = parameters[int(i)]
            optimizer.state[parameter] = {
                key: put_together(entry["value"], others)
                if "value" in entry
                else to_tensor(tensors[f"{name}.{i}.{key}"]).to("cpu" if entry["on_host"] else parameter.device)
                for key, entry in entries.items()
            }

    return take_over


def _set(group: dict[str, Any], key: str, value: Any) -> None:
    if isinstance(group.get(key), torch.Tensor):  # a learning rate may be a tensor that others refer to
        group[key].copy_(torch.as_tensor(value))
    else:
        group[key] = value


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _exploration_noise(model: BaseAlgorithm) -> Mapping[str, StateDependentNoiseDistribution]:
    """Return the distributions of gSDE: their noise matrices are drawn once in a while and used until then."""
    owners = {"policy": model.policy, "actor": getattr(model, "actor", None)}
    found = {name: getattr(owner, "action_dist", None) for name, owner in owners.items()}
    return {name: dist for name, dist in found.items() if isinstance(dist, StateDependentNoiseDistribution)}
