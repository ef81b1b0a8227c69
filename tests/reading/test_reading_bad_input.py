"""Bad input gets one line: where it is, what is wrong, and the way out; never anything but BadInput."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from legroom.errors import BadInput
from legroom.reading import read, read_all, run_from_dict
from legroom.units import LARGEST

SPACES = "spaces: {observation: {type: box, shape: [8]}, action: {type: discrete, n: 4}}"
GOOD = f"algo: PPO\nenv: {{{SPACES}}}\n"


def fails(path: str, **options: object) -> str:
    with pytest.raises(BadInput) as error:
        read(path, **options)  # type: ignore[arg-type]
    text = str(error.value)
    assert "\n" not in text
    assert error.value.exit_code == 2
    return text


# name of the case -> (text of the file, line of the problem, parts of the message)
FILES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "unknown key": (GOOD + "hyperparms: {n_steps: 5}\n", 3, ("'hyperparms'", "did you mean 'hyperparams'?")),
    "unknown key in env": ("algo: PPO\nenv:\n  id: x\n  n_env: 3\n", 4, ("'n_env' in env", "did you mean 'n_envs'?")),
    "key in the wrong place": (GOOD + "n_steps: 5\n", 3, ("'n_steps'", "belongs to hyperparams.n_steps")),
    "key of the env among the hyperparameters": (
        GOOD + "hyperparams:\n  n_envs: 4\n", 4, ("'n_envs' in hyperparams", "belongs to env.n_envs")),
    "unknown hyperparameter": (GOOD + "hyperparams:\n  bach_size: 4\n", 4, ("did you mean 'batch_size'?",)),
    "unknown algorithm": ("algo: PPPO\nenv: CartPole-v1\n", 1, ("unknown algorithm 'PPPO'", "did you mean 'PPO'?")),
    "unknown backend": ("backend: tf\n" + GOOD, 1, ("backend: 'tf'", "one of sb3, brax, rllib")),
    "unknown dtype": (
        "algo: PPO\nenv:\n  spaces:\n    action: {type: discrete, n: 2}\n    observation:\n"
        "      type: box\n      shape: [4]\n      dtype: flot32\n",
        8, ("env.spaces.observation.dtype", "did you mean 'float32'?")),
    "unknown space": (
        "algo: PPO\nenv:\n  spaces:\n    action: {type: discrte, n: 2}\n    observation: {type: box, shape: [4]}\n",
        4, ("'discrte'", "did you mean 'discrete'?")),
    "a space without a type": (
        "algo: PPO\nenv:\n  spaces:\n    action: {n: 2}\n    observation: {type: box, shape: [4]}\n", 4, ("no type",)),
    "unknown worker kind": ("algo: PPO\nenv:\n  workers: threads\n", 3, ("'threads'", "dummy, subproc, light")),
    "a word for a number": (GOOD + "hyperparams: {n_steps: many}\n", 3, ("n_steps must be a whole number", "'many'")),
    "a truth value for a number": (GOOD + "hyperparams: {n_steps: true}\n", 3, ("whole number", "true")),
    "a truth value for envs": ("algo: PPO\nenv:\n  n_envs: yes\n", 3, ("env.n_envs", "whole number", "true")),
    "a fraction": ("algo: PPO\nenv:\n  n_envs: 2.5\n", 3, ("env.n_envs", "whole number", "2.5")),
    "negative": (GOOD + "hyperparams:\n  batch_size: -64\n", 4, ("hyperparams.batch_size must be at least 1", "-64")),
    "zero": ("algo: PPO\nenv:\n  n_envs: 0\n", 3, ("env.n_envs must be at least 1", "0")),
    "zero in a shape": (
        "algo: PPO\nenv:\n  spaces:\n    observation: {type: box, shape: [4, 0]}\n    action: {type: discrete, n: 2}\n",
        4, ("shape.1 must be at least 1",)),
    "over 2**63": (GOOD + f"hyperparams:\n  n_steps: {LARGEST + 1}\n", 4, ("over 2**63",)),
    "thousands of digits": (GOOD + f"total_timesteps: {'9' * 5000}\n", 3, ("not a valid int",)),
    "a shape over 2**63": (
        "algo: PPO\nenv:\n  spaces:\n    action: {type: discrete, n: 2}\n"
        "    observation: {type: box, shape: [9999999999, 9999999999]}\n", 5, ("over 2**63 bytes",)),
    "a rollout over 2**63": (
        GOOD + "hyperparams:\n  n_steps: 999999999999999999\n", 4, ("of observations is over 2**63 bytes",)),
    "layers that are none": (
        GOOD + "policy:\n  kwargs:\n    net_arch: [64, -1]\n", 5, ("policy.kwargs.net_arch must be at least 1",)),
    "not a number": (GOOD + "hyperparams:\n  learning_rate: fast\n", 4, ("number or a schedule", "'fast'")),
    "infinite": (GOOD + "hyperparams:\n  gamma: .inf\n", 4, ("finite",)),
    "a list for a mapping": ("algo: PPO\nenv: [1, 2]\n", 2, ("env must be a mapping",)),
    "missing algorithm": (f"env: {{{SPACES}}}\nhyperparams: {{}}\n", 1, ("algo is missing", "--set algo=PPO")),
    "missing env": ("algo: PPO\n", 1, ("env is missing",)),
    "half of the spaces": ("algo: PPO\nenv:\n  spaces:\n    action: {type: discrete, n: 2}\n", 3,
        ("env.spaces.observation is missing",)),
    "top-level list": ("- algo: PPO\n- env: x\n", 1, ("not a list",)),
    "top-level word": ("hello\n", 1, ("not a single value",)),
    "duplicate key": (GOOD + "algo: A2C\n", 3, ("key 'algo' stands here and in line 1",)),
    "tab": ("algo: PPO\nenv:\n\tid: x\n", 3, ("spaces, not tabs",)),
    "broken YAML": ("algo: PPO\nenv: {id: x\n", 3, ("not valid YAML",)),
    "two documents": (GOOD + "---\n" + GOOD, 3, ("second YAML document",)),
    "a Python tag": (
        "algo: PPO\nenv: !!python/object/apply:os.system ['ls']\n", 2, ("is not plain data", "remove the tag")),
    "another tag": ("algo: !secret x\nenv: y\n", 1, ("is not plain data",)),
    "unknown alias": ("algo: PPO\nenv: *nowhere\n", 2, ("alias *nowhere",)),
    "alias of itself": ("algo: PPO\nenv: &a [*a]\n", 2, ("alias *a",)),
    "a key that is a list": ("algo: PPO\n? [1, 2]\n: 3\n", 2, ("a key must be a word",)),
    "a number as a key": (GOOD + "7: 3\n", 3, ("a key must be a word",)),
    "deep nesting": ("algo: PPO\nenv: " + "[" * 500 + "]" * 500 + "\n", 2, ("levels deep",)),
    "brax: unknown section": ("ppo: {num_envs: 4}\nnetwrok: {}\n", 2, ("did you mean 'network'?",)),
    "brax: unknown layer key": ("ppo:\n  num_envs: 4\nnetwork:\n  policy_hiden_layers: [1]\n", 4,
        ("did you mean 'policy_hidden_layers'?",)),
    "brax: unknown argument": ("ppo:\n  num_envs: 4\n  unrol_length: 3\n", 3, ("did you mean 'unroll_length'?",)),
    "brax: zero": ("ppo:\n  num_envs: 0\n", 2, ("env.n_envs must be at least 1",)),
    "zoo: source that would run": (
        "CartPole-v1:\n  n_timesteps: 5\n  policy_kwargs: \"dict(net_arch=__import__('os').listdir())\"\n",
        3, ("policy_kwargs", "cannot be read")),
    "zoo: unknown key": ("CartPole-v1:\n  n_timesteps: 5\n  bufer_size: 5\n", 3, ("did you mean 'buffer_size'?",)),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_one_line_with_place_and_way_out(case: str, tmp_path: Path) -> None:
    text, line, parts = FILES[case]
    path = tmp_path / "ppo.yml"
    path.write_text(text)
    message = fails(str(path))
    assert message.startswith(f"{path}:{line}: "), message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ([("n-envs", "0")], ("n-envs=0: env.n_envs must be at least 1",)),
        ([("batch_size", "some")], ("batch_size=some: hyperparams.batch_size must be a whole number",)),
        ([("bach-size", "4")], ("unknown setting 'bach-size'", "did you mean 'batch_size'?")),
        ([("hyperparams.bach_size", "4")], ("hyperparams.bach_size=4", "did you mean 'batch_size'?")),
        ([("env.n_env", "4")], ("env.n_env=4", "did you mean 'n_envs'?")),
        ([("env.spaces", "{observation: 3}")], ("env.spaces",)),
        ([("net_arch", "[64,")], ("net_arch=[64,", "not valid YAML")),
        ([("algo", "PPQ")], ("algo=PPQ: unknown algorithm 'PPQ'", "did you mean 'PPO'?")),
        ([("n_envs", str(2**64))], ("n_envs=", "at most 2**63")),
        ([("policy.kwargs.net_arch", "wide")], ("must be a list of layer widths",)),
    ],
)
def test_bad_overrides_name_themselves(
    overrides: list[tuple[str, str]], parts: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(GOOD)
    message = fails(str(path), overrides=overrides)
    for part in parts:
        assert part in message
    assert str(path) not in message  # the file is not to blame


def test_no_such_thing(tmp_path: Path) -> None:
    (tmp_path / "ppo.yml").write_text("CartPole-v1: {n_timesteps: 5}\n")
    assert "did you mean 'mine:full'" in fails("mine:ful")
    assert "did you mean 'mine'" in fails("mien")
    assert "mine, fire, ninja, gameboy, robot" in fails("zzzzzz")
    assert "robot:quick" in fails("robot:gpu_9tb")
    assert "did you mean" in fails(str(tmp_path / "pppo.yml"))
    assert "no such file" in fails(str(tmp_path / "no/run.yaml"))
    assert "no such file" in fails(str(tmp_path / "pp.yml:CartPole-v1"))
    assert "did you mean 'CartPole-v1'" in fails(f"{tmp_path}/ppo.yml:CartPol-v1")
    assert "is a directory" in fails(str(tmp_path))
    for odd in ("", ":", "a\0b", "x" * 5000, "mine:", "mine:full:full"):
        try:
            read(odd)
        except BadInput as error:
            assert "\n" not in str(error)


def test_files_that_are_no_run_files(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"")
    assert "is empty" in fails(str(path))
    path.write_bytes(b" \n\n")
    assert "is empty" in fails(str(path))
    path.write_bytes(b"# only a comment\n")
    assert "mapping" in fails(str(path))
    path.write_bytes(bytes(range(256)) * 10)
    assert "binary" in fails(str(path))
    path.write_bytes(b"algo: PPO\0\n")
    assert "binary" in fails(str(path))
    with path.open("wb") as stream:  # sparse: 1 GiB that takes no room
        stream.truncate(1 << 30)
    assert "1.0 GiB" in fails(str(path))


def test_alias_bomb_is_refused_at_once(tmp_path: Path) -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    path = tmp_path / "run.yaml"
    path.write_text("\n".join(rows))
    assert "aliases" in fails(str(path))


def test_broken_python_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("from stable_baselines3 import PPO\nPPO('MlpPolicy',\n")
    assert re.search(r"train.py:2: not valid Python", fails(str(path)))
    path.write_text("(" * 5000)
    assert "not valid Python" in fails(str(path))
    path.write_text("N_ENVS = " + "-" * 3000 + "1\n")
    fails(str(path))


def test_values_of_a_script_are_checked_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1',\n    n_steps=0)\n")
    assert "train.py:3: hyperparams.n_steps must be at least 1" in fails(str(path))
    path.write_text("from stable_baselines3 import PPO\nPPO('MlpPolicy', 'CartPole-v1', n_step=5)\n")
    assert "did you mean 'n_steps'?" in fails(str(path))


# --- nothing but BadInput, whatever the file holds

QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _never_anything_else(path: Path) -> None:
    try:
        runs = read_all(str(path))
    except BadInput as error:
        assert "\n" not in str(error)
    else:
        assert isinstance(runs, list)


@QUIET
@given(data=st.binary(max_size=200))
def test_random_bytes(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.yml"
    path.write_bytes(data)
    _never_anything_else(path)


WORDS = st.sampled_from(
    ["algo", "env", "PPO", "sac", "ppo", "hyperparams", "n_steps", "spaces", "observation", "action", "type", "box",
     "n", "shape", "policy", "kwargs", "net_arch", "wrappers", "n_envs", "num_envs", "backend", "brax", "network",
     "eval",
     "n_timesteps", "policy_kwargs", "dict(net_arch=[1])", "dict(", "env_wrapper", "CartPole-v1", "Pong-v4", "memory",
     "micro_batch", "checkpoint", "id", "name", "num_minibatches", "frame_stack", "normalize", "grid", "seed", "<<",
     "replay_buffer_kwargs", "n_sampled_goal", "model_class", "features_extractor_class", "dtype", "train_freq"]
)  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-3, 9), st.floats(), WORDS, st.text(max_size=4)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(WORDS, SCALARS), inner, max_size=5)),
    max_leaves=25,
)


@QUIET
@given(data=st.dictionaries(WORDS, TREES, max_size=6))
def test_random_files(data: dict[object, object], tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "ppo.yml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True))
    _never_anything_else(path)


RUNS = st.fixed_dictionaries(
    {"algo": st.sampled_from(["PPO", "DQN", "ars"])},
    optional={
        "env": st.one_of(TREES, st.dictionaries(WORDS, TREES, max_size=4)),
        "hyperparams": st.one_of(TREES, st.dictionaries(WORDS, TREES, max_size=4)),
        "policy": TREES, "memory": TREES, "eval": TREES, "backend": st.sampled_from(["sb3", "brax", "rllib", 3]),
    },
)  # fmt: skip


@QUIET
@given(data=RUNS, overrides=st.lists(st.tuples(WORDS, st.text(max_size=8)), max_size=2))
def test_random_runs(data: dict[str, object], overrides: list[tuple[str, str]]) -> None:
    try:
        run_from_dict(data, overrides=overrides)
    except BadInput as error:
        assert "\n" not in str(error)


LINES = st.sampled_from(
    ["N_ENVS = 2", "x = N_ENVS * 3", "import os", "from stable_baselines3 import PPO, DQN as D", "env = make_env(x)",
     "PPO('MlpPolicy', env, **kw)", "D(*args)", "kw = dict(n_steps=x)", "kw['batch_size'] = kw", "PPO()", "a, b = 1",
     "env = SubprocVecEnv([lambda: f(i) for i in range(N_ENVS)])", "def f(x, *a, y=PPO, **k): return f(x)",
     "class E(E): observation_space = Box(0, 1, (x,))", "E(E())", "PPO(E, E(), n_steps=E)", "for x in x: PPO(x, x)",
     "args = ArgumentParser().parse_args()", "PPO('MlpPolicy', args.env)", "model = PPO(1, 2).learn(x)",
     "env = env.env",
     "p = ArgumentParser(); p.add_argument('--n', default=x)", "x = [x] * N_ENVS", "x = {**kw, 'a': x}", "x += x",
     "x = 10 ** 10 ** 10", "x = 'a' * 10 ** 9", "x = x[0]", "if x: PPO(env=x)", "env = VecFrameStack(env, x)",
     "env = make_vec_env(f, N_ENVS, wrapper_class=f)", "x = (lambda: x)()", "EvalCallback(env)", "x = f(f)"]
)  # fmt: skip


@settings(QUIET, max_examples=50)  # reading one takes a tenth of a second; make fuzz tries more
@given(lines=st.lists(LINES, max_size=12))
def test_random_scripts(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("\n".join(lines))
    _never_anything_else(path)
