"""A callback that puts predicted and measured memory beside the learning curves in SB3's logger.

`MemoryCallback` never breaks or slows a training run: what cannot be predicted or measured is left out (with one
warning for the prediction), and the process tree is read at most every few seconds, because an off-policy algorithm
ends a "rollout" every few steps.

Host memory is the sum of PSS over this process and all below it, so SubprocVecEnv's workers are in. The peak falls
into the update, where no callback is called; the kernel's own high-water mark (VmHWM) of this process fills that gap.

All figures are MB of 1,000,000 bytes, as the names say.
"""

import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback

import legroom
from legroom.machine.tree import process_memory, tree_memory
from legroom.model.footprint import Footprint
from legroom.trackers import Trackers

MB = 1_000_000
EVERY_S = 5.0


class MemoryCallback(BaseCallback):
    """Logs `memory/host_mb`, `memory/host_peak_mb`, `memory/predicted_host_mb` and, on a GPU, `memory/gpu_*`.

    They go to SB3's logger, and to W&B and MLflow where the program has a run of theirs.

    Args:
        every_s: seconds between two measurements; in between the last one is logged again.
        predict: makes the prediction from the model, `legroom.predict_model` if not given; None from it means none.
        verbose: as in every callback of SB3.

    Example:
        >>> import legroom
        >>> from stable_baselines3 import PPO
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=1)
        >>> _ = model.learn(64, callback=legroom.MemoryCallback(predict=lambda model: None))
        >>> model.num_timesteps
        64
    """

    def __init__(
        self,
        every_s: float = EVERY_S,
        *,
        predict: Callable[[Any], Footprint | None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.every_s = every_s
        self.prediction: Footprint | None = None
        self.host_nbytes = 0
        self.host_peak_nbytes = 0
        self._predict = predict
        self._measured_at: float | None = None
        self._new = False  # measured since trackers were last told
        self._trackers = Trackers()
        self._earlier_rss_peak = 0  # reached before training, by loading data for instance

    def _on_training_start(self) -> None:
        if self.prediction is None:
            self.prediction = self._predict_once()
        own = process_memory("self")
        self._earlier_rss_peak = own.rss_peak if own is not None else 0
        self._measure()

    def _on_rollout_end(self) -> None:
        if self._measured_at is None or time.monotonic() - self._measured_at >= self.every_s:
            self._measure()
        self._log()

    def _on_training_end(self) -> None:
        self._measure()
        self._log()

    def _on_step(self) -> bool:
        return True

    def _predict_once(self) -> Footprint | None:
        try:
            # by attribute and not by import: the package stands above this module and may still be loading it
            return (self._predict or legroom.predict_model)(self.model)
        except Exception as error:  # training goes on whatever a prediction runs into
            warnings.warn(f"legroom: no memory prediction: {type(error).__name__}: {error}", stacklevel=2)
            return None

    def _measure(self) -> None:
        self._measured_at, self._new = time.monotonic(), True
        tree = tree_memory(os.getpid())
        own = tree.processes.get(os.getpid())
        if own is None:
            return  # not Linux, or /proc is hidden
        self.host_nbytes = tree.pss
        # What this process had at its highest beyond what it has now; only if training itself went that high.
        beyond = own.rss_peak - own.rss if own.rss_peak > self._earlier_rss_peak else 0
        self.host_peak_nbytes = max(self.host_peak_nbytes, tree.pss + max(beyond, 0))

    def _log(self) -> None:
        figures: dict[str, float] = {}
        if self.host_nbytes:
            figures |= {"host_mb": self.host_nbytes, "host_peak_mb": self.host_peak_nbytes}
        if self.prediction is not None:
            figures["predicted_host_mb"] = self.prediction.host.nbytes
            if self.prediction.gpu is not None:
                figures["predicted_gpu_mb"] = self.prediction.gpu.nbytes
        device = torch.device(self.model.device)
        if device.type == "cuda":
            figures |= _gpu_figures(device)
        told = {f"memory/{name}": round(nbytes / MB, 1) for name, nbytes in figures.items()}
        for name, value in told.items():
            self.logger.record(name, value)
        if self._new:
            self._new = False
            self._trackers.log(told, self.num_timesteps)


def _gpu_figures(device: torch.device) -> dict[str, float]:
    """Return what the caching allocator holds now and held at most; the CUDA context is outside of it."""
    return {
        "gpu_allocated_mb": torch.cuda.memory_allocated(device),
        "gpu_reserved_mb": torch.cuda.memory_reserved(device),
        "gpu_peak_allocated_mb": torch.cuda.max_memory_allocated(device),
        "gpu_peak_reserved_mb": torch.cuda.max_memory_reserved(device),
    }
