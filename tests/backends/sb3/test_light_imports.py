"""The tracing child does not import torch's compiler or sympy, and still has them where something asks for more."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

BEGIN = """
import sys
from legroom.backends.sb3.light_imports import import_lightly
import_lightly()
import torch
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_a_step_of_an_optimizer_imports_neither_the_compiler_nor_sympy() -> None:
    code = """
layer = torch.nn.Linear(3, 2, device="meta")
optimizer = torch.optim.Adam(layer.parameters())
layer(torch.empty(5, 3, device="meta")).exp().mean().backward()
optimizer.step()
print(*(f"{name}.core" in sys.modules for name in ("sympy",)), "torch._dynamo.convert_frame" in sys.modules)
"""
    assert run(code) == "False False"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import torch._dynamo.config as c; print(c.cache_size_limit > 0)", "True"),
        ("from torch._dynamo import config; print(config.cache_size_limit > 0)", "True"),
        ("import sympy; print(sympy.Integer(2) + 3)", "5"),
        ("from sympy.core import Integer; print(Integer(2) + 3)", "5"),
        ("from torch.fx.experimental.symbolic_shapes import ShapeEnv; print(ShapeEnv.__name__)", "ShapeEnv"),
        ("print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item())", "2.0"),
        ("@torch._dynamo.disable(recursive=False)\ndef f(x): return x\nprint(f(3))", "3"),
    ],
)  # fmt: skip
def test_what_else_is_asked_of_them_is_answered_by_the_real_ones(code: str, said: str) -> None:
    assert run(code) == said
