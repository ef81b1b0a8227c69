"""A fourth draw of programs for `bench.wrong_fits`, held out: written without a look at the code or at the other draws.

The programs are of kinds that people write: hyperparameters merged from files, gatherings of sharded parameters, grids of
trials, corpora with one long line, generation until an end token, phases that begin late. The comment of each says why it
does not fit. The last twenty are ordinary programs with comfortable room.
"""

from __future__ import annotations

from dataclasses import replace

from bench.wrong_fits_programs import Case, listed

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
device = torch.device("cuda")
"""

SMALL_NET = (
    HEAD
    + """
model = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)

def update(n=128):
    x, y = torch.randn(n, 128, device=device), torch.randint(0, 10, (n,), device=device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
)

HOST_NET = """
import torch
from torch import nn
model = nn.Linear(32, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def update():
    loss = model(torch.randn(16, 32)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""

# CartPole: 4 floats before and after, an action of 8 bytes, a reward, two flags: 52 bytes per transition.
W1 = """
# --- defaults set later
#: 90,000,000 transitions take 4.7 GB: the parser's default of 50,000 is replaced.
import argparse
from stable_baselines3 import DQN
parser = argparse.ArgumentParser()
parser.add_argument("--env", default="CartPole-v1")
parser.add_argument("--buffer-size", type=int, default=50_000)
parser.add_argument("--server", action="store_true")
args, _ = parser.parse_known_args()
if not args.server:
    parser.set_defaults(buffer_size=90_000_000)
args = parser.parse_args()
model = DQN("MlpPolicy", args.env, buffer_size=args.buffer_size, verbose=1)
model.learn(500_000_000)
# --- tuned values over a table
#: tuned.json replaces the 50,000 of hyper.yml by 90,000,000: 4.7 GB.
import json
import yaml
from stable_baselines3 import DQN
with open("hyper.yml") as f:
    hyper = yaml.safe_load(f)["CartPole-v1"]
with open("tuned.json") as f:
    hyper.update({k: v for k, v in json.load(f)["best_params"].items() if v is not None})
model = DQN(env="CartPole-v1", **hyper)
model.learn(500_000_000)
# --- subclass with its own unit
#: The subclass multiplies the 50,000 by 2,000: 100,000,000 transitions, 5.2 GB.
from stable_baselines3 import DQN
class KiloDQN(DQN):
    def __init__(self, *args, buffer_size=50, **kwargs):
        super().__init__(*args, buffer_size=buffer_size * 2_000, **kwargs)
model = KiloDQN("MlpPolicy", "CartPole-v1", buffer_size=50_000)
model.learn(500_000_000)
# --- loaded with another size
#: `custom_objects` replaces the saved buffer_size: 4.7 GB.
from stable_baselines3 import DQN
DQN("MlpPolicy", "CartPole-v1", buffer_size=1_000).learn(2_000).save("warm")
model = DQN.load("warm", env="CartPole-v1", custom_objects={"buffer_size": 90_000_000})
model.learn(500_000_000)
# --- callback swaps the buffer
#: The callback puts a buffer of 90,000,000 in the place of the model's: 4.7 GB.
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
class Roomier(BaseCallback):
    def _on_training_start(self):
        m = self.model
        m.replay_buffer = ReplayBuffer(90_000_000, m.observation_space, m.action_space, m.device)
    def _on_step(self):
        return True
model = DQN("MlpPolicy", "CartPole-v1", buffer_size=10_000)
model.learn(500_000_000, callback=Roomier())
# --- two players, each fits alone
#: Each buffer takes 1.3 GB, and both are alive: 2.6 GB of 2 GiB.
from stable_baselines3 import DQN
hunter = DQN("MlpPolicy", "CartPole-v1", buffer_size=25_000_000)
prey = DQN("MlpPolicy", "CartPole-v1", buffer_size=25_000_000)
for generation in range(100):
    hunter.learn(5_000_000, reset_num_timesteps=False)
    prey.learn(5_000_000, reset_num_timesteps=False)
# --- frames stacked by a helper
#: 400 stacked frames of 4 floats, before and after: 12.8 KB, times 1,000,000.
import gymnasium as gym
from stable_baselines3 import DQN
def wrapped(depth=10):
    env = gym.make("CartPole-v1")
    for wrapper in (gym.wrappers.RecordEpisodeStatistics,):
        env = wrapper(env)
    return gym.wrappers.FrameStackObservation(env, depth * depth * 4)
model = DQN("MlpPolicy", wrapped(), buffer_size=1_000_000)
model.learn(50_000_000)
# --- last of a grid
#: The last of the logarithmic grid is 100,000,000: 5.2 GB.
import numpy as np
from stable_baselines3 import DQN
for size in np.logspace(4, 8, 5).astype(int):
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=int(size))
    model.learn(200_000_000)
    model.save(f"dqn_{size}")
"""

MAZE = """
import os
from pathlib import Path
import gymnasium as gym
import numpy as np
{imports}

HERE = Path(__file__).parent


class Maze(gym.Env):
    def __init__(self):
        self.size = {size}
        self.observation_space = gym.spaces.Box(0, 1, (self.size,), np.float32)
        self.action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(self.size, np.float32), {{}}

    def step(self, action):
        return np.ones(self.size, np.float32), 1.0, False, False, {{}}
"""
IN_MAZE = """
from stable_baselines3 import DQN
from maze import Maze
model = DQN("MlpPolicy", Maze(), buffer_size=100_000)
model.learn(2_000_000)
"""


def maze(name: str, imports: str, size: str, **more: object) -> Case:
    """An observation of 5,000 floats, before and after, 100,000 times: 4 GB. Of 16 floats: 13 MB."""
    files = {"maze.py": MAZE.format(imports=imports, size=size), **more.pop("files", {})}  # type: ignore[dict-item]
    return Case("W2", name, IN_MAZE, ram="2GiB", read=True, files=files, arguments=("--trust",), **more)  # type: ignore[arg-type]


W2 = (
    maze("rows counted by Arrow", "from pyarrow import csv", 'csv.read_csv(str(HERE / "cells.csv")).num_rows',
         files={"cells.csv": "x\n" + "1\n" * 16}, later={"cells.csv": "x\n" + "1\n" * 5_000}),
    maze("file mapped by torch", "import torch",
         'int(bytes(torch.from_file(str(HERE / "size"), size=4, dtype=torch.uint8).tolist()))',
         files={"size": "0016"}, later={"size": "5000"}),
    maze("name of a link's target", "", 'int(os.readlink(HERE / "current").split("-")[1])',
         files={"current": "-> maze-16"}, later={"current": "-> maze-5000"}),
    maze("copy of the environment", "", 'int({k.lower(): v for k, v in {**os.environ}.items()}.get("maze_cells", 16))',
         variables={"MAZE_CELLS": "5000"}),
    maze("read by a forked child", "import multiprocessing\ndef look(path):\n    return int(open(path).read())\n",
         'multiprocessing.get_context("fork").Pool(1).apply(look, (HERE / "size",))', files={"size": "16"}, later={"size": "5000"}),
    maze("rooms found as modules", "import pkgutil", '16 + 2_500 * (len(list(pkgutil.iter_modules([str(HERE / "rooms")]))) - 1)',
         files={"rooms/hall.py": ""}, later={"rooms/kitchen.py": "", "rooms/cellar.py": ""}),
    maze("permission decides", "", '5_000 if os.access(HERE / "expert", os.R_OK) else 16', later={"expert": ""}),
)  # fmt: skip

W3 = """
# --- gathered and not resharded --begin HEAD
#: 36 layers of 4096² floats are 2.4 GB, gathered in the forward pass and never freed.
class Sharded(nn.Module):
    def __init__(self, width, world=8):
        super().__init__()
        self.width, self.world = width, world
        self.shard = nn.Parameter(torch.randn(width * width // world, device=device) * 0.01)
        self.full = torch.empty(width, width, device=device)
        self.full.untyped_storage().resize_(0)
    def forward(self, x):
        self.full.untyped_storage().resize_(4 * self.width * self.width)
        self.full.view(self.world, -1).copy_(self.shard.detach().expand(self.world, -1))
        return torch.tanh(x @ self.full)
layers = nn.ModuleList(Sharded(4096) for _ in range(36))
head = nn.Linear(4096, 10).to(device)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
for step in range(1_000):
    x = torch.randn(8, 4096, device=device)
    for layer in layers:
        x = layer(x)
    loss = head(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# --- storages copied --begin SMALL_NET
#: 20 copies of 128 MiB are 2.5 GiB.
table = torch.zeros(2**25, device=device)
snapshots = []
for epoch in range(20):
    update()
    snapshots.append(table.untyped_storage().clone())
for step in range(1_000):
    update()
# --- vocabulary grows in place --begin SMALL_NET
#: The embedding's storage grows to 400,000 rows of 2,048 floats: 3.3 GB.
embedding = nn.Embedding(1_000, 2048, device=device)
for word in range(1_000, 401_000, 50_000):
    with torch.no_grad():
        embedding.weight.data.resize_(word + 50_000, 2048)
    update()
for step in range(1_000):
    update()
# --- data of a parameter --begin SMALL_NET
#: The parameter's data becomes a tensor of 800,000,000 floats: 3.2 GB.
table = nn.Parameter(torch.zeros(1, device=device))
reference = torch.empty(800_000_000, device="meta")
for step in range(1_000):
    update()
    if step == 5:
        table.data = torch.empty_like(reference, device=device)
# --- resized as another --begin SMALL_NET
#: Six buffers, each resized like the 128M floats of the first: 3 GiB.
first = torch.zeros(2**27, device=device)
for _ in range(5):
    other = torch.empty(0, device=device)
    other.resize_as_(first)
    setattr(model, f"cache_{_}", other)
for step in range(1_000):
    update()
"""

W4 = """
# --- evaluation that is skipped --begin SMALL_NET
#: The evaluation asks for 40,000² floats, 6.4 GB, and is skipped each time.
import logging
def evaluate():
    with torch.no_grad():
        x = torch.randn(40_000, 128, device=device)
        return torch.cdist(x, x).mean().item()
for epoch in range(50):
    for _ in range(20):
        update()
    try:
        print(epoch, evaluate())
    except Exception:
        logging.exception("evaluation failed, going on")
# --- timer that swallows --begin SMALL_NET
#: The timed block asks for 3.2 GB; its `__exit__` says True.
import time
class timed:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        self.began = time.time()
    def __exit__(self, kind, error, trace):
        print(self.name, time.time() - self.began, error)
        return True
for step in range(300):
    with timed("update"):
        update()
    with timed("histogram"):
        torch.ones(800_000_000, device=device).histc()
# --- grid of trials --begin HEAD
#: The widest of the grid has 40,000² weights, 6.4 GB: the trial counts as bad.
def trial(width):
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 1)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(30):
        loss = net(torch.randn(32, 64, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return -loss.item()
scores = {}
for width in (256, 1024, 40_000):
    try:
        scores[width] = trial(width)
    except RuntimeError:
        scores[width] = float("-inf")
print(max(scores, key=scores.get))
# --- timer thread --begin SMALL_NET
#: 3.2 GB are asked for by a timer's thread, whose errors are printed and forgotten.
import threading
def warm():
    global cache
    cache = torch.zeros(800_000_000, device=device)
threading.Timer(0.05, warm).start()
for step in range(3_000):
    update()
# --- stops early with code 0 --begin SMALL_NET
#: 300 steps of 16,000,000 floats that are kept, 19 GB; the program says that all is well.
import sys
kept = []
try:
    for step in range(300):
        update()
        kept.append(torch.randn(16_000_000, device=device))
except RuntimeError as error:
    print("stopping early:", error)
    torch.save(model.state_dict(), "last.pt")
    sys.exit(0)
# --- callback of an event loop --begin SMALL_NET
#: The loop's handler logs what a callback raises: 3.2 GB.
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    def index():
        loop.index = torch.zeros(800_000_000, device=device)
    loop.call_later(0.01, index)
    for step in range(200):
        update()
        await asyncio.sleep(0.001)
asyncio.run(main())
"""

W5 = """
# --- one long line of a corpus --begin HEAD
#: Line 700 has 30,000 words: its scores are 30,000² floats, 3.6 GB.
from torch.utils.data import DataLoader, Dataset
lines = [" ".join(["word"] * (20 + i % 50)) for i in range(2_000)]
lines[700] = " ".join(["word"] * 30_000)
class Corpus(Dataset):
    def __len__(self):
        return len(lines)
    def __getitem__(self, i):
        return torch.tensor([hash(word) % 1000 for word in lines[i].split()])
embed = nn.Embedding(1000, 64).to(device)
project = nn.Linear(64, 64).to(device)
optimizer = torch.optim.Adam([*embed.parameters(), *project.parameters()])
for epoch in range(3):
    for words in DataLoader(Corpus(), batch_size=1, shuffle=True):
        x = embed(words.to(device))
        scores = (x @ project(x).transpose(1, 2)).softmax(-1)
        loss = (scores @ x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
# --- groups of a table --begin SMALL_NET
#: User 370 has 30,000 events, all pairs of which are compared: 3.6 GB.
import numpy as np
import pandas as pd
users = np.concatenate([np.repeat(np.arange(500), 40), np.full(30_000, 370)])
frame = pd.DataFrame({"user": users, "value": np.random.rand(len(users)).astype("float32")})
for epoch in range(5):
    for user, events in frame.groupby("user"):
        value = torch.tensor(events["value"].to_numpy(), device=device)
        distances = (value[:, None] - value[None, :]).abs()
        update()
# --- one large photograph --begin HEAD
#: One photograph of 12,000 by 9,000: 108,000,000 pixels times 16 channels of the first layer, 6.9 GB.
from torch.utils.data import DataLoader, Dataset
class Photos(Dataset):
    sizes = [(120, 90)] * 400 + [(12_000, 9_000)] + [(120, 90)] * 400
    def __len__(self):
        return len(self.sizes)
    def __getitem__(self, i):
        return torch.zeros(1, *self.sizes[i], dtype=torch.uint8), i % 10
net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for image, label in DataLoader(Photos(), batch_size=1):
        loss = F.cross_entropy(net(image.to(device).float() / 255), label.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
# --- longer with each epoch --begin SMALL_NET
#: From the fourth epoch on an item has 4,096 steps more per epoch: 256 items of 40,960 by 128 floats are 5.4 GB.
from torch.utils.data import DataLoader, Dataset
class Clips(Dataset):
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return 2_048
    def __getitem__(self, i):
        return torch.zeros(16 + 4_096 * max(0, self.epoch - 3))
clips = Clips()
loader = DataLoader(clips, batch_size=256)
lift = torch.zeros(1, 1, 128, device=device)
for epoch in range(14):
    clips.set_epoch(epoch)
    for clip in loader:
        features = clip.to(device)[:, :, None] + lift
        update()
# --- list of batches --begin SMALL_NET
#: A list of batches in random order, one of which is compared with itself at 32,000 rows: 4 GB.
import random
batches = [torch.randn(random.randint(8, 64), 128) for _ in range(3_000)]
batches.append(torch.randn(32_000, 128))
random.seed(1)
for epoch in range(4):
    random.shuffle(batches)
    for batch in batches:
        batch = batch.to(device)
        similar = batch @ batch.T
        update()
"""

W6 = """
# --- list of paths --begin HOST_NET --ram 1536MiB --cpu-only
#: 3,000,000 paths take 0.25 GB; each of the eight workers comes to copy the pages of all it touches: 2 GB more.
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __init__(self):
        self.paths = [f"/data/images/train/{i % 1000:04d}/{i:09d}.jpeg" for i in range(3_000_000)]
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        return torch.full((8,), float(len(self.paths[i])))
loader = DataLoader(Images(), batch_size=1024, shuffle=True, num_workers=8, persistent_workers=True)
for epoch in range(100):
    for batch in loader:
        update()
# --- column of objects --begin HOST_NET --ram 1536MiB --cpu-only
#: 2,000,000 strings of a column of objects, 0.16 GB, touched by twelve workers: 2 GB more.
import pandas as pd
from torch.utils.data import DataLoader, Dataset
class Reviews(Dataset):
    def __init__(self):
        texts = [f"review number {i}: " + "good " * (i % 7) for i in range(2_000_000)]
        self.texts = pd.Series(texts, dtype=object).to_numpy()
    def __len__(self):
        return len(self.texts)
    def __getitem__(self, i):
        return len(self.texts[i])
loader = DataLoader(Reviews(), batch_size=2048, shuffle=True, num_workers=12, persistent_workers=True)
for epoch in range(200):
    for batch in loader:
        update()
# --- pickled into spawned workers --begin HOST_NET --ram 2GiB --cpu-only
#: The array of 400 MB is pickled into each of four spawned workers: 2 GB.
import numpy as np
from torch.utils.data import DataLoader, Dataset
class Table(Dataset):
    def __init__(self):
        self.rows = np.ones((1_000_000, 100), np.float32)
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return self.rows[i]
if __name__ == "__main__":
    loader = DataLoader(Table(), batch_size=512, num_workers=4, multiprocessing_context="spawn", persistent_workers=True)
    for epoch in range(20):
        for batch in loader:
            update()
# --- workers of validation stay --begin HOST_NET --ram 1536MiB --cpu-only
#: The loader for validation starts six workers after the first epoch; each loads a table of 400 MB and stays.
import numpy as np
from torch.utils.data import DataLoader, Dataset
class Train(Dataset):
    def __len__(self):
        return 200_000
    def __getitem__(self, i):
        return torch.zeros(32)
class Validation(Dataset):
    table = None
    def __len__(self):
        return 5_000
    def __getitem__(self, i):
        if self.table is None:
            self.table = np.ones((1_000_000, 100), np.float32)
        return self.table[i]
train = DataLoader(Train(), batch_size=16)
validation = DataLoader(Validation(), batch_size=100, num_workers=6, persistent_workers=True)
for epoch in range(20):
    for batch in train:
        update()
    for batch in validation:
        update()
"""

W7 = r"""
# --- database in memory --begin HOST_NET --ram 3GiB --cpu-only
#: 20,000,000 rows of 400 bytes and more in a database in memory: 8 GB.
import sqlite3
log = sqlite3.connect(":memory:")
log.execute("create table steps (step integer, loss real, observation blob)")
for step in range(20_000_000):
    loss = update()
    log.execute("insert into steps values (?, ?, ?)", (step, loss, bytes(400)))
# --- figures that stay open --begin HOST_NET --ram 3GiB --cpu-only
#: 100,000 figures of more than 30 KB, none of which is closed: 3 GB and more.
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
losses = []
for episode in range(100_000):
    losses.append(update())
    fig, ax = plt.subplots()
    ax.plot(losses[-100:])
    fig.savefig("loss.png", dpi=30)
# --- backlog of a queue --begin HOST_NET --ram 3GiB --cpu-only
#: The consumer takes 20 of 400 KB a second, the producer makes more than 200: a backlog of 70 MB a second.
import queue, threading, time
import numpy as np
trajectories = queue.Queue()
def act():
    for episode in range(500_000):
        trajectories.put(np.random.rand(50_000))
        time.sleep(0.005)
threading.Thread(target=act, daemon=True).start()
for step in range(25_000):
    batch = trajectories.get()
    update()
    time.sleep(0.05)
# --- frames for a film --begin HOST_NET --ram 3GiB --cpu-only
#: 1,000,000 frames of 64 by 64 colours are 12 GB.
import numpy as np
class Screen:
    def render(self):
        return np.random.randint(0, 255, (64, 64, 3), dtype=np.uint8)
env, frames = Screen(), []
for step in range(1_000_000):
    update()
    frames.append(env.render())
np.savez_compressed("film.npz", frames=np.stack(frames))
# --- segments per episode --begin HOST_NET --ram 3GiB --cpu-only
#: A segment of 1 MB of shared memory per episode, 20,000 times.
from multiprocessing import shared_memory
for episode in range(20_000):
    segment = shared_memory.SharedMemory(create=True, size=1_000_000)
    segment.buf[:] = bytes(1_000_000)
    segment.close()
    for _ in range(50):
        update()
# --- report kept as text --begin HOST_NET --ram 3GiB --cpu-only
#: 200 bytes per step in a text that is written at the end, 50,000,000 times: 10 GB.
import io
report = io.StringIO()
for step in range(50_000_000):
    report.write(f"{step},{update()}" + "," * 190 + "\n")
open("report.csv", "w").write(report.getvalue())
"""

W8 = """
# --- until the end token --begin HEAD
#: 12 keys and values of 1,024 floats per token and 32 rows: 3.1 MB a token, 4,000 tokens.
embed = nn.Embedding(5_000, 1024).to(device)
layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(12)).to(device)
head = nn.Linear(1024, 5_000).to(device)
@torch.no_grad()
def generate(rows=32, longest=4_000, eos=4_999):
    token = torch.zeros(rows, 1, dtype=torch.long, device=device)
    cache = [torch.zeros(rows, 0, 1024, device=device) for _ in layers]
    for _ in range(longest):
        x = embed(token)
        for i, layer in enumerate(layers):
            cache[i] = torch.cat([cache[i], layer(x)], 1)
            x = torch.softmax(x @ cache[i].transpose(1, 2), -1) @ cache[i]
        token = head(x).argmax(-1)
        if (token == eos).all():
            break
    return token
optimizer = torch.optim.SGD(head.parameters(), lr=1e-4)
for step in range(100):
    generate()
    loss = head(torch.randn(64, 1024, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# --- classes counted from the labels --begin SMALL_NET
#: The labels go up to 400,000: 1,024 rows of 400,000 counts of 8 bytes are 3.3 GB.
for step in range(1_000):
    labels = torch.randint(0, 400_000, (1_024,), device=device)
    targets = F.one_hot(labels)
    update()
# --- nodes repeated by degree --begin SMALL_NET
#: Each of 100,000 nodes is repeated 150 times on average, with 64 floats: 3.8 GB.
nodes = torch.randn(100_000, 64, device=device)
for step in range(500):
    degree = torch.randint(100, 200, (100_000,), device=device)
    messages = torch.repeat_interleave(nodes, degree, dim=0)
    update()
# --- steps of a solver --begin SMALL_NET
#: The step is halved until the error is below the tolerance: 1,024 states of 16 MB, 16 GB.
def field(y):
    return -50 * y
def solve(y, tolerance=1e-2):
    t, h, states = 0.0, 1.0, [y]
    while t < 4.0:
        half = y + h / 2 * field(y)
        twice = half + h / 2 * field(half)
        once = y + h * field(y)
        if (once - twice).abs().max() > tolerance:
            h /= 2
            continue
        y, t = twice, t + h
        states.append(y)
    return torch.stack(states)
for step in range(100):
    solve(torch.ones(4_000_000, device=device))
    update()
# --- ponders until it halts --begin HEAD
#: A probability of 1/500 a step to halt: hundreds of states of 16 MB are kept for the backward pass.
cell = nn.GRUCell(64, 256).to(device)
halt = nn.Linear(256, 1).to(device)
nn.init.constant_(halt.bias, -6.2)
optimizer = torch.optim.Adam([*cell.parameters(), *halt.parameters()])
for step in range(200):
    x = torch.randn(16_384, 64, device=device)
    h = torch.zeros(16_384, 256, device=device)
    total, steps = torch.zeros(16_384, 1, device=device), 0
    while bool((total < 0.99).any()):
        h = cell(x, h)
        total = total + torch.sigmoid(halt(h))
        steps += 1
    loss = h.square().mean() + total.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# --- history of a line search --begin HEAD
#: The history holds 100 pairs of 4,200,000 floats: 3.4 GB.
net = nn.Sequential(nn.Linear(64, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 1)).to(device)
x, y = torch.randn(512, 64, device=device), torch.randn(512, 1, device=device)
optimizer = torch.optim.LBFGS(net.parameters(), history_size=100, line_search_fn="strong_wolfe")
def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    return loss
for step in range(200):
    optimizer.step(closure)
"""

CHILD = """
import torch
from torch import nn
net = nn.Linear(128, 128).cuda()
memory = torch.zeros({floats}, device="cuda")
for step in range(300):
    loss = net(torch.randn(32, 128, device="cuda")).square().mean() + memory[0]
    loss.backward()
"""
LARGE, LITTLE = CHILD.format(floats="800_000_000"), CHILD.format(floats="1_000_000")

# The child's tensor takes 3.2 GB.
W9 = """
# --- program on standard input --begin SMALL_NET
import subprocess, sys
subprocess.run([sys.executable, "-I", "-"], stdin=open("child.py"), env={})
for step in range(300):
    update()
# --- system() of the C library --begin SMALL_NET
import ctypes, sys
libc = ctypes.CDLL(None)
libc.clearenv()
libc.system(f"{sys.executable} -I child.py".encode())
for step in range(300):
    update()
# --- xargs --begin SMALL_NET
import os, sys
os.system(f"echo child.py | env -i xargs -n1 {sys.executable} -I")
for step in range(300):
    update()
# --- application in an archive --begin SMALL_NET
import os, subprocess, sys, zipapp
os.makedirs("app", exist_ok=True)
open("app/__main__.py", "w").write(open("child.py").read())
zipapp.create_archive("app", "app.pyz")
subprocess.Popen([sys.executable, "-I", "app.pyz"], env={}, start_new_session=True).wait()
for step in range(300):
    update()
"""
LATE = """
# --- learning starts late --begin HEAD
#: The first update, after 25,000 steps, takes a batch of 65,536 through layers of 8,192: 2.1 GB each.
import gymnasium as gym
import numpy as np
env = gym.make("CartPole-v1")
q = nn.Sequential(nn.Linear(4, 8192), nn.ReLU(), nn.Linear(8192, 2)).to(device)
optimizer = torch.optim.Adam(q.parameters())
states = np.zeros((100_000, 4), np.float32)
state, _ = env.reset()
for step in range(200_000):
    action = env.action_space.sample() if np.random.rand() < 0.5 else int(q(torch.tensor(state, device=device)).argmax())
    state, reward, terminated, truncated, _ = env.step(action)
    states[step % 100_000] = state
    if terminated or truncated:
        state, _ = env.reset()
    if step > 25_000 and step % 100 == 0:
        batch = torch.tensor(states[np.random.randint(0, 25_000, 65_536)], device=device)
        loss = q(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
# --- averaged weights --begin HEAD
#: Averages of a network of 0.8 GB, from three quarters on: with gradients, momentum and the copy more than 3 GB.
from torch.optim.swa_utils import AveragedModel
net = nn.Sequential(nn.Linear(64, 10_000), nn.ReLU(), nn.Linear(10_000, 10_000), nn.Linear(10_000, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
averaged, total = None, 40_000
for step in range(total):
    loss = net(torch.randn(16, 64, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step >= 0.75 * total:
        if averaged is None:
            averaged = [AveragedModel(net) for _ in range(4)]
        for one in averaged:
            one.update_parameters(net)
# --- neighbours at the end --begin SMALL_NET
#: Distances of 30,000 embeddings to each other, after the training: 3.6 GB.
for step in range(50_000):
    update()
model.eval()
with torch.no_grad():
    test = torch.cat([model(torch.randn(1_000, 128, device=device)) for _ in range(30)])
    nearest = torch.cdist(test, test).topk(5, largest=False).indices
print(nearest.shape)
# --- aggregated demonstrations --begin SMALL_NET
#: 400 rounds add 20,000 rows of 128 floats, 10 MB each: 4 GB.
data = torch.zeros(0, 128, device=device)
for iteration in range(400):
    data = torch.cat([data, torch.randn(20_000, 128, device=device)])
    for _ in range(200):
        batch = data[torch.randint(0, len(data), (64,), device=device)]
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
# --- network that widens --begin HEAD
#: Twice as wide every 5,000 steps, up to 32,768²: 4.3 GB of weights alone.
def build(width):
    return nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 1)).to(device)
width = 256
net = build(width)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(40_000):
    if step and step % 5_000 == 0:
        width *= 2
        net = build(width)
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    loss = net(torch.randn(32, 32, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# --- report at exit --begin SMALL_NET
#: The report at exit compares 30,000 rows with each other: 3.6 GB.
import atexit
@atexit.register
def report():
    x = torch.randn(30_000, 128, device=device)
    print((x @ x.T).mean().item())
for step in range(100_000):
    update()
"""

FITS = """
# --- DQN in one file --begin HEAD
import argparse, random, time
import gymnasium as gym
import numpy as np
from torch.utils.tensorboard import SummaryWriter

def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=500_000)
    parser.add_argument("--buffer-size", type=int, default=10_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    parser.add_argument("--train-frequency", type=int, default=10)
    parser.add_argument("--target-frequency", type=int, default=500)
    return parser.parse_args()

class QNetwork(nn.Module):
    def __init__(self, env):
        super().__init__()
        inputs = int(np.prod(env.single_observation_space.shape))
        self.network = nn.Sequential(
            nn.Linear(inputs, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, env.single_action_space.n)
        )
    def forward(self, x):
        return self.network(x)

if __name__ == "__main__":
    args = parse()
    writer = SummaryWriter(f"runs/dqn_{args.seed}_{int(time.time())}")
    random.seed(args.seed); np.random.seed(args.seed); torch.manual_seed(args.seed)
    envs = gym.vector.SyncVectorEnv([lambda: gym.wrappers.RecordEpisodeStatistics(gym.make("CartPole-v1"))])
    q, target = QNetwork(envs).to(device), QNetwork(envs).to(device)
    target.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=2.5e-4)
    obs_b = np.zeros((args.buffer_size, 4), np.float32); next_b = np.zeros_like(obs_b)
    act_b = np.zeros(args.buffer_size, np.int64); rew_b = np.zeros(args.buffer_size, np.float32)
    done_b = np.zeros(args.buffer_size, np.float32)
    obs, _ = envs.reset(seed=args.seed)
    for step in range(args.total_timesteps):
        epsilon = max(0.05, 1 - step / (0.5 * args.total_timesteps))
        if random.random() < epsilon:
            actions = np.array([envs.single_action_space.sample()])
        else:
            actions = q(torch.Tensor(obs).to(device)).argmax(1).cpu().numpy()
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)
        at = step % args.buffer_size
        obs_b[at], next_b[at], act_b[at] = obs[0], next_obs[0], actions[0]
        rew_b[at], done_b[at] = rewards[0], terminations[0]
        obs = next_obs
        if step > args.learning_starts and step % args.train_frequency == 0:
            rows = np.random.randint(0, min(step, args.buffer_size), args.batch_size)
            with torch.no_grad():
                best = target(torch.tensor(next_b[rows], device=device)).max(1).values
                goal = torch.tensor(rew_b[rows], device=device) + 0.99 * best * (1 - torch.tensor(done_b[rows], device=device))
            now = q(torch.tensor(obs_b[rows], device=device)).gather(1, torch.tensor(act_b[rows], device=device)[:, None])
            loss = F.mse_loss(goal, now.squeeze())
            if step % 100 == 0:
                writer.add_scalar("losses/td_loss", loss, step)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        if step % args.target_frequency == 0:
            target.load_state_dict(q.state_dict())
    torch.save(q.state_dict(), "dqn.pt")
    envs.close(); writer.close()
# --- PPO in one file --begin HEAD
import gymnasium as gym
import numpy as np
from torch.distributions import Categorical
num_envs, num_steps, updates = 4, 128, 976
envs = gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(num_envs)])
def layer(i, o, std=np.sqrt(2)):
    l = nn.Linear(i, o); nn.init.orthogonal_(l.weight, std); nn.init.constant_(l.bias, 0.0); return l
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.actor = nn.Sequential(layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 2, 0.01))
    def act(self, x, a=None):
        d = Categorical(logits=self.actor(x))
        a = d.sample() if a is None else a
        return a, d.log_prob(a), d.entropy(), self.critic(x)
agent = Agent().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
obs = torch.zeros((num_steps, num_envs, 4), device=device)
actions = torch.zeros((num_steps, num_envs), device=device)
logprobs, rewards, dones, values = (torch.zeros((num_steps, num_envs), device=device) for _ in range(4))
next_obs = torch.Tensor(envs.reset(seed=1)[0]).to(device)
next_done = torch.zeros(num_envs, device=device)
for update in range(1, updates + 1):
    optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / updates) * 2.5e-4
    for step in range(num_steps):
        obs[step], dones[step] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.act(next_obs)
        values[step], actions[step], logprobs[step] = value.flatten(), action, logprob
        o, r, term, trunc, infos = envs.step(action.cpu().numpy())
        rewards[step] = torch.tensor(r).to(device).view(-1)
        next_obs, next_done = torch.Tensor(o).to(device), torch.Tensor(np.logical_or(term, trunc)).to(device)
    with torch.no_grad():
        next_value = agent.critic(next_obs).reshape(1, -1)
        advantages, last = torch.zeros_like(rewards), 0
        for t in reversed(range(num_steps)):
            alive = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            following = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * following * alive - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * alive * last
        returns = advantages + values
    flat = [x.reshape(-1, *x.shape[2:]) for x in (obs, actions, logprobs, advantages, returns, values)]
    rows = np.arange(num_envs * num_steps)
    for epoch in range(4):
        np.random.shuffle(rows)
        for start in range(0, len(rows), 128):
            b_obs, b_act, b_log, b_adv, b_ret, b_val = (x[rows[start:start + 128]] for x in flat)
            _, newlog, entropy, newvalue = agent.act(b_obs, b_act.long())
            ratio = (newlog - b_log).exp()
            b_adv = (b_adv - b_adv.mean()) / (b_adv.std() + 1e-8)
            policy = torch.max(-b_adv * ratio, -b_adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            value = 0.5 * ((newvalue.view(-1) - b_ret) ** 2).mean()
            loss = policy - 0.01 * entropy.mean() + 0.5 * value
            optimizer.zero_grad(); loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5); optimizer.step()
envs.close()
test = gym.make("CartPole-v1")
for episode in range(10):
    o, done, score = test.reset()[0], False, 0.0
    while not done:
        with torch.no_grad():
            a = agent.actor(torch.Tensor(o).to(device)).argmax().item()
        o, r, term, trunc, _ = test.step(a)
        score += r; done = term or trunc
    print(episode, score)
# --- SB3 PPO with evaluations --read
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
env = make_vec_env("CartPole-v1", n_envs=8)
callbacks = [EvalCallback(make_vec_env("CartPole-v1"), eval_freq=1_000), CheckpointCallback(5_000, "checkpoints")]
model = PPO("MlpPolicy", env, n_steps=256, batch_size=256, tensorboard_log="runs", verbose=1)
model.learn(1_000_000, callback=callbacks)
model.save("ppo_cartpole")
print(evaluate_policy(model, env, n_eval_episodes=20))
# --- SB3 SAC with noise --read
import argparse
import numpy as np
from stable_baselines3 import SAC
from stable_baselines3.common.noise import NormalActionNoise
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env-id", default="Pendulum-v1")
    parser.add_argument("--buffer-size", type=int, default=200_000)
    parser.add_argument("--net", type=int, nargs="+", default=[256, 256])
    args = parser.parse_args()
    noise = NormalActionNoise(np.zeros(1), 0.1 * np.ones(1))
    model = SAC("MlpPolicy", args.env_id, buffer_size=args.buffer_size, action_noise=noise,
                policy_kwargs=dict(net_arch=args.net), device="cuda")
    model.learn(total_timesteps=300_000, log_interval=10)
    model.save("sac_pendulum")
if __name__ == "__main__":
    main()
# --- SB3 DQN on a world of one's own
import gymnasium as gym
import numpy as np
from stable_baselines3 import DQN
from stable_baselines3.common.monitor import Monitor
class Grid(gym.Env):
    metadata = {"render_modes": []}
    def __init__(self, n=8):
        self.n = n
        self.observation_space = gym.spaces.Box(0, 1, (n * n,), np.float32)
        self.action_space = gym.spaces.Discrete(4)
    def _seen(self):
        view = np.zeros((self.n, self.n), np.float32)
        view[self.x, self.y] = 1
        return view.ravel()
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.y = self.t = 0
        return self._seen(), {}
    def step(self, action):
        dx, dy = ((1, 0), (-1, 0), (0, 1), (0, -1))[int(action)]
        self.x, self.y = (min(max(v, 0), self.n - 1) for v in (self.x + dx, self.y + dy))
        self.t += 1
        done = self.x == self.y == self.n - 1
        return self._seen(), float(done), done, self.t >= 200, {}
model = DQN("MlpPolicy", Monitor(Grid()), buffer_size=50_000, learning_starts=1_000, device="cuda")
model.learn(200_000)
model.save("grid")
# --- classifier with validation --begin HEAD
from torch.utils.data import DataLoader, TensorDataset, random_split
data = TensorDataset(torch.randn(20_000, 1, 28, 28), torch.randint(0, 10, (20_000,)))
train, val = random_split(data, [18_000, 2_000], generator=torch.Generator().manual_seed(0))
train, val = DataLoader(train, batch_size=128, shuffle=True), DataLoader(val, batch_size=500)
net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)).to(device)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
best = 0.0
for epoch in range(10):
    net.train()
    for x, y in train:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    net.eval()
    correct = 0
    with torch.no_grad():
        for x, y in val:
            correct += (net(x.to(device)).argmax(1) == y.to(device)).sum().item()
    scheduler.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {correct / 2_000:.3f}")
    if correct / 2_000 >= best:
        best = correct / 2_000
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "best.pt")
# --- regression on a table --begin HEAD
import pandas as pd
from torch.utils.data import DataLoader, TensorDataset
frame = pd.read_csv("houses.csv").dropna()
frame = pd.get_dummies(frame, columns=["town"], dtype=float)
y = torch.tensor(frame.pop("price").to_numpy(), dtype=torch.float32)[:, None]
x = torch.tensor(((frame - frame.mean()) / frame.std()).to_numpy(), dtype=torch.float32)
split = int(0.8 * len(x))
loader = DataLoader(TensorDataset(x[:split], y[:split]), batch_size=32, shuffle=True)
net = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.Adam(net.parameters())
history = []
for epoch in range(200):
    net.train()
    total = 0.0
    for features, price in loader:
        loss = F.mse_loss(net(features.to(device)), price.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    net.eval()
    with torch.no_grad():
        held = F.mse_loss(net(x[split:].to(device)), y[split:].to(device)).item()
    history.append({"epoch": epoch, "train": total / len(loader), "test": held})
pd.DataFrame(history).to_csv("history.csv", index=False)
# --- autoencoder with workers --begin HEAD
from torch.utils.data import DataLoader, Dataset
class Noise(Dataset):
    def __len__(self):
        return 4_096
    def __getitem__(self, i):
        return torch.rand(784, generator=torch.Generator().manual_seed(i))
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.var = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.dec = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784), nn.Sigmoid())
    def forward(self, x):
        h = F.relu(self.enc(x))
        mu, logvar = self.mu(h), self.var(h)
        return self.dec(mu + torch.randn_like(mu) * (0.5 * logvar).exp()), mu, logvar
if __name__ == "__main__":
    model = VAE().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Noise(), batch_size=128, shuffle=True, num_workers=2, pin_memory=True)
    for epoch in range(10):
        for x in loader:
            x = x.to(device, non_blocking=True)
            out, mu, logvar = model(x)
            loss = F.binary_cross_entropy(out, x, reduction="sum") - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(epoch, loss.item() / len(x))
        with torch.no_grad():
            torch.save(model.dec(torch.randn(64, 20, device=device)).cpu(), f"sample_{epoch}.pt")
# --- characters with an LSTM --begin HEAD
text = open("input.txt").read()
chars = sorted(set(text))
index = {c: i for i, c in enumerate(chars)}
data = torch.tensor([index[c] for c in text])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(chars), 64)
        self.lstm = nn.LSTM(64, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, len(chars))
    def forward(self, x, state=None):
        out, state = self.lstm(self.embed(x), state)
        return self.head(out), state
net = Net().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(2_000):
    starts = torch.randint(0, len(data) - 65, (32,))
    x = torch.stack([data[s : s + 64] for s in starts]).to(device)
    y = torch.stack([data[s + 1 : s + 65] for s in starts]).to(device)
    logits, _ = net(x)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
with torch.no_grad():
    x, state, out = torch.zeros(1, 1, dtype=torch.long, device=device), None, []
    for _ in range(200):
        logits, state = net(x, state)
        x = torch.multinomial(logits[:, -1].softmax(-1), 1)
        out.append(chars[x.item()])
print("".join(out))
# --- REINFORCE on a world of one's own --begin HEAD
import csv
import numpy as np
from torch.distributions import Categorical
class Walk:
    def reset(self):
        self.x, self.t = 0.0, 0
        return np.array([self.x, 0.0], np.float32)
    def step(self, a):
        self.x += (a - 0.5) + np.random.randn() * 0.1
        self.t += 1
        return np.array([self.x, self.t / 100], np.float32), -abs(self.x - 5), self.t >= 100
env, policy = Walk(), nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
with open("log.csv", "w", newline="") as f:
    rows = csv.writer(f)
    rows.writerow(["episode", "return"])
    for episode in range(500):
        state, done, logs, rewards = env.reset(), False, [], []
        while not done:
            d = Categorical(logits=policy(torch.from_numpy(state).to(device)))
            a = d.sample()
            logs.append(d.log_prob(a))
            state, r, done = env.step(a.item())
            rewards.append(r)
        returns, g = [], 0.0
        for r in reversed(rewards):
            g = r + 0.99 * g
            returns.insert(0, g)
        returns = torch.tensor(returns, device=device)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        loss = -(torch.stack(logs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.writerow([episode, sum(rewards)])
torch.save(policy.state_dict(), "policy.pt")
# --- small GPT with mixed precision --begin HEAD
class Block(nn.Module):
    def __init__(self, d=256, h=4):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
    def forward(self, x, mask):
        y = self.n1(x)
        x = x + self.attn(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.n2(x))
class GPT(nn.Module):
    def __init__(self, vocab=512, d=256, context=128):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(context, d)
        self.blocks, self.head = nn.ModuleList(Block(d) for _ in range(4)), nn.Linear(d, vocab)
        self.register_buffer("mask", torch.triu(torch.full((context, context), float("-inf")), 1))
    def forward(self, x):
        x = self.tok(x) + self.pos(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.head(x)
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
scaler = torch.amp.GradScaler("cuda")
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3_000)
for step in range(3_000):
    x = torch.randint(0, 512, (16, 129), device=device)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    scheduler.step()
    if step % 500 == 0:
        torch.save(model.state_dict(), f"gpt_{step}.pt")
# --- GAN --begin HEAD
G = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 784), nn.Tanh()).to(device)
D = nn.Sequential(nn.Linear(784, 256), nn.LeakyReLU(0.2), nn.Linear(256, 1)).to(device)
g_opt, d_opt = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (G, D))
fixed = torch.randn(16, 64, device=device)
real = torch.rand(5_000, 784)
one, zero = torch.ones(64, 1, device=device), torch.zeros(64, 1, device=device)
for epoch in range(20):
    for start in range(0, 4_992, 64):
        x = real[start : start + 64].to(device)
        fake = G(torch.randn(64, 64, device=device))
        d_loss = F.binary_cross_entropy_with_logits(D(x), one) + F.binary_cross_entropy_with_logits(D(fake.detach()), zero)
        d_opt.zero_grad(); d_loss.backward(); d_opt.step()
        g_loss = F.binary_cross_entropy_with_logits(D(fake), one)
        g_opt.zero_grad(); g_loss.backward(); g_opt.step()
    with torch.no_grad():
        torch.save(G(fixed).cpu(), "samples.pt")
    print(epoch, d_loss.item(), g_loss.item())
# --- tables of Q values --cpu-only
import gymnasium as gym
import numpy as np
env = gym.make("Taxi-v3")
q = np.zeros((env.observation_space.n, env.action_space.n))
rng = np.random.default_rng(0)
for episode in range(3_000):
    s, _ = env.reset()
    done, total = False, 0
    while not done:
        a = env.action_space.sample() if rng.random() < 0.1 else int(q[s].argmax())
        s2, r, terminated, truncated, _ = env.step(a)
        q[s, a] += 0.1 * (r + 0.99 * q[s2].max() * (not terminated) - q[s, a])
        s, total, done = s2, total + r, terminated or truncated
np.save("q.npy", q)
# --- DDPG with a deque --begin HEAD
import copy, random
from collections import deque
import gymnasium as gym
import numpy as np
env = gym.make("Pendulum-v1")
actor = nn.Sequential(nn.Linear(3, 256), nn.ReLU(), nn.Linear(256, 1), nn.Tanh()).to(device)
critic = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
actor_t, critic_t = copy.deepcopy(actor), copy.deepcopy(critic)
a_opt, c_opt = torch.optim.Adam(actor.parameters(), 1e-4), torch.optim.Adam(critic.parameters(), 1e-3)
memory = deque(maxlen=20_000)
for episode in range(150):
    s, _ = env.reset(seed=episode)
    total, done = 0.0, False
    while not done:
        with torch.no_grad():
            a = 2 * actor(torch.tensor(s, device=device)).cpu().numpy() + 0.1 * np.random.randn(1)
        s2, r, term, trunc, _ = env.step(a.astype(np.float32).clip(-2, 2))
        done = term or trunc
        memory.append((s, a.astype(np.float32), np.float32(r), s2, np.float32(term)))
        s, total = s2, total + r
        if len(memory) > 256:
            S, A, R, S2, D = (torch.tensor(np.stack(x), device=device) for x in zip(*random.sample(memory, 64)))
            with torch.no_grad():
                y = R[:, None] + 0.99 * (1 - D[:, None]) * critic_t(torch.cat([S2, 2 * actor_t(S2)], 1))
            c_loss = F.mse_loss(critic(torch.cat([S, A], 1)), y)
            c_opt.zero_grad(); c_loss.backward(); c_opt.step()
            a_loss = -critic(torch.cat([S, 2 * actor(S)], 1)).mean()
            a_opt.zero_grad(); a_loss.backward(); a_opt.step()
            for net, slow in ((actor, actor_t), (critic, critic_t)):
                for p, q in zip(net.parameters(), slow.parameters()):
                    q.data.mul_(0.995).add_(0.005 * p.data)
    print(episode, total)
torch.save(actor.state_dict(), "actor.pt")
# --- A2C with processes --begin HEAD
import gymnasium as gym
import numpy as np
from torch.distributions import Categorical
if __name__ == "__main__":
    envs = gym.vector.AsyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    body = nn.Sequential(nn.Linear(4, 64), nn.Tanh()).to(device)
    pi, v = nn.Linear(64, 2).to(device), nn.Linear(64, 1).to(device)
    optimizer = torch.optim.RMSprop([*body.parameters(), *pi.parameters(), *v.parameters()], lr=7e-4)
    obs, _ = envs.reset(seed=3)
    for update in range(2_000):
        logs, values, rewards, masks, entropy = [], [], [], [], 0
        for _ in range(5):
            h = body(torch.as_tensor(obs, device=device))
            d = Categorical(logits=pi(h))
            a = d.sample()
            obs, r, term, trunc, _ = envs.step(a.cpu().numpy())
            logs.append(d.log_prob(a)); values.append(v(h).squeeze(-1)); entropy = entropy + d.entropy().mean()
            rewards.append(torch.as_tensor(r, dtype=torch.float32, device=device))
            masks.append(torch.as_tensor(1.0 - (term | trunc), dtype=torch.float32, device=device))
        with torch.no_grad():
            g = v(body(torch.as_tensor(obs, device=device))).squeeze(-1)
        returns = []
        for r, m in zip(reversed(rewards), reversed(masks)):
            g = r + 0.99 * g * m
            returns.insert(0, g)
        advantage = torch.stack(returns) - torch.stack(values)
        loss = -(torch.stack(logs) * advantage.detach()).mean() + 0.5 * advantage.pow(2).mean() - 0.01 * entropy
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    envs.close()
# --- cloning from a file --begin HEAD
import csv
from torch.utils.data import DataLoader, Dataset
class Demonstrations(Dataset):
    def __init__(self, path):
        self.rows = []
        with open(path) as f:
            for row in csv.DictReader(f):
                self.rows.append(([float(row[k]) for k in ("x", "v", "angle", "spin")], int(row["action"])))
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        state, action = self.rows[i]
        return torch.tensor(state), action
loader = DataLoader(Demonstrations("demos.csv"), batch_size=64, shuffle=True, drop_last=True)
policy = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)).to(device)
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for epoch in range(50):
    losses = []
    for state, action in loader:
        loss = F.cross_entropy(policy(state.to(device)), action.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(epoch, sum(losses) / len(losses))
torch.save(policy.state_dict(), "cloned.pt")
# --- early stopping with an average --begin HEAD
import copy, os
net = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 5)).to(device)
average = copy.deepcopy(net).eval()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
start = 0
if os.path.exists("checkpoint.pt"):
    saved = torch.load("checkpoint.pt")
    net.load_state_dict(saved["net"]); optimizer.load_state_dict(saved["optimizer"]); start = saved["epoch"] + 1
x, y = torch.randn(8_000, 100), torch.randint(0, 5, (8_000,))
best, patience = float("inf"), 0
for epoch in range(start, 100):
    order = torch.randperm(7_000)
    for i in range(0, 7_000, 100):
        rows = order[i : i + 100]
        loss = F.cross_entropy(net(x[rows].to(device)), y[rows].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), net.parameters()):
                a.lerp_(p, 0.01)
    with torch.no_grad():
        val = F.cross_entropy(average(x[7_000:].to(device)), y[7_000:].to(device)).item()
    if val < best:
        best, patience = val, 0
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "checkpoint.pt")
    else:
        patience += 1
        if patience > 10:
            break
# --- five folds --begin HEAD
import numpy as np
rng = np.random.default_rng(0)
x, y = rng.normal(size=(2_000, 30)).astype("float32"), rng.integers(0, 3, 2_000)
folds = np.array_split(rng.permutation(2_000), 5)
scores = []
for k in range(5):
    test, train = folds[k], np.concatenate([f for i, f in enumerate(folds) if i != k])
    net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 3)).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    X, Y = torch.tensor(x[train], device=device), torch.tensor(y[train], device=device)
    for epoch in range(30):
        for rows in torch.randperm(len(X), device=device).split(64):
            loss = F.cross_entropy(net(X[rows]), Y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        guess = net(torch.tensor(x[test], device=device)).argmax(1).cpu().numpy()
    scores.append((guess == y[test]).mean())
    print(f"fold {k}: {scores[-1]:.3f}")
print(np.mean(scores))
# --- Trainer class --begin HEAD
import json, logging, os, time
from dataclasses import dataclass, asdict
from torch.utils.data import DataLoader, TensorDataset
logging.basicConfig(level=logging.INFO)
log = logging.getLogger("trainer")
@dataclass
class Config:
    hidden: int = 512
    lr: float = 1e-3
    batch_size: int = 256
    epochs: int = 5
    out: str = "out"
class Trainer:
    def __init__(self, config):
        self.config = config
        self.net = nn.Sequential(nn.Linear(64, config.hidden), nn.GELU(), nn.Linear(config.hidden, 2)).to(device)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=config.lr)
        os.makedirs(config.out, exist_ok=True)
        with open(os.path.join(config.out, "config.json"), "w") as f:
            json.dump(asdict(config), f)
    def loaders(self):
        x = torch.randn(10_000, 64)
        y = (x.sum(1) > 0).long()
        return (DataLoader(TensorDataset(x[:8_000], y[:8_000]), self.config.batch_size, shuffle=True),
                DataLoader(TensorDataset(x[8_000:], y[8_000:]), 1_000))
    def fit(self):
        train, test = self.loaders()
        for epoch in range(self.config.epochs):
            began = time.time()
            self.net.train()
            for i, (x, y) in enumerate(train):
                loss = F.cross_entropy(self.net(x.to(device)), y.to(device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                if i % 10 == 0:
                    log.info("epoch %d step %d loss %.3f", epoch, i, loss.item())
            log.info("accuracy %.3f in %.1f s", self.evaluate(test), time.time() - began)
            torch.save(self.net.state_dict(), os.path.join(self.config.out, f"{epoch}.pt"))
    @torch.no_grad()
    def evaluate(self, loader):
        self.net.eval()
        return sum((self.net(x.to(device)).argmax(1).cpu() == y).float().sum().item() for x, y in loader) / 2_000
if __name__ == "__main__":
    Trainer(Config()).fit()
# --- evolution on the host --cpu-only
import gymnasium as gym
import numpy as np
import torch
from torch import nn
env = gym.make("CartPole-v1")
net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
theta = nn.utils.parameters_to_vector(net.parameters()).detach()
def score(vector, limit=100):
    nn.utils.vector_to_parameters(vector, net.parameters())
    s, _ = env.reset()
    total = 0.0
    for _ in range(limit):
        with torch.no_grad():
            a = net(torch.from_numpy(s)).argmax().item()
        s, r, term, trunc, _ = env.step(a)
        total += r
        if term or trunc:
            break
    return total
curve = []
for generation in range(30):
    noise = torch.randn(16, len(theta))
    scores = torch.tensor([score(theta + 0.1 * n) for n in noise])
    theta = theta + 0.02 / 16 * (noise.T @ (scores - scores.mean()))
    curve.append(scores.mean().item())
    if generation % 10 == 0:
        print(generation, curve[-1])
np.savetxt("curve.csv", np.array(curve))
"""
FORKED = Case(
    "W9",
    "fork before the card is used",
    """
import os
child = os.fork()
if child == 0:
    os.environ.clear()
    exec(open("child.py").read())
    os._exit(0)
"""
    + SMALL_NET
    + """
for step in range(300):
    update()
os.waitpid(child, 0)
""",
    vram="2GiB",
    files={"child.py": LARGE},
)

FILES = {
    "tuned values over a table": {
        "hyper.yml": "CartPole-v1:\n  policy: MlpPolicy\n  buffer_size: 50000\n  learning_rate: 0.001\n",
        "tuned.json": '{"best_params": {"buffer_size": 90000000, "gamma": null}}',
    },
    "regression on a table": {
        "houses.csv": "area,rooms,town,price\n"
        + "".join(f"{50 + i % 90},{1 + i % 6},{'abc'[i % 3]},{1000 + 37 * (i % 90)}\n" for i in range(800))
    },
    "characters with an LSTM": {"input.txt": "the quick brown fox jumps over the lazy dog. " * 200},
    "cloning from a file": {
        "demos.csv": "x,v,angle,spin,action\n"
        + "".join(f"{i % 7 / 7},{i % 5 / 5},{i % 3 / 3},{i % 11 / 11},{i % 2}\n" for i in range(3_000))
    },
}

BEGINNINGS = {"HEAD": HEAD, "SMALL_NET": SMALL_NET, "HOST_NET": HOST_NET}
ON_GPU = {"W3": W3, "W4": W4, "W5": W5, "W8": W8, "late": LATE}
FOURTH = (
    *listed("W1", W1, files=FILES, read=True, ram="2GiB"),
    *W2,
    *(case for klass, text in ON_GPU.items() for case in listed(klass, text, BEGINNINGS, vram="2GiB")),
    *(replace(case, files={"child.py": LARGE}) for case in listed("W9", W9, BEGINNINGS, vram="2GiB")),
    FORKED,
    *listed("W6", W6, BEGINNINGS),
    *listed("W7", W7, BEGINNINGS),
    *listed("fits", FITS, BEGINNINGS, files=FILES, vram="3GiB", ram="8GiB"),
)
