"""`legroom ui` as somebody meets it who talks HTTP: the contract, the door, and how it ends."""

import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from tests.serving.ui_requests import GOOD, malformed
from tests.serving.ui_server import LEGROOM, Server, serving, start

from legroom.installing import install_command
from legroom.serving.guard import RequestGuard, ServerSettings

MOST_RSS = 70_000_000
SPY = "import pathlib, os; pathlib.Path(os.environ['SPY_FILE']).write_text('imported')\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for all that does not end it, with a package at hand that tells when somebody imports it."""
    folder = tmp_path_factory.mktemp("ui")
    (folder / "spying").mkdir()
    (folder / "spying/__init__.py").write_text(SPY)
    (folder / "spying/envs.py").write_text(SPY)
    told = folder / "told"
    with serving("mine:small", environment={"PYTHONPATH": _path(folder), "SPY_FILE": str(told)}) as found:
        yield found
        assert not told.exists(), "the server imported what a run names"


def _path(folder):
    return ":".join([str(folder), *(entry for entry in sys.path if entry)])


def _raw(server: Server, request: bytes) -> bytes:
    """Send bytes as they are and return all that comes back."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection, suppress(OSError):
        with suppress(OSError):  # it may hang up before it has read a body that is too long
            connection.sendall(request)
        while chunk := connection.recv(1 << 16):
            answer += chunk
    return answer


# -- the contract ------------------------------------------------------------


def test_predict_answers_exactly_as_the_command_does(server, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(GOOD | {"name": "mine"}))  # JSON is YAML
    printed = subprocess.run(
        [*LEGROOM, "predict", str(file), "--mode", "arithmetic", "--json", "--ram", "16GiB", "--gpu", "RTX 4070"],
        capture_output=True,
        check=True,
    ).stdout
    answer = server.ask("POST", "/api/predict?ram=16GiB&gpu=RTX%204070", GOOD | {"name": "mine"})
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    assert answer.body == printed


def test_the_page_is_served_with_headers_that_keep_scripts_and_frames_out(server):
    answer = server.ask("GET", "/")
    assert answer.status == 200 and b"<title>legroom" in answer.body
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';") and "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
    assert b"<script>" not in answer.body and b"style=" not in answer.body and b"onclick" not in answer.body


def test_named_runs_and_the_started_one_are_there(server):
    told = server.ask("GET", "/api/start").json()
    assert told["started"] == ["mine:small"]
    assert [each["name"] for each in told["workloads"]] == ["mine", "fire", "ninja", "gameboy", "robot"]
    for workload in told["workloads"]:
        for name in workload["runs"]:
            shown = server.ask("GET", f"/api/run?name={name}").json()
            answer = server.ask("POST", "/api/plan", {"runs": [shown["run"]], "gpu": "RTX 4090"})
            assert answer.status == 200, (name, answer.body)
            assert answer.json()["runs"][0]["verdict"]["words"].startswith(
                ("Fits: needs", "Does not fit:", "Unknown whether it fits:", "Invalid, ")
            )


def test_several_runs_are_drawn_side_by_side(server):
    runs = [GOOD | {"name": "small"}, GOOD | {"name": "large", "hyperparams": {"n_steps": 1 << 20, "batch_size": 64}}]
    told = server.ask("POST", "/api/plan", {"runs": runs, "active": 1, "bill": True}).json()
    assert told["host"].count('class="bar"') == 2 and told["gpu"] is None
    assert "rollout.observations" in told["bill"]


def test_fit_says_what_each_knob_buys_and_gives_a_file_that_fits(server, tmp_path):
    shown = server.ask("GET", "/api/run?name=gameboy:default").json()
    told = server.ask("POST", "/api/fit", {"run": shown["run"], "ram": "4GiB", "gpu": "RTX 4070"}).json()
    assert told["fits"] and "Fits 4.0 GiB of RAM" in told["drawn"]
    assert [turn["name"] for turn in told["knobs"]] and {turn["price"] for turn in told["knobs"]} <= {"free", "slower"}
    file = tmp_path / "fitted.yaml"
    file.write_text(told["file"])
    command = [*LEGROOM, "predict", str(file), "--mode", "arithmetic", "--ram", "4GiB", "--gpu", "RTX 4070"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0
    asked = {"runs": [told["run"]], "ram": "4GiB", "gpu": "RTX 4070"}
    (run,) = server.ask("POST", "/api/plan", asked).json()["runs"]
    assert " ".join(said.stdout.split()).startswith(run["verdict"]["words"])  # the page says what the terminal says


def test_a_dropped_file_comes_back_as_runs_and_as_yaml(server):
    text = "CartPole-v1:\n  n_envs: 8\n  policy: MlpPolicy\n  n_steps: 32\n  batch_size: 256\n"
    (shown,) = server.ask("POST", "/api/read", {"name": "ppo.yml", "text": text}).json()["runs"]
    assert (shown["name"], shown["algo"], shown["run"]["env"]["n_envs"]) == ("CartPole-v1", "PPO", 8)
    yaml = server.ask("POST", "/api/file", {"run": shown["run"]}).body.decode()
    assert "n_steps: 32" in yaml
    (again,) = server.ask("POST", "/api/read", {"name": "run.yaml", "text": yaml}).json()["runs"]
    assert again["run"]["hyperparams"] == shown["run"]["hyperparams"] and again["run"]["env"] == shown["run"]["env"]


def test_check_finds_what_the_command_finds(server):
    run = GOOD | {"hyperparams": {"n_steps": 100, "batch_size": 64}}  # 400 samples: the last minibatch has 16
    codes = {found["name"] for found in server.ask("POST", "/api/check", {"run": run}).json()["findings"]}
    assert "minibatch-does-not-divide" in codes


# -- the door ------------------------------------------------------------


FOREIGN = (
    "evil.example", "evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1:1",
    "", "[::1%evil.com]:{port}", "[::1%25lo]:{port}", "[::1]evil.com:{port}",
    "[::1:{port}", "::1:{port}", "[[::1]]:{port}", "[::ffff:127.0.0.1]:{port}",
    "[0:0:0:0:0:0:0:1]:{port}", "evil.com@127.0.0.1:{port}", "127.0.0.1:{port}@evil.com", "localhost.:{port}",
    "127.0.0.1.:{port}", "127.1:{port}", "2130706433:{port}", "0x7f000001:{port}",
    "0177.0.0.1:{port}", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0{port}",
    "127.0.0.1:{port}:{port}", "127.0.0.1:+{port}", "127.0.0.1, evil.com:{port}", "127.0.0.1:{port}/evil.com",
    "http://127.0.0.1:{port}", "0.0.0.0:{port}", "[::]:{port}", "127.0.0.2:{port}",
)  # fmt: skip


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_host_is_refused(server, host):
    answer = server.ask("GET", "/", headers={"Host": host.format(port=server.port)})
    assert answer.status == 421 and list(answer.json()) == ["error"]


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}", "LocalHost:{port}"])
def test_our_own_names_are_answered(server, host):
    assert server.ask("GET", "/", headers={"Host": host.format(port=server.port)}).status == 200


@pytest.mark.parametrize("hosts", [("127.0.0.1", "evil.com"), ("evil.com", "127.0.0.1"), ("127.0.0.1", "127.0.0.1")])
def test_a_request_with_two_hosts_is_refused(server, hosts):
    head = "GET / HTTP/1.1\r\n" + "".join(f"Host: {host}:{server.port}\r\n" for host in hosts) + "\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).split()[1] in (b"400", b"421")


def test_port_80_may_be_left_out():
    guard = RequestGuard(None, ServerSettings(port=80))
    assert [guard._is_ours(host) for host in ("127.0.0.1", "[::1]:80", "127.0.0.1:", "evil.com")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1", "https://127.0.0.1:{port}"])
def test_a_request_of_another_site_is_refused(server, origin):
    headers = {"Origin": origin.format(port=server.port)}
    assert server.ask("POST", "/api/predict", GOOD, headers).status == 403
    assert server.ask("POST", "/api/predict", GOOD, {"Sec-Fetch-Site": "cross-site"}).status == 403
    assert server.ask("POST", "/api/predict", GOOD, {"Origin": f"http://127.0.0.1:{server.port}"}).status == 200


def test_sizes_are_bounded(server):
    assert server.ask("POST", "/api/predict", b" " * (256 * 1024 + 1)).status == 413
    deep = server.ask("POST", "/api/predict", b"[" * 50 + b"]" * 50)
    assert deep.status == 400 and "nested more than 40 levels" in deep.json()["error"]


def test_a_run_that_names_a_module_is_only_read(server):
    """The fixture fails at its end if the package was imported."""
    space = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "box", "shape": [2]}}
    env = {"id": "spying.envs:Env", "spaces": space, "wrappers": ["spying.envs:Wrapper"]}
    for run in (
        {"algo": "PPO", "backend": "brax", "env": {"id": "spying.envs:Env", "spaces": space}},
        {"algo": "PPO", "env": env, "policy": {"name": "spying.envs:Policy", "features_extractor": "spying:Net"}},
    ):
        for path, body in (("predict", run), ("plan", {"runs": [run]}), ("fit", {"run": run}), ("check", {"run": run})):
            answer = server.ask("POST", f"/api/{path}", body)
            assert answer.status in (200, 400), answer.body


def test_only_runs_it_was_started_with_are_traced(server):
    answer = server.ask("POST", "/api/job", {"name": "mine:full", "run": GOOD})
    assert answer.status == 403 and "started with" in answer.json()["error"]


SCRIPT = """
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
class Net(BaseFeaturesExtractor):
    def __init__(self, space):
        super().__init__(space, 64)
        self.net = torch.nn.Linear(space.shape[0], 64)
    def forward(self, seen):
        return self.net(seen)
PPO("MlpPolicy", "CartPole-v1", policy_kwargs=dict(features_extractor_class=Net), n_steps=256).learn(1000)
"""


def test_code_is_executed_with_the_key_of_the_printed_address_alone(tmp_path, monkeypatch):
    """A fit that is trusted, and a program: the page says what will run, and where."""
    (tmp_path / "own.py").write_text(SCRIPT)
    (tmp_path / "loop.py").write_text("import torch\ntorch.ones(50 << 20, device='cuda')\nopen('left', 'w')\n")
    monkeypatch.chdir(tmp_path)
    with serving("own.py") as server:
        key = {"x-legroom-key": server.address.partition("#key=")[2]}
        run = server.ask("GET", "/api/start").json()["shown"][0]["run"]
        untrusted = server.ask("POST", "/api/fit", {"run": run, "ram": "8GiB"})
        assert untrusted.status == 400 and "“Trust this code” traces it" in untrusted.json()["error"]
        fit = {"name": "own", "run": run, "ram": "8GiB", "fit": True, "trust": True}
        read = server.ask("POST", "/api/read", {"text": "$ A=1 python loop.py\n"}).json()
        assert read == {"command": "env A=1 python loop.py", "folder": str(tmp_path)}
        program = {"command": f"{sys.executable} loop.py", "gpu": "RTX 4070"}
        for body, headers in ((fit, {}), (program, {}), (program, {"x-legroom-key": "a guess"})):
            refused = server.ask("POST", "/api/job", body, headers)
            assert refused.status == 403 and "executes code" in refused.json()["error"]
        assert _job(server, fit, key)["plan"]["fits"] is True
        assert "loop.py:2" in _job(server, program, key)["drawn"]
        assert not (tmp_path / "left").exists()


def _job(server: Server, body: dict, headers: dict) -> dict:
    job, told = server.ask("POST", "/api/job", body, headers).json()["job"], {"state": "running"}
    while told["state"] == "running":
        time.sleep(0.3)
        told = server.ask("GET", f"/api/job?job={job}").json()
    assert told["state"] == "done", told
    return told


@pytest.mark.parametrize(
    "path", ["/../app.py", "/%2e%2e/app.py", "/static/page.css", "/api/run?name=/etc/passwd", "/.git/config"]
)
def test_no_path_leads_to_a_file(server, path):
    answer = server.ask("GET", path)
    assert answer.status == 404 and list(answer.json()) == ["error"]


def test_a_thousand_malformed_requests_leave_it_as_it_was(server):
    for kind, request in malformed(1000, server.port):
        answer = _raw(server, request)
        status = answer.split(b" ", 2)[1] if answer else b"none"
        assert status in (b"200", b"400", b"403", b"404", b"405", b"413", b"421"), (kind, request[:400], answer[:400])
        assert b"Traceback" not in answer and b"root:" not in answer, (kind, request[:400])
    assert server.process.poll() is None
    assert server.ask("POST", "/api/predict", GOOD).status == 200
    assert server.rss_nbytes() <= MOST_RSS
    assert not server.has_loaded("numpy")


# -- how it begins and ends ------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told_to(number):
    with serving() as server:
        assert server.address.startswith("http://127.0.0.1:")
        server.process.send_signal(number)
        out, err = server.process.communicate(timeout=20)
        assert (server.process.returncode, out, err) == (0, "", "")


def _refused(*arguments: str, program=LEGROOM) -> tuple[int, str]:
    process = start([*program, "ui", *arguments])
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_a_port_in_use_is_one_line(server):
    code, err = _refused("--port", str(server.port))
    assert code == 2 and err.count("\n") == 1
    assert err.startswith(f"legroom: 127.0.0.1:{server.port} cannot be served: Address already in use (--port ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "legroom: No such option: --host"),
        (["--folder", "/no/such/folder"], "legroom: /no/such/folder: is not a folder"),
        (["no:such"], "legroom: no file and no named run 'no:such'"),
        (["--port", "70000"], "legroom: --port 70000 is out of range"),
    ],
)
def test_what_cannot_be_is_one_line(arguments, said):
    code, err = _refused(*arguments)
    assert code == 2 and err.startswith(said) and err.count("\n") == 1


def test_without_the_extra_it_says_what_to_install():
    without = "import sys; sys.modules['uvicorn'] = None; from legroom.cli.main import main; main()"
    code, err = _refused("--port", "0", program=[sys.executable, "-c", without])
    assert code == 3 and install_command("ui", "uvicorn") in err and err.count("\n") == 1
