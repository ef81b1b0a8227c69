"""`torch.autocast` and `GradScaler` on the meta device, as on a GPU or a CPU.

Autocast is a layer of PyTorch's dispatcher that looks at a tensor's device, and knows no meta device. While
`autocast_as_on_card` lasts, the context managers keep PyTorch's own state as they do on the device that is meant, and
operators of meta tensors cast their arguments as that state says: weights once per outermost block, other tensors at
every use. The casts are ordinary operators above autograd, which follows them. For a CPU the lists go as far as
networks use them; a test holds them against the installed torch.

Mirrors aten/src/ATen/autocast_mode.h and .cpp of torch 2.14.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch.utils.checkpoint
from torch import Tensor

_KEY = "AutogradMeta"
_LOW = [
    "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d", "conv_transpose2d.input",
    "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv",
    "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "lstm_cell",
    "gru_cell", "rnn_tanh_cell", "rnn_relu_cell", "scaled_dot_product_attention",
]  # fmt: skip
_FLOAT32 = [
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt",
    "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm",
    "native_layer_norm", "group_norm", "cosine_similarity", "poisson_nll_loss", "cosine_embedding_loss",
    "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss",
    "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss",
    "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
]  # fmt: skip
# these add up in float32 by an argument, and cast nothing
_FLOAT32_RESULT = [
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList",
]  # fmt: skip
_WIDEST = [
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
]  # fmt: skip
_CPU_LOW = [
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
    "conv_tbc", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "scaled_dot_product_attention",
]  # fmt: skip
_CPU_FLOAT32 = ["prod", "prod.dim_int", "avg_pool3d", "adaptive_avg_pool3d", "quantile", "cdist"]


@contextmanager
def autocast_as_on_card(kernels: Mapping[str, Any], device: str = "cuda") -> Iterator[dict[Any, Any]]:
    """While it lasts, meta tensors are cast where `torch.autocast` would cast tensors on a card.

    Gives what casts the arguments of each operator, for inference mode, in which these kernels are not called.

    Args:
        kernels: of `operators_as_on_card`: what they do comes after the casts.
        device: "cpu" where meta tensors stand for those of a CPU.
    """
    with ExitStack() as stack:
        casts = _Casts(stack, kernels, device)
        amp: Any = torch.cuda.amp.common
        stack.enter_context(mock.patch.object(amp, "amp_definitely_not_available", lambda: False))
        stack.enter_context(mock.patch.object(torch.cuda, "is_bf16_supported", lambda *args, **kwargs: True))
        stack.enter_context(mock.patch.object(torch, "clear_autocast_cache", casts.forget))
        # a pass that is computed again (torch.utils.checkpoint) is cast as the first was
        again: Any = torch.utils.checkpoint
        kept = getattr(again, "_get_autocast_kwargs", None)
        if kept is not None:
            stack.enter_context(mock.patch.object(again, "_get_autocast_kwargs", _of_card(kept, device)))
            if hasattr(torch.amp, "is_autocast_available"):  # came with torch 2.4
                available = _of_card(torch.amp.is_autocast_available, device)
                stack.enter_context(mock.patch.object(torch.amp, "is_autocast_available", available))
        kind: Any = torch.amp.autocast_mode.autocast
        stack.enter_context(mock.patch.object(kind, "__init__", casts.on_card(kind.__init__)))
        stack.enter_context(mock.patch.object(kind, "__enter__", casts.installing(kind.__enter__)))
        yield casts.rules()


def _of_card(asked: Any, device: str) -> Any:
    """Return the function that answers for the device that is meant where the meta device is asked for."""

    def answer(device_type: str = "cuda") -> Any:
        return asked(device if device_type == "meta" else device_type)

    return answer


class _Casts:
    """The kernels that cast, put in place when a block is first entered, and the weights they have cast."""

    def __init__(self, stack: ExitStack, kernels: Mapping[str, Any], device: str) -> None:
        self._stack, self._kernels, self._installed, self._device = stack, kernels, False, device
        self._weights: dict[int, tuple[Any, Tensor]] = {}
        self._forget = torch.clear_autocast_cache

    def forget(self) -> None:
        self._weights.clear()
        self._forget()

    def on_card(self, init: Any) -> Any:
        def as_meant(block: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
            init(block, self._device if device_type == "meta" else device_type, *args, **kwargs)

        return as_meant

    def installing(self, enter: Any) -> Any:
        def enter_block(block: Any) -> Any:
            if not self._installed:
                self._installed = True
                self._install()
            return enter(block)

        return enter_block

    def _install(self) -> None:
        if not can_follow():
            return
        library = torch.library.Library("aten", "IMPL")
        self._stack.callback(library._destroy)
        for names, rule in self._lists():
            for name in names:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # those of `operators_as_on_card` stand there already
                    library.impl(name, self._kernel(name, rule), _KEY, with_keyset=True, allow_override=True)

    def _lists(self) -> tuple[tuple[list[str], Any], ...]:
        if self._device == "cpu":
            return (_CPU_LOW, self._low), (_CPU_FLOAT32, self._float32)
        return (_LOW, self._low), (_FLOAT32, self._float32), (_FLOAT32_RESULT, self._result), (_WIDEST, self._widest)

    def rules(self) -> dict[Any, Any]:
        """Return operator -> what casts its arguments."""
        return {_operator(name): rule for names, rule in self._lists() for name in names}

    def _kernel(self, name: str, rule: Any) -> Any:
        operator = _operator(name)
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), "CompositeImplicitAutograd")
        below: Any = self._kernels.get(name, operator.decompose if composite else None)
        base: Any = torch.library.get_kernel(operator, _KEY) if below is None else None

        def cast_and_call(keys: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.is_autocast_enabled(self._device):
                args, kwargs = rule(operator, args, kwargs)
            return base.call_boxed(keys, *args, **kwargs) if below is None else below(*args, **kwargs)

        return cast_and_call

    # -- what is cast --------------------------------------------------------------------------------------------

    def _low(self, operator: Any, args: Any, kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype(self._device)
        return self._cast(args, dtype), self._cast(kwargs, dtype)

    def _float32(self, operator: Any, args: Any, kwargs: Any) -> Any:
        return self._cast(args, torch.float32), self._cast(kwargs, torch.float32)

    def _result(self, operator: Any, args: Any, kwargs: Any) -> Any:
        names = [argument.name for argument in operator._schema.arguments]
        given = dict(zip(names, args)) | kwargs
        if _eligible(args[0]) and given.get("dtype") is None:
            given["dtype"] = torch.float32
        positional = [argument.name for argument in operator._schema.arguments if not argument.kwarg_only]
        last = max(i for i, name in enumerate(positional) if name in given) + 1
        defaults = {argument.name: argument.default_value for argument in operator._schema.arguments}
        args = tuple(given.pop(name, defaults[name]) for name in positional[:last])
        return args, given

    def _widest(self, operator: Any, args: Any, kwargs: Any) -> Any:
        low = torch.get_autocast_dtype(self._device)
        wide = any(t.dtype == torch.float32 for t in _tensors((args, kwargs)) if _eligible(t))
        dtype = torch.float32 if wide else low
        return self._cast(args, dtype), self._cast(kwargs, dtype)

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, Tensor):
            return self._cast_tensor(value, dtype)
        if isinstance(value, dict):
            return {key: self._cast(each, dtype) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            # the last one first: so the compiler of torch's wheels evaluates the arguments of a C++ call
            return type(value)([self._cast(each, dtype) for each in reversed(value)][::-1])
        return value

    def _cast_tensor(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        if not _eligible(tensor) or tensor.dtype == dtype:
            return tensor
        kept = (
            dtype != torch.float32 and tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf
            and not tensor._is_view() and torch.is_autocast_cache_enabled()
        )  # fmt: skip
        if not kept:
            return tensor.to(dtype)
        found = self._weights.get(id(tensor))
        if found is None or found[0]() is not tensor:
            found = self._weights[id(tensor)] = (weakref.ref(tensor), tensor.to(dtype))
        return found[1]


def can_follow() -> bool:
    """Return whether this torch lets a kernel be replaced by one that calls it: older ones do not."""
    return hasattr(torch.library, "get_kernel")


def _operator(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.device.type in ("meta", "cuda")  # a rehearsed program's show the card
        and value.is_floating_point()
        and value.dtype != torch.float64
    )


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
