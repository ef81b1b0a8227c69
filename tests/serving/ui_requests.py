"""Requests as nobody should send them: bad JSON, wrong types, deep, huge, foreign, mistyped and mangled.

Each is bytes for a socket, so that also what no HTTP library would send can be sent. Seeded: the same list every time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

POSTS = (
    "/api/predict", "/api/plan", "/api/fit", "/api/check", "/api/file", "/api/read", "/api/trace",
)  # fmt: skip
GETS = ("/", "/api/start", "/api/run?name=mine:small", "/api/folders", "/api/follow?folder=x", "/api/trace?job=1")
GOOD: dict[str, Any] = {
    "algo": "PPO",
    "env": {"id": "CartPole-v1", "n_envs": 4, "workers": "subproc"},
    "hyperparams": {"n_steps": 256, "batch_size": 64},
    "memory": {"micro_batch": 16},
}
NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    -1e-300,
    2**63,
    2**200,
    "",
    "x" * 5000,
    "\x00",
    "${7*7}",
    "../../etc/passwd",
    [],
    [[]],
    {},
    {"a": {"b": []}},
    ["1", 2, None],
    "NaN",
    "1e999",
    "__import__('os').system('id')",
    "\ud83d\ude00",
    "<script>",
    1.5,
)
PATHS = (
    "/../../../../etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/static/../app.py",
    "//etc/passwd",
    "/planner.js/../../app.py",
    "/api/run?name=../../../../etc/passwd",
    "/api/run?name=/etc/passwd",
    "/api/run?name=%00",
    "/api/follow?folder=/etc",
    "/api/follow?folder=..%2f..",
    "/api/follow?folder=%00",
    "/api/trace?job=-1",
    "/api/trace?job=99999999999999999999",
    "/api/run",
    "/api",
    "/api/",
    "/index.html",
    "/.git/config",
    "/serving/app.py",
    "/page.css?x=" + "y" * 4000,
    "/%ff%fe",
    "/family.css/",
    "/api/predict/",
    "/favicon.ico",
    "/robots.txt",
)
ALGORITHMS = ("PPO", "A2C", "DQN", "SAC", "TD3", "MaskablePPO", "RecurrentPPO", "QRDQN", "TQC", "TRPO", "ARS", "CrossQ")
HOSTS = (
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1",
    "127.0.0.1:1",
    "localhost.evil.example:{port}",
    "",
    "[::1",
    "a b",
    "127.0.0.1.nip.example:{port}",
    "0x7f.1:{port}",
    "127.0.0.1:{port}@evil.example",
    "LOCALHOST:{port}:{port}",
)
ORIGINS = (
    "http://evil.example",
    "null",
    "http://127.0.0.1",
    "https://127.0.0.1:{port}",
    "http://localhost.evil:{port}",
    "file://",
)


def malformed(count: int, port: int, seed: int = 7) -> Iterator[tuple[str, bytes]]:
    """Yield `count` requests, each with what is wrong with it."""
    chance = random.Random(seed)
    kinds: tuple[Callable[[random.Random, int], bytes], ...] = (
        _bad_json,
        _wrong_type,
        _not_numbers,
        _deep,
        _huge,
        _bad_path,
        _bad_host,
        _bad_origin,
        _bad_method,
        _bad_encoding,
        _mangled_run,
        _lying_length,
        _bad_yaml,
        _extreme,
    )
    for number in range(count):
        kind = kinds[number % len(kinds)]
        yield kind.__name__.strip("_").replace("_", " "), kind(chance, port)


def request(method: str, path: str, port: int, body: bytes = b"", *, host: str | None = None, more: str = "") -> bytes:
    where = f"127.0.0.1:{port}" if host is None else host
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {where}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    )
    return head.encode("latin-1", "replace") + body


def _post(chance: random.Random, port: int, body: bytes, **more: Any) -> bytes:
    return request("POST", chance.choice(POSTS), port, body, **more)


def _bad_json(chance: random.Random, port: int) -> bytes:
    text = bytearray(json.dumps({"run": GOOD, "runs": [GOOD], **GOOD}).encode())
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(text))
        if chance.random() < 0.5:
            del text[at]
        else:
            text[at] = chance.randrange(256)
    return _post(chance, port, bytes(text[: chance.randint(1, len(text))]))


def _wrong_type(chance: random.Random, port: int) -> bytes:
    body = chance.choice(NASTY)
    if chance.random() < 0.7:
        body = {key: chance.choice(NASTY) for key in ("run", "runs", "name", "text", "ram", "gpu", "allow", "active")}
    return _post(chance, port, json.dumps(body).encode("utf-8", "surrogatepass"))


def _not_numbers(chance: random.Random, port: int) -> bytes:
    text = json.dumps(GOOD).replace(
        "256", chance.choice(("NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "0x10", "1_0"))
    )
    return _post(chance, port, f'{{"run": {text}, "runs": [{text}]}}'.encode())


def _deep(chance: random.Random, port: int) -> bytes:
    depth = chance.choice((45, 500, 20_000, 100_000))
    opening, closing = chance.choice((("[", "]"), ('{"a":', "}")))
    return _post(chance, port, (opening * depth + "1" + closing * depth)[: 250 * 1024].encode())


def _huge(chance: random.Random, port: int) -> bytes:
    body = b'{"run": "' + b"x" * chance.choice((263_000, 400_000, 1_000_000)) + b'"}'
    return _post(chance, port, body)


def _bad_path(chance: random.Random, port: int) -> bytes:
    return request(chance.choice(("GET", "POST", "HEAD")), chance.choice(PATHS), port)


def _bad_host(chance: random.Random, port: int) -> bytes:
    host = chance.choice(HOSTS).format(port=port)
    return request("GET", chance.choice(GETS), port, host=host)


def _bad_origin(chance: random.Random, port: int) -> bytes:
    origin = chance.choice(ORIGINS).format(port=port)
    return _post(chance, port, json.dumps({"run": GOOD, "runs": [GOOD]}).encode(), more=f"Origin: {origin}\r\n")


def _bad_method(chance: random.Random, port: int) -> bytes:
    method = chance.choice(("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "GET", "X" * 300))
    return request(method, chance.choice(POSTS if method == "GET" else (*POSTS, *GETS)), port)


def _bad_encoding(chance: random.Random, port: int) -> bytes:
    text = json.dumps({"run": GOOD, "runs": [GOOD], **GOOD})
    body = chance.choice(
        (
            text.encode("utf-16"),
            text.encode("utf-32"),
            b"\xff\xfe\x00",
            bytes(chance.randbytes(200)),
            text.encode() + b"\x80",
            b"",
            b"\x00" * 50,
        )
    )
    return _post(chance, port, body, more=chance.choice(("", "Content-Type: text/plain; charset=utf-7\r\n")))


def _mangled_run(chance: random.Random, port: int) -> bytes:
    run = json.loads(json.dumps(GOOD))
    for _ in range(chance.randint(1, 3)):
        part = chance.choice(("", "env", "hyperparams", "memory", "policy", "eval", "checkpoint"))
        inside = run.setdefault(part, {}) if part else run
        if not isinstance(inside, dict):
            continue
        names = [
            *inside,
            "n_envs",
            "n_steps",
            "batch_size",
            "spaces",
            "kwargs",
            "net_arch",
            "algo",
            "backend",
            "source",
            "name",
            "wrappers",
            "features_extractor",
            "grid",
            "seed",
            "buffer_size",
            "unknown key",
        ]
        inside[chance.choice(names)] = deepcopy(chance.choice(NASTY))  # which the next round may write into
    more = {"ram": chance.choice(NASTY), "reserve": chance.choice(NASTY)} if chance.random() < 0.3 else {}
    path = chance.choice(POSTS)
    body = run if path == "/api/predict" else {"run": run, "runs": [run], **more}
    return request("POST", path, port, json.dumps(body).encode("utf-8", "surrogatepass"))


def _extreme(chance: random.Random, port: int) -> bytes:
    """A run that reads well, with numbers that no machine could hold."""
    number = lambda: chance.choice((1, 2, 3, 7, 1000, 10**6, 10**9, 10**12, 2**62, 2**63 - 1))  # noqa: E731
    brax = chance.random() < 0.3
    algo = chance.choice(("PPO", "SAC")) if brax else chance.choice(ALGORITHMS)
    space = {"type": "box", "shape": [number() for _ in range(chance.randint(1, 4))], "dtype": "float32"}
    action = {"type": "box", "shape": [chance.choice((1, 4, 1000))]}
    env = {"id": "some.package:Env", "n_envs": number(), "spaces": {"observation": space, "action": action}}
    names = ("unroll_length", "num_minibatches") if brax else ("n_steps",)
    run = {
        "algo": algo,
        "backend": "brax" if brax else "sb3",
        "env": env,
        "hyperparams": {name: number() for name in (*names, "batch_size")},
        "memory": {"micro_batch": number()},
    }
    if not brax:
        env |= {"workers": chance.choice(("dummy", "subproc", "light")), "envs_per_worker": number()}
        run["policy"] = {"name": "MlpPolicy", "kwargs": {"net_arch": [number() for _ in range(chance.randint(1, 50))]}}
    path = chance.choice(POSTS)
    return request(
        "POST", path, port, json.dumps(run if path == "/api/predict" else {"run": run, "runs": [run]}).encode()
    )


def _lying_length(chance: random.Random, port: int) -> bytes:
    length = chance.choice(("-1", "abc", "99999999999", "1, 2", "0", "3", " ", "+5"))
    head = f"POST {chance.choice(POSTS)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + json.dumps(GOOD).encode()


def _bad_yaml(chance: random.Random, port: int) -> bytes:
    text = chance.choice(
        (
            "!!python/object/apply:os.system ['id']",
            "a: &a [*a]",
            "a: &x [1,1]\nb: [*x,*x]\n" * 3,
            "- - - -",
            "%YAML 9",
            "\t- a",
            "algo: PPO\nenv: {id: !!python/name:os.system}",
            "{" * 200,
            "algo: PPO\nalgo: A2C\nenv: CartPole-v1",
            "\ufeff",
            "algo: [",
        )
    )
    name = chance.choice(
        ("run.yaml", "../../etc/passwd.yaml", "x.json", "train.py", "a\x00.yml", "", "ppo.yml", "C:\\run.yaml")
    )
    return request("POST", "/api/read", port, json.dumps({"name": name, "text": text}).encode("utf-8", "surrogatepass"))
