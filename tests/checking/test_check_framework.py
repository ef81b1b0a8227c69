"""The check as a whole: what it reads, leaves out, fixes and prints, whatever the rules are."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli import in_process

from legroom.checking.check import check, chosen_rules, find_rule
from legroom.checking.fixing import applied, fix_file
from legroom.checking.ignoring import read_ignored
from legroom.checking.rule_table import REMOVED, RULES, RUN_RULES
from legroom.errors import BadInput
from legroom.model.draft import put
from legroom.model.footprint import Finding
from legroom.model.machine import Machine
from legroom.model.rule import Fix
from legroom.model.verdict import Budget
from legroom.units import GIB

CONFIGS = Path(__file__).parent / "configs"
MACHINE = Machine(32 * GIB, None, 32 * GIB, 0, GIB, cores=8, versions={"stable-baselines3": "2.9.2"})
BUDGET = Budget(32 * GIB, None, ram_origin="given")
WRONG = "algo: PPO\nenv: {id: CartPole-v1}\nhyperparams:\n  n_steps: 100\n  batch_size: 64\n"  # 100 % 64
NAMES = (  # the slugs that other programs may rely on
    "minibatch-exceeds-rollout", "minibatch-does-not-divide", "brax-divisibility", "brax-devices", "callback-not-used",
    "eval-on-training-env", "frequency-in-vec-steps", "no-effect", "float32-rollout", "flatten-copy-exceeds-ram",
    "replay-exceeds-ram", "under-used-machine", "episode-shorter-than-rollout",
    "worker-imports-torch", "fork-workers", "stacked-frames-stored",
)  # fmt: skip


def look(*paths, **options):
    return check([str(path) for path in paths], machine=MACHINE, budget=BUDGET, **options)


def names(checked):
    return [finding.name for each in checked for finding in each.findings]


def legroom(*arguments, cwd=None):
    return in_process.legroom("check", *arguments, cwd=cwd, COLUMNS="80")


def write(folder, text, name="run.yaml"):
    file = folder / name
    file.write_text(text)
    return file


# --- rules ------------------------------------------------------------------------------------------------------------


def test_every_rule_says_what_why_example_and_way_out():
    assert len({rule.code for rule in RULES}) >= 30
    assert set(NAMES) <= {rule.name for rule in RULES}
    assert [rule.code for rule in RUN_RULES] == sorted({rule.code for rule in RUN_RULES})
    for rule in RULES:
        assert rule.code[:2] == "LR" and len(rule.code) == 5 and rule.code[2:].isdigit()
        assert rule.name == rule.name.lower().replace("_", "-").replace(" ", "-")
        for text in (rule.what, rule.why, rule.example, rule.remedy):
            assert len(text) > 5, rule.code


def test_a_removed_rule_may_still_be_ignored_and_its_code_is_not_used_again(tmp_path):
    assert not REMOVED.keys() & {rule.code for rule in RULES}
    write(tmp_path, WRONG.replace("64\n", "64  # legroom: ignore[LR023, unused-key]\n"))
    told = legroom("run.yaml", "--ignore", "LR053,sync-stride", cwd=tmp_path)
    assert (told.returncode, "LR007" in told.stdout, told.stderr) == (1, True, "")
    assert legroom("run.yaml", "--select", "LR063", cwd=tmp_path).returncode == 2


def test_rules_are_chosen_by_code_beginning_and_name():
    assert {rule.name for rule in chosen_rules(["LR007"])} == {"minibatch-does-not-divide"}
    assert {rule.name for rule in chosen_rules(["no-effect"])} == {"no-effect"}
    assert "LR001" not in {rule.code for rule in chosen_rules(["LR00"], ["invalid-value"])}
    assert find_rule("lr012").name == "flatten-copy-exceeds-ram"
    for wrong in ("LR999", "no-efect"):
        with pytest.raises(BadInput) as refused:
            chosen_rules([wrong])
        assert refused.value.hint


def test_select_and_ignore(tmp_path):
    file = write(tmp_path, WRONG)
    assert "minibatch-does-not-divide" in names(look(file))
    assert names(look(file, select=["LR006"])) == []
    assert "minibatch-does-not-divide" not in names(look(file, ignore=["LR007"]))


# --- comments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "left_out"),
    [
        ("# legroom: ignore[LR007]", True), ("# legroom: ignore[minibatch-does-not-divide]", True),
        ("# legroom: ignore", True), ("# legroom: ignore[LR006, LR007]", True), ("# reason; legroom: ignore", False),
        ("# legroom: ignore[LR006]", False), ("# ignore[LR007]", False),
    ],
)  # fmt: skip
def test_comment_at_the_line_or_on_a_line_of_its_own(tmp_path, comment, left_out):
    at_line = WRONG.replace("batch_size: 64", f"batch_size: 64  {comment}")
    before = WRONG.replace("  batch_size: 64", f"  {comment}\n  batch_size: 64")
    for text in (at_line, before):
        found = look(write(tmp_path, text))
        assert ("minibatch-does-not-divide" not in names(found)) is left_out, text
        assert found[0].ignored == left_out
    elsewhere = WRONG.replace("n_steps: 100", f"n_steps: 100  {comment}")
    assert "minibatch-does-not-divide" in names(look(write(tmp_path, elsewhere)))


def test_comment_for_the_whole_file_only_at_its_beginning(tmp_path):
    assert "minibatch-does-not-divide" not in names(look(write(tmp_path, f"# legroom: ignore-file[LR007]\n{WRONG}")))
    assert "minibatch-does-not-divide" in names(look(write(tmp_path, f"{WRONG}# legroom: ignore-file[LR007]\n")))


def test_comments_of_python():
    text = "a = 1  # legroom: ignore[LR001]\nb = 2\n# legroom: ignore[no-effect]\n\nc = 3\n"
    ignored = read_ignored(text)

    def covers(line, code="LR001", name="invalid-value"):
        return ignored.covers(Finding(code, name, "error", "", line=line))

    assert (covers(1), covers(2), covers(5), covers(5, "LR009", "no-effect")) == (True, False, False, True)


# --- fixes ------------------------------------------------------------------------------------------------------------


def test_fix_keeps_line_ends_comments_mark_and_mode(tmp_path):
    file = tmp_path / "brax.yaml"
    text = "\ufeff" + (CONFIGS / "brax_seed.yaml").read_text().replace("\n", "\r\n")
    file.write_bytes(text.encode())
    file.chmod(0o640)
    (checked,) = look(file)
    made, difference = fix_file(str(file), checked.fixes)
    assert [fix.text for fix in made] == ["4"]
    assert file.read_bytes().decode() == text.replace("num_minibatches: 2 ", "num_minibatches: 4 ")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert "-  num_minibatches: 2" in difference and "+  num_minibatches: 4" in difference
    assert names(look(file)) == []


@settings(max_examples=40, deadline=None)
@given(
    envs=st.integers(1, 3000), batch=st.integers(1, 600), minibatches=st.integers(1, 40),
)  # fmt: skip
def test_a_brax_file_is_repaired_into_what_brax_accepts(tmp_path_factory, envs, batch, minibatches):
    file = tmp_path_factory.mktemp("brax") / "brax.yaml"
    file.write_text(
        f"ppo:\n  num_envs: {envs}\n  num_eval_envs: 8\n  batch_size: {batch}  # segments\n"
        f"  num_minibatches: {minibatches}\n"
    )
    (checked,) = look(file, select=["brax-divisibility"])
    assert bool(checked.findings) == bool(batch * minibatches % envs)
    fix_file(str(file), checked.fixes)
    after = look(file, select=["brax-divisibility"])[0]
    assert after.findings == ()
    assert f"num_envs: {envs}\n" in file.read_text()


@pytest.mark.parametrize(("envs", "batch", "minibatches"), [(512, 128, 2), (1536, 384, 6), (1024, 128, 4)])
def test_the_tables_of_the_robot_guide_are_repaired(tmp_path, envs, batch, minibatches):
    text = f"ppo: {{num_envs: {envs}, num_eval_envs: 8, batch_size: {batch}, num_minibatches: {minibatches}}}\n"
    file = write(tmp_path, text)
    done = legroom("--fix", "--json", file)
    told = json.loads(done.stdout)
    assert (done.returncode, told["findings"]) == (0, [])
    assert "env steps per update" in told["fixed"][0]["say"]
    new = int(file.read_text().rpartition(": ")[2].strip("}\n"))
    assert batch * new % envs == 0


@given(st.text(alphabet="ab\n\r é", max_size=40), st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), max_size=4))
def test_fixes_change_only_their_characters(text, places):
    fixes = [Fix("", line, column, line, column, "<X>") for line, column in places]
    new, made = applied(text, fixes)
    assert new.replace("<X>", "") == text
    assert new.count("<X>") == len(made) <= len(set(places))


def test_overlapping_fixes_are_made_one_at_a_time():
    fixes = [Fix("a", 1, 0, 1, 4, "one"), Fix("b", 1, 2, 1, 6, "two"), Fix("c", 2, 0, 2, 1, "three")]
    assert applied("abcdef\nx\n", fixes)[0] == "oneef\nthree\n"


def test_a_key_without_effect_is_removed_and_its_mapping_kept(tmp_path):
    text = "algo: PPO\nenv: {id: CartPole-v1}\nhyperparams:\n  # the size\n  buffer_size: 1000\n  n_steps: 2048\n"
    file = write(tmp_path, text)
    (checked,) = look(file)
    fix_file(str(file), checked.fixes)
    assert file.read_text() == text.replace("  buffer_size: 1000\n", "")
    alone = write(tmp_path, "algo: PPO\nenv: {id: CartPole-v1}\nhyperparams:\n  buffer_size: 1000\n")
    (checked,) = look(alone)
    assert "no-effect" in names([checked]) and checked.fixes == ()


def test_dry_run_shows_the_change_and_makes_none(tmp_path):
    file = write(tmp_path, (CONFIGS / "brax_seed.yaml").read_text(), "brax.yaml")
    done = legroom("--fix", "--dry-run", file)
    assert done.returncode == 1
    assert "-  num_minibatches: 2     # brax counts" in done.stdout
    assert file.read_text() == (CONFIGS / "brax_seed.yaml").read_text()


def test_named_runs_are_checked_and_never_fixed():
    assert names(look("robot:gpu_8gb")).count("brax-divisibility") == 1
    assert len(look("robot")) == 7


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_folder_is_walked_without_what_is_not_of_a_training(tmp_path):
    write(tmp_path, WRONG)
    write(tmp_path, "services:\n  web: {image: x}\n", "compose.yml")
    write(tmp_path, "print('hello')\n", "hello.py")
    write(tmp_path, "a: [1\n", "broken.yaml")
    write(tmp_path, "def x(:\n", "broken.py")
    for hidden in (".git", "venv", "node_modules"):
        (tmp_path / hidden).mkdir()
        write(tmp_path / hidden, WRONG)
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", WRONG, "other.yaml")
    checked = look(tmp_path)
    assert {Path(each.path).name: each.kind for each in checked} == {
        "run.yaml": "run", "other.yaml": "run", "broken.py": "skipped"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken.py", "def x(:\n"), ("broken.yaml", "a: [1\n"),
        ("empty.yaml", ""), ("data.yaml", "\0\1"),
    ],
)  # fmt: skip
def test_a_named_path_that_cannot_be_read_is_bad_input(tmp_path, name, text):
    with pytest.raises(BadInput):
        look(write(tmp_path, text, name))


def test_a_named_python_file_without_a_training_has_nothing_said_about_it(tmp_path):
    done = legroom(write(tmp_path, "print('hello')\n", "hello.py"))
    assert done.returncode == 0
    assert "no training in this file" in done.stdout and "nothing to say" not in done.stdout


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("compose.yml", "services:\n  web: {image: x}\n", "no training in this file"),
        ("words.yaml", "just: words\n", "no training in this file"),
        ("list.yaml", "- 1\n", "no training in this file"),
        ("grid.json", '[{"lr": 0.1, "batch_size": 32}]\n', "not understood: settings of a custom program"),
        ("runner.py", "import torch\nfrom tasks import make\nrunner = make()\nrunner.learn(100)\n",
         "not understood: training by runner.learn(), whose loop is in another module"),
        ("shou.py", "from tianshou.trainer import offpolicy_trainer\noffpolicy_trainer(policy, collector)\n",
         "not understood: training with tianshou"),
        ("agents.py", "import torch\nfrom ddpg import agents\nagents[0].learn(rows)\n",
         "not understood: training by agents[0].learn(), whose loop is in another module"),
        ("sac.py", "import jax\nfrom sac import agent\nwhile True:\n    row = env.step(a)\n    agent.update(batch)\n",
         "not understood: training by agent.update(), whose loop is in another module"),
        ("module.py", "import lightning\nclass Net(lightning.LightningModule):\n    def training_step(self, b): ...\n",
         "not understood: training with lightning"),
        ("buffer.py", "import tianshou\nrows = {}\nrows.update(other)\n", "no training in this file"),
        ("algo.py", "import torch\nfrom tasks import algo\nfor _ in range(9):\n    algo.train()\n",
         "not understood: training by algo.train(), whose loop is in another module"),
        ("own.yaml", "ppo: {rollout_steps: 128, epochs: 4, gamma: 0.99}\nlr: 3e-4\nbatch_size: 32\nseed: 1\n",
         "not understood: settings of a custom program"),
        ("marl.yaml", "algo: qmix\nlr: 0.1\nbatch_size: 32\nmixer: x\n", "not understood: settings of a custom"),
        ("loop.py", "import jax\nstep = jax.value_and_grad(lambda x: x)\n", "not understood: jax training loop"),
        ("games.py", "from rl_games.torch_runner import Runner\nRunner().run({})\n",
         "not understood: training with rl_games"),
        ("odd.py", "from stable_baselines3 import PPO\nmake(PPO).learn(9)\n",
         "not understood: SB3 training whose settings"),
        ("net.py", "import torch\nclass Net(torch.nn.Module): pass\nNet().train()\n", "no training in this file"),
        ("torch_loop.py", "import torch\nloss = torch.ones(1)\nloss.backward()\n", "plain PyTorch training loop"),
    ],
)  # fmt: skip
def test_nothing_to_say_is_said_only_of_what_was_understood(tmp_path, name, text, said):
    file = write(tmp_path, text, name)
    done = legroom(file)
    assert done.returncode == 0
    assert said in " ".join(done.stdout.split())
    assert "nothing to say" not in done.stdout or "plain" in said
    answer = json.loads(legroom(file, "--json").stdout)
    assert answer["not_understood"] == said.startswith("not understood")
    assert said in answer["summary"][0]["note"]


def test_missing_file_and_no_path_are_bad_input(tmp_path):
    for arguments in (("no/such/file.yaml",), (), ("--dry-run", write(tmp_path, WRONG)), ("--rule", "LR999")):
        done = legroom(*arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1 and done.stderr.startswith("legroom: ")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 5000), st.floats(-2, 3), st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["PPO", "DQN", "", "lin_0.1", "fork"]),
    st.dictionaries(st.sampled_from(["a", "id", "n"]), st.integers(0, 9), max_size=2),
)  # fmt: skip
KEYS = st.sampled_from([
    ("algo",), ("backend",), ("env",), ("env", "id"), ("env", "n_envs"), ("env", "spaces"), ("env", "frame_stack"),
    ("env", "wrappers"), ("env", "kwargs"), ("env", "workers"), ("hyperparams",), ("hyperparams", "n_steps"),
    ("hyperparams", "batch_size"), ("hyperparams", "n_epochs"), ("hyperparams", "buffer_size"),
    ("hyperparams", "train_freq"), ("hyperparams", "gradient_steps"), ("hyperparams", "learning_starts"),
    ("hyperparams", "target_update_interval"), ("hyperparams", "exploration_fraction"),
    ("policy",), ("policy", "kwargs"), ("memory",), ("memory", "micro_batch"), ("checkpoint",), ("checkpoint", "every"),
    ("eval",), ("total_timesteps",),
])  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    algo=st.sampled_from(["PPO", "DQN", "SAC", "A2C", "TRPO", "RecurrentPPO", "ARS"]),
    backend=st.sampled_from(["sb3", "brax", "rllib"]),
    changes=st.lists(st.tuples(KEYS, VALUES), max_size=5),
)
def test_whatever_stands_in_a_run_file_is_a_finding_or_bad_input(tmp_path_factory, algo, backend, changes):
    data = {"algo": algo, "backend": backend, "env": {"id": "CartPole-v1", "n_envs": 2}, "total_timesteps": 10_000}
    for key, value in changes:
        put(data, key, value)
    file = tmp_path_factory.mktemp("any") / "run.yaml"
    file.write_text(json.dumps(data, indent=1))
    try:
        look(file)
    except BadInput as refused:
        assert str(refused)


# --- output -----------------------------------------------------------------------------------------------------------


def test_json_is_as_agreed(tmp_path):
    done = legroom("--json", write(tmp_path, WRONG), "--ram", "32GiB")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert told["legroom"] == 1 and set(told) == {"legroom", "findings", "not_understood", "summary"}
    for finding in told["findings"]:
        assert set(finding) == {"code", "name", "severity", "path", "line", "message", "hint", "fix"}
    (wrong,) = [f for f in told["findings"] if f["name"] == "minibatch-does-not-divide"]
    assert (wrong["code"], wrong["severity"], wrong["line"]) == ("LR007", "warning", 5)


def test_info_alone_is_exit_code_0(tmp_path):
    file = write(tmp_path, "algo: PPO\nenv: {id: CartPole-v1}\ntotal_timesteps: 10_000\n")
    done = legroom(file)
    assert done.returncode == 0
    assert "timesteps-not-multiple" in done.stdout


def test_the_page_fits_80_columns_and_names_line_hint_and_fix(tmp_path):
    done = legroom(CONFIGS / "gameboy_constants.py", "--like", "gameboy:default", "--ram", "32GiB", "--vram", "16GiB",
                   "--all")  # fmt: skip
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
    for text in ("line 10, LR009 no-effect", "→ remove it", "--fix: save_replay_buffer -> False", "What is fine"):
        assert text in done.stdout


def test_what_a_rule_says_and_the_list_of_rules():
    told = legroom("--explain-rule", "brax-divisibility").stdout
    assert told.startswith("LR002 brax-divisibility (error)") and "AssertionError" in told
    listed = legroom("--list").stdout
    assert all(rule.name in listed for rule in RUN_RULES)


def test_check_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['legroom', 'check', 'gameboy:default', '--ram', '32GiB', '--vram', '8GiB']\n"
        "import legroom.cli.main as m\n"
        "try: m.main()\nexcept SystemExit: pass\n"
        "bad = {'torch', 'gymnasium', 'jax', 'ray', 'stable_baselines3', 'scipy'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_fix_says_what_it_cannot_fix(tmp_path):
    text = (
        "import torch\nlosses = []\nfor x in data:\n    loss = net(x)\n    loss.backward()\n    losses.append(loss)\n"
    )
    done = legroom("--fix", "--dry-run", write(tmp_path, text, "loop.py"))
    said = " ".join(done.stdout.split())
    assert "not fixed: 1 finding that only you can decide (LR080 loss-kept-with-graph)" in said
    sound = write(tmp_path, "algo: PPO\nenv: {id: CartPole-v1}\n", "sound.yaml")
    assert "nothing to fix" in legroom("--fix", sound).stdout


@pytest.mark.parametrize(
    "text",
    [
        # a PPO of some other library, a device that SB3 takes, a training that an option leaves out
        "from tianshou.policy import PPO\nPPO(lr=1, odd=2, n_steps=-3)\n",
        "from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', device='mps').learn(2048)\n",
        "import argparse\nfrom stable_baselines3 import PPO\np = argparse.ArgumentParser()\n"
        "p.add_argument('--steps', type=int, default=0)\nargs = p.parse_args()\n"
        "model = PPO('MlpPolicy', 'CartPole-v1')\nif args.steps > 0:\n    model.learn(args.steps)\n",
        "from stable_baselines3 import PPO\nclass Agent:\n    def train(self):\n"
        "        PPO('MlpPolicy', self.env, n_steps=self.config.n_steps, seed=self.config.seed).learn(2048)\n",
        "import argparse\nfrom stable_baselines3 import PPO\n"
        "def train(steps=100, n_steps=100):\n    PPO('MlpPolicy', 'CartPole-v1', n_steps=n_steps).learn(steps)\n"
        "p = argparse.ArgumentParser()\np.add_argument('--train', action='store_true')\nargs = p.parse_args()\n"
        "if args.train:\n    train(2048, n_steps=2048)\n",
    ],
)
def test_scripts_that_look_wrong_and_are_not(tmp_path, text):
    (checked,) = look(write(tmp_path, text, "train.py"))
    assert [f for f in checked.findings if f.severity != "info" or f.name == "timesteps-not-multiple"] == []


def test_settings_with_a_model_class_are_no_zoo_file(tmp_path):
    text = "run: {device: cuda, model_class: mine.models.Net, batch_size: 32, lr: 0.1}\n"
    (checked,) = look(write(tmp_path, text, "ppo.yml"))
    assert (checked.findings, checked.understanding.kind) == ((), "not understood")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "run_cql.py",
            "import torch\nfrom kit.trainers import PolicyTrainer\ntrainer = PolicyTrainer(1)\ntrainer.train()\n",
        ),
        ("sac.yaml", "warehouse:\n  run: SAC\n  config:\n    learning_starts: 6000\n    buffer_size: 240000\n"),
    ],
)
def test_a_training_that_is_elsewhere_is_not_said_to_be_none(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (checked,) = check([str(tmp_path / name)], machine=MACHINE, budget=BUDGET)
    assert (checked.findings, checked.understanding.kind) == ((), "not understood")


def test_values_of_a_programs_own_settings_are_no_mistakes(tmp_path):
    """A program of the user's own may mean something else by a key than SB3 does."""
    file = tmp_path / "hp.yaml"
    rl = "policy_kwargs: {features_extractor_class: {py/type: some.Class}}, n_steps: 64, n_epochs: 4, gae_lambda: 0.9"
    file.write_text(f"algorithm: PPO\nrl: {{{rl}, clip_range: 0.1}}\nn_envs: 8\nexpert: x\nvenv: y\n")
    (checked,) = check([str(file)], machine=MACHINE, budget=BUDGET)
    assert not [finding for finding in checked.findings if finding.severity == "error"]


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("ppo: {num_envs: 1024, batch_size: 256, num_minibatches: 2}\n", {"num_minibatches": 4}),
        ("num_envs: 96\nbatch_size: 64\nunroll_length: 5\nentropy_cost: 0.1\nnum_timesteps: 9\n", {"batch_size": 66}),
        ("ppo:\n  num_envs: 256\n  batch_size: 128\n  num_timesteps: 100000\n", {}),
        ("ppo:\n  num_envs: 512\n  batch_size: 128\n  num_minibatches: 4  # 128x4=512\n", {}),
    ],
)
def test_a_section_with_brax_keys_is_brax_ppo(text, fix, tmp_path):
    file = write(tmp_path, text, "gpu.yaml")
    (checked,) = look(file, select=["brax-divisibility"])
    assert checked.understanding.kind == "understood"
    fix_file(str(file), checked.fixes)
    assert all(f"{name}: {value}" in file.read_text() for name, value in fix.items())
    assert look(file, select=["brax-divisibility"])[0].findings == () and bool(checked.fixes) == bool(fix)


def test_fixing_a_named_run_prints_the_command_that_trains_it_repaired(tmp_path):
    done = legroom("--fix", "robot:gpu_8gb")
    command = "legroom train robot:gpu_8gb --set hyperparams.num_minibatches=4"
    assert done.returncode == 1 and command in " ".join(done.stdout.split())
    assert legroom("robot:gpu_8gb", *command.split()[-2:]).returncode == 0
