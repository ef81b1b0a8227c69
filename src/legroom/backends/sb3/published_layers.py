"""What a features extractor publishes of its layers, known without importing it.

A workload declares layers and sizes in its entry (`model.workload`). A class may carry them as well, as
`legroom_layers(observation, **arguments)`, `legroom_sizes` and `legroom_headless`; that counts where the class is in
this process already, as in `legroom.predict(PPO, "CnnPolicy", env, policy_kwargs=...)`.
"""

from typing import Any

from legroom.environments.objects import find_loaded
from legroom.model.workload import Extractor
from legroom.named_runs import workloads


def find_extractor(name: str) -> Extractor | None:
    """Return what the extractor called `name` publishes, None where it publishes nothing."""
    for workload in workloads():
        if name in workload.extractors:
            return workload.extractors[name]
    layers, sizes = (_attribute(name, attribute) for attribute in ("legroom_layers", "legroom_sizes"))
    return None if layers is None and sizes is None else Extractor(layers, tuple(sizes or ()))


def is_headless(policy: str) -> bool:
    """Return whether a policy's Q network has no head of its own: the extractor's features are the values."""
    if ":" not in policy:
        return False
    return any(policy in workload.headless for workload in workloads()) or bool(_attribute(policy, "legroom_headless"))


def _attribute(name: str, attribute: str) -> Any:
    return getattr(find_loaded(name), attribute, None)
