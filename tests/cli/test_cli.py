"""The command line as people meet it: exit codes, JSON that scripts rely on, one line for what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.in_process import legroom
from tests.cli.wrong_inputs import FURTHER, HELD_OUT, SEEN, write_files

from legroom.named_runs import run_names

HEAVY = ("torch", "gymnasium", "stable_baselines3", "jax", "ray", "numpy", "scipy", "matplotlib")


def predict_json(*arguments: str, code: int = 0) -> dict:
    done = legroom("predict", *arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("words", [
    ["--help"], ["check", "mine:full"], ["explain", "-"], ["predict", "mine:full", "--mode", "arithmetic"],
    ["fit", "mine:full", "--ram", "8GiB", "--mode", "arithmetic"],
], ids=" ".join)  # fmt: skip
def test_help_and_arithmetic_import_nothing_heavy_and_nothing_that_a_run_names(words: list[str]) -> None:
    names = (*HEAVY, "legroom_workloads.mine.nets")
    code = (
        f"import sys; sys.argv = ['legroom', *{words}]\n"
        "from legroom.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print([m for m in {names} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, input="Killed\n")
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "fits"),
    [
        (("mine:small", "--ram", "2GiB"), True),
        (("mine:small", "--ram", "200MiB"), False),
        (("gameboy:default", "--gpu", "RTX 4070"), True),
        (("gameboy:default", "--vram", "2GiB"), False),
        (("gameboy:default", "--device", "cuda"), None),  # without a GPU's budget the verdict is open
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_a_budget_decides_the_verdict_and_the_exit_code(words: tuple[str, ...], fits: bool | None) -> None:
    (run,) = predict_json(*words, "--mode", "arithmetic", code=1 if fits is False else 0)["runs"]
    assert run["fits"] is fits
    assert run["gpu"] is None or set(run["gpu"]) >= {"peak", "band", "allocator"}


def test_the_host_peak_can_be_recomputed_from_the_items() -> None:
    document = predict_json("mine:full", "mine:small", "gameboy:default", "fire:low", "--mode", "arithmetic", code=1)
    assert document["legroom"] == 1
    assert [run["name"] for run in document["runs"]] == ["mine:full", "mine:small", "gameboy:default", "fire:low"]
    for run in document["runs"]:
        totals = dict.fromkeys(("start", "collect", "update", "checkpoint"), 0)
        for item in run["items"]:
            for phase in item["phases"]:
                totals[phase] += item["count"] * item["nbytes"] * (item["place"] in ("host", "worker", "shm"))
        assert run["host"]["peak"] == max(totals.values())
        assert run["host"]["band"][0] <= run["host"]["peak"] <= run["host"]["band"][1]
        assert run["gpu"] is None


def test_the_run_that_died_needs_twice_the_105_gib_of_its_error_message() -> None:
    done = legroom("predict", "mine:full", "--mode", "arithmetic")
    assert done.returncode == 1
    assert done.stdout.count("104.7 GiB") == 2  # the rollout, and the copy of it
    assert done.stdout.startswith("Does not fit: needs up to 211.3 GiB of RAM, ")


@pytest.mark.parametrize(
    "overrides", [("--n-envs", "2"), ("--n_envs=2",), ("--set", "env.n_envs=2"), ("--num_envs", "2")]
)
def test_overrides_in_every_spelling(overrides: tuple[str, ...]) -> None:
    (run,) = predict_json("mine:full", "--mode", "arithmetic", *overrides, code=1)["runs"]
    (stored,) = [item for item in run["items"] if item["name"] == "rollout.observations"]
    assert stored["nbytes"] == 2048 * 2 * 17 * 49 * 71 * 58 * 4


def test_a_broken_library_rule_is_shown_and_exits_1() -> None:
    (run,) = predict_json("robot:gpu_8gb", code=1)["runs"]
    assert [finding["name"] for finding in run["findings"]] == ["brax-divisibility"]
    assert run["findings"][0]["fix"] == {"hyperparams.num_minibatches": 4}
    assert predict_json("robot:gpu_8gb", "--num-minibatches", "4")["runs"][0]["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("predict", "mine:ful"), "mine:full"),
        (("predict", "nowhere.yaml"), "nowhere.yaml"),
        (("predict", "mine:full", "--ram", "lots"), "16GiB"),
        (("predict", "mine:full", "--gpu", "RTX 40700"), "RTX 4070"),
        (("predict", "mine:full", "--jsn"), "--json"),
        (("predict", "mine:full", "--n-envz", "3"), "--n-envs"),
        (("predict", "mine:full", "--n-envs", "-3"), "n_envs"),
        (("predict", "mine:full", "--n-envs", "99999999999999999999"), "n_envs"),
        (("predict", "mine:full", "--n-envs"), "needs a value"),
        (("predict", "mine:full", "--set", "nonsense"), "key=value"),
        (("predict", "mine:full", "--reserve", "110%"), "10%"),
        (("predict", "mine:full", "--mode", "magic"), "arithmetic"),
        (("predict", "mine:full", "--cpu-only", "--gpu", "T4"), "--cpu-only"),
        (("predict", "mine:full", "--mode", "arithmetic", "--n-steps", "9000000000000000000"), "2**63"),
        (("fit", "mine:full", "--ram", "lots"), "not a size"),
        (("fit", "mine:full", "--tiers", "8,big"), "not a list of sizes"),
        (("fit", "nine:full"), "did you mean"),
        (("fit", "mine:full", "--device", "cuda", "--mode", "arithmetic"), "--vram"),
        (("fit", "mine:full", "-o", "/nowhere/at/all.yaml", "--ram", "900GiB"), "there is no directory"),
        (("predict",), "RUN"),
        (("predikt", "mine:full"), "predikt"),
        *SEEN,
        *HELD_OUT,
        *FURTHER,
    ],
)
def test_bad_input_is_one_line_with_the_way_out(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    write_files(tmp_path)
    done = legroom(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_machine_prints_its_contract() -> None:
    document = json.loads(legroom("machine", "--json").stdout)
    assert document["legroom"] == 1
    assert 0 < document["available"] <= document["ram"]
    assert {"limit", "swap", "shm", "gpus", "versions"} <= set(document)


def test_workloads_lists_every_named_run_with_its_purpose() -> None:
    rows = json.loads(legroom("workloads", "--json").stdout)["runs"]
    assert [row["name"] for row in rows] == run_names()
    assert all(row["description"] and row["recommended_for"] for row in rows)
    assert "legroom predict mine:full" in legroom("workloads").stdout


def test_schema_accepts_the_shipped_runs_and_hides_what_is_not_part_of_the_file() -> None:
    schema = json.loads(legroom("schema").stdout)
    assert schema["required"] == ["algo", "env"]
    assert "source" not in schema["properties"]


def test_a_comparison_marks_the_largest_that_fits() -> None:
    lines = legroom("predict", "mine", "--mode", "arithmetic", "--ram", "16GiB").stdout.splitlines()
    (marked,) = [line for line in lines if "the largest" in line]
    assert marked.startswith("mine:memory_optimized")


def test_an_env_that_raises_gives_its_own_message(tmp_path: Path) -> None:
    (tmp_path / "broken_env.py").write_text("def Env(**kwargs):\n    raise RuntimeError('no\\nROM at /x')\n")
    (tmp_path / "run.yaml").write_text("algo: PPO\nenv: {id: 'broken_env:Env'}\n")
    done = legroom("predict", "run.yaml", "--trust", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "RuntimeError: no ROM at /x" in done.stderr


def test_an_unknown_env_id_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("algo: PPO\nenv: {id: 'CartPool-v1'}\n")
    done = legroom("predict", "run.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "CartPole" in done.stderr


def test_a_policy_that_cannot_be_traced_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom stable_baselines3.common.torch_layers import BaseFeaturesExtractor\n"
        "class Peeks(BaseFeaturesExtractor):\n"
        "    def __init__(self, space):\n        super().__init__(space, 8)\n        self.net = torch.nn.Linear(4, 8)\n"
        "    def forward(self, x):\n        return self.net(x) if x.sum().item() > 0 else self.net(-x)\n"
    )
    (tmp_path / "run.yaml").write_text(
        "algo: PPO\nenv: {spaces: {observation: {type: box, shape: [4]}, action: {type: discrete, n: 2}}}\n"
        "policy: {features_extractor: 'nets:Peeks'}\n"
    )
    done = legroom("predict", "run.yaml", "--trust", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr  # not known whether it fits
    told = json.loads(done.stdout)["runs"][0]
    assert told["fits"] is None
    assert "cannot be traced" in told["notes"][0]
    assert "nets.py:8 reads a tensor's value" in told["unknown"][0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_no_host_band_is_wider_than_ten_per_cent(device: str) -> None:
    named = ("mine", "fire", "ninja", "gameboy", "robot")
    done = legroom("predict", *named, "--mode", "arithmetic", "--device", device, "--json")
    for run in json.loads(done.stdout)["runs"]:
        low, high = run["host"]["band"]
        allowed = max(0.1 * run["host"]["peak"], 60_000_000)
        assert high - run["host"]["peak"] <= allowed, run["name"]
        assert run["host"]["peak"] - low <= allowed, run["name"]


def test_what_a_backend_does_not_have_is_refused_and_not_priced_at_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(
        "backend: rllib\nalgo: A2C\n"
        "env: {spaces: {observation: {type: box, shape: [4]}, action: {type: discrete, n: 2}}}\n"
    )
    done = legroom("predict", "run.yaml", "--mode", "arithmetic", cwd=tmp_path)
    assert done.returncode == 2
    assert "rllib" in done.stderr
    assert len(done.stderr.splitlines()) == 1


SCREENS = """
import gymnasium, numpy as np
class Screen(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (120, 160, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    breaks_after = 10**9
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.shown = 0, np.random.default_rng(1).integers(0, 256, (120, 160, 3), dtype=np.uint8)
        return self.shown.copy(), {}
    def step(self, action):
        self.steps += 1
        if self.steps > self.breaks_after:
            raise RuntimeError("no such level")
        return self.shown.copy(), 0.0, False, False, {}
class Broken(Screen):
    breaks_after = 5
"""
SPACES = "spaces: {observation: {type: box, shape: [120, 160, %d], dtype: uint8}, action: {type: discrete, n: 3}}"
SCREEN_RUNS = {
    "open": "id: 'screens:Screen'",
    "lean": "id: 'screens:Screen'",
    "broken": "id: 'screens:Broken'",
    "declared": f"id: 'screens:Screen', {SPACES % 3}",
    "mistaken": f"id: 'screens:Screen', {SPACES % 1}",
    "nameless": SPACES % 3,
}


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    (folder / "screens.py").write_text(SCREENS)
    for name, env in SCREEN_RUNS.items():
        memory = "memory: {rollout: lean}\n" if name == "lean" else ""
        (folder / f"{name}.yaml").write_text(
            f"algo: PPO\nenv: {{{env}, n_envs: 2}}\n{memory}policy: {{kwargs: {{net_arch: [4]}}}}\n"
        )
    return folder


@pytest.fixture(scope="module")
def probed(screens: Path) -> dict[str, dict]:
    files = [f"{name}.yaml" for name in SCREEN_RUNS]
    done = legroom("predict", *files, "--probe", "--trust", "--json", "--device", "cpu", cwd=screens)
    assert done.returncode == 0, done.stderr
    return dict(zip(SCREEN_RUNS, json.loads(done.stdout)["runs"], strict=True))


def test_a_probe_tells_what_lean_storage_would_do(probed: dict[str, dict]) -> None:
    for name in ("open", "declared"):
        run = probed[name]
        column = run["probe"]["columns"][""]
        assert (column["item_nbytes"], column["step"]) == (120 * 160 * 3, 0)
        lean = run["with_lean_storage"]
        # a picture that never changes: nothing is left of 2048 x 2 screens and of the copy at flatten
        assert lean["host"]["peak"] < run["host"]["peak"] - 300_000_000
        assert lean["price"] == "free"  # however busy the machine
        assert run["with_free_savings"] == {"host": lean["host"], "lean_storage": True}


def test_a_lean_run_is_predicted_as_measured(probed: dict[str, dict]) -> None:
    (stored,) = [item for item in probed["lean"]["items"] if item["name"] == "rollout.observations"]
    assert stored["known"] == "measured"
    assert 120 * 160 * 3 < stored["nbytes"] < 400_000
    assert probed["lean"]["with_lean_storage"] is None  # it has it already


def test_an_env_that_cannot_be_probed_is_a_note(probed: dict[str, dict]) -> None:
    assert probed["broken"]["probe"] is None
    says = "the env could not be probed: stepping it raised: RuntimeError: no such level"
    assert any(note.startswith(says) for note in probed["broken"]["notes"])


def test_declared_spaces_that_are_wrong_do_not_decide(probed: dict[str, dict]) -> None:
    """The environment trains as it is, so its own observation is billed, three times what the file says."""
    billed = {name: [each for each in probed[name]["items"] if each["known"] != "measured"] for name in probed}
    assert billed["mistaken"] == billed["declared"]
    assert any(
        "own observation, 120×160×3 uint8" in note and "120×160×1" in note for note in probed["mistaken"]["notes"]
    )


def test_without_a_probe_lean_storage_is_not_called_free(screens: Path) -> None:
    document = json.loads(legroom("predict", "nameless.yaml", "--mode", "arithmetic", "--json", cwd=screens).stdout)
    (run,) = document["runs"]
    assert run["probe"] is None
    assert (run["with_lean_storage"]["price"], run["with_lean_storage"]["slowdown"]) == ("slower", None)
    assert run["with_free_savings"]["lean_storage"] is False
    text = legroom("predict", "nameless.yaml", "--mode", "arithmetic", cwd=screens).stdout
    assert "with lean storage (bit-equal; speed not measured): host peak at most" in text
    assert "free saving" not in text


def test_arithmetic_builds_no_environment(screens: Path) -> None:
    done = legroom("predict", "declared.yaml", "--probe", "--mode", "arithmetic", cwd=screens)
    assert done.returncode == 2
    assert "arithmetic" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint", "where"),
    [
        (["predict", "else/run.yaml", "--json"], 2, "no such file", "check the path", "else/run.yaml"),
        (["predict", "bad.yaml", "--json"], 2, None, None, "bad.yaml:2"),
        (["predict", "--json", "--ram"], 2, None, "legroom predict --help", None),
        (["fit", "--json", "--", "python", "x.py"], 2, "fit needs a budget", None, None),
    ],
)
def test_with_json_an_error_is_json_too(arguments, code, message, hint, where, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("algo: PPO\nenv: {id: [\n")
    done = legroom(*arguments, cwd=tmp_path)
    assert done.returncode == code and len(done.stderr.splitlines()) == 1
    told = json.loads(done.stdout)
    assert told["legroom"] == 1 and set(told["error"]) == {"message", "hint", "where"}
    assert message in (None, told["error"]["message"]) and hint in (None, told["error"]["hint"])
    assert told["error"]["where"] == where or (where or "").startswith("bad")


def test_json_behind_the_two_dashes_is_the_programs_own() -> None:
    done = legroom("predict", "--", "no-such-command", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_whole_numbers_may_be_written_with_an_exponent() -> None:
    for written in (["--port", "7e4"], ["--port=7.0E4"], ["--port", "70000"]):
        assert "--port 70000 is out of range" in legroom("ui", *written).stderr
    refused = legroom("train", "mine:small", "--timesteps", "1e6x")
    assert refused.returncode == 2 and "'1e6x' is not a valid integer." in refused.stderr
