"""What a JAX program needs on a card, added up without legroom: for comparison with what `legroom predict` says.

Two steps, since a program's interpreter need not have XLA's compiler for cards:

    PROGRAM'S PYTHON bench/jax_truth.py lower FOLDER script.py [arguments]     # writes what is large, lowered for cuda
    PYTHON WITH xla-gpu bench/jax_truth.py compile FOLDER TARGET               # TARGET: text proto of the card, a file

The first replaces `jax.jit` and `jax.pmap` by functions that export what they are given, count the arrays that are live
and answer zeros where the work would take long; it ends when calls only repeat. The second compiles what was written
and prints bytes as JSON. Imports nothing of legroom and knows nothing of how it follows programs.

jax itself makes of `pmap` a `shard_map` in which the mapped axis, of size one on one card, is taken off the arguments
and put on to the results (jax/_src/pmap.py): the same is done here. A `vmap` would be another program: its products
have one dimension more, and XLA fuses them otherwise. An array and its shards (`addressable_shards[0].data`, by which
brax reads results of `pmap`) are two live arrays over the same memory, which counts once.
"""

import json
import os
import pathlib
import re
import runpy
import sys

LONG = 2e8  # estimated floating-point operations from which on a function is not run
REPEATS = 40  # calls in a row that show nothing new, after which the program is ended
CALLS = []


def exported(jax, function, args, donated, file):
    """Write the function for the card."""
    flat, tree = jax.tree_util.tree_flatten(args)

    def flattened(*leaves):
        return function(*jax.tree_util.tree_unflatten(tree, leaves))

    counts, at = [], 0
    for position, arg in enumerate(args):
        size = len(jax.tree_util.tree_leaves(arg))
        counts += range(at, at + size) if position in donated else ()
        at += size
    jitted = PLAIN["jit"](flattened, donate_argnums=tuple(counts), keep_unused=True)
    try:
        from jax import export

        platforms = {"platforms": ["cuda"]}
    except ImportError:
        from jax.experimental.export import export

        platforms = {"lowering_platforms": ["cuda"]}
    allowed = [export.DisabledSafetyCheck.custom_call(name) for name in CALLBACKS]
    try:
        found = export.export(jitted, disabled_checks=allowed, **platforms)(*flat)
    except NotImplementedError:  # callbacks of the host: without them, which hold nothing of their own on the card
        jax.debug.callback = lambda *_, **__: None
        again = PLAIN["jit"](lambda *leaves: flattened(*leaves), donate_argnums=tuple(counts), keep_unused=True)
        found = export.export(again, disabled_checks=allowed, **platforms)(*flat)
    file.write_bytes(bytes(found.mlir_module_serialized))


CALLBACKS = (
    "cu_threefry2x32",
    "cusolver_geqrf",
    "cusolver_orgqr",
    "xla_python_gpu_callback",
    "xla_ffi_python_gpu_callback",
    "xla_ffi_partitioned_python_gpu_callback",
)
PLAIN = {}


def work(jaxpr):
    """Return about how many numbers are computed."""
    total = 0
    for equation in jaxpr.eqns:
        inner = 0
        for value in equation.params.values():
            for each in value if isinstance(value, (tuple, list)) else [value]:
                each = getattr(each, "jaxpr", each)
                inner += work(each) if hasattr(each, "eqns") else 0
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * inner + sum(getattr(each.aval, "size", 1) for each in equation.outvars)
    return total


def memory(arrays):
    """Return the bytes of arrays by the address of their memory."""
    return {each.unsafe_buffer_pointer(): each.nbytes for each in arrays if not each.is_deleted()}


def on_one_card(jax, function, axis_name):
    """Return what `jax.pmap` makes of a function where there is one device."""
    import numpy as np

    try:
        from jax import shard_map

        unchecked = {"check_vma": False}
    except ImportError:
        from jax.experimental.shard_map import shard_map

        unchecked = {"check_rep": False}
    name = axis_name or "mapped"
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:1]), (name,)), jax.sharding.PartitionSpec(name)

    def of_one(*args):
        results = function(*jax.tree_util.tree_map(lambda each: jax.lax.squeeze(each, (0,)), args))
        return jax.tree_util.tree_map(lambda each: jax.lax.expand_dims(each, (0,)), results)

    of_one.__name__ = getattr(function, "__name__", "?")
    return shard_map(of_one, mesh=mesh, in_specs=spec, out_specs=spec, **unchecked)


def follow(folder):
    import jax
    import jax.numpy as jnp

    PLAIN.update(jit=jax.jit, pmap=jax.pmap)
    numbers, most, since = [], {}, [0]

    def watched(function, donated):
        ready = PLAIN["jit"](function, donate_argnums=donated)
        known = {}

        def call(*args, **kwargs):
            if kwargs or any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(args)):
                return ready(*args, **kwargs)
            leaves, tree = jax.tree_util.tree_flatten(args)
            key = tree, tuple((jnp.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
            if key not in known:
                closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
                known[key] = None
                if work(closed.jaxpr) > LONG:
                    known[key] = shape, len(numbers)
                    numbers.append(key)
                    exported(jax, function, args, donated, pathlib.Path(folder, f"{known[key][1]}.mlir"))
            if known[key] is None:
                return ready(*args)
            shape, number = known[key]
            given = memory(getattr(leaf, "_base_array", leaf) for leaf in leaves if isinstance(leaf, jax.Array))
            beside = sum(each for at, each in memory(jax.live_arrays()).items() if at not in given)
            CALLS.append({"number": number, "name": getattr(function, "__name__", "?"), "beside": beside})
            pathlib.Path(folder, "calls.json").write_text(json.dumps(CALLS))
            since[0] = 0 if beside > most.get(number, -1) else since[0] + 1
            most[number] = max(beside, most.get(number, -1))
            if since[0] >= REPEATS:
                os._exit(0)
            return jax.tree_util.tree_map(lambda each: jnp.zeros(each.shape, each.dtype), shape)

        call.lower, call.__wrapped__ = ready.lower, function
        return call

    def jit(function=None, *, donate_argnums=(), **options):
        if function is None:
            return lambda each: jit(each, donate_argnums=donate_argnums, **options)
        if set(options) - {"keep_unused"}:
            return PLAIN["jit"](function, donate_argnums=donate_argnums, **options)
        return watched(function, (donate_argnums,) if isinstance(donate_argnums, int) else tuple(donate_argnums))

    def pmap(function, axis_name=None, donate_argnums=(), **options):
        if options:
            raise NotImplementedError(f"pmap with {options}")
        return watched(on_one_card(jax, function, axis_name), tuple(donate_argnums))

    jax.jit, jax.pmap = jit, pmap


def without_libraries():
    """Have a jaxlib before 0.4.36 lower calls of CUDA's libraries, which it describes by code that it has not got."""
    import types

    import jaxlib

    if jaxlib.__version__.startswith("0.4.") and int(jaxlib.__version__.split(".")[2]) < 36:
        found = types.ModuleType("jaxlib.cuda")
        found.__path__ = []
        sys.modules["jaxlib.cuda"] = jaxlib.cuda = found
        solver = ["build_geqrf_descriptor", "build_orgqr_descriptor"]
        for name, functions in {"_prng": ["threefry2x32_descriptor"], "_solver": solver, "_blas": []}.items():
            module = types.ModuleType(f"jaxlib.cuda.{name}")
            module.registrations = dict
            for each in functions:
                setattr(module, each, (lambda *_: b"") if name == "_prng" else (lambda *_: (16_384, b"")))
            setattr(found, name, module)
            sys.modules[module.__name__] = module


def lower(folder, script, *arguments):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    os.environ["JAX_PLATFORMS"] = "cpu"
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(pathlib.Path(script).resolve().parent))
    without_libraries()
    import jax  # noqa: F401 - the program may import names from it

    follow(folder)
    runpy.run_path(script, run_name="__main__")


def planned(report):
    """Return the bytes of all that XLA lists in its report of a program: arguments, results, temporaries, constants."""
    found = re.findall(r"^Total bytes: (\d+)", report.read_text(), re.MULTILINE)
    return sum(map(int, found))


def compile_all(folder, target):
    dump = pathlib.Path(folder, "dump")
    flags = f"--xla_gpu_autotune_level=0 --xla_dump_to={dump}"
    os.environ.update(JAX_PLATFORMS="cpu", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1", XLA_FLAGS=flags)
    from jax._src import compiler, xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax
    from jax._src.lib.mlir import ir
    from jax.experimental import topologies

    canonical = xla_bridge.canonicalize_platform
    xla_bridge.canonicalize_platform = lambda name: "cuda" if name in ("cuda", "gpu") else canonical(name)
    text = pathlib.Path(target).read_text()
    device = topologies.get_topology_desc(platform="cuda", target_config=text, topology="1x1x1").devices[0]
    rows = []
    calls = json.loads(pathlib.Path(folder, "calls.json").read_text())
    for number in sorted({each["number"] for each in calls}):
        file = pathlib.Path(folder, f"{number}.mlir")
        with mlir.make_ir_context():
            module = ir.Module.parse(_jax.mlir.deserialize_portable_artifact(file.read_bytes()))
            options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
            try:
                compiler.backend_compile_and_load(device.client, module, _jax.DeviceList((device,)), options, [])
            except Exception as error:  # of code generation, after memory was planned
                print(str(error)[:200], file=sys.stderr)
        total = planned(max(dump.glob("*memory-usage-report.txt"), key=lambda file: file.stat().st_mtime))
        beside = max(each["beside"] for each in calls if each["number"] == number)
        rows.append({"number": number, "beside": beside, "own": total, "peak": beside + total})
    print(json.dumps({"peak": max(row["peak"] for row in rows), "functions": rows}))


if __name__ == "__main__":
    {"lower": lower, "compile": compile_all}[sys.argv[1]](*sys.argv[2:])
