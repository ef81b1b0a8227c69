"""Files that try to have code run by a command that only reads, as tables: each case is a name and what makes it.

`CANARY` in a text stands for the path of a file that exists only if something ran. `evil.py` lies beside every file.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

TOUCH = "touch CANARY"
SB3 = "from stable_baselines3 import PPO\n"
EVIL = """
open("CANARY", "w").close()
import gymnasium
class Env(gymnasium.Env): pass
Net = Policy = Wrapper = Env
def make(**kwargs): return Env()
gymnasium.register("Evil-v0", entry_point=Env)
"""
SPACES = {"observation": {"type": "box", "shape": [4]}, "action": {"type": "discrete", "n": 2}}
MARK = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def env(env_id: str, /, **kwargs: Any) -> dict[str, Any]:
    return {"algo": "PPO", "env": {"id": env_id, "kwargs": kwargs}}


def wrapped(*wrappers: Any) -> dict[str, Any]:
    return {"algo": "PPO", "env": {"id": "SpacesNobodyKnows-v0", "wrappers": list(wrappers)}}


def policy(**spec: Any) -> dict[str, Any]:
    return {"algo": "PPO", "env": {"id": "CartPole-v1", "spaces": SPACES}, "policy": spec}


# Run files whose environment is code of their own: nothing can be said of them without trust.
UNSEEN_ENVS: dict[str, dict[str, Any]] = {
    "system": env("os:system", command=TOUCH),
    "popen": env("os:popen", cmd=TOUCH),
    "mkdir": env("os:mkdir", path="CANARY"),
    "mknod": env("os:mknod", path="CANARY"),
    "process": env("subprocess:Popen", args=["touch", "CANARY"]),
    "call": env("subprocess:call", args=["touch", "CANARY"]),
    "copy": env("shutil:copy", src="/etc/hostname", dst="CANARY"),
    "rmtree": env("shutil:rmtree", path="BESIDE"),
    "exec": env("builtins:exec", source="open('CANARY', 'w')"),
    "eval": env("builtins:eval", source="open('CANARY', 'w')"),
    "open": env("builtins:open", file="CANARY", mode="w"),
    "import": env("importlib:import_module", name="evil"),
    "run path": env("runpy:run_path", path_name="BESIDE/evil.py"),
    "run module": env("runpy:run_module", mod_name="evil"),
    "unpickle": env("pickle:load", file="BESIDE/evil.pickle"),
    "shelve": env("shelve:open", filename="CANARY"),
    "sqlite": env("sqlite3:connect", database="CANARY"),
    "download": env("urllib.request:urlretrieve", url="file:///etc/hostname", filename="CANARY"),
    "pty": env("pty:spawn", argv=["touch", "CANARY"]),
    "library": env("ctypes:CDLL", name="BESIDE/evil.so"),
    "method": env("pathlib:Path.touch", self="CANARY"),
    "numpy": env("numpy:save", file="CANARY", arr=[1]),
    "beside": env("evil:Env"),
    "function beside": env("evil:make"),
    "no such attribute": env("evil:nothing"),
    "module that registers": env("evil:Evil-v0"),
    "package beside": env("package.evil:Env"),
    "old name": env("legroom_workload.mine:MineEnv"),
    "like a workload": env("legroom_workloads_evil:Env"),
    "id in an argument": env("GymV26Environment-v0", env_id="evil:Env"),
    "id deep in arguments": env("SpacesNobodyKnows-v0", inner={"envs": ["evil:Env"]}),
    "brax": {"backend": "brax", **env("evil:Env")},
    "rllib": {"backend": "rllib", **env("evil:Env")},
    "wrapper": wrapped("evil:Wrapper"),
    "dotted wrapper": wrapped("evil.Wrapper"),
    "system as wrapper": wrapped({"os.system": {"command": TOUCH}}),
    "wrapper of wrappers": wrapped("gymnasium.wrappers.FlattenObservation", "subprocess:run"),
    "film": wrapped({"gymnasium.wrappers.RecordVideo": {"video_folder": "CANARY"}}),
    "log": wrapped({"stable_baselines3.common.monitor.Monitor": {"filename": "CANARY"}}),
    "deep text": wrapped({"gymnasium.wrappers.TimeLimit": {"max_episode_steps": [1, ["CANARY"]]}}),
    "escapes": {"name": MARK, **env(f"evil{MARK}:Env")},
}  # fmt: skip
# Run files that say their spaces, with networks of their own: there is a bill, but no verdict.
UNSEEN_POLICIES: dict[str, dict[str, Any]] = {
    "policy": policy(name="evil:Policy"),
    "extractor": policy(features_extractor="evil:Net"),
    "dotted extractor": policy(features_extractor="evil.Net"),
    "system as extractor": policy(features_extractor="os:system", features_extractor_kwargs={"x": TOUCH}),
    "activation": policy(kwargs={"activation_fn": "evil:Net"}),
    "optimizer": policy(kwargs={"optimizer_class": "evil.Net"}),
    "deep class": policy(kwargs={"optimizer_kwargs": {"inner_class": "evil:Net"}}),
    "extractor's class": policy(
        features_extractor="stable_baselines3.common.torch_layers:NatureCNN",
        features_extractor_kwargs={"norm_fn": "evil:Net"},
    ),
}
# Texts that are no run at all, or a run in another language: whatever is made of them, nothing of them runs.
TEXTS: dict[str, str] = {
    "tag apply.yaml": "algo: PPO\nenv: {id: !!python/object/apply:os.system ['touch CANARY']}\n",
    "tag new.yaml": "algo: PPO\nenv: !!python/object/new:subprocess.Popen [['touch', 'CANARY']]\n",
    "tag name.yaml": "algo: !!python/name:os.system ''\nenv: {id: x}\n",
    "tag module.yaml": "algo: PPO\nenv: {id: !!python/module:evil ''}\n",
    "tag object.yaml": "!!python/object:evil.Env {}\n",
    "zoo arguments.yml": 'CartPole-v1:\n  policy_kwargs: "dict(a=__import__(\'os\').system(\'touch CANARY\'))"\n',
    "zoo rate.yml": "CartPole-v1:\n  learning_rate: \"__import__('os').system('touch CANARY')\"\n  n_timesteps: 1e5\n",
    "zoo wrapper.yml": "CartPole-v1:\n  env_wrapper: evil.Wrapper\n  policy: MlpPolicy\n  n_timesteps: 1e5\n",
    "zoo callback.yml": "CartPole-v1:\n  callback: evil.Wrapper\n  policy: MlpPolicy\n  n_timesteps: 1e5\n",
    "zoo key.yml": "evil:Env:\n  policy: MlpPolicy\n  n_timesteps: 1e5\n",
    "call.py": SB3 + "import os; os.system('touch CANARY')\nPPO('MlpPolicy', 'CartPole-v1')\n",
    "import.py": SB3 + "import evil\nmodel = PPO('MlpPolicy', evil.Env())\n",
    "from.py": SB3 + "from evil import Env\nmodel = PPO(evil.Policy, Env(), n_steps=8)\n",
    "argument.py": SB3 + "PPO('MlpPolicy', 'CartPole-v1', n_steps=open('CANARY', 'w').write('1'))\n",
    "comprehension.py": SB3 + "n = [open('CANARY', 'w') for _ in '3']\nPPO('MlpPolicy', n)\n",
    "decorator.py": "import os\n@os.system('touch CANARY')\ndef f(): ...\nN_ENVS = 4\n",
    "default.py": "import os\ndef f(a=os.system('touch CANARY')): ...\nLEARNING_RATE = 1e-3\nN_STEPS = 128\n",
    "format.py": "N_STEPS = int(f\"{open('CANARY', 'w')!r:>10}\")\nALGO = 'PPO'\n",
    "attribute.py": "N_STEPS = ().__class__.__base__.__subclasses__()\nALGO = (lambda: open('CANARY', 'w'))()\n",
    "exec.py": "exec(\"open('CANARY', 'w')\")\nN_STEPS = eval(\"open('CANARY', 'w')\")\n",
    "coding.py": "# -*- coding: evil -*-\nN_STEPS = 128\n",
    "names.yaml": f"algo: \"{MARK.encode('unicode_escape').decode()}\"\nenv: {{id: x}}\n",
    "constants.json": '{"algo": "PPO", "env": {"id": "evil:Env"}, "__class__": "evil.Env"}',
    "pickle.yaml": "\x80\x04\x95",
    "zeros.yaml": "\0" * 1000,
}  # fmt: skip


class Touches:
    """What a pickle of it does when it is loaded: make the canary."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.canary,)


def write_evil(folder: Path, canary: Path) -> None:
    (folder / "evil.py").write_text(EVIL.replace("CANARY", str(canary)))
    (folder / "package").mkdir()
    (folder / "package/__init__.py").touch()
    (folder / "package/evil.py").write_text(EVIL.replace("CANARY", str(canary)))
    (folder / "legroom_workloads_evil.py").write_text(EVIL.replace("CANARY", str(canary)))
    (folder / "evil.pickle").write_bytes(pickle.dumps(Touches(str(canary))))


def written(what: Any, folder: Path, canary: Path) -> str:
    """Return a run or a text as it stands in a file."""
    text = what if isinstance(what, str) else json.dumps(what)
    return text.replace("CANARY", str(canary)).replace("BESIDE", str(folder))
