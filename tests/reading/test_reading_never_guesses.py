# ruff: noqa: E501
"""Scripts that change a size on the way to the constructor: the size is read exactly, or the verdict is unknown.

Each case is what stands between the import of DQN and the end of the script, and the sizes of the replay buffers that
running it would make; None where reading it must not say any.
"""

from pathlib import Path
from textwrap import dedent

import pytest

from legroom.errors import BadInput, NotKnownYet
from legroom.reading import read_all

MAKE = 'DQN("MlpPolicy", "CartPole-v1", buffer_size=N)'
BIG = 300_000_000

EXACT: dict[str, tuple[str, list[int]]] = {
    "a loop that doubles": (f"N = 1000\nfor _ in range(19):\n    N *= 2\n{MAKE}", [1000 * 2**19]),
    "a while loop": (f"N = 1000\nwhile N < 100_000_000:\n    N *= 10\n{MAKE}", [100_000_000]),
    "a constructor in a loop": (f"for N in (1000, {BIG}):\n    {MAKE}", [1000, BIG]),
    "one after the other": (f"N = {BIG}\nmodel = {MAKE}\nmodel.learn(10)\ndel model\nother = {MAKE}\nother.learn(10)", [BIG, BIG]),
    "one of two": (f'import sys\nN = {BIG}\nif "b" in sys.argv:\n    b = {MAKE}\n    b.learn(10)\nelse:\n    a = {MAKE}\n    a.learn(10)', [BIG, BIG]),
    "only looked at when it is loaded": (f'N = {BIG}\n{MAKE}.learn(10).save("m")\nmodel = DQN.load("m")\nmodel.predict([0.0] * 4)', [BIG]),
    "the same size again": (f"for seed in range(5):\n    N = 1000\n    {MAKE}", [1000]),
    "a condition in a loop": (f"N = 1\nfor i in range(4):\n    if i == 1:\n        N = {BIG}\n{MAKE}", [BIG]),
    "break": (f"N = 1000\nfor i in range(9):\n    if i == 3:\n        break\n    N += 1000\n{MAKE}", [4000]),
    "continue": (f"N = 0\nfor i in range(4):\n    if i % 2:\n        continue\n    N += 500\n{MAKE}", [1000]),
    "else of a loop": (f"N = 1\nfor i in range(3):\n    pass\nelse:\n    N = {BIG}\n{MAKE}", [BIG]),
    "global": (f"N = 1000\ndef grow():\n    global N\n    N = {BIG}\ngrow()\n{MAKE}", [BIG]),
    "nonlocal": (f"def main():\n    N = 1000\n    def grow():\n        nonlocal N\n        N = {BIG}\n    grow()\n    {MAKE}\nmain()", [BIG]),
    "an item times something": (f'cfg = {{"n": 1000}}\ncfg["n"] *= 300_000\nN = cfg["n"]\n{MAKE}', [BIG]),
    "update": (f'cfg = {{"n": 1000}}\ncfg.update(n={BIG})\nN = cfg["n"]\n{MAKE}', [BIG]),
    "a dict or another": (f'cfg = {{"n": 1000}}\ncfg |= {{"n": {BIG}}}\nN = cfg["n"]\n{MAKE}', [BIG]),
    "an alias of a dict": (f'cfg = {{"n": 1000}}\nother = cfg\nother["n"] = {BIG}\nN = cfg["n"]\n{MAKE}', [BIG]),
    "an alias of a list": (f"sizes = [1000]\nother = sizes\nother[0] = {BIG}\nN = sizes[0]\n{MAKE}", [BIG]),
    "a copy is no alias": (f'import copy\ncfg = {{"n": {BIG}}}\nother = copy.deepcopy(cfg)\nother["n"] = 1000\nN = cfg["n"]\n{MAKE}', [BIG]),
    "append and take": (f"sizes = [1000]\nsizes.append({BIG})\nN = sizes.pop()\n{MAKE}", [BIG]),
    "pop with a default": (f'cfg = {{"n": {BIG}}}\nN = cfg.pop("n", 1000)\n{MAKE}', [BIG]),
    "walrus": (f"if (N := {BIG}) > 1000:\n    pass\n{MAKE}", [BIG]),
    "walrus in the test of a loop": (f"N = 1000\nwhile (N := N * 2) < 100_000_000:\n    pass\n{MAKE}", [1000 * 2**17]),
    "walrus in a comprehension": (f"N = 1\nsizes = [N := n for n in (1000, {BIG})]\n{MAKE}", [BIG]),
    "an item of a comprehension": (f"sizes = [1000 * k for k in (1, 300_000)]\nN = sizes[1]\n{MAKE}", [BIG]),
    "del": (f'cfg = {{"n": 1000}}\ndel cfg["n"]\nN = cfg.get("n", {BIG})\n{MAKE}', [BIG]),
    "setattr on settings": (f'from types import SimpleNamespace\nargs = SimpleNamespace(n=1000)\nfor k, v in {{"n": {BIG}}}.items():\n    setattr(args, k, v)\nN = args.n\n{MAKE}', [BIG]),
    "an attribute that is set": (f"from types import SimpleNamespace\nargs = SimpleNamespace(n=1000)\nargs.n = {BIG}\nN = args.n\n{MAKE}", [BIG]),
    "vars": (f'import argparse\np = argparse.ArgumentParser()\np.add_argument("--n", default=1000)\nargs = p.parse_args()\nvars(args)["n"] = {BIG}\nN = args.n\n{MAKE}', [BIG]),
    "argparse": (f'import argparse\np = argparse.ArgumentParser()\np.add_argument("--n", type=int, default={BIG})\nN = p.parse_args().n\n{MAKE}', [BIG]),
    "a class attribute": (f"class C:\n    N = 1000\nC.N = {BIG}\nN = C.N\n{MAKE}", [BIG]),
    "a class attribute seen from an object": (f"class C:\n    n = 1000\nc = C()\nC.n = {BIG}\nN = c.n\n{MAKE}", [BIG]),
    "a dataclass that finishes itself": (f"from dataclasses import dataclass\n@dataclass\nclass C:\n    n: int = 1000\n    def __post_init__(self):\n        self.n = {BIG}\nN = C().n\n{MAKE}", [BIG]),
    "a default of earlier": (f"N = {BIG}\ndef train(n=N):\n    DQN('MlpPolicy', 'CartPole-v1', buffer_size=n)\nN = 1000\ntrain()", [BIG]),
    "partial": (f'from functools import partial\nmake = partial(DQN, "MlpPolicy", "CartPole-v1", buffer_size={BIG})\nmake()', [BIG]),
    "a decorator of the script": (f"def big(f):\n    def inner(n):\n        return f({BIG})\n    return inner\n@big\ndef train(n):\n    DQN('MlpPolicy', 'CartPole-v1', buffer_size=n)\ntrain(1000)", [BIG]),
    "a function that changes its argument": (f'cfg = {{"n": 1000}}\ndef tweak(c):\n    c["n"] = {BIG}\ntweak(cfg)\nN = cfg["n"]\n{MAKE}', [BIG]),
    "with": (f"import contextlib\nwith contextlib.nullcontext():\n    N = {BIG}\n{MAKE}", [BIG]),
    "both ways alike": (f"import os\nif os.path.exists('x'):\n    N = {BIG}\nelse:\n    N = {BIG}\n{MAKE}", [BIG]),
    "a condition that was not taken": (f"small = False\nsmall and print(N := 1000)\nN = {BIG}\n{MAKE}", [BIG]),
    "two constructors": (f"N = 1000\n{MAKE}\nN = {BIG}\n{MAKE}", [1000, BIG]),
    "an import that may be missing": (f"try:\n    import gymnasium as gym\nexcept ImportError:\n    import gym\nN = {BIG}\n{MAKE}", [BIG]),
    "one model after the other": (f"N = {BIG}\nfor s in range(8):\n    m = {MAKE}\n    m.learn(10)", [BIG]),
    "learning may be interrupted": (f"N = {BIG}\nm = {MAKE}\ntry:\n    m.learn(10)\nexcept KeyboardInterrupt:\n    pass\nfinally:\n    m.save('m')", [BIG]),
    "printing settings": (f'import wandb\ncfg = {{"n": {BIG}}}\nprint(cfg)\nwandb.init(config=cfg)\nN = cfg["n"]\n{MAKE}', [BIG]),
    "a name after a loop of training": (f"N = {BIG}\nm = {MAKE}\nfor i in range(100):\n    m.learn(1000, reset_num_timesteps=False)\n    m.save(f'{{i}}')", [BIG]),
    "playing after training": (f"import gymnasium as gym\nN = {BIG}\nm = {MAKE}\nenv = gym.make('CartPole-v1')\nobs, _ = env.reset()\nwhile True:\n    a, _ = m.predict(obs)\n    obs, r, done, cut, _ = env.step(a)\n    if done or cut:\n        break", [BIG]),
    "harmless attributes of a model": (f"N = {BIG}\nm = {MAKE}\nm.verbose = 1\nm.learning_rate = 1e-4", [BIG]),
    "an assertion that assigns": (f"N = 1000\nassert (N := {BIG}) > 0\n{MAKE}", [BIG]),
    "the library's own callbacks": (f"import gymnasium as gym\nfrom stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback\nN = {BIG}\nm = {MAKE}\nm.learn(10, callback=[CheckpointCallback(1000, 'ck'), EvalCallback(gym.make('CartPole-v1'))])", [BIG]),
    "rewards that a loop keeps": (f"import gymnasium as gym\nN = {BIG}\nm = {MAKE}\nenv = gym.make('CartPole-v1')\nobs, _ = env.reset()\nkept = []\nwhile True:\n    a, _ = m.predict(obs)\n    obs, r, done, cut, _ = env.step(a)\n    kept.append(float(r))\n    if done or cut:\n        break", [BIG]),
    "pictures of a short loop": (f"N = {BIG}\nm = {MAKE}\nframes = []\nfor _ in range(200):\n    frames.append(m.env.render())", [BIG]),
    "a callback that keeps numbers": (f"from stable_baselines3.common.callbacks import BaseCallback\nclass Log(BaseCallback):\n    def _on_step(self):\n        for info in self.locals['infos']:\n            if 'episode' in info:\n                self.kept.append(info['episode']['r'])\n        return True\nN = {BIG}\nm = {MAKE}\nm.learn(10, callback=Log())", [BIG]),
    "settings of torch": (f"import torch\ntorch.backends.cudnn.benchmark = True\nN = {BIG}\n{MAKE}", [BIG]),
}  # fmt: skip

UNKNOWN: dict[str, str] = {
    "arrays in a dict": f"import numpy as np\nN = 1000\nm = {MAKE}\nkept = {{}}\nfor i in range(10**7):\n    kept[i] = np.zeros(1000)\nm.learn(10)",
    "arrays in a queue": f"import numpy as np\nN = 1000\nm = {MAKE}\nimport queue\nq = queue.Queue()\nfor i in range(10**7):\n    q.put(np.zeros(1000))\nm.learn(10)",
    "an array that is joined to itself": f"import numpy as np\nN = 1000\nm = {MAKE}\na = np.zeros((1, 100))\nfor i in range(10**7):\n    a = np.concatenate([a, np.zeros((100, 100))])\nm.learn(10)",
    "a text that grows": f"import numpy as np\nN = 1000\nm = {MAKE}\ns = ''\nfor i in range(10**9):\n    s += 'x' * 100\nm.learn(10)",
    "results that are kept": f"import numpy as np\nN = 1000\nm = {MAKE}\nfrom functools import lru_cache\n@lru_cache(maxsize=None)\ndef table(i):\n    return np.zeros(10_000)\nfor i in range(10**6):\n    table(i)\nm.learn(10)",
    "a method that keeps": f"import numpy as np\nN = 1000\nm = {MAKE}\nclass Recorder:\n    def __init__(self):\n        self.rows = []\n    def note(self, row):\n        self.rows.append(row)\nrecorder = Recorder()\nfor i in range(10**7):\n    recorder.note(np.zeros(1000))\nm.learn(10)",
    "an array of all pairs": f"import numpy as np\nN = 1000\nm = {MAKE}\nv = np.ones(40_000)\ngram = np.outer(v, v)\nm.learn(10)",
    "other processes": f"import numpy as np\nN = 1000\nm = {MAKE}\nimport subprocess, sys\nfor i in range(20):\n    subprocess.Popen([sys.executable, 'child.py'])\nm.learn(10)",
    "a lambda that keeps": f"import numpy as np\nkept = []\nN = 1000\n{MAKE}.learn(10, callback=lambda l, g: kept.append(np.zeros(100_000)) or True)",
    "a callback of another package": f"from elsewhere import Keeper\nN = 1000\n{MAKE}.learn(10, callback=Keeper())",
    "rows in a list beside the model": f"rows = [list(range(1000)) for _ in range(1_000_000)]\nN = 1000\n{MAKE}.learn(10)",
    "bytes beside the model": f"blob = bytearray(6 * 2**30)\nN = 1000\n{MAKE}.learn(10)",
    "a file of data": f"import numpy as np\ntable = np.load('table.npy')\nN = 1000\n{MAKE}.learn(10)",
    "a loop that keeps observations": f"import gymnasium as gym\nN = 1000\nm = {MAKE}\nenv = gym.make('CartPole-v1')\nkept = []\nfor _ in range(10**7):\n    kept.append(env.reset()[0].repeat(1000))",
    "a callback that keeps observations": f"from stable_baselines3.common.callbacks import BaseCallback\nclass Keep(BaseCallback):\n    def _on_step(self):\n        self.kept.append(self.locals['new_obs'])\n        return True\nN = 1000\nm = {MAKE}\nm.learn(10, callback=Keep())",
    "a callback with an array": f"from stable_baselines3.common.callbacks import BaseCallback\nimport numpy as np\nclass Late(BaseCallback):\n    def _on_step(self):\n        if self.n_calls == 1000:\n            self.kept = np.ones((600_000_000,))\n        return True\nN = 1000\nm = {MAKE}\nm.learn(10, callback=Late())",
    "a buffer class of the script": "from stable_baselines3.common.buffers import ReplayBuffer\nclass Large(ReplayBuffer):\n    def __init__(self, size, *a, **k):\n        super().__init__(size * 1800, *a, **k)\nDQN('MlpPolicy', 'CartPole-v1', buffer_size=1000, replay_buffer_class=Large)",
    "match": f'mode = "big"\nmatch mode:\n    case "small":\n        N = 1000\n    case "big" | "huge":\n        N = {BIG}\n{MAKE}',
    "match by default": f'match "x":\n    case "small":\n        N = 1000\n    case _:\n        N = {BIG}\n{MAKE}',
    "setdefault": f'cfg = {{}}\ncfg.setdefault("n", {BIG})\nN = cfg["n"]\n{MAKE}',
    "unpacking": f"first, *rest = [1000, 2000, {BIG}]\nN = rest[-1]\n{MAKE}",
    "globals": f'N = 1000\nglobals()["N"] = {BIG}\n{MAKE}',
    "recursion": f"def grow(n, k):\n    return n if k == 0 else grow(n * 10, k - 1)\nN = grow(3000, 5)\n{MAKE}",
    "eval of a number": f'N = eval("{BIG}")\n{MAKE}',
    "an import that fails": f"try:\n    import elsewhere\n    N = 1000\nexcept ImportError:\n    N = {BIG}\n{MAKE}",
    "two models that are both kept": f"N = 1000\na = {MAKE}\nb = {MAKE}\na.learn(10)\nb.learn(10)",
    "two models of one object": f"class Game:\n    def __init__(self):\n        N = 1000\n        self.a = {MAKE}\n        self.b = {MAKE}\n    def play(self):\n        self.a.learn(10)\n        self.b.learn(10)\nGame().play()",
    "a model with the settings of a file": f'N = 1000\n{MAKE}.learn(10).save("m")\nmodel = DQN.load("m", env="CartPole-v1", custom_objects={{"buffer_size": {BIG}}})\nmodel.learn(10)',
    "models of a pool": f"from concurrent.futures import ThreadPoolExecutor\nN = {BIG}\ndef train(seed):\n    {MAKE}.learn(10)\nThreadPoolExecutor(8).map(train, range(8))",
    "models of processes": f"import multiprocessing as mp\nN = {BIG}\ndef train(seed):\n    {MAKE}.learn(10)\nfor s in range(8):\n    mp.Process(target=train, args=(s,)).start()",
    "an array beside the model": f"import numpy as np\nexpert = np.ones((100_000, 84, 84), dtype=np.float32)\nN = 1000\n{MAKE}",
    "models in a list": f"N = {BIG}\nmodels = []\nfor s in range(8):\n    models.append({MAKE})",
    "models of a comprehension": f"N = {BIG}\nmodels = {{s: {MAKE} for s in 'ab'}}",
    "exec": f'N = 1000\nexec("N = {BIG}")\n{MAKE}',
    "exec after the constructor": f'N = 1000\nm = {MAKE}\nexec("m.replay_buffer = None")',
    "eval with an effect": f'cfg = {{"n": 1000}}\neval("cfg.update(n={BIG})")\nN = cfg["n"]\n{MAKE}',
    "a buffer of its own": f"N = 1000\nm = {MAKE}\nm.replay_buffer = ReplayBuffer({BIG})",
    "setattr on a model": f'N = 1000\nm = {MAKE}\nsetattr(m, "replay_buffer", ReplayBuffer({BIG}))',
    "a buffer set by a callback": f"from stable_baselines3.common.callbacks import BaseCallback\nclass C(BaseCallback):\n    def _on_step(self):\n        self.model.replay_buffer = None\nN = 1000\n{MAKE}.learn(10, callback=C())",
    "a patched constructor": f"old = DQN.__init__\ndef init(self, *a, **k):\n    old(self, *a, **{{**k, 'buffer_size': {BIG}}})\nDQN.__init__ = init\nN = 1000\n{MAKE}",
    "a patched library": f"import stable_baselines3\nstable_baselines3.DQN = None\nN = 1000\n{MAKE}",
    "mock": f"from unittest import mock\nN = 1000\nwith mock.patch('stable_baselines3.DQN.__init__'):\n    {MAKE}",
    "a subclass with another size": f"class Mine(DQN):\n    def __init__(self, *a, **k):\n        super().__init__(*a, **{{**k, 'buffer_size': {BIG}}})\nMine('MlpPolicy', 'CartPole-v1', buffer_size=1000)",
    "a subclass with another default": f"class Mine(DQN):\n    def __init__(self, policy, env, n={BIG}):\n        super().__init__(policy, env, buffer_size=n)\nMine('MlpPolicy', 'CartPole-v1')",
    "an environment variable": f'import os\nN = int(os.environ.get("N", 1000))\n{MAKE}',
    "input": f"N = int(input())\n{MAKE}",
    "random": f"import random\nN = random.choice([1000, {BIG}])\n{MAKE}",
    "time": f"import time\nN = 1000 if time.time() < 5 else {BIG}\n{MAKE}",
    "one way only": f"import os\nN = 1000\nif os.path.exists('x'):\n    N = {BIG}\n{MAKE}",
    "two ways": f"import os\nif os.path.exists('x'):\n    N = 1000\nelse:\n    N = {BIG}\n{MAKE}",
    "a function that may return early": f"import os\nN = 1000\ndef grow():\n    global N\n    if os.path.exists('x'):\n        return\n    N = {BIG}\ngrow()\n{MAKE}",
    "a function with two results": f"import os\ndef size():\n    if os.path.exists('x'):\n        return 1000\n    return {BIG}\nN = size()\n{MAKE}",
    "a loop without a known end": f"import os\nN = 1000\nwhile not os.path.exists('x'):\n    N *= 2\n{MAKE}",
    "a loop over unknown items": f"import os\nN = 1000\nfor name in os.listdir('.'):\n    N *= 2\n{MAKE}",
    "a break nobody knows": f"import os\nN = 1000\nfor i in range(9):\n    if os.path.exists('x'):\n        break\n    N *= 10\n{MAKE}",
    "a very long loop": f"N = 0\nfor i in range(90_000):\n    N += 4000\n{MAKE}",
    "try and except": f"try:\n    N = 1000\n    f()\nexcept ValueError:\n    N = {BIG}\n{MAKE}",
    "suppress": f"from contextlib import suppress\nN = {BIG}\nwith suppress(ValueError):\n    f()\n    N = 1000\n{MAKE}",
    "code of another package": f'from elsewhere import tweak\ncfg = {{"n": 1000}}\ntweak(cfg)\nN = cfg["n"]\n{MAKE}',
    "an object given to another package": f"from types import SimpleNamespace\nfrom elsewhere import tweak\nargs = SimpleNamespace(n=1000)\ntweak(args)\nN = args.n\n{MAKE}",
    "a model given to another package": f"from elsewhere import tweak\nN = 1000\nm = {MAKE}\ntweak(m)",
    "a callback that is called elsewhere": f"from elsewhere import call\nN = 1000\ndef grow():\n    global N\n    N = {BIG}\ncall(grow)\n{MAKE}",
    "names from a module nobody has": f"N = 1000\nfrom elsewhere import *\n{MAKE}",
    "an unknown key": f'import os\ncfg = {{"n": 1000}}\ncfg[os.environ["K"]] = {BIG}\nN = cfg["n"]\n{MAKE}',
    "an unknown item that is changed": f'import os\nsmall, big = {{"n": 1000}}, {{"n": 2000}}\nfor_all = [small, big]\nfor_all[int(os.environ["K"])]["n"] = {BIG}\nN = small["n"]\n{MAKE}',
    "an unknown name that is set": f'import os\nfrom types import SimpleNamespace\nargs = SimpleNamespace(n=1000)\nsetattr(args, os.environ["K"], {BIG})\nN = args.n\n{MAKE}',
    "a shuffled list": f"import random\nsizes = [1000, {BIG}]\nrandom.shuffle(sizes)\nN = sizes[0]\n{MAKE}",
    "a generator": f"def sizes():\n    yield 1000\n    yield {BIG}\nfor N in sizes():\n    {MAKE}",
    "walrus in the test of a loop": f"import random\nN = 1000\nwhile (N := N * 2) < {BIG} * random.random():\n    pass\n{MAKE}",
    "its own command line": f'import argparse\np = argparse.ArgumentParser()\np.add_argument("--n", type=int, default=1000)\nN = p.parse_args(["--n", "{BIG}"]).n\n{MAKE}',
    "settings that are not there": 'import os\nN = 1000\nDQN("MlpPolicy", "CartPole-v1", **{"buffer_size": N, **dict(os.environ)})',
    "an object with its own attributes": f"class C:\n    def __init__(self):\n        self.n = 1000\n    def __getattribute__(self, name):\n        return {BIG}\nN = C().n\n{MAKE}",
    "a buffer that was saved": f"N = 1000\nm = {MAKE}\nm.load_replay_buffer('big.pkl')",
    "a model set up again": f"N = 1000\nm = {MAKE}\nvars(m).update(buffer_size={BIG})\nm._setup_model()",
    "attributes of a model": f"N = 1000\nm = {MAKE}\nm.__dict__.update(buffer_size={BIG})",
    "attributes of a model by another name": f"N = 1000\nm = {MAKE}\nd = vars(m)\nd['buffer_size'] = {BIG}",
    "a constructor called again": f"N = 1000\nm = {MAKE}\nm.__init__('MlpPolicy', 'CartPole-v1', buffer_size={BIG})",
    "a buffer made again": f"N = 1000\nm = {MAKE}\nm.replay_buffer.__init__({BIG}, m.observation_space, m.action_space)",
    "a deep copy": f"import copy\nN = 1000\nm = {MAKE}\nn = copy.deepcopy(m)",
    "a match nobody knows": f"import os\nN = 1000\nmatch os.environ.get('K'):\n    case 'big':\n        N = {BIG}\n{MAKE}",
    "vars of an object": f'class C:\n    def __init__(self):\n        self.n = 1000\nc = C()\nvars(c)["n"] = {BIG}\nN = c.n\n{MAKE}',
    "builtins": f"import builtins\nbuiltins.int = lambda n: {BIG}\nN = int(1000)\n{MAKE}",
    "a thread": f"import threading\nN = 1000\ndef grow():\n    global N\n    N = {BIG}\nt = threading.Thread(target=grow)\nt.start()\nt.join()\n{MAKE}",
}  # fmt: skip


def sizes_of(folder: Path, text: str) -> list[int]:
    path = folder / "train.py"
    path.write_text(f"from stable_baselines3 import DQN\n{dedent(text)}\n")
    return [run.hyperparams["buffer_size"] for run in read_all(str(path))]


@pytest.mark.parametrize("what", EXACT)
def test_what_can_be_proved_is_read(tmp_path: Path, what: str) -> None:
    text, sizes = EXACT[what]
    assert sizes_of(tmp_path, text) == sizes


@pytest.mark.parametrize("what", UNKNOWN)
def test_what_cannot_be_proved_is_unknown(tmp_path: Path, what: str) -> None:
    with pytest.raises(BadInput) as refused:
        sizes_of(tmp_path, UNKNOWN[what])
    assert isinstance(refused.value, NotKnownYet) and refused.value.exit_code == 1
    assert refused.value.line is not None
