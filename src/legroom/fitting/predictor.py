"""Predictions of many variants of one run, each obtained as cheaply as its difference allows.

By arithmetic a variant takes half a millisecond. Traced, it takes seconds, of which most are the start of a process
that imports torch: so variants that differ only in what the networks do not see share a trace, and those that need
traces of their own are asked for together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace

from legroom.backends.sb3.bill.net_arithmetic import estimate_net
from legroom.model.evidence import Evidence
from legroom.model.footprint import Footprint
from legroom.model.machine import Machine
from legroom.model.run import EnvSpec, MemorySpec, Run
from legroom.predicting.predict import DeviceName, Mode, add_up, gather, gather_all


class Predictor:
    """Predicts variants of a run on one machine; what was learned of its environment holds for all of them."""

    def __init__(
        self,
        run: Run,
        machine: Machine,
        *,
        mode: Mode = "auto",
        device: DeviceName | None = None,
        probe_env: bool,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.mode = mode
        self.run, evidence = gather(run, machine, mode=mode, device=device, probe_env=probe_env, progress=progress)
        self._first = evidence
        self._by_net: dict[str, Evidence] = {_net_key(self.run): evidence}
        self._footprints: dict[str, Footprint] = {}

    @property
    def device(self) -> DeviceName:
        return self._first.device

    def by_arithmetic(self) -> Predictor:
        """Return one that knows the same of the environment and estimates the networks: rougher, and a thousandfold
        quicker."""
        rough = copy.copy(self)
        rough.mode, rough._footprints = "arithmetic", {}
        return rough

    def footprint(self, run: Run) -> Footprint:
        """Return what this variant needs."""
        key = repr(run)
        if key not in self._footprints:
            self._footprints[key] = add_up(run, self.evidence(run))
        return self._footprints[key]

    def evidence(self, run: Run) -> Evidence:
        """Return what is known of this variant."""
        if run.backend == "brax":  # what the compiler said about it holds for every setting, and is in the cache
            return self._first
        if self.mode == "arithmetic":
            return replace(self._first, net=estimate_net(run, self.device))
        self.prepare([run])
        return self._by_net[_net_key(run)]

    def prepare(self, runs: Iterable[Run]) -> None:
        """Trace what of these runs is not traced yet, in one go."""
        if self.mode == "arithmetic" or self.run.backend == "brax":
            return
        wanted = {_net_key(run): run for run in runs}
        missing = [run for key, run in wanted.items() if key not in self._by_net]
        if not missing:
            return
        first = self._first
        for run, (_, found) in zip(
            missing,
            gather_all(missing, first.machine, mode=self.mode, device=self.device),
            strict=True,
        ):
            seen = {"env_nbytes": first.env_nbytes, "lean": first.lean}
            notes = tuple(dict.fromkeys((*first.notes, *found.notes)))
            self._by_net[_net_key(run)] = replace(found, **seen, notes=notes)  # type: ignore[arg-type]


# What of `memory` the update's tensors depend on; the rest is about storage, processes and the allocator.
_SEEN_BY_NETS = ("micro_batch", "activation_checkpointing", "foreach", "bf16")
_SEEN_OF_ENV = ("n_envs", "spaces", "frame_stack", "normalize")


def _net_key(run: Run) -> str:
    """Return a key that variants share whose networks and updates are the same."""
    env = EnvSpec(**{name: getattr(run.env, name) for name in _SEEN_OF_ENV})
    memory = MemorySpec(**{name: getattr(run.memory, name) for name in _SEEN_BY_NETS})
    hyperparams = {key: value for key, value in run.hyperparams.items() if key != "buffer_size"}
    return repr((run.algo, run.policy, env, memory, hyperparams, run.device))
