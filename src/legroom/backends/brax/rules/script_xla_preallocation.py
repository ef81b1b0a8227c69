"""LR062: JAX takes three quarters of the GPU for itself, also when others need it."""

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.backends.sb3.script_envs import worker_classes
from legroom.checking.rule_helpers import per_script
from legroom.checking.script_gpu import cuda_calls, environment_settings, is_straight
from legroom.model.rule import Found, Rule
from legroom.reading.interpreter.asker import number_of
from legroom.reading.interpreter.scopes import start
from legroom.reading.interpreter.script import Definition, Script, argument
from legroom.reading.source import walk

_SETTINGS = re.compile(r"XLA_PYTHON_CLIENT_|JAX_PLATFORM|jax_platform|XLA_CLIENT_MEM_FRACTION|CUDA_VISIBLE_DEVICES")
_JAX = ("jax", "brax", "flax", "mujoco.mjx")
# calls that start JAX's GPU backend, which reads the environment then and only then
_STARTS = re.compile(r"jax\.(devices|local_devices|device_count|local_device_count|device_put|default_backend"
                     r"|random\.(PRNGKey|key)|numpy\.(zeros|ones|array|arange|asarray|full))$")  # fmt: skip
_POOL_METHODS = ("map", "starmap", "imap", "imap_unordered", "apply_async", "submit")
_HINT = 'os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" before JAX is first used'


def look(script: Script) -> Iterable[Found]:
    if not any(script.imports(package) for package in _JAX):
        return
    yield from _too_late(script)
    if any(_SETTINGS.search(text) for text in (*(s.text for s in script.followed), *script.importers)):
        return
    process = next(_processes(script), None)
    if process is not None:
        yield Found(
            "several processes use JAX, and each takes 75 % of the GPU when it starts",
            f'{_HINT}, or XLA_PYTHON_CLIENT_MEM_FRACTION per process', process.lineno,
        )  # fmt: skip
        return
    place = next(cuda_calls(script, script.tree), None) if script.imports("torch") else None
    if place is not None and _uses_jax(script, script.tree):
        yield Found("JAX takes 75 % of the GPU when it starts, and torch uses the same GPU", _HINT, place.lineno)


def _too_late(script: Script) -> Iterator[Found]:
    """XLA_PYTHON_CLIENT_* that is set, in the same straight line of code, after JAX has started its backend."""
    calls = (call for call in script.calls if _STARTS.match(script.qualified(call.func) or ""))
    started = next((call for call in calls if is_straight(script, call)), None)
    for key, node in environment_settings(script):
        if key.startswith("XLA_PYTHON_CLIENT_") and started is not None and start(started) < start(node):
            message = f"{key} is set after JAX has started (line {started.lineno}), so it has no effect"
            yield Found(message, "set it before the first use of JAX", node.lineno)


def _processes(script: Script) -> Iterator[ast.Call]:
    """Yield calls that start processes whose code uses JAX."""
    for call in script.calls:
        definition = script.definition(_work(script, call))
        if definition is not None and _uses_jax(*definition):
            yield call
    for call, other, cls in worker_classes(script):
        if _uses_jax(other, cls):
            yield call
    for node in script.nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and _uses_jax(script, node):
            yield from (d for d in node.decorator_list if isinstance(d, ast.Call) and _shares_gpu(script, d))


def _work(script: Script, call: ast.Call) -> ast.expr | None:
    """Return the function that the call has several processes run; None where it starts no processes."""
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else (script.qualified(function) or "").rpartition(".")[2]
    )
    if name == "Process" and (script.imports("multiprocessing") or script.imports("torch.multiprocessing")):
        return argument(call, "target", 1) if _repeated(script, call) else None
    return call.args[0] if name in _POOL_METHODS and call.args and _is_pool(script, call) else None


def _shares_gpu(script: Script, decorator: ast.Call) -> bool:
    """Return whether it is `ray.remote(num_gpus=0.25)`: Ray puts several of those on one GPU."""
    share = number_of(script, argument(decorator, "num_gpus"))
    return script.qualified(decorator.func) == "ray.remote" and share is not None and 0 < share < 1


def _repeated(script: Script, call: ast.Call) -> bool:
    around = script.scopes.ancestors(call)
    return any(isinstance(a, ast.For | ast.While | ast.ListComp | ast.GeneratorExp) for a in around)


def _is_pool(script: Script, call: ast.Call) -> bool:
    """Return whether the method is called on a pool of processes that the script makes by name."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    for binding in script.scopes.reaching(owner) if isinstance(owner, ast.Name) else ():
        match binding.value:
            case ast.Call(func=ast.Attribute(attr="ProcessPoolExecutor") | ast.Name(id="ProcessPoolExecutor")):
                return True
            case ast.Call(func=(ast.Attribute(attr="Pool") | ast.Name(id="Pool")) as pool):
                if not re.search("thread|dummy", script.qualified(pool) or ""):
                    return True
    return False


def _uses_jax(script: Script, node: ast.AST | Definition) -> bool:
    """Return whether the code calls something of JAX that computes."""
    for part in walk(node):
        if isinstance(part, ast.Call):
            name = script.qualified(part.func) or ""
            if name.startswith(("jax.numpy.", "jax.random.", "jax.lax.", "brax.envs.", "brax.training.", "jax.device")):
                return True
    return False


RULE = Rule(
    code="LR062",
    name="xla-preallocation",
    severity="warning",
    what="JAX shares a GPU with other processes or with torch, and its preallocation is on.",
    why=(
        "JAX reserves 75 % of the GPU's memory when its backend starts. A second process, or torch, then finds a "
        "quarter of the GPU and fails with out of memory although little is in use."
    ),
    example="import jax, torch\nkey = jax.random.PRNGKey(0)\nnet = Net().cuda()\n",
    remedy='os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" at the top, before JAX is first used.',
    look=per_script(look),
)
