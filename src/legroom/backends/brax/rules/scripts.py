"""What brax refuses, or does unasked, in scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from legroom.backends.brax.constraints import nearest_minibatches
from legroom.backends.brax.script_calls import brax_calls
from legroom.backends.sb3.script_envs import worker_classes
from legroom.checking.rule_helpers import script_rule
from legroom.checking.script_gpu import cuda_calls, environment_settings, is_straight
from legroom.model.rule import Fix, Found
from legroom.reading.interpreter.known_values import number_of
from legroom.reading.interpreter.scopes import start
from legroom.reading.interpreter.script import Definition, Script, argument
from legroom.reading.source import walk


@script_rule("LR002")
def divisibility(script: Script) -> Iterable[Found]:
    """Brax PPO's assertion about batch_size, num_minibatches and num_envs."""
    for train in brax_calls(script):
        if train.algorithm != "PPO":
            continue
        batch, minibatches = train.count(script, "batch_size"), train.count(script, "num_minibatches")
        envs = train.count(script, "num_envs")
        if not batch or not minibatches or not envs or batch * minibatches % envs == 0:
            continue
        better = nearest_minibatches(batch, minibatches, envs)
        place = train.given.get("num_minibatches")
        yield Found(
            f"brax PPO asserts batch_size × num_minibatches % num_envs == 0; here {batch} × {minibatches} = "
            f"{batch * minibatches} is not a multiple of {envs}",
            f"num_minibatches={better} gives {batch} × {better} = {batch * better}",
            place.lineno if place is not None else train.call.lineno,
            fix=_fix(script, train.call, place, better),
        )


def _fix(script: Script, call: ast.Call, place: ast.expr | None, better: int) -> Fix | None:
    written = place is not None and any(place is k.value for k in call.keywords)
    if not (written and isinstance(place, ast.Constant) and place.lineno == place.end_lineno):
        return None
    line = place.lineno
    column, end = script.column(line, place.col_offset), script.column(line, place.end_col_offset or 0)
    return Fix(f"num_minibatches={better}", line, column, line, end, str(better))


_SETTINGS = re.compile(r"XLA_PYTHON_CLIENT_|JAX_PLATFORM|jax_platform|XLA_CLIENT_MEM_FRACTION|CUDA_VISIBLE_DEVICES")
_JAX = ("jax", "brax", "flax", "mujoco.mjx")
# calls that start JAX's GPU backend, which reads the environment then and only then
_STARTS = re.compile(r"jax\.(devices|local_devices|device_count|local_device_count|device_put|default_backend"
                     r"|random\.(PRNGKey|key)|numpy\.(zeros|ones|array|arange|asarray|full))$")  # fmt: skip
_POOL_METHODS = ("map", "starmap", "imap", "imap_unordered", "apply_async", "submit")
_HINT = 'os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" before JAX is first used'


@script_rule("LR062")
def xla_preallocation(script: Script) -> Iterable[Found]:
    """JAX takes three quarters of the GPU for itself, also when others need it."""
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


DEFAULT_EVAL_ENVS = 128  # num_eval_envs in brax 0.14.2, PPO and SAC alike


@script_rule("LR072")
def default_eval_envs(script: Script) -> Iterable[Found]:
    """Brax evaluates on 128 environments unless told otherwise."""
    for train in brax_calls(script):
        envs = train.count(script, "num_envs")
        off = train.given.get("run_evals")
        if isinstance(off, ast.Constant) and off.value is False:
            continue
        if train.complete and "num_eval_envs" not in train.given and envs is not None and envs < DEFAULT_EVAL_ENVS:
            yield Found(
                f"brax evaluates on {DEFAULT_EVAL_ENVS} environments by default, more than the {envs} it trains on",
                f"num_eval_envs={envs}", train.call.lineno,
            )  # fmt: skip


USUAL = 1_000_000  # transitions: what people give for max_replay_size


@script_rule("LR073")
def sac_replay(script: Script) -> Iterable[Found]:
    """Brax SAC's replay buffer is as large as the training is long, unless told otherwise."""
    for train in brax_calls(script):
        if train.algorithm == "SAC" and train.complete and "max_replay_size" not in train.given:
            total = train.count(script, "num_timesteps")
            if total is not None and total <= USUAL:
                continue
            rows = f"{total:,} transitions (num_timesteps)" if total is not None else "num_timesteps transitions"
            yield Found(
                f"brax SAC keeps {rows} in GPU memory, since max_replay_size is not given",
                f"max_replay_size={USUAL:_}", train.call.lineno,
            )  # fmt: skip
