"""LR087: an environment that keeps something of every step for ever."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from legroom.checking.boundless import growing
from legroom.checking.rule_helpers import per_script
from legroom.checking.rules.loops.transitions_kept import is_observed, is_transition
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.script import Script

_ENVIRONMENT = re.compile(r"^(gym|gymnasium)\..*(Env|Wrapper|VectorEnv|VectorWrapper)$")


def look(script: Script) -> Iterable[Found]:
    for each in growing(script):
        function = script.scopes.function_of(each.place)
        if each.owner is None or not isinstance(function, ast.FunctionDef) or function.name != "step":
            continue
        if not any(_ENVIRONMENT.match(base) for base in script.bases(each.owner)):
            continue
        if is_observed(each.item) or is_transition(each.item):
            yield Found(
                f"{each.owner.name}.step() adds to {each.name} and no reset() empties it: each of the environments "
                "grows with every step",
                f"set {each.name} = [] in reset(), or use collections.deque(maxlen=...)",
                each.line,
            )


RULE = Rule(
    code="LR087",
    name="environment-keeps-steps",
    severity="warning",
    what="An environment's step() appends observations to a list that is never emptied.",
    why="An environment lives as long as the training, and there are many of them: what each keeps of a step is kept "
    "millions of times.",
    example="def step(self, action):\n    obs = self._observe()\n    self.history.append(obs)\n",
    remedy="Empty it in reset(), or bound it.",
    look=per_script(look),
)
