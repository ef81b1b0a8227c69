"""LR075: settings of torch's CUDA allocator that come after its first use."""

from __future__ import annotations

from collections.abc import Iterable

from legroom.checking.rule_helpers import per_script
from legroom.checking.script_gpu import cuda_calls, environment_settings, is_straight
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.scopes import start
from legroom.reading.interpreter.script import Script

_KEYS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def look(script: Script) -> Iterable[Found]:
    if not script.imports("torch"):
        return
    used = next((call for call in cuda_calls(script, script.tree) if is_straight(script, call)), None)
    for key, node in environment_settings(script):
        if key in _KEYS and used is not None and start(used) < start(node):
            message = f"{key} is set after torch has used the GPU (line {used.lineno}), so it has no effect"
            yield Found(message, "set it at the top, before the first tensor is on the GPU", node.lineno)


RULE = Rule(
    code="LR075",
    name="alloc-conf-too-late",
    severity="warning",
    what="PYTORCH_CUDA_ALLOC_CONF is set after the first tensor is on the GPU.",
    why="torch reads it once, when its CUDA allocator is first used. Later changes of os.environ do nothing.",
    example='net = Net().cuda()\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n',
    remedy="Set it first thing in the script, or in the shell.",
    look=per_script(look),
)
