"""Things by name that are imported on first use: the one way from the light core to torch, jax, ray and the like.

An entry is `name -> (module:object, extra, package)`. `load` turns a missing package into one clear line, so that no
other module needs a local import or a try/except. Our own modules that most commands do without stand here too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from legroom.errors import MissingExtra

# fmt: off
# ruff: noqa: E501
CATALOG: dict[str, tuple[str, str, str]] = {
    "predicting.with_traced_spaces": ("legroom.backends.brax.items:with_traced_spaces", "", ""),
    "predicting.runner_request": ("legroom.backends.rllib.nodes:runner_request", "", ""),
    "probing.find_gpu": ("legroom.machine.gpu_table:find_gpu", "", ""),
    "ray.read_cluster": ("legroom.cluster.nodes:read_cluster", "ray", "ray"),
    "rendering.LiveDisplay": ("legroom.rendering.live:LiveDisplay", "", ""),
    "rendering.prediction_page": ("legroom.rendering.pages.prediction_page:prediction_page", "", ""),
    "rendering.footprint_fragment": ("legroom.rendering.pages.prediction_page:footprint_fragment", "", ""),
    "rendering.plan_fragment": ("legroom.rendering.pages.plan_page:plan_fragment", "", ""),
    "rendering.training_page": ("legroom.rendering.pages.training_page:training_page", "", ""),
    "rendering.watch_page": ("legroom.rendering.pages.watch_page:watch_page", "", ""),
    "rendering.trace_fragment": ("legroom.rendering.pages.watch_page:trace_fragment", "", ""),
    "rendering.profile_page": ("legroom.rendering.pages.profile_page:profile_page", "", ""),
    "rendering.memory_chart": ("legroom.rendering.charts:memory_chart", "sb3", "matplotlib"),
    "rendering.reward_chart": ("legroom.rendering.charts:reward_chart", "sb3", "matplotlib"),
    "serving.serve": ("legroom.serving.server:serve", "ui", "uvicorn"),
    "rendering.sweep_chart": ("legroom.rendering.sweep_chart:sweep_chart", "sb3", "matplotlib"),
    "ray.run_sweep": ("legroom.sweeping.ray_sweep:run_sweep", "ray", "ray"),
    "ray.find_cluster": ("legroom.cluster.session:find_cluster", "ray", "ray"),
    "ray.TooLarge": ("legroom.sweeping.ray_sweep:TooLarge", "ray", "ray"),
    "algorithms.DoubleDQN": ("legroom.backends.sb3.algorithms.double_dqn:DoubleDQN", "sb3", "stable-baselines3"),
    "storing.lean": ("legroom.backends.sb3.lean_storage:lean", "sb3", "stable-baselines3"),
    "storing.LeanRolloutBuffer": ("legroom.backends.sb3.lean_rollout:LeanRolloutBuffer", "sb3", "stable-baselines3"),
    "storing.LeanDictRolloutBuffer": ("legroom.backends.sb3.lean_rollout:LeanDictRolloutBuffer", "sb3", "stable-baselines3"),
    "storing.LeanMaskableRolloutBuffer": ("legroom.backends.sb3.lean_maskable:LeanMaskableRolloutBuffer", "sb3", "sb3-contrib"),
    "storing.LeanMaskableDictRolloutBuffer": (
        "legroom.backends.sb3.lean_maskable:LeanMaskableDictRolloutBuffer", "sb3", "sb3-contrib",
    ),
    "storing.LeanReplayBuffer": ("legroom.backends.sb3.lean_replay:LeanReplayBuffer", "sb3", "stable-baselines3"),
    "storing.LeanDictReplayBuffer": ("legroom.backends.sb3.lean_replay:LeanDictReplayBuffer", "sb3", "stable-baselines3"),
    "sharing.LeanVecEnv": ("legroom.backends.sb3.lean_vec_env:LeanVecEnv", "sb3", "stable-baselines3"),
    "sb3.guard": ("legroom.backends.sb3.guard:guard", "sb3", "stable-baselines3"),
    "torch.survive": ("legroom.device.survive:survive", "sb3", "torch"),
    "sb3.MemoryCallback": ("legroom.backends.sb3.memory_callback:MemoryCallback", "sb3", "stable-baselines3"),
}
# fmt: on

_EXTRA_PACKAGES = {
    "torch", "gymnasium", "stable_baselines3", "sb3_contrib", "cloudpickle", "jax", "brax", "mujoco", "ray", "pyboy",
    "rasterio", "scipy", "matplotlib", "safetensors", "pynvml", "starlette", "uvicorn",
}  # fmt: skip


def load(name: str) -> Any:
    """Import and return the catalogued object.

    Raises:
        MissingExtra: its package is not installed.
    """
    target, extra, package = CATALOG[name]
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in _EXTRA_PACKAGES:
            raise
        raise MissingExtra(extra, missing.name or package, what=f"legroom's {attribute}") from missing
