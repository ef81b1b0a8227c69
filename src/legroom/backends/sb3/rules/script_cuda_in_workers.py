"""LR061: CUDA tensors made by environments that run in worker processes."""

from collections.abc import Iterable

from legroom.backends.sb3.script_envs import worker_classes
from legroom.checking.rule_helpers import per_script
from legroom.checking.script_gpu import cuda_calls
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script, each_function


def look(script: Script) -> Iterable[Found]:
    said: set[int] = set()
    for call, other, cls in worker_classes(script):
        if id(cls) in said or not other.imports("torch"):
            continue
        uses = (call for method in each_function(cls) for call in cuda_calls(other, method, perhaps=True))
        for place in uses:
            said.add(id(cls))
            where = "" if other.path == script.path else f" ({other.name}, line {place.lineno})"
            yield Found(
                f"{cls.name} runs in worker processes and puts tensors on the GPU{where}: each worker creates its own "
                "CUDA context, 300–500 MB of GPU memory",
                "keep environments on the CPU and return NumPy arrays",
                place.lineno if other.path == script.path else call.lineno,
            )
            break


RULE = Rule(
    code="LR061",
    name="cuda-in-workers",
    severity="warning",
    what="An environment that runs in worker processes creates tensors on the GPU.",
    why=(
        "A CUDA context costs 300 to 500 MB of GPU memory per process, outside torch's allocator, and with fork CUDA "
        "cannot be used in a worker at all."
    ),
    example='class Arm(gym.Env):\n    def reset(self, **kwargs):\n        self.state = torch.zeros(7, device="cuda")\n',
    remedy="Compute on the CPU in workers; batch what needs the GPU in the main process.",
    look=per_script(look),
)
