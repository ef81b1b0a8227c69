"""What is fuzzed: how inputs of each target are made, and what is done with one. Only our own errors may come out."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from legroom.errors import LegroomError

TESTS = Path(__file__).parents[1]
CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """Takes bytes, so that whatever failed can be kept as a file."""

    inputs: Callable[[], st.SearchStrategy[bytes]]
    run: Callable[[bytes], None]


# -- making inputs -----------------------------------------------------------------------------------------------------


@cache
def seeds(pattern: str) -> list[bytes]:
    """Return real files of the tests and docs, none of them long."""
    files = [*TESTS.glob(pattern), *TESTS.parent.joinpath("docs").glob(pattern.rpartition("/")[2])]
    return [file.read_bytes() for file in sorted(files) if file.stat().st_size < 40_000][:120]


@st.composite
def mutated(draw: Any, originals: tuple[bytes, ...], words: tuple[bytes, ...] = ()) -> bytes:
    """One of the originals with a few pieces cut out, repeated, exchanged or put in."""
    data = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(0, 6))):
        a = draw(st.integers(0, len(data)))
        b = min(len(data), a + draw(st.integers(0, 40)))
        piece = data[a:b]
        match draw(st.integers(0, 5)):
            case 0:
                piece = b""
            case 1:
                piece *= draw(st.integers(2, 2000))
            case 2:
                piece = draw(st.binary(max_size=8))
            case 3 if words:
                piece = draw(st.sampled_from(words))
            case 4:
                other = draw(st.sampled_from(originals))
                c = draw(st.integers(0, len(other)))
                piece = other[c : c + 200]
            case _:
                piece = bytes([draw(st.integers(0, 255))]) * draw(st.sampled_from([1, 3, 500, 20_000]))
        data = (data[:a] + piece + data[b:])[:200_000]
    return data


NAMES = st.sampled_from(["a", "b", "c", "f", "g", "A", "env", "PPO", "gym", "args", "self", "n_envs", "range", "x"])
NUMBERS = st.sampled_from([
    "0", "1", "2", "-1", "7", "64", "1e6", "1e308", "10**9", "99999", "0xffff", "10**10**10", "True",
])  # fmt: skip
TEXTS = st.sampled_from(['"a"', '"CartPole-v1"', '"MlpPolicy"', "''", 'f"{a}"', '"x" * 10**9', "b'q'", "None"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    operators = st.sampled_from([
        "+", "-", "*", "/", "//", "%", "**", "<<", ">>", "|", "&", "==", "<", "in", "is", "and", "or",
    ])  # fmt: skip
    calls = st.sampled_from([
        "f", "g", "A", "len", "list", "dict", "tuple", "str", "int", "float", "round", "sum", "max", "min", "abs",
        "range", "sorted", "deepcopy", "a.get", "a.items", "a.append", "a.update", "make", "make_vec_env", "Box",
        "Discrete", "MultiDiscrete", "Dict", "Tuple", "PPO", "DQN", "SAC", "SubprocVecEnv", "VecFrameStack",
    ])  # fmt: skip
    return st.one_of(
        st.tuples(operators, two).map(lambda t: f"({t[1][0]} {t[0]} {t[1][1]})"),
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(two, max_size=3).map(lambda items: "{" + ", ".join(f"{k}: {v}" for k, v in items) + "}"),
        st.tuples(calls, st.lists(inner, max_size=4)).map(lambda t: f"{t[0]}({', '.join(t[1])})"),
        st.tuples(inner, NAMES, inner).map(lambda t: f"[{t[0]} for {t[1]} in {t[2]}]"),
        st.tuples(inner, NAMES, inner, NAMES, inner).map("[{0[0]} for {0[1]} in {0[2]} for {0[3]} in {0[4]}]".format),
        st.tuples(NAMES, inner).map(lambda t: f"(lambda {t[0]}={t[1]}: {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        two.map(lambda t: f"{t[0]}[{t[1]}]"),
        st.tuples(inner, NAMES).map(lambda t: f"({t[0]}).{t[1]}"),
        st.tuples(inner, NAMES).map(lambda t: f"PPO('MlpPolicy', {t[0]}, n_steps={t[1]}, **{t[0]})"),
        inner.map(lambda t: f"f'{{{t}}}'" if "'" not in t else t),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, NUMBERS, TEXTS), _combined, max_leaves=12)


def _statements(depth: int) -> st.SearchStrategy[str]:
    simple = st.one_of(
        st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"{t[0]} = {t[1]}"),
        st.tuples(NAMES, st.sampled_from(["+", "*", "-", "**", "<<"]), EXPRESSIONS).map("{0[0]} {0[1]}= {0[2]}".format),
        st.tuples(NAMES, NAMES).map(lambda t: f"{t[0]}.{t[1]} = {t[0]}"),
        st.tuples(NAMES, EXPRESSIONS, EXPRESSIONS).map(lambda t: f"{t[0]}[{t[1]}] = {t[2]}"),
        EXPRESSIONS,
        EXPRESSIONS.map(lambda t: f"return_ = {t}"),
        st.sampled_from(
            ["import gymnasium as gym", "from stable_baselines3 import *", "from a import b", "import train"]
        ),
    )
    many = st.tuples(simple, st.integers(2, 60)).map(lambda t: "\n".join([t[0]] * t[1]))
    if depth == 0:
        return st.one_of(simple, many)
    inner = st.lists(_statements(depth - 1), min_size=1, max_size=4).map(
        lambda lines: "\n".join(f"  {line}" for each in lines for line in each.split("\n"))
    )
    head = st.one_of(
        st.tuples(NAMES, EXPRESSIONS).map(lambda t: f"for {t[0]} in {t[1]}:"),
        EXPRESSIONS.map(lambda t: f"if {t}:"),
        EXPRESSIONS.map(lambda t: f"while {t}:"),
        st.tuples(NAMES, NAMES, EXPRESSIONS).map(lambda t: f"def {t[0]}({t[1]}={t[2]}):"),
        st.tuples(NAMES, NAMES).map(lambda t: f"class {t[0]}({t[1]}):"),
        st.just("class A(gym.Env):\n def __init__(self):"),
    )
    indented = st.tuples(head, inner).map(lambda t: f"{t[0]}\n{t[1]}")
    return st.one_of(simple, many, indented)


def python_inputs() -> st.SearchStrategy[bytes]:
    program = st.lists(_statements(2), min_size=1, max_size=12).map(
        lambda parts: (
            "from stable_baselines3 import PPO\n" + "\n".join(parts) + "\nPPO('MlpPolicy', a, n_steps=b)"
        ).encode()
    )
    real = mutated(
        tuple(seeds("checking/scripts/**/*.py") + seeds("checking/configs/*.py")), (b"round(1,-10**9)", b"[a]*9**9")
    )
    return st.one_of(program, real)


def yaml_inputs() -> st.SearchStrategy[bytes]:
    keys = st.sampled_from([
        "algo", "env", "id", "n_envs", "hyperparams", "n_steps", "batch_size", "policy", "kwargs", "net_arch",
        "legroom", "backend", "seed", "memory", "eval", "checkpoint", "spaces", "observation", "type", "shape",
        "n_timesteps", "<<",
    ])  # fmt: skip
    scalars = st.one_of(
        st.sampled_from(["PPO", "CartPole-v1", "1:1:1", "1e999", ".inf", "dict(net_arch=[64]*9**9)", "lin_0.1",
                         "!!int 3", "&a [1]", "*a", "!!python/object:os.system x", "2001-01-01", "0o7", "~",
                         "'q", "- a", "? b"]),
        st.integers().map(str), st.floats().map(str), st.text(max_size=12), EXPRESSIONS.map(json.dumps),
    )  # fmt: skip
    data = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), scalars),
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(keys, inner, max_size=5)),
        max_leaves=20,
    )
    flow = st.dictionaries(keys, data, max_size=8).map(lambda d: json.dumps(d).encode())
    block = st.lists(st.tuples(keys, scalars), max_size=8).map(lambda d: "\n".join(f"{k}: {v}" for k, v in d).encode())
    zoo = st.lists(st.tuples(keys, EXPRESSIONS), max_size=6).map(
        lambda d: ("atari:\n" + "\n".join(f"  {k}: {json.dumps(v)}" for k, v in d)).encode()
    )
    real = mutated(tuple(seeds("checking/configs/*.y*ml")), (b":1:1", b"*a", b"&a ", b"[[[[", b"<<: *a", b"9" * 500))
    return st.one_of(flow, block, zoo, real)


def explain_inputs() -> st.SearchStrategy[bytes]:
    words = (b"Killed", b"OutOfMemoryError", b"Tried to allocate ", b"GiB", b"\x1b[31m", b"9" * 400, b"(", b" " * 999)
    return mutated(tuple(seeds("explaining/texts/*.txt")), words)


@cache
def _saved() -> bytes:
    import numpy as np

    from legroom.storing.saving import write_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer"
        write_file(
            path, {"form": {"kind": "x"}, "state": {"a": np.arange(12).reshape(3, 4), "b": b"abc", "c": [1, "x"]}}
        )
        return path.read_bytes()


def storing_inputs() -> st.SearchStrategy[bytes]:
    """Damaged bytes, and descriptions that say something else with a checksum that is right."""
    from legroom.storing.saving import HEAD, MAGIC

    def signed(description: bytes) -> bytes:
        return HEAD.pack(MAGIC, len(description), hashlib.sha256(description).digest()) + description + b"\0" * 40

    length = HEAD.unpack(_saved()[: HEAD.size])[1]
    original = _saved()[HEAD.size : HEAD.size + length]
    words = (b"-1", b"1e9", b"10000000000000", b'"dtype": "O"', b"null", b"[]", b'"|V99"', b'"$part": 7', b"{" * 2000)
    empty = hashlib.sha256(b"").hexdigest()
    dtypes = st.sampled_from(["<f8", "O", "|O8", "V0", "S0", "x", "<U9", 3, None])
    crafted = st.tuples(dtypes, st.integers(-2, 2**62)).map(
        lambda t: json.dumps({
            "tree": {"$part": 0, "dtype": t[0], "shape": [t[1], 0]}, "parts": [{"bytes": t[1], "sha256": empty}],
        }).encode()
    )  # fmt: skip
    return st.one_of(mutated((_saved(),)), mutated((original,), words).map(signed), crafted.map(signed))


def page_inputs() -> st.SearchStrategy[bytes]:
    """A line of method, path and query, and a body."""
    run = b'{"algo": "PPO", "env": {"id": "CartPole-v1"}, "hyperparams": {"n_steps": 64}}'
    paths = ["/", "/api/start", "/api/run", "/api/folders", "/api/trace", "/api/follow", "/etc/passwd", "/api/",
             "/api/read", "/api/predict", "/api/plan", "/api/fit", "/api/check", "/api/file"]  # fmt: skip
    queries = st.sampled_from(
        ["", "name=mine:full", "ram=16GiB", "gpu=9", "job=1", "folder=..", "vram=1e999", "reserve=nan"]
    )
    line = st.tuples(st.sampled_from(["GET", "POST", "HEAD", "PUT", "X" * 99]), st.sampled_from(paths), queries)
    texts = st.one_of(yaml_inputs(), st.just(b"a: &a [1]")).map(
        lambda text: json.dumps({"name": "ppo.yml", "text": text.decode("utf-8", "replace")}).encode()
    )
    bodies = (run, b'{"run": ' + run + b', "ram": "1GiB"}', b'{"runs": [' + run + b'], "active": 0}')
    words = (b"[" * 500, b"9" * 300, b"1e400", b"NaN", b'"\\ud800"', b"-1", b"null", b"1e18", b'"' + b"x" * 9999 + b'"')
    return st.tuples(line, st.one_of(mutated(bodies, words), texts)).map(
        lambda t: " ".join(t[0]).encode() + b"\n" + t[1]
    )


# -- doing something with one ------------------------------------------------------------------------------------------


@cache
def _here() -> tuple[Any, Any]:
    from legroom.machine import probe
    from legroom.model.verdict import Budget

    return probe(), Budget(1 << 34, None, 0.0, "given")


def _read_and_check(name: str, data: bytes) -> None:
    from legroom.checking.check import check
    from legroom.reading import read_all

    machine, budget = _here()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        with suppress(LegroomError):
            read_all(str(path))
        with suppress(LegroomError):
            check([str(path)], machine=machine, budget=budget)


def run_explain(data: bytes) -> None:
    from legroom.explaining import explain_stream
    from legroom.rendering.explanation_text import explanation_document, explanation_json

    found = explain_stream(io.BytesIO(data))
    assert explanation_document(found) and json.loads(explanation_json(found))


def run_storing(data: bytes) -> None:
    from legroom.storing.saving import read_file

    with tempfile.TemporaryDirectory() as folder, suppress(LegroomError):
        path = Path(folder) / "buffer"
        path.write_bytes(data)
        read_file(path)


def run_page(data: bytes) -> None:
    """Ask the page itself, and work out what it would have a child work out here, where a crash is seen."""
    line, _, body = data.partition(b"\n")
    method, path, query = (*line.decode("latin-1").split(" ", 2), "", "", "")[:3]
    asyncio.run(_asked(method, path, query.encode(), body))


class _AnsweringHere:
    """In place of the page's child processes."""

    async def ask(self, path: str, query: Any, body: bytes, own: Any = None, gone: Any = None) -> Any:
        from legroom.serving.answering import response_to
        from legroom.serving.answers import answer
        from legroom.serving.asked import LocalMachine

        asked = {"path": path, "query": dict(query), "body": body.decode("utf-8", "surrogateescape")}
        told = answer(asked if own is None else asked | {"own": own}, LocalMachine())
        assert told["status"] in (200, 400, 403, 404), told
        return response_to(path, told)


async def _asked(method: str, path: str, query: bytes, body: bytes) -> None:
    from legroom.serving.app import Page
    from legroom.serving.guard import RequestGuard, ServerSettings

    settings, sent = ServerSettings(port=80), []
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query,
             "headers": [(b"host", b"localhost")], "scheme": "http", "server": ("localhost", 80)}  # fmt: skip

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    page = Page(settings)
    page._answering = _AnsweringHere()
    await RequestGuard(page, settings)(scope, receive, send)
    assert sent[0]["status"] < 500, sent


TARGETS = {
    "python": Target(python_inputs, lambda data: _read_and_check("train.py", data)),
    "yaml": Target(yaml_inputs, lambda data: _read_and_check("ppo.yml", data)),
    "explain": Target(explain_inputs, run_explain),
    "storing": Target(storing_inputs, run_storing),
    "page": Target(page_inputs, run_page),
}
