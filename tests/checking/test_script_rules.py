"""Rules about scripts, one by one: each finds what it is for, and keeps silent on what merely looks like it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from legroom.checking.rule_table import SCRIPT_RULES
from legroom.errors import BadInput
from legroom.model.footprint import Finding
from legroom.model.rule import Subject
from legroom.reading.interpreter.script import read_script

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
IMPORTS = """\
import gymnasium as gym
from stable_baselines3 import PPO, DQN, SAC
from stable_baselines3.common.callbacks import *
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack, VecNormalize
"""


# Rules that are never more than worth knowing: then a near miss must not be mentioned at all.
INFO_ALONE = frozenset(rule.name for rule in SCRIPT_RULES if rule.severity == "info" and int(rule.code[2:]) >= 80)


def findings_of(path: Path) -> list[Finding]:
    text = path.read_text()
    # the machine and the budget are for rules about runs; scripts are judged by their source alone
    subject = Subject(str(path), text, "script", None, None, script=read_script(text, str(path)))  # type: ignore[arg-type]
    return [rule.finding(found, str(path)) for rule in SCRIPT_RULES for found in rule.look(subject)]


def findings(folder: Path, text: str, name: str = "train.py") -> list[Finding]:
    path = folder / name
    path.write_text(text)
    return findings_of(path)


def snippets(kind: str) -> Iterator[object]:
    """Yield (rule name, source, files beside it) of the snippets of one kind."""
    texts = ((HERE / name).read_text() for name in ("script_rule_cases.txt", "loop_rule_cases.txt"))
    for section in (section for text in texts for section in text.split("\n=== ")[1:]):
        head, _, body = section.partition("\n")
        words = head.split()
        if words[0] != kind:
            continue
        source, *others = body.split("\n--- ")
        beside = dict(other.split("\n", 1) for other in others)
        text = ("" if "bare" in words else IMPORTS) + source.rstrip() + "\n"
        yield pytest.param(words[1], text, beside, id=f"{words[1]}: {source.strip().splitlines()[-1].strip()[:40]}")


def written(folder: Path, beside: dict[str, str]) -> None:
    for name, content in beside.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


@pytest.mark.parametrize(("name", "text", "beside"), snippets("hit"))
def test_the_rule_finds_what_it_is_for(tmp_path: Path, name: str, text: str, beside: dict[str, str]) -> None:
    written(tmp_path, beside)
    found = [f for f in findings(tmp_path, text) if f.name == name]
    assert len(found) == 1, found
    assert found[0].line is not None and 1 <= found[0].line <= text.count("\n")
    assert found[0].message and found[0].hint


@pytest.mark.parametrize(("name", "text", "beside"), snippets("silent"))
def test_the_rule_keeps_silent_on_what_is_right(tmp_path: Path, name: str, text: str, beside: dict[str, str]) -> None:
    written(tmp_path, beside)
    loud = [f for f in findings(tmp_path, text) if f.name == name]
    assert [f for f in loud if f.severity != "info" or name in INFO_ALONE] == []


# Every error and warning that each script of the folder gives: (line, code, name). Those without any are right.
EXPECTED: dict[str, list[tuple[int, str, str]]] = {
    "sb3_tutorial.py": [],
    "sb3_callbacks_right.py": [],
    "sb3_callbacks_wrong.py": [
        (21, "LR054", "fork-workers"),
        (23, "LR051", "eval-on-training-env"),
        (23, "LR052", "frequency-in-vec-steps"),
        (24, "LR052", "frequency-in-vec-steps"),
        (25, "LR050", "callback-not-used"),
    ],
    "fighter/settings.py": [],
    "fighter/arena.py": [],
    "fighter/train_fighter.py": [
        (24, "LR055", "worker-imports-torch"),
        (32, "LR050", "callback-not-used"),
        (32, "LR051", "eval-on-training-env"),
    ],
    "fighter_sound/settings.py": [],
    "fighter_sound/arena.py": [],
    "fighter_sound/train_fighter.py": [],
    "cleanrl_ppo.py": [],
    "cleanrl_dqn.py": [],
    "brax_ppo.py": [],
    "torch_oom_bad.py": [(26, "LR057", "oom-handler-keeps-tensors")],
    "torch_oom_good.py": [],
    "optuna_search.py": [],
    "trainer_class.py": [(18, "LR050", "callback-not-used")],
    "config_dict.py": [],
    "notebook_export.py": [(14, "LR050", "callback-not-used")],
    "arm_project/options.py": [],
    "arm_project/levels.py": [],
    "arm_project/arm_env.py": [],
    "arm_project/main.py": [
        (17, "LR058", "snapshots-kept"),
        (22, "LR055", "worker-imports-torch"),
        (22, "LR060", "class-cache-not-shared"),
        (22, "LR061", "cuda-in-workers"),
    ],
    "jax_and_torch.py": [(7, "LR062", "xla-preallocation")],
    "jax_and_torch_fine.py": [],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_whole_scripts_give_exactly_these_errors_and_warnings(name: str) -> None:
    found = [f for f in findings_of(SCRIPTS / name) if f.severity != "info"]
    assert sorted((f.line, f.code, f.name) for f in found) == EXPECTED[name]


def test_every_script_of_the_folder_is_expected() -> None:
    assert {str(p.relative_to(SCRIPTS)) for p in SCRIPTS.rglob("*.py")} == set(EXPECTED)


def test_the_fighters_numbers() -> None:
    """FACTS: 81,920 vec-steps of 2 environments are 163,840 steps: every 10 rollouts of 16,384, and not every 5."""
    messages = [f.message for f in findings_of(SCRIPTS / "fighter" / "train_fighter.py")]
    (saving,) = [m for m in messages if m.startswith("CheckpointCallback")]
    assert "81,920 × 2 envs is every 163,840 env steps, i.e. every 10 rollouts of 16,384" in saving


# -- robustness ------------------------------------------------------------------------------------------------------


def test_rules_are_complete_and_their_codes_are_in_order() -> None:
    codes = [rule.code for rule in SCRIPT_RULES]
    assert codes == sorted(codes) and len(set(codes)) == len(codes) >= 16
    for rule in SCRIPT_RULES:
        assert rule.what and rule.why and rule.remedy and rule.example.endswith("\n")


def test_examples_are_python() -> None:
    for rule in SCRIPT_RULES:
        if not rule.example.startswith("except"):
            assert ast.parse(rule.example).body


ODD = [
    "x = " + "(" * 80 + "1" + ")" * 80 + "\n",
    "f = lambda: f\nf = f()\nx = x + 1\ny = y % y\n",
    "from . import *\nfrom .. import a\nimport train\n",
    "def f(a=b, *c, **d): return f(f)\n",
    "match x:\n    case [a, *b] | {'k': a, **b}: a % b == 0\n",
    "class A(A): x = A.x\nclass B(C): pass\nclass C(B): pass\nB()\nA.x\n",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_source_is_no_reason_to_fail(tmp_path: Path, text: str) -> None:
    assert [f for f in findings(tmp_path, text) if f.severity != "info"] == []


def test_what_is_not_python_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not valid Python"):
        findings(tmp_path, "for x in\n")
    with pytest.raises(BadInput, match="deep"):
        findings(tmp_path, "x = " + "+".join("a" for _ in range(3000)) + "\n")


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import *\nN = M\n")
    (tmp_path / "b.py").write_text("from a import *\nM = N\n")
    assert findings(tmp_path, "from a import N\nfor s in range(0, N, N): pass\n") == []
