"""What people type wrongly, over all commands: the arguments, and a word that the one line about it must contain.

`FILES` are beside them. `HELD_OUT` was run once, after all others: nothing was changed for
it before. `FURTHER` is a second table, half of it held out in the same way.
"""

from __future__ import annotations

import os
from pathlib import Path

FILES = {
    "train.py": 'from stable_baselines3 import PPO\nmodel = PPO("MlpPolicy", "CartPole-v1")\nmodel.learn(10_000)\n',
    "loop.py": "import torch\nfor _ in range(3):\n    torch.ones(4)\n",
    "run.yaml": "algo: PPO\nenv: {id: CartPole-v1}\ntotal_timesteps: 4000\n",
    "empty.py": "",
    "empty.yaml": "",
    "empty.log": "",
    "list.yaml": "- 1\n- 2\n",
    "broken.py": "def f(:\n  pass\n",
    "tabs.yaml": "algo: PPO\n\tenv: {id: CartPole-v1}\n",
    "twice.yaml": "algo: PPO\nalgo: DQN\nenv: {id: CartPole-v1}\n",
    "notes.txt": "remember the milk\n",
    "profile.json": '{"legroom": 1}\n',
    "d/inside.txt": "x\n",
    "typo.yaml": "algo: PPO\nenv: {id: CartPole-v1}\nbatch_sise: 32\n",
    "ppo.yml": "CartPole-v1:\n  n_timesteps: !!float 1e5\n  policy: 'MlpPolicy'\n",
    "badenv.yaml": "algo: PPO\nenv: {id: CartPoel-v1}\n",
    "noenv.yaml": "algo: PPO\ntotal_timesteps: 4000\n",
    "text.yaml": "algo: PPO\nenv: {id: CartPole-v1}\ntotal_timesteps: many\n",
    "neg.yaml": "algo: PPO\nenv: {id: CartPole-v1, n_envs: -1}\n",
    "nb.ipynb": '{"cells": [], "nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
    "other.log": "y\n",
    "error.log": "x\n",
    "my_envs.py": "import gymnasium as gym\nclass MyEnv(gym.Env):\n    pass\n",
}
SEEN = (
    (('predict', 'train.py', '--ram', '-4GiB'), '-4GiB'),
    (('predict', 'train.py', '--ram', '0'), '0'),
    (('predict', 'train.py', '--vram', 'nan'), 'nan'),
    (('predict', 'd'), 'd'),
    (('predict', 'empty.py'), 'empty.py'),
    (('predict', 'binary.yaml'), 'binary.yaml'),
    (('predict', 'list.yaml'), 'list.yaml'),
    (('predict', 'broken.py'), 'broken.py:1'),
    (('predict', '--gpu', 'Radeon 9999', '--', 'python', 'loop.py'), 'Radeon 9999'),
    (('predict', '--', 'no-such-program', 'x'), 'no-such-program'),
    (('predict', 'train.py', '--', 'python', 'loop.py'), 'train.py'),
    (('predict', 'train.py', '--html', 'd'), 'd'),
    (('predict', 'train.py', '--set', 'batch_size=abc'), 'batch_size'),
    (('predict', 'ppo.yml:NoEnv-v0'), 'NoEnv-v0'),
    (('predict', 'CartPole-v1'), 'CartPole-v1'),
    (('fit', 'train.py', '--ram', '8GiB', '-o', 'train.py'), '--force'),
    (('fit', '--vram', '8GiB', '--param', 'n=64..32', '--', 'python', 'loop.py', '{n}'), '64..32'),
    (('fit', '--vram', '8GiB', '--param', 'n=64..128', '--', 'python', 'loop.py'), '{n}'),
    (('train', 'run.yaml', '--resume', '--out', 'runs/typo'), 'runs/typo'),
    (('train', 'run.yaml', '--timesteps', '-5'), '-5'),
    (('train', 'run.yaml', '--out', 'notes.txt'), 'notes.txt'),
    (('check', '--select', 'LR999', 'train.py'), 'LR999'),
    (('check', 'train.py', '--baseline', 'train.py'), 'train.py'),
    (('explain', 'nosuch.log'), 'nosuch.log'),
    (('profile', 'CartPool-v1'), 'CartPole'),
    (('profile', 'CartPole-v1', '--frames', '0'), '0'),
    (('watch', '--pid', '999999999'), '999999999'),
    (('sweep', 'run.yaml', '--param', 'seed=9..0', '--out', 's'), '9..0'),
    (('export', 'd', 'model.zip'), 'd'),
    (('machine', 'extra'), 'extra'),
)  # fmt: skip
HELD_OUT = (
    (("predict", "train.py", "--ram", "1e400GiB"), "1e400GiB"),
    (("predict", "pipe.yaml"), "pipe.yaml"),
    (("predict", "lost.yaml"), "lost.yaml"),
    (("predict", "latin.yaml"), "latin.yaml"),
    (("predict", "tabs.yaml"), "tabs.yaml:2"),
    (("predict", ""), ""),
    (("predict", "train.py", "--cpu-only", "--device", "cuda"), "--cpu-only"),
    (("predict", "--", "python", "nosuch.py"), "nosuch.py"),
    (("predict", "--", "./notes.txt"), "notes.txt"),
    (("predict", "train.py", "--for", "slurmm"), "slurm"),
    (("predict", "train.py", "--html", "nosuch/page.html"), "nosuch"),
    (("fit", "train.py", "--ram", "8GiB", "--tiers", "8,abc"), "abc"),
    (("fit", "train.py", "run.yaml", "--ram", "8GiB"), "run.yaml"),
    (("train", "run.yaml", "--plain", "--fit"), "--plain"),
    (("train", "--with", "leen", "--", "python", "loop.py"), "lean"),
    (("train", "run.yaml", "--checkpoint-every", "0"), "0"),
    (("train", "run.yaml", "--device", "tpu"), "tpu"),
    (("check", "train.py", "--dry-run"), "--fix"),
    (("check", "train.py", "--format", "xml"), "sarif"),
    (("explain", "d"), "d"),
    (("profile", "broken:Env"), "broken"),
    (("profile", "CartPole-v1", "--baseline", "notes.txt"), "notes.txt"),
    (("watch", "--interval", "0", "--", "true"), "0"),
    (("watch", "--pid", "1", "--", "true"), "--pid"),
    (("sweep", "run.yaml", "--param", "learning_rat=1,2", "--out", "s"), "learning_rate"),
    (("ui", "--port", "99999"), "99999"),
    (("export", "train.py"), "FILE"),
)
FURTHER = (
    (("legroom-less", "train.py"), "legroom --help"),
    (("train.py",), "legroom predict train.py"),
    (("predict", "train.yp"), "train.py"),
    (("predict", "ppo.yml:CartPol-v1"), "CartPole-v1"),
    (("predict", "train.py", "--ram", "16Gigs"), "16Gigs"),
    (("predict", "train.py", "--rma", "16GiB"), "--ram"),
    (('predict', 'train.py', '--gpu', ''), "GPU ''"),
    (("predict", "--"), "command"),
    (("predict", "PPO"), "legroom predict PPO CartPole-v1"),
    (("predict", "PPPO", "CartPole-v1"), "PPPO"),
    (("predict", "badenv.yaml"), "CartPole"),
    (("predict", "noenv.yaml"), "env"),
    (("predict", "text.yaml"), "total_timesteps"),
    (("predict", "nb.ipynb"), "nb.ipynb"),
    (("fit", "run.yaml", "--ram", "8GiB", "--param", "n=1..4"), "-- python train.py"),
    (("fit", "--vram", "8GiB", "--param", "n=8..64", "--", "python", "loop.py", "{m}"), "{n}"),
    (("fit", "run.yaml", "--ram", "8GiB", "-o", "nosuch/fitted.yaml"), "nosuch"),
    (("fit", "--vram", "8GiB", "--", "python", "nosuch.py"), "nosuch.py"),
    (("train", "run.yaml", "--seed", "1.5"), "1.5"),
    (("train", "--with", "lean"), "-- python train.py"),
    (("train", "--resume"), "RUN"),
    (("sweep", "run.yaml", "--out", "s1"), "--param"),
    (("check", "--explain-rule", "LR0001"), "LR001"),
    (("explain", "error.log", "other.log"), "other.log"),
    (("profile", "my_envs:MyEvn"), "MyEnv"),
    (("watch",), "command"),
    (("ui", "--folder", "nosuch"), "nosuch"),
    (("export", "nosuchrun", "model.zip"), "nosuchrun"),
    (("predict", "typo.yaml"), "batch_size"),
    (("predict", "mine:"), "mine:full"),
    (("fit", "train.py", "--ram", "8GiB", "--max-steps-per-update", "10"), "--tiers"),
)  # fmt: skip


def write_files(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "binary.yaml").write_bytes(bytes(range(256)) * 40)
    (folder / "latin.yaml").write_bytes("algo: PPO\nname: café\n".encode("latin-1"))
    (folder / "lost.yaml").symlink_to("gone.yaml")
    os.mkfifo(folder / "pipe.yaml")
