"""`legroom diff`: the value that changed memory is named, the largest first, and a budget fails the job."""

import json

import pytest
from tests.cli.in_process import legroom

from legroom.comparing.named_values import changed_values

RUN = """\
algo: {algo}
env:
  id: none
  n_envs: {envs}
  spaces: {{observation: {{type: box, shape: [84, 84, 4], dtype: uint8}}, action: {{type: discrete, n: 6}}}}
policy: {{name: CnnPolicy}}
hyperparams: {hyperparams}
seed: {seed}
"""


def write(path, algo="PPO", envs=8, seed=1, **hyperparams):
    path.parent.mkdir(exist_ok=True)
    path.write_text(RUN.format(algo=algo, envs=envs, seed=seed, hyperparams=json.dumps(hyperparams)))
    return path


def diff(tmp_path, old: dict, new: dict, *options):
    before, after = write(tmp_path / "old/run.yaml", **old), write(tmp_path / "new/run.yaml", **new)
    return legroom("diff", before, after, "--cpu-only", *options)


def test_the_value_that_matters_most_comes_first(tmp_path):
    told = diff(tmp_path, dict(n_steps=512, batch_size=64), dict(n_steps=2048, batch_size=128, envs=9), "--json")
    run = json.loads(told.stdout)["runs"][0]
    assert [each["key"] for each in run["because"]][:2] == ["hyperparams.n_steps", "env.n_envs"]
    # 1,536 steps more of 8.5 envs in the mean, 28,224 B each, once stored and once flattened
    assert run["because"][0]["effect"] == pytest.approx(2 * 1536 * 8.5 * 28_224, rel=0.05)


def test_a_sentence_says_before_after_and_why(tmp_path):
    told = diff(tmp_path, dict(n_steps=512), dict(n_steps=2048))
    assert told.returncode == 0
    words = " ".join(told.stdout.split())
    assert words.startswith("run: before ") and "GiB, because n_steps 512 → 2,048" in words


def test_a_default_that_is_given_up_counts_as_changed(tmp_path):
    told = diff(tmp_path, dict(algo="DQN"), dict(algo="DQN", buffer_size=10_000))
    assert "because buffer_size 1,000,000 → 10,000" in " ".join(told.stdout.split())


def test_what_memory_does_not_depend_on_is_no_change(tmp_path):
    told = diff(tmp_path, dict(seed=1, gamma=0.9), dict(seed=2, gamma=0.99))
    assert told.stdout.strip() == "no change affects memory"


def test_over_the_budget_is_exit_code_1(tmp_path):
    assert diff(tmp_path, dict(n_steps=512), dict(n_steps=8192), "--ram", "1GiB").returncode == 1
    assert diff(tmp_path, dict(n_steps=512), dict(n_steps=8192), "--ram", "64GiB").returncode == 0


def test_the_budget_may_be_the_projects(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.legroom]\nram = "1GiB"\n')
    assert diff(tmp_path, dict(n_steps=512), dict(n_steps=8192)).returncode == 1


def test_spaces_that_are_not_known_get_a_stand_in_and_that_is_said(tmp_path):
    for name, size in (("old", 10_000), ("new", 500_000)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(
            "from stable_baselines3 import DQN\nfrom elsewhere import Env\n"
            f'DQN("CnnPolicy", Env(), buffer_size={size}).learn(1_000_000)\n'
        )
    told = " ".join(legroom("diff", tmp_path / "old/train.py", tmp_path / "new/train.py").stdout.split())
    assert "because buffer_size 10,000 → 500,000" in told
    assert "spaces are unknown; sizes are for pictures of 84×84×4" in told


LOOP = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--num-envs", type=int, default={envs})
parser.add_argument("--learning-rate", type=float, default={rate})
CAPACITY = int({capacity})
agent = Agent(hidden_size=64, log_interval={log})
"""


def test_a_loop_of_ones_own_is_compared_by_the_names_of_its_values(tmp_path):
    old, new = tmp_path / "old.py", tmp_path / "new.py"
    old.write_text(LOOP.format(envs=8, rate=1e-3, capacity="1e5", log=10))
    new.write_text(LOOP.format(envs=64, rate=3e-4, capacity="2 ** 20", log=99))
    told = " ".join(legroom("diff", old, new).stdout.split())
    assert told.endswith("memory not known; changed: CAPACITY 100,000 → 1,048,576, num-envs 8 → 64")


def changed(old, new, ending=".py"):
    found = changed_values(old, new, paths=(f"old{ending}", f"new{ending}"))
    return [(cause.key, cause.before, cause.after) for cause in found]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("batch_size: int = field(default={})", "batch_size"),
        ("batch_size: int = {}", "batch_size"),
        ("config['batch_size'] = {}", "batch_size"),
        ("lr, batch_size = 3e-4, {}", "batch_size"),
        ("flags.DEFINE_integer('batch_size', {}, 'rows of an update')", "batch_size"),
        ("size = config.get('batch_size', {})", "batch_size"),
        ("parser.add_argument('-b', '--batch-size', type=int, default={})", "batch-size"),
        ("parser.add_argument('-b', dest='batch_size', default={})", "batch_size"),
        ("def train(env, *, batch_size={}): pass", "batch_size"),
        ("update(batch_size=64 if big else {})", "batch_size"),
        ("memory = ReplayBuffer({}, device)", "ReplayBuffer"),
        ("run('python train.py --env=Ant --batch_size={} --lr=1e-3')", "batch_size"),
    ],
)
def test_a_size_is_found_wherever_a_program_writes_it_down(line, key):
    (found,) = changed(line.format(32), line.format(256))
    assert found[0] == key and "32" in str(found[1]) and "256" in str(found[2])


def test_a_size_that_only_moved_is_no_change():
    old = "parser.add_argument('--batch-size', type=int, default=256)\n"
    assert changed(old, "class Args:\n    batch_size: int = 256\n") == []


def test_a_layer_that_was_inserted_does_not_shift_the_others():
    old = "a = Linear(8, 16)\nb = Linear(16, 32)\nc = Linear(32, 4)\n"
    new = "a = Linear(8, 16)\nx = Linear(16, 16)\nb = Linear(16, 32)\nc = Linear(32, 5)\n"
    assert changed(old, new) == [("Linear", [32, 4], [32, 5]), ("Linear", None, [16, 16])]


def test_a_constant_that_became_a_setting_is_named():
    assert changed("make(n_envs=1)\n", "make(n_envs=self.n_eval_envs)\n") == [("n_envs", 1, "self.n_eval_envs")]


def test_expressions_count_by_their_numbers():
    assert changed("batch_size = envs * steps\n", "batch_size = steps * envs\n") == []
    assert changed("batch_size = envs * 128\n", "batch_size = envs * 256\n") == [
        ("batch_size", "envs * 128", "envs * 256")
    ]


@pytest.mark.parametrize(
    ("ending", "text", "key"),
    [
        (".yml", "a: {{batch_size: {}, lr: 1}}\n", "a.batch_size"),
        (".yaml", "a: !Own\n  - {{batch_size: {}}}\n", "a.0.batch_size"),
        (".json", '{{"train": {{"batch_size": {}}}}}', "train.batch_size"),
        (".json", '{{// with comments\n"train": {{"batch_size": {},}}}}', "batch_size"),
        (".toml", "[train]\nbatch_size = {}\n", "train.batch_size"),
        (".gin", "# batch_size = 1\nAgent.batch_size = {}\n", "Agent.batch_size"),
        (".sh", "python train.py --env Ant --lr 1e-3 --batch-size {} model.n_envs=4\n", "batch-size"),
        (".yml", "a:\n  policy_kwargs: 'dict(net_arch=[64, {}])'\n", "a.policy_kwargs.net_arch"),
    ],
)
def test_configurations_are_named_by_their_path(ending, text, key):
    ((found, before, after),) = changed(text.format(32), text.format(256), ending)
    assert found == key and "32" in str(before) and "256" in str(after)


def test_a_buffer_that_the_run_never_fills_is_named_apart(tmp_path):
    for name, size, units in (("old", 50_000, 64), ("new", 300_000, 400)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sac.yml").write_text(
            f"Pendulum-v1:\n  n_timesteps: 5000\n  policy: MlpPolicy\n  buffer_size: {size}\n"
            f"  policy_kwargs: dict(net_arch=[{units}, {units}])\n"
        )
    told = " ".join(legroom("diff", tmp_path / "old/sac.yml", tmp_path / "new/sac.yml").stdout.split())
    assert "because policy.kwargs.net_arch [64, 64] → [400, 400]; little or no effect: buffer_size 50,000 →" in told


def test_a_run_whose_name_got_a_new_version_is_the_same_run(tmp_path):
    for name, text in (("old", "Walker-v2: {{{0}, batch_size: 64}}"), ("new", "Walker-v3: {{{0}, batch_size: 512}}")):
        (tmp_path / name).mkdir()
        both = f"{text}\nPendulum-v1: {{{{{{0}}, batch_size: 64}}}}\n"
        (tmp_path / name / "sac.yml").write_text(both.format("policy: MlpPolicy, n_timesteps: 5000"))
    told = " ".join(legroom("diff", tmp_path / "old/sac.yml", tmp_path / "new/sac.yml").stdout.split())
    assert "batch_size 64 → 512" in told and "new," not in told and "removed" not in told


def test_a_script_is_compared_with_a_named_run(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from stable_baselines3 import PPO\nfrom elsewhere import Env\nPPO('MlpPolicy', Env(), n_steps=64).learn(9)\n"
    )
    told = legroom("diff", script, "mine:small", "--cpu-only")
    assert (told.returncode, told.stderr) == (0, "") and "before " in told.stdout


def test_bytes_are_not_taken_for_values(tmp_path):
    (tmp_path / "old.bin").write_bytes(b"\0batch_size=1\n")
    (tmp_path / "new.bin").write_bytes(b"\0batch_size=2\n")
    assert legroom("diff", tmp_path / "old.bin", tmp_path / "new.bin").stdout.startswith("memory not known")


def test_aliases_of_aliases_are_refused_at_once(tmp_path):
    lines = ["a0: &a0 [{batch_size: 1}, {batch_size: 2}]"]
    lines += [f"a{n}: &a{n} [{{k: *a{n - 1}}}, {{k: *a{n - 1}}}]" for n in range(1, 40)]
    (tmp_path / "old.yaml").write_text("batch_size: 1\n")
    (tmp_path / "new.yaml").write_text("\n".join(lines))
    told = legroom("diff", tmp_path / "old.yaml", tmp_path / "new.yaml")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1) and "more than 100,000 values" in told.stderr


def test_a_file_that_is_no_python_is_refused_in_one_line(tmp_path):
    (tmp_path / "old.py").write_text("x = 1\n")
    (tmp_path / "new.py").write_text("x = = 1\n")
    told = legroom("diff", tmp_path / "old.py", tmp_path / "new.py")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)


def test_json_says_whether_memory_is_known(tmp_path):
    for name, text in (("old", "import torch\n"), ("new", "import torch  # no run\n")):
        (tmp_path / f"{name}.py").write_text(text)
    told = legroom("diff", tmp_path / "old.py", tmp_path / "new.py")
    assert "memory not known: no run can be read" in told.stdout
    assert (
        json.loads(legroom("diff", tmp_path / "old.py", tmp_path / "new.py", "--json").stdout)["memory_known"] is False
    )
    assert json.loads(diff(tmp_path, dict(n_steps=512), dict(n_steps=512), "--json").stdout)["memory_known"] is True
